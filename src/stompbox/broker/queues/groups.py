"""Message groups: which consumer of a queue each of them goes to.

Messages with the same JMSXGroupID go to the same consumer, as long as it is there. A group is given to a consumer, in turn, when its
first message is about to go out (dispatch.py). JMSXGroupSeq:-1 on a message ends the group with it; so does the consumer's leaving; then
the next message finds a consumer anew.

    buckets      groups are hashed into so many buckets, and the buckets are given out
    rebalance    all groups are given out anew when a consumer comes
    pause        but only when what is in flight is acknowledged
    first key    a header that is true on the first message of a group that a consumer gets
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from zlib import crc32

from stompbox.broker.kinds import Rules
from stompbox.broker.logs.segments import Segment, key_of, values_of
from stompbox.broker.work import ASKED
from stompbox.message import GROUP, GROUP_SEQUENCE, Run

if TYPE_CHECKING:
    from stompbox.broker.queues.consumer import Binding
    from stompbox.broker.queues.memory import Remembered
    from stompbox.broker.queues.roundrobin import RoundRobin

# groups whose consumers are remembered, of all queues; beyond, the oldest of a queue that has one more is given out anew
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
    """Which consumer each message group of a queue goes to. An owner is remembered by a number, which says nothing any more when it has
    gone: so nobody goes through its groups then."""

    __slots__ = ("_last", "_numbers", "_of_all", "_owners", "_takers", "_turn", "is_pausing", "rules")

    def __init__(self, rules: Rules, of_all: Remembered) -> None:
        self.rules = rules
        self._of_all = of_all
        self._owners: OrderedDict[GroupKey, int] = OrderedDict()  # the oldest first
        self._takers: dict[int, Binding] = {}
        self._numbers: dict[Binding, int] = {}
        self._last = 0
        self._turn = 0
        self.is_pausing = False  # nothing goes out until nothing is in flight

    def parts(self, segment: Segment) -> Iterator[GroupPart]:
        """The parts of a segment that belong to one group each, in order."""
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
        return crc32(name) % buckets if buckets > 0 else key_of(name)

    def owner(self, key: GroupKey) -> Binding | None:
        return self._takers.get(self._owners.get(key, 0))

    def next(self, takers: RoundRobin[Binding]) -> Binding | None:
        """Who of the takers is the next owner: each that has credit in turn. None where nobody has, or ASKED of them have not: then there
        are others left."""
        self._turn += 1
        for _ in range(ASKED):
            if not takers:
                return None
            found = takers[self._turn % len(takers)]
            if found.consumer.has_credit:
                return found
            found.leave_out(takers)
        return None

    def give(self, key: GroupKey, owner: Binding) -> None:
        """Gives the group to a consumer."""
        if key not in self._owners:
            if self._of_all.count >= MOST_GROUPS:
                self.forget(1)
            self._of_all.add(1)
        number = self._numbers.get(owner, 0)
        if not number:
            self._last += 1
            number = self._numbers[owner] = self._last
            self._takers[number] = owner
        self._owners[key] = number

    def end(self, key: GroupKey) -> None:
        if self._owners.pop(key, 0):
            self._of_all.add(-1)

    def forget(self, most: int) -> int:
        """Ends the oldest groups, `most` of them. How many there were."""
        count = min(most, len(self._owners))
        for _ in range(count):
            self._owners.popitem(last=False)
        self._of_all.add(-count)
        return count

    def leave(self, binding: Binding) -> None:
        """Frees the groups of a consumer that goes."""
        number = self._numbers.pop(binding, 0)
        if number:
            del self._takers[number]

    def begin_anew(self, *, is_pausing: bool) -> None:
        """All groups are to be given out anew; nothing goes out before what is in flight is acknowledged, where they are pausing."""
        self._takers.clear()
        self._numbers.clear()
        self.is_pausing = is_pausing

    def resume(self) -> None:
        """Nothing is in flight any more: groups are given again."""
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
