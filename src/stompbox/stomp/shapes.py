"""From the headers of a SEND to the shape of its messages: which headers pass on, and what the rest means.

A wrong value is an IllegalFrame that names header, value and what is allowed; the frame then has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from stompbox.errors import IllegalFrame
from stompbox.message import DEFAULT_PRIORITY, EXPIRATION, GROUP_SEQUENCE, NOT_TAKEN, SCHEDULED_DELAY, SCHEDULED_TIME, Shape

_BOOLEANS: Final = {"true": True, "false": False}
SEQUENCE: Final = re.compile("-?[0-9]{1,18}")  # of JMSXGroupSeq
_LATEST: Final = 1 << 62  # ms; beyond it is no date but a mistake


def shape_of(headers: Mapping[str, str], *, holes: Collection[str] = ()) -> Shape:
    """The shape of a SEND with these headers (decoded). `holes` are left out: each message has its own. What the broker alone says of
    a message is not taken from its sender, here and nowhere else."""
    if not headers.get("destination"):
        raise IllegalFrame("missing-destination", "SEND needs a destination header that is not empty")
    _check_retain(headers)
    _check_times(headers)
    _check_sequence(headers)
    return Shape(
        {name: value for name, value in headers.items() if name not in NOT_TAKEN and name not in holes},
        holes=tuple([name for name in headers if name in holes and name not in NOT_TAKEN]),
        persistent=_persistent(headers),
        priority=_priority(headers),
        expires=_expires(headers),
        has_length="content-length" in headers,
    )


def _persistent(headers: Mapping[str, str]) -> bool | None:
    given = headers.get("persistent")
    if given is None:
        return None
    found = _BOOLEANS.get(given.lower())
    if found is None:
        raise IllegalFrame("bad-persistent", f"header persistent is {given[:80]!r}; allowed are true and false")
    return found


def _check_retain(headers: Mapping[str, str]) -> None:
    given = headers.get("retain", "set")
    if given not in ("set", "remove"):
        raise IllegalFrame("bad-retain", f"header retain is {given[:80]!r}; allowed are set and remove")


def _check_times(headers: Mapping[str, str]) -> None:
    given = headers.get(EXPIRATION)
    if given is not None and not _is_time(given):
        raise IllegalFrame("bad-expires", f"header expiration is {given[:80]!r}; allowed is a number of ms from now, at least 0")
    for name in (SCHEDULED_DELAY, SCHEDULED_TIME):
        given = headers.get(name)
        if given is not None and not _is_time(given.removeprefix("-")):  # Artemis: what is not above 0 is ignored
            raise IllegalFrame("bad-schedule", f"header {name} is {given[:80]!r}; allowed is a number of ms")


def _check_sequence(headers: Mapping[str, str]) -> None:
    given = headers.get(GROUP_SEQUENCE)
    if given is not None and SEQUENCE.fullmatch(given) is None:
        raise IllegalFrame("bad-number", f"header {GROUP_SEQUENCE} is {given[:80]!r}; allowed is a whole number, -1 ends the group")


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18 and int(text) < _LATEST


def _priority(headers: Mapping[str, str]) -> int:
    given = headers.get("priority")
    if given is None:
        return DEFAULT_PRIORITY
    if len(given) != 1 or given not in "0123456789":  # JMS: 0 to 9
        raise IllegalFrame("bad-priority", f"header priority is {given[:80]!r}; allowed are 0 to 9")
    return int(given)


def _expires(headers: Mapping[str, str]) -> int:
    given = headers.get("expires")
    if given is None:
        return 0
    if not (given.isascii() and given.isdigit() and len(given) <= 19 and int(given) < _LATEST):
        raise IllegalFrame("bad-expires", f"header expires is {given[:80]!r}; allowed is a time in ms since 1970, or 0 for never")
    return int(given)
