"""Message groups: messages with the same JMSXGroupID go to the same consumer, as long as it is there.

A group is given to a consumer, in turn, when its first message is about to go out. From then on its messages wait in that
consumer's own lane when it has no credit, and hold up nobody else. JMSXGroupSeq:-1 on a message ends the group with it; so
does the consumer's leaving; then the next message finds a consumer anew.

    buckets      groups are hashed into so many buckets, and the buckets are given out
    rebalance    all groups are given out anew when a consumer comes
    pause        but only when what is in flight is acknowledged
    first key    a header that is true on the first message of a group that a consumer gets
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from zlib import crc32

from stompbox.broker.columns import values_of
from stompbox.broker.kinds import Rules
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import choosing
from stompbox.broker.queues.choosing import RoundRobin
from stompbox.message import GROUP, GROUP_SEQUENCE, Run, Shape

if TYPE_CHECKING:
    from stompbox.broker.queues.consumer import Binding
    from stompbox.broker.queues.lanes import Lane
    from stompbox.broker.queues.queue import Queue

MOST: Final = 100_000  # groups of a queue whose consumers are remembered; beyond, the oldest is given out anew
_ENDS: Final = b"-1"

Key = bytes | int  # a group, or a bucket


class Part:
    """Messages of one group, or of none (`key` None). `ends`: the last of them is the group's last."""

    __slots__ = ("ends", "key", "segment")

    def __init__(self, key: Key | None, segment: Segment, *, ends: bool) -> None:
        self.key = key
        self.segment = segment
        self.ends = ends


class Groups:
    """Of one queue."""

    __slots__ = ("_keys", "_owners", "_turn", "is_pausing", "rules")

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._owners: dict[Key, Binding] = {}
        self._keys: dict[Binding, set[Key]] = {}  # the groups of each owner
        self._turn = 0
        self.is_pausing = False  # nothing goes out until nothing is in flight

    def parts(self, segment: Segment) -> Iterator[Part]:
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
                yield Part(self._key(names[at]), part, ends=ends[at])
                start = offset + 1

    def _key(self, name: bytes) -> Key | None:
        if not name:
            return None
        buckets = self.rules.group_buckets
        return crc32(name) % buckets if buckets > 0 else name

    def owner(self, key: Key) -> Binding | None:
        return self._owners.get(key)

    def next(self, queue: Queue, takers: RoundRobin) -> Binding | None:
        """Who of the takers is the next owner: each that has credit in turn."""
        self._turn += 1
        while takers:
            found = takers[self._turn % len(takers)]
            if found.consumer.has_credit:
                return found
            choosing.leave_out(queue, found, takers)
        return None

    def give(self, key: Key, owner: Binding) -> None:
        """The group gets an owner."""
        if len(self._owners) >= MOST:
            self.end(next(iter(self._owners)))
        self._owners[key] = owner
        self._keys.setdefault(owner, set()).add(key)

    def end(self, key: Key) -> None:
        owner = self._owners.pop(key, None)
        if owner is not None:
            self._keys[owner].discard(key)

    def leave(self, binding: Binding) -> None:
        """A consumer goes: its groups are free."""
        for key in self._keys.pop(binding, ()):
            del self._owners[key]

    def clear(self) -> None:
        self._owners.clear()
        self._keys.clear()

    def marked(self, segment: Segment) -> list[Segment]:
        """The segment that a new owner begins with, its first message with the header that says so."""
        name = self.rules.group_first_key
        if not name:
            return [segment]
        run, first = segment.run, segment.first
        front = segment.part(first, first + 1)
        front.run = _with_header(run, first, name)
        return [front, segment.part(first + 1, segment.stop)] if len(segment) > 1 else [front]

    def __len__(self) -> int:
        return len(self._owners)

    def __repr__(self) -> str:
        return f"<Groups {len(self._owners)}>"


def _with_header(run: Run, offset: int, name: str) -> Run:
    """One message of a run, with a header more."""
    shape, index = run.shape, offset - run.first
    headers = {**run.headers(index), name: "true"}
    changed = Shape(
        headers, persistent=shape.persistent, priority=shape.priority, expires=shape.expires, has_length=shape.has_length
    )
    return Run(changed, [run.bodies[index]], first=offset, arrived=run.arrived, routing=run.routing, sender=run.sender)


def hand_out(queue: Queue, groups: Groups, segment: Segment, lane: Lane, takers: RoundRobin) -> bool:
    """Each group to its owner, or into the owner's lane. False when nobody has credit: then `segment` is what is left. `takers`: those of
    the segment's lane."""
    for part in list(groups.parts(segment)):
        owner = groups.owner(part.key) if part.key is not None else None
        is_unwanted = owner is not None and not choosing.may_take(queue, owner, lane)  # its selector leaves it: the group stays its own,
        if is_unwanted:  # this one is anybody's
            owner = None
        next = groups.next(queue, takers) if owner is None else None
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
            _hand_to(queue, piece, owner, takers)
        if part.ends and part.key is not None:
            groups.end(part.key)
    return True


def _hand_to(queue: Queue, piece: Segment, owner: Binding | None, takers: RoundRobin) -> None:
    """To the owner, or to its place in what waits for it: another lane may have given what is newer before. Without one to anybody."""
    if owner is None:
        if queue.share(piece, takers):
            queue.backlog.put_back(piece)
    elif queue.backlog.lane(owner).count or queue.share(piece, RoundRobin([owner])):
        queue.backlog.put_back_to(owner, piece)
