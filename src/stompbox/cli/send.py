"""`stompbox send`: messages from the command line, from stdin or a file; each is confirmed by the broker.

A line of stdin is sent when it is there, not when the last one is; while the broker takes none, no more is read. A refusal is told when
it comes, whether or not there is another line.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cyclopts import App

from stompbox.cli import streams
from stompbox.cli.connecting import at_least, counted, leaving, parse_headers, run, url_or_default
from stompbox.cli.examples import examples
from stompbox.cli.parameters import File, Flag, Header, JsonFlag, Url
from stompbox.errors import UsageError

if TYPE_CHECKING:
    from stompbox.client import Publisher

# What a MESSAGE says of one delivery: a SEND that repeated it would say something else, or nothing that is true
_OF_MESSAGE: Final = frozenset(
    (
        "destination",
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "JMSXDeliveryCount",
        "content-length",
        "receipt",
        "transaction",
    )
)

app = App(name="send", help_epilogue=examples("send"))


@app.default
def send(
    destination: str,
    body: str | None = None,
    /,
    *,
    url: Url = None,
    header: Header = None,
    file: File = None,
    lines: Flag = False,
    json_lines: JsonFlag = False,
    count: int = 1,
    window: int = 1000,
) -> None:
    """Send messages; returns when the broker has confirmed all of them.

    Parameters
    ----------
    destination
        Where to, such as /queue/orders.
    body
        The body; without it (and without --file) stdin is read. From a pipe or a file an empty one is sent, too.
    file
        The body is this file's.
    lines
        Each line of stdin, or of the file, is a message.
    json_lines
        Each line is a message as subscribe --json prints it: an object with headers, and body or body_base64.
    count
        Send it so many times.
    window
        Confirmations that may be outstanding.
    """
    with leaving("send"):
        lines = lines or json_lines
        _check(body, file, lines=lines, count=count, window=window)
    bodies = _bodies(body, file, lines=lines, count=count)
    messages = _parsed(bodies) if json_lines else _plain(bodies)
    run("send", _send(destination, messages, url_or_default(url), header, window))


def _check(body: str | None, file: Path | None, *, lines: bool, count: int, window: int) -> None:
    """Raises UsageError; and says on a terminal what it waits for."""
    at_least("count", count, 1, "a number")
    at_least("window", window, 1, "a number")
    if body is not None and file is not None:
        raise UsageError("bad-argument", "a body and --file cannot be given together")
    if body is not None or file is not None:
        return
    if lines and count > 1:
        raise UsageError(
            "bad-argument", "--lines with --count needs a body or --file: the lines of stdin are read once"
        )
    if sys.stdin is None:
        raise UsageError("bad-argument", "stdin is closed, and neither a body nor --file is given")
    if sys.stdin.isatty():
        what = "each line typed here is a message" if lines else "the message is what is typed here"
        print(f"stompbox send: {what}; Ctrl-D at the beginning of a line ends it", file=sys.stderr)


async def _bodies(body: str | None, file: Path | None, *, lines: bool, count: int) -> AsyncIterator[bytes]:
    once = None if lines else await streams.content(body, file)
    for _ in range(count):
        if once is not None:
            yield once
        elif body is not None:
            for line in body.encode().splitlines():
                yield line
        else:
            with await streams.opened(file) as source:
                async for line in streams.lines(source):
                    yield line


Message = tuple[bytes, dict[str, str]]  # body, headers


async def _plain(bodies: AsyncIterator[bytes]) -> AsyncIterator[Message]:
    async for body in bodies:
        yield body, {}


async def _parsed(lines: AsyncIterator[bytes]) -> AsyncIterator[Message]:
    """Raises UsageError that says in which line what is wrong. Blank lines are none."""
    number = 0
    async for line in lines:
        number += 1
        if line.strip():
            yield parse_message(line, number)


def parse_message(line: bytes, number: int) -> Message:
    """A message as `subscribe --json` prints it; what a broker writes into each MESSAGE is left out of its headers."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError("bad-argument", f"line {number} is no JSON: {error}") from None
    if not isinstance(given, dict) or not given.keys() <= {"headers", "body", "body_base64"}:
        raise UsageError(
            "bad-argument", f"line {number}: allowed is an object with headers, and body or body_base64"
        )
    headers, text, encoded = given.get("headers", {}), given.get("body"), given.get("body_base64")
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise UsageError("bad-argument", f"line {number}: headers is no object of texts")
    if (
        (text is not None and encoded is not None)
        or not isinstance(text, str | None)
        or not isinstance(encoded, str | None)
    ):
        raise UsageError("bad-argument", f"line {number}: allowed is one text, body or body_base64")
    try:
        body = (text or "").encode() if encoded is None else base64.b64decode(encoded, validate=True)
    except ValueError as error:  # of base64, and a half of a surrogate pair
        raise UsageError("bad-argument", f"line {number}: the body cannot be read: {error}") from None
    return body, {name: value for name, value in headers.items() if name not in _OF_MESSAGE}


async def _send(
    destination: str, messages: AsyncIterator[Message], url: str, header: list[str] | None, window: int
) -> None:
    from stompbox.client import connect

    headers = parse_headers(header)
    async with connect(url) as client, client.publisher(window=window) as publisher:
        sent = await _unless_refused(publisher, _send_each(publisher, destination, messages, headers))
    print(
        f"{counted(sent, 'message')} sent to {destination} and confirmed",
        file=sys.stderr,
    )


async def _send_each(
    publisher: Publisher, destination: str, messages: AsyncIterator[Message], headers: dict[str, str]
) -> int:
    sent = 0
    async for body, own in messages:
        await publisher.send(destination, body, {**own, **headers})
        sent += 1
    return sent


async def _unless_refused(publisher: Publisher, work: Coroutine[Any, Any, int]) -> int:
    """What `work` returns, or the refusal that ends it, whatever it waits for."""
    sending, refusal = asyncio.create_task(work), asyncio.create_task(publisher.failure())
    try:
        await asyncio.wait((sending, refusal), return_when=asyncio.FIRST_COMPLETED)
        if refusal.done():
            await refusal
        return await sending
    finally:
        sending.cancel()
        refusal.cancel()
        await asyncio.gather(sending, refusal, return_exceptions=True)
