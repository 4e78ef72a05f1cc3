"""How far reader groups are behind: in messages, and in time since the first one arrived that they have not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from stompbox.broker.queues.queue import Queue
from stompbox.errors import StoreError

if TYPE_CHECKING:
    from stompbox.server.broker import Broker

LOOKS: Final = 8  # chunks without a message behind the position that are passed over


class Lag(Struct, frozen=True):
    """How far a group is behind, in messages and in ms; None where the time cannot be read just now."""

    messages: int
    ms: int | None


def behind(queue: Queue) -> int:
    """Messages that a position has not come to."""
    log = queue.address.log
    return log.count([(queue.cursor.position, log.next)])


class Lags:
    """Remembers when the next message of a position arrived, so that a group that stands still costs no read."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._known: dict[int, tuple[int, int]] = {}  # queue: position, when its message arrived

    async def of(self, queue: Queue) -> Lag:
        position, messages = queue.cursor.position, behind(queue)
        if not messages:
            self._known.pop(queue.id, None)
            return Lag(0, 0)
        known = self._known.get(queue.id)
        if known is None or known[0] != position:
            try:
                known = (position, await self._arrived(queue, position))
            except StoreError:
                return Lag(messages, None)
            self._known[queue.id] = known
        return Lag(messages, max(0, self.broker.now() - known[1]) if known[1] else 0)

    async def _arrived(self, queue: Queue, position: int) -> int:
        """When the message at a position arrived, or the next one that is there, in ms since the epoch; 0: none is there."""
        log, at = queue.address.log, position
        for _ in range(LOOKS):
            if at >= log.committed:
                break
            runs, stop = await self.broker.committer.load(log.id, at, log.committed, 1)
            for run in runs:
                if run.stop > at:
                    return run.arrived
            at = max(stop, at + 1)
        return next((run.arrived for run in log.unstored(position)), 0)

    def forget(self) -> None:
        """Forgets groups that are gone."""
        for id in [id for id in self._known if id not in self.broker.engine.queues]:
            del self._known[id]
