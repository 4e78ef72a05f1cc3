"""Queues that are emptied, in steps: purged by an operator or when the last consumer leaves, or deleted.

A purge takes what waits when it begins, and what of that comes back unacknowledged meanwhile; what is sent meanwhile stays, and goes out
when the purge is done. What is being delivered stays. Of a queue that is gone only memory is left: nobody finds it any more, and
what its messages take is given back step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from stompbox.broker.logs.cursor import FAR
from stompbox.broker.queues import dispatching, scheduling
from stompbox.broker.work import MESSAGE

if TYPE_CHECKING:
    from stompbox.broker.engine import Engine
    from stompbox.broker.logs.segments import Segment
    from stompbox.broker.queues.lanes import Lanes
    from stompbox.broker.queues.queue import Queue
    from stompbox.broker.queues.waits import Waits

STEP: Final = 64  # segments of one step
PLACES: Final = 1000  # the same of messages that are in the log alone: a step costs no more


def purge(queue: Queue, on_done: Callable[[], None] = lambda: None) -> None:
    """Drops all that waits, loaded or not. `on_done` is called at the end."""
    queue.engine.later.take(object(), _purging(queue, on_done))


def _purging(queue: Queue, on_done: Callable[[], None]) -> Iterator[None]:
    engine, stop = queue.engine, queue.log_end
    later = scheduling.forget(queue)
    dispatching.withhold(engine, [queue])
    while queue.pass_over_log(stop, STEP):
        engine.work.spend(MESSAGE * STEP)
        yield
        if queue.id not in engine.queues:
            break
    if queue.tally is not None:
        queue.tally.clear()
    if queue.intake is not None:
        queue.intake.clear()
    for segments in _taken(queue, stop):
        for segment in segments:
            engine.counters["purged"] += len(segment)
            queue.skip(segment.first, segment.stop)
            if queue.intake is not None:
                queue.intake.done(segment)
        yield
    while later is not None and queue.id in engine.queues and (places := later.take(PLACES)):
        for first, end in places:
            engine.counters["purged"] += end - first
            queue.skip(first, end)
        engine.work.spend(MESSAGE * STEP)
        yield
    dispatching.release(engine, [queue])
    if queue.id in engine.queues:
        queue.dispatch()
    on_done()


def drop(queue: Queue) -> None:
    """The queue is gone: what it had in memory goes."""
    scheduling.forget(queue)
    if queue.count or queue.has_waits:
        queue.engine.later.take(object(), _dropping(queue))


def _dropping(queue: Queue) -> Iterator[None]:
    for _ in _taken(queue, FAR):
        yield


def let_go(queue: Queue) -> None:
    """What the queue had in memory goes, and it stays."""
    scheduling.forget(queue)
    backlog, waits = queue.let_go()
    if (backlog is not None and backlog.count) or (waits is not None and waits.count):
        queue.engine.later.take(object(), _letting_go(queue.engine, backlog, waits))


def _letting_go(engine: Engine, backlog: Lanes | None, waits: Waits | None) -> Iterator[None]:
    while backlog is not None and (found := backlog.take_below(FAR, STEP)):
        engine.work.spend(MESSAGE * len(found))
        yield
    if waits is not None:
        waits.set_apart(FAR)
    while waits is not None and (found := waits.take_apart(STEP)):
        engine.work.spend(MESSAGE * len(found))
        yield


def _taken(queue: Queue, stop: int) -> Iterator[list[Segment]]:
    """Takes out what waits below `stop`, a step's worth at a time; nothing more when the queue is gone and is emptied as such."""
    work, is_there = queue.engine.work, queue.id in queue.engine.queues
    queue.waits.set_apart(stop)
    while is_there is (queue.id in queue.engine.queues):
        found = queue.backlog.take_below(stop, STEP) or queue.waits.take_apart(STEP)
        if not found:
            return
        work.spend(MESSAGE * len(found))
        yield found
