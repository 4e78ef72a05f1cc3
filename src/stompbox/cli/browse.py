"""`stompbox browse`: what a queue holds, to stdout; nothing is taken from it, and a queue that is not there is not made."""

from __future__ import annotations

from cyclopts import App

from stompbox.cli import streams
from stompbox.cli.connecting import at_least, leaving, parse_headers, run, url_or_default
from stompbox.cli.examples import examples
from stompbox.cli.parameters import Header, JsonLines, SelectorText, ShowHeaders, Url
from stompbox.cli.subscribe import BATCH, Form, form_of

app = App(name="browse", help_epilogue=examples("browse"))

BROWSER = "browser"  # header of the SUBSCRIBE, and of the MESSAGE that says that there is no more


@app.default
def browse(
    destination: str,
    /,
    *,
    url: Url = None,
    header: Header = None,
    selector: SelectorText = None,
    count: int | None = None,
    json_lines: JsonLines = False,
    show_headers: ShowHeaders = False,
) -> None:
    """Print the messages that a queue holds now, waiting or being delivered.

    Parameters
    ----------
    destination
        The queue, such as /queue/orders.
    count
        So many at most.
    """
    with leaving("browse"):
        at_least("count", count, 1, "a number")
    form = form_of(json_lines=json_lines, show_headers=show_headers)
    run(
        "browse", _browse(destination, url_or_default(url), header, selector=selector, count=count, form=form)
    )


async def _browse(
    destination: str,
    url: str,
    header: list[str] | None,
    *,
    selector: str | None,
    count: int | None,
    form: Form,
) -> None:
    from stompbox.client import connect

    headers = parse_headers(header) | {BROWSER: "true"}
    left = count if count is not None else -1
    async with (
        connect(url) as client,
        client.subscribe(destination, ack="auto", headers=headers, selector=selector) as messages,
    ):
        while left != 0:
            batch = await messages.receive_many(BATCH if left < 0 else min(left, BATCH))
            shown = [message for message in batch if message.headers.get(BROWSER) != "end"]
            await streams.write(b"".join([form(message) for message in shown]))
            if len(shown) < len(batch) or not batch:
                break
            left -= len(shown) if left > 0 else 0
