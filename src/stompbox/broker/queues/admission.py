"""Queues that do not simply keep what arrives: last value, ring, purged without consumers.

    last value   a newer message takes the place of the waiting one with the same key, also of one that the log alone has; what is being
                 delivered is left alone, and is dropped instead of delivered again when a newer one has come
    ring         so many wait at most; the oldest of what waits is dropped
    purged       nothing comes in while nobody consumes
    disabled     nothing comes in at all

What was dropped to make room for a message that the disk refuses afterwards waits again (commits.py).

Of what a last-value queue has in the log alone memory has the keys, each with an offset. After a restart they are not known: the queue
reads through what it has there, a portion at a time, and forgets the bodies again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from stompbox.broker.kinds import Rules
from stompbox.broker.logs.segments import Segment, key_of, values_of
from stompbox.broker.queues import paging
from stompbox.broker.work import MESSAGE

if TYPE_CHECKING:
    from stompbox.broker.queues.contracts import Address
    from stompbox.broker.queues.logged import LoggedQueue
    from stompbox.message import Run
    from stompbox.ranges import Ranges


class Left(NamedTuple):
    """The newest message of a key, which the log alone has."""

    first: int
    size: int  # as tallies count (limits.py)


class Admission:
    """What a queue with such rules admits. `paged` counts what the log alone has and came since the start: of what was there before, nobody
    knows what is gone."""

    __slots__ = (
        "_doubted_below",
        "_is_enabled",
        "_is_purged",
        "_key",
        "_latest",
        "_ring_size",
        "_unknown",
        "is_learning",
        "is_reading",
        "paged",
    )

    def __init__(self, rules: Rules, queue: LoggedQueue) -> None:
        self._key = rules.last_value_key
        self._ring_size = rules.ring_size
        self._latest: dict[bytes, Segment | Left] = {}  # each of one message, by key
        self._unknown = (0, 0)  # offsets in the log whose keys are to be looked at
        self.is_reading = self.is_learning = False
        self._is_purged = rules.is_purged
        self._is_enabled = rules.is_enabled
        self.paged = self._doubted_below = 0  # what is in the log alone below this offset is not counted
        self.count(queue)

    # Last value

    def admit(self, queue: LoggedQueue, segment: Segment) -> Iterator[Segment]:
        """The parts of a segment that are to be queued; the older messages of its keys go."""
        if not self._is_enabled:
            queue.drop(segment, "disabled")
            return
        if self._is_purged and not queue.consumer_count:
            queue.drop(segment, "purged")
            return
        if not self._key:
            yield segment
            return
        for key, part in self._by_key(segment):
            if not key:
                yield part
                continue
            if self._is_old(key, part):
                queue.drop(part, "replaced")
                continue
            self._replace(queue, key, part.first)
            self._latest[key] = part
            yield part

    def _is_old(self, key: bytes, part: Segment) -> bool:
        """Whether the log has a newer one. What was to wait for its time is as new as its time."""
        latest = self._latest.get(key)
        return isinstance(latest, Left) and latest.first > part.first and not _is_scheduled(part)

    def _replace(self, queue: LoggedQueue, key: bytes, by: int) -> None:
        """The message of the key that waits goes; the one at the offset `by` takes its place."""
        older = self._latest.get(key)
        if isinstance(older, Left):
            if older.first != by:
                self._drop_left(queue, key, older)
        elif older is not None and older.home is not None:
            self._drop(queue, queue.backlog.remove(older), "replaced")

    def _drop_left(self, queue: LoggedQueue, key: bytes, older: Left) -> None:
        self.paged -= min(self.paged, 1)
        queue.engine.counters["replaced"] += 1
        if queue.tally is not None:
            queue.tally.less(older.size, 1)
        queue.finish_stretch(older.first, older.first + 1)
        queue.engine.commits.restore_if_refused(partial(self._restore_left, queue, key, older))

    def _drop(self, queue: LoggedQueue, segment: Segment, why: str) -> None:
        """Drops messages to make room for what comes; they come back when the disk refuses that."""
        queue.drop(segment, why)
        queue.engine.commits.restore_if_refused(partial(self._restore, queue, segment, why))

    def drop_late(self, queue: LoggedQueue, segment: Segment) -> None:
        """Drops a message that was out when a newer one came, as it comes back. Nobody knows any more by which unit of work it was
        replaced."""
        queue.drop(segment, "replaced")
        queue.engine.commits.restore_if_any_refused(partial(self._restore, queue, segment, "replaced"))

    def _restore(self, queue: LoggedQueue, segment: Segment, why: str, _: Mapping[Address, Ranges]) -> None:
        """What it was dropped for could not be stored."""
        if queue.admission is not self or queue.id not in queue.engine.queues or segment.run.is_withdrawn:
            return
        for key, part in self._by_key(segment) if self._key else ((b"", segment),):
            if part.home is not None or not _restored(queue, part.first, part.stop):
                continue
            if key and self._has_newer(key, part.first):
                queue.finish_stretch(part.first, part.stop)
                continue
            queue.engine.counters[why] -= len(part)
            if queue.tally is not None:
                queue.tally.came(part.run, [(part.first, part.stop)])
            if key:
                self._latest[key] = part
            queue.backlog.put_back(part)
        self.settle(queue)
        queue.engine.dispatch_later(queue)

    def _restore_left(
        self, queue: LoggedQueue, key: bytes, left: Left, withdrawn: Mapping[Address, Ranges]
    ) -> None:
        """Restores what the log alone had and a newer message has replaced, when the disk has refused the newer one."""
        is_withdrawn = queue.address in withdrawn and left.first in withdrawn[queue.address]
        is_there = queue.admission is self and queue.id in queue.engine.queues and not is_withdrawn
        if (
            not is_there
            or self._has_newer(key, left.first)
            or not _restored(queue, left.first, left.first + 1)
        ):
            return
        queue.engine.counters["replaced"] -= 1
        self._latest[key] = left
        if queue.tally is not None:
            queue.tally.less(-left.size, -1)
        if 0 <= queue.paged_from <= left.first:
            self.paged += 1
        else:  # what the log has there was read meanwhile
            queue.leave_for_later(left.first, left.first + 1, queue.engine.now)
        queue.engine.dispatch_later(queue)

    def _has_newer(self, key: bytes, first: int) -> bool:
        latest = self._latest.get(key)
        return (
            latest is not None
            and latest.first > first
            and (isinstance(latest, Left) or not latest.run.is_withdrawn)
        )

    def left(self, segment: Segment) -> None:
        """The log alone has these messages from now on; they were admitted."""
        self.paged += len(segment)
        for key, part in self._by_key(segment) if self._key else ():
            latest = self._latest.get(key)
            if latest is not None and latest.first == part.first:
                self._latest[key] = _left(part)

    def _by_key(self, segment: Segment) -> Iterator[tuple[bytes, Segment]]:
        values = values_of(segment.run, self._key, segment.first, segment.stop)
        if not any(values):
            yield b"", segment
            return
        for offset, value in enumerate(values, segment.first):
            yield key_of(value), segment.part(offset, offset + 1)

    def is_replaced(self, segment: Segment) -> bool:
        """Whether a newer message of its key has come since it was delivered."""
        if not self._key:
            return False
        key = values_of(segment.run, self._key, segment.first, segment.first + 1)[0]
        latest = self._latest.get(key_of(key))
        return latest is not None and latest.first > segment.first

    def done(self, segment: Segment) -> None:
        """Forgets messages that are acknowledged or dropped."""
        if self._key:
            values = values_of(segment.run, self._key, segment.first, segment.stop)
            for offset, key in enumerate(map(key_of, values), segment.first):
                latest = self._latest.get(key)
                if latest is not None and latest.first <= offset:
                    del self._latest[key]

    # Ring

    def loaded(self, segment: Segment) -> None:
        """Messages that the log alone had are in memory again."""
        if segment.first >= self._doubted_below:
            self.paged -= min(self.paged, len(segment))

    def settle(self, queue: LoggedQueue) -> None:
        """Drops the oldest of what waits where that is more than the ring takes."""
        backlog = queue.backlog
        excess = backlog.count + self.paged - self._ring_size if self._ring_size >= 0 else 0
        while excess > 0 and backlog.count:
            segment = backlog.pop_oldest(excess)
            excess -= len(segment)
            self._drop(queue, segment, "overwritten")
        is_doubted = self._ring_size >= 0 and bool(self.paged) and queue.paged_from < self._doubted_below
        if (excess > 0 or is_doubted) and queue.paged_from >= 0:
            paging.load(queue.engine, queue)

    def came_to_log(self, queue: LoggedQueue, segment: Segment, *, is_due: bool) -> None:
        """Messages that the log alone has got just now."""
        if self._key and is_due:
            for key, part in self._by_key(segment):
                if key:
                    self._replace(queue, key, part.first)
                    self._latest[key] = _left(part)
        self.paged += len(segment)
        self.settle(queue)

    def count(self, queue: LoggedQueue) -> None:
        """What is in the log alone was there before: it came before a restart, or before the queue had these rules."""
        first, stop = queue.paged_from, queue.address.log.next
        self._unknown, self._doubted_below, self.paged = (0, 0), 0, 0
        if 0 <= first < stop:
            self._doubted_below = stop
            self._unknown = (first, stop) if self._key else (0, 0)

    # What is in the log alone, after a restart

    def look(self, queue: LoggedQueue) -> None:
        """Reads the next portion of what has keys that are not known."""
        start, stop = max(self._unknown[0], queue.paged_from), self._unknown[1]
        if self.is_reading or self.is_learning or queue.paged_from < 0 or start >= stop:
            return
        found = paging.read(queue.engine, queue, start, _found, stop)
        if found is None:
            self.is_reading = True
        else:
            self.learn(queue, *found, start=start)

    def learn(self, queue: LoggedQueue, runs: list[Run], until: int, *, start: int) -> None:
        """The keys of what was read, complete up to `until`: of each only the newest stays. In steps, and nothing is loaded meanwhile."""
        self.is_reading, self.is_learning = False, True
        steps = self._learning(queue, runs, (start, until), self._unknown[1])
        queue.engine.later.take((Admission.learn, self), steps, by=queue.client)

    def _learning(
        self, queue: LoggedQueue, runs: list[Run], part: tuple[int, int], end: int
    ) -> Iterator[None]:
        for run in runs:
            for first, stop in paging.portions(queue, run, *part):
                # what is not in the log alone any more is known already
                low = max(first, queue.paged_from) if queue.paged_from >= 0 else stop
                for segment in self._to_learn(queue, run, low, stop):
                    self._learn(queue, segment)
                queue.engine.work.spend(MESSAGE * paging.KEYED)
                yield
                is_there = queue.id in queue.engine.queues and queue.admission is self
                if not is_there or self._unknown[1] != end:  # they are not to be looked at any more
                    self.is_learning = False
                    return
        self.is_learning = False
        self._unknown = (part[1], end)
        queue.engine.dispatch_later(queue)

    def _to_learn(self, queue: LoggedQueue, run: Run, first: int, stop: int) -> list[Segment]:
        return [
            segment
            for low, high in queue.still_in_log(first, stop)
            for segment, is_wanted in paging.sifted(queue, run, low, high)
            if is_wanted and not _is_scheduled(segment)
        ]

    def _learn(self, queue: LoggedQueue, segment: Segment) -> None:
        for key, part in self._by_key(segment):
            latest = self._latest.get(key)
            if not key or (latest is not None and latest.first == part.first):
                continue
            if latest is not None and latest.first > part.first:
                self.paged -= min(self.paged, 1)
                queue.drop(part, "replaced")
            else:
                self._replace(queue, key, part.first)
                self._latest[key] = _left(part)

    def clear(self) -> None:
        self._latest.clear()
        self._unknown = (0, 0)
        self.paged = 0


def _restored(queue: LoggedQueue, first: int, stop: int) -> bool:
    """What was skipped is to be delivered after all. False where the log has let it go meanwhile."""
    holds = queue.is_durable or queue.paged_from >= 0
    if holds and first < queue.address.log.trimmed:
        return False
    if holds:
        queue.cursor.revoke(first, stop)
    queue.unsettle(stop - first)
    return True


def _left(part: Segment) -> Left:
    return Left(part.first, part.size + part.run.shape.octets)


def _is_scheduled(segment: Segment) -> bool:
    special = segment.run.shape.special
    return special is not None and special.delivery_time(segment.run.arrived) > 0


def _found(queue: LoggedQueue, runs: list[Run], start: int, until: int) -> None:
    """Learns from runs what was read for `look`."""
    if queue.admission is not None:
        queue.admission.learn(queue, runs, until, start=start)
