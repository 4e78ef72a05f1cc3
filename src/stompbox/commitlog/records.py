"""Commits, and who leads, as the payloads of records.

    record    <BxxxII>          format version, number of the piece, CRC-32 of what follows
    commit    msgpack           one array, as `Written` below has it, cut into pieces where it is larger than a record may be:
                                pieces 0 .. n-1 are of the kind PIECE, piece n is the COMMIT. One record is a COMMIT with number 0
    lead      msgpack           one array, as `Lead` below has it

`decode(encode(commit))` has the same effect as the commit on every store: its runs are the same runs, so that the chunks of two nodes are
the same chunks. Who sent a message is not kept, as in chunks. Piece 0 voids pieces before it that lack their COMMIT, and so does a LEAD.

How to change the format: count VERSION up and keep reading the one before. A node that knows less stops at such a record and says so;
each LEAD has the version that its node writes, and status shows what every node reads, so that nodes can be upgraded one at a time.

This file decides the bytes, not when a record is appended (replicated.py) or where it is kept.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, cast

from msgspec import MsgspecError, Struct, msgpack

from stompbox.commitlog.base import Kind, LogError, Record
from stompbox.handles import Body, Large
from stompbox.message import Run, Shape
from stompbox.store.base import Commit, Delivered
from stompbox.store.chunks import shape_bytes, shape_of

VERSION: Final = 1
HEAD: Final = struct.Struct("<BxxxII")


class WrittenRun(Struct, array_like=True):
    """A run; `shape` is its place among the commit's shapes. Bodies that lie in the store are handles: id and size."""

    first: int
    arrived: int
    routing: int
    shape: int
    columns: tuple[list[bytes], ...]
    bodies: list[bytes]
    handles: list[tuple[int, int]]


class Written(Struct, array_like=True):
    """A commit, field by field."""

    shapes: list[bytes]
    logs: dict[int, str]
    runs: dict[int, list[WrittenRun]]
    next_offsets: dict[int, int]
    cursors: dict[int, tuple[int, int]]
    acknowledged: dict[int, list[tuple[int, int]]]
    delivered: dict[int, list[Delivered]]
    dropped_cursors: list[int]
    entries: list[tuple[str, str, bytes | None]]
    trims: dict[int, int]
    dropped_logs: list[int]
    parts: list[tuple[int, int, bytes]]
    holds: dict[int, bool]
    is_loose: bool


class Lead(Struct, array_like=True, frozen=True):
    """What a node says of itself when it begins to lead. A newer program may add fields at the end, which this one passes over."""

    node: str  # its name in the cluster
    advertise: str = ""  # the URL where other nodes reach it
    program: str = ""  # the version of Stompbox
    format: int = VERSION  # of the records that it writes
    configuration: str = ""  # a hash of what should be the same on all nodes
    admin: str = ""  # the URL of its admin interface
    why: str = ""  # it began to lead


_encode: Final = msgpack.Encoder().encode
_decode: Final = msgpack.Decoder(Written).decode
_decode_lead: Final = msgpack.Decoder(Lead).decode


def encode(commit: Commit) -> bytes:
    """The commit as bytes, without the head of a record."""
    shapes: dict[bytes, int] = {}
    runs = {log: [_written(run, shapes) for run in found] for log, found in commit.runs.items()}
    return _encode(
        (
            list(shapes),
            commit.logs,
            runs,
            commit.next_offsets,
            commit.cursors,
            commit.acknowledged,
            commit.delivered,
            commit.dropped_cursors,
            [(*place, value) for place, value in commit.entries.items()],
            commit.trims,
            commit.dropped_logs,
            [(*place, data) for place, data in commit.parts.items()],
            commit.holds,
            commit.is_loose,
        )
    )


def _written(run: Run, shapes: dict[bytes, int]) -> tuple[object, ...]:
    shape = shapes.setdefault(shape_bytes(run.shape), len(shapes))
    bodies: Sequence[Body] = run.bodies
    handles: list[tuple[int, int]] = []
    if run.is_large:
        handles = [(body.id, body.size) for body in bodies if isinstance(body, Large)]
        bodies = ()
    return (run.first, run.arrived, run.routing, shape, run.columns, bodies, handles)


