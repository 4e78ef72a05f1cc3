"""What the log says of what may happen very often: refusals, and messages that were not delivered.

A client can be refused as often as it likes, and the log must not grow with it: beyond `max-refusals-logged` lines in a minute one line
says how many there were of which code. Messages that were dropped, or are dead letters, have a line for each queue, reason and fate, with
the count: what happens within GATHER goes together, and the next lines come no sooner than PERIOD later. At most LINES at a time; what is
left is summed up in one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from stompbox.broker.undelivered import OTHERS, Fate, Loss

if TYPE_CHECKING:
    from stompbox.errors import StompboxError
    from stompbox.server.seam import Core

log = logging.getLogger("stompbox.connection")

SPAN: Final = 60.0  # seconds


NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class Lines:
    """No more than `max-refusals-logged` lines in a minute; `tell` is told what else there was, by codes, when it is over."""

    def __init__(self, broker: Core, tell: Callable[[Counter[str]], None]) -> None:
        self.broker = broker
        self.unsaid: Counter[str] = Counter()
        self.said = 0
        self._tell = tell
        self._ends = 0.0  # when this minute is over

    def takes(self) -> bool:
        """Counts one more line. False: it is one of too many, and not counted."""
        now = self.broker.loop.time()
        if now >= self._ends and not self.unsaid:
            self.said, self._ends = 0, now + SPAN
        if self.said >= self.broker.configuration.max_refusals_logged:
            return False
        self.said += 1
        return True

    def leave_out(self, code: str) -> None:
        """Counts what is not said by itself."""
        if not self.unsaid:
            self.broker.loop.call_at(self._ends, self.sum_up)
        self.unsaid[code] += 1

    def sum_up(self) -> None:
        unsaid, self.unsaid = self.unsaid, Counter()
        self._tell(unsaid)

    def __repr__(self) -> str:
        return f"<Lines said={self.said} unsaid={self.unsaid.total()}>"


class Refusals:
    def __init__(self, broker: Core) -> None:
        self.broker = broker
        self.lines = Lines(broker, self._sum_up)

    @property
    def unsaid(self) -> Counter[str]:
        return self.lines.unsaid

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

    def _sum_up(self, unsaid: Counter[str]) -> None:
        counts = ", ".join([f"{code} {count}" for code, count in sorted(unsaid.items())])
        log.warning("%d more were refused within a minute (max-refusals-logged): %s", unsaid.total(), counts)

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
