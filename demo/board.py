"""The departures board: a plain wildcard subscriber of all flights. It counts them, and shows the last ones that left."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Any, Final

import stompbox
from demo.lines import Orders, say, work_until
from demo.tally import Tally

SHOWN: Final = 8  # flights


class Board:
    def __init__(self, total: int) -> None:
        self.tally: Final = Tally(total)
        self._last: Final[deque[stompbox.Message]] = deque(maxlen=SHOWN)

    async def watch(self, messages: stompbox.Subscription) -> None:
        async for message in messages:
            headers = message.headers
            self.tally.add(headers["carrier"], int(headers["number"]), message.body)
            self._last.append(message)

    def facts(self) -> dict[str, Any]:
        names = ("date", "time", "carrier", "flight", "origin", "dest", "dep_delay")
        return {
            **self.tally.facts(),
            "last": [[message.headers.get(name, "") for name in names] for message in self._last],
        }


async def main(url: str, total: str) -> None:
    orders, board = Orders(), Board(int(total))
    async with stompbox.connect(url) as client, client.subscribe("/topic/flights.#") as messages:
        say(subscribed=True)
        await work_until("finish", board.watch(messages), board.facts, orders)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
