"""Messages that are not simply queued as they arrive: scheduled ones, groups, and queues with rules or browsers.

    arrive    routed here just now           take        found in the log           wake    what was not due then is now
    offer     of arrived ones, into lanes    read_due    due, and in the log alone: read a portion at a time, as there is room

All end in the queue's backlog, or with a consumer; what every queue does with a plain run is in queue.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import dispatch, paging
from stompbox.broker.queues.delayed import AGAIN, Later
from stompbox.broker.queues.groups import Groups
from stompbox.broker.undelivered import TOO_OFTEN
from stompbox.broker.work import COPY, MESSAGE

if TYPE_CHECKING:
    from stompbox.broker.queues.logged import LoggedQueue
    from stompbox.message import Run

# segments of one step whose time has come: a third of a millisecond, where they go to another address
STEP: Final = 8


def arrive(queue: LoggedQueue, run: Run, first: int, stop: int) -> None:
    due, now = due_of(run), queue.engine.now
    if due <= now:
        queue.show(run, first, stop)
    if queue.paged_from >= 0:
        if queue.admission is not None:
            queue.admission.came_to_log(queue, Segment(run, first, stop), is_due=due <= now)
        if due > now:
            queue.announce(run, first, stop)
        paging.look_ahead(queue.engine, queue)
        return
    if queue.is_durable:
        queue.cursor.reach_to(first, stop)
    segment = Segment(run, first, stop)
    if due > now or (due and queue.is_behind):
        wait_for(queue, segment, due, is_new=True)
        return
    for part in _admitted(queue, segment):
        if queue.paged_from < 0:
            offer(queue, part)
        elif queue.admission is not None:  # for the part before it there was no room
            queue.admission.left(part)
    if queue.admission is not None:
        queue.admission.settle(queue)
    if queue.paged_from >= 0:
        # since just now: what is behind the part for which there was no room may be for somebody
        paging.look_ahead(queue.engine, queue)


def take(queue: LoggedQueue, segment: Segment) -> None:
    run = segment.run
    if queue.is_simple and run.shape.special is None:
        queue.backlog.push(segment)
        return
    if queue.admission is not None:
        queue.admission.loaded(segment)
    due = due_of(run)
    if due > queue.engine.now or (due and queue.is_behind):
        wait_for(queue, segment, due, is_new=False)
        return
    if due > run.arrived:  # browsers were not shown it then
        queue.show(run, segment.first, segment.stop)
    for part in _admitted(queue, segment):
        queue.backlog.push(part)


def wake(queue: LoggedQueue) -> None:
    """The time of some has come: scheduled messages, and those that waited for their redelivery."""
    queue.engine.later.take((wake, queue), _waking(queue), by=queue.client)


def _waking(queue: LoggedQueue) -> Iterator[None]:
    """Queues, in steps, what has waited for its time. All that are due when it begins keep their order: nothing is handed out before they
    are there. Those in the log alone are read when it is dispatched."""
    engine, due = queue.engine, queue.engine.now
    is_withheld = False
    while queue.id in engine.queues and queue.waits.has_due(due):
        woken = 0
        while woken < STEP and (found := queue.waits.due(due, 1)):
            woken += wake_one(queue, found[0])
        _settle(queue)
        if not is_withheld and queue.waits.has_due(due):
            is_withheld = True
            dispatch.withhold(engine, [queue])
        yield
    if is_withheld:
        dispatch.release(engine, [queue])
    if queue.id in engine.queues:
        queue.waits.go_on()
        queue.dispatch()


def expire(queue: LoggedQueue) -> None:
    """Drops, in steps, what of the backlog has expired."""
    queue.engine.later.take((expire, queue), _expiring(queue), by=queue.client)


def _expiring(queue: LoggedQueue) -> Iterator[None]:
    """Drops what has expired. In steps. What expires and is not taken out yet goes to no consumer. There may be room then for what is in
    the log alone."""
    engine = queue.engine
    while queue.id in engine.queues and (found := queue.expiring.due(engine.now, STEP)):
        for segment in found:
            if segment.home is not None:  # else it was taken out meanwhile
                yield from _expiring_of(queue, queue.backlog.remove(segment))
                engine.work.spend(COPY)
                yield
    if queue.id not in engine.queues:
        return
    queue.expiring.go_on()
    if queue.paged_from >= 0 or queue.later is not None:
        queue.dispatch()


def _expiring_of(queue: LoggedQueue, segment: Segment) -> Iterator[None]:
    """What has expired goes at once, or as much of it in each step as the address may be sent to which it goes. The queue has it still."""
    engine = queue.engine
    most = engine.expired_at_once(queue, segment)
    if most < len(segment):
        dispatch.withhold(engine, [queue])
        while most < len(segment) and queue.id in engine.queues:
            queue.expired(segment.cut(segment.first + most))
            engine.work.spend(COPY)
            yield
        dispatch.release(engine, [queue])
    if queue.id in engine.queues:
        queue.expired(segment)


def wake_one(queue: LoggedQueue, segment: Segment) -> int:
    """A message whose time has come goes before what is newer than it. One that has expired meanwhile goes to another address: that takes
    longer than to be woken. Returns for how many segments of a step it counts."""
    engine, now = queue.engine, queue.engine.now
    engine.work.spend(MESSAGE)
    if segment.run.is_withdrawn:
        queue.drop(segment, "withdrawn")
        return 1
    if 0 < segment.run.shape.expires <= now:
        part, weight = _sent_on(queue, segment, engine.expired_at_once(queue, segment))
        queue.expired(part)
        return weight
    if segment.failures and engine.is_spent(queue, segment):
        return _die(queue, segment)
    is_new = not segment.deliveries
    if is_new:
        queue.show(segment.run, segment.first, segment.stop)
    for part in _admitted(queue, segment) if is_new else (segment,):
        queue.backlog.put_back(part)
    return 1


def bury(queue: LoggedQueue, segment: Segment) -> None:
    """Messages that were found in the log and had all their attempts: they become dead letters, what would be too much now in steps."""
    now = queue.engine.now
    if queue.engine.work.is_late or (queue.has_waits and queue.waits.has_due(now)):
        queue.waits.add(segment, now)
    else:
        _die(queue, segment)


def _die(queue: LoggedQueue, segment: Segment) -> int:
    part, weight = _sent_on(queue, segment, queue.engine.dead_at_once(queue, segment))
    queue.engine.dead_letter(queue, part, TOO_OFTEN)
    return weight


def _sent_on(queue: LoggedQueue, segment: Segment, most: int) -> tuple[Segment, int]:
    """What of a segment goes to another address in this step, `most` messages, and for how many segments that counts; the rest is due
    again at once."""
    queue.engine.work.spend(COPY)
    if len(segment) <= most:
        return segment, max(1, STEP * len(segment) // most)
    part = segment.cut(segment.first + most)
    queue.waits.put_back(segment)
    return part, STEP


def due_of(run: Run) -> int:
    """When its messages are to be delivered, ms since the epoch; 0 at once."""
    special = run.shape.special
    return special.delivery_time(run.arrived) if special is not None else 0


def wait_for(queue: LoggedQueue, segment: Segment, due: int, *, is_new: bool) -> None:
    """Keeps a segment until it is due, or expires."""
    expires = segment.run.shape.expires
    when = min(due, expires) if expires else due
    if queue.fits_later(segment):
        queue.waits.add(segment, when)
        return
    if is_new:
        queue.engine.log_run(queue.address, segment.run, is_loose=True)
        queue.announce(segment.run, segment.first, segment.stop)
    queue.leave_for_later(segment.first, segment.stop, when)


def _admitted(queue: LoggedQueue, segment: Segment) -> Iterable[Segment]:
    """What is to be queued, as the queue's rules take it."""
    special = segment.run.shape.special
    # each of whose readers gets everything
    is_shared_out = queue.rules.group_buckets and not queue.rules.is_non_destructive
    if special is not None and special.is_grouped and queue.groups is None and is_shared_out:
        queue.begin_groups(Groups(queue.rules, queue.engine.remembered))
    return (segment,) if queue.admission is None else queue.admission.admit(queue, segment)


