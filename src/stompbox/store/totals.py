"""What the rows of the large tables come to, kept with each transaction: a row that a damaged page hides is missed.

| table | what is summed up                                        | read from the index |
|-------|----------------------------------------------------------|---------------------|
| chunk | rows, and every column but the blob                      | chunk_place         |
| part  | rows, and where they stand: rowid, body and number       | the primary key     |

A flipped bit in one value changes one sum, a page that is not found changes the number of rows. Reading the indices takes 0.1 s for
300,000 chunks, so that opening a store can do it, however much lies in it; the pages that hold blobs are not touched. Numbers that may
be large are summed up in halves: a sum beyond 63 bits would be an error. Rows are put in and deleted here, and nowhere else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from stompbox.store.chunks import ChunkHead
from stompbox.store.staged import chunk_size
from stompbox.store.statements import insert

_HALF: Final = 0xFFFFFFFF
_HALVES: Final = "coalesce(sum({0} & 4294967295), 0), coalesce(sum({0} >> 32), 0)"
_SUM: Final = "coalesce(sum({0}), 0)"
_IN_HALVES: Final = ("id", "log", "first", "newest")
_WHOLE: Final = ("count", "messages", "size")
_CHUNKS: Final = ", ".join(["count(*)", *map(_HALVES.format, _IN_HALVES), *map(_SUM.format, _WHOLE)])
_PARTS: Final = ", ".join(["count(*)", *map(_HALVES.format, ("rowid", "body", "number"))])
_PUT_CHUNK: Final = "INSERT INTO chunk (id, log, first, count, messages, newest, size, blob)"
_PUT_PART: Final = "INSERT INTO part (rowid, body, number, checksum, data) VALUES (?, ?, ?, ?, ?)"


class Totals(Struct, array_like=True):
    """Sums over all rows, by which a lost one is noticed."""

    chunks: list[int] = field(default_factory=lambda: [0] * 12)
    parts: list[int] = field(default_factory=lambda: [0] * 7)


def counted(connection: sqlite3.Connection) -> Totals:
    """The sums over what is there in the tables. A value that is no number makes a sum that is none, and differs."""
    chunks = connection.execute(f"SELECT {_CHUNKS} FROM chunk INDEXED BY chunk_place").fetchone()
    parts = connection.execute(f"SELECT {_PARTS} FROM part INDEXED BY sqlite_autoindex_part_1").fetchone()
    return Totals(list(chunks), list(parts))


class JournalState(Struct, array_like=True):
    """Kept in the catalogue, and written with each transaction: beside the journal's own entries, so on a page that is written anyway."""

    transactions: int = 0
    totals: Totals = field(default_factory=Totals)
    schema: int = 0  # checksum of the tables and indices, and of where they begin


KEY: Final = ("journal", "state")
SINCE: Final = 4  # version of the schema


def differences(said: Totals, found: Totals) -> str:
    """Says in words where the rows are not what the sums say; empty when all is there."""
    wrong = []
    for table, should, has in (("chunk", said.chunks, found.chunks), ("part", said.parts, found.parts)):
        if should[0] != has[0]:
            wrong.append(f"table {table} has {has[0]} rows, should have {should[0]}")
        elif should != has:
            wrong.append(f"the index of table {table} does not say what was stored")
    return "; ".join(wrong)


class Counted:
    """The rows of both tables, for the writer's connection: each change inside a transaction, which keeps or takes back the totals."""

    def __init__(self, connection: sqlite3.Connection, totals: Totals) -> None:
        self._execute = connection.execute
        self.totals = totals
        self._before: tuple[list[int], list[int], int, int] | None = None
        (self._chunk,) = self._execute("SELECT coalesce(max(id), 0) FROM chunk").fetchone()
        (self._part,) = self._execute("SELECT coalesce(max(rowid), 0) FROM part").fetchone()

    def begin(self) -> None:
        self._before = (list(self.totals.chunks), list(self.totals.parts), self._chunk, self._part)

    @property
    def has_changed(self) -> bool:
        """Whether a sum has changed since the transaction began."""
        return self._before is not None and self._before[:2] != (self.totals.chunks, self.totals.parts)

    def take_back(self) -> None:
        """Takes back what the transaction, which is no more, has changed."""
        assert self._before is not None
        self.totals.chunks, self.totals.parts, self._chunk, self._part = self._before

    def put_chunks(self, chunks: Iterable[tuple[int, ChunkHead, bytes]]) -> None:
        """Log, head and blob of each."""
        rows: list[tuple[int, int, int, int, int, int, int, bytes]] = []
        totals = self.totals.chunks
        for log, head, blob in chunks:
            self._chunk += 1
            row, first, newest, size = self._chunk, head.first, head.newest, chunk_size(blob)
            rows.append((row, log, first, head.count, head.messages, newest, size, blob))
            halves = (*_halves(row), *_halves(log), *_halves(first), *_halves(newest))
            for at, value in enumerate((1, *halves, head.count, head.messages, size)):
                totals[at] += value
        insert(self._execute, _PUT_CHUNK, rows)

    def delete_chunks(self, where: str, values: Iterable[int]) -> None:
        values = tuple(values)
        _subtract(
            self.totals.chunks, self._execute(f"SELECT {_CHUNKS} FROM chunk WHERE {where}", values).fetchone()
        )
        self._execute(f"DELETE FROM chunk WHERE {where}", values)

    def put_part(self, body: int, number: int, checksum: int, data: bytes) -> None:
        """In place of the one that is there, if one is."""
        if (
            self._execute("SELECT 1 FROM part WHERE body = ? AND number = ?", (body, number)).fetchone()
            is not None
        ):
            self.delete_parts("body = ? AND number = ?", (body, number))
        self._part += 1
        self._execute(_PUT_PART, (self._part, body, number, checksum, data))
        totals = self.totals.parts
        for at, value in enumerate((1, *_halves(self._part), *_halves(body), *_halves(number))):
            totals[at] += value

    def delete_parts(self, where: str, values: Iterable[int]) -> None:
        values = tuple(values)
        _subtract(
            self.totals.parts, self._execute(f"SELECT {_PARTS} FROM part WHERE {where}", values).fetchone()
        )
        self._execute(f"DELETE FROM part WHERE {where}", values)


def _halves(value: int) -> tuple[int, int]:
    """As SQLite cuts them: the upper one has the sign."""
    return value & _HALF, value >> 32


def _subtract(totals: list[int], gone: Iterable[int]) -> None:
    for at, value in enumerate(gone):
        totals[at] -= value
