"""`stompbox send`: messages from the command line, from stdin or a file; each is confirmed by the broker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from stompbox.cli.connecting import Header, Url, parse_headers, run, url_or_default
from stompbox.errors import UsageError

app = App(name="send", help="Send messages and wait until the broker has stored them.")


@app.default
def send(
    destination: str,
    body: str | None = None,
    *,
    url: Url = None,
    header: Header = None,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None,
    lines: Annotated[bool, Parameter(negative="")] = False,
    count: int = 1,
    window: int = 1000,
) -> None:
    """Send messages; returns when the broker has confirmed all of them.

    Parameters
    ----------
    destination
        Where to, such as /queue/orders.
    body
        The body; without it (and without --file) stdin is read.
    file
        The body is this file's.
    lines
        Each line of stdin, or of the file, is a message.
    count
        Send it so many times.
    window
        Confirmations that may be outstanding.
    """
    run("send", _send(destination, _bodies(body, file, lines=lines, count=count), url_or_default(url), header, window))


def _bodies(body: str | None, file: Path | None, *, lines: bool, count: int) -> Iterator[bytes]:
    if count < 1:
        raise UsageError("bad-argument", f"--count is {count}; allowed is a number from 1")
    if body is not None and file is not None:
        raise UsageError("bad-argument", "a body and --file cannot be given together")
    for _ in range(count):
        if body is not None:
            yield from body.encode().splitlines() if lines else [body.encode()]
            continue
        try:
            with file.open("rb") if file is not None else sys.stdin.buffer as source:
                if lines:
                    yield from (line.rstrip(b"\r\n") for line in source)
                else:
                    yield source.read()
        except OSError as error:
            raise UsageError("bad-argument", f"--file {str(file)!r} cannot be read: {error.strerror}") from None


async def _send(destination: str, bodies: Iterator[bytes], url: str, header: list[str] | None, window: int) -> None:
    from stompbox.client import connect

    headers = parse_headers(header)
    sent = 0
    async with connect(url) as client, client.publisher(window=window) as publisher:
        for body in bodies:
            await publisher.send(destination, body, headers)
            sent += 1
    print(f"{sent} {'message' if sent == 1 else 'messages'} sent to {destination} and confirmed", file=sys.stderr)
