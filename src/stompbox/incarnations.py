"""The identity of a log: whether an offset still means the message that it meant when somebody was told of it.

A log is an incarnation from when it is made. A copy of its store (a backup, what is restored from it) begins another one where the
copy's log ends: below, both have the same messages; from there on each gives the same offsets to messages of its own. So a log is
known by a list of incarnations, each with the first offset that it holds from. Who has read up to an offset remembers it together
with the incarnation of the last message before it.

Decides what such a list says. Ids are made elsewhere: here nothing is drawn at random.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple

# incarnations that a log remembers; a reader who is 64 restores behind is told that the log is another one
MOST: Final = 64
ID_OCTETS: Final = 8  # of an id, drawn at random for each log and each copy
END: Final = 1 << 62  # beyond any offset

INCARNATIONS: Final = "incarnations"  # kind of an entry of the catalogue: of a log, by its id
ENDED: Final = "ended"  # the same: of an address that is gone, by its name (broker/addresses/lifetimes.py)

NewId = Callable[[], str]
"""Gives another id each time."""


class Position(NamedTuple):
    """How far somebody has read: up to `offset`, of the incarnation that the last message before it has. "": he never knew which."""

    offset: int
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class Incarnations:
    """(id, first offset that it holds from), in order; empty where nobody has told them, and then every offset holds."""

    entries: tuple[tuple[str, int], ...] = ()

    @property
    def current(self) -> str:
        return self.entries[-1][0] if self.entries else ""

    def of(self, offset: int) -> str:
        """The incarnation of the last message before `offset`; of the first one where there is none."""
        found = [id for id, first in self.entries if first < offset]
        return found[-1] if found else self.entries[0][0] if self.entries else ""

    def end_of(self, id: str) -> int | None:
        """Up to where what was read of an incarnation is the same here. None: this log has never been that one."""
        ends = [*[first for _, first in self.entries[1:]], END]
        return next((end for (known, _), end in zip(self.entries, ends, strict=False) if known == id), None)

    def holds(self, id: str, offset: int) -> bool:
        """Whether who has read up to `offset` of incarnation `id` can go on here. Without an id he is taken at his word."""
        if not id or not offset or not self.entries:
            return True
        end = self.end_of(id)
        return end is not None and offset <= end

    def resumed(self, id: str, offset: int, oldest: int) -> int:
        """Where he goes on who does not hold: at what both have, or at the beginning. `oldest`: of the log."""
        if self.holds(id, offset):
            return max(offset, oldest)
        end = self.end_of(id)
        return oldest if end is None else max(end, oldest)

    def followed_by(self, id: str, first: int) -> Incarnations:
        """The incarnations of a log whose messages from `first` on are another one's. One that came to nothing is forgotten."""
        return Incarnations((*[entry for entry in self.entries if entry[1] < first], (id, first))[-MOST:])

    def wire(self) -> list[list[str | int]]:
        return [[id, first] for id, first in self.entries]


UNTOLD: Final = Incarnations()


def incarnations_of(wire: Iterable[Iterable[str | int]]) -> Incarnations:
    """Reads incarnations from what `wire` has made."""
    return Incarnations(tuple([(str(id), int(first)) for id, first in wire]))


def difference(name: str, known: Incarnations, id: str, offset: int, extent: tuple[int, int]) -> str:
    """What is to be said of a log of this name, where `offset` of incarnation `id` does not hold. `extent`: oldest, next."""
    end = known.end_of(id)
    oldest, next = extent
    there = f"incarnation {known.current} with offsets {oldest} to {next}"
    if end is None:
        return f"the log of {name!r} is another one: offset {offset} of incarnation {id} was expected, there is {there}"
    return (
        f"the log of {name!r} was restored as of offset {end}, from where on it has other messages: "
        f"offset {offset} of incarnation {id} was expected, there is {there}"
    )


def numbered(epoch: int) -> NewId:
    """Ids that are the same at each run of a test, and others after a restart."""
    numbers = count(1)
    return lambda: f"{epoch}.{next(numbers)}"


def of_copy(
    entries: Mapping[tuple[str, str], bytes], ends: Mapping[int, int], new_id: NewId
) -> dict[tuple[str, str], bytes]:
    """What the catalogue of a copy says instead: of each log, that it is another one from where the copy ends (`ends`, by id) on.

    Logs of brokers that gave no ids get one when a broker starts on the copy.
    """
    found = {}
    for (kind, key), value in entries.items():
        said: Any = json.loads(value) if kind in (INCARNATIONS, ENDED) else None
        if kind == INCARNATIONS and int(key) in ends:
            found[kind, key] = _encoded(incarnations_of(said).followed_by(new_id(), ends[int(key)]).wire())
        elif kind == ENDED and isinstance(said, dict):
            followed = incarnations_of(said["incarnations"]).followed_by(new_id(), said["next"])
            found[kind, key] = _encoded({**said, "incarnations": followed.wire()})
    return found


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
