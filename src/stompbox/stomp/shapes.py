"""From the headers of a SEND to the shape of its messages: which headers pass on, and what the rest means.

A wrong value is an IllegalFrame that names header, value and what is allowed; the frame then has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from stompbox.cron import cron_of
from stompbox.errors import IllegalFrame
from stompbox.message import (
    DEFAULT_PRIORITY,
    EXPIRATION,
    GROUP_SEQUENCE,
    NOT_TAKEN,
    SCHEDULED_CRON,
    SCHEDULED_DELAY,
    SCHEDULED_PERIOD,
    SCHEDULED_REPEAT,
    SCHEDULED_TIME,
    Shape,
    shaped,
)
from stompbox.numerals import digits

_BOOLEANS: Final = {"true": True, "false": False}
SEQUENCE: Final = re.compile("-?[0-9]{1,18}")  # of JMSXGroupSeq
_CRON: Final = re.compile(r"[0-9A-Za-z*,/-]{1,40}( [0-9A-Za-z*,/-]{1,40}){4}")
_REPEATING: Final = frozenset((SCHEDULED_PERIOD, SCHEDULED_REPEAT, SCHEDULED_CRON))
_SOME_DAY: Final = 946_684_800_000  # ms since the epoch: 2000-01-01
_LONGEST: Final = 100 * 366 * 86_400_000  # ms of a period or delay that repeats
_LATEST: Final = 1 << 62  # ms; beyond it is no date but a mistake


def shape_of(headers: Mapping[str, str], *, holes: Collection[str] = ()) -> Shape:
    """The shape of a SEND with these headers (decoded). `holes` are left out: each message has its own. What the broker alone says of
    a message is not taken from its sender, here and nowhere else."""
    if not headers.get("destination"):
        raise IllegalFrame("missing-destination", "SEND needs a destination header that is not empty")
    _check_retain(headers)
    _check_times(headers)
    if not _REPEATING.isdisjoint(headers):
        _check_schedule(headers)
    _check_sequence(headers)
    return shaped(
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
        raise IllegalFrame(
            "bad-persistent", f"header persistent is {given[:80]!r}; allowed are true and false"
        )
    return found


def _check_retain(headers: Mapping[str, str]) -> None:
    given = headers.get("retain", "set")
    if given not in ("set", "remove"):
        raise IllegalFrame("bad-retain", f"header retain is {given[:80]!r}; allowed are set and remove")


def _check_times(headers: Mapping[str, str]) -> None:
    given = headers.get(EXPIRATION)
    if given is not None and not _is_time(given):
        raise IllegalFrame(
            "bad-expires",
            f"header expiration is {given[:80]!r}; allowed is a number of ms from now, at least 0",
        )
    for name in (SCHEDULED_DELAY, SCHEDULED_TIME):
        given = headers.get(name)
        if given is not None and not _is_time(given.removeprefix("-")):
            # Artemis: what is not above 0 is ignored
            raise IllegalFrame("bad-schedule", f"header {name} is {given[:80]!r}; allowed is a number of ms")


def _check_schedule(headers: Mapping[str, str]) -> None:
    """ActiveMQ Classic. Days of the week by their place in the month (`1#5`) there are none."""
    period, repeat, cron = [
        headers.get(name) for name in (SCHEDULED_PERIOD, SCHEDULED_REPEAT, SCHEDULED_CRON)
    ]
    if period is not None and not (_is_time(period) and int(period) <= _LONGEST):
        text = f"header {SCHEDULED_PERIOD} is {period[:80]!r}; allowed is a number of ms up to {_LONGEST}, 0 for none"
        raise IllegalFrame("bad-schedule", text)
    if repeat is not None and not (_is_time(repeat.removeprefix("-")) and repeat != "-"):
        raise IllegalFrame(
            "bad-schedule", f"header {SCHEDULED_REPEAT} is {repeat[:80]!r}; allowed is a number, -1 for ever"
        )
    if repeat is not None and int(repeat) and not (period and int(period)):
        raise IllegalFrame(
            "bad-schedule",
            f"header {SCHEDULED_REPEAT} is {repeat[:80]!r}; it needs {SCHEDULED_PERIOD}, in ms",
        )
    if cron and (SCHEDULED_TIME in headers or not _is_cron(cron)):
        text = f"header {SCHEDULED_CRON} is {cron[:80]!r}; allowed are five fields: minute, hour, day, month and day of the week, in UTC"
        raise IllegalFrame("bad-schedule", f"{text}, and no {SCHEDULED_TIME} beside it")


def _is_cron(text: str) -> bool:
    if _CRON.fullmatch(text) is None:
        return False
    try:
        cron_of(text).after(_SOME_DAY)
    except ValueError:
        return False
    return True


def _check_sequence(headers: Mapping[str, str]) -> None:
    given = headers.get(GROUP_SEQUENCE)
    if given is not None and SEQUENCE.fullmatch(given) is None:
        raise IllegalFrame(
            "bad-number",
            f"header {GROUP_SEQUENCE} is {given[:80]!r}; allowed is a whole number, -1 ends the group",
        )


def _is_time(text: str) -> bool:
    return digits(text) is not None  # so many digits are below _LATEST


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
    found = digits(given, most=19)
    if found is None or found >= _LATEST:
        raise IllegalFrame(
            "bad-expires",
            f"header expires is {given[:80]!r}; allowed is a time in ms since 1970, or 0 for never",
        )
    return found
