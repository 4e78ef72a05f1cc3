"""Runs as one blob: a row of the store, a page of a backlog, a piece of a Spark partition.

    head     <II qqq IIIII 4x>  checksum, magic (SBC1), first, count, newest, messages, shapes, shapes' bytes, runs, numbers
    shapes   <I bytes>          each: how many bytes, then the shape (below), padded with zeros to a multiple of 4
    runs     <qqIIII>           each: offset after `first`, arrived, shape (index), messages, routing, arrivals
    numbers  <I>                per run: arrivals x (messages, ms after `arrived`), then for each hole and for the bodies
                                as many lengths as the run has messages
    data                        per run: each hole's values joined, then the bodies joined

    shape    <BBBBqII>          priority, persistent (0 no, 1 yes, 2 unsaid), has_length, 0, expires, headers, holes
             <I>                length of each header's name and value, then of each hole's name
             text               all of it joined, UTF-8; lengths and not separators, because a value may hold LF, CR and NUL

Little-endian. `checksum` is the CRC-32 of all that follows it, so that a flipped bit is found and named. `first` stands in the
blob too: a blob under a wrong key is found as well. `count` counts offsets, gaps included, `messages` what is there; `newest`
is the latest arrival (ms). Consecutive runs of one shape and routing without a gap between them become one run here, with one
arrival for each stretch of messages that came in the same ms. Lengths stand together and data stands together, so that a
reader can lay columns over them without touching a message. Who sent a message is not kept.

A routing has two bits for the kinds and above them, up to HANDLES, the number of the one queue that the run is for (message.py,
FOR_ONE). Who does not know the number reads the same messages.

A run whose bodies lie in the store in pieces (message.py, Large) has the bit HANDLES in its routing and, in place of each body,
<QQ> its id and its size. Only blobs with such runs have the magic SBC2; who reads blobs elsewhere gets them with the bodies in place.
A blob of the magic SBC3 is a head alone, and says where the chunk lies (staged.py): no store gives it out.

How to change the format: give MAGIC the next digit, keep reading the one before, add a blob of the old kind to the tests.

This file decides the bytes. It does not decide what goes into a chunk (broker/), where it is kept (sqlite.py) or read from.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import SEEK_CUR, BytesIO
from itertools import groupby
from operator import attrgetter
from typing import Final, cast

from msgspec import Struct

from stompbox.errors import StoreError
from stompbox.handles import Body, Large
from stompbox.message import ANYCAST, MEMO, Run, Shape
from stompbox.recent import Recent

# read with the other byte order it is another number, and refused
MAGIC: Final = int.from_bytes(b"SBC1", "little")
WITH_HANDLES: Final = int.from_bytes(b"SBC2", "little")
ELSEWHERE: Final = int.from_bytes(b"SBC3", "little")
HANDLES: Final = 1 << 31
MAX_BLOB: Final = 1_000_000_000  # SQLite's own limit for one value, and below the 2 GiB of an Arrow column
INTERNED_SHAPES: Final = 1024  # shapes that decoded runs share
AT_ONCE: Final = 2048  # values that are cut out before another thread may have its turn
INTERNED_SIZE: Final = 4096  # bytes; larger shapes are seldom met twice and would make the cache large

HEAD: Final = struct.Struct("<IIqqqIIIII4x")
ROW: Final = struct.Struct("<qqIIII")
_SHAPE: Final = struct.Struct("<BBBBqII")
_SIZE: Final = struct.Struct("<I")
_HANDLE: Final = struct.Struct("<QQ")
_PERSISTENT: Final = (False, True, None)
_LATEST: Final = 2**32 - 1  # ms: an arrival further from the run's own begins a new run
_KEY: Final = "chunk"  # of Shape.cache
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")


class ChunkHead(Struct, frozen=True):
    """What a store keeps of a chunk beside the blob."""

    first: int  # offset
    count: int  # offsets, gaps included
    newest: int  # ms since the epoch
    messages: int


class Tables(Struct, frozen=True):
    """A blob taken apart as it lies there: the last three are views of it, as the head of this file describes them."""

    head: ChunkHead
    shapes: list[Shape]
    runs: memoryview  # rows of 32 bytes
    numbers: memoryview  # of u32
    data: memoryview


def encode(runs: Sequence[Run], first: int) -> bytes:
    """The blob of runs in offset order; `first` is at most the first run's own. Raises StoreError beyond 1 GB."""
    shapes: dict[bytes, int] = {}
    table: list[bytes] = []
    numbers = array("I")
    data: list[bytes] = [b"", b""]
    newest, messages, stop, magic = 0, 0, first, MAGIC
    bodies: Sequence[Body]
    columns: tuple[Sequence[bytes], ...]
    arrivals: Sequence[int]
    for group in _groups(runs):
        head = group[0]
        bodies, columns, latest, arrivals = head.bodies, head.columns, head.arrived, ()
        if len(group) > 1:
            bodies, columns = joined(group)
            latest, arrivals = _arrivals(group)
        routing = head.routing
        if head.is_large:
            bodies, routing, magic = _packed(bodies), routing | HANDLES, WITH_HANDLES
        shape = shapes.setdefault(shape_bytes(head.shape), len(shapes))
        count = len(bodies)
        table.append(ROW.pack(head.first - first, head.arrived, shape, count, routing, len(arrivals) // 2))
        numbers.extend(arrivals)
        for column in columns:
            numbers.extend(map(len, column))
            data += column
        numbers.extend(map(len, bodies))
        data += cast(Sequence[bytes], bodies)  # a large one's handle is packed
        newest = max(newest, latest)
        messages += count
        stop = head.first + count
    heads = b"".join([part for key in shapes for part in (_SIZE.pack(len(key)), key)])
    head_bytes = HEAD.pack(
        0, magic, first, stop - first, newest, messages, len(shapes), len(heads), len(table), len(numbers)
    )
    data[0] = b"".join((head_bytes, heads, *table))
    data[1] = numbers.tobytes()
    return _sealed(b"".join(data))


@dataclass(frozen=True, slots=True)
class Flat:
    """`count` messages of one shape as they lie in a blob. `values`: for each hole, and then for the bodies, the lengths (u32,
    little-endian) and all octets joined, in anything that has a buffer."""

    shape: Shape
    count: int
    values: Sequence[tuple[memoryview, memoryview]]


def encode_flat(runs: Sequence[Flat]) -> bytes:
    """The blob of messages that nobody has touched one by one: from offset 0 on, without gaps, times or routing."""
    shapes: dict[bytes, int] = {}
    table, numbers, data = list[bytes](), list[memoryview](), list[memoryview]()
    messages = 0
    for run in runs:
        shape = shapes.setdefault(shape_bytes(run.shape), len(shapes))
        table.append(ROW.pack(messages, 0, shape, run.count, ANYCAST, 0))
        for lengths, octets in run.values:
            numbers.append(lengths)
            data.append(octets)
        messages += run.count
    heads = b"".join([part for key in shapes for part in (_SIZE.pack(len(key)), key)])
    count = sum([lengths.nbytes for lengths in numbers]) // 4
    head_bytes = HEAD.pack(0, MAGIC, 0, messages, 0, messages, len(shapes), len(heads), len(table), count)
    return _sealed(b"".join((head_bytes, heads, *table, *numbers, *data)))


def _packed(bodies: Sequence[Body]) -> list[bytes]:
    return [_HANDLE.pack(body.id, body.size) for body in bodies if isinstance(body, Large)]


def _groups(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """Runs that become one: same shape and routing, no gap, arrivals that fit."""
    begin, shape, routing, arrived, stop, is_large = 0, None, 0, 0, -1, False
    for index, run in enumerate(runs):
        same = (
            run.first == stop
            and run.routing == routing
            and run.is_large == is_large
            and 0 <= run.arrived - arrived <= _LATEST
        )
        if not same or (
            run.shape is not shape and (shape is None or shape_bytes(run.shape) != shape_bytes(shape))
        ):
            if index > begin:
                yield runs[begin:index]
            begin, shape, routing, arrived, is_large = (
                index,
                run.shape,
                run.routing,
                run.arrived,
                run.is_large,
            )
        stop = run.first + len(run.bodies)
    if begin < len(runs):
        yield runs[begin:]


def joined(group: Sequence[Run]) -> tuple[list[Body], tuple[list[bytes], ...]]:
    """Bodies, and each hole's values, of all the runs together."""
    bodies: list[Body] = []
    for run in group:
        bodies += run.bodies
    columns = tuple(
        [[value for run in group for value in run.columns[at]] for at in range(len(group[0].columns))]
    )
    return bodies, columns


def _arrivals(group: Sequence[Run]) -> tuple[int, Sequence[int]]:
    """The latest arrival, and (messages, ms after the first) for each stretch of the same ms when there are several."""
    arrived = [run.arrived for run in group]
    base, latest = arrived[0], max(arrived)
    if base == latest == min(arrived):
        return latest, ()
    found: list[int] = []
    for ms, runs in groupby(group, key=attrgetter("arrived")):
        found += (sum([len(run.bodies) for run in runs]), ms - base)
    return latest, found


def assembled(
    head: ChunkHead,
    shapes: Sequence[Shape],
    runs: Sequence[memoryview],
    rest: Sequence[memoryview],
    numbers: int,
) -> bytes:
    """A blob of rows as they lie in another one, but for the places of shapes; `rest` begins with so many numbers, then comes the data."""
    keys = b"".join([_SIZE.pack(len(key)) + key for key in map(shape_bytes, shapes)])
    rows = b"".join(runs)
    magic = WITH_HANDLES if any(routing & HANDLES for *_, routing, _ in ROW.iter_unpack(rows)) else MAGIC
    fixed = (
        0,
        magic,
        head.first,
        head.count,
        head.newest,
        head.messages,
        len(shapes),
        len(keys),
        len(rows) // ROW.size,
        numbers,
    )
    return _sealed(b"".join((HEAD.pack(*fixed), keys, rows, *rest)))


def _sealed(blob: bytes) -> bytes:
    """The blob with its checksum. BytesIO hands its own bytes over, so that nothing is copied."""
    if len(blob) > MAX_BLOB:
        raise StoreError(
            "message-too-large", f"a chunk of {len(blob)} bytes cannot be stored; the most is {MAX_BLOB}"
        )
    file = BytesIO(blob)
    del blob
    with file.getbuffer() as view:
        _SIZE.pack_into(view, 0, zlib.crc32(view[4:]))
    return file.getvalue()


def shape_bytes(shape: Shape) -> bytes:
    """The shape as it stands in a chunk; equal shapes have equal bytes."""
    known = shape.cache.get(_KEY) or _long.of(shape.number)
    return known or _kept(shape, _encoded_shape(shape))


def _kept(shape: Shape, key: bytes) -> bytes:
    if len(key) <= MEMO:
        shape.cache[_KEY] = key
    else:
        _long.note(shape.number, key)
    return key


def shape_of(key: bytes) -> Shape:
    """The shape that these bytes are; one object for most of those that are equal."""
    return _interned_shape(key) if len(key) <= INTERNED_SIZE else _decoded_shape(key)


def _encoded_shape(shape: Shape) -> bytes:
    # surrogatepass: text that is no UTF-8 must not stop a commit, and comes back as it was.
    texts = [text.encode("utf-8", "surrogatepass") for pair in shape.headers.items() for text in pair]
    texts += [name.encode("utf-8", "surrogatepass") for name in shape.holes]
    persistent = _PERSISTENT.index(shape.persistent)
    fixed = _SHAPE.pack(
        shape.priority, persistent, shape.has_length, 0, shape.expires, len(shape.headers), len(shape.holes)
    )
    joined = b"".join((fixed, array("I", map(len, texts)).tobytes(), *texts))
    return joined + _PADDING[len(joined) % 4]


def _decoded_shape(key: bytes) -> Shape:
    priority, persistent, has_length, _, expires, headers, holes = _SHAPE.unpack_from(key)
    at = _SHAPE.size
    lengths = memoryview(key)[at : at + 4 * (2 * headers + holes)].cast("I")
    file = BytesIO(key)
    file.seek(at + lengths.nbytes)
    texts = [str(file.read(length), "utf-8", "surrogatepass") for length in lengths]
    shape = Shape(
        dict(zip(texts[: 2 * headers : 2], texts[1 : 2 * headers : 2], strict=True)),
        holes=tuple(texts[2 * headers :]),
        persistent=_PERSISTENT[persistent],
        priority=priority,
        expires=expires,
        has_length=bool(has_length),
    )
    _kept(shape, key)
    return shape


_long: Final[Recent[int, bytes]] = Recent(2 << 20, len)  # shapes that are not kept with themselves
_interned_shape: Final = lru_cache(INTERNED_SHAPES)(_decoded_shape)


def verify(
    blob: bytes | memoryview, where: str = "chunk", known: Container[int] = (MAGIC, WITH_HANDLES)
) -> ChunkHead:
    """What a blob says of itself. Raises StoreError `data-corrupt` when its checksum is not what it should be, `data-too-new` for a format
    that is none of these."""
    if len(blob) < HEAD.size:
        raise StoreError(
            "data-corrupt", f"{where}: {len(blob)} bytes are fewer than the {HEAD.size} of a chunk's head"
        )
    checksum, magic, *head = HEAD.unpack_from(blob)[:6]
    actual = zlib.crc32(memoryview(blob)[4:])
    if checksum != actual:
        raise StoreError("data-corrupt", f"{where}: checksum is {actual:08x}, should be {checksum:08x}")
    if magic not in known:
        raise StoreError(
            "data-too-new",
            f"{where}: format {magic:08x} is not known, only {MAGIC:08x} and {WITH_HANDLES:08x}",
        )
    return ChunkHead(*head)


def head(blob: bytes) -> ChunkHead:
    """What a blob that was just made says of itself, not verified."""
    return ChunkHead(*HEAD.unpack_from(blob)[2:6])


def tables(blob: bytes | memoryview, where: str = "chunk") -> Tables:
    """The columns of a blob: nothing is copied and no message touched. Raises StoreError as `verify` does."""
    head = verify(blob, where)
    *_, shapes, _, runs, numbers = HEAD.unpack_from(blob)
    view = memoryview(blob)
    at = HEAD.size
    found = []
    for _ in range(shapes):
        (size,) = _SIZE.unpack_from(blob, at)
        key = bytes(view[at + 4 : at + 4 + size])
        found.append(shape_of(key))
        at += 4 + size
    numbers_at = at + runs * ROW.size
    data_at = numbers_at + 4 * numbers
    return Tables(head, found, view[at:numbers_at], view[numbers_at:data_at].cast("I"), view[data_at:])


def decode(blob: bytes, first: int, left: Container[int] = ()) -> list[Run]:
    """The runs of a blob whose key says `first`, without those of the shapes `left` (by their place in the blob), which are not read.

    Raises StoreError when it is corrupt or belongs elsewhere.
    """
    where = f"chunk at offset {first}"
    table = tables(blob, where)
    if table.head.first != first:
        raise StoreError("data-corrupt", f"{where}: the chunk says it is at offset {table.head.first}")
    numbers = table.numbers.tolist()
    # shares the bytes, and reading on from value to value is the fastest way to cut them
    file = BytesIO(blob)
    file.seek(len(blob) - len(table.data))
    read = file.read
    found: list[Run] = []
    at = 0
    for offset, arrived, index, count, routing, arrivals in ROW.iter_unpack(table.runs):
        shape = table.shapes[index]
        if index in left:
            begin = at + 2 * arrivals
            at = begin + (len(shape.holes) + 1) * count
            file.seek(sum(numbers[begin:at]), SEEK_CUR)
            continue
        stretches, at = numbers[at : at + 2 * arrivals], at + 2 * arrivals
        columns = []
        for _ in shape.holes:
            columns.append(list(map(read, numbers[at : at + count])))
            at += count
        bodies = list(map(read, numbers[at : at + count]))
        at += count
        if routing & HANDLES:
            bodies = _unpacked(bodies)
        run = Run(
            shape, bodies, tuple(columns), first=first + offset, arrived=arrived, routing=routing & ~HANDLES
        )
        if stretches:
            found += _parted(run, stretches)
        else:
            found.append(run)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """The headers of a shape as they lie in a blob, in `key`, with `size` octets, and whether content-length was given."""

    headers: list[tuple[str, str]]
    holes: list[str]
    has_length: bool
    size: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Column:
    """Values as they lie in a blob from `at` on: their lengths, and all octets joined."""

    lengths: list[int]
    octets: memoryview
    blob: bytes
    at: int

    def __len__(self) -> int:
        return len(self.lengths)

    def first(self) -> bytes:
        return bytes(self.octets[: self.lengths[0]])

    def values(self) -> list[bytes]:
        file = BytesIO(self.blob)  # shares the bytes
        file.seek(self.at)
        found: list[bytes] = []
        for first in range(0, len(self.lengths), AT_ONCE):
            found += map(file.read, self.lengths[first : first + AT_ONCE])
        return found


@dataclass(frozen=True, slots=True)
class Portion:
    """One run of a blob: what its messages say. Of where and when they were only that they follow those before, at no time (`is_plain`)."""

    texts: Texts
    columns: list[Column]
    bodies: Column
    is_plain: bool


def portions(blob: bytes) -> Iterator[Portion]:
    """The runs of a blob that a stranger has made: its layout is looked at to the last octet, and what the broker alone can know
    (offsets, times, routing) is passed over. Raises StoreError `data-corrupt`, also for a blob with handles of bodies."""
    verify(blob)
    _, magic, _, _, _, _, shapes, heads, runs, numbers = HEAD.unpack_from(blob)
    runs_at = HEAD.size + heads
    numbers_at = runs_at + runs * ROW.size
    data_at = numbers_at + 4 * numbers
    if magic != MAGIC or data_at > len(blob):
        raise _misshapen(
            "it names bodies that are elsewhere"
            if magic != MAGIC
            else f"its tables end beyond its {len(blob)} octets"
        )
    texts = _texts_of(memoryview(blob)[HEAD.size : runs_at], shapes)
    lengths = memoryview(blob)[numbers_at:data_at].cast("I").tolist()
    data = memoryview(blob)[data_at:]
    at = size = messages = 0
    for offset, _, index, count, routing, arrivals in ROW.iter_unpack(memoryview(blob)[runs_at:numbers_at]):
        if index >= len(texts) or routing & HANDLES:
            raise _misshapen(
                f"a run is of shape {index} of {len(texts)}"
                if index >= len(texts)
                else "a run has handles of bodies"
            )
        begin = at + 2 * arrivals
        at = begin + (len(texts[index].holes) + 1) * count
        if at > numbers:
            raise _misshapen(f"its runs need more than its {numbers} numbers")
        columns = []
        for place in range(begin, at, count or 1):
            own = lengths[place : place + count]
            start, size = size, size + sum(own)
            columns.append(Column(own, data[start:size], blob, data_at + start))
        if size > len(data):
            raise _misshapen("its values and bodies end beyond it")
        yield Portion(
            texts[index],
            columns[:-1],
            columns[-1] if columns else Column([], data[:0], blob, data_at),
            offset == messages and not arrivals,
        )
        messages += count
    if at != numbers or size != len(data):
        raise _misshapen("it has more than its runs need")


def _texts_of(view: memoryview, count: int) -> list[Texts]:
    found: list[Texts] = []
    at = 0
    while at < len(view) and len(found) < count:
        size = _SIZE.unpack_from(view, at)[0] if at + _SIZE.size <= len(view) else -1
        at += _SIZE.size
        if not _SHAPE.size <= size <= len(view) - at:
            raise _misshapen(f"shape {len(found)} ends beyond its table")
        found.append(_texts(bytes(view[at : at + size]), len(found)))
        at += size
    if at != len(view) or len(found) != count:
        raise _misshapen(f"its table of shapes has {len(found)} of {count}, and other octets")
    return found


def _texts(key: bytes, number: int) -> Texts:
    _, _, has_length, _, _, headers, holes = _SHAPE.unpack_from(key)
    at = _SHAPE.size + 4 * (2 * headers + holes)
    if at > len(key):
        raise _misshapen(f"the lengths in shape {number} end beyond it")
    lengths = memoryview(key)[_SHAPE.size : at].cast("I").tolist()
    stop = at + sum(lengths)
    if stop + len(_PADDING[stop % 4]) != len(key):
        raise _misshapen(
            f"the texts in shape {number} have {sum(lengths)} octets, and it has {len(key) - at} for them"
        )
    file = BytesIO(key)
    file.seek(at)
    try:
        texts = [str(file.read(length), "utf-8") for length in lengths]
    except UnicodeDecodeError:
        raise _misshapen(f"a text in shape {number} is no UTF-8") from None
    pairs = list(zip(texts[: 2 * headers : 2], texts[1 : 2 * headers : 2], strict=True))
    return Texts(pairs, texts[2 * headers :], bool(has_length), stop - at + 2 * headers, key)


def _misshapen(problem: str) -> StoreError:
    return StoreError("data-corrupt", f"chunk: {problem}")


def _unpacked(packed: Sequence[bytes]) -> list[bytes]:
    return cast(list[bytes], [Large(*_HANDLE.unpack(handle)) for handle in packed])


def has_handles(blob: bytes) -> bool:
    """Whether some of its bodies lie in the store in pieces."""
    return bool(blob[4:8] == b"SBC2")


def large_size(blob: bytes, first: int) -> int:
    """How many octets the large bodies have that a blob names."""
    return sum(run.size for run in decode(blob, first) if run.is_large) if has_handles(blob) else 0


def with_bodies(blob: bytes, first: int, read_part: Callable[[int, int], bytes]) -> bytes:
    """The blob with its large bodies in place, for who has no store: `read_part` gives a piece of a body."""
    found = []
    for run in decode(blob, first):
        if run.is_large:
            bodies = [_whole(run.large(index), read_part) for index in range(len(run))]
            found.append(run.part(0, len(run), bodies=bodies))
        else:
            found.append(run)
    return encode(found, first)


def _whole(large: Large, read_part: Callable[[int, int], bytes]) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size < large.size:
        pieces.append(read_part(large.id, len(pieces)))
        size += len(pieces[-1])
    return b"".join(pieces)


def _parted(run: Run, stretches: list[int]) -> Iterator[Run]:
    """The runs that one stored run was made of, by arrival."""
    start = 0
    for count, after in zip(stretches[::2], stretches[1::2], strict=True):
        part = run.part(start, start + count)
        part.arrived += after
        yield part
        start += count
