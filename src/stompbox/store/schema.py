"""The database: its tables, its version, and how a connection is set up.

How to change the tables:
  1. Raise SCHEMA_VERSION by one and change TABLES to what a new database gets.
  2. Add to MIGRATIONS, under the OLD version, the statements that make the new out of the old. They run in one transaction.
  3. Keep a database of the old version, compressed, as tests/store/data/version-N.db.gz: a test opens each of them.
Never change what a version that was released means.

| table  | a row is                                              | written                                             |
|--------|-------------------------------------------------------|-----------------------------------------------------|
| log    | a log; floor DROPPED: gone, and its chunks are going  | when made or dropped, and when changes are folded in |
| cursor | a cursor; ahead: ranges as MessagePack (starts, stops) | the same                                            |
| change | what one commit moved: next offsets, floors, acknowledgements | per commit; folded into log and cursor after a while |
| delivery | how often messages were delivered to a cursor; the highest id counts | per commit; deleted when the cursor is past it |
| entry  | one entry of the catalogue                            | per commit                                          |
| part, name | large bodies (parts.py)                           |                                                     |
| chunk  | one chunk; all but the blob stands in the index too   | per commit; deleted when below its log's floor      |

The blob is the last column and the index covers the others, so that nothing but `read` touches the pages a blob lies on.
Rows other than chunks carry a checksum of their values: SQLite finds a damaged page, not a flipped bit in a value. One entry says
what the rows of chunk and part come to, and the number of the transaction (totals.py); since version 4.

Settings by measurement (bench/store.py): pages of 8 KiB write a chunk of 1 MB with a quarter less CPU than 4 KiB and give
file space back eight times faster when queues were drained in mixed order, for 0.02 ms more per tiny commit; beyond 8 KiB
both commits get slower. secure_delete would write every page that is freed; files are the owner's alone instead.
"""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path
from typing import Final

from msgspec import msgpack

from stompbox.errors import StoreError
from stompbox.store.totals import KEY, JournalState, counted

APPLICATION_ID: Final = 0x53544F42
SCHEMA_VERSION: Final = 4
PAGE: Final = 8192  # bytes
DROPPED: Final = 1 << 62  # the floor of a log that is gone
WAL_FILE: Final = 32 << 20  # bytes; what a very large commit made longer is cut to this
CACHE: Final = 8192  # KiB, for the writer; a reader keeps the default of 2 MiB

_LARGE_BODIES: Final = (
    """CREATE TABLE part (
        body INTEGER NOT NULL, number INTEGER NOT NULL, checksum INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (body, number))""",
    """CREATE TABLE name (
        log INTEGER NOT NULL, first INTEGER NOT NULL, stop INTEGER NOT NULL, body INTEGER NOT NULL, size INTEGER NOT NULL,
        checksum INTEGER NOT NULL)""",
    "CREATE INDEX name_place ON name (log, first, stop)",
    "CREATE INDEX name_body ON name (body)",
)
_DELIVERY: Final = (
    """CREATE TABLE delivery (
        id INTEGER PRIMARY KEY, cursor INTEGER NOT NULL, first INTEGER NOT NULL, stop INTEGER NOT NULL, deliveries INTEGER NOT NULL,
        failures INTEGER NOT NULL, checksum INTEGER NOT NULL)""",
    "CREATE UNIQUE INDEX delivery_place ON delivery (cursor, first, stop)",
)
TABLES: Final = (
    """CREATE TABLE log (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, next INTEGER NOT NULL, floor INTEGER NOT NULL, checksum INTEGER NOT NULL)""",
    """CREATE TABLE cursor (
        id INTEGER PRIMARY KEY, log INTEGER NOT NULL, position INTEGER NOT NULL, checksum INTEGER NOT NULL, ahead BLOB NOT NULL)""",
    """CREATE TABLE change (
        id INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, data BLOB NOT NULL)""",
    *_DELIVERY,
    """CREATE TABLE entry (
        kind TEXT NOT NULL, key TEXT NOT NULL, checksum INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID""",
    """CREATE TABLE chunk (
        id INTEGER PRIMARY KEY, log INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, messages INTEGER NOT NULL,
        newest INTEGER NOT NULL, size INTEGER NOT NULL, blob BLOB NOT NULL)""",
    "CREATE INDEX chunk_place ON chunk (log, first, count, messages, newest, size)",
    *_LARGE_BODIES,
)
MIGRATIONS: dict[int, tuple[str, ...]] = {1: _LARGE_BODIES, 2: _DELIVERY, 3: ()}


