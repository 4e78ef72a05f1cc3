"""The control room: a durable subscriber of all flights. While it is away the broker keeps what it misses.

It acknowledges cumulatively: an ACK is for all messages before it too (STOMP 1.2, SUBSCRIBE ack Header: client).
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import stompbox
from demo.lines import Orders, say, work_until
from demo.tally import Tally

CLIENT_ID: Final = "departures"
NAME: Final = "control-room"
TAKEN_AT_ONCE: Final = 200  # messages, for one ACK


class ControlRoom:
    def __init__(self, total: int) -> None:
        self.tally: Final = Tally(total)
        self.lowest = total
        self.highest = -1

    async def watch(self, messages: stompbox.Subscription) -> None:
        while taken := await messages.receive_many(TAKEN_AT_ONCE):
            for message in taken:
                number = int(message.headers["number"])
                self.tally.add(message.headers["carrier"], number, message.body)
                self.lowest, self.highest = min(self.lowest, number), max(self.highest, number)
            await taken[-1].ack()

    def facts(self) -> dict[str, Any]:
        return {**self.tally.facts(), "lowest": self.lowest, "highest": self.highest}


async def main(url: str, total: str) -> None:
    orders, room = Orders(), ControlRoom(int(total))
    async with (
        stompbox.connect(url, client_id=CLIENT_ID) as client,
        client.subscribe("/topic/flights.#", ack="client", durable=NAME) as messages,
    ):
        say(subscribed=True)
        await work_until("leave", room.watch(messages), room.facts, orders)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
