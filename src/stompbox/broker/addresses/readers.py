"""Readers of a log by offset: they are shown what a commit has stored, and nothing before.

Who was told an offset comes back with it. Until a commit has landed a crash would give the offset to another message, and whoever
goes on behind it would never see that one. So all that comes to an address with readers goes into the log, whether it is persistent or not,
and from there to each of them: in order, in turns of the engine's work. Up to where they were shown it is `Log.shown`. Where too much
is to be shown they read it in the log, as any other reader who is behind (paging.py).

Queues and plain subscriptions are told no offset to come back with: they wait for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stompbox.broker.logs.cursor import FAR
from stompbox.broker.logs.segments import cost_of
from stompbox.broker.queues import paging
from stompbox.broker.work import MESSAGE

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.queues.queue import Queue
    from stompbox.message import Run


def wait(address: Address) -> None:
    """Something came to the address: a reader that has all the rest waits for the commit that will have it."""
    commits = address.engine.commits
    if not commits.is_awaited:
        commits.is_awaited = any(queue.paged_from < 0 for queue in address.streams.values())


def show(address: Address) -> None:
    """A commit has landed: its messages go to the readers of the address."""
    log, engine = address.log, address.engine
    if sum(map(cost_of, log.unshown)) > engine.page_size:
        _leave_in_log(address)
    engine.later.take((show, address), _showing(address))


def _leave_in_log(address: Address) -> None:
    log = address.log
    start, log.shown = log.shown, log.committed
    log.unshown.clear()
    for queue in address.streams.values():
        first = max(start, queue.cursor.position)
        if queue.paged_from < 0 and first < log.shown:
            paging.leave_in_log(queue, first)
            address.engine.dispatch_later(queue)


def _showing(address: Address) -> Iterator[None]:
    """In steps, a run each."""
    log, engine = address.log, address.engine
    while log.unshown:
        run = log.unshown.popleft()
        before, log.shown = log.shown, run.stop
        limit = engine.work.done + engine.work.most
        for queue in list(address.streams.values()):
            if queue.paged_from < 0:  # else it finds it in the log
                _give(queue, run, before, limit)
        engine.work.spend(MESSAGE * len(address.streams))
        yield
    if engine.logs.get(log.id) is address:
        _end(address)


def _give(queue: Queue, run: Run, before: int, limit: int) -> None:
    start = max(run.first, queue.cursor.position)
    ranges = [(max(first, start), stop) for first, stop in queue.address.of_reader(queue, run, limit) if stop > start]
    at = before
    for first, stop in ranges:
        _pass_over(queue, at, first)
        at = stop
        queue.offer(run, first, stop)
    _pass_over(queue, at, run.stop)


def _pass_over(queue: Queue, first: int, stop: int) -> None:
    """What the log has there is not for this reader; its stored position knows only what it was told."""
    if queue.is_durable and queue.paged_from < 0:
        queue.cursor.pass_over(first, stop)
        queue.cursor.reach = FAR


def _end(address: Address) -> None:
    """All that is stored was shown, and what nobody keeps may go."""
    log, engine = address.log, address.engine
    before, log.shown = log.shown, log.committed
    for queue in address.streams.values():
        _pass_over(queue, before, log.shown)
    if log.trimmed < log.kept_from(engine.now) and log.trimmed < log.stored:
        engine.commits.dirty[address] = None
