"""Which consumers of a queue get messages: exclusive ones, priorities, consumers-before-dispatch, pauses, selectors.

A queue may have very many consumers, which come and go one by one: none of that looks through the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from stompbox.broker.queues.consumer import Binding, end_of_priority

if TYPE_CHECKING:
    from stompbox.broker.logs.segments import Segment
    from stompbox.broker.queues.lanes import Lane
    from stompbox.broker.queues.queue import Queue


RANK: Final = attrgetter("rank")


class RoundRobin(list[Binding]):
    """Consumers of a queue in the order of their ranks, and the index of whose turn it was last."""

    turn = 0
    is_lasting = False  # whoever is left out for want of credit comes in again when it is fed

    def add(self, binding: Binding) -> None:
        at = bisect_left(self, binding.rank, key=RANK)
        if at <= self.turn and at < len(self):
            self.turn += 1
        self.insert(at, binding)

    def discard(self, binding: Binding) -> None:
        at = bisect_left(self, binding.rank, key=RANK)
        if at < len(self) and self[at] is binding:
            del self[at]
            if at <= self.turn:
                self.turn -= 1

    @property
    def equals(self) -> int:
        """How many of the first have the same priority."""
        return bisect_left(self, end_of_priority(self[0].rank), key=RANK)


def join(queue: Queue, binding: Binding) -> None:
    """A consumer has come."""
    queue.bindings.add(binding)
    if binding.consumer.is_exclusive:
        queue.exclusive = queue.exclusive or RoundRobin()
        queue.exclusive.add(binding)
    if queue.candidates is not queue.bindings:
        queue.candidates.add(binding)
    elif len(queue.bindings) > 1:
        queue.candidates = RoundRobin(queue.bindings)
        queue.candidates.turn, queue.candidates.is_lasting = queue.bindings.turn, True
    for takers in _lists_with(queue, binding):
        takers.add(binding)
    if queue.is_shared and binding.consumer.selector is not None:
        queue.backlog.add(binding.consumer.selector)


def leave(queue: Queue, binding: Binding) -> None:
    """A consumer has gone."""
    queue.bindings.discard(binding)
    if binding.consumer.is_exclusive and queue.exclusive is not None:
        queue.exclusive.discard(binding)
    if queue.candidates is not queue.bindings:
        queue.candidates.discard(binding)
    for takers in _lists_with(queue, binding):
        takers.discard(binding)
    if queue.is_shared and binding.consumer.selector is not None:
        queue.backlog.discard(binding.consumer.selector)


def _lists_with(queue: Queue, binding: Binding) -> list[RoundRobin]:
    """Those of the lanes' lists of takers in which a consumer belongs."""
    by_lane, is_shared = queue.lane_takers or {}, queue.is_shared
    return [takers for lane, takers in by_lane.items() if not is_shared or takes(binding, lane)]


def leave_out(queue: Queue, binding: Binding, takers: RoundRobin | None = None) -> None:
    """It is the turn of a consumer that has no credit: among these takers nobody asks it again before it is fed."""
    binding.consumer.starved[queue] = None
    if takers is not None:
        takers.discard(binding)
        if takers.is_lasting:
            binding.missing = binding.missing or []
            binding.missing.append(takers)


def readmit(binding: Binding) -> None:
    """The consumer is fed: it is asked again."""
    missing, binding.missing = binding.missing or (), None
    for takers in missing:
        takers.add(binding)


def forget_lanes(queue: Queue) -> None:
    """The lanes' lists of takers go; who is missing there is not missing in those that are made anew."""
    for binding in queue.bindings:
        if binding.missing:
            binding.missing = [takers for takers in binding.missing if takers is queue.candidates]


def with_credit(queue: Queue, bindings: Sequence[Binding]) -> RoundRobin:
    """Those of a few consumers that have credit; the others will be fed when they have."""
    found = RoundRobin([binding for binding in bindings if binding.consumer.has_credit])
    if len(found) < len(bindings):
        for binding in bindings:
            if binding not in found:
                binding.consumer.starved[queue] = None
    return found


def chosen(queue: Queue) -> RoundRobin:
    """Those of the queue's consumers that get messages now; where that is all of them, its own list."""
    is_pausing = queue.groups is not None and queue.groups.is_pausing
    if queue.is_paused or queue in queue.engine.returning or not queue.is_open or is_pausing:
        return RoundRobin()
    exclusive = queue.exclusive or (queue.bindings if queue.rules.is_exclusive else None)
    return RoundRobin(exclusive[:1]) if exclusive else queue.bindings


def open_when_due(queue: Queue) -> None:
    """A consumer has come to a queue that waits for more."""
    rules, engine = queue.rules, queue.engine
    if len(queue.bindings) >= rules.consumers_before_dispatch:
        queue.open()
    elif len(queue.bindings) == 1 and rules.delay_before_dispatch >= 0:
        engine.timers.at(engine.now + rules.delay_before_dispatch, partial(_open, queue, queue.uses))


def _open(queue: Queue, uses: int) -> None:
    """The time is over, counted from the consumer that came as the `uses`th."""
    if queue.bindings and not queue.is_open and queue.first_use == uses:
        queue.open()
        queue.dispatch()


def has_tiers(bindings: Sequence[Binding]) -> bool:
    """Whether some of these, which are in the order of their ranks, come before others."""
    return len(bindings) > 1 and bindings[0].consumer.priority != bindings[-1].consumer.priority


def takers_of(lane: Lane, bindings: Sequence[Binding], *, is_shared: bool) -> RoundRobin:
    """Those who may have the messages of a lane. Where a queue is not shared its consumer's selector has been asked before."""
    return RoundRobin([binding for binding in bindings if not is_shared or takes(binding, lane)])


def may_take(queue: Queue, binding: Binding, lane: Lane) -> bool:
    """Whether a consumer, with credit or without, gets messages of a lane now."""
    is_taker = queue.takers is queue.bindings or binding in queue.takers
    return is_taker and (not queue.is_shared or takes(binding, lane))


def takes(binding: Binding, lane: Lane) -> bool:
    """Whether a consumer of a shared queue may have the messages of a lane."""
    if isinstance(lane, Binding):
        return lane is binding
    return binding.consumer.selector is None or binding.consumer.selector in lane


def share_by_priority(queue: Queue, segment: Segment, takers: RoundRobin) -> bool:
    """As `Queue.share` does: those of a lower priority get what those before have no credit for."""
    left = 0
    while takers:
        count = takers.equals
        left = min(left, count) or count
        at = takers.turn = takers.turn + 1 if takers.turn + 1 < count else 0
        if not queue.give(takers[at], segment, -(-len(segment) // left), takers):
            return False
        left -= 1
    return True


def share_among(queue: Queue, segment: Segment, bindings: Sequence[Binding]) -> bool:
    """The same among consumers that somebody has found."""
    among = RoundRobin(sorted(bindings, key=RANK))
    among.turn = queue.turn
    is_left = queue.share(segment, among)
    queue.turn = among.turn
    return is_left
