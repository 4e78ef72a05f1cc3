"""Rows of logs, cursors, changes and entries: written with a checksum, read with a look at it.

Decides how they stand in the tables of schema.py. When they are written and what they mean is decided in sqlite.py and changes.py.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import MsgspecError, msgpack

from stompbox.errors import StoreError
from stompbox.ranges import Ranges
from stompbox.store.base import Delivered, Recovered, StoredCursor, StoredLog
from stompbox.store.changes import Changes, CursorState, LogState, still_counted
from stompbox.store.schema import DROPPED, checksum
from stompbox.store.statements import delete, insert, of_each
from stompbox.store.totals import KEY, SINCE, JournalState

# The last two: where the oldest chunk of the log ends, and the newest. Both come from the index.
_LOGS: Final = """
    SELECT id, name, next, floor, checksum,
           (SELECT first + count FROM chunk WHERE chunk.log = log.id ORDER BY first LIMIT 1),
           (SELECT first + count FROM chunk WHERE chunk.log = log.id ORDER BY first DESC LIMIT 1)
    FROM log"""
# Chunks of log :log with offsets from :start on: those that begin there, and the one before if it reaches that far.
FROM: Final = """
    FROM chunk WHERE log = :log AND first + count > :start AND first >=
    coalesce((SELECT first FROM chunk WHERE log = :log AND first <= :start ORDER BY first DESC LIMIT 1), :start)"""
_CURSOR: Final = "SELECT id, log, position, checksum, ahead FROM cursor"


class Rows:
    """Reading raises StoreError `data-corrupt` that names file, table and row."""

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self._execute = connection.execute
        self._file = file

    def _check(self, said: int, table: str, *values: object, keys: int = 1) -> None:
        if said != checksum(*values):
            key = " ".join(str(value) for value in values[:keys])
            raise StoreError(
                "data-corrupt", f"{self._file}: row {key} of table {table} is damaged (checksum)"
            )

    def logs(self, changes: Changes) -> Iterator[tuple[int, LogState, int | None]]:
        """(log, state with the changes, where its oldest chunk ends)."""
        for log, name, stored, floor, said, oldest, newest in self._execute(_LOGS):
            self._check(said, "log", log, name, stored, floor)
            following = max(stored, changes.next.get(log, 0), newest or 0)
            yield log, LogState(name, following, max(floor, changes.floors.get(log, 0)), newest or 0), oldest

    def recovered(self) -> Recovered:
        """What a store holds, all of it but the chunks."""
        changes = self.changes()
        logs = []
        for log, state, _ in self.logs(changes):
            if state.floor != DROPPED:
                place = {"log": log, "start": state.floor}
                found = self._execute(f"SELECT first {FROM} ORDER BY first LIMIT 1", place).fetchone()
                first, stop = (found[0], state.stored) if found else (state.next, state.next)
                logs.append(StoredLog(log, state.name, first, stop, state.next))
        told: dict[int, list[Delivered]] = {}
        for cursor, delivered in self.deliveries():
            told.setdefault(cursor, []).append(delivered)
        cursors = []
        for cursor, held in self.cursors():
            held.acknowledge(changes.acknowledged.get(cursor, ()))
            counted = still_counted(told.get(cursor, ()), held.position, held.ahead)
            cursors.append(StoredCursor(cursor, held.log, held.position, held.ahead, counted))
        entries = dict(self.entries())
        entries.pop(KEY, None)
        return Recovered(logs, cursors, entries)

    def put_logs(self, logs: Iterable[tuple[int, LogState]]) -> None:
        rows = [(log, state.name, state.next, state.floor) for log, state in logs]
        put = "INSERT OR REPLACE INTO log (id, name, next, floor, checksum)"
        insert(self._execute, put, [(*row, checksum(*row)) for row in rows])

    def cursors(self) -> Iterator[tuple[int, CursorState]]:
        for row in self._execute(_CURSOR):
            yield self._cursor(*row)

    def _cursor(
        self, cursor: int, log: int, position: int, said: int, packed: bytes
    ) -> tuple[int, CursorState]:
        self._check(said, "cursor", cursor, log, position, packed)
        ahead = Ranges()
        ahead.starts, ahead.stops = msgpack.decode(packed, type=tuple[list[int], list[int]])
        return cursor, CursorState(log, position, ahead)

    def put_cursors(self, cursors: Iterable[tuple[int, CursorState]]) -> None:
        rows = [
            (cursor, held.log, held.position, msgpack.encode((held.ahead.starts, held.ahead.stops)))
            for cursor, held in cursors
        ]
        put = "INSERT OR REPLACE INTO cursor (id, log, position, ahead, checksum)"
        insert(self._execute, put, [(*row, checksum(*row)) for row in rows])

    def deliveries(self) -> Iterator[tuple[int, Delivered]]:
        """By cursor, in the order in which they were told. A file of version 1 that nobody opened since has none."""
        if not self._execute("SELECT count(*) FROM sqlite_schema WHERE name = 'delivery'").fetchone()[0]:
            return
        select = "SELECT id, checksum, cursor, first, stop, deliveries, failures FROM delivery ORDER BY id"
        for row, said, cursor, *delivered in self._execute(select):
            if said != checksum(cursor, *delivered):
                raise StoreError(
                    "data-corrupt", f"{self._file}: row {row} of table delivery is damaged (checksum)"
                )
            first, stop, deliveries, failures = delivered
            yield cursor, (first, stop, deliveries, failures)

    def add_deliveries(self, told: Mapping[int, Iterable[Delivered]]) -> None:
        """What was told of the same messages before goes: the latest has the highest id."""
        rows = [(cursor, *delivered) for cursor, all_of_it in told.items() for delivered in all_of_it]
        put = "INSERT OR REPLACE INTO delivery (cursor, first, stop, deliveries, failures, checksum)"
        insert(self._execute, put, [(*row, checksum(*row)) for row in rows])

    def drop_cursors(self, cursors: Sequence[int]) -> None:
        delete(self._execute, "DELETE FROM cursor WHERE id", cursors)
        self.drop_deliveries(cursors)

    def drop_deliveries(self, cursors: Sequence[int]) -> None:
        delete(self._execute, "DELETE FROM delivery WHERE cursor", cursors)

    def _forget_deliveries(
        self, cursor: int, held: CursorState, acknowledged: Iterable[tuple[int, int]]
    ) -> None:
        """Forgets how often messages were delivered that are acknowledged now, also ahead of one that somebody keeps for long."""
        below = held.position
        self._execute(
            "DELETE FROM delivery WHERE cursor = ? AND first < ? AND stop <= ?", (cursor, below, below)
        )
        ahead = held.ahead
        places = {
            bisect_right(ahead.starts, start) - 1 for start, _ in acknowledged if start >= held.position
        }
        for at in places:
            if at >= 0:
                first, stop = ahead.starts[at], ahead.stops[at]
                self._execute(
                    "DELETE FROM delivery WHERE cursor = ? AND first >= ? AND first < ? AND stop <= ?",
                    (cursor, first, stop, stop),
                )

    def changes(self) -> Changes:
        """All changes that are not folded into the tables yet."""
        changes = Changes()
        for row, said, packed in self._execute("SELECT id, checksum, data FROM change ORDER BY id"):
            self._check(said, "change", row, packed)
            try:
                changes.add(msgpack.decode(packed, type=Changes))
            except MsgspecError as error:
                raise StoreError(
                    "data-corrupt", f"{self._file}: row {row} of table change is damaged ({error})"
                ) from error
        return changes

    def add_changes(self, row: int, changes: Changes) -> int:
        """Adds changes as a row, and returns its size in bytes."""
        packed = msgpack.encode(changes)
        self._execute(
            "INSERT INTO change (id, checksum, data) VALUES (?, ?, ?)", (row, checksum(row, packed), packed)
        )
        return len(packed)

    def fold(self, changes: Changes, logs: Mapping[int, LogState]) -> None:
        """Writes what all the changes came to into the rows of logs and cursors, and drops the changes."""
        self.put_logs((log, logs[log]) for log in changes.next.keys() | changes.floors.keys() if log in logs)
        known = list(changes.acknowledged)
        cursors = [self._cursor(*row) for row in of_each(self._execute, f"{_CURSOR} WHERE id", known)]
        for cursor, held in cursors:
            held.acknowledge(changes.acknowledged[cursor])
        self.put_cursors(cursors)
        told = "SELECT id FROM cursor WHERE EXISTS (SELECT 1 FROM delivery WHERE delivery.cursor = cursor.id) AND id"
        delivered = {cursor for (cursor,) in of_each(self._execute, told, known)}
        for cursor, held in cursors:
            if cursor in delivered:
                self._forget_deliveries(cursor, held, changes.acknowledged[cursor])
        self._execute("DELETE FROM change")

    def entries(self) -> Iterator[tuple[tuple[str, str], bytes]]:
        for kind, key, said, value in self._execute("SELECT kind, key, checksum, value FROM entry"):
            self._check(said, "entry", kind, key, value, keys=2)
            yield (kind, key), value

    def state(self) -> JournalState | None:
        """Up to where the journal is in the tables; None: the file is of an older version, which had no journal. Raises StoreError
        `data-corrupt` where a newer one lacks it."""
        found = self._execute("SELECT checksum, value FROM entry WHERE kind = ? AND key = ?", KEY).fetchone()
        if found is None:
            (version,) = self._execute("PRAGMA user_version").fetchone()
            if version < SINCE:
                return None
            raise StoreError("data-corrupt", f"{self._file}: row {' '.join(KEY)} of table entry is missing")
        said, value = found
        self._check(said, "entry", *KEY, value, keys=2)
        return msgpack.decode(value, type=JournalState)

    def put_state(self, state: JournalState) -> None:
        self.put_entries({KEY: msgpack.encode(state)})

    def put_entries(self, entries: Mapping[tuple[str, str], bytes | None]) -> None:
        """Writes entries of the catalogue; deletes those that are None."""
        gone: dict[str, list[str]] = {}
        rows: list[tuple[str, str, int, bytes]] = []
        for (kind, key), value in entries.items():
            if value is None:
                gone.setdefault(kind, []).append(key)
            else:
                rows.append((kind, key, checksum(kind, key, value), value))
        insert(self._execute, "INSERT OR REPLACE INTO entry (kind, key, checksum, value)", rows)
        for kind, keys in gone.items():
            delete(self._execute, "DELETE FROM entry WHERE kind = ? AND key", keys, kind)
