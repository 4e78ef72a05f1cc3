"""Consumers with selectors, whose next message may lie further back in the log than memory reaches.

When memory is full of messages that others are to take, or nobody takes, a consumer with credit must not wait for them. What is
for it is sought in the log, from where its own search ended last (`Binding.sought`), and handed out at once; the rest stays where
it is. The queue's `sought` remembers what was taken in this way, so that it is not loaded again. Each consumer's messages come in
order: a search that met one for which there was no credit goes on with that one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbox.broker.queues import choosing, paging
from stompbox.broker.work import MESSAGE

if TYPE_CHECKING:
    from stompbox.broker.engine import Engine
    from stompbox.broker.logs.segments import Segment
    from stompbox.broker.queues.consumer import Binding
    from stompbox.broker.queues.queue import Queue
    from stompbox.message import Run


def seek(engine: Engine, queue: Queue) -> None:
    """For those who have credit, now that memory has nothing for them."""
    if queue.is_loading or queue.is_halfway or queue.intake is not None or queue.groups is not None:
        return
    if queue.backlog.unsorted:  # memory may have something for them
        return
    hungry = [binding for binding in queue.takers if _is_hungry(queue, binding)]
    if len(hungry) < len(queue.takers):
        for binding in queue.takers:
            if not binding.consumer.has_credit:
                binding.consumer.starved[queue] = None
    if not hungry:
        return
    start = min(_sought(queue, binding) for binding in hungry)
    if start >= queue.log_end:
        return
    unsearched, queue.unsearched = queue.unsearched, None
    if unsearched is not None and unsearched.start <= start < unsearched.stop:
        _go_on(queue, unsearched.runs, start, unsearched.stop)
        return
    there = paging.read(engine, queue, start, found)
    if there is None:
        queue.is_loading = True
    else:
        _go_on(queue, there[0], start, there[1])


def _go_on(queue: Queue, runs: list[Run], start: int, stop: int) -> None:
    """With what was read; the rest of the log comes later, and so do those who were not asked."""
    if _hand_out(queue, runs, start, stop) < queue.log_end or queue.backlog.is_heavy:
        queue.engine.dispatch_later(queue)


def found(queue: Queue, runs: list[Run], start: int, stop: int) -> None:
    """What was read for a search; complete up to `stop`."""
    queue.is_loading = False
    if 0 <= queue.paged_from <= start and not queue.is_halfway and not queue.backlog.unsorted:
        _hand_out(queue, runs, start, stop)
    queue.dispatch()


def _hand_out(queue: Queue, runs: list[Run], start: int, stop: int) -> int:
    """Up to where the runs were looked through, before the turn's work was used up."""
    waiting: set[Binding] = set()  # those who met a message for which nobody had credit
    seekers = _seekers(queue)
    reached = _search(queue, runs, (start, stop), seekers, waiting)
    for binding in seekers:
        if binding not in waiting and start <= _sought(queue, binding) < reached:
            binding.sought = reached
    return reached


def _seekers(queue: Queue) -> list[Binding]:
    """For whom the log is looked through: all, or where that were too much for one turn, those who are furthest back."""
    if not queue.backlog.is_heavy:
        return queue.takers
    found: list[Binding] = []
    steps, most = 0, queue.engine.work.portion
    for binding in sorted(queue.takers, key=lambda binding: (not binding.consumer.has_credit, _sought(queue, binding))):
        steps += 0 if binding.consumer.selector is None else binding.consumer.selector.most_steps
        if found and steps > most:
            break
        found.append(binding)
    queue.engine.work.spend(len(queue.takers))
    return found


def _search(queue: Queue, runs: list[Run], part: tuple[int, int], seekers: list[Binding], waiting: set[Binding]) -> int:
    start, stop = part
    work = queue.engine.work
    for number, run in enumerate(runs):
        for first, end in paging.portions(queue, run, start, stop):
            work.spend(MESSAGE)
            for low, high in queue.still_in_log(first, end):
                for segment, is_wanted in paging.sifted(queue, run, low, high):
                    if is_wanted and _is_plain(queue, run) and not queue.engine.is_spent(queue, segment):
                        _offer(queue, segment, start, seekers, waiting)
            if end < stop and work.is_over:
                queue.unsearched = paging.Unread(runs[number:], end, stop)
                return end
    return stop


def _offer(queue: Queue, segment: Segment, start: int, seekers: list[Binding], waiting: set[Binding]) -> None:
    """To those whose search has come here; only their selectors are asked."""
    here = [b for b in seekers if b not in waiting and start <= _sought(queue, b) < segment.stop]
    asked = frozenset([b.consumer.selector for b in here if b.consumer.selector is not None])
    queue.engine.work.spend(len(seekers))
    for lane, part in queue.backlog.parted(segment, asked):
        takers = [b for b in choosing.takers_of(lane, here, is_shared=queue.is_shared) if _sought(queue, b) <= part.first]
        ready = [binding for binding in takers if _is_hungry(queue, binding)]
        first, stop = part.first, part.stop
        is_left = not ready or choosing.share_among(queue, part, ready)
        reached = part.first if is_left else stop
        queue.sought.add(first, reached)
        if is_left:
            for binding in takers:
                binding.sought = reached
                binding.consumer.starved[queue] = None
            waiting.update(takers)


def _is_plain(queue: Queue, run: Run) -> bool:
    """Scheduled messages and groups are found in the ordinary way."""
    special = run.shape.special
    return special is None or (not special.is_grouped and special.delivery_time(run.arrived) <= queue.engine.now)


def _is_hungry(queue: Queue, binding: Binding) -> bool:
    """It has credit, and memory has nothing for it. Who has credit again and was not fed yet is fed first: what is in memory comes before
    what is further back."""
    return binding.consumer.has_credit and queue not in binding.consumer.starved


def _sought(queue: Queue, binding: Binding) -> int:
    return max(binding.sought, queue.paged_from)
