"""What the log says of what may happen very often: refusals, and messages that were not delivered.

A client can be refused as often as it likes, and the log must not grow with it: beyond `max-refusals-logged` lines in a minute one line
says how many there were of which code. Messages that were dropped, or are dead letters, have a line for each queue, reason and fate, with
the count: what happens within GATHER goes together, and the next lines come no sooner than PERIOD later. At most LINES at a time; what is
left is summed up in one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from stompbox.broker.undelivered import OTHERS, Fate, Loss
from stompbox.server.lines import Lines

if TYPE_CHECKING:
    from stompbox.errors import StompboxError
    from stompbox.server.seam import Core

log = logging.getLogger("stompbox.connection")

NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class Refusals:
    def __init__(self, broker: Core) -> None:
        self.broker = broker
        self.lines = Lines(broker, log, "%d more were refused within a minute (max-refusals-logged): %s")

    def tell(
        self, who: str, error: StompboxError, *, closes: bool, about: Mapping[str, object] = NOTHING
    ) -> bool:
        """False: it is one of too many, and not said by itself. `about`: what a log in JSON says besides, each for itself."""
        self.broker.errors[error.code] += 1
        if not self.lines.takes():
            self.lines.leave_out(error.code)
            return False
        log.info(
            "%s: %s (%s)%s",
            who,
            error.message,
            error.code,
            ", closed" if closes else "",
            extra={"code": error.code, **about},
        )
        return True

    def __repr__(self) -> str:
        return f"<Refusals {self.lines!r}>"


# Messages that were not delivered


messages = logging.getLogger("stompbox.messages")

GATHER: Final = 0.25  # s
PERIOD: Final = 5.0  # s
LINES: Final = 20
NAME: Final = 200  # characters of a queue's name


class Losses:
    """Tells the log of one broker's messages that were not delivered."""

    def __init__(self, broker: Core) -> None:
        self._broker = broker
        self._timer: asyncio.TimerHandle | None = None
        self._told = -PERIOD  # when it was last, by the loop's clock

    def plan(self) -> None:
        """Plans to tell of what was not delivered."""
        if self._timer is None:
            loop = self._broker.loop
            self._timer = loop.call_at(max(loop.time() + GATHER, self._told + PERIOD), self.tell)

    def tell(self) -> None:
        """Tells now of all that was not delivered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        found = self._broker.engine.undelivered.take()
        if not found:
            return
        self._told = self._broker.loop.time()
        for loss, count in found[:LINES]:
            # it went where the settings send it
            level = logging.INFO if loss.fate is Fate.EXPIRED else logging.WARNING
            messages.log(
                level,
                "%s: %s %s (%s)",
                _name(loss),
                _messages(count),
                loss.fate.value,
                loss.reason,
                extra={"code": loss.reason},
            )
        rest = found[LINES:]
        if rest:
            messages.warning(
                "%d more queues and reasons: %s not delivered",
                len(rest),
                _messages(sum(count for _, count in rest)),
            )

    def __repr__(self) -> str:
        return f"<Losses {self._broker.engine.undelivered!r}>"


def _name(loss: Loss) -> str:
    return "other queues" if loss.queue == OTHERS else f"queue {loss.queue[:NAME]!r}"


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
