"""What waits in a queue and will expire: by time, so that nobody looks through a backlog for it.

Messages of one shape share their time, so what is kept is a segment, not a message.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from stompbox.broker.logs.segments import Segment
from stompbox.broker.timers import Alarm, Timers

SWEPT: Final = 64  # times without segments that may stay, at the least


class Expiring:
    """`on_due` is called when something may have expired; it takes out what `due` gives, and asks to be called again (`go_on`)."""

    __slots__ = ("_alarm", "_by_time", "_times")

    def __init__(self, timers: Timers, on_due: Callable[[], None]) -> None:
        self._alarm = Alarm(timers, on_due)
        self._by_time: dict[int, dict[Segment, None]] = {}
        self._times: list[int] = []  # a heap; some have no segments any more

    def add(self, segment: Segment) -> None:
        expires = segment.run.shape.expires
        same = self._by_time.get(expires)
        if same is not None:
            same[segment] = None
            return
        self._by_time[expires] = {segment: None}
        heappush(self._times, expires)
        self._alarm.by(expires)

    def discard(self, segment: Segment) -> None:
        expires = segment.run.shape.expires
        same = self._by_time[expires]
        del same[segment]
        if not same:
            del self._by_time[expires]
            if len(self._times) > SWEPT and len(self._times) > 2 * len(self._by_time):
                self._times = list(self._by_time)
                heapify(self._times)

    def _next(self) -> int | None:
        while self._times and self._times[0] not in self._by_time:
            heappop(self._times)
        return self._times[0] if self._times else None

    def go_on(self) -> None:
        """`on_due` is called when the next of what waits expires."""
        next = self._next()
        if next is not None:
            self._alarm.by(next)

    def due(self, now: int, most: int) -> list[Segment]:
        """The earliest of what has expired and waits, `most` segments; nothing when there is no more. It stays."""
        next = self._next()
        return list(islice(self._by_time[next], most)) if next is not None and next <= now else []

    def __len__(self) -> int:
        """How many segments."""
        return sum(map(len, self._by_time.values()))

    def __repr__(self) -> str:
        return f"<Expiring {len(self)} segments next={self._alarm.at}>"
