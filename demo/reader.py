"""Reads the report from its queue with a plain STOMP client, without async: each message is acknowledged once it is on stdout."""

from __future__ import annotations

import sys
from typing import Any, Final

from demo.lines import say
from stompbox import blocking

WITHIN: Final = 60.0  # s, for each message
REST: Final = 0.5  # s: nothing comes after the last


def main(url: str, expected: str) -> None:
    rows: list[tuple[str, Any]] = []
    with (
        blocking.connect(url) as client,
        client.subscribe("/queue/report", ack="client-individual") as messages,
    ):
        while len(rows) < int(expected) and (message := messages.receive(WITHIN)) is not None:
            rows.append((message.headers["report"], message.json()))
            message.ack(confirm=len(rows) == int(expected))
        is_more = messages.receive(REST) is not None
    say(rows=rows, is_more=is_more, finished=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
