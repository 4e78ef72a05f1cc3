"""Putting right what can be put right before SQLite reads its write-ahead log, which ends at the first fault without a word.

A flipped bit that is known is turned back. One that is in a frame, nobody knows where, stays: the frame and those behind it get
checksums for what they hold, so that SQLite takes them all, and what is in them is found by the checks of rows, chunks and pages,
as in the database itself. A header that is damaged beyond that cannot be read by anybody.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from stompbox.errors import StoreError
from stompbox.store import wal
from stompbox.store.folder import DATABASE, HAS_LOCKS, LOCK
from stompbox.store.losses import Losses, kept, write_back


def log_of(path: Path) -> Path:
    return path / f"{DATABASE}-wal"


def mend_log(path: Path, losses: Losses, lacks_confirmed: Callable[[], bool]) -> Path | None:
    """Mends the log, for who has the folder to himself. Returns a copy that was kept of what may be damage, or what a crash cut short.

    `lacks_confirmed`: whether SQLite, left alone, finds less than was confirmed. Only then is anything mended: after a loss of power a
    frame may be one bit away from an older one, of before a checkpoint, which must not be made whole again and undo what came after it.
    Raises StoreError: `data-corrupt`, and what the disk refuses.
    """
    file = log_of(path)
    data = _content(file)
    found = wal.read(data)
    if found.is_headless:
        losses.corrupt(f"{file}: the header is damaged, so that nothing in it can be read")
        kept(file)
        return None
    if found.is_damaged and lacks_confirmed():
        copy = kept(file)
        for at, bit in found.flipped:
            write_back(file, {at: bytes((data[at] ^ 1 << bit,))})
            losses.tell(
                "data-repaired",
                f"{file}: bit {bit} of byte {at} had flipped and was turned back; as it was: {copy.name}",
            )
        for frame in found.spoiled:
            write_back(file, wal.resealed(_content(file), frame, found.frames))
            what = f"a bit of frame {frame} has flipped, nobody can tell which; it is taken as it is, and checked"
            losses.tell("data-repaired", f"{file}: {what}; as it was: {copy.name}")
    return kept(file) if found.beyond else None


def log_damage(path: Path, *, is_ours: bool = False) -> str:
    """What is wrong with the write-ahead log in the folder, in words; empty where nothing is, or where a broker has it in use.

    `is_ours`: the caller has the folder to himself.
    """
    found = wal.read(_content(log_of(path))) if is_ours or not _is_in_use(path) else wal.LogContent()
    if not found.is_damaged:
        return ""
    where = "the header" if found.is_headless else ", ".join(f"byte {at}" for at, _ in found.flipped)
    where = where or f"frame {found.spoiled[0]}"
    return f"{log_of(path)}: damaged ({where}); a broker that starts puts right what it can, SQLite alone would pass over the rest"


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError("io-error", f"{file}: {error.strerror or error}") from error


def _is_in_use(path: Path) -> bool:
    """Whether a broker holds the lock of the folder."""
    if not HAS_LOCKS:
        return False
    import fcntl

    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
