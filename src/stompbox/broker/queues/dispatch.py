"""Who gets which message next: exclusive consumers, priorities, consumers-before-dispatch, pauses, selectors, message groups.

A queue may have very many consumers, which come and go one by one: none of that looks through the others. What waits is sorted into
lanes (lanes.py) portion by portion, and handed out in the order of the lanes' first messages; a queue that used up its portion goes on
behind the others.

The messages of a group wait in their consumer's own lane when it has no credit, and hold up nobody else (groups.py).
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.consumer import Binding, with_credit
from stompbox.broker.queues.groups import Groups
from stompbox.broker.queues.lanes import Key, Lane, takes
from stompbox.broker.queues.order import Head
from stompbox.broker.queues.roundrobin import RoundRobin
from stompbox.broker.work import ASKED, HANDED, LOOK, MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbox.broker.queues.contracts import Engine
    from stompbox.broker.queues.sharing import SharedQueue
    from stompbox.broker.queues.state import QueueState


def open_when_due(queue: SharedQueue) -> None:
    """A consumer has come to a queue that waits for more."""
    rules, engine = queue.rules, queue.engine
    if len(queue.bindings) >= rules.consumers_before_dispatch:
        queue.open()
    elif len(queue.bindings) == 1 and rules.delay_before_dispatch >= 0:
        engine.timers.at(engine.now + rules.delay_before_dispatch, partial(_open, queue, queue.uses))


def _open(queue: SharedQueue, uses: int) -> None:
    """The time is over, counted from the consumer that came as the `uses`th."""
    if queue.bindings and not queue.is_open and queue.first_use == uses:
        queue.open()
        queue.dispatch()


def may_take(queue: SharedQueue, binding: Binding, lane: Lane) -> bool:
    """Whether a consumer, with credit or without, gets messages of a lane now."""
    is_taker = queue.takers is queue.bindings or binding in queue.takers
    return is_taker and (not queue.is_shared or takes(binding, lane))


_Heads = list[tuple[Head, int, Lane, Key]]


def dispatch(queue: SharedQueue, only: Binding | None = None) -> None:
    """Hands out what it can: always the next that somebody with credit takes. `only`: one consumer has credit again, and nobody else has
    had any for what waits, so that of very many selectors its own is looked at."""
    backlog = queue.backlog
    if only is not None and (backlog.unsorted or not _may_be_alone(queue)):
        only = None
    if backlog.unsorted:
        backlog.sort_some()
        if not backlog.unsorted:
            queue.sorted_out()
    is_more = _hand_out(queue, only)
    backlog.settle()
    if is_more or backlog.may_sort:
        queue.go_on_later()


def _may_be_alone(queue: SharedQueue) -> bool:
    """Whether it makes no difference to the others that one consumer is looked at by itself."""
    return queue.is_shared and queue.takers is queue.bindings and queue.groups is None and not queue.has_tiers


def _hand_out(queue: SharedQueue, only: Binding | None) -> bool:
    """Hands out a portion. Whether there may be more."""
    backlog, work = queue.backlog, queue.engine.work
    heads = _heads(queue, only)
    turn, before, handed, most = len(heads), work.done, 0, work.rounds * HANDED
    # what it costs to find out who takes from a lane, and to hand out many groups of one segment, is of the portion
    while handed + work.done - before < most:
        takers = _next(queue, heads, only)
        if not takers:
            work.spend(handed)
            return False
        lane = heads[0][2]
        segment = backlog.pop(lane)
        if not queue.give_lane(lane, segment, takers):
            backlog.unpop(lane, segment)
        if queue.groups is not None:
            turn = _note_own(queue, heads, turn)
        handed += HANDED
    work.spend(handed)
    return True


def withhold(engine: Engine, queues: Iterable[QueueState]) -> None:
    """Keeps queues from handing out anything until `release`: very many messages come, or go, in steps, and are to keep their order."""
    for queue in queues:
        engine.returning[queue] += 1
        queue.consumers_changed()


def release(engine: Engine, queues: Iterable[QueueState]) -> None:
    for queue in queues:
        engine.returning[queue] -= 1
        if not engine.returning[queue]:
            del engine.returning[queue]
        queue.consumers_changed()


def _heads(queue: SharedQueue, only: Binding | None) -> _Heads:
    """For each who takes from lanes, or for one of them, the first of them."""
    backlog = queue.backlog
    keys = backlog.keys(only)
    queue.engine.work.spend(LOOK * len(keys))
    if only is None:
        backlog.take_filled()
        keys = [key for key in keys if not queue.is_starving(key)]
    firsts = backlog.firsts(keys)
    found = [(head, number, lane, key) for number, (head, lane, key) in enumerate(firsts)]
    heapify(found)
    return found


def _note_own(queue: SharedQueue, heads: _Heads, turn: int) -> int:
    """Consumers' own lanes have got something: nobody looks at the others for that. Who is there already is there twice."""
    backlog = queue.backlog
    for owner in backlog.take_filled():
        first = backlog.first(owner)
        if first is not None:
            heappush(heads, (first[0], turn, first[1], owner))
            turn += 1
    return turn


def _next(queue: SharedQueue, heads: _Heads, only: Binding | None) -> RoundRobin[Binding] | None:
    """The consumers, or the only one, that may have what the first lane has; who has no credit is left out."""
    while heads:
        head, number, lane, key = heads[0]
        now = queue.backlog.first(key)
        if now is None:
            heappop(heads)
        elif now != (head, lane):  # what was first is gone
            heapreplace(heads, (now[0], number, now[1], key))
        elif takers := queue.takers_of(lane) if only is None else with_credit([only]):
            return takers
        else:
            heappop(heads)  # all who take by this key take from this lane, and have no credit
    return None


def hand_out_groups(
    queue: SharedQueue, groups: Groups, segment: Segment, lane: Lane, takers: RoundRobin[Binding]
) -> bool:
    """Each group to its owner, or into the owner's lane. False when nobody has credit, or after a portion, where it goes on with the rest
    in its turn: then `segment` is what is left. `takers`: those of the segment's lane."""
    work = queue.engine.work
    left = work.rounds
    for part in groups.parts(segment):
        if not left:
            work.spend(HANDED * (work.rounds - 1))  # the segment counts as one
            segment.cut(part.segment.first)
            queue.go_on_later()
            return False
        left -= 1
        owner = groups.owner(part.key) if part.key is not None else None
        # its selector leaves it: the group stays its own,
        is_unwanted = owner is not None and not may_take(queue, owner, lane)
        if is_unwanted:  # this one is anybody's
            owner = None
        next = groups.next(takers) if owner is None else None
        if owner is None and next is None:
            if takers:
                work.spend(MESSAGE * ASKED)
                queue.go_on_later()
            if part.segment is not segment:
                segment.cut(part.segment.first)
            return False
        pieces = [part.segment]
        if next is not None and part.key is not None and not is_unwanted:
            owner = next
            groups.give(part.key, owner)
            pieces = groups.marked(part.segment)
        for piece in pieces:
            _hand_to_owner(queue, piece, owner, takers)
        if part.ends and part.key is not None:
            groups.end(part.key)
    return True


def _hand_to_owner(
    queue: SharedQueue, piece: Segment, owner: Binding | None, takers: RoundRobin[Binding]
) -> None:
    """To the owner, or to its place in what waits for it: another lane may have given what is newer before. Without one to anybody."""
    if owner is None:
        if queue.share(piece, takers):
            queue.backlog.put_back(piece)
    elif queue.backlog.lane(owner).count or queue.share(piece, RoundRobin([owner])):
        queue.backlog.put_back_to(owner, piece)
