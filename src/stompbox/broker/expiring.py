"""What waits in a queue and will expire: by time, so that nobody looks through a backlog for it.

Messages of one shape share their time, so what is kept is a segment, not a message.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from stompbox.broker.segments import Segment
from stompbox.broker.timers import Alarm, Timers

SWEPT: Final = 64  # times without segments that may stay, at the least


class Expiring:
    """`on_due` is called when something may have expired; it takes out what `due` gives."""

    __slots__ = ("_alarm", "_by_time", "_on_due", "_times")

    def __init__(self, timers: Timers, on_due: Callable[[], None]) -> None:
        self._alarm = Alarm(timers, self._ring)
        self._on_due = on_due
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

    def _ring(self) -> None:
        self._on_due()
        while self._times and self._times[0] not in self._by_time:
            heappop(self._times)
        if self._times:
            self._alarm.by(self._times[0])

    def due(self, now: int) -> list[Segment]:
        """What has expired and waits, the earliest first."""
        found: list[Segment] = []
        last = -1
        while self._times and self._times[0] <= now:
            time = heappop(self._times)
            if time != last:
                found += self._by_time.get(time, ())
            last = time
        return found

    def __len__(self) -> int:
        """How many segments."""
        return sum(map(len, self._by_time.values()))

    def __repr__(self) -> str:
        return f"<Expiring {len(self)} segments next={self._alarm.at}>"
