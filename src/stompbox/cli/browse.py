"""`stompbox browse`: what a queue holds, to stdout; nothing is taken from it."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from stompbox.cli.connecting import Header, Url, parse_headers, run, url_or_default
from stompbox.cli.subscribe import Form, form_of

app = App(name="browse", help="Print what a queue holds, and leave it there.")

BROWSER = "browser"  # header of the SUBSCRIBE, and of the MESSAGE that says that there is no more


@app.default
def browse(
    destination: str,
    *,
    url: Url = None,
    header: Header = None,
    selector: str | None = None,
    count: int | None = None,
    json_lines: Annotated[bool, Parameter(name="--json", negative="")] = False,
    show_headers: Annotated[bool, Parameter(name="--headers", negative="")] = False,
) -> None:
    """Print the messages that a queue holds now, waiting or being delivered.

    Parameters
    ----------
    destination
        The queue, such as /queue/orders.
    url
        Broker, stomp://login:passcode@host:port; else STOMPBOX_URL, else stomp://127.0.0.1:61613.
    header
        A header of the SUBSCRIBE frame, name:value; may be given several times.
    selector
        Only messages whose headers match.
    count
        So many at most.
    json_lines
        One JSON object a line: headers, and body as text (or body_base64 when it is not UTF-8).
    show_headers
        Headers before each body.
    """
    form = form_of(json_lines=json_lines, show_headers=show_headers)
    run("browse", _browse(destination, url_or_default(url), header, selector=selector, count=count, form=form))


async def _browse(destination: str, url: str, header: list[str] | None, *, selector: str | None, count: int | None, form: Form) -> None:
    from stompbox.client import connect

    headers = parse_headers(header) | {BROWSER: "true"}
    left = count if count is not None else -1
    async with connect(url) as client, client.subscribe(destination, ack="auto", headers=headers, selector=selector) as messages:
        while left != 0:
            message = await messages.receive()
            if message is None or message.headers.get(BROWSER) == "end":
                break
            sys.stdout.buffer.write(form(message))
            left -= 1
    sys.stdout.buffer.flush()
