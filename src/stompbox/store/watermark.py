"""The high-water mark: what was durable last, kept beside the database and the journal, where damage to either does not reach.

    copy     <8s QQ QQ>       magic, the transactions of the database, the sequence in the journal, then the complements of both

The file is one page, mapped into memory, with two copies in sectors of their own; the higher one counts. It is written after what it
speaks of is on the disk, and itself never flushed: after a kill it is exact, because the kernel has it, and after a loss of power it
is what was there some time before. So it is never ahead, and a database or a journal that has less than it says has lost something.
"""

from __future__ import annotations

import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from stompbox.errors import StoreError
from stompbox.store.folder import WATERMARK, make_file
from stompbox.store.losses import Losses
from stompbox.syncing import sync

SIZE: Final = 4096  # bytes of the file
COPIES: Final = (0, 2048)  # where they stand
_TURNS: Final = ((COPIES[0],), (COPIES[1],))
_COPY: Final = struct.Struct("<8sQQQQ")
_MAGIC: Final = b"SBwater1"
_ALL: Final = (1 << 64) - 1


class Mark(NamedTuple):
    transactions: int = 0  # of the database
    sequence: int = 0  # of the journal


class Watermark:
    """The watermark of the data folder `path`. Where there is no room for its file it keeps nothing, and `found` is what was there."""

    def __init__(self, path: Path, losses: Losses) -> None:
        self.file = path / WATERMARK
        self.found = Mark()
        try:
            self.found = read(path)
        except StoreError as error:
            losses.corrupt(error.message)
        self._transactions, self._sequence = self.found
        self._page: mmap.mmap | None = None
        with suppress(OSError, StoreError):
            self._page = self._mapped()

    def _mapped(self) -> mmap.mmap:
        make_file(self.file)
        descriptor = os.open(self.file, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size != SIZE:
                # Written, not only made longer: a page without a place on the disk would be a fault of memory on a full one.
                if os.pwrite(descriptor, bytes(SIZE), 0) != SIZE:
                    raise OSError("no room")
                sync(descriptor)
            return mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)

    def committed(self, transactions: int) -> None:
        """Writes down that the database has so many transactions, durably."""
        self._transactions = transactions
        self._put(COPIES)

    def begun(self, sequence: int) -> None:
        """The journal goes on from this record, whatever was said before."""
        self._sequence = sequence
        self._put(COPIES)

    def appended(self, sequence: int) -> None:
        """The journal has this record, durably. Its copies take turns: where one is damaged, nothing else is."""
        self._sequence = sequence
        self._put(_TURNS[sequence & 1])

    def _put(self, places: tuple[int, ...]) -> None:
        page, transactions, sequence = self._page, self._transactions, self._sequence
        if page is not None:
            for at in places:
                _COPY.pack_into(
                    page, at, _MAGIC, transactions, sequence, transactions ^ _ALL, sequence ^ _ALL
                )

    def close(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None

    def __repr__(self) -> str:
        return f"<Watermark {self._transactions} transactions, journal {self._sequence}{'' if self._page else ', not kept'}>"


def read(path: Path) -> Mark:
    """What was durable for certain; zeros where nobody has said so. Raises StoreError `data-corrupt`."""
    file = path / WATERMARK
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return Mark()
    except OSError as error:
        raise StoreError("io-error", f"{file}: {error.strerror or error}") from error
    if not any(data):
        return Mark()
    marks = []
    for at in COPIES:
        if len(data) >= at + _COPY.size:
            magic, transactions, sequence, *complements = _COPY.unpack_from(data, at)
            if magic == _MAGIC and complements == [transactions ^ _ALL, sequence ^ _ALL]:
                marks.append(Mark(transactions, sequence))
    if not marks:
        raise StoreError(
            "data-corrupt",
            f"{file}: both copies of the high-water mark are damaged: nobody can tell whether all is there",
        )
    return max(marks)
