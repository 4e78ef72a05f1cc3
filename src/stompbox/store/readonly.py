"""What a store holds that cannot be written to: everything is read, with what its journal has laid over it in memory.

| the disk  | what SQLite cannot have                    | so                                                              |
|-----------|--------------------------------------------|-----------------------------------------------------------------|
| full      | 32 KiB for the index of its write-ahead log | the index is in memory, and the database is this process's alone |
| read-only | a write-ahead log, where there was none    | the file is read as it is                                       |

When it is opened for writing after all, and what is said until then, is decided in folderstore.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

from stompbox.errors import StoreError
from stompbox.message import Run
from stompbox.store import schema, watermark
from stompbox.store.base import NOWHERE, Commit, Part, Recovered, StoredChunk
from stompbox.store.check import look_when_opening
from stompbox.store.chunks import decode, encode
from stompbox.store.cutting import pieces
from stompbox.store.folder import DATABASE, naming, store_error
from stompbox.store.journaled import hide_journal, merge, waiting_in
from stompbox.store.losses import Losses
from stompbox.store.memory import MemoryStore
from stompbox.store.mending import log_damage
from stompbox.store.parts import read_part
from stompbox.store.reading import first_since, parts_of, read_chunks, size_of
from stompbox.store.rows import Rows

CHUNK_BYTES: Final = 1 << 20


class ReadOnlyStore:
    """The reading half of a Store in folder `path`, for one thread at a time. Raises StoreError when not even that can be done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / DATABASE
        wrong = log_damage(path, is_ours=True)
        if wrong:
            raise StoreError("data-corrupt", wrong)
        self._connection = connected(self.file)
        try:
            with naming(self.file):
                look_when_opening(self._connection, self.file, Losses())
                self._refuse_lost(Rows(self._connection, self.file))
                self._read_all(Rows(self._connection, self.file))
        except StoreError:
            self.close()
            raise

    def _refuse_lost(self, rows: Rows) -> None:
        state, confirmed = rows.state(), watermark.read(self.path).transactions
        if state is not None and state.transactions < confirmed:
            raise StoreError(
                "data-missing",
                f"{self.file}: ends with transaction {state.transactions}, {confirmed} were confirmed",
            )

    def _read_all(self, rows: Rows) -> None:
        """What the database says of logs and cursors, and then the journal."""
        floors = {log: state.floor for log, state, _ in rows.logs(rows.changes())}
        found = rows.recovered()
        waiting = merge(waiting_in(self.path, found.entries))
        self._runs = {log: sorted(runs, key=_first) for log, runs in waiting.runs.items()}
        for log, runs in self._runs.items():
            if runs:
                waiting.next_offsets[log] = max(waiting.next_offsets.get(log, 0), runs[-1].stop)
        waiting.runs = {}
        self._state = MemoryStore()
        self._state.apply(_as_commit(found))
        self._state.apply(waiting)
        next = {log.id: log.next for log in self._state.recover().logs}
        self._floors = {
            log: max(floors[log], min(waiting.trims.get(log, 0), end)) for log, end in next.items()
        }

    # Reading

    def recover(self) -> Recovered:
        found = self._state.recover()
        logs = [
            replace(log, first=next((part.first for part in self.outline(log.id)), log.next))
            for log in found.logs
        ]
        return hide_journal(Recovered(logs, found.cursors, found.entries))

    def ends(self) -> dict[int, int]:
        """Per log: after the last message that it has, or had."""
        found = self.recover().logs
        return {
            log.id: log.stop if log.first < log.stop else self._floors.get(log.id, log.first) for log in found
        }

    def read(self, log: int, start: int, stop: int, max_bytes: int) -> list[StoredChunk]:
        start = self._floor(log, start)
        with naming(self.file):
            below = read_chunks(self._connection, self.file, (log, start, stop), max_bytes)
            if below and read_chunks(self._connection, self.file, (log, below[-1].stop, stop), 0):
                stop = below[-1].stop  # there is more: what the journal has beyond comes with that
        found = list(
            _laid_over(
                below, [run for run in self._runs.get(log, ()) if start < run.stop and run.first < stop]
            )
        )
        size = 0
        for at, chunk in enumerate(found):
            size += len(chunk.blob)
            if at and size > max_bytes:
                return found[:at]
        return found

    def read_part(self, body: int, number: int) -> bytes:
        with naming(self.file):
            return read_part(self._connection, self.file, body, number)

    def find_time(self, log: int, timestamp: int) -> int:
        start = self._floor(log)
        with naming(self.file):
            found = first_since(self._connection, log, start, timestamp)
        places = [
            run.first for run in self._runs.get(log, ()) if run.stop > start and run.arrived >= timestamp
        ]
        if found is not None:
            places.append(found)
        return min(places, default=self._state.find_time(log, timestamp))

    def sizes(self, logs: Iterable[int], since: Mapping[int, int] = NOWHERE) -> dict[int, tuple[int, int]]:
        sizes = {}
        for log in logs:
            start = self._floor(log, since.get(log, 0))
            runs = [run for run in self._runs.get(log, ()) if run.stop > start]
            with naming(self.file):
                messages, size = size_of(self._connection, log, start)
            sizes[log] = messages + sum(map(len, runs)), size + sum([run.size for run in runs])
        return sizes

    def outline(self, log: int) -> Iterator[Part]:
        start = self._floor(log)
        with naming(self.file):
            below = list(parts_of(self._connection, log, start))
        runs = [
            Part(run.first, run.stop, run.size, run.arrived)
            for run in self._runs.get(log, ())
            if run.stop > start
        ]
        found: list[Part] = []
        for part in sorted([*below, *runs]):
            last = found[-1] if found else None
            if last is not None and part.first < last.stop:  # in a gap of the chunk
                found[-1] = Part(last.first, last.stop, last.size + part.size, max(last.newest, part.newest))
            else:
                found.append(part)
        return iter(found)

    def _floor(self, log: int, start: int = 0) -> int:
        return max(start, self._floors.get(log, schema.DROPPED))

    def close(self) -> None:
        self._connection.close()

    def __repr__(self) -> str:
        return f"<ReadOnlyStore {self.file} journal={sum(map(len, self._runs.values()))} runs>"


