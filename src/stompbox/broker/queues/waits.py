"""Messages of a queue that wait for a time: scheduled ones, and failed ones for their redelivery.

They hold up nobody: what is not due is not in the backlog.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import islice

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.memory import Memory
from stompbox.broker.timers import Alarm, Timers


class Waits:
    """`count` messages of about `size` octets. `on_due` is called when `due` has something; it asks to be called again (`go_on`)."""

    __slots__ = ("_alarm", "_apart", "_heap", "_memory", "_turn", "count", "size")

    def __init__(self, timers: Timers, on_due: Callable[[], None], memory: Memory | None = None) -> None:
        self._memory = memory if memory is not None else Memory()
        self._alarm = Alarm(timers, on_due)
        self._heap: list[tuple[int, int, Segment]] = []
        self._apart: list[tuple[int, int, Segment]] = []  # are to go, and wait for nothing any more
        self._turn = 0
        self.count = 0
        self.size = 0

    def add(self, segment: Segment, when: int) -> None:
        """Until `when`, ms since the epoch."""
        self._turn += 1
        heappush(self._heap, (when, self._turn, segment))
        self.count += len(segment)
        self.size += segment.cost
        self._memory.hold(segment.run)
        self._alarm.by(when)

    def ring_by(self, when: int) -> None:
        """`on_due` is called then, whatever waits here."""
        self._alarm.by(when)

    def go_on(self) -> None:
        """`on_due` is called when the next one is due."""
        if self._heap:
            self._alarm.by(self._heap[0][0])

    def has_due(self, now: int) -> bool:
        return bool(self._heap) and self._heap[0][0] <= now

    def due(self, now: int, most: int) -> list[Segment]:
        """Takes out what is due, `most` segments, in the order of its times."""
        found: list[Segment] = []
        while len(found) < most and self.has_due(now):
            found.append(self._went(heappop(self._heap)[2]))
        return found

    def take_fresh(self, start: int, most: int) -> list[tuple[int, Segment]]:
        """Takes out some of what was never delivered and lies from `start` on in the log, with its times."""
        fresh = list(islice((entry for entry in self._heap if not entry[2].deliveries and entry[2].first >= start), most))
        if fresh:
            gone = {turn for _, turn, _ in fresh}
            self._heap = [entry for entry in self._heap if entry[1] not in gone]
            heapify(self._heap)
        return [(when, self._went(segment)) for when, _, segment in fresh]

    @property
    def stop(self) -> int:
        """After the last message that waits."""
        return max([segment.stop for _, _, segment in self._heap], default=0)

    def set_apart(self, stop: int) -> None:
        """What lies below `stop` in the log is not due any more; `take_apart` takes it out."""
        self._apart += [entry for entry in self._heap if entry[2].first < stop]
        self._heap = [entry for entry in self._heap if entry[2].first >= stop]
        heapify(self._heap)

    def take_apart(self, most: int) -> list[Segment]:
        """Some of that, in no order; nothing when there is no more."""
        return [self._went(self._apart.pop()[2]) for _ in range(min(most, len(self._apart)))]

    def _went(self, segment: Segment) -> Segment:
        self.count -= len(segment)
        self.size -= segment.cost
        self._memory.release(segment.run)
        return segment

    def __repr__(self) -> str:
        return f"<Waits {self.count} messages next={self._alarm.at}>"
