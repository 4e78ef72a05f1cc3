"""Messages of a queue that wait for a time: scheduled ones, and failed ones for their redelivery.

They hold up nobody: what is not due is not in the backlog. `Waits` has those that are in memory. Of scheduled messages beyond MOST, or
when memory is full, the bodies stay in the log, and memory has time and offsets of each (`Later`). A queue with a stored cursor holds
them in the log by that; one without, by a mark of its own, which goes when the last one is read (arrivals.py).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from stompbox.broker.logs.cursor import FAR
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.memory import Memory
from stompbox.broker.timers import Alarm, Timers

Entry = tuple[int, int, Segment]  # when (ms since the epoch), its turn among those of that time, and what


class _Heap:
    """Segments with their times. `stop`: after the last message of all that came since it was empty."""

    __slots__ = ("entries", "stop")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.stop = 0

    def push(self, entry: Entry) -> None:
        self.stop = max(self.stop, entry[2].stop) if self.entries else entry[2].stop
        heappush(self.entries, entry)

    def clear(self) -> list[Entry]:
        """What was in it, in no order."""
        entries, self.entries = self.entries, []
        return entries

    @property
    def head(self) -> tuple[int, int]:
        """Its first time, ms since the epoch, and the turn of the segment."""
        return self.entries[0][:2] if self.entries else (FAR, 0)


class Waits:
    """`count` messages of about `size` octets. `on_due` is called when `due` has something; it asks to be called again (`go_on`).

    What is done here is done for one segment, or for as many as it says: none of it goes through all that wait."""

    __slots__ = ("_alarm", "_apart", "_fresh", "_kept", "_memory", "_turn", "count", "size")

    def __init__(self, timers: Timers, on_due: Callable[[], None], memory: Memory | None = None) -> None:
        self._memory = memory if memory is not None else Memory()
        self._alarm = Alarm(timers, on_due)
        self._fresh = _Heap()  # never delivered: the log has all that there is to know of them
        self._kept = _Heap()  # the others
        self._apart: list[Entry] = []  # are to go, and wait for nothing any more
        self._turn = 0
        self.count = 0
        self.size = 0

    def add(self, segment: Segment, when: int) -> None:
        """Keeps a segment until `when`, ms since the epoch."""
        self._keep(segment, when, 1)

    def put_back(self, segment: Segment) -> None:
        """Keeps what is due, and was taken out to no avail, before all that waits."""
        self._keep(segment, 0, -1)

    def _keep(self, segment: Segment, when: int, order: int) -> None:
        self._turn += 1
        heap = self._kept if segment.deliveries else self._fresh
        heap.push((when, order * self._turn, segment))
        self.count += len(segment)
        self.size += segment.cost
        self._memory.hold(segment.run)
        self._alarm.by(when)

    def ring_by(self, when: int) -> None:
        """Has `on_due` called at `when`, whatever waits here."""
        self._alarm.by(when)

    def go_on(self) -> None:
        """`on_due` is called when the next one is due."""
        if self._fresh.entries or self._kept.entries:
            self._alarm.by(min(self._fresh.head[0], self._kept.head[0]))

    def has_due(self, now: int) -> bool:
        return self._fresh.head[0] <= now or self._kept.head[0] <= now

    def due(self, now: int, most: int) -> list[Segment]:
        """Takes out what is due, `most` segments, in the order of its times."""
        found: list[Segment] = []
        while len(found) < most and self.has_due(now):
            heap = self._fresh if self._fresh.head < self._kept.head else self._kept
            found.append(self._went(heappop(heap.entries)[2]))
        return found

    def take_fresh(self, start: int, most: int) -> list[tuple[int, Segment]]:
        """Takes out some of what was never delivered and lies from `start` on in the log, with its times. What lies before that stays
        for good: the log has it no more. Nothing is found among so many of it, too."""
        fresh = self._fresh.entries
        found: list[tuple[int, Segment]] = []
        for _ in range(min(most, len(fresh))):
            entry = fresh.pop()
            if entry[2].first >= start:
                found.append((entry[0], self._went(entry[2])))
            else:
                self._kept.push(entry)
        return found

    @property
    def has_fresh(self) -> bool:
        """Whether there is anything for `take_fresh`."""
        return bool(self._fresh.entries)

    @property
    def stop(self) -> int:
        """An offset behind all that waits and was delivered, or cannot be read from the log any more; and behind the others, too, where
        they have not been taken."""
        return max([heap.stop for heap in (self._fresh, self._kept) if heap.entries], default=0)

    def set_apart(self) -> None:
        """All that waits is not due any more; `take_apart` takes it out."""
        self._apart += self._fresh.clear()
        self._apart += self._kept.clear()

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


BLOCK: Final = 4096  # entries

Due = tuple[int, int, int]  # when (ms since the epoch); offsets first .. stop-1


class _Block:
    """Entries in the order of their times, from the entry `at` on."""

    __slots__ = ("at", "firsts", "stops", "times")

    def __init__(self, entries: list[Due]) -> None:
        self.times = array("q", [when for when, _, _ in entries])
        self.firsts = array("q", [first for _, first, _ in entries])
        self.stops = array("q", [stop for _, _, stop in entries])
        self.at = 0

    @property
    def next(self) -> Due | None:
        at = self.at
        return (self.times[at], self.firsts[at], self.stops[at]) if at < len(self.times) else None

    def pop(self) -> Due:
        at = self.at
        self.at = at + 1
        return self.times[at], self.firsts[at], self.stops[at]

    def due(self, now: int) -> array[int]:
        """Where those begin whose time has come."""
        return self.firsts[self.at : bisect_right(self.times, now, self.at)]


class DueTimes:
    """When messages are due of which the log alone has the rest; `len` is their number."""

    __slots__ = ("_blocks", "_count", "_fresh", "_heads", "_turn")

    def __init__(self) -> None:
        self._fresh: list[Due] = []
        self._blocks: dict[int, _Block] = {}
        # when and first of the next entry of each block, and which
        self._heads: list[tuple[int, int, int]] = []
        self._turn = 0
        self._count = 0

    def add(self, when: int, first: int, stop: int) -> None:
        heappush(self._fresh, (when, first, stop))
        self._count += stop - first
        if len(self._fresh) >= BLOCK:
            self._turn += 1
            self._blocks[self._turn] = _Block(sorted(self._fresh))
            self._fresh = []
            self._show(self._turn)

    def _show(self, number: int) -> None:
        entry = self._blocks[number].next
        if entry is None:
            del self._blocks[number]
        else:
            heappush(self._heads, (entry[0], entry[1], number))

    @property
    def next(self) -> int | None:
        """The earliest time, ms since the epoch."""
        fresh, heads = self._fresh, self._heads
        if not (fresh and heads):
            first = fresh or heads
            return first[0][0] if first else None
        return min(fresh[0][0], heads[0][0])

    def pop(self) -> Due:
        """The entry with the earliest time. There must be one."""
        if not self._heads or (self._fresh and self._fresh[0][:2] < self._heads[0][:2]):
            found = heappop(self._fresh)
        else:
            number = heappop(self._heads)[2]
            block = self._blocks[number]
            found = block.pop()
            self._show(number)
        self._count -= found[2] - found[1]
        return found

    def due(self, now: int, most: int) -> list[tuple[int, int]]:
        """Takes out `most` at the most whose time has come; where they are in the log, by offset."""
        found: list[tuple[int, int]] = []
        while len(found) < most and (when := self.next) is not None and when <= now:
            found.append(self.pop()[1:])
        found.sort()
        return found

    def first_due(self, now: int) -> int | None:
        """The lowest offset of a message whose time has come."""
        found = [first for when, first, _ in self._fresh if when <= now]
        found += [min(firsts) for block in self._blocks.values() if (firsts := block.due(now))]
        return min(found, default=None)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<DueTimes {len(self)} messages blocks={len(self._blocks)}>"


MOST: Final = 4 << 20  # octets of messages for later that a queue has in memory
AGAIN: Final = 1000  # ms after which it is looked again where there was no room for one that is due


class Later:
    """Messages for later of one queue that the log alone has. `due`: offsets that are to be read now; those whose time has not come
    stand in `times`."""

    __slots__ = ("due", "is_reading", "stop", "times")

    def __init__(self) -> None:
        self.times = DueTimes()
        self.stop = 0  # after the last message there ever was
        self.due: deque[tuple[int, int]] = deque()
        self.is_reading = False

    @property
    def count(self) -> int:
        return len(self.times) + sum([stop - first for first, stop in self.due])

    def add(self, when: int, first: int, stop: int) -> None:
        self.stop = max(self.stop, stop)
        self.times.add(when, first, stop)

    def first_due(self, now: int) -> int | None:
        """The lowest offset of a message that is to be read now."""
        known = self.times.first_due(now)
        return min([first for first, _ in self.due] + ([] if known is None else [known]), default=None)

    def sort_due(self) -> None:
        """What is to be read now stands in the order of the log, although its times did not."""
        self.due = deque(sorted(self.due))

    def read(self, *, is_reading: bool) -> None:
        """Whether the log is being read for it."""
        self.is_reading = is_reading

    def take(self, most: int) -> list[tuple[int, int]]:
        """Takes out offsets, `most` of them; nothing when there are no more."""
        found = [self.due.popleft() for _ in range(min(most, len(self.due)))]
        while self.times and len(found) < most:
            found.append(self.times.pop()[1:])
        return found
