"""The file operations that tables are made of: each is whole or not at all, and on the disk when it returns.

Decides how a file is put in place, not which. Tests cut the power at each call of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Final

LOCK: Final = "_lock"


def write(path: Path, data: bytes) -> None:
    """A file with this content, in place of one that may be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
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


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Waits for the disk; of a folder: for the names in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
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
