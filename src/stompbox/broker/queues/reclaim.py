"""Memory that queues give back, in steps: what is idle when all memory is full, what is purged, what a queue had that is deleted.

When all memory is full, what waits in queues that nobody looks through is left to the log, as in paging.py. The queue from which nothing
was handed out for the longest time comes first; one that was used within IDLE keeps what it has. It ends when a QUARTER is free. What is
not in the log yet, because it need not be, goes there. What was delivered before stays in memory, and so does what lies before that in
the log.

A purge, by an operator or when the last consumer leaves, takes what waits when it begins, and what of that comes back unacknowledged
meanwhile; what is sent meanwhile stays, and goes out when the purge is done. What is being delivered stays. Of a queue that is gone only
memory is left: nobody finds it any more, and what its messages take is given back step by step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from stompbox.broker.kinds import Kind
from stompbox.broker.logs.cursor import FAR
from stompbox.broker.queues import dispatch
from stompbox.broker.queues.contracts import Engine
from stompbox.broker.work import MESSAGE

if TYPE_CHECKING:
    from stompbox.broker.logs.segments import Segment
    from stompbox.broker.queues.backlog import Backlog
    from stompbox.broker.queues.delayed import Waits
    from stompbox.broker.queues.lanes import Lanes
    from stompbox.broker.queues.logged import LoggedQueue


class Whole(Engine, Protocol):
    """What reclaiming memory asks of the engine, with all its queues."""

    @property
    def queues(self) -> Mapping[int, LoggedQueue]: ...


IDLE: Final = 1000  # ms
LOOKED: Final = 500  # queues, or segments, that one step looks at
STEP: Final = 32  # segments that one step takes out
_USED: Final = attrgetter("used")
_FIRST: Final = attrgetter("first")
AGAIN: Final = 100  # ms after which it is looked again when too little could be given back


def relieve(engine: Whole) -> None:
    """Memory is full, or was. Gives back what is idle, until there is room."""
    memory = engine.memory
    if memory.begin_relief(engine.now, AGAIN):
        engine.later.take(relieve, _relieving(engine))


def _relieving(engine: Whole) -> Iterator[None]:
    """The steps of `relieve`: queues are looked through, and those that were idle longest give back first."""
    memory = engine.memory
    low, few = memory.most - memory.most // 4, memory.most_messages - memory.most_messages // 4
    idle: list[LoggedQueue] = []
    queues = list(engine.queues.values())
    for at in range(0, len(queues), LOOKED):
        idle += [
            queue
            for queue in queues[at : at + LOOKED]
            if queue.used <= engine.now - IDLE and (queue.count or queue.has_waits or queue.has_unread)
        ]
        engine.work.spend(LOOKED)
        yield
    for queue in sorted(idle, key=_USED):
        if memory.taken <= low and memory.count <= few:
            break
        if queue.id in engine.queues and queue.used <= engine.now - IDLE:
            queue.drop_unread()
            yield from giving_back(queue)
    if memory.end_relief():
        engine.relief.by(engine.now + IDLE)


def give_back_unsorted(queue: LoggedQueue) -> None:
    """There is no room for more lanes: what is still to be sorted is left to the log, where consumers that have credit look for it. What
    cannot go just now, because the queue is used, is looked at again."""
    key, engine = (give_back_unsorted, queue.id), queue.engine
    if queue.backlog.places.begin_relief(engine.now, AGAIN):
        engine.timers.at(engine.now + AGAIN, partial(_look_again, engine, queue.id))
        engine.later.add(key, partial(_give_back_unsorted, key, queue), by=queue.client)


def _give_back_unsorted(key: object, queue: LoggedQueue) -> None:
    queue.engine.later.take(key, giving_back(queue, is_all=False), by=queue.client)


def _look_again(engine: Engine, queue: int) -> None:
    found = engine.queues.get(queue)
    if found is not None:
        engine.dispatch_later(found)


def give_back(queue: LoggedQueue) -> None:
    """Frees what can go from the memory of a queue."""
    for _ in giving_back(queue):
        pass


def giving_back(queue: LoggedQueue, *, is_all: bool = True) -> Iterator[None]:
    """Frees the memory of a queue in steps; where it is not all, of what is behind all that is sorted into lanes. From the first on what
    comes stays in the log; then what lies furthest back goes, so that after each step the log alone has all from one offset on. It ends
    where the queue is used meanwhile."""
    if queue.id not in queue.engine.queues or (not queue.count and not queue.has_waits):
        return
    log, engine = queue.address.log, queue.engine
    out = [segment for binding in queue.bindings if binding.out for segment in binding.taken()]
    # of what was given out; the log has them not
    has_marks = queue.groups is not None and bool(queue.groups.rules.group_first_key)
    is_special = has_marks or queue.redrive is not None or queue.kind is Kind.BROWSER
    is_special = is_special or queue in engine.returning  # something long is done with its messages just now
    if is_special or sum([binding.out for binding in queue.bindings]) != queue.delivering:
        # else a transaction has some, and may give them back
        return
    state = _state(queue)
    # the others hold nothing back, as long as they have it in memory
    oldest = 0 if queue.is_durable else log.trimmed
    while is_all and queue.has_waits and queue.waits.has_fresh:
        for when, segment in queue.waits.take_fresh(oldest, STEP):
            _log(queue, segment)
            queue.leave_for_later(segment.first, segment.stop, when)
            queue.announce(segment.run, segment.first, segment.stop)
        engine.work.spend(MESSAGE * STEP)
        yield
        if _state(queue) != state:
            return
    if not queue.count:
        return
    if not queue.is_paged:
        queue.leave_in_log(queue.log_end)
    state = _state(queue)
    fresh: list[Segment] = []
    least = oldest
    waiting = queue.backlog.standing()
    lanes = queue.backlog
    kept: set[Backlog | None] = set() if is_all else {*lanes.by_lane.values(), *lanes.by_owner.values()}
    while waiting:  # nothing is held here longer than it is needed: its memory goes step by step
        part = [segment for segment in waiting[-LOOKED:] if segment.home is not None]
        del waiting[-LOOKED:]
        fresh += [segment for segment in part if queue.is_fresh(segment)]
        stays = [segment for segment in part if segment.home in kept or not queue.is_fresh(segment)]
        least = max([least, *[segment.stop for segment in stays]])
        engine.work.spend(LOOKED)
        yield
        if _state(queue) != state:
            return
    fresh.sort(key=_FIRST)
    del fresh[: bisect_left(fresh, max(_reached(queue, out), least), key=_FIRST)]
    yield from _leaving(queue, fresh)


def _leaving(queue: LoggedQueue, gone: list[Segment]) -> Iterator[None]:
    """Takes segments out of the queue, the last first, and out of what is given here."""
    engine = queue.engine
    if not gone:
        engine.dispatch_later(queue)  # nothing stays in the log for its sake
    queue.search_anew()
    while gone:
        # the others have expired meanwhile
        part = [segment for segment in gone[: -STEP - 1 : -1] if segment.home is not None]
        del gone[-STEP:]
        if part:
            _leave(queue, part)
        state = _state(queue)
        engine.work.spend(MESSAGE * STEP)
        yield
        if _state(queue) != state:
            return


def _leave(queue: LoggedQueue, part: list[Segment]) -> None:
    # what was taken out of the log ahead of the others lies behind what the log alone has by now
    first = min(part[-1].first, queue.paged_from)
    if not queue.is_durable and first < queue.paged_from:  # its cursor does not say what was never for it
        queue.cursor.pass_over(first, queue.paged_from)
    for segment in part:
        left = queue.backlog.remove(segment)
        _log(queue, left)
        # a consumer may have taken it out of the log and given it back
        queue.taken_ahead.remove(left.first, left.stop)
        if queue.admission is not None:
            queue.admission.left(left)
        if not queue.is_durable:
            queue.cursor.revoke(segment.first, segment.stop)
    queue.leave_in_log(first)
    queue.engine.counters["given-back"] += sum(map(len, part))


def _state(queue: LoggedQueue) -> tuple[object, ...]:
    """What changes when something becomes of the queue's messages."""
    is_there = queue.id in queue.engine.queues and queue not in queue.engine.returning
    return is_there, queue.used, queue.uses, queue.delivering, queue.paged_from, queue.redrive