def connected(file: Path) -> sqlite3.Connection:
    """A connection that reads, however little the disk lets us do. Raises StoreError `data-not-found` where no store was ever made."""
    if not file.is_file():
        raise StoreError("data-not-found", f"{file}: there is no store")
    log = file.with_name(f"{DATABASE}-wal")
    failure: StoreError | None = None
    for attempt in (schema.connect, _alone, schema.connect_as_it_is):
        if attempt is schema.connect_as_it_is and log.exists() and log.stat().st_size:
            break  # the file alone is not all of it
        try:
            return _checked(attempt, file)
        except sqlite3.Error as error:
            failure = failure or store_error(error, file)
    assert failure is not None
    raise failure


def _checked(attempt: Callable[[Path], sqlite3.Connection], file: Path) -> sqlite3.Connection:
    connection = attempt(file)
    try:
        schema.refuse_foreign(connection, file)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != schema.SCHEMA_VERSION:
            raise StoreError("data-not-found", f"{file}: no store of this version (schema version {version})")
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _alone(file: Path) -> sqlite3.Connection:
    connection = schema.connect(file)
    # before the first access: the index is in memory then (SQLite, WAL mode, 8)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def _as_commit(found: Recovered) -> Commit:
    """What was recovered, but for the messages, as a commit."""
    return Commit(
        logs={log.id: log.name for log in found.logs},
        next_offsets={log.id: log.next for log in found.logs},
        cursors={cursor.id: (cursor.log, cursor.position) for cursor in found.cursors},
        acknowledged={cursor.id: list(cursor.ahead) for cursor in found.cursors},
        delivered={cursor.id: cursor.delivered for cursor in found.cursors},
        entries=dict(found.entries),
    )


def _laid_over(below: Sequence[StoredChunk], runs: Sequence[Run]) -> Iterator[StoredChunk]:
    """Chunks, and runs that lie between them or in their gaps, in offset order."""
    at = 0
    for chunk in below:
        stop = _after(runs, at, chunk.first)
        yield from _as_chunks(runs[at:stop])
        at, inner = stop, _after(runs, stop, chunk.stop)
        if at == inner:
            yield chunk
        else:
            yield _as_chunk(sorted(chain(decode(chunk.blob, chunk.first), runs[at:inner]), key=_first))
        at = inner
    yield from _as_chunks(runs[at:])


def _after(runs: Sequence[Run], at: int, offset: int) -> int:
    while at < len(runs) and runs[at].first < offset:
        at += 1
    return at


def _as_chunks(runs: Sequence[Run]) -> Iterator[StoredChunk]:
    for piece in pieces(runs, CHUNK_BYTES) if runs else ():
        yield _as_chunk(piece)


def _as_chunk(runs: Sequence[Run]) -> StoredChunk:
    return StoredChunk(runs[0].first, runs[-1].stop - runs[0].first, encode(runs, runs[0].first))


def _first(run: Run) -> int:
    return run.first
