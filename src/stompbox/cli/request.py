"""`stompbox request`: a message that somebody else replies to, and the reply."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from cyclopts import App

from stompbox.cli import streams
from stompbox.cli.connecting import at_least, leaving, parse_headers, run, url_or_default
from stompbox.cli.examples import examples
from stompbox.cli.parameters import File, Header, JsonLines, ShowHeaders, Url
from stompbox.cli.subscribe import Form, form_of
from stompbox.errors import UsageError

if TYPE_CHECKING:
    from stompbox.client import ReceivedMessage

app = App(name="request", help_epilogue=examples("request"))


@app.default
def request(
    destination: str,
    body: str | None = None,
    /,
    *,
    url: Url = None,
    header: Header = None,
    file: File = None,
    json_lines: JsonLines = False,
    show_headers: ShowHeaders = False,
    timeout: float = 30.0,
) -> None:
    """Send a request and print the reply, which comes over a temporary queue. Exit code 3 when none came.

    Parameters
    ----------
    destination
        Who serves it, such as /queue/prices.
    body
        The body; without it (and without --file) stdin is read.
    file
        The body is this file's.
    timeout
        Seconds to wait for the reply.
    """
    with leaving("request"):
        parse_headers(header)
        at_least("timeout", timeout, 0.001, "seconds")
        if body is not None and file is not None:
            raise UsageError("bad-argument", "a body and --file cannot be given together")
        if body is None and file is None and sys.stdin is None:
            raise UsageError("bad-argument", "stdin is closed, and neither a body nor --file is given")
        if body is None and file is None and sys.stdin.isatty():
            print("stompbox request: the request is what is typed here; Ctrl-D ends it", file=sys.stderr)
    work = _request(
        destination, streams.content(body, file), parse_headers(header), url_or_default(url), timeout
    )
    run("request", _printed(work, form_of(json_lines=json_lines, show_headers=show_headers)))


async def _request(
    destination: str, content: Awaitable[bytes], headers: dict[str, str], url: str, timeout: float
) -> ReceivedMessage:
    from stompbox.client import connect

    body = await content
    async with connect(url) as client:
        return await client.rpc(destination, body, headers, timeout=timeout)


async def _printed(work: Awaitable[ReceivedMessage], form: Form) -> None:
    await streams.write(form(await work))