def decode(data: bytes) -> Commit:
    """The commit that `encode` has written. Raises LogError `log-corrupt` when it is none."""
    try:
        found = _decode(data)
        shapes = [shape_of(key) for key in found.shapes]
        runs = {log: [_run(run, shapes) for run in each] for log, each in found.runs.items()}
    except (MsgspecError, struct.error, IndexError, ValueError, KeyError, OverflowError) as error:
        raise LogError("log-corrupt", f"a commit of {len(data)} bytes cannot be read ({error})") from error
    return Commit(
        logs=found.logs,
        runs=runs,
        next_offsets=found.next_offsets,
        cursors=found.cursors,
        acknowledged=found.acknowledged,
        delivered=found.delivered,
        dropped_cursors=found.dropped_cursors,
        entries={(kind, key): value for kind, key, value in found.entries},
        trims=found.trims,
        dropped_logs=found.dropped_logs,
        parts={(body, number): part for body, number, part in found.parts},
        holds=found.holds,
        is_loose=found.is_loose,
    )


def _run(run: WrittenRun, shapes: Sequence[Shape]) -> Run:
    bodies = [Large(*handle) for handle in run.handles] if run.handles else run.bodies
    return Run(
        shapes[run.shape],
        cast(Sequence[Body], bodies),
        run.columns,
        first=run.first,
        arrived=run.arrived,
        routing=run.routing,
    )


def cut(commit: Commit, largest: int) -> Iterator[tuple[Kind, bytes]]:
    """Kind and payload of the records that are this commit, in order; no payload is larger than `largest` bytes."""
    data = encode(commit)
    size = largest - HEAD.size
    if size <= 0:
        raise ValueError(f"records of {largest} bytes have no room for a head of {HEAD.size}")
    if len(data) <= size:
        yield Kind.COMMIT, _headed(0, data)
        return
    last = (len(data) - 1) // size
    view = memoryview(data)
    for number in range(last + 1):
        piece = view[number * size : (number + 1) * size]
        yield Kind.COMMIT if number == last else Kind.PIECE, _headed(number, piece)


def lead_payload(lead: Lead) -> bytes:
    """The payload of the record with which a node begins to lead."""
    return _headed(0, _encode(lead))


def _headed(number: int, data: bytes | memoryview) -> bytes:
    return b"".join((HEAD.pack(VERSION, number, zlib.crc32(data)), data))


class Reader:
    """Makes commits of records again. It takes every record of a log once, in order, from one that follows a whole commit on."""

    def __init__(self) -> None:
        self._pieces: list[memoryview] = []  # of a commit whose last one has not come

    def take(self, record: Record) -> Commit | Lead | None:
        """What the record completes; None: more pieces have to come.

        Raises LogError `log-too-new` when a newer program has written it, `log-corrupt` when its bytes are damaged or a piece is missing.
        """
        number, data = _opened(record)
        if record.kind is Kind.LEAD:
            self._pieces.clear()
            return _lead_of(data, record.position)
        if number == 0:
            self._pieces.clear()
        if number != len(self._pieces):
            where = f"record {record.position}"
            raise LogError(
                "log-corrupt", f"{where} is piece {number} of a commit, {len(self._pieces)} were before it"
            )
        self._pieces.append(data)
        if record.kind is Kind.PIECE:
            return None
        whole = b"".join(self._pieces) if number else bytes(data)
        self._pieces.clear()
        try:
            return decode(whole)
        except LogError as error:
            raise LogError(error.code, f"record {record.position}: {error.message}") from error


def _opened(record: Record) -> tuple[int, memoryview]:
    """Number of the piece, and what follows the head."""
    payload = record.payload
    where = f"record {record.position}"
    if len(payload) < HEAD.size:
        raise LogError(
            "log-corrupt", f"{where} has {len(payload)} bytes, fewer than the {HEAD.size} of its head"
        )
    version, number, checksum = HEAD.unpack_from(payload)
    if version > VERSION:
        raise LogError(
            "log-too-new",
            f"{where} has format {version}, this program reads up to {VERSION}: a newer Stompbox has written it",
        )
    data = memoryview(payload)[HEAD.size :]
    actual = zlib.crc32(data)
    if version < 1 or actual != checksum:
        raise LogError("log-corrupt", f"{where}: checksum is {actual:08x}, should be {checksum:08x}")
    return number, data


def _lead_of(data: memoryview, position: int) -> Lead:
    try:
        return _decode_lead(data)
    except MsgspecError as error:
        raise LogError("log-corrupt", f"record {position} does not say who leads ({error})") from error
