"""What the log says of messages that were dropped, or are dead letters: a line for each queue, reason and fate, with the count.

A burst is one line: what happens within GATHER goes together, and the next lines come no sooner than PERIOD later. At most LINES at a
time; what is left is summed up in one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from stompbox.broker.undelivered import OTHERS, Fate, Loss

if TYPE_CHECKING:
    from stompbox.server.seam import Core

log = logging.getLogger("stompbox.messages")

GATHER: Final = 0.25  # s
PERIOD: Final = 5.0  # s
LINES: Final = 20
NAME: Final = 200  # characters of a queue's name


class Losses:
    """Of one broker."""

    def __init__(self, broker: Core) -> None:
        self._broker = broker
        self._timer: asyncio.TimerHandle | None = None
        self._told = -PERIOD  # when it was last, by the loop's clock

    def plan(self) -> None:
        """There is something to tell."""
        if self._timer is None:
            loop = self._broker.loop
            self._timer = loop.call_at(max(loop.time() + GATHER, self._told + PERIOD), self.tell)

    def tell(self) -> None:
        """All that there is, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        found = self._broker.engine.undelivered.take()
        if not found:
            return
        self._told = self._broker.loop.time()
        for loss, count in found[:LINES]:
            level = logging.INFO if loss.fate is Fate.EXPIRED else logging.WARNING  # it went where the settings send it
            log.log(level, "%s: %s %s (%s)", _name(loss), _messages(count), loss.fate.value, loss.reason, extra={"code": loss.reason})
        rest = found[LINES:]
        if rest:
            log.warning("%d more queues and reasons: %s not delivered", len(rest), _messages(sum(count for _, count in rest)))

    def __repr__(self) -> str:
        return f"<Losses {self._broker.engine.undelivered!r}>"


def _name(loss: Loss) -> str:
    return "other queues" if loss.queue == OTHERS else f"queue {loss.queue[:NAME]!r}"


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
