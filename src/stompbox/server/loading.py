"""Reads of the log for queues that are paged: what the engine wants is read in the committer's threads, and handed back to it."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker.queues.contracts import Load
from stompbox.errors import StoreError

if TYPE_CHECKING:
    from stompbox.server.broker import Broker

log = logging.getLogger("stompbox")

PORTION: Final = 64  # that are begun in one turn of the loop
RELOAD: Final = 1.0  # seconds until a queue that could not be read is read again


class Loads:
    """Reads that are under way, and queues that could not be read."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.unreadable: set[int] = set()  # queues, said to be so

    def start(self) -> None:
        """Starts the loads that the engine wants."""
        engine = self.broker.engine
        loads, engine.loads = engine.loads[:PORTION], engine.loads[PORTION:]
        if engine.loads:
            self.broker.flush_soon()
        for load in loads:
            self.broker.spawn(self.read(load))

    async def read(self, load: Load) -> None:
        """Reads one of the loads. The engine has what was read in a portion of its own."""
        try:
            runs, stop = await self.broker.committer.load(load.log, load.start, load.stop, load.max_bytes)
        except StoreError as error:
            self._cannot_load(load, error)
            return
        self.unreadable.discard(load.queue.id)
        # a portion each: a hundred may have been read at once
        self.broker.engine.later.add(
            load, partial(self.broker.engine.loaded, load, runs, stop), by=load.queue.client
        )
        self.broker.flush_soon()

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
