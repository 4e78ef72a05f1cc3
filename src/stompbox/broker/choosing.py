"""Which consumers of a queue get messages: exclusive ones, priorities, consumers-before-dispatch, pauses, selectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from stompbox.broker.consumer import Binding

if TYPE_CHECKING:
    from stompbox.broker.lanes import Lane
    from stompbox.broker.queue import Queue


def chosen(queue: Queue) -> list[Binding]:
    """Those of the queue's consumers that get messages now; where that is all of them, its own list."""
    bindings = queue.bindings
    is_pausing = queue.groups is not None and queue.groups.is_pausing
    if queue.is_paused or queue in queue.engine.returning or not queue.is_open or is_pausing:
        return []
    exclusive = [binding for binding in bindings if binding.consumer.is_exclusive] or (bindings if queue.rules.is_exclusive else [])
    if exclusive:  # the first of the highest priority
        return [max(exclusive, key=_priority)]
    return bindings


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
    """Whether some come before others."""
    return len(bindings) > 1 and any(binding.consumer.priority != bindings[0].consumer.priority for binding in bindings)


def tiers(bindings: Sequence[Binding]) -> list[list[Binding]]:
    """By priority, the highest first: the next gets what those before have no credit for."""
    ordered = sorted(bindings, key=_priority, reverse=True)
    return [list(tier) for _, tier in groupby(ordered, key=_priority)]


def takers_of(lane: Lane, bindings: Sequence[Binding], *, is_shared: bool) -> list[Binding]:
    """Those who may have the messages of a lane. Where a queue is not shared its consumer's selector has been asked before."""
    if isinstance(lane, Binding):
        return [lane] if lane in bindings else []
    if not is_shared:
        return list(bindings)
    return [binding for binding in bindings if binding.consumer.selector is None or binding.consumer.selector in lane]


def _priority(binding: Binding) -> int:
    return binding.consumer.priority
