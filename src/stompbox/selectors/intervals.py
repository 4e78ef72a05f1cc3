"""Numbers that a header must lie between, and finding, of many such pairs, those around one number.

An interval tree: each node has a number, the intervals around it by their lower and by their upper ends, and two trees for what lies
wholly below or above. Asking costs as many steps as the tree is high, and one for each interval found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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


EVERYTHING: Final = Interval(-math.inf, math.inf)


class Intervals(Generic[T]):
    """`around(number)` gives the items whose interval has it, in no particular order. Built once; one end of each is finite."""

    __slots__ = ("_above", "_below", "_by_high", "_by_low", "_centre", "items")

    def __init__(self, items: Iterable[tuple[Interval, T]]) -> None:
        self.items: Sequence[tuple[Interval, T]] = [item for item in items if not item[0].is_empty]
        ends = sorted(
            [end for interval, _ in self.items for end in (interval.low, interval.high) if math.isfinite(end)]
        )
        self._centre: Number = ends[len(ends) // 2] if ends else 0
        here = [item for item in self.items if item[0].low <= self._centre <= item[0].high]
        self._by_low = sorted(here, key=lambda item: item[0].low)
        self._by_high = sorted(here, key=lambda item: item[0].high, reverse=True)
        below = [item for item in self.items if item[0].high < self._centre]
        above = [item for item in self.items if item[0].low > self._centre]
        self._below: Intervals[T] | None = Intervals(below) if below else None
        self._above: Intervals[T] | None = Intervals(above) if above else None

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
