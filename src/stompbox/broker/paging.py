"""Queues whose backlog does not fit in memory: from some offset on the log alone has their messages, and they are loaded in order.

A queue with a stored cursor holds them in the log by that; one without, by a mark of its own among the log's cursors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbox.broker.cursor import FAR, Cursor

if TYPE_CHECKING:
    from stompbox.broker.engine import Engine
    from stompbox.broker.queue import Queue
    from stompbox.message import Run

LOAD_BYTES: Final = 4 << 20  # how much of a paged backlog is asked for at once


class Load:
    """Read `log` from start (to stop at the most, about max_bytes) and answer with Engine.loaded. `is_search`: see seeking.py."""

    __slots__ = ("is_search", "log", "max_bytes", "queue", "start", "stop")

    def __init__(self, queue: Queue, start: int, stop: int, *, is_search: bool = False) -> None:
        self.is_search = is_search
        self.queue = queue
        self.log = queue.address.log.id
        self.start = start
        self.stop = stop
        self.max_bytes = LOAD_BYTES

    def __repr__(self) -> str:
        return f"<Load {self.start}..{self.stop} of log {self.log} for {self.queue.name}>"


def page(engine: Engine, queue: Queue, run: Run, first: int) -> None:
    """From here on the log alone has the queue's messages."""
    engine.log_run(queue.address, run)
    leave_in_log(queue, first)


def leave_in_log(queue: Queue, first: int) -> None:
    queue.paged_from = first
    if queue.is_durable:
        queue.cursor.reach = FAR
    else:
        mark = queue.address.log.cursors[queue.id] = Cursor(queue.id, first, is_durable=False)
        mark.reach = FAR


def paged_on(engine: Engine, queue: Queue) -> None:
    """A part of the paged messages is in memory again."""
    cursors = queue.address.log.cursors
    if not queue.is_durable:
        if queue.paged_from < 0:
            del cursors[queue.id]
        else:
            cursors[queue.id].position = queue.paged_from
    engine.commits.dirty[queue.address] = None


def load(engine: Engine, queue: Queue) -> None:
    """Fetches what a paged queue has next: from memory where it is not on disk yet, else by a Load."""
    log = queue.address.log
    if queue.is_loading or queue.paged_from < 0:
        return
    start = max(queue.paged_from, queue.cursor.position)
    queue.paged_from = start
    queue.is_loading = True
    if start >= log.committed:
        queue.loaded(list(log.unstored(start)), start, log.next)
    else:
        engine.loads.append(Load(queue, start, log.committed))
