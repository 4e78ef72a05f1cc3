"""Copies of a store: taken while a broker runs, looked through before they count, and put back into an empty folder.

A backup is a data folder like any other: a broker can be started on it. Until it is whole and was looked through, its file is
called PARTIAL, which no broker opens.

The copy of a node of a cluster is of no cluster. Its logs are others from
where it ends on (incarnations.py): a broker on it, and the one that was copied, give the same offsets to messages of their own.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from stompbox.config.definitions import FILE as DEFINITIONS
from stompbox.errors import StoreError
from stompbox.incarnations import ID_OCTETS, NewId, of_copy
from stompbox.store import watermark
from stompbox.store.base import CLUSTER, Commit
from stompbox.store.check import damage
from stompbox.store.folder import (
    DATABASE,
    JOURNAL,
    LOCK,
    lock_folder,
    make_file,
    prepare_folder,
    store_error,
    store_refused,
    sync_folder,
)
from stompbox.store.inspection import database_of, inspecting
from stompbox.store.journal import content
from stompbox.store.journaled import complete
from stompbox.store.sqlite import SqliteStore
from stompbox.syncing import sync

PARTIAL: Final = "partial"  # a folder in the copy's folder; the copy is made in it
_PAGES: Final = 256  # copied between two calls of `progress`

Progress = Callable[[int, int], None]
_RANDOM: Final = lambda: os.urandom(ID_OCTETS).hex()  # noqa: E731


def copy(
    source: Path,
    target: Path,
    copied: Progress | None = None,
    checked: Progress | None = None,
    *,
    new_id: NewId = _RANDOM,
    is_same: bool = False,
) -> int:
    """Copies the store of folder `source`, which a broker may be writing to, as of now. Returns the size of the file.

    `target` is a folder that is not there or empty. `copied` is called with (pages copied, pages in all), `checked` with (chunks
    checked, chunks in all). `is_same`: its logs are no others, because it goes on with what the source goes on with. What is left of a
    copy that failed is removed. Raises StoreError: as `inspecting` for the source, `folder-not-empty`, `data-corrupt` when the source
    is damaged, `disk-full`, `io-error`, `data-not-writable` for the target.
    """
    database_of(source)
    refuse_used(target)
    prepare_folder(target)
    lock = lock_folder(target)
    partial = target / PARTIAL
    try:
        prepare_folder(partial)
        confirmed = watermark.read(source).sequence
        # before the database: what goes there meanwhile is in the copy by then
        journal = _read_journal(source)
        _copy_pages(source, partial / DATABASE, copied)
        for problem in damage(partial, checked):
            raise StoreError(
                "data-corrupt",
                f"the copy of {source} is damaged, `stompbox store check` says where it comes from: {problem}",
            )
        with closing(SqliteStore(partial)) as store:
            complete(store, journal, confirmed)
            if not is_same:
                found = store.recover().entries
                left = {entry: None for entry in found if entry[0] == CLUSTER}
                store.apply(Commit(entries={**left, **of_copy(found, store.ends(), new_id)}))
        if not is_same:
            _copy_definitions(source, target)
        return _put_in_place(partial, target)
    except BaseException:
        with suppress(OSError):
            _remove(partial)
            (target / DEFINITIONS).unlink(missing_ok=True)
            (target / LOCK).unlink()
        raise
    finally:
        os.close(lock)


def refuse_used(target: Path) -> None:
    """Raises StoreError `folder-not-empty` where something is there that a copy would overwrite or mix with."""
    try:
        if not target.exists():
            return
        if not target.is_dir():
            raise StoreError(
                "folder-not-empty", f"{target} is a file; what is wanted is a folder that is new or empty"
            )
        found = sorted(name for name in os.listdir(target) if name != LOCK)
    except OSError as error:
        raise StoreError("data-not-writable", f"folder {target}: {error.strerror or error}") from error
    if found:
        what = (
            "a store"
            if DATABASE in found
            else f"{found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''}"
        )
        raise StoreError(
            "folder-not-empty",
            f"folder {target} is not empty: {what} is in it. Nothing was changed; name a new folder",
        )


def _read_journal(source: Path) -> bytes:
    file = source / JOURNAL
    try:
        return content(file)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError("data-not-writable", f"{file}: {error.strerror or error}") from error


def _copy_pages(source: Path, file: Path, copied: Progress | None) -> None:
    with inspecting(source) as connection:
        # from here on it is one view: a commit does not begin it anew
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        make_file(file)
        try:
            with closing(sqlite3.connect(file)) as copy:
                connection.backup(
                    copy,
                    pages=_PAGES,
                    progress=None if copied is None else lambda _, left, total: copied(total - left, total),
                )
        except sqlite3.Error as error:
            raise store_error(error, file) from error


def _copy_definitions(source: Path, target: Path) -> None:
    """What was defined at run time, which the broker writes whole or not at all."""
    try:
        octets = (source / DEFINITIONS).read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(
            "data-not-writable", f"{source / DEFINITIONS} cannot be read: {error.strerror or error}"
        ) from error
    file = target / DEFINITIONS
    make_file(file)
    try:
        with file.open("wb") as copied:
            copied.write(octets)
            copied.flush()
            sync(copied.fileno())
    except OSError as error:
        raise store_refused(error, str(file)) from error


def _put_in_place(partial: Path, target: Path) -> int:
    """The name comes last: what has it is whole and on the disk."""
    file = partial / DATABASE
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync(descriptor)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        file.rename(target / DATABASE)
        _remove(partial)
        sync_folder(target)
        return size
    except OSError as error:
        raise StoreError("io-error", f"{target}: {error.strerror or error}") from error


def _remove(folder: Path) -> None:
    if folder.is_dir():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