def checksum(*values: object) -> int:
    """The CRC-32 of the values of a row."""
    return zlib.crc32(msgpack.encode(values))


def outline(connection: sqlite3.Connection) -> int:
    """Checksum of which tables and indices there are, and on which pages they begin."""
    rows = connection.execute(
        "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema ORDER BY name"
    ).fetchall()
    return checksum(*map(list, rows))


def connect(path: Path) -> sqlite3.Connection:
    """A connection that any thread may use, one at a time; transactions are begun and ended by hand."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)


def connect_to_read(path: Path) -> sqlite3.Connection:
    """One that writes nothing, also no checkpoint when it is closed as the last one."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def connect_as_it_is(path: Path) -> sqlite3.Connection:
    """Connects to a file that nobody writes to, and beside which nothing can be made: only what is in the file itself is seen."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?immutable=1", uri=True, isolation_level=None, check_same_thread=False
    )


def prepare(connection: sqlite3.Connection, path: Path, *, synchronous: bool) -> None:
    """Sets up the writer's connection, makes the tables in a new file and brings those of an old one up to date."""
    # Both must be set before the first page is written, page_size before WAL as well.
    for setting in (f"page_size = {PAGE}", "auto_vacuum = INCREMENTAL"):
        connection.execute(f"PRAGMA {setting}")
    refuse_foreign(connection, path)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            "data-not-writable",
            f"{path}: the file system cannot do write-ahead logging (journal mode {mode})",
        )
    for setting in (
        f"synchronous = {'FULL' if synchronous else 'OFF'}",
        "wal_autocheckpoint = 0",  # the store checkpoints when it suits
        "fullfsync = ON",  # of macOS alone: syncing.py
        "checkpoint_fullfsync = ON",
        "secure_delete = OFF",
        "cell_size_check = ON",
        f"cache_size = -{CACHE}",
        f"journal_size_limit = {WAL_FILE}",
    ):
        connection.execute(f"PRAGMA {setting}")
    _migrate(connection, path)


def refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreError(
            "data-corrupt", f"{path}: a database of another program (application id {application:#x})"
        )
    if version > SCHEMA_VERSION:
        newest = f"this broker knows versions up to {SCHEMA_VERSION}"
        raise StoreError(
            "data-too-new", f"{path}: written by a newer broker (schema version {version}, {newest})"
        )


def is_made(connection: sqlite3.Connection) -> bool:
    """Whether there are tables. A broker that was killed in its first moment leaves a file without any."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return bool(tables)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    if not version:
        steps: list[tuple[str, ...]] = [TABLES, (f"PRAGMA application_id = {APPLICATION_ID}",)]
    else:
        steps = [MIGRATIONS[old] for old in range(version, SCHEMA_VERSION)]
    for statements in steps:
        for statement in statements:
            connection.execute(statement)
    _count(connection)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _count(connection: sqlite3.Connection) -> None:
    """The state of what was made or brought up to date."""
    found = connection.execute("SELECT value FROM entry WHERE kind = ? AND key = ?", KEY).fetchone()
    state = msgpack.decode(found[0], type=JournalState) if found is not None else JournalState()
    state.totals, state.schema = counted(connection), outline(connection)
    packed = msgpack.encode(state)
    put = "INSERT OR REPLACE INTO entry (kind, key, checksum, value) VALUES (?, ?, ?, ?)"
    connection.execute(put, (*KEY, checksum(*KEY, packed), packed))
