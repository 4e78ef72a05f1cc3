"""The publisher: every flight to /topic/flights.<carrier>, each confirmed by the broker, at most `WINDOW` of them not yet.

It stops at the two pauses, confirmed to the last message, until the parent says that the stream may go on: the durable subscriber
leaves at the first and comes back at the second.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Final

import stompbox
from demo.flights import Flight, Timetable, airlines, load
from demo.lines import REPORT_EVERY, Orders, say
from demo.tally import Tally

WINDOW: Final = 2000  # messages on their way
PAUSES: Final = (0.25, 0.75)  # of the stream


class Progress:
    """What was sent, and how long that took without the pauses."""

    def __init__(self, total: int) -> None:
        self.tally: Final = Tally(total)
        self.late: Final[list[int]] = []
        self.cancelled = 0
        self.seconds = 0.0
        self.octets = 0
        self._said = 0.0

    def add(self, flight: Flight) -> None:
        self.tally.add(flight.carrier, flight.number, flight.body)
        self.octets += len(flight.body)
        self.cancelled += flight.is_cancelled
        if flight.is_late:
            self.late.append(flight.number)

    def report(self, confirmed: int, **more: Any) -> None:
        self._said = monotonic()
        say(confirmed=confirmed, **more)

    @property
    def is_due(self) -> bool:
        return monotonic() - self._said >= REPORT_EVERY


async def publish(url: str, timetable: Timetable, pauses: Sequence[int], orders: Orders) -> Progress:
    """Sends all; returns when the broker has confirmed all."""
    progress = Progress(len(timetable))
    async with stompbox.connect(url) as client, client.publisher(window=WINDOW) as publisher:
        began = perf_counter()
        for flight in timetable:
            if flight.number in pauses:
                await publisher.flush()
                progress.seconds += perf_counter() - began
                progress.report(publisher.confirmed_count, paused_at=flight.number)
                await orders.wait(f"go on from {flight.number}")
                began = perf_counter()
            await publisher.send(flight.destination, flight.body, flight.headers)
            progress.add(flight)
            if progress.is_due:
                progress.report(publisher.confirmed_count)
        await publisher.flush()
        progress.seconds += perf_counter() - began
        progress.report(publisher.confirmed_count)
    return progress


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("limit", type=int)
    parser.add_argument("late", type=Path, help="file for the numbers of the late flights")
    given = parser.parse_args()
    orders = Orders()
    timetable = load(given.limit)
    say(total=len(timetable), late=sum(flight.is_late for flight in timetable), airlines=airlines())
    await orders.wait("publish")
    pauses = [int(len(timetable) * share) for share in PAUSES]
    progress = await publish(given.url, timetable, pauses, orders)
    given.late.write_text("\n".join(map(str, progress.late)))
    facts = {
        **progress.tally.facts(),
        "cancelled": progress.cancelled,
        "octets": progress.octets,
        "seconds": progress.seconds,
    }
    say(finished=True, **facts)


if __name__ == "__main__":
    asyncio.run(main())
