"""Reads of the log for queues that are paged: what the engine wants is read in the committer's threads, and handed back to it."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker.queues.contracts import Load
from stompbox.errors import StoreError

if TYPE_CHECKING:
    from stompbox.message import Run
    from stompbox.server.broker import Broker

log = logging.getLogger("stompbox")

# under way: one thread reads them, and what it has read lies in memory until the loop takes it over
MOST: Final = 8
RELOAD: Final = 1.0  # seconds until a queue that could not be read is read again


class Loads:
    """Reads that are under way, and queues that could not be read."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.unreadable: set[int] = set()  # queues, said to be so
        self.under_way = 0

    def start(self) -> None:
        """Starts the loads that the engine wants, in order, as many as may be under way."""
        engine, room = self.broker.engine, MOST - self.under_way
        loads, engine.loads = engine.loads[:room], engine.loads[room:]
        for load in loads:
            self.under_way += 1
            self.broker.spawn(self.read(load))

    def _end(self) -> None:
        """One has ended: the next may begin."""
        self.under_way -= 1
        if self.broker.engine.loads:
            self.broker.flush_soon()

    async def read(self, load: Load) -> None:
        """Reads one of the loads. The engine has what was read in a portion of its own."""
        try:
            runs, stop = await self.broker.committer.load(load.log, load.start, load.stop, load.max_bytes)
        except StoreError as error:
            self._end()
            self._cannot_load(load, error)
            return
        self.unreadable.discard(load.queue.id)
        # a portion each: a hundred may have been read at once
        self.broker.engine.later.add(load, partial(self._hand_over, load, runs, stop), by=load.queue.client)
        self.broker.flush_soon()

    def _hand_over(self, load: Load, runs: list[Run], stop: int) -> None:
        self._end()
        self.broker.committer.take_over(runs)
        self.broker.engine.loaded(load, runs, stop)

    def _cannot_load(self, load: Load, error: StoreError) -> None:
        """Says so once, and asks again later: whoever waits for the queue has no other way to learn that it works again."""
        if load.queue.id not in self.unreadable:
            self.unreadable.add(load.queue.id)
            self.broker.errors[error.code] += 1
            where = load.queue.name, load.start
            log.error(
                "queue %s cannot be read from offset %d on: %s (%s)",
                *where,
                error.message,
                error.code,
                extra={"code": error.code},
            )
        self.broker.loop.call_later(RELOAD, self._load_again, load)

    def _load_again(self, load: Load) -> None:
        if not self.broker.is_stopping and load.queue.id in self.broker.engine.queues:
            self.broker.engine.loads.append(load)
            self.broker.flush()