def _reached(queue: LoggedQueue, out: list[Segment]) -> int:
    """After the last message that somebody has, or that waits for its time: a queue that reads the log from here on reads nothing twice."""
    kept = [segment.stop for segment in out]
    kept.append(queue.waits.stop if queue.has_waits else 0)
    if queue.later is not None:
        kept.append(queue.later.stop)
    return max(kept)


def _log(queue: LoggedQueue, segment: Segment) -> None:
    queue.engine.log_run(queue.address, segment.run, is_loose=True)


EMPTIED: Final = 64  # segments of one step
OFFSETS: Final = 1000  # the same of messages that are in the log alone: a step costs no more


def purge(queue: LoggedQueue, on_done: Callable[[], None] = lambda: None) -> None:
    """Drops all that waits, loaded or not. `on_done` is called at the end."""
    queue.engine.later.take(object(), _purging(queue, on_done), by=queue.client)


def _purging(queue: LoggedQueue, on_done: Callable[[], None]) -> Iterator[None]:
    engine, stop = queue.engine, queue.log_end
    later = queue.forget_later()
    if queue.has_waits:
        queue.waits.set_apart()
    dispatch.withhold(engine, [queue])
    while queue.pass_over_log(stop, EMPTIED):
        engine.work.spend(MESSAGE * EMPTIED)
        yield
        if queue.id not in engine.queues:
            break
    if queue.tally is not None:
        queue.tally.clear()
        queue.tally.doubt()  # what is out, or comes meanwhile
    if queue.admission is not None:
        queue.admission.clear()
    for segments in _taken(queue, stop):
        for segment in segments:
            engine.counters["purged"] += len(segment)
            queue.finish_stretch(segment.first, segment.stop)
            if queue.admission is not None:
                queue.admission.done(segment)
        yield
    while later is not None and queue.id in engine.queues and (stretches := later.take(OFFSETS)):
        for first, end in stretches:
            engine.counters["purged"] += end - first
            queue.finish_stretch(first, end)
        engine.work.spend(MESSAGE * EMPTIED)
        yield
    dispatch.release(engine, [queue])
    if queue.id in engine.queues:
        queue.dispatch()
    on_done()


