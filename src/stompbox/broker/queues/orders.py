"""In which order the lanes of a queue (lanes.py) give what they have, for those who take from many of them.

A queue may have a lane for each message: of twenty selectors each takes some of them. So nobody looks through the lanes. Each selector
has an order of the lanes whose messages it takes, and finds in it the next one; a lane is noted when it gets something to give before
what it had, and that it has given it is found out when it comes to the front.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbox.broker.queues.backlog import Backlog
    from stompbox.broker.queues.lanes import Lane

Head = tuple[int, int]


class Order:
    """Lanes by their heads."""

    __slots__ = ("_heads", "_heap", "_turn")

    def __init__(self) -> None:
        self._heads: dict[Lane, Head] = {}  # what was noted of each
        self._heap: list[tuple[Head, int, Lane]] = []
        self._turn = 0

    def note(self, lane: Lane, head: Head) -> None:
        """What the lane gives next."""
        known = self._heads.get(lane)
        if known is None or head < known:
            self._heads[lane] = head
            self._turn += 1
            heappush(self._heap, (head, self._turn, lane))

    def first(self, by_lane: Mapping[Lane, Backlog]) -> tuple[Head, Lane] | None:
        """The lane that gives first, and what sorts that; None where all are empty."""
        heap, heads = self._heap, self._heads
        while heap:
            head, turn, lane = heap[0]
            if heads.get(lane) != head:  # noted anew since
                heappop(heap)
                continue
            backlog = by_lane.get(lane)
            if backlog is None or not backlog.count:
                heappop(heap)
                del heads[lane]
                continue
            now = backlog.head
            if now == head:
                return head, lane
            heads[lane] = now
            heapreplace(heap, (now, turn, lane))
        return None

    def keep(self, by_lane: Mapping[Lane, Backlog]) -> None:
        """The other lanes are not there any more."""
        self._heads = {lane: head for lane, head in self._heads.items() if lane in by_lane}
        self._heap = [(head, turn, lane) for head, turn, lane in self._heap if self._heads.get(lane) == head]
        heapify(self._heap)

    def __repr__(self) -> str:
        return f"<Order of {len(self._heads)} lanes>"
