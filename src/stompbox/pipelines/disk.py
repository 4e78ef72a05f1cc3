"""The file operations that tables are made of: each is whole or not at all, and on the disk when it returns.

Decides how a file is put in place, not which. Tests cut the power at each call of these.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from stompbox import syncing
from stompbox.errors import UsageError

try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
except ImportError:  # Windows
    raise UsageError(
        "no-file-locks",
        "pipelines need file locks (flock), which this system has not: run them in a container or WSL",
    ) from None

LOCK: Final = "_lock"
READERS: Final = "_readers"
_WIDTH: Final = 20  # of a process's number in its file


def write(path: Path, data: bytes) -> None:
    """A file with this content, in place of one that may be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        syncing.sync(file.fileno())
    rename(beside, path)


def rename(source: Path, target: Path) -> None:
    """Within one filesystem; a file that is there gives way."""
    source.replace(target)
    sync(target.parent)


def move(source: Path, target: Path) -> None:
    """A file of data, written by somebody who did not wait for the disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    sync(source)
    rename(source, target)


def link(source: Path, target: Path) -> None:
    """A second name of a file; a copy where the filesystem has no such names."""
    beside = target.with_name(f".{target.name}.new")
    beside.unlink(missing_ok=True)
    try:
        os.link(source, beside)
    except OSError:
        shutil.copy2(source, beside)
        sync(beside)
    rename(beside, target)


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Waits for the disk; of a folder: for the names in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        syncing.sync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else changes the table meanwhile, in this process or another. The system lets go of it when a process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """No file that a reader may have listed is removed meanwhile. Who may not write here has only the time that such files stay."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(folder / READERS, os.O_RDWR | os.O_CREAT, 0o644)
        flock(descriptor, LOCK_SH)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def unread(folder: Path) -> Iterator[bool]:
    """Is nobody reading? If so, nobody begins to until this ends."""
    descriptor = os.open(folder / READERS, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _is_taken(descriptor)
    finally:
        os.close(descriptor)


def _is_taken(descriptor: int) -> bool:
    """Takes a lock for its own alone, unless somebody has it."""
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def owned(file: Path) -> Iterator[int]:
    """Takes the file for this process and gives 0; or gives the number of the process that has it, or -1 where that cannot be told.

    The lock is the system's, which lets go of it when the process dies: the number in the file is only for those who ask who it is.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _is_taken(descriptor):
            owner = os.pread(descriptor, _WIDTH, 0).strip()
            yield int(owner) if owner.isdigit() else -1
            return
        with suppress(OSError):  # a full disk is for the run to find
            os.pwrite(descriptor, b"%-*d" % (_WIDTH, os.getpid()), 0)
        yield 0
    finally:
        os.close(descriptor)
