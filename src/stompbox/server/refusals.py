"""What is refused: counted by code, and said in the log, in so many lines a minute and no more.

A client can be refused as often as it likes, and the log must not grow with it: beyond `max-refusals-logged` one line a minute says how
many there were of which code.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stompbox.errors import StompboxError
    from stompbox.server.seam import Core

log = logging.getLogger("stompbox.connection")

SPAN: Final = 60.0  # seconds


class Refusals:
    def __init__(self, broker: Core) -> None:
        self.broker = broker
        self.unsaid: Counter[str] = Counter()
        self._said = 0
        self._ends = 0.0  # when this minute is over

    def tell(self, who: str, error: StompboxError, *, closes: bool) -> bool:
        """False: it is one of too many, and not said by itself."""
        self.broker.errors[error.code] += 1
        now = self.broker.loop.time()
        if now >= self._ends and not self.unsaid:
            self._said, self._ends = 0, now + SPAN
        if self._said < self.broker.configuration.max_refusals_logged:
            self._said += 1
            log.info("%s: %s (%s)%s", who, error.message, error.code, ", closed" if closes else "", extra={"code": error.code})
            return True
        if not self.unsaid:
            self.broker.loop.call_at(self._ends, self._sum_up)
        self.unsaid[error.code] += 1
        return False

    def _sum_up(self) -> None:
        unsaid, self.unsaid = self.unsaid, Counter()
        counts = ", ".join([f"{code} {count}" for code, count in sorted(unsaid.items())])
        log.warning("%d more were refused within a minute (max-refusals-logged): %s", unsaid.total(), counts)

    def __repr__(self) -> str:
        return f"<Refusals said={self._said} unsaid={self.unsaid.total()}>"