def drop(queue: LoggedQueue) -> None:
    """The queue is gone: what it had in memory goes."""
    queue.forget_later()
    queue.drop_unread()
    queue.end_places()
    if queue.count or queue.has_waits or queue.groups is not None:
        queue.engine.later.take(object(), _dropping(queue), by=queue.client)


def _dropping(queue: LoggedQueue) -> Iterator[None]:
    while queue.groups is not None and queue.groups.forget(LOOKED):
        queue.engine.work.spend(LOOKED)
        yield
    if queue.has_waits:
        queue.waits.set_apart()
    for _ in _taken(queue, FAR):
        yield


def let_go(queue: LoggedQueue) -> None:
    """What the queue had in memory goes, and it stays."""
    queue.forget_later()
    backlog, waits = queue.let_go()
    if (backlog is not None and backlog.count) or (waits is not None and waits.count):
        queue.engine.later.take(object(), _letting_go(queue.engine, backlog, waits), by=queue.client)


def _letting_go(engine: Engine, backlog: Lanes | None, waits: Waits | None) -> Iterator[None]:
    while backlog is not None and (found := backlog.take_below(FAR, EMPTIED)):
        engine.work.spend(MESSAGE * len(found))
        yield
    if waits is not None:
        waits.set_apart()
    while waits is not None and (found := waits.take_apart(EMPTIED)):
        engine.work.spend(MESSAGE * len(found))
        yield


def _taken(queue: LoggedQueue, stop: int) -> Iterator[list[Segment]]:
    """Takes out what waits below `stop`, and what was set apart, a step's worth at a time; nothing more when the queue is gone and is
    emptied as such."""
    work, is_there = queue.engine.work, queue.id in queue.engine.queues
    while is_there is (queue.id in queue.engine.queues):
        found = queue.backlog.take_below(stop, EMPTIED) or queue.waits.take_apart(EMPTIED)
        if not found:
            return
        work.spend(MESSAGE * len(found))
        yield found
