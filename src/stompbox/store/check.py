"""Looking for damage: what a store does when it opens, and what a person does who wants to know.

SQLite finds a damaged page, checksums find a damaged value. Opening looks at all that recovery reads, and at everything
when the file is small; blobs of a larger file are checked when they are read, or by `damage`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stompbox.errors import StoreError
from stompbox.incarnations import INCARNATIONS, UNTOLD, Incarnations, incarnations_of
from stompbox.store import chunks, schema
from stompbox.store.folder import DATABASE
from stompbox.store.looking import looking
from stompbox.store.parts import damaged_bodies
from stompbox.store.rows import Rows

SMALL: Final = 64 << 20  # bytes; reading so much when opening takes 0.1 s
_INDICES: Final = ("log", "cursor", "change", "delivery", "entry")


def refuse_damage(connection: sqlite3.Connection, file: Path) -> None:
    """Raises StoreError `data-corrupt` for the first thing that is wrong with what an opening store relies on."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    small = pages * schema.PAGE <= SMALL
    for problem in _pages(connection, "" if small else _INDICES[0]):
        raise StoreError("data-corrupt", f"{file}: {problem}")
    for table in () if small else _INDICES[1:]:
        for problem in _pages(connection, table):
            raise StoreError("data-corrupt", f"{file}: {problem}")
    if small:
        for problem in _blobs(connection, file, None):
            raise StoreError("data-corrupt", problem)


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
    """Of a log: which it is, and the offset that comes next."""

    name: str
    next: int
    incarnations: Incarnations


def identities(connection: sqlite3.Connection, file: Path) -> list[Identity]:
    """Of the logs that are there, as far as the database has them: a log that is still in the journal comes later."""
    found = Rows(connection, file).recovered()
    known = {key: incarnations_of(json.loads(value)) for (kind, key), value in found.entries.items() if kind == INCARNATIONS}
    return [Identity(log.name, log.next, known.get(str(log.id), UNTOLD)) for log in sorted(found.logs, key=lambda log: log.name)]


def damage(path: Path, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
    """Everything that is wrong with the store in folder `path`, one line each; a broker may be running on it.

    `progress` is called with (chunks checked, chunks in all). Raises StoreError when there is no store or it cannot be looked at.
    """
    file = path / DATABASE
    with looking(path) as connection:
        yield from _length(connection, file)
        yield from (f"{file}: {problem}" for problem in _pages(connection, "", whole=True))
        yield from _rows(connection, file)
        yield from _places(connection, file)
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


def _pages(connection: sqlite3.Connection, table: str, *, whole: bool = False) -> Iterator[str]:
    check = "integrity_check" if whole else "quick_check"
    for (text,) in connection.execute(f"PRAGMA {check}({table})" if table else f"PRAGMA {check}"):
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


def _places(connection: sqlite3.Connection, file: Path) -> Iterator[str]:
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


def _blobs(connection: sqlite3.Connection, file: Path, progress: Callable[[int, int], None] | None) -> Iterator[str]:
    (total,) = connection.execute("SELECT count(*) FROM chunk").fetchone()
    select = "SELECT log, first, count, messages, newest, size, blob FROM chunk ORDER BY id"
    for at, (log, *said, size, blob) in enumerate(connection.execute(select), 1):
        where = f"{file}: log {log}, chunk at offset {said[0]}"
        if not isinstance(blob, bytes):
            yield f"{where}: the row has no blob"
            continue
        try:
            found = chunks.verify(blob, where)
        except StoreError as error:
            yield error.message
        else:
            if said != [found.first, found.count, found.messages, found.newest] or size != len(blob):
                yield f"{where}: the row does not say what the chunk says"
        if progress:
            progress(at, total)
