"""The journal: a file of fixed size in which small commits are durable after one write, without company and without the database.

    head     <4s 16s I>         magic, the identity of the store, CRC-32 of both; then zeros up to the first record
    record   <4s I Q I>         magic, bytes of the payload, sequence, CRC-32 of identity, sequence and payload; then the payload

Little-endian. Each record begins on a sector of its own, so that a write that power loss cuts short harms no record before it.
The space is written with zeros once: after that no write changes the file's size, and syncing it is one turn of the disk. Where
the file system can (O_DIRECT), a record goes from its buffer to the disk, and nobody has to look for it among cached pages.
What the records say goes into the database later, many at once (journaled.py); then writing begins at the front again.

Reading takes records from the front as long as each has the sequence after the one before. Only the last one can be cut short,
because each is durable before the next is written: a good one behind a bad one means damage, and is named. The last one, too, is told
from one that was cut short: the CRC says which bit has flipped, when it was one, and what was confirmed stands in the high-water mark.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

from stompbox.errors import StoreError
from stompbox.store.folder import FULL, JOURNAL, make_file, sync_folder
from stompbox.syncing import sync

SIZE: Final = 4 << 20  # bytes; what is not in the database yet, and so what starting after a crash reads
LARGEST: Final = 256 << 10  # bytes of a payload
SECTOR: Final = 512  # bytes that a disk writes together, or not at all
FIRST: Final = 4096  # where the first record begins
IDENTITY: Final = 16  # bytes

_REFUSED: Final = (errno.EPERM, errno.EACCES, errno.EROFS)
_HEAD: Final = struct.Struct("<4s16sI")
_RECORD: Final = struct.Struct("<4sIQI")
_HEAD_MAGIC: Final = b"SBJ1"
_MAGIC: Final = b"SBjr"


def write_through(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Returns when the data is on the disk. One call where the system has one: nothing comes between writing and syncing."""
    if hasattr(os, "RWF_DSYNC"):
        if os.pwritev(descriptor, [data], offset, os.RWF_DSYNC) != len(data):
            raise OSError(errno.ENOSPC, "the system wrote less than it was given")
        return
    if os.pwrite(descriptor, data, offset) != len(data):
        raise OSError(errno.ENOSPC, "the system wrote less than it was given")
    sync(descriptor)


def content(file: Path) -> bytes:
    """What the disk has: pages that somebody read while it was written past the cache may be older. Raises OSError."""
    if hasattr(os, "O_DIRECT"):
        with suppress(OSError):
            return _uncached(file)
    return file.read_bytes()


