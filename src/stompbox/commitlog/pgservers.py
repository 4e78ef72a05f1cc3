"""The servers that a URL of PostgreSQL names, of which one takes writes: which of them a connection is made to.

| found                                          | then                                                                         |
|------------------------------------------------|------------------------------------------------------------------------------|
| a server that takes no writes, or no server    | the next one is tried                                                         |
| one that takes writes, of an older timeline    | another one was promoted since: it is an old primary, and nobody writes to it |
| one that was connected, and does not answer    | the next connection begins with the one after it                              |

A promotion begins a new timeline (its number grows), so of two servers that take writes the one with the higher number is right. At the
first connection all are asked, later on those that come before the first that will do. This file makes connections and looks after none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any, Final

import psycopg
from psycopg import Connection, OperationalError

CONNECTING: Final = 3  # seconds
_WHERE: Final = ("host", "hostaddr", "port")  # what may be one for each server
_TIMELINE: Final = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
UNKNOWN: Final = 0  # the timeline of a server that does not say

Adopt = Callable[[Connection[Any]], object]


class Servers:
    """What libpq is told, for each server. `timeline`: the latest that one of them was seen to have."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._places = _places(parameters)
        self._guard = Lock()  # of the two below, which several connections have
        self._next = 0
        self._is_looked_at = len(self._places) == 1  # all were asked
        self.timeline = UNKNOWN

    def connect(self, more: dict[str, Any], adopt: Adopt) -> tuple[Connection[Any], int, int]:
        """A connection to one that takes writes, its timeline, and which server it is. `adopt` is given each one that is made, and sees
        to it that it is not waited for without end. Raises psycopg.Error."""
        if not self._is_looked_at:
            for number in range(len(self._places)):
                with suppress(psycopg.Error):
                    self._made(number, more, adopt)[0].close()
                    self._is_looked_at = True
        problems: list[psycopg.Error] = []
        for number in self._order():
            try:
                found, timeline = self._made(number, more, adopt)
                if timeline >= self.timeline:
                    self._next = number
                    return found, timeline, number
                found.close()
                older = f"it takes writes, and is an old primary: its timeline is {timeline}, and {self.timeline} was seen"
                raise OperationalError(f"{self._called(number)}: {older}")
            except psycopg.Error as error:
                problems.append(error)
        if len(problems) == 1:
            raise problems[0]
        raise OperationalError("; ".join(" ".join(str(error).split()) for error in problems))

    def _made(self, number: int, more: dict[str, Any], adopt: Adopt) -> tuple[Connection[Any], int]:
        parameters = self._places[number] | more
        found = psycopg.connect(autocommit=True, connect_timeout=CONNECTING, **parameters)
        adopt(found)
        timeline = _timeline_of(found)
        with self._guard:
            self.timeline = max(self.timeline, timeline)
        return found, timeline

    def _order(self) -> list[int]:
        count, first = len(self._places), self._next
        return [(first + number) % count for number in range(count)]

    def avoid(self, number: int) -> None:
        """Tries another one first the next time: this one did not answer."""
        with self._guard:
            if self._next == number:
                self._next = (number + 1) % len(self._places)

    def _called(self, number: int) -> str:
        place = self._places[number]
        return f"{place.get('host') or place.get('hostaddr', 'localhost')}:{place.get('port', 5432)}"

    def __repr__(self) -> str:
        places = [self._called(number) for number in range(len(self._places))]
        return f"<Servers {', '.join(places)} timeline={self.timeline}>"


def _places(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters of each server. Raises ValueError where there are more of one kind than of another."""
    rest = {name: value for name, value in parameters.items() if name not in _WHERE}
    lists = {name: str(parameters[name]).split(",") for name in _WHERE if parameters.get(name)}
    count = max((len(found) for found in lists.values()), default=1)
    for name, found in lists.items():
        if len(found) not in (1, count):
            raise ValueError(f"{len(found)} values of {name} for {count} servers")
    return [
        rest
        | {name: found[number % len(found)] for name, found in lists.items() if found[number % len(found)]}
        for number in range(count)
    ]


def _timeline_of(connection: Connection[Any]) -> int:
    """UNKNOWN: of one that has no files of its own, as some that are run for others."""
    try:
        row = connection.execute(_TIMELINE).fetchone()
    except (
        psycopg.errors.FeatureNotSupported,
        psycopg.errors.UndefinedFunction,
        psycopg.errors.InsufficientPrivilege,
    ):
        return UNKNOWN
    return int(row[0], 16) if row else UNKNOWN
