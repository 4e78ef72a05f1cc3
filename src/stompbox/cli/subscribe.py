"""`stompbox subscribe`: messages to stdout, acknowledged after they were written."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from cyclopts import App

from stompbox.cli.connecting import AsJson, Header, SelectorText, ShowHeaders, Url, parse_headers, run, url_or_default

if TYPE_CHECKING:
    from stompbox.client.message import Message

Form = Callable[["Message"], bytes]

app = App(name="subscribe", help="Print the messages of a destination as they come.")


@app.default
def subscribe(
    destination: str,
    *,
    url: Url = None,
    header: Header = None,
    selector: SelectorText = None,
    durable: str | None = None,
    client_id: str | None = None,
    count: int | None = None,
    timeout: float | None = None,
    json_lines: AsJson = False,
    show_headers: ShowHeaders = False,
) -> None:
    """Print messages until interrupted; each is acknowledged when it has been written.

    Parameters
    ----------
    destination
        Where from, such as /queue/orders or /topic/prices.#.
    durable
        Name of a durable subscription; needs --client-id.
    client_id
        Who we are, for a durable subscription.
    count
        Stop after so many messages.
    timeout
        Stop when nothing came for so many seconds.
    """
    work = _subscribe(
        destination,
        url=url_or_default(url),
        header=header,
        selector=selector,
        durable=durable,
        client_id=client_id,
        count=count,
        timeout=timeout,
        form=form_of(json_lines=json_lines, show_headers=show_headers),
    )
    run("subscribe", work)


async def _subscribe(
    destination: str,
    *,
    url: str,
    header: list[str] | None,
    selector: str | None,
    durable: str | None,
    client_id: str | None,
    count: int | None,
    timeout: float | None,
    form: Form,
) -> None:
    from stompbox.client import connect

    headers = parse_headers(header)
    left = count if count is not None else -1
    async with (
        connect(url, client_id=client_id) as client,
        client.subscribe(destination, ack="client-individual", headers=headers, selector=selector, durable=durable) as messages,
    ):
        while left != 0:
            message = await messages.receive(timeout)
            if message is None:
                return
            async with message.process():
                sys.stdout.buffer.write(form(message))
                sys.stdout.buffer.flush()
            left -= 1


def form_of(*, json_lines: bool, show_headers: bool) -> Form:
    """How a message is printed."""
    return _as_json if json_lines else _as_frame if show_headers else _as_body


def _as_body(message: Message) -> bytes:
    return message.body + b"\n"


def _as_frame(message: Message) -> bytes:
    head = "".join([f"{name}: {value}\n" for name, value in message.headers.items()])
    return head.encode() + b"\n" + message.body + b"\n\n"


def _as_json(message: Message) -> bytes:
    entry: dict[str, object] = {"headers": dict(message.headers)}
    try:
        entry["body"] = message.body.decode()
    except UnicodeDecodeError:
        entry["body_base64"] = base64.b64encode(message.body).decode()
    return json.dumps(entry, ensure_ascii=False).encode() + b"\n"
