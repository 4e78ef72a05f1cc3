"""Who gets which message next: exclusive consumers, priorities, consumers-before-dispatch, pauses, selectors, message groups.

A queue may have very many consumers, which come and go one by one: none of that looks through the others. What waits is sorted into
lanes (lanes.py) portion by portion, and handed out in the order of the lanes' first messages; a queue that used up its portion goes on
behind the others.

Messages with the same JMSXGroupID go to the same consumer, as long as it is there. A group is given to a consumer, in turn, when its
first message is about to go out. From then on its messages wait in that consumer's own lane when it has no credit, and hold up nobody
else. JMSXGroupSeq:-1 on a message ends the group with it; so does the consumer's leaving; then the next message finds a consumer anew.

    buckets      groups are hashed into so many buckets, and the buckets are given out
    rebalance    all groups are given out anew when a consumer comes
    pause        but only when what is in flight is acknowledged
    first key    a header that is true on the first message of a group that a consumer gets
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Final
from zlib import crc32

from stompbox.broker.kinds import Rules
from stompbox.broker.logs.segments import Segment, values_of
from stompbox.broker.queues.consumer import Binding, RoundRobin, takes
from stompbox.broker.queues.lanes import Head, Key, Lane
from stompbox.broker.work import MESSAGE
from stompbox.message import GROUP, GROUP_SEQUENCE, Run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbox.broker.queues.contracts import Engine
    from stompbox.broker.queues.queue import Queue


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


def may_take(queue: Queue, binding: Binding, lane: Lane) -> bool:
    """Whether a consumer, with credit or without, gets messages of a lane now."""
    is_taker = queue.takers is queue.bindings or binding in queue.takers
    return is_taker and (not queue.is_shared or takes(binding, lane))


_Heads = list[tuple[Head, int, Lane, Key]]


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
    heads = [
        (*first, number, key)
        for number, key in enumerate(backlog.keys)
        if (first := backlog.first(key)) is not None
    ]
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


# groups of a queue whose consumers are remembered; beyond, the oldest is given out anew
MOST_GROUPS: Final = 100_000
_ENDS: Final = b"-1"

GroupKey = bytes | int  # a group, or a bucket


class GroupPart:
    """Messages of one group, or of none (`key` None). `ends`: the last of them is the group's last."""

    __slots__ = ("ends", "key", "segment")

    def __init__(self, key: GroupKey | None, segment: Segment, *, ends: bool) -> None:
        self.key = key
        self.segment = segment
        self.ends = ends


class Groups:
    """Which consumer each message group of a queue goes to."""

    __slots__ = ("_keys", "_owners", "_turn", "is_pausing", "rules")

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._owners: dict[GroupKey, Binding] = {}
        self._keys: dict[Binding, set[GroupKey]] = {}  # the groups of each owner
        self._turn = 0
        self.is_pausing = False  # nothing goes out until nothing is in flight

    def parts(self, segment: Segment) -> Iterator[GroupPart]:
        """The segment by group, in order."""
        run, first, stop = segment.run, segment.first, segment.stop
        names = values_of(run, GROUP, first, stop)
        ends = [value == _ENDS for value in values_of(run, GROUP_SEQUENCE, first, stop)]
        start = first
        for offset in range(first, stop):
            at = offset - first
            if offset + 1 == stop or ends[at] or names[at + 1] != names[at]:
                whole = start == first and offset + 1 == stop
                part = segment if whole else segment.part(start, offset + 1)
                yield GroupPart(self._key(names[at]), part, ends=ends[at])
                start = offset + 1

    def _key(self, name: bytes) -> GroupKey | None:
        if not name:
            return None
        buckets = self.rules.group_buckets
        return crc32(name) % buckets if buckets > 0 else name

    def owner(self, key: GroupKey) -> Binding | None:
        return self._owners.get(key)

    def next(self, takers: RoundRobin) -> Binding | None:
        """Who of the takers is the next owner: each that has credit in turn."""
        self._turn += 1
        while takers:
            found = takers[self._turn % len(takers)]
            if found.consumer.has_credit:
                return found
            found.leave_out(takers)
        return None

    def give(self, key: GroupKey, owner: Binding) -> None:
        """The group gets an owner."""
        if len(self._owners) >= MOST_GROUPS:
            self.end(next(iter(self._owners)))
        self._owners[key] = owner
        self._keys.setdefault(owner, set()).add(key)

    def end(self, key: GroupKey) -> None:
        owner = self._owners.pop(key, None)
        if owner is not None:
            self._keys[owner].discard(key)

    def leave(self, binding: Binding) -> None:
        """A consumer goes: its groups are free."""
        for key in self._keys.pop(binding, ()):
            del self._owners[key]

    def begin_anew(self, *, is_pausing: bool) -> None:
        """All groups are to be given out anew; nothing goes out before what is in flight is acknowledged, where they are pausing."""
        self._owners.clear()
        self._keys.clear()
        self.is_pausing = is_pausing

    def resume(self) -> None:
        """Nothing is in flight any more."""
        self.is_pausing = False

    def marked(self, segment: Segment) -> list[Segment]:
        """The segment that a new owner begins with, its first message with the header that says so."""
        name = self.rules.group_first_key
        if not name:
            return [segment]
        run, first = segment.run, segment.first
        front = segment.part(first, first + 1)
        front.become(_with_header(run, first, name))
        return [front, segment.part(first + 1, segment.stop)] if len(segment) > 1 else [front]

    def __len__(self) -> int:
        return len(self._owners)

    def __repr__(self) -> str:
        return f"<Groups {len(self._owners)}>"


def _with_header(run: Run, offset: int, name: str) -> Run:
    """One message of a run, with a header more."""
    index = offset - run.first
    headers = {**run.headers(index), name: "true"}
    return run.part(index, index + 1, shape=run.shape.with_headers(headers, holes=()))


def hand_out_groups(queue: Queue, groups: Groups, segment: Segment, lane: Lane, takers: RoundRobin) -> bool:
    """Each group to its owner, or into the owner's lane. False when nobody has credit: then `segment` is what is left. `takers`: those of
    the segment's lane."""
    for part in list(groups.parts(segment)):
        owner = groups.owner(part.key) if part.key is not None else None
        # its selector leaves it: the group stays its own,
        is_unwanted = owner is not None and not may_take(queue, owner, lane)
        if is_unwanted:  # this one is anybody's
            owner = None
        next = groups.next(takers) if owner is None else None
        if owner is None and next is None:
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


def _hand_to_owner(queue: Queue, piece: Segment, owner: Binding | None, takers: RoundRobin) -> None:
    """To the owner, or to its place in what waits for it: another lane may have given what is newer before. Without one to anybody."""
    if owner is None:
        if queue.share(piece, takers):
            queue.backlog.put_back(piece)
    elif queue.backlog.lane(owner).count or queue.share(piece, RoundRobin([owner])):
        queue.backlog.put_back_to(owner, piece)
