"""What waits in a queue, in the order in which it goes out: by priority, then by offset. What came back is older than what was never
delivered, but what was scheduled, and is due now, may be newer than much that waits: it must not come before that, or a consumer of
several backlogs (lanes.py) would be given what is behind it in another one first.

A segment can be taken out of the middle (`remove`) at the cost of one step: it stays where it stands, empty, and is dropped
when it comes to the front or is swept away (sweeping.py). What expires is told to `expiring` as it comes and goes.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import takewhile
from typing import Final

from stompbox.broker import sweeping
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.expiry import Expiring
from stompbox.broker.queues.memory import Memory
from stompbox.message import DEFAULT_PRIORITY, Run, Shape

_NOTHING: Final = Run(Shape({"destination": ""}), [])
Left = dict[int, tuple[int, int, Run]]
"""What has gone from a backlog, by the identity of its segment: first .. stop-1 of a run, as it was then."""


class Backlog:
    """The part of a queue that is in memory. `count` messages that take about `size` octets there.

    `is_ranked`: by priority; who reads the log has it in the order of its offsets."""

    __slots__ = (
        "_common",
        "_emptied",
        "_levels",
        "_others",
        "_returned",
        "_swept",
        "_swept_at",
        "_turn",
        "_watching",
        "count",
        "expiring",
        "is_ranked",
        "memory",
        "size",
    )

    def __init__(
        self, expiring: Expiring | None = None, memory: Memory | None = None, *, is_ranked: bool = True
    ) -> None:
        self.is_ranked = is_ranked
        self.expiring = expiring
        self.memory = memory if memory is not None else Memory()
        self._common: deque[Segment] = deque()
        self._levels: dict[int, deque[Segment]] = {DEFAULT_PRIORITY: self._common}
        self._others = 0  # segments of another priority than the default
        self._returned: list[tuple[int, int, int, Segment]] = []
        self._turn = 0
        self._emptied = 0  # segments that were removed and still stand there
        self._swept: int | None = None  # the priority that is swept next; None: what came back
        self._swept_at = 0
        self._watching: list[Left] | None = None  # are told of what goes
        self.count = 0
        self.size = 0

    def push(self, segment: Segment) -> None:
        """Puts a segment behind all of its priority."""
        priority = self._level(segment)
        if priority == DEFAULT_PRIORITY:
            self._common.append(segment)
        else:
            self._levels.setdefault(priority, deque()).append(segment)
            self._others += 1
        self._came(segment)

    def insert(self, segment: Segment) -> None:
        """Where it belongs: behind all of its priority, unless something newer waits already."""
        same = self._levels.get(self._level(segment))
        if segment.is_redelivered or (same and same[-1].first > segment.first):
            self.put_back(segment)
        else:
            self.push(segment)

    def put_back(self, segment: Segment) -> None:
        """To its original place, among what waits, before all that is newer."""
        self._turn += 1
        heappush(self._returned, (-self._level(segment), segment.first, self._turn, segment))
        self._came(segment)

    def unpop(self, segment: Segment) -> None:
        """What is left of a segment that `pop` gave goes back to the front."""
        if self._returned or segment.is_redelivered:
            self.put_back(segment)
            return
        priority = self._level(segment)
        self._levels.setdefault(priority, deque()).appendleft(segment)
        self._others += priority != DEFAULT_PRIORITY
        self._came(segment)

    def _level(self, segment: Segment) -> int:
        return segment.run.shape.priority if self.is_ranked else DEFAULT_PRIORITY

    def _came(self, segment: Segment) -> None:
        segment.home = self
        self.count += len(segment)
        self.size += segment.cost
        self.memory.hold(segment.run)
        if segment.run.shape.expires and self.expiring is not None:
            self.expiring.add(segment)

    def _went(self, segment: Segment) -> None:
        if self._watching is not None:
            for left in self._watching:
                left.setdefault(id(segment), (segment.first, segment.stop, segment.run))
        segment.home = None
        self.count -= len(segment)
        self.size -= segment.cost
        self.memory.release(segment.run)
        if segment.run.shape.expires and self.expiring is not None:
            self.expiring.discard(segment)

    def pop(self) -> Segment:
        """The next segment. There must be one (`count`)."""
        if self._emptied:
            self._trim()
        segment = self._best() if self._returned or self._others else self._common.popleft()
        self._went(segment)
        return segment

    def _best(self) -> Segment:
        (level, _), came_back = self._next()
        if came_back:
            return heappop(self._returned)[3]
        if -level != DEFAULT_PRIORITY:
            self._others -= 1
        return self._levels[-level].popleft()

    def _next(self) -> tuple[tuple[int, int], bool]:
        """(-priority, offset) of what goes out next, and whether it was put back."""
        level = max((priority for priority, waiting in self._levels.items() if waiting), default=-1)
        if level < 0:
            return self._returned[0][:2], True
        new = -level, self._levels[level][0].first
        return (
            (self._returned[0][:2], True) if self._returned and self._returned[0][:2] < new else (new, False)
        )

    @property
    def head(self) -> tuple[int, int]:
        """Sorts backlogs by what they would give next: (-priority, offset). There must be something."""
        if self._emptied:
            self._trim()
        if not self._returned and not self._others:
            return -DEFAULT_PRIORITY, self._common[0].first
        return self._next()[0]

    @property
    def first_head(self) -> tuple[int, int] | None:
        """What `head` says; None where there is nothing."""
        return self.head if self.count else None

    def remove(self, segment: Segment) -> Segment:
        """Takes out a segment that waits here, wherever it stands. What is returned is to be used in its place."""
        self._went(segment)
        taken = segment.part(segment.first, segment.stop)
        if segment.run.is_large:
            segment.become(_NOTHING)  # what is emptied must not hold bodies in the store
        priority = self._level(taken)
        same = self._levels.get(priority)
        if same and same[-1] is segment:  # as where the last go first (reclaim.py)
            same.pop()
            self._others -= priority != DEFAULT_PRIORITY
            return taken
        self._emptied += 1
        if self._emptied > sweeping.LEAST and sweeping.is_due(self._emptied, self._standing):
            self._sweep()
        return taken

    @property
    def _standing(self) -> int:
        """How many segments stand here, emptied or not."""
        return len(self._returned) + sum(map(len, self._levels.values()))

    def _trim(self) -> None:
        """Drops segments from the front that were emptied."""
        while self._returned and self._returned[0][3].home is not self:
            heappop(self._returned)
            self._emptied -= 1
        for priority, waiting in self._levels.items():
            while waiting and waiting[0].home is not self:
                waiting.popleft()
                self._emptied -= 1
                self._others -= priority != DEFAULT_PRIORITY

    def _sweep(self) -> None:
        """Drops what was emptied of a portion of what stands here, the next one each time."""
        before, priority = self._standing, self._swept
        if priority is None:
            at = sweeping.sweep_heap(self._returned, self._swept_at, lambda entry: entry[3].home is not self)
            stop = len(self._returned)
        else:
            waiting = self._levels[priority]
            at = sweeping.sweep(waiting, self._swept_at, lambda segment: segment.home is not self)
            stop = len(waiting)
        dropped = before - self._standing
        self._emptied -= dropped
        if priority is not None and priority != DEFAULT_PRIORITY:
            self._others -= dropped
        self._swept_at = at
        if at >= stop:
            places = [None, *self._levels]
            self._swept, self._swept_at = places[(places.index(priority) + 1) % len(places)], 0

    def segments(self) -> list[Segment]:
        """All segments that wait, in no order; they stay."""
        waiting = self.standing()
        return [segment for segment in waiting if segment.home is self] if self._emptied else waiting

    def standing(self) -> list[Segment]:
        """All segments that stand here, in no order, without a look at each: what was taken out (`home`) may be among them."""
        found = [entry[3] for entry in self._returned]
        for level in self._levels.values():
            found += level
        return found

    def watch(self, left: Left) -> list[Segment]:
        """All segments that stand here, in no order; `left` is told of each that goes from now on, as it is then."""
        self._watching = [*(self._watching or ()), left]
        return self.standing()

    def unwatch(self, left: Left) -> None:
        self._watching = [other for other in self._watching or () if other is not left] or None

    def since(self, first: int) -> list[Segment]:
        """What waits and lies from `first` on in the log, the last first by and large; nobody looks at what is older."""
        found = [entry[3] for entry in self._returned if entry[1] >= first]
        for level in self._levels.values():
            found += takewhile(lambda segment: segment.first >= first, reversed(level))
        return [segment for segment in found if segment.home is self]

    def take_below(self, stop: int, most: int) -> list[Segment]:
        """Takes out what lies below `stop` in the log, in no order: `most` segments, or all that came back. Nothing: there is no more."""
        self._trim()
        found: list[Segment] = []
        for priority, waiting in self._levels.items():
            while waiting and waiting[0].first < stop and len(found) < most:
                segment = waiting.popleft()
                self._others -= priority != DEFAULT_PRIORITY
                if segment.home is self:
                    self._went(segment)
                    found.append(segment)
                else:
                    self._emptied -= 1
        return found or self._take_returned(stop, most)

    def _take_returned(self, stop: int, most: int) -> list[Segment]:
        found: list[Segment] = []
        while self._returned and self._returned[0][1] < stop and len(found) < most:
            segment = heappop(self._returned)[3]
            if segment.home is self:
                self._went(segment)
                found.append(segment)
            else:
                self._emptied -= 1
        if not found and any(entry[1] < stop for entry in self._returned):  # behind others, which stay
            gone = [entry[3] for entry in self._returned if entry[1] < stop]
            self._returned = [entry for entry in self._returned if entry[1] >= stop]
            heapify(self._returned)
            found = [segment for segment in gone if segment.home is self]
            self._emptied -= len(gone) - len(found)
            for segment in found:
                self._went(segment)
        return found

    def clear(self) -> list[Segment]:
        """Takes out all segments, and returns them in no order."""
        found = self.segments()
        for waiting in self._levels.values():
            waiting.clear()
        for segment in found:
            self._went(segment)
        self._returned.clear()
        self._others = self._emptied = self.count = self.size = 0
        return found

    def __repr__(self) -> str:
        return f"<Backlog {self.count} messages {self.size} octets>"
