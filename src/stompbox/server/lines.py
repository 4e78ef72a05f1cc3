"""Lines of the log that clients cause as often as they like: so many in a minute, and one that says how many more there were."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio

    from stompbox.config import Configuration

SPAN: Final = 60.0  # seconds


class Teller(Protocol):
    """A broker, as far as its log has a bound."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def configuration(self) -> Configuration: ...


class Lines:
    """No more than `max-refusals-logged` lines in a minute. `text` is said at its end, with how many more there were, and of which code."""

    def __init__(self, broker: Teller, log: logging.Logger, text: str) -> None:
        self.unsaid: Counter[str] = Counter()
        self.said = 0
        self._broker = broker
        self._log = log
        self._text = text
        self._ends = 0.0  # when this minute is over

    def takes(self) -> bool:
        """Counts one more line. False: it is one of too many, and not counted."""
        now = self._broker.loop.time()
        if now >= self._ends and not self.unsaid:
            self.said, self._ends = 0, now + SPAN
        if self.said >= self._broker.configuration.max_refusals_logged:
            return False
        self.said += 1
        return True

    def leave_out(self, code: str) -> None:
        """Counts what is not said by itself."""
        if not self.unsaid:
            self._broker.loop.call_at(self._ends, self.sum_up)
        self.unsaid[code] += 1

    def sum_up(self) -> None:
        unsaid, self.unsaid = self.unsaid, Counter()
        counts = ", ".join([f"{code} {count}" for code, count in sorted(unsaid.items())])
        self._log.warning(self._text, unsaid.total(), counts)

    def __repr__(self) -> str:
        return f"<Lines said={self.said} unsaid={self.unsaid.total()}>"
