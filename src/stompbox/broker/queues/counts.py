"""How often messages were delivered, across restarts: what the store is told, and what it told us when it was opened.

Told after a delivery that did not end in an acknowledgement, with the next commit; or before each delivery, where
`persist-delivery-count-before-delivery` says so (server/counting.py). Messages that are not stored are not told of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stompbox.broker.logs.segments import Segment
from stompbox.store.base import Delivered

if TYPE_CHECKING:
    from stompbox.broker.queues.queue import Queue


def tell(queue: Queue, segment: Segment) -> bool:
    """The segment's counts go into the next commit. False: nothing of them is to be stored."""
    if not queue.is_durable or not queue.engine.is_durable or queue.address.is_volatile(segment.run):
        return False
    told = (segment.first, segment.stop, segment.deliveries, segment.failures)
    queue.engine.commits.delivered.setdefault(queue, []).append(told)
    return True


class Counts:
    """Of one queue, as they were found when the broker started."""

    def __init__(self, told: list[Delivered]) -> None:
        self._told = told
        self._starts = [start for start, *_ in told]

    def parted(self, segment: Segment) -> Iterator[Segment]:
        """The segment in parts with one history each."""
        at = max(0, bisect_right(self._starts, segment.first) - 1)
        for start, stop, deliveries, failures in self._told[at:]:
            if start >= segment.stop:
                break
            if stop <= segment.first:
                continue
            if start > segment.first:
                yield segment.cut(start)
            part = segment.cut(stop) if stop < segment.stop else segment
            part.deliveries, part.failures, part.is_suspect = deliveries, failures, True
            yield part
            if part is segment:
                return
        yield segment

    def __repr__(self) -> str:
        return f"<Counts {len(self._told)}>"
