"""Backlogs side by side, for a queue whose consumers have selectors: a lane holds what the same selectors take.

Without selectors there is one lane. A message that no selector takes waits in the lane of none, for a consumer without
selector or for one that comes. Nothing is looked at twice until the set of selectors changes. Beside these, a consumer has a
lane of its own when messages wait for it and nobody else (message groups).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar, Union

from stompbox.broker.backlog import Backlog
from stompbox.broker.expiring import Expiring
from stompbox.broker.segments import Segment
from stompbox.selectors import Selector

if TYPE_CHECKING:
    from stompbox.broker.address import Address
    from stompbox.broker.consumer import Binding

Lane = Union[frozenset[Selector], "Binding"]
NONE: Final[frozenset[Selector]] = frozenset()

T = TypeVar("T")


def swept(first: int, stop: int, taken: Mapping[T, Iterable[tuple[int, int]]]) -> Iterator[tuple[int, int, frozenset[T]]]:
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


class Lanes:
    """Segments by lane. `common` is the lane of none, and the only one as long as no consumer has a selector or a lane of its own."""

    __slots__ = ("_size", "address", "by_lane", "common", "expiring", "is_ranked", "queue", "selectors")

    def __init__(self, address: Address, expiring: Expiring | None = None, *, queue: int = 0, is_ranked: bool = True) -> None:
        self.address = address
        self.queue = queue  # its id
        self.expiring = expiring
        self.is_ranked = is_ranked
        self.common = Backlog(expiring, address.memory, is_ranked=is_ranked)
        self.by_lane: dict[Lane, Backlog] = {NONE: self.common}
        self.selectors: frozenset[Selector] = NONE
        self._size = 0  # of all but the common one

    @property
    def count(self) -> int:
        return self.common.count if len(self.by_lane) == 1 else sum([lane.count for lane in self.by_lane.values()])

    @property
    def size(self) -> int:
        """Octets of memory, about."""
        return self.common.size + self._size

    def lane(self, lane: Lane) -> Backlog:
        found = self.by_lane.get(lane)
        if found is None:
            found = self.by_lane[lane] = Backlog(self.expiring, self.address.memory, is_ranked=self.is_ranked)
        return found

    def push(self, segment: Segment) -> None:
        """Behind all that wait."""
        if not self.selectors:
            self.common.push(segment)
            return
        for lane, part in self.sorted(segment):
            self.push_to(lane, part)

    def push_to(self, lane: Lane, segment: Segment) -> None:
        backlog = self.lane(lane)
        backlog.push(segment)
        if backlog is not self.common:
            self._size += segment.cost

    def put_back(self, segment: Segment) -> None:
        """To its original place, before what was not yet delivered."""
        if not self.selectors:
            self.common.put_back(segment)
            return
        for lane, part in self.sorted(segment):
            self.put_back_to(lane, part)

    def put_back_to(self, lane: Lane, segment: Segment) -> None:
        backlog = self.lane(lane)
        backlog.put_back(segment)
        if backlog is not self.common:
            self._size += segment.cost

    def pop(self, lane: Lane) -> Segment:
        backlog = self.by_lane[lane]
        segment = backlog.pop()
        if backlog is not self.common:
            self._size -= segment.cost
        return segment

    def unpop(self, lane: Lane, segment: Segment) -> None:
        backlog = self.lane(lane)
        backlog.unpop(segment)
        if backlog is not self.common:
            self._size += segment.cost

    def pop_oldest(self, most: int) -> Segment:
        """What would go out next, `most` messages at most. There must be something."""
        _, lane = min(self.heads(), key=_head)
        segment = self.pop(lane)
        if len(segment) <= most:
            return segment
        front = segment.cut(segment.first + most)
        self.unpop(lane, segment)
        return front

    def remove(self, segment: Segment) -> Segment:
        """Takes out a segment that waits in one of the lanes; what is returned is to be used in its place."""
        home = segment.home
        assert home is not None
        if home is not self.common:
            self._size -= segment.cost
        return home.remove(segment)

    def sorted(self, segment: Segment) -> Iterator[tuple[frozenset[Selector], Segment]]:
        """The segment in parts, by offset, each with the selectors that take it."""
        if not self.selectors:
            yield NONE, segment
            return
        taken = {selector: self.address.wanted_of(selector, segment, self.queue) for selector in self.selectors}
        for first, stop, lane in swept(segment.first, segment.stop, taken):
            whole = first == segment.first and stop == segment.stop
            yield lane, segment if whole else segment.part(first, stop)

    def heads(self) -> Iterator[tuple[tuple[int, int], Lane]]:
        """Lanes that have something, with what sorts them into the order in which it goes out."""
        for lane, backlog in self.by_lane.items():
            if backlog.count:
                yield backlog.head, lane

    def release(self, lane: Lane) -> None:
        """A consumer's own lane goes; what waits in it waits for everybody."""
        backlog = self.by_lane.pop(lane, None)
        if backlog is not None:
            self._size -= backlog.size
            for segment in backlog.clear():
                self.put_back(segment)

    def select(self, selectors: Iterable[Selector]) -> None:
        """The consumers' selectors are these now: sorts anew what waits, when they have changed."""
        wanted = frozenset(selectors)
        if wanted == self.selectors:
            return
        waiting = self.clear()
        self.selectors = wanted
        self.by_lane = {NONE: self.common}
        for segment in sorted(waiting, key=_first):
            if segment.is_redelivered:
                self.put_back(segment)
            else:
                self.push(segment)

    def segments(self) -> list[Segment]:
        """All that waits, in no order; it stays."""
        return [segment for lane in self.by_lane.values() for segment in lane.segments()]

    def clear(self) -> list[Segment]:
        self._size = 0
        return [segment for lane in self.by_lane.values() for segment in lane.clear()]

    def __repr__(self) -> str:
        return f"<Lanes {len(self.by_lane)} {self.count} messages {self.size} octets>"


def _first(segment: Segment) -> int:
    return segment.first


def _head(entry: tuple[tuple[int, int], Lane]) -> tuple[int, int]:
    return entry[0]
