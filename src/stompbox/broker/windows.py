"""Windows that nobody looks through are given back when all memory is full: what waits there is left to the log, as in paging.py.

The queue from which nothing was handed out for the longest time comes first; one that was used within IDLE keeps its window. It ends
when a QUARTER is free. What is not in the log yet, because it need not be, goes there. What was delivered before stays in memory, and
so does what lies before that in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbox.broker import paging, scheduling
from stompbox.broker.queue import Kind

if TYPE_CHECKING:
    from stompbox.broker.engine import Engine
    from stompbox.broker.queue import Queue
    from stompbox.broker.segments import Segment

IDLE: Final = 1000  # ms
AGAIN: Final = 100  # ms after which it is looked again when too little could be given back


def relieve(engine: Engine) -> None:
    """Memory is full, or was. Gives back what is idle, until there is room."""
    memory = engine.memory
    if engine.now < memory.looked + AGAIN:
        return
    memory.looked = engine.now
    low, few = memory.most - memory.most // 4, memory.most_messages - memory.most_messages // 4
    for queue in sorted(engine.queues.values(), key=_used):
        if (memory.taken <= low and memory.count <= few) or queue.used > engine.now - IDLE:
            break
        give_back(queue)
    memory.is_pressed = memory.is_full
    if memory.is_pressed:
        engine.relief.by(engine.now + IDLE)


def _used(queue: Queue) -> int:
    return queue.used


def give_back(queue: Queue) -> None:
    """What can go from its memory goes."""
    if not queue.count and not queue.has_waits:
        return
    log, out = queue.address.log, [segment for binding in queue.bindings for segment in binding.taken()]
    has_marks = queue.groups is not None and bool(queue.groups.rules.group_first_key)  # of what was given out; the log has them not
    is_special = has_marks or queue.redrive is not None or queue.kind is Kind.BROWSER
    is_special = is_special or queue in queue.engine.returning  # something long is done with its messages just now
    if is_special or sum(map(len, out)) != queue.delivering:  # else a transaction has some, and may give them back
        return
    oldest = 0 if queue.is_durable else log.trimmed  # the others hold nothing back, as long as they have it in memory
    for when, segment in queue.waits.take_fresh(oldest) if queue.has_waits else ():
        _log(queue, segment)
        scheduling.leave_in_log(queue, segment.first, segment.stop, when)
        queue.announce(segment.run, segment.first, segment.stop)
    fresh = [segment for segment in queue.backlog.segments() if queue.is_fresh(segment)]
    least = max(_reached(queue, out), oldest)
    gone = [segment for segment in fresh if segment.first >= least]
    if not gone:
        return
    first = min(segment.first for segment in gone)
    if not queue.is_durable:  # its cursor does not say what was never for it
        fanout = queue.address.fanout
        end = queue.log_end if fanout is None else fanout.end_for(queue)  # what waits to be offered to it is for it
        queue.cursor.pass_over(first, queue.paged_from if queue.paged_from >= 0 else end)
    for segment in sorted(gone, key=_first, reverse=True):
        left = queue.backlog.remove(segment)
        _log(queue, left)
        queue.sought.remove(left.first, left.stop)  # a consumer may have taken it out of the log and given it back
        if queue.intake is not None:
            queue.intake.left(left)
        if not queue.is_durable:
            queue.cursor.revoke(segment.first, segment.stop)
    for binding in queue.bindings:
        binding.sought = 0
    paging.leave_in_log(queue, first)
    queue.engine.counters["given-back"] += sum(map(len, gone))


def _reached(queue: Queue, out: list[Segment]) -> int:
    """After the last message that memory must keep: a queue that reads the log from here on reads nothing twice."""
    kept = [segment.stop for segment in (*out, *queue.backlog.segments()) if not queue.is_fresh(segment) or segment.home is None]
    kept.append(queue.waits.stop if queue.has_waits else 0)
    if queue.later is not None:
        kept.append(queue.later.stop)
    return max(kept)


def _first(segment: Segment) -> int:
    return segment.first


def _log(queue: Queue, segment: Segment) -> None:
    if not segment.run.is_logged:
        queue.engine.log_run(queue.address, segment.run, is_loose=True)
