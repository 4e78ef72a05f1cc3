"""Looking for damage: what a store does when it opens, and what a person does who wants to know.

SQLite finds a damaged page, checksums find a damaged value. Opening looks at all that recovery reads, and at everything
when the file is small; blobs of a larger file are checked when they are read, or by `damage`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from stompbox.errors import StoreError
from stompbox.incarnations import INCARNATIONS, UNTOLD, Incarnations, incarnations_of
from stompbox.store import schema, watermark
from stompbox.store.folder import DATABASE
from stompbox.store.inspection import inspecting
from stompbox.store.losses import Losses
from stompbox.store.parts import damaged_bodies, read_part
from stompbox.store.rows import Rows
from stompbox.store.staged import ReadPart, chunk_size, verified
from stompbox.store.totals import counted, differences

SMALL: Final = 64 << 20  # bytes; reading so much when opening takes 0.1 s
# bytes that are read through at once when nobody waits: 1 ms, so that it goes on at about 150 MB/s
PORTION: Final = 1 << 20
_TABLES: Final = ("log", "cursor", "change", "delivery", "entry", "name")  # small, whatever lies in the store
_CHUNKS: Final = "SELECT id, log, first, count, messages, newest, size, blob FROM chunk"


def look_when_opening(connection: sqlite3.Connection, file: Path, losses: Losses) -> Verifying | None:
    """Looks at all that an opening store relies on, and at the rest as well when the file is small; else returns who looks at that later.

    Raises StoreError `data-corrupt` for the first thing that is wrong, unless losses are accepted. Pages that are damaged beyond
    their indices cannot be accepted: SQLite would write among them.
    """
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    small = pages * schema.PAGE <= SMALL
    tables = ("",) if small else _TABLES
    for table in tables:
        for problem in _pages(connection, table):
            _refuse_pages(connection, f"{file}: {problem}", tables, losses)
            break
    for problem in _state_damage(connection, file):
        losses.corrupt(problem)
    if not small:
        octets = pages * schema.PAGE
        losses.tell(
            "data-unverified",
            f"{file}: messages of {octets >> 20} MiB are not read through yet; that is done while the broker is idle",
        )
        return Verifying(connection, file)
    for *_, problem in damaged_chunks(connection, file):
        losses.corrupt(problem)
    for problem in _bodies(connection, file):
        losses.corrupt(problem)
    return None


def _refuse_pages(
    connection: sqlite3.Connection, problem: str, tables: Iterable[str], losses: Losses
) -> None:
    losses.corrupt(problem)
    connection.execute("REINDEX")
    for table in tables:
        for left in _pages(connection, table):
            raise StoreError("data-corrupt", f"{problem}; that cannot be left out ({left}), a backup helps")


def _state_damage(connection: sqlite3.Connection, file: Path, confirmed: int = 0) -> Iterator[str]:
    """Transactions and rows that should be there and are not, by what is counted with each transaction."""
    state = Rows(connection, file).state()
    if state is None:
        return
    if state.transactions < confirmed:
        yield f"{file}: ends with transaction {state.transactions}, {confirmed} were confirmed"
    if state.schema != schema.outline(connection):
        yield f"{file}: the tables are not where they were made"
    try:
        different = differences(state.totals, counted(connection))
    except sqlite3.OperationalError as error:  # a sum that is too large
        different = f"the indices of chunk and part cannot be counted ({error})"
    if different:
        yield f"{file}: {different}"


class Verifying:
    """Reads chunks and pieces of large bodies through, a portion at a time, and says what is damaged."""

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self._execute = connection.execute
        self._read = partial(read_part, connection, file)
        self._file = file
        self._chunk: int | None = 0  # the last that was looked at; None: all of them were
        self._part = 0
        self.damaged = 0
        self.is_done = False

    def portion(self) -> list[str]:
        """Checks the next portion, about PORTION bytes, and returns what is damaged."""
        found = self._chunks() if self._chunk is not None else self._parts()
        self.damaged += len(found)
        return found

    def _chunks(self) -> list[str]:
        found, octets = [], 0
        for row in self._execute(f"{_CHUNKS} WHERE id > ? ORDER BY id", (self._chunk,)):
            self._chunk = row[0]
            problem = _wrong_with(row, self._file, self._read)
            if problem:
                found.append(problem)
            octets += row[-2] if isinstance(row[-2], int) else 0
            if octets >= PORTION:
                return found
        self._chunk = None
        return found

    def _parts(self) -> list[str]:
        found, octets = [], 0
        select = "SELECT rowid, body, number, checksum, data FROM part WHERE rowid > ? ORDER BY rowid"
        for row, body, number, said, data in self._execute(select, (self._part,)):
            self._part = row
            if not isinstance(data, bytes) or crc32(data) != said:
                found.append(f"{self._file}: piece {number} of body {body} is damaged (checksum)")
            octets += len(data or b"")
            if octets >= PORTION:
                return found
        self.is_done = True
        return found


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is. What was trimmed and not deleted yet counts."""

    version: int  # of the schema
    logs: int
    chunks: int
    messages: int
    octets: int  # of blobs
    free: int  # octets of the file that are not used


def size(connection: sqlite3.Connection) -> Size:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    (logs,) = connection.execute("SELECT count(*) FROM log").fetchone()
    totals = "SELECT count(*), coalesce(sum(messages), 0), coalesce(sum(size), 0) FROM chunk"
    chunks, messages, octets = connection.execute(totals).fetchone()
    return Size(version, logs, chunks, messages, octets, free * page)


