"""Sets of offsets as sorted, disjoint half-open ranges: what a cursor has acknowledged.

`Ranges` is what acknowledgements are, in memory and on disk: a message costs nothing, a gap costs two integers.
`swept` says of several sets what lies in which of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from operator import gt, lt
from typing import Final, TypeVar

SPARSE: Final = 8  # ranges for each that is added, beyond which they are better added one by one

T = TypeVar("T")
_NONE: Final[list[int]] = []  # of all sets without a range; nobody ever adds to it


class Ranges:
    """A set of offsets. Adding in order and adding next to what is there is cheap; both lists stay sorted and disjoint."""

    __slots__ = ("starts", "stops")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: list[int] = _NONE
        self.stops: list[int] = _NONE
        for start, stop in ranges:
            self.add(start, stop)

    def add(self, start: int, stop: int) -> None:
        """Adds start .. stop-1, joining what it touches."""
        if start >= stop:
            return
        starts, stops = self.starts, self.stops
        if not stops:
            self.starts, self.stops = [start], [stop]
            return
        if start > stops[-1]:
            starts.append(start)
            stops.append(stop)
            return
        if start >= starts[-1]:
            stops[-1] = max(stops[-1], stop)
            return
        low = bisect_left(stops, start)  # first range that ends at or after start
        high = bisect_right(starts, stop)  # first range that begins after stop
        if low == high:
            starts.insert(low, start)
            stops.insert(low, stop)
            return
        starts[low] = min(start, starts[low])
        stops[low] = max(stop, stops[high - 1])
        if high - low > 1:
            del starts[low + 1 : high], stops[low + 1 : high]

    def add_all(self, starts: list[int], stops: list[int]) -> None:
        """Adds ranges that are `united`: at once where few of those that are there lie between them."""
        if not starts:
            return
        low, high = bisect_left(self.stops, starts[0]), bisect_right(self.starts, stops[-1])
        if high - low > SPARSE * len(starts):
            for pair in zip(starts, stops, strict=True):
                self.add(*pair)
            return
        if not self.stops:
            self.starts, self.stops = [], []
        if low < high:
            starts, stops = united(self.starts[low:high] + starts, self.stops[low:high] + stops)
        self.starts[low:high] = starts
        self.stops[low:high] = stops

    def remove(self, start: int, stop: int) -> None:
        """Takes start .. stop-1 out, as far as it is there."""
        if start >= stop:
            return
        starts, stops = self.starts, self.stops
        low = bisect_right(stops, start)  # first range that ends after start
        high = bisect_left(starts, stop)  # first range that begins at or after stop
        if low >= high:
            return
        left = [(starts[low], start)] if starts[low] < start else []
        left += [(stop, stops[high - 1])] if stops[high - 1] > stop else []
        starts[low:high] = [first for first, _ in left]
        stops[low:high] = [last for _, last in left]

    @property
    def total(self) -> int:
        """How many offsets there are in it."""
        return sum(self.stops) - sum(self.starts)

    def take_prefix(self, position: int) -> int:
        """Drops what lies below `position` or joins it, and returns the position after it: how a cursor moves on."""
        starts, stops = self.starts, self.stops
        gone = 0
        while gone < len(starts) and starts[gone] <= position:
            position = max(position, stops[gone])
            gone += 1
        if gone:
            del starts[:gone], stops[:gone]
        return position

    def gaps(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The ranges within start .. stop-1 that are not in the set."""
        at = bisect_right(self.stops, start)
        while start < stop:
            if at == len(self.starts) or self.starts[at] >= stop:
                yield start, stop
                return
            if self.starts[at] > start:
                yield start, self.starts[at]
            start = self.stops[at]
            at += 1

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The ranges of the set, as far as they lie within start .. stop-1."""
        at = bisect_right(self.stops, start)
        while at < len(self.starts) and self.starts[at] < stop:
            yield max(start, self.starts[at]), min(stop, self.stops[at])
            at += 1

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self.starts, offset) - 1
        return at >= 0 and offset < self.stops[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts, self.stops, strict=True)

    def __len__(self) -> int:
        """How many ranges there are, not how many offsets."""
        return len(self.starts)

    def __bool__(self) -> bool:
        return bool(self.starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.starts == other.starts and self.stops == other.stops

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<Ranges " + (" ".join(f"{a}..{b}" for a, b in self) or "none") + ">"


def add_range(ranges: list[tuple[int, int]], first: int, stop: int) -> None:
    """Adds a range that lies behind those; what touches becomes one."""
    if ranges and ranges[-1][1] == first:
        ranges[-1] = (ranges[-1][0], stop)
    else:
        ranges.append((first, stop))


def united(starts: list[int], stops: list[int]) -> tuple[list[int], list[int]]:
    """Starts and stops of what all starts[n] .. stops[n]-1 cover together, sorted and disjoint; what is empty is not there.

    Sorted apart from each other they tell where a gap is: before the one that starts when as many have ended as have started."""
    if not all(map(lt, starts, stops)):
        pairs = [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]
        starts, stops = [start for start, _ in pairs], [stop for _, stop in pairs]
    if len(starts) < 2:
        return starts, stops
    starts, stops = sorted(starts), sorted(stops)
    later = starts[1:]
    gaps = list(map(gt, later, stops))
    return [starts[0], *compress(later, gaps)], [*compress(stops, gaps), stops[-1]]


def swept(
    first: int, stop: int, taken: Mapping[T, Iterable[tuple[int, int]]]
) -> Iterator[tuple[int, int, frozenset[T]]]:
    """first .. stop-1 in parts, each with all whose ranges cover it; the ranges of each are apart from each other."""
    edges: dict[int, list[T]] = {}  # by offset: who begins there, or ends
    for taker, ranges in taken.items():
        for pair in ranges:
            for edge in pair:
                edges.setdefault(edge, []).append(taker)
    takers = frozenset(edges.pop(first, ()))
    edges.pop(stop, None)
    for edge in sorted(edges):
        yield first, edge, takers
        takers = takers.symmetric_difference(edges[edge])
        first = edge
    yield first, stop, takers
