"""Pieces of large bodies of a broker that keeps nothing: in one file without a name, which is gone with the process.

It lies where temporary files lie (TMPDIR). Places that are free again are used again; when all are free the file is emptied.
"""

from __future__ import annotations

import errno
import os
import tempfile
from weakref import finalize

from stompbox.errors import StoreError
from stompbox.store.base import PIECE
from stompbox.store.positioned import read_at, write_at


class Spool:
    """Pieces by (body, number), each in a place of PIECE bytes. The file is made with the first."""

    def __init__(self) -> None:
        self._descriptor = -1  # not there yet
        self._closing: finalize[[int], Spool] | None = None
        self._places: dict[int, dict[int, tuple[int, int]]] = {}  # by body, by number: place, size
        self._free: list[int] = []
        self._end = 0  # places that the file has

    def put(self, body: int, number: int, data: bytes) -> None:
        """Raises StoreError; then nothing is kept of the piece."""
        if len(data) > PIECE:
            raise StoreError(
                "message-too-large", f"a piece of {len(data)} bytes cannot be stored; the most is {PIECE}"
            )
        try:
            if self._closing is None:
                self._open()
            known = self._places.get(body, {}).get(number)
            place = known[0] if known is not None else self._free[-1] if self._free else self._end
            self._write(place * PIECE, data)
        except OSError as error:
            code = "disk-full" if error.errno == errno.ENOSPC else "io-error"
            raise StoreError(
                code, f"temporary file in {tempfile.gettempdir()}: {error.strerror or error}"
            ) from error
        if known is not None:
            pass
        elif self._free:
            self._free.pop()
        else:
            self._end += 1
        self._places.setdefault(body, {})[number] = place, len(data)

    def _open(self) -> None:
        with tempfile.TemporaryFile(prefix="stompbox-", buffering=0) as file:
            self._descriptor = os.dup(file.fileno())
        self._closing = finalize(self, os.close, self._descriptor)

    def _write(self, at: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = write_at(self._descriptor, rest, at)
            rest, at = rest[written:], at + written

    def get(self, body: int, number: int) -> bytes:
        found = self._places.get(body, {}).get(number)
        if found is None:
            raise StoreError("no-such-body", f"piece {number} of body {body} is not there (any more)")
        place, size = found
        return read_at(self._descriptor, size, place * PIECE)

    def drop(self, body: int) -> None:
        self._free.extend(place for place, _ in self._places.pop(body, {}).values())
        if not self._places and self._end:
            os.ftruncate(self._descriptor, 0)
            self._free, self._end = [], 0

    def close(self) -> None:
        if self._closing is not None:
            self._closing()

    def __len__(self) -> int:
        """How many bodies there are."""
        return len(self._places)

    def __repr__(self) -> str:
        return f"<Spool {len(self)} bodies places={self._end} free={len(self._free)}>"
