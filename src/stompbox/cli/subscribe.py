"""`stompbox subscribe`: messages to stdout, acknowledged after they were written.

With --count the broker sends one message at a time, and the last acknowledgement goes out together with the UNSUBSCRIBE: no other
message leaves its queue, so none comes back with a delivery counted that nobody saw.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cyclopts import App

from stompbox.cli import streams
from stompbox.cli.connecting import at_least, leaving, parse_headers, run, url_or_default
from stompbox.cli.examples import examples
from stompbox.cli.parameters import Header, JsonLines, SelectorText, ShowHeaders, Url
from stompbox.errors import UsageError

if TYPE_CHECKING:
    from stompbox.client import ReceivedMessage, Subscription

BATCH: Final = 256  # messages of one write, when so many are there
_COUNTS_OCTETS: Final = "ActiveMQ-Artemis"  # which sends ahead by octets, and knows no number of messages

Form = Callable[["ReceivedMessage"], bytes]

app = App(name="subscribe", help_epilogue=examples("subscribe"))


@app.default
def subscribe(
    destination: str,
    /,
    *,
    url: Url = None,
    header: Header = None,
    selector: SelectorText = None,
    durable: str | None = None,
    client_id: str | None = None,
    count: int | None = None,
    timeout: float | None = None,
    json_lines: JsonLines = False,
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
    with leaving("subscribe"):
        at_least("count", count, 1, "a number")
        at_least("timeout", timeout, 0, "a number")
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
    async with connect(url, client_id=client_id) as client:
        prefetch = None if count is None or client.server.startswith(_COUNTS_OCTETS) else 1
        subscription = client.subscribe(
            destination,
            ack="client-individual",
            headers=headers,
            selector=selector,
            durable=durable,
            prefetch=prefetch,
        )
        try:
            async with subscription as messages, streams.while_read():
                await _print(messages, form, count, timeout)
        except UsageError as error:
            if error.code == "no-client-id":
                raise UsageError(
                    error.code, "--durable needs --client-id: the broker knows the subscription by both"
                ) from None
            raise


async def _print(messages: Subscription, form: Form, count: int | None, timeout: float | None) -> None:
    left = count
    while left is None or left > 0:
        batch = await messages.receive_many(BATCH if left is None else min(left, BATCH), timeout)
        if not batch:
            return
        await streams.write(b"".join([form(message) for message in batch]))
        for message in batch:
            async with message.process():  # its ACK; what was lost meanwhile comes again
                pass
        if left is not None:
            left -= len(batch)


def form_of(*, json_lines: bool, show_headers: bool) -> Form:
    """How the flags want a message to be printed."""
    return _as_json if json_lines else _as_frame if show_headers else _as_body


def _as_body(message: ReceivedMessage) -> bytes:
    return message.body + b"\n"


def _as_frame(message: ReceivedMessage) -> bytes:
    head = "".join([f"{name}: {value}\n" for name, value in message.headers.items()])
    return head.encode() + b"\n" + message.body + b"\n\n"


def _as_json(message: ReceivedMessage) -> bytes:
    entry: dict[str, object] = {"headers": dict(message.headers)}
    try:
        entry["body"] = message.body.decode()
    except UnicodeDecodeError:
        entry["body_base64"] = base64.b64encode(message.body).decode()
    return json.dumps(entry, ensure_ascii=False).encode() + b"\n"