def _uncached(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            return b""
        with mmap.mmap(-1, size) as pages, memoryview(pages) as view:
            at = 0
            while at < size and not at % SECTOR:
                with view[at:] as rest:
                    found = os.preadv(descriptor, [rest], at)
                if not found:
                    break
                at += found
            return pages[:at]
    finally:
        os.close(descriptor)


class Journal:
    """The journal of the data folder `path`; there is no file before `begin`. Raises StoreError `io-error`, `disk-full`,
    `data-not-writable`."""

    def __init__(self, path: Path) -> None:
        self.file = path / JOURNAL
        self.identity = b""
        self._descriptor = -1
        self._is_direct = False  # what is written must begin and end with a sector, in memory too
        # for a record; its memory is taken when it is used
        self._space = memoryview(mmap.mmap(-1, _space(LARGEST)))
        self._at = FIRST

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def begin(self, identity: bytes) -> None:
        """Makes the file, durably, or takes the one that is there."""
        self.identity = identity
        head = _head(identity)
        with self._named():
            make_file(self.file)
            self._descriptor = os.open(self.file, os.O_RDWR | os.O_CLOEXEC)
            if os.fstat(self._descriptor).st_size != SIZE or os.pread(self._descriptor, len(head), 0) != head:
                write_through(self._descriptor, bytes(SIZE), 0)
                write_through(self._descriptor, head, 0)
                sync_folder(self.file.parent)
            self._open(direct=hasattr(os, "O_DIRECT"))

    def _open(self, *, direct: bool) -> None:
        """Anew: past the cache, or through it where the file system has no other way."""
        before, self._is_direct = self._descriptor, False
        if direct:
            with suppress(OSError):
                self._descriptor = os.open(self.file, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT)
                self._is_direct = True
        if not self._is_direct:
            self._descriptor = os.open(self.file, os.O_RDWR | os.O_CLOEXEC)
        os.close(before)

    def fits(self, size: int) -> bool:
        """Whether a payload of so many bytes has room before writing begins at the front again."""
        return self._at + _RECORD.size + size <= SIZE

    def append(self, sequence: int, payload: bytes) -> None:
        """Returns when the record, of LARGEST bytes at the most, is durable."""
        space, end = self._space, _RECORD.size + len(payload)
        size = _space(len(payload))
        _RECORD.pack_into(
            space, 0, _MAGIC, len(payload), sequence, zlib.crc32(payload, _seed(sequence, self.identity))
        )
        space[_RECORD.size : end] = payload
        space[end:size] = bytes(size - end)
        try:
            self._write(space[:size])
        except OSError as error:
            raise self._failed(error) from error
        self._at += size

    def _write(self, data: memoryview) -> None:
        try:
            write_through(self._descriptor, data, self._at)
        except OSError as error:
            if not (self._is_direct and error.errno == errno.EINVAL):
                raise
            self._open(direct=False)  # its sectors are larger than ours
            write_through(self._descriptor, data, self._at)

    def restart(self) -> None:
        """Begins the file anew, when all of it is in the database: the next record is written over the first one."""
        self._at = FIRST

    def read(self, after: int) -> Found:
        """What the file holds for a database that has the records up to `after`."""
        with self._named():
            return examined(content(self.file), self.identity, after)

    def remove(self) -> None:
        """Removes the file, of which nothing is needed any more."""
        self.close()
        with self._named():
            self.file.unlink(missing_ok=True)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StoreError:
        code = (
            "disk-full"
            if error.errno in FULL
            else "data-not-writable"
            if error.errno in _REFUSED
            else "io-error"
        )
        return StoreError(code, f"{self.file}: {error.strerror or error}")

    def __repr__(self) -> str:
        return f"<Journal {self.file} {self._at - FIRST} of {SIZE - FIRST} bytes>"


@dataclass(slots=True)
class Found:
    """What a journal holds that the database has not, and what is wrong with it."""

    records: list[tuple[int, bytes]] = field(default_factory=list)  # (sequence, payload)
    beyond: list[tuple[int, bytes]] = field(default_factory=list)  # the same, behind damage
    # (byte, bit) that was turned over and is right again in the records
    flipped: list[tuple[int, int]] = field(default_factory=list)
    damage: str = ""
    last: int = 0  # sequence of the last record before any damage


def examined(data: bytes, identity: bytes, after: int) -> Found:
    """Reads a whole file as that of the store `identity`."""
    found = Found(last=after)
    flip = _flipped_head(data, identity)
    if flip is None:
        found.damage = (
            "belongs to another database than the one beside it"
            if identity_of(data)
            else "its head is damaged"
        )
        return found
    found.flipped += flip
    if len(data) < SIZE:
        found.damage = f"is cut short, {len(data)} of {SIZE} bytes"
    whole, end = _from_front(data, identity, found.flipped)
    found.records = [record for record in whole if record[0] > after]
    found.last = max(after, whole[-1][0] if whole else 0)
    for at in range(end, len(data), SECTOR):
        later = _record(data, at, identity) if data.startswith(_MAGIC, at) else None
        if later is not None and later[0] > found.last:
            found.beyond.append(later)
    if found.beyond:
        found.damage = found.damage or f"damaged before record {found.beyond[0][0]}, at byte {end}"
    elif found.records and found.records[0][0] > after + 1:
        found.damage = (
            found.damage or f"begins with record {found.records[0][0]}, the database ends with {after}"
        )
    return found


def _head(identity: bytes) -> bytes:
    return _HEAD.pack(_HEAD_MAGIC, identity, zlib.crc32(_HEAD_MAGIC + identity))


def _flipped_head(data: bytes, identity: bytes) -> list[tuple[int, int]] | None:
    """Bits in which the head is not that of the store: none, or one; None when it is another one altogether."""
    head = _head(identity)
    different = int.from_bytes(head, "little") ^ int.from_bytes(data[: len(head)], "little")
    if len(data) < FIRST or different.bit_count() > 1:
        return None
    return [divmod(different.bit_length() - 1, 8)] if different else []


def identity_of(data: bytes) -> bytes:
    """Which database a journal belongs to; empty when its head is damaged."""
    if len(data) < FIRST:
        return b""
    magic, identity, crc = _HEAD.unpack_from(data)
    return bytes(identity) if magic == _HEAD_MAGIC and crc == zlib.crc32(magic + identity) else b""


def _from_front(
    data: bytes, identity: bytes, flipped: list[tuple[int, int]]
) -> tuple[list[tuple[int, bytes]], int]:
    """The records that follow each other, with flipped bits turned back, and where they end."""
    found: list[tuple[int, bytes]] = []
    at = FIRST
    while at < len(data):
        record, flip = _record(data, at, identity), None
        if record is None:
            flip = _flip(data, at, identity)
            record = _record(_turned(data, at, *flip), at, identity) if flip is not None else None
        if record is None or (found and record[0] != found[-1][0] + 1):
            break
        if flip is not None:
            flipped.append(flip)
        found.append(record)
        at += _space(len(record[1]))
    return found, at


def _turned(data: bytes, at: int, place: int, bit: int) -> bytes:
    """The file from the record at `at` on, as far as it can reach, with one bit turned over; all else of it is left out."""
    end = at + _RECORD.size + LARGEST
    return bytes(at) + data[at:place] + bytes((data[place] ^ 1 << bit,)) + data[place + 1 : end]


def _flip(data: bytes, at: int, identity: bytes) -> tuple[int, int] | None:
    """The bit of the record at `at` that makes it whole when it is turned over, if there is one."""
    head = data[at : at + _RECORD.size]
    if (
        len(head) < _RECORD.size
        or (int.from_bytes(head[:4], "little") ^ int.from_bytes(_MAGIC, "little")).bit_count() > 1
    ):
        return None
    for place, bit in product(range(_RECORD.size), range(8)):
        size = _RECORD.unpack_from(
            bytes(head[:place] + bytes((head[place] ^ 1 << bit,)) + head[place + 1 :])
        )[1]
        if size <= LARGEST and _record(_turned(data, at, at + place, bit), at, identity) is not None:
            return at + place, bit
    magic, size, sequence, crc = _RECORD.unpack(head)
    payload = data[at + _RECORD.size : at + _RECORD.size + size]
    if magic != _MAGIC or size > LARGEST or len(payload) != size:
        return None
    found = _bit_of(zlib.crc32(payload, _seed(sequence, identity)) ^ crc, size)
    return (at + _RECORD.size + found[0], found[1]) if found is not None else None


def _bit_of(difference: int, size: int) -> tuple[int, int] | None:
    """Which one of so many bytes, and which bit of it, changes a CRC-32 by `difference` when it is turned over. At most one does.

    A CRC is linear: the difference is what the bit alone leaves behind after all bytes that follow it. They are taken off one by one.
    """
    table = _crc_table()
    ends = {entry >> 24: at for at, entry in enumerate(table)}  # no two entries have the same last byte
    alone = {table[1 << bit]: bit for bit in range(8)}
    for place in range(size - 1, -1, -1):
        if difference in alone:
            return place, alone[difference]
        at = ends[difference >> 24]
        difference = ((difference ^ table[at]) << 8 | at) & 0xFFFFFFFF
    return None


@cache
def _crc_table() -> list[int]:
    """What each byte leaves in the register of a CRC-32 (reflected polynomial 0xEDB88320)."""
    table = []
    for octet in range(256):
        register = octet
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
        table.append(register)
    return table


def _space(size: int) -> int:
    """Bytes that a record takes with its payload of so many."""
    return (_RECORD.size + size + SECTOR - 1) // SECTOR * SECTOR


def _record(data: bytes, at: int, identity: bytes) -> tuple[int, bytes] | None:
    if at + _RECORD.size > len(data):
        return None
    magic, size, sequence, crc = _RECORD.unpack_from(data, at)
    payload = data[at + _RECORD.size : at + _RECORD.size + size]
    if magic != _MAGIC or len(payload) != size or zlib.crc32(payload, _seed(sequence, identity)) != crc:
        return None
    return sequence, payload


def _seed(sequence: int, identity: bytes) -> int:
    return zlib.crc32(sequence.to_bytes(8, "little"), zlib.crc32(identity))
