"""The data folder: the owner's alone, one broker at a time, and what the disk says in our own words.

Decides who may use the folder and what a failure is called. What the files hold is decided in schema.py and chunks.py.

| file          | what                                                                                    |
|---------------|-----------------------------------------------------------------------------------------|
| stompbox.db   | the database; stompbox.db-wal and stompbox.db-shm beside it while a broker runs or after a crash |
| stompbox.journal | small commits that are not in the database yet (journal.py); while a broker runs or after a crash |
| stompbox.watermark | what was durable last (watermark.py); 4 KiB, and it stays |
| definitions.toml | what was defined at run time (server/definitions.py); once something was |
| stompbox.drained | empty; it is there while a node of a cluster is not to lead by itself (server/cluster/node.py) |
| stompbox.nodes | where the other nodes of a cluster were reached, a `host:port` in each line (server/cluster/snapshots.py) |
| stompbox.lock | held with flock(2) for life, so that a crash frees it; holds the process id, for the message only |
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from stompbox.errors import StoreError
from stompbox.syncing import sync

try:
    from fcntl import LOCK_EX, LOCK_NB, flock

    HAS_LOCKS = True
except ImportError:  # Windows
    HAS_LOCKS = False

NO_LOCKS: Final = (
    "this system has no file locks (flock), which keep a second broker out; `memory = true` or --memory does without a folder, and a "
    "container or WSL has them"
)
DATABASE: Final = "stompbox.db"
JOURNAL: Final = "stompbox.journal"
LOCK: Final = "stompbox.lock"
DRAINED: Final = "stompbox.drained"
NODES: Final = "stompbox.nodes"
WATERMARK: Final = "stompbox.watermark"
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600

# SQLite's result codes (https://www.sqlite.org/rescode.html), the primary ones but where one says more -> our code, and what it
# means for who reads it.
_CODES: Final = {
    "SQLITE_FULL": ("disk-full", "the disk is full"),
    "SQLITE_IOERR_SHMSIZE": ("disk-full", "the disk has no room for the index of the write-ahead log"),
    "SQLITE_IOERR": ("io-error", "the disk reports an error"),
    "SQLITE_CORRUPT": ("data-corrupt", "the file is damaged"),
    "SQLITE_NOTADB": ("data-corrupt", "the file is damaged or no database"),
    "SQLITE_READONLY": ("data-not-writable", "the file cannot be written"),
    "SQLITE_CANTOPEN": ("data-not-writable", "the file cannot be opened"),
    "SQLITE_PERM": ("data-not-writable", "the file cannot be opened"),
    "SQLITE_BUSY": ("data-in-use", "another program has locked the file"),
    "SQLITE_LOCKED": ("data-in-use", "another program has locked the file"),
    "SQLITE_PROTOCOL": ("data-in-use", "another program has locked the file"),
    "SQLITE_TOOBIG": ("message-too-large", "more than the file format can hold in one piece"),
}

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def store_refused(error: OSError, what: str) -> StoreError:
    return StoreError(
        "disk-full" if error.errno in FULL else "data-not-writable", f"{what}: {error.strerror or error}"
    )


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """What SQLite said, with our code and the file's name."""
    name = getattr(error, "sqlite_errorname", "") or ""
    primary = "_".join(name.split("_")[:2])  # SQLITE_IOERR_FSYNC is a kind of SQLITE_IOERR
    code, meaning = _CODES.get(name if name in _CODES else primary, ("store-failed", "the database refused"))
    return StoreError(code, f"{path}: {meaning} ({error}{', ' + name if name else ''})")


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """What SQLite raises becomes a StoreError that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, file) from error


def prepare_folder(path: Path) -> None:
    """Makes the folder if need be. One that was there and is not empty keeps its mode: it may be somebody else's too."""
    if not HAS_LOCKS:
        raise StoreError("no-file-locks", f"data folder {path}: {NO_LOCKS}")
    if path.is_file():
        raise store_refused(
            NotADirectoryError(errno.ENOTDIR, "a file is there, and no folder"), f"data folder {path}"
        )
    try:
        new = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        for folder in new:
            sync_folder(folder.parent)
        if next(path.iterdir(), None) is None and path.stat().st_uid == os.geteuid():
            path.chmod(FOLDER_MODE)
    except OSError as error:
        raise store_refused(error, f"data folder {path}") from error


def sync_folder(path: Path) -> None:
    """A new name in a folder outlives a power loss only when the folder itself was synced."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def lock_folder(path: Path) -> int:
    """The descriptor that holds the lock; closing it frees the folder. Raises StoreError `data-in-use`."""
    file = path / LOCK
    try:
        descriptor = _open_lock(file)
    except OSError as error:
        raise store_refused(error, str(file)) from error
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StoreError(
            "data-in-use", f"data folder {path} is in use by another broker (process {owner or 'unknown'})"
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise StoreError("data-not-writable", f"{file}: {error.strerror or error}") from error
    with suppress(OSError):  # a full disk must not keep a broker from starting
        os.pwrite(descriptor, b"%-20d\n" % os.getpid(), 0)
    return descriptor


def _open_lock(file: Path) -> int:
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        if error.errno != errno.EROFS or not file.is_file():
            raise
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)  # it can be locked all the same


def make_file(path: Path) -> None:
    """An empty file of the owner's alone, unless it is there; SQLite gives its other files the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
    except OSError as error:
        raise store_refused(error, str(path)) from error
