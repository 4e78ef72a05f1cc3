"""Chunks that lie in the store already, in the pieces of a body that a sink has staged: a row of chunk says where, and what they became.

    <II qqq IIIII 4x>  checksum, magic (SBC3), first, count, newest, messages, five zeros: the head of a chunk (chunks.py)
    <QQq>              the body, octets of the chunk in it, routing

The chunk itself begins with piece 1 of the body (piece 0 is the sink's summary). Its messages have neither gaps nor times, and shapes as
the broker writes them (server/requests/incoming.py). Whoever reads it gets it as if it had been encoded when it was published: at its
offset, arrived at `newest`, with its routing. So publishing writes none of it a second time; a row of table `name` keeps the pieces
(parts.py).

A broker of an earlier version says of such a row that its format is too new.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from stompbox.errors import StoreError
from stompbox.handles import Staged
from stompbox.message import Run
from stompbox.store.chunks import ELSEWHERE, HEAD, MAGIC, ROW, WITH_HANDLES, ChunkHead, decode, verify

KNOWN: Final = (MAGIC, WITH_HANDLES, ELSEWHERE)
_PLACE: Final = struct.Struct("<QQq")
_SIZE: Final = struct.Struct("<I")

ReadPart = Callable[[int, int], bytes]
"""A body and the number of a piece: the piece."""


def encode_staged(run: Run) -> bytes:
    """The row's blob for a run that is staged and has its offset."""
    bodies = run.bodies
    assert isinstance(bodies, Staged)
    count = len(bodies)
    fixed = (ELSEWHERE, run.first, count, run.arrived, count, 0, 0, 0, 0)
    body = bodies.body
    blob = HEAD.pack(0, *fixed) + _PLACE.pack(body.id, body.size, run.routing)
    return _SIZE.pack(zlib.crc32(blob[4:])) + blob[4:]


def is_elsewhere(blob: bytes) -> bool:
    return blob[4:8] == b"SBC3"


def has_rows(blob: bytes, rows: int, messages: int) -> bool:
    """Whether a chunk says itself that it is so many runs, of so many messages without gaps."""
    _, magic, _, count, _, said, _, _, runs, _ = HEAD.unpack_from(blob)
    return bool(magic == MAGIC and count == said == messages and runs == rows)


def chunk_size(blob: bytes) -> int:
    """How many octets the chunk has, wherever it lies."""
    return int(_PLACE.unpack_from(blob, HEAD.size)[1]) if is_elsewhere(blob) else len(blob)


def verified(blob: bytes, where: str, read_part: ReadPart) -> tuple[ChunkHead, bytes]:
    """The chunk that a row's blob is, or says where to find, and its head. Raises StoreError `data-corrupt`, also where a piece of it is
    not there."""
    found = verify(blob, where, KNOWN)
    if not is_elsewhere(blob):
        return found, blob
    if len(blob) != HEAD.size + _PLACE.size:
        raise StoreError("data-corrupt", f"{where}: {len(blob)} bytes do not say where the chunk lies")
    body, size, routing = _PLACE.unpack_from(blob, HEAD.size)
    data = _collected(body, size, where, read_part)
    return found, _put_at(data, found, routing, f"{where}: body {body}")


def taken_out(runs: Sequence[Run], read_part: ReadPart) -> list[Run]:
    """Reads what staged runs hold, for who has no store that knows the pieces: the same messages in ordinary runs. Raises StoreError."""
    found: list[Run] = []
    for run in runs:
        if run.is_staged:
            where = f"chunk at offset {run.first}"
            found += decode(verified(encode_staged(run), where, read_part)[1], run.first)
        else:
            found.append(run)
    return found


def _collected(body: int, size: int, where: str, read_part: ReadPart) -> bytes:
    pieces: list[bytes] = []
    have = 0
    while have < size:
        try:
            piece = read_part(body, 1 + len(pieces))
        except StoreError as error:
            raise StoreError("data-corrupt", f"{where}: {error.message}") from error
        pieces.append(piece)
        have += len(piece)
        if not piece:
            break
    if have != size:
        raise StoreError("data-corrupt", f"{where}: body {body} has {have} bytes, should have {size}")
    return b"".join(pieces)


def _put_at(data: bytes, head: ChunkHead, routing: int, where: str) -> bytes:
    """The chunk at its offset. Its pieces have checksums of their own, which were looked at when they were read."""
    if len(data) < HEAD.size:
        raise StoreError("data-corrupt", f"{where}: {len(data)} bytes are no chunk")
    _, magic, _, count, _, messages, shapes, heads, rows, numbers = HEAD.unpack_from(data)
    runs_at = HEAD.size + heads
    end = runs_at + rows * ROW.size
    if magic != MAGIC or not head.count == head.messages == count == messages or end > len(data):
        raise StoreError("data-corrupt", f"{where}: is not the chunk that was staged")
    front = bytearray(data[:end])
    HEAD.pack_into(front, 0, 0, MAGIC, head.first, count, head.newest, messages, shapes, heads, rows, numbers)
    for at in range(runs_at, end, ROW.size):
        offset, _, shape, length, _, _ = ROW.unpack_from(front, at)
        ROW.pack_into(front, at, offset, head.newest, shape, length, routing, 0)
    rest = memoryview(data)[end:]
    _SIZE.pack_into(front, 0, zlib.crc32(rest, zlib.crc32(memoryview(front)[4:])))
    return b"".join((front, rest))
