"""What a record of the journal says, as msgspec writes and reads it: a small commit, with its runs taken apart."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field, msgpack


class Stored(Struct, array_like=True):
    """A run, as a record has it."""

    first: int
    arrived: int
    routing: int
    shape: bytes
    columns: tuple[list[bytes], ...]
    bodies: list[bytes]


class Record(Struct, array_like=True):
    """A small commit as it stands in the journal."""

    # per log; bytes: a chunk, as it was at first
    runs: dict[int, bytes | list[Stored]] = field(default_factory=dict)
    next_offsets: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    entries: list[tuple[str, str, bytes | None]] = field(default_factory=list)
    trims: dict[int, int] = field(default_factory=dict)


encode: Final = msgpack.Encoder().encode
decoded: Final = msgpack.Decoder(Record).decode
