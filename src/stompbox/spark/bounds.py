"""Where reading begins and ends.

    startingOffsets               earliest | latest | 1200 | 2026-03-01T00:00:00+01:00 | {"flights.UA": 1200, "flights.DL": 0}
    startingTimestamp             1772319600000 | 2026-03-01T00:00:00+01:00
    startingOffsetsByTimestamp    {"flights.UA": 1772319600000, "flights.DL": "2026-03-01T00:00:00+01:00"}

and the same three with `ending`. A timestamp means the first message that arrived at or after it. As a number it is ms since 1970 (UTC);
as text it needs a zone: the cluster's and the user's may differ. Decides what the texts mean, not which messages there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from stompbox.errors import UsageError
from stompbox.numerals import digits

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST: Final = 10**18
_TIMES: Final = "ms since 1970 and timestamps with zone (2026-03-01T00:00:00Z)"
_ALLOWED: Final = (
    'earliest, latest, a number, a timestamp with zone (2026-03-01T00:00:00Z) or JSON: {"address": number}'
)


class BoundKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    EACH = "each"
    TIMES = "times"


@dataclass(frozen=True, slots=True)
class Bound:
    """`number` is an offset or ms since the epoch; `each` holds (address, offset or ms) in the order of addresses. `option` is who says it.

    `must_match`: that no message arrived at or after the time is an error; else it means the end of the log.
    """

    kind: BoundKind
    number: int = 0
    each: tuple[tuple[str, int], ...] = ()
    must_match: bool = False
    option: str = field(default="", compare=False)

    @property
    def latest_time(self) -> int:
        """ms since the epoch; -1 where no time is named."""
        if self.kind is BoundKind.TIME:
            return self.number
        return max((time for _, time in self.each), default=-1) if self.kind is BoundKind.TIMES else -1

    def wire(self) -> str:
        """As the broker's `group-open` takes it in a header; offsets by address stand in its body."""
        if self.kind is BoundKind.OFFSET:
            return str(self.number)
        if self.kind is BoundKind.TIME:
            return f"time:{self.number}"
        return str(self.kind.value)


EARLIEST: Final = Bound(BoundKind.EARLIEST)
LATEST: Final = Bound(BoundKind.LATEST)


def parse_bound(option: str, text: str) -> Bound:
    """The bound that the text of `startingOffsets` or `endingOffsets` means. Raises UsageError naming the option."""
    word = text.lower()
    if word == "earliest":
        return Bound(BoundKind.EARLIEST, option=option)
    if word == "latest":
        return Bound(BoundKind.LATEST, option=option)
    offset = digits(text)
    if offset is not None:
        return Bound(BoundKind.OFFSET, offset, option=option)
    if text.startswith("{"):
        return Bound(BoundKind.EACH, each=_each(option, text, _offset), option=option)
    return Bound(BoundKind.TIME, _milliseconds(option, text, _ALLOWED), option=option)


def parse_time(option: str, text: str, *, must_match: bool) -> Bound:
    """The bound that the text of `startingTimestamp` or `endingTimestamp` means. Raises UsageError naming the option."""
    return Bound(BoundKind.TIME, _moment(option, text), must_match=must_match, option=option)


def parse_times(option: str, text: str, *, must_match: bool) -> Bound:
    """Parses the options `startingOffsetsByTimestamp` and `endingOffsetsByTimestamp`, a time for each address."""
    return Bound(BoundKind.TIMES, each=_each(option, text, _time), must_match=must_match, option=option)


def shown_time(milliseconds: int) -> str:
    """As a user may write it; a number where it is beyond all calendars."""
    try:
        return (
            (_EPOCH + timedelta(milliseconds=milliseconds))
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except OverflowError:
        return str(milliseconds)


def _each(option: str, text: str, read: Callable[[str, str, object], int]) -> tuple[tuple[str, int], ...]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise UsageError("bad-option", f"option {option!r} is no valid JSON: {fault}") from None
    if not isinstance(found, dict):
        raise UsageError(
            "bad-option",
            f"option {option!r} is {text[:80]!r}; allowed is a JSON object that has a value for each address",
        )
    return tuple(sorted((address, read(option, address, value)) for address, value in found.items()))


def _offset(option: str, address: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        allowed = "whole numbers from 0 on"
        raise UsageError(
            "bad-option",
            f"option {option!r}: the offset of {address!r} is {repr(value)[:80]}; allowed are {allowed}",
        )
    return value


def _time(option: str, address: str, value: object) -> int:
    if type(value) is int and 0 <= value < _MOST:
        return value
    if not isinstance(value, str):
        raise UsageError(
            "bad-option",
            f"option {option!r}: the time of {address!r} is {repr(value)[:80]}; allowed are {_TIMES}",
        )
    return _moment(option, value)


def _moment(option: str, text: str) -> int:
    found = digits(text)
    return _milliseconds(option, text, _TIMES) if found is None else found


def _milliseconds(option: str, text: str, allowed: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError("bad-option", f"option {option!r} is {text[:80]!r}; allowed are {allowed}") from None
    if found.tzinfo is None:
        raise UsageError(
            "bad-option",
            f"option {option!r} is {text[:80]!r}, a timestamp without zone; write {text[:80]}Z or {text[:80]}+01:00",
        )
    return max(0, (found - _EPOCH) // timedelta(milliseconds=1))
