"""Who gets which message next, where that depends on the message: selectors, groups, priorities of consumers.

What waits is sorted into lanes (lanes.py) portion by portion, and handed out in the order of the lanes' first messages; a queue that
used up its portion goes on behind the others.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from stompbox.broker.queues import paging
from stompbox.broker.queues.lanes import Key, Lane
from stompbox.broker.queues.orders import Head
from stompbox.broker.work import MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbox.broker.engine import Engine
    from stompbox.broker.logs.segments import Segment
    from stompbox.broker.queues.choosing import RoundRobin
    from stompbox.broker.queues.queue import Queue

_Heads = list[tuple[Head, int, Lane, Key]]


def offer(queue: Queue, segment: Segment) -> None:
    """What arrived just now: to who has credit, into a lane, or to what is still to be sorted."""
    backlog = queue.backlog
    for lane, part in backlog.arriving(segment):
        is_next = lane is not None and not queue.is_halfway and not backlog.lane(lane).count
        if lane is not None and is_next and queue.give_lane(lane, part, queue.takers_of(lane)):
            continue
        if not paging.fits(queue, backlog.size, part):
            paging.page(queue.engine, queue, part.run, part.first)
            if queue.intake is not None:
                queue.intake.left(part if part.stop == segment.stop else segment.part(part.first, segment.stop))
            return
        if lane is None:
            backlog.leave(part)
        else:
            backlog.push_to(lane, part)


def dispatch(queue: Queue) -> None:
    """Hands out what it can: always the next that somebody with credit takes."""
    backlog = queue.backlog
    if backlog.unsorted:
        backlog.sort_some()
        if not backlog.unsorted:
            queue.sorted_out()
    work = queue.engine.work
    rounds = _hand_out(queue, work.rounds)
    work.spend(MESSAGE * rounds + len(backlog.keys))
    if rounds == work.rounds or backlog.unsorted:
        queue.go_on_later()


def _hand_out(queue: Queue, most: int) -> int:
    """How many segments went; `most` when there may be more."""
    backlog = queue.backlog
    heads = _heads(queue)
    for rounds in range(most):
        takers = _next(queue, heads)
        if not takers:
            return rounds
        lane = heads[0][2]
        segment = backlog.pop(lane)
        if not queue.give_lane(lane, segment, takers):
            backlog.unpop(lane, segment)
        if queue.groups is not None:
            heads = _heads(queue)  # a consumer's own lane may have got something
    return most


def withhold(engine: Engine, queues: Iterable[Queue]) -> None:
    """These hand out nothing until `release`: very many messages come, or go, in steps, and are to keep their order."""
    for queue in queues:
        engine.returning[queue] += 1
        queue.consumers_changed()


def release(engine: Engine, queues: Iterable[Queue]) -> None:
    for queue in queues:
        engine.returning[queue] -= 1
        if not engine.returning[queue]:
            del engine.returning[queue]
        queue.consumers_changed()


def _heads(queue: Queue) -> _Heads:
    """For each who takes from lanes, the first of them."""
    backlog = queue.backlog
    heads = [(*first, number, key) for number, key in enumerate(backlog.keys) if (first := backlog.first(key)) is not None]
    found = [(head, number, lane, key) for head, lane, number, key in heads]
    heapify(found)
    return found


def _next(queue: Queue, heads: _Heads) -> RoundRobin | None:
    """Those who may have what the first lane has; who has no credit is left out."""
    while heads:
        head, number, lane, key = heads[0]
        now = queue.backlog.first(key)
        if now is None:
            heappop(heads)
        elif now != (head, lane):  # what was first is gone
            heapreplace(heads, (now[0], number, now[1], key))
        elif takers := queue.takers_of(lane):
            return takers
        else:
            heappop(heads)  # all who take by this key take from this lane, and have no credit
    return None
