"""Messages for later, of which a queue has more than MOST, or memory is full: their bodies stay in the log, memory has time and place.

When they are due they are read, a portion at a time, as long as there is room; the earliest first, those of one portion by offset.
A queue with a stored cursor holds them in the log by that; one without, by a mark of its own, which goes when the last one is read.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker.logs.cursor import FAR, Cursor
from stompbox.broker.queues import arrivals, paging
from stompbox.broker.queues.dueindex import Places

if TYPE_CHECKING:
    from stompbox.broker.logs.segments import Segment
    from stompbox.broker.queues.queue import Queue
    from stompbox.message import Run

MOST: Final = 4 << 20  # octets of messages for later that a queue has in memory
PORTION: Final = 1000  # that are due and read together


class Later:
    """Of one queue. `due`: places that are to be read now; those whose time has not come stand in `places`."""

    __slots__ = ("due", "is_reading", "places", "stop")

    def __init__(self) -> None:
        self.places = Places()
        self.stop = 0  # after the last message there ever was
        self.due: deque[tuple[int, int]] = deque()
        self.is_reading = False

    @property
    def count(self) -> int:
        return len(self.places) + sum([stop - first for first, stop in self.due])

    def take(self, most: int) -> list[tuple[int, int]]:
        """Takes out places, `most` of them; nothing when there are no more."""
        found = [self.due.popleft() for _ in range(min(most, len(self.due)))]
        while self.places and len(found) < most:
            found.append(self.places.pop()[1:])
        return found


def fits(queue: Queue, segment: Segment) -> bool:
    """Whether a message for later is kept in memory. Not behind one that is not: it would be at hand when the other one must be read."""
    if queue.later is not None:
        return False
    cost = segment.cost
    return queue.waits.size + cost <= min(MOST, queue.engine.page_size) and queue.address.memory.takes(cost, len(segment))


def leave_in_log(queue: Queue, first: int, stop: int, when: int) -> None:
    """It is in the log, or will be with the next commit."""
    later = queue.later
    if later is None:
        later = queue.later = Later()
        if not queue.is_durable:
            mark = queue.address.log.cursors[mark_of(queue)] = Cursor(queue.id, first, is_durable=False)
            mark.reach = FAR
    elif not queue.is_durable:
        mark = queue.address.log.cursors[mark_of(queue)]
        mark.position = min(mark.position, first)
    later.stop = max(later.stop, stop)
    later.places.add(when, first, stop)
    queue.waits.ring_by(when)


def mark_of(queue: Queue) -> int:
    """Its name among the log's cursors, apart from that of what it has paged."""
    return -queue.id


def forget(queue: Queue) -> Later | None:
    """Nothing is for later any more; what was."""
    later, queue.later = queue.later, None
    if later is not None:
        queue.address.log.cursors.pop(mark_of(queue), None)
        queue.engine.commits.dirty[queue.address] = None
    return later


def read_due(queue: Queue, later: Later) -> None:
    """The next portion, when there is one and room for it."""
    if later.is_reading or not _has_room(queue):
        return
    if not later.due:
        later.due.extend(later.places.due(queue.engine.now, PORTION))
    if not later.due:
        if later.places.next is None:
            forget(queue)
        else:
            queue.waits.ring_by(later.places.next)
        return
    start, stop = later.due[0][0], later.due[-1][1]
    later.is_reading = True
    found = paging.read(queue.engine, queue, start, partial(_came, later), stop)
    if found is not None:
        _take(queue, later, *found)
        queue.engine.dispatch_later(queue)


def _has_room(queue: Queue) -> bool:
    backlog = queue.backlog
    return not backlog.count or (backlog.size < MOST and not queue.address.memory.is_full)


def _came(later: Later, queue: Queue, runs: list[Run], _: int, stop: int) -> None:
    """What was read of the places that are due; complete up to `stop`."""
    if queue.later is later:  # else all was forgotten meanwhile
        _take(queue, later, runs, stop)
        queue.dispatch()


def _take(queue: Queue, later: Later, runs: list[Run], stop: int) -> None:
    later.is_reading = False
    at = 0
    while later.due and later.due[0][0] < stop and not paging.is_enough(queue):
        first, end = later.due.popleft()
        if end > stop:
            later.due.appendleft((stop, end))
            end = stop
        while at < len(runs) and runs[at].stop <= first:
            at += 1
        _wake(queue, runs[at:], first, end)
    if queue.intake is not None:
        queue.intake.settle(queue)


def _wake(queue: Queue, runs: list[Run], first: int, stop: int) -> None:
    """One place, of which the first of these runs has the beginning."""
    for run in runs:
        low, high = max(run.first, first), min(run.stop, stop)
        if low >= high:
            break
        queue.skip(first, low)
        for segment, is_wanted in paging.sifted(queue, run, low, high):
            if is_wanted:
                arrivals.wake_one(queue, segment)
            else:
                queue.skip(segment.first, segment.stop)
        first = high
    queue.skip(first, stop)  # what is not there any more: it could not be stored, or retention has passed it
