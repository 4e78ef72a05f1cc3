"""Times and places in a log, in the order of the times: what is kept of a message whose body stays in the log. 24 octets for each.

What came last is a heap; when that is BLOCK long it becomes three arrays, of which only the first entry that is left is looked at.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from typing import Final

BLOCK: Final = 4096  # entries

Place = tuple[int, int, int]  # when (ms since the epoch); offsets first .. stop-1


class _Block:
    """Entries in order, from `at` on."""

    __slots__ = ("at", "firsts", "stops", "times")

    def __init__(self, entries: list[Place]) -> None:
        self.times = array("q", [when for when, _, _ in entries])
        self.firsts = array("q", [first for _, first, _ in entries])
        self.stops = array("q", [stop for _, _, stop in entries])
        self.at = 0

    @property
    def next(self) -> Place | None:
        at = self.at
        return (self.times[at], self.firsts[at], self.stops[at]) if at < len(self.times) else None


class Places:
    """`len` of it: messages."""

    __slots__ = ("_blocks", "_count", "_fresh", "_heads", "_turn")

    def __init__(self) -> None:
        self._fresh: list[Place] = []
        self._blocks: dict[int, _Block] = {}
        self._heads: list[tuple[int, int, int]] = []  # when and first of the next entry of each block, and which
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
        """The earliest time."""
        times = [heap[0][0] for heap in (self._fresh, self._heads) if heap]
        return min(times) if times else None

    def pop(self) -> Place:
        """The entry with the earliest time. There must be one."""
        if not self._heads or (self._fresh and self._fresh[0][:2] < self._heads[0][:2]):
            found = heappop(self._fresh)
        else:
            number = heappop(self._heads)[2]
            block = self._blocks[number]
            found = block.times[block.at], block.firsts[block.at], block.stops[block.at]
            block.at += 1
            self._show(number)
        self._count -= found[2] - found[1]
        return found

    def due(self, now: int, most: int) -> list[tuple[int, int]]:
        """Takes out `most` at the most whose time has come; their places, by offset."""
        found: list[tuple[int, int]] = []
        while len(found) < most and (when := self.next) is not None and when <= now:
            found.append(self.pop()[1:])
        found.sort()
        return found

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<Places {len(self)} messages blocks={len(self._blocks)}>"