PORTION: Final = 1000  # that are due and read together
GATHERED: Final = 100  # of them, whose places are found in one step
PLACE: Final = MESSAGE // 2  # steps that it takes to find one


def read_due(queue: LoggedQueue, later: Later) -> None:
    """The next portion, when there is one and room for it. What is due and has none is looked for again: whoever gives room back does not
    know who waits for it."""
    if later.is_reading:
        return
    if not queue.has_room_for_due:
        queue.waits.ring_by(max(queue.engine.now + AGAIN, 0 if later.due else later.times.next or 0))
    elif later.due:
        _read(queue, later)
    elif later.times.next is None:
        queue.forget_later()
    elif later.times.next > queue.engine.now:
        queue.waits.ring_by(later.times.next)
    else:
        later.read(is_reading=True)
        queue.engine.later.take((read_due, later), _finding(queue, later), by=queue.client)


def _finding(queue: LoggedQueue, later: Later) -> Iterator[None]:
    """Finds in steps where those are that are due, and reads them; nothing else is read meanwhile."""
    engine, now, count = queue.engine, queue.engine.now, 0
    while count < PORTION and (some := later.times.due(now, GATHERED)):
        later.due.extend(some)
        count += len(some)
        engine.work.spend(PLACE * len(some))
        yield
        if queue.id not in engine.queues or queue.later is not later:
            return
    later.sort_due()
    later.read(is_reading=False)
    if later.due:
        _read(queue, later)
    else:  # they were taken meanwhile
        queue.dispatch()


