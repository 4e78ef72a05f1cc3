"""Which of many backlogs gives the oldest message, without a look at each of them.

A backlog is noted when it gets something to give before what it had, and that it has given it is found out when it comes to the front. What
is noted of those that are gone is dropped a portion at a time (sweeping.py), by whoever notes or forgets one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Final, Protocol

from stompbox.broker import sweeping

if TYPE_CHECKING:
    from stompbox.broker.queues.backlog import Backlog
    from stompbox.broker.queues.places import Places
    from stompbox.selectors import Selector

Head = tuple[int, int]
"""Sorts backlogs by what they would give next: (-priority, offset)."""
GIVEN_UP: Final = 64  # of what is noted that is given up in one step, where all of it goes


class Waiting(Protocol):
    """What is ordered by the message that it gives next."""

    @property
    def first_head(self) -> Head | None: ...


Place = Any  # what stands for a backlog: a lane, a consumer, lanes of before


class Order:
    """Backlogs by their places (the lanes of a queue), ordered by the message that each gives next."""

    __slots__ = ("_heads", "_heap", "_swept", "_turn")

    def __init__(self) -> None:
        self._heads: dict[Place, Head] = {}  # what was noted of each
        self._heap: list[tuple[Head, int, Place]] = []
        self._turn = 0
        self._swept = 0

    def note(self, place: Place, head: Head) -> None:
        """Notes the message that the backlog of a place gives next."""
        known = self._heads.get(place)
        if known is None or head < known:
            self._heads[place] = head
            self._turn += 1
            heappush(self._heap, (head, self._turn, place))
            if known is not None:
                self._sweep()

    def forget(self, place: Place) -> None:
        """The place is not there any more: nothing refers to the last of them from here."""
        self._heads.pop(place, None)
        if self._heads:
            self._sweep()
        else:
            self._heap.clear()

    def first(self, by_place: Mapping[Place, Waiting]) -> tuple[Head, Place] | None:
        """The place that gives first, and what sorts that; None where all are empty."""
        heap, heads = self._heap, self._heads
        while heap:
            head, turn, place = heap[0]
            if heads.get(place) != head:  # noted anew since, or forgotten
                heappop(heap)
                continue
            waiting = by_place.get(place)
            now = None if waiting is None else waiting.first_head
            if now is None:
                heappop(heap)
                del heads[place]
                continue
            if now == head:
                return head, place
            heads[place] = now
            heapreplace(heap, (now, turn, place))
        return None

    def give_up(self) -> bool:
        """Drops a portion of all that is noted. Whether anything is left."""
        del self._heap[-GIVEN_UP:]
        for _ in range(min(GIVEN_UP, len(self._heads))):
            self._heads.popitem()
        return bool(self._heap or self._heads)

    def _sweep(self) -> None:
        heap = self._heap
        if not sweeping.is_due(len(heap) - len(self._heads), len(heap)):
            return
        at = self._swept if self._swept < len(heap) else 0
        self._swept = sweeping.sweep_heap(heap, at, lambda entry: self._heads.get(entry[2]) != entry[0])

    def __len__(self) -> int:
        """How many places are noted, and what of them and of others is still to be dropped."""
        return len(self._heap)

    def __repr__(self) -> str:
        return f"<Order of {len(self._heads)} places>"


class Unsorted:
    """Lanes of before, whose messages are to be sorted: the selectors up to the number `asked` were asked before, and those in the name of
    a lane took all of it. All of them that have something are in the `order`; what else is noted of them (`past`) goes bit by bit."""

    __slots__ = ("_order", "_past", "_places", "asked", "by_lane")

    def __init__(
        self,
        by_lane: dict[Any, Backlog],
        order: Order,
        *,
        asked: int = 0,
        past: Iterable[Order] = (),
        places: Places | None = None,
    ) -> None:
        self.asked = asked
        self.by_lane = by_lane
        self._order = order
        self._past = list(past)
        self._places = places

    @property
    def first_head(self) -> Head | None:
        found = self._order.first(self.by_lane)
        return None if found is None else found[0]

    @property
    def first(self) -> Any:
        """The lane that gives first. There must be one."""
        found = self._order.first(self.by_lane)
        assert found is not None
        return found[1]

    def note(self, lane: Any) -> None:
        """The lane has got something."""
        self._order.note(lane, self.by_lane[lane].head)

    def took(self, lane: Any) -> None:
        """Something was taken out of the lane."""
        if not self.by_lane[lane].count:
            del self.by_lane[lane]
            if self._places is not None and lane:
                self._places.give_back((lane,))

    def give_up(self) -> bool:
        """Drops a portion of what is not needed any more. Whether there is anything left."""
        if self._past:
            if not self._past[-1].give_up():
                del self._past[-1]
        elif self.first_head is None:
            gone = [self.by_lane.popitem()[0] for _ in range(min(GIVEN_UP, len(self.by_lane)))]
            if self._places is not None:
                self._places.give_back([lane for lane in gone if lane])
        return bool(self._past or self.by_lane)

    def __repr__(self) -> str:
        return f"<Unsorted {len(self.by_lane)} lanes>"


class Asked:
    """Stands for the lane of one message that not all selectors were asked about yet: those that take it, as far as they were. Each portion
    adds its own, and nobody looks at the others: of ten thousand selectors that all take it each is taken up once."""

    __slots__ = ("takers",)

    def __init__(self, takers: list[Selector]) -> None:
        self.takers = takers

    def __repr__(self) -> str:
        return f"<Asked: {len(self.takers)} take it>"


def noted(by_lane: dict[Any, Backlog]) -> Order:
    """An order of these lanes, each of which has something."""
    found: Order = Order()
    for lane, backlog in by_lane.items():
        found.note(lane, backlog.head)
    return found
