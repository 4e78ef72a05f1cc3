"""How much a queue holds: what waits, what waits for a time, what consumers have. For operators and metrics; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from stompbox.broker.queues.queue import Kind, Queue

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address

_HOLDS: Final = frozenset((Kind.ANYCAST, Kind.DURABLE, Kind.TOPIC))  # kinds whose messages are theirs
_POSITIONS: Final = frozenset((Kind.GROUP, Kind.READER))  # all that the log has from their position on is theirs


class Depth(Struct, frozen=True):
    """Messages of one queue. `ready`: could go out now; `paged`: those of them that are in the log alone.

    What is in the log alone is not looked at, so `paged` counts messages too that the queue's selector will not take (`is_estimate`).
    """

    ready: int
    delayed: int
    delivering: int
    paged: int = 0
    is_estimate: bool = False

    @property
    def total(self) -> int:
        return self.ready + self.delayed + self.delivering


def depth_of(queue: Queue) -> Depth:
    if queue.kind in _POSITIONS:
        log = queue.address.log
        left = log.count(queue.cursor.ahead.gaps(queue.cursor.position, log.next))
        return Depth(max(0, left - queue.delivering), 0, queue.delivering, left, is_estimate=True)
    paged = _paged(queue) if queue.paged_from >= 0 else 0
    delayed = (queue.waits.count if queue.has_waits else 0) + (queue.later.count if queue.later is not None else 0)
    return Depth(queue.count + paged, delayed, queue.delivering, paged, is_estimate=paged > 0)


def _paged(queue: Queue) -> int:
    log = queue.address.log
    return log.count(queue.still_in_log(queue.paged_from, log.next))


class Sums(Struct):
    """Of all queues and subscriptions of an address; `settled`: messages that are done with."""

    ready: int = 0
    delayed: int = 0
    delivering: int = 0
    consumers: int = 0
    settled: int = 0
    is_estimate: bool = False

    def add(self, queue: Queue) -> None:
        if queue.kind in _HOLDS:
            depth = depth_of(queue)
            self.ready += depth.ready
            self.delayed += depth.delayed
            self.delivering += depth.delivering
            self.settled += settled_of(queue)
            self.is_estimate |= depth.is_estimate
        self.consumers += queue.consumer_count


def sums_of(address: Address) -> Sums:
    sums = Sums()
    for queue in address.queues():
        sums.add(queue)
    return sums


def settled_of(queue: Queue) -> int:
    """Messages that are done with: a number that only grows. The cursor of a plain subscription stays where it began, for nothing of it is
    kept; what its consumer has had is counted instead."""
    if queue.kind is Kind.TOPIC:
        return sum([binding.done for binding in queue.bindings])
    return queue.cursor.position
