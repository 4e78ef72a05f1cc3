"""Large bodies in the database: their pieces, which chunks name them, and what goes when nothing keeps them.

| table | a row is                                                | written                                             |
|-------|---------------------------------------------------------|-----------------------------------------------------|
| part  | a piece of a body, with its checksum                    | per commit, as pieces come; deleted in portions     |
| name  | a chunk (log, first .. stop-1) names a body of some size (0: it lies there), with its checksum | with it, and goes with it |

What memory holds is known to memory alone, so that after a restart nothing is held but what an entry of the kind `staged` names:
pieces of a sender that vanished, and of messages that never reached a chunk, go then. Bodies in doubt are looked at one after the
other, between commits and with them.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from stompbox.errors import StoreError
from stompbox.store.base import STAGED, Commit
from stompbox.store.changes import Named
from stompbox.store.schema import checksum
from stompbox.store.totals import Counted

PORTION: Final = 32  # pieces that are deleted at once: 8 MiB

_IS_NAMED: Final = "SELECT 1 FROM name WHERE body = ? LIMIT 1"
_NUMBERS: Final = "SELECT number FROM part WHERE body = ? ORDER BY number LIMIT ?"


def read_part(connection: sqlite3.Connection, file: Path, body: int, number: int) -> bytes:
    """Reads a piece of a large body. Raises StoreError: `no-such-body`, `data-corrupt`."""
    found = connection.execute(
        "SELECT checksum, data FROM part WHERE body = ? AND number = ?", (body, number)
    ).fetchone()
    if found is None:
        raise StoreError("no-such-body", f"{file}: piece {number} of body {body} is not there (any more)")
    said, data = found
    if not isinstance(data, bytes) or zlib.crc32(data) != said:
        raise StoreError("data-corrupt", f"{file}: piece {number} of body {body} is damaged (checksum)")
    return data


def named_size(connection: sqlite3.Connection, place: Mapping[str, int]) -> int:
    """Bytes of the bodies that chunks of `log` reaching beyond `start` name."""
    (size,) = connection.execute(
        "SELECT coalesce(sum(size), 0) FROM name WHERE log = :log AND stop > :start", place
    ).fetchone()
    return int(size)


def read_names(connection: sqlite3.Connection, file: Path) -> Iterator[Named]:
    """Which chunks name which bodies. Raises StoreError `data-corrupt`."""
    for *values, said in connection.execute("SELECT log, first, stop, body, size, checksum FROM name"):
        if said != checksum(*values):
            raise StoreError(
                "data-corrupt",
                f"{file}: row {' '.join(map(str, values))} of table name is damaged (checksum)",
            )
        yield Named(*values)


def damaged_bodies(connection: sqlite3.Connection, file: Path) -> Iterator[str]:
    """What is wrong with large bodies, one line each. A store of an older version has none."""
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'name'").fetchone() is None:
        return
    # what was staged is looked at with the chunks that lie there
    sizes = {named.body: named.size for named in read_names(connection, file) if named.size}
    for body, size in sizes.items():
        stored = 0
        rows = connection.execute(
            "SELECT number, checksum, data FROM part WHERE body = ? ORDER BY number", (body,)
        )
        for at, (number, said, data) in enumerate(rows):
            if number != at or not isinstance(data, bytes) or zlib.crc32(data) != said:
                yield f"{file}: piece {at} of body {body} is damaged (checksum) or missing"
                break
            stored += len(data)
        else:
            if stored != size:
                yield f"{file}: body {body} has {stored} bytes, should have {size}"


class Parts:
    """For the writer's connection and its thread. `put` and the deletions happen inside a transaction; `landed` follows when it worked."""

    def __init__(self, connection: sqlite3.Connection, file: Path, counted: Counted) -> None:
        self._execute = connection.execute
        self._counted = counted
        self._held = {int(key) for (key,) in self._execute("SELECT key FROM entry WHERE kind = ?", (STAGED,))}
        named = {one.body for one in read_names(connection, file)}
        self._has_names = bool(named)
        kept = named | self._held
        self._doubtful = {
            body: None for (body,) in self._execute("SELECT DISTINCT body FROM part") if body not in kept
        }
        self._unnamed: list[int] = []  # of the transaction: bodies that lost a name
        self._gone: list[int] = []  # of the transaction: doubts that are settled

    @property
    def is_due(self) -> bool:
        return bool(self._doubtful)

    def begin(self) -> None:
        self._unnamed, self._gone = [], []

    def put(self, commit: Commit, named: Iterable[Named]) -> int:
        """The pieces of a commit, and which bodies its chunks name; how many bytes."""
        size = 0
        for (body, number), data in commit.parts.items():
            self._counted.put_part(body, number, zlib.crc32(data), data)
            size += len(data)
        for one in named:
            self._has_names = True
            values = (one.log, one.first, one.stop, one.body, one.size)
            insert = "INSERT INTO name (log, first, stop, body, size, checksum) VALUES (?, ?, ?, ?, ?, ?)"
            self._execute(insert, (*values, checksum(*values)))
        return size

    def unname(self, log: int, first: int) -> None:
        """Forgets which bodies a chunk named, because another one replaces it."""
        self._remove("log = ? AND first = ?", (log, first))

    def unname_below(self, log: int, last: int, floor: int) -> None:
        """Chunks that begin at `last` or before and end at the floor or before are deleted."""
        self._remove("log = ? AND first <= ? AND stop <= ?", (log, last, floor))

    def unname_all(self, log: int) -> None:
        self._remove("log = ?", (log,))

    def _remove(self, which: str, values: tuple[int, ...]) -> None:
        if self._has_names:
            self._unnamed += [
                body for (body,) in self._execute(f"SELECT body FROM name WHERE {which}", values)
            ]
            self._execute(f"DELETE FROM name WHERE {which}", values)

    def sweep(self, written: int = 0) -> bool:
        """Deletes a portion of what nothing keeps, and twice as many pieces as the commit has `written`; True when some were."""
        budget = PORTION + 2 * written
        deleted = 0
        for body in self._doubtful:
            if deleted >= budget:
                break
            if body in self._held or self._execute(_IS_NAMED, (body,)).fetchone() is not None:
                self._gone.append(body)
                continue
            numbers = self._execute(_NUMBERS, (body, budget - deleted)).fetchall()
            if numbers:
                self._counted.delete_parts("body = ? AND number <= ?", (body, *numbers[-1]))
            deleted += len(numbers)
            if deleted < budget:
                self._gone.append(body)
        return deleted > 0

    def landed(self, commit: Commit | None = None) -> None:
        """Notes that the transaction is in the database."""
        for body in self._gone:
            del self._doubtful[body]
        self._doubtful |= dict.fromkeys(self._unnamed)
        if commit is not None and (commit.parts or commit.holds):
            self._held |= {body for body, _ in commit.parts}
            for body, is_held in commit.holds.items():
                if is_held:
                    self._held.add(body)
                else:
                    self._held.discard(body)
                    self._doubtful[body] = None
        self.begin()