@dataclass(frozen=True, slots=True)
class Identity:
    """What the catalogue says of a log: which it is, and the offset that comes next."""

    name: str
    next: int
    incarnations: Incarnations


def identities(connection: sqlite3.Connection, file: Path) -> list[Identity]:
    """The identities of the logs that are there, as far as the database has them: a log that is still in the journal comes later."""
    found = Rows(connection, file).recovered()
    known = {
        key: incarnations_of(json.loads(value))
        for (kind, key), value in found.entries.items()
        if kind == INCARNATIONS
    }
    return [
        Identity(log.name, log.next, known.get(str(log.id), UNTOLD))
        for log in sorted(found.logs, key=lambda log: log.name)
    ]


def damage(path: Path, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
    """Yields everything that is wrong with the store in folder `path`, one line each; a broker may be running on it.

    `progress` is called with (chunks checked, chunks in all). Raises StoreError when there is no store or it cannot be looked at.
    """
    file = path / DATABASE
    # before the database: what is confirmed meanwhile is in there by then
    confirmed = watermark.read(path).transactions
    with inspecting(path) as connection:
        yield from _length(connection, file)
        yield from (f"{file}: {problem}" for problem in _pages(connection, ""))
        with suppress(StoreError):  # its row is among those that are looked at next
            yield from list(_state_damage(connection, file, confirmed))
        yield from _rows(connection, file)
        yield from _ranges(connection, file)
        yield from _blobs(connection, file, progress)
        yield from _bodies(connection, file)


def _length(connection: sqlite3.Connection, file: Path) -> Iterator[str]:
    """Whether the file is shorter than it says. While there is a write-ahead log it may be: the rest is in there."""
    log = file.with_name(f"{DATABASE}-wal")
    if log.exists() and log.stat().st_size:
        return
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    if file.stat().st_size < pages * page:
        yield f"{file}: is cut short, {file.stat().st_size} of {pages * page} bytes"


def _pages(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    """What SQLite finds wrong with a table and its indices, or with the whole file."""
    for (text,) in connection.execute(
        f"PRAGMA integrity_check({table})" if table else "PRAGMA integrity_check"
    ):
        if text != "ok":
            yield text


def _rows(connection: sqlite3.Connection, file: Path) -> Iterator[str]:
    rows = Rows(connection, file)
    for read in (lambda: rows.logs(rows.changes()), rows.cursors, rows.deliveries, rows.entries):
        try:
            for _ in read():
                pass
        except StoreError as error:
            yield error.message


def _ranges(connection: sqlite3.Connection, file: Path) -> Iterator[str]:
    """Cursors and chunks of logs that are not there, chunks that overlap."""
    known = {log for (log,) in connection.execute("SELECT id FROM log")}
    for cursor, log in connection.execute("SELECT id, log FROM cursor"):
        if log not in known:
            yield f"{file}: cursor {cursor} is of log {log}, which is not there"
    before, end = None, 0
    for log, first, count in connection.execute("SELECT log, first, count FROM chunk ORDER BY log, first"):
        if not (isinstance(first, int) and isinstance(count, int)):
            yield f"{file}: log {log}, a row of table chunk is damaged: first {first!r:.40}, count {count!r:.40}"
            continue
        if log != before:
            before, end = log, first
            if log not in known:
                yield f"{file}: chunks of log {log}, which is not there"
        if first < end:
            yield f"{file}: log {log}, chunk at offset {first}: the one before reaches up to {end}"
        end = max(end, first + count)


def _bodies(connection: sqlite3.Connection, file: Path) -> Iterator[str]:
    try:
        yield from damaged_bodies(connection, file)
    except StoreError as error:
        yield error.message


def _blobs(
    connection: sqlite3.Connection, file: Path, progress: Callable[[int, int], None] | None
) -> Iterator[str]:
    (total,) = connection.execute("SELECT count(*) FROM chunk").fetchone()
    read = partial(read_part, connection, file)
    for at, row in enumerate(connection.execute(f"{_CHUNKS} ORDER BY id"), 1):
        problem = _wrong_with(row, file, read)
        if problem:
            yield problem
        if progress:
            progress(at, total)


def damaged_chunks(connection: sqlite3.Connection, file: Path) -> Iterator[tuple[int, int, int, bytes, str]]:
    """Row, log, first offset and blob of each chunk that is damaged, and what is wrong with it."""
    read = partial(read_part, connection, file)
    for row in connection.execute(f"{_CHUNKS} ORDER BY id"):
        problem = _wrong_with(row, file, read)
        if problem:
            yield row[0], row[1], row[2], row[-1] if isinstance(row[-1], bytes) else b"", problem


def _wrong_with(row: tuple[Any, ...], file: Path, read: ReadPart) -> str:
    """Empty when all is well with a row of chunk."""
    _, log, *said, size, blob = row
    where = f"{file}: log {log}, chunk at offset {said[0]}"
    if not isinstance(blob, bytes):
        return f"{where}: the row has no blob"
    try:
        found, _ = verified(blob, where, read)
    except StoreError as error:
        return error.message
    if said != [found.first, found.count, found.messages, found.newest] or size != chunk_size(blob):
        return f"{where}: the row does not say what the chunk says"
    return ""
