"""Numbers that a header must lie between, and finding, of many such pairs, those around one number.

An interval tree: each node has a number, the intervals around it by their lower and by their upper ends, and two trees for what lies
wholly below or above. Asking costs as many steps as the tree is high, and one for each interval found. The ends of all are sorted once,
and halved by each node, so the tree is never higher than the logarithm of their number.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Number = int | float
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, both ends included; infinite where there is none."""

    low: Number
    high: Number

    def within(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), min(self.high, other.high))

    @property
    def is_empty(self) -> bool:
        return self.low > self.high


PORTION: Final = 500  # items of one step
EVERYTHING: Final = Interval(-math.inf, math.inf)


class Intervals(Generic[T]):
    """`around(number)` gives the items whose interval has it, in no particular order. One end of each is finite. Nothing is found before
    all steps of `building` were taken."""

    __slots__ = ("_above", "_below", "_by_high", "_by_low", "_centre", "items")

    def __init__(self, items: Sequence[tuple[Interval, T]]) -> None:
        self.items = items
        self._centre: Number = 0
        self._by_low: Sequence[tuple[Interval, T]] = ()
        self._by_high: Sequence[tuple[Interval, T]] = ()
        self._below: Intervals[T] | None = None
        self._above: Intervals[T] | None = None

    def building(self) -> Iterator[int]:
        """Builds the tree, in steps; each is how many items it has looked at."""
        self.items = [item for item in self.items if not item[0].is_empty]
        ends = sorted(
            [end for interval, _ in self.items for end in (interval.low, interval.high) if math.isfinite(end)]
        )
        yield len(self.items)
        left: list[tuple[Intervals[T], int, int]] = [(self, 0, len(ends))]
        while left:
            node, first, stop = left.pop()
            yield from node._parting(ends[(first + stop) // 2] if ends else 0)
            if node._below is not None:
                left.append((node._below, first, bisect_left(ends, node._centre, first, stop)))
            if node._above is not None:
                left.append((node._above, bisect_right(ends, node._centre, first, stop), stop))

    def _parting(self, centre: Number) -> Iterator[int]:
        here: list[tuple[Interval, T]] = []
        below: list[tuple[Interval, T]] = []
        above: list[tuple[Interval, T]] = []
        for at in range(0, len(self.items), PORTION):
            part = self.items[at : at + PORTION]
            for item in part:
                (below if item[0].high < centre else above if item[0].low > centre else here).append(item)
            yield len(part)
        self._centre = centre
        self._by_low = sorted(here, key=lambda item: item[0].low)
        self._by_high = sorted(here, key=lambda item: item[0].high, reverse=True)
        self._below = Intervals(below) if below else None
        self._above = Intervals(above) if above else None

    def around(self, number: Number) -> list[T]:
        found: list[T] = []
        node: Intervals[T] | None = self
        while node is not None:
            if number < node._centre:
                for interval, item in node._by_low:
                    if interval.low > number:
                        break
                    found.append(item)
                node = node._below
            else:
                for interval, item in node._by_high:
                    if interval.high < number:
                        break
                    found.append(item)
                node = node._above
        return found

    def __repr__(self) -> str:
        return f"<Intervals {len(self.items)}>"
