"""Queues that do not simply keep what arrives: last value, ring, purged without consumers.

    last value   a newer message takes the place of the waiting one with the same key; what is being delivered is left alone, and
                 is dropped instead of delivered again when a newer one has come
    ring         so many wait at most; the oldest of what waits is dropped
    purged       nothing comes in while nobody consumes
    disabled     nothing comes in at all
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stompbox.broker import paging
from stompbox.broker.columns import values_of
from stompbox.broker.kinds import Rules
from stompbox.broker.segments import Segment

if TYPE_CHECKING:
    from stompbox.broker.queue import Queue


class Intake:
    """Of one queue. `paged` counts what came while the rest was in the log alone."""

    __slots__ = ("_is_enabled", "_is_purged", "_key", "_latest", "_ring_size", "paged")

    def __init__(self, rules: Rules, queue: Queue) -> None:
        self._key = rules.last_value_key
        self._ring_size = rules.ring_size
        self._latest: dict[bytes, Segment] = {}  # each of one message, by key
        self._is_purged = rules.is_purged
        self._is_enabled = rules.is_enabled
        self.paged = 0
        self.count(queue)

    # Last value

    def admit(self, queue: Queue, segment: Segment) -> Iterator[Segment]:
        """What of the segment is to be queued, in parts; the older messages of its keys go."""
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
            older = self._latest.get(key)
            if older is not None and older.home is not None:
                queue.drop(queue.backlog.remove(older), "replaced")
            self._latest[key] = part
            yield part

    def _by_key(self, segment: Segment) -> Iterator[tuple[bytes, Segment]]:
        values = values_of(segment.run, self._key, segment.first, segment.stop)
        if not any(values):
            yield b"", segment
            return
        for offset, key in enumerate(values, segment.first):
            yield key, segment.part(offset, offset + 1)

    def is_replaced(self, segment: Segment) -> bool:
        """Whether a newer message of its key has come since it was delivered."""
        if not self._key:
            return False
        key = values_of(segment.run, self._key, segment.first, segment.first + 1)[0]
        latest = self._latest.get(key)
        return latest is not None and latest.first > segment.first

    def done(self, segment: Segment) -> None:
        """These are acknowledged or dropped: nothing is to be remembered of them."""
        if self._key:
            for offset, key in enumerate(values_of(segment.run, self._key, segment.first, segment.stop), segment.first):
                latest = self._latest.get(key)
                if latest is not None and latest.first <= offset:
                    del self._latest[key]

    # Ring

    def settle(self, queue: Queue) -> None:
        """Drops the oldest of what waits where that is more than the ring takes."""
        backlog = queue.backlog
        excess = backlog.count + self.paged - self._ring_size if self._ring_size >= 0 else 0
        while excess > 0 and backlog.count:
            segment = backlog.pop_oldest(excess)
            excess -= len(segment)
            queue.drop(segment, "overwritten")
        if excess > 0 and queue.paged_from >= 0:
            paging.load(queue.engine, queue)

    def came_to_log(self, queue: Queue, count: int) -> None:
        """So many more are in the log alone."""
        self.paged += count
        self.settle(queue)

    def count(self, queue: Queue) -> None:
        """What is in the log alone was there before: it came before a restart, or before the queue had these rules."""
        first, stop = queue.paged_from, queue.address.log.next
        if 0 <= first < stop:
            self.paged = sum([high - low for low, high in queue.cursor.ahead.gaps(max(first, queue.cursor.position), stop)])

    def clear(self) -> None:
        self._latest.clear()
        self.paged = 0
