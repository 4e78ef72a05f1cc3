"""Opening a store to look at it: somebody's who may be using it right now, or nobody's. Nothing is made and nothing is changed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stompbox.errors import StoreError
from stompbox.store import schema
from stompbox.store.folder import DATABASE, store_error
from stompbox.store.mending import log_damage


def database_of(path: Path) -> Path:
    """The file of the store in folder `path`. Raises StoreError `data-not-found` or `data-not-writable`, and says what is there instead."""
    file = path / DATABASE
    try:
        if not path.is_dir():
            what = "is no folder" if path.exists() else "there is no such folder"
            raise StoreError("data-not-found", f"data folder {path}: {what}")
        names = os.listdir(path)
    except OSError as error:
        raise StoreError("data-not-writable", f"data folder {path}: {error.strerror or error}") from error
    if DATABASE not in names:
        what = "it is empty" if not names else f"there is no {DATABASE} in it"
        raise StoreError("data-not-found", f"data folder {path}: no store, {what}")
    if not os.access(file, os.R_OK, effective_ids=True):
        raise StoreError("data-not-writable", f"{file}: the file cannot be read by this user")
    return file


def _connect(file: Path) -> sqlite3.Connection:
    """What lies where nothing can be written, as a backup may, is read as it is: SQLite would want to make a write-ahead log beside it."""
    is_still = not file.with_name(f"{DATABASE}-wal").exists() and not os.access(
        file.parent, os.W_OK, effective_ids=True
    )
    if not is_still:
        return schema.connect(file)
    return schema.connect_as_it_is(file)


@contextmanager
def inspecting(path: Path) -> Iterator[sqlite3.Connection]:
    """One view of the store in folder `path`, whatever a broker writes meanwhile.

    Raises StoreError: `data-not-found`, `data-not-writable`, `data-corrupt` for what is no store of ours, `data-too-new`.
    """
    file = database_of(path)
    wrong = log_damage(path)
    if wrong:
        raise StoreError("data-corrupt", wrong)
    try:
        connection = _connect(file)
    except sqlite3.Error as error:
        raise store_error(error, file) from error
    try:
        connection.execute("PRAGMA query_only = ON")
        schema.refuse_foreign(connection, file)
        connection.execute("BEGIN")
        if not schema.is_made(connection):
            raise StoreError("data-corrupt", f"{file}: an empty database, no store was ever made in it")
        yield connection
    except sqlite3.Error as error:
        raise store_error(error, file) from error
    finally:
        connection.close()
