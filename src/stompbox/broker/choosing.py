"""Which consumers of a queue get messages: exclusive ones, priorities, consumers-before-dispatch, pauses, selectors.

A queue may have very many consumers, which come and go one by one: none of that looks through the others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from stompbox.broker.consumer import Binding

if TYPE_CHECKING:
    from stompbox.broker.lanes import Lane
    from stompbox.broker.queue import Queue


_RANK: Final = attrgetter("rank")


def add(bindings: list[Binding], binding: Binding) -> None:
    """Puts one more to consumers of a queue, which are in the order of their ranks."""
    insort(bindings, binding, key=_RANK)


def remove(bindings: list[Binding], binding: Binding) -> None:
    """Takes one out of consumers of a queue, which are in the order of their ranks."""
    del bindings[bisect_left(bindings, binding.rank, key=_RANK)]


def chosen(queue: Queue) -> list[Binding]:
    """Those of the queue's consumers that get messages now; where that is all of them, its own list."""
    is_pausing = queue.groups is not None and queue.groups.is_pausing
    if queue.is_paused or queue in queue.engine.returning or not queue.is_open or is_pausing:
        return []
    exclusive = queue.exclusive or (queue.bindings if queue.rules.is_exclusive else None)
    return [exclusive[0]] if exclusive else queue.bindings


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


def tiers(bindings: Sequence[Binding]) -> list[list[Binding]]:
    """By priority, the highest first: the next gets what those before have no credit for."""
    return [list(tier) for _, tier in groupby(sorted(bindings, key=_RANK), key=_priority)]


def takers_of(lane: Lane, bindings: Sequence[Binding], *, is_shared: bool) -> list[Binding]:
    """Those who may have the messages of a lane. Where a queue is not shared its consumer's selector has been asked before."""
    if not is_shared:
        return list(bindings)
    return [binding for binding in bindings if takes(binding, lane)]


def lists_with(by_lane: dict[Lane, list[Binding]] | None, binding: Binding, *, is_shared: bool) -> list[list[Binding]]:
    """Those of the lanes' lists of takers in which a consumer belongs."""
    return [takers for lane, takers in (by_lane or {}).items() if not is_shared or takes(binding, lane)]


def takes(binding: Binding, lane: Lane) -> bool:
    """Whether a consumer of a shared queue may have the messages of a lane."""
    if isinstance(lane, Binding):
        return lane is binding
    return binding.consumer.selector is None or binding.consumer.selector in lane


def _priority(binding: Binding) -> int:
    return binding.consumer.priority
