"""What `stompbox top` shows, without a screen: one sample of a running broker, and rates as the difference between two.

Decides what is asked of the API, how often a message counts, and the rows in their order. Names come from clients: rows have them as
they are, and who prints them makes them plain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stompbox.cli.asking import ask
from stompbox.errors import Refused, StompboxError

MOST: Final = 10_000  # entries of a list, as the API has it
PASSED: Final = ("received", "delivered", "acknowledged")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """How a broker was at `now` (ms since the epoch, by its clock). `total`: of addresses there may be more than are listed; `refused`:
    why connections are not shown, or nothing."""

    now: int
    status: Mapping[str, Any]
    history: Mapping[str, list[int]]
    addresses: list[Row]
    total: int
    connections: list[Row]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages a second between two samples; None before there are two of the same life of the broker."""

    broker: Mapping[str, float | None] = field(default_factory=dict)
    addresses: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by name: in, done


def sample(admin: str | None) -> Sample:
    """Asks the broker. Raises StompboxError when it does not answer, or the user may not see it."""
    status = ask(admin, "status")
    page = ask(admin, f"addresses?limit={MOST}&sort=-ready")
    refused = ""
    connections: list[Row] = []
    history: dict[str, list[int]] = {}
    try:
        connections = ask(admin, f"connections?limit={MOST}")["connections"]
        history = ask(admin, "history")["series"]
    except Refused as error:
        refused = str(error)
    return Sample(page["now"], status, history, page["addresses"], page["total"], connections, refused)


def rates(before: Sample | None, after: Sample) -> Rates:
    """The rates between two samples, none across a restart of the broker."""
    if before is None or before.status["started"] != after.status["started"] or after.now <= before.now:
        return Rates(dict.fromkeys(PASSED))
    seconds = (after.now - before.now) / 1000
    was, is_now = before.status["messages"], after.status["messages"]
    whole = {name: max(0, is_now.get(name, 0) - was.get(name, 0)) / seconds for name in PASSED}
    old = {one["name"]: one for one in before.addresses}
    each = {
        one["name"]: (
            max(0, one["next"] - old[one["name"]]["next"]) / seconds,
            max(0, one["settled"] - old[one["name"]]["settled"]) / seconds,
        )
        for one in after.addresses
        if one["name"] in old
    }
    return Rates(whole, each)


def address_rows(taken: Sample, found: Rates) -> list[Row]:
    """A row for each address that is listed, as the API has it, with `in` and `done`: messages a second."""
    nothing = (0.0, 0.0)
    return [
        one | dict(zip(("in", "done"), found.addresses.get(one["name"], nothing), strict=True))
        for one in taken.addresses
    ]


def connection_rows(taken: Sample) -> list[Row]:
    """A row for each connection, with what it was sent and has not acknowledged as `delivering`."""
    return [
        one
        | {
            "client": f"{one['peer']}:{one['port']}" if one["port"] else one["peer"],
            "reads": len(one["subscriptions"]),
            "delivering": sum(each["delivering"] for each in one["subscriptions"]),
        }
        for one in taken.connections
    ]


def chosen(rows: list[Row], match: str, key: str, *, is_falling: bool, columns: tuple[str, ...]) -> list[Row]:
    """The rows with `match` in one of these columns, in the order of `key`; what is equal by the first column."""
    found = [one for one in rows if any(match in str(one[name]) for name in columns)]
    found.sort(key=lambda one: str(one[columns[0]]))
    found.sort(key=lambda one: one[key], reverse=is_falling)
    return found


def short(number: float | None) -> str:
    """A number in five characters at most, as 999, 12.3k, 4.5M; nothing where it is not known."""
    if number is None:
        return "-"
    if number < 999.5:
        return f"{number:.1f}" if isinstance(number, float) and 0 < number < 9.95 else f"{number:.0f}"
    for unit in ("k", "M", "G", "T"):
        number /= 1000
        if number < 99.95:
            return f"{number:.1f}{unit}"
        if number < 999.5:
            return f"{number:.0f}{unit}"
    return f"{number:.0f}T"


def octets(size: int | None) -> str:
    """Bytes in five characters at most, with the units of the configuration: 12.3K is 12.3 KiB."""
    if size is None:
        return "-"
    left = float(size)
    for unit in ("B", "K", "M", "G", "T"):
        if left < 999.5:
            return f"{left:.0f}{unit}" if unit == "B" or left >= 99.95 else f"{left:.1f}{unit}"
        left /= 1024
    return f"{left:.0f}P"


Take = Callable[[], Sample]


def attempt(take: Take) -> Sample | str:
    """A sample, or why there is none: a broker that is gone may come back."""
    try:
        return take()
    except StompboxError as error:
        return str(error)
    except (KeyError, TypeError, ValueError) as error:
        return f"what answers is not the admin interface of this version ({error!r})"