def _read(queue: LoggedQueue, later: Later) -> None:
    start, stop = later.due[0][0], later.due[-1][1]
    later.read(is_reading=True)
    found = paging.read(queue.engine, queue, start, partial(_due_came, later), stop)
    if found is not None:
        _take_due(queue, later, *found)


def _due_came(later: Later, queue: LoggedQueue, runs: list[Run], _: int, stop: int) -> None:
    """What was read of those that are due; complete up to `stop`."""
    if queue.later is later:  # else all was forgotten meanwhile
        _take_due(queue, later, runs, stop)


def _take_due(queue: LoggedQueue, later: Later, runs: list[Run], stop: int) -> None:
    queue.engine.later.take((read_due, later), _taking_due(queue, later, runs, stop), by=queue.client)


def _taking_due(queue: LoggedQueue, later: Later, runs: list[Run], stop: int) -> Iterator[None]:
    """Wakes those that are due of what was read, in steps; nothing more is read meanwhile."""
    engine, at, woken = queue.engine, 0, 0
    while later.due and later.due[0][0] < stop and not paging.is_enough(queue):
        if woken >= STEP:
            woken = 0
            _settle(queue)
            yield
            if queue.id not in engine.queues or queue.later is not later:
                return
            continue
        first, end = later.due.popleft()
        if end > stop:
            later.due.appendleft((stop, end))
            end = stop
        if at < len(runs) and runs[at].stop <= first:
            at = bisect_right(runs, first, at, key=_stop_of)
        at, weight = _wake_stretch(queue, runs, at, first, end)
        woken += weight
    later.read(is_reading=False)
    _settle(queue)
    queue.dispatch()


def _stop_of(run: Run) -> int:
    return run.stop


def _settle(queue: LoggedQueue) -> None:
    if queue.admission is not None:
        queue.admission.settle(queue)


def _wake_stretch(queue: LoggedQueue, runs: list[Run], at: int, first: int, stop: int) -> tuple[int, int]:
    """One stretch of offsets, of which the run at `at` has the beginning. Which run has what follows it: no run is looked at twice for one
    stretch after the other. And for how many segments of a step it counts."""
    woken = 0
    while at < len(runs) and runs[at].first < stop:
        run = runs[at]
        low, high = max(run.first, first), min(run.stop, stop)
        queue.skip(first, low)
        for segment, is_wanted in paging.sifted(queue, run, low, high):
            if is_wanted:
                woken += wake_one(queue, segment)
            else:
                queue.skip(segment.first, segment.stop)
        first = high
        if run.stop > stop:
            break
        at += 1
    queue.skip(first, stop)  # what is not there any more: it could not be stored, or retention has passed it
    return at, max(1, woken)


def offer(queue: LoggedQueue, segment: Segment) -> None:
    """What arrived just now: to who has credit, into a lane, or to what is still to be sorted."""
    backlog = queue.backlog
    for lane, part in backlog.arriving(segment):
        is_next = lane is not None and not queue.is_halfway and not backlog.lane(lane).count
        if lane is not None and is_next and queue.give_lane(lane, part, queue.takers_of(lane)):
            continue
        if not paging.fits(queue, queue.size, part):
            queue.page(part.run, part.first)
            if queue.admission is not None:
                queue.admission.left(
                    part if part.stop == segment.stop else segment.part(part.first, segment.stop)
                )
            return
        if lane is None:
            backlog.leave(part)
        else:
            backlog.push_to(lane, part)
