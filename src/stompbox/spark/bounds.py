"""Where reading begins and ends: `startingOffsets` and `endingOffsets`.

    earliest | latest | 1200 | 2026-03-01T00:00:00+01:00 | {"flights.UA": 1200, "flights.DL": 0}

A timestamp means the first message that arrived at or after it, and needs a zone: the cluster's and the user's may differ. Decides what
the texts mean, not which messages there are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from stompbox.errors import UsageError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ALLOWED: Final = 'earliest, latest, a number, a timestamp with zone (2026-03-01T00:00:00Z) or JSON: {"address": number}'


class Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    EACH = "each"


@dataclass(frozen=True, slots=True)
class Bound:
    """`number` is an offset or ms since the epoch; `each` holds (address, offset) in the order of addresses."""

    kind: Kind
    number: int = 0
    each: tuple[tuple[str, int], ...] = ()

    def wire(self) -> str:
        """As the broker's `group-open` takes it in a header; offsets by address stand in its body."""
        if self.kind is Kind.OFFSET:
            return str(self.number)
        if self.kind is Kind.TIME:
            return f"time:{self.number}"
        return str(self.kind.value)


EARLIEST: Final = Bound(Kind.EARLIEST)
LATEST: Final = Bound(Kind.LATEST)


def parse_bound(option: str, text: str) -> Bound:
    """The bound that `text` means. Raises UsageError naming the option."""
    word = text.lower()
    if word == "earliest":
        return EARLIEST
    if word == "latest":
        return LATEST
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return Bound(Kind.OFFSET, int(text))
    if text.startswith("{"):
        return Bound(Kind.EACH, each=_each(option, text))
    return Bound(Kind.TIME, _milliseconds(option, text))


def _each(option: str, text: str) -> tuple[tuple[str, int], ...]:
    try:
        found = json.loads(text)
    except ValueError as fault:
        raise UsageError("bad-option", f"option {option!r} is no valid JSON: {fault}") from None
    for address, offset in found.items():
        if type(offset) is not int or offset < 0:
            raise UsageError(
                "bad-option", f"option {option!r}: the offset of {address!r} is {offset!r}; allowed are whole numbers from 0 on"
            )
    return tuple(sorted(found.items()))


def _milliseconds(option: str, text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError("bad-option", f"option {option!r} is {text[:80]!r}; allowed are {_ALLOWED}") from None
    if found.tzinfo is None:
        raise UsageError(
            "bad-option", f"option {option!r} is {text[:80]!r}, a timestamp without zone; write {text[:80]}Z or {text[:80]}+01:00"
        )
    return (found - _EPOCH) // timedelta(milliseconds=1)
