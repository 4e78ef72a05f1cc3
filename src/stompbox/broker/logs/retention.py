"""Retention: what stays in a log although it was consumed, until its age, its size or its count lets it go.

    retention-ms         parts whose latest message is older go
    retention-bytes      of what was consumed at most so much stays
    retention-messages   of what was consumed at most so many stay

Whatever is set has a say of its own: what one of them lets go goes. What a cursor needs stays in any case, and is not counted.

The log is known by its parts: where each ends, its bytes, its latest arrival. They are noted as commits land, so that nothing
is ever looked through; a part is as large as the rules are coarse, a message goes with its part. Offsets are exact for the
count. After a start the parts come from the store's index (`outline`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from stompbox.broker.timers import Alarm
from stompbox.message import Run
from stompbox.store.base import Part

if TYPE_CHECKING:
    from stompbox.config.settings import AddressSettings

PARTS: Final = 256  # into which the bytes, or the time, that are kept are divided
SOON: Final = 1  # ms: a part goes when it is older than the rule says, not as old


class RetentionRules(NamedTuple):
    """How long, and how much, a log keeps what was consumed; -1: without end."""

    ms: int
    bytes: int
    messages: int


def retention_rules(settings: AddressSettings) -> RetentionRules:
    return RetentionRules(settings.retention_ms, settings.retention_bytes, settings.retention_messages)


class Retention:
    """What one log keeps. `floor`: below it nothing is kept on account of these rules."""

    __slots__ = ("_consumed", "_kept", "_rest", "_since", "alarm", "floor", "rules")

    def __init__(self, rules: RetentionRules, alarm: Alarm | None = None) -> None:
        self.rules = rules
        self.alarm = alarm
        self.floor = 0
        self._consumed: deque[Part] = deque()  # what nobody needs any more
        self._kept = 0  # its bytes
        self._rest: deque[Part] = deque()
        self._since = 0  # when the last part began, ms

    def obey(self, rules: RetentionRules) -> None:
        """The log is kept by these rules from now on."""
        self.rules = rules

    def note(self, run: Run) -> None:
        """Counts a run that is in the log now."""
        self.add(Part(run.first, run.stop, run.size, run.arrived))

    def add(self, part: Part) -> None:
        """Behind all that is there, or into the last part, which is the latest to go."""
        last = self._rest[-1] if self._rest else None
        if last is not None and self._joins(last, part):
            stop, newest = max(last.stop, part.stop), max(last.newest, part.newest)
            self._rest[-1] = Part(last.first, stop, last.size + part.size, newest)
        else:
            self._rest.append(part)
            self._since = part.newest

    def _joins(self, last: Part, part: Part) -> bool:
        rules = self.rules
        if part.first < last.stop:  # it was late
            return True
        if rules.ms >= 0 and part.newest - self._since > rules.ms // PARTS:
            return False
        return rules.bytes < 0 or last.size + part.size <= rules.bytes // PARTS

    def look(self, low: int, now: int) -> int:
        """Where what is kept begins, when nobody needs anything below `low`."""
        rules, consumed = self.rules, self._consumed
        while self._rest and self._rest[0].stop <= low:
            consumed.append(self._rest.popleft())
            self._kept += consumed[-1].size
        floor = max(self.floor, low - rules.messages) if rules.messages >= 0 else self.floor
        while consumed and (consumed[0].stop <= floor or self._is_over(consumed[0], now)):
            gone = consumed.popleft()
            self._kept -= gone.size
            floor = max(floor, gone.stop)
        self.floor = floor
        self._plan(now)
        return min(floor, low)

    def _is_over(self, part: Part, now: int) -> bool:
        rules = self.rules
        return 0 <= rules.ms < now - part.newest or 0 <= rules.bytes < self._kept

    def _plan(self, now: int) -> None:
        """The next part that will be too old; what is so already waits for those who need it."""
        if self.alarm is None or self.rules.ms < 0:
            return
        for parts in (self._consumed, self._rest):
            for part in parts:
                if part.newest + self.rules.ms + SOON > now:
                    self.alarm.by(part.newest + self.rules.ms + SOON)
                    return

    def __repr__(self) -> str:
        return f"<Retention {self.rules} from {self.floor} parts={len(self._consumed)}+{len(self._rest)} bytes={self._kept}>"
