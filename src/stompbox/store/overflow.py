"""Blobs of chunks of a broker that keeps nothing: in files without a name, which are gone with the process.

They lie where temporary files lie (TMPDIR). A file is filled once, from front to end, and goes when none of its blobs is needed any
more: a backlog is read and dropped in the order in which it came, so the disk has little more than what is there.
"""

from __future__ import annotations

import errno
import os
import tempfile
from typing import Final
from weakref import finalize

from stompbox.errors import StoreError
from stompbox.store.positioned import read_at, write_at

FILE_BYTES: Final = 32 << 20  # about; then the next one is begun


class _File:
    """One of the files. It closes, and is gone, with the last blob that lies in it."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="stompbox-", buffering=0) as file:
            self.descriptor = os.dup(file.fileno())
        finalize(self, os.close, self.descriptor)
        self.end = 0

    def write(self, data: bytes) -> None:
        rest, at = memoryview(data), self.end
        while rest:
            written = write_at(self.descriptor, rest, at)
            rest, at = rest[written:], at + written
        self.end = at


class Blob:
    """Where one blob lies in the files. It is `len` bytes long; `read` gives them."""

    __slots__ = ("_at", "_file", "_size")

    def __init__(self, file: _File, at: int, size: int) -> None:
        self._file = file
        self._at = at
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self) -> bytes:
        return read_at(self._file.descriptor, self._size, self._at)


class Overflow:
    """Keeps blobs in temporary files. The first file is made with the first blob."""

    def __init__(self, *, file_bytes: int = FILE_BYTES) -> None:
        self._most = file_bytes
        self._current: _File | None = None

    def put(self, data: bytes) -> Blob:
        """Raises StoreError; then nothing is kept of it."""
        try:
            if self._current is None or self._current.end >= self._most:
                self._current = _File()
            at = self._current.end
            self._current.write(data)
        except OSError as error:
            code = "disk-full" if error.errno == errno.ENOSPC else "io-error"
            raise StoreError(
                code, f"temporary file in {tempfile.gettempdir()}: {error.strerror or error}"
            ) from error
        return Blob(self._current, at, len(data))

    def __repr__(self) -> str:
        return (
            f"<Overflow {'unused' if self._current is None else f'at {self._current.end} of {self._most}'}>"
        )
