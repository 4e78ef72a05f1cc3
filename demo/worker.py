"""A worker on /queue/late: sees to one flight after another that left more than an hour late, and acknowledges each by itself.

It looks into its tray every `ROUND` seconds, as people do, so it holds some that it has not come to: they are another's when it dies.
What it did is in its book, a file, before it says so to the broker: a line per flight, with a mark when it came a second time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Final

import stompbox
from demo.lines import Orders, say, work_until

ROUND: Final = 0.2  # s
TRAY: Final = 400  # messages that the broker gives it at a time
AGAIN: Final = "again"


class Worker:
    def __init__(self, tray: stompbox.Subscription, book: str) -> None:
        self._tray: Final = tray
        self._book: Final = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.handled = 0
        self.again = 0

    async def work(self) -> None:
        while True:
            await asyncio.sleep(ROUND)
            for message in await self._tray.receive_many(TRAY):
                async with message.process():  # ACK at its end
                    self._see_to(message)

    def _see_to(self, message: stompbox.Message) -> None:
        self.handled += 1
        self.again += message.is_redelivered
        line = f"{message.headers['number']} {AGAIN if message.is_redelivered else ''}".strip()
        # with the operating system at once: kill -9 does not take it away
        os.write(self._book, f"{line}\n".encode())

    def facts(self) -> dict[str, Any]:
        return {"handled": self.handled, "again": self.again, "waiting": self._tray.buffered}


async def main(url: str, book: str) -> None:
    orders = Orders()
    async with (
        stompbox.connect(url) as client,
        client.subscribe("/queue/late", ack="client-individual", prefetch=TRAY) as tray,
    ):
        worker = Worker(tray, book)
        say(subscribed=True)
        await work_until("finish", worker.work(), worker.facts, orders)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
