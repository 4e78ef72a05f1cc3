"""Chunks as Arrow columns: whole answers of the broker at once, never message by message.

The chunks of an answer are joined to one table of runs, one array of lengths and one piece of data (store/chunks.py says how they lie
there), with the texts that the shapes fix at the end. Every value is then an element of one Arrow array over the data:

    element of message i of run r, column c   =   begin[r] + c * count[r] + i          (holes first, the bodies are the last column)

and a column of rows is a selection of elements.

Decides how rows look (names, types, order of headers). Does not decide which chunks are read or which rows are wanted.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stompbox.message import Shape
from stompbox.spark.offsets import OffsetRange
from stompbox.store.chunks import tables

Integers = npt.NDArray[np.int64]

# What rows are, in this order (ddl.py). The types are those Spark asks for: to_arrow_schema(schema, timezone="UTC").
COLUMNS: Final[dict[str, Any]] = {
    "address": pa.string(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "destination": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
    "body": pa.binary(),
}
BATCH_ROWS: Final = 10_000  # rows of a batch handed to Spark: measured best between 5,000 and 50,000

REPEATED_ROWS: Final = 32_768  # rows for which the names of their headers are kept ready

_KEY: Final = "columns"  # of Shape.cache
_RUN: Final = np.dtype(
    [
        ("offset", "<i8"),
        ("arrived", "<i8"),
        ("shape", "<u4"),
        ("count", "<u4"),
        ("routing", "<u4"),
        ("arrivals", "<u4"),
    ]
)


@dataclass(frozen=True, slots=True)
class Texts:
    """What a shape fixes: its destination and the headers beside it. `holes[k]` is the number of the hole under names[k], -1: none."""

    destination: bytes
    names: tuple[str, ...]
    values: tuple[bytes, ...]  # empty where there is a hole
    holes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """The runs of several chunks, as columns: one entry per run, in offset order."""

    shapes: list[Shape]
    texts: list[Texts]  # of each shape
    offset: Integers
    arrived: Integers  # ms
    shape: Integers  # index into `shapes`
    count: Integers  # messages
    columns: Integers  # holes and bodies
    arrivals: Integers  # stretches of messages that came in the same ms; 0: all of the run did
    at: Integers  # where the numbers of each run begin
    numbers: npt.NDArray[np.uint32]  # stretches and lengths, then the lengths of the texts
    texts_at: int  # where the lengths of the texts begin
    data: memoryview  # what the lengths measure

    @property
    def begin(self) -> Integers:
        """The index of the first element of each run."""
        return self.at + 2 * self.arrivals

    @property
    def destinations(self) -> Integers:
        """The element of each shape's destination; the values of its headers follow."""
        sizes = np.array([1 + len(texts.names) for texts in self.texts], np.int64)
        return self.texts_at + np.cumsum(sizes) - sizes


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Messages chosen from runs: one entry per row."""

    run: Integers
    index: Integers  # in its run

    def __len__(self) -> int:
        return len(self.run)


Selection = Callable[[Runs, Rows], npt.NDArray[np.bool_]]
"""Which of the rows are wanted."""


def spread(starts: Integers, counts: Integers) -> Integers:
    """starts[0], starts[0] + 1, … counts[0] of them, then those from starts[1] on, and so forth."""
    stops = np.cumsum(counts)
    total = int(stops[-1]) if len(stops) else 0
    return np.repeat(starts - (stops - counts), counts) + np.arange(total)


def joined(blobs: Sequence[bytes | memoryview]) -> Runs:
    """The runs of all chunks together. Raises StoreError when one of them is corrupt."""
    parts = [tables(blob) for blob in blobs]
    shapes: dict[int, tuple[int, Shape]] = {}
    places = [
        shapes.setdefault(id(shape), (len(shapes), shape))[0] for part in parts for shape in part.shapes
    ]
    found = [shape for _, shape in shapes.values()]
    texts = [_texts(shape) for shape in found]
    fixed = [text for each in texts for text in (each.destination, *each.values)]
    runs = np.frombuffer(b"".join([part.runs for part in parts]), _RUN)
    numbers = np.frombuffer(b"".join([*(part.numbers for part in parts), array("I", map(len, fixed))]), "<u4")
    data = memoryview(b"".join([*(part.data for part in parts), *fixed]))
    runs_each = [len(part.runs) // _RUN.itemsize for part in parts]
    shapes_before = np.cumsum([0, *(len(part.shapes) for part in parts)])[:-1]
    shape = np.array(places, np.int64)[np.repeat(shapes_before, runs_each) + runs["shape"]]
    count, arrivals = runs["count"].astype(np.int64), runs["arrivals"].astype(np.int64)
    columns = np.array([len(each.names) - each.holes.count(-1) + 1 for each in texts], np.int64)[shape]
    sizes = 2 * arrivals + columns * count
    first = np.repeat(np.array([part.head.first for part in parts], np.int64), runs_each)
    at = np.cumsum(sizes) - sizes
    return Runs(
        found,
        texts,
        first + runs["offset"],
        runs["arrived"],
        shape,
        count,
        columns,
        arrivals,
        at,
        numbers,
        len(numbers) - len(fixed),
        data,
    )


def _texts(shape: Shape) -> Texts:
    found: Texts | None = shape.cache.get(_KEY)
    if found is None:
        # that has a column of its own
        fixed = [(name, _utf8(value)) for name, value in shape.headers.items() if name != "destination"]
        found = shape.cache[_KEY] = Texts(
            _utf8(shape.destination),
            (*(name for name, _ in fixed), *shape.holes),
            (*(value for _, value in fixed), *(b"" for _ in shape.holes)),
            (*(-1 for _ in fixed), *range(len(shape.holes))),
        )
    return found


def _utf8(text: str) -> bytes:
    """Text that is no UTF-8 (it came from a 1.0 client) reads `?`: there is no other form for it."""
    return text.encode("utf-8", "replace")


def rows_of(runs: Runs, wanted: OffsetRange, selection: Selection | None = None) -> Rows:
    """The messages with offsets in the range that the selection accepts."""
    run = np.repeat(np.arange(len(runs.count)), runs.count)
    index = spread(np.zeros_like(runs.count), runs.count)
    low, high = np.searchsorted(runs.offset[run] + index, (wanted.start, wanted.stop))
    rows = Rows(run[low:high], index[low:high])
    if selection is None:
        return rows
    chosen = selection(runs, rows)
    return Rows(rows.run[chosen], rows.index[chosen])


def schema_of(names: Sequence[str]) -> Any:
    """The Arrow schema that these columns have."""
    return pa.schema([(name, COLUMNS[name]) for name in names])


def batch_of(runs: Runs, rows: Rows, address: str, names: Sequence[str] = tuple(COLUMNS)) -> Any:
    """The columns `names` of the rows, as a RecordBatch."""
    elements = elements_of(runs)
    makers: dict[str, Callable[[], Any]] = {
        "address": lambda: pa.repeat(pa.scalar(address, pa.string()), len(rows)),
        "offset": lambda: pa.array(runs.offset[rows.run] + rows.index),
        "timestamp": lambda: pa.array(arrived_of(runs, rows) * 1000).view(COLUMNS["timestamp"]),
        "destination": lambda: _destinations(runs, rows, elements),
        "headers": lambda: _headers(runs, rows, elements),
        "body": lambda: _bodies(runs, rows, elements),
    }
    return pa.RecordBatch.from_arrays([makers[name]() for name in names], schema=schema_of(names))


def sliced(batch: Any, size: int = BATCH_ROWS) -> Iterator[Any]:
    """A batch in pieces of about `size` rows, without a copy."""
    pieces = max(1, round(len(batch) / size))
    for piece in range(pieces):
        start, stop = len(batch) * piece // pieces, len(batch) * (piece + 1) // pieces
        if stop > start:
            yield batch.slice(start, stop - start)


def elements_of(runs: Runs) -> Any:
    """Every length of the numbers as an element over the data. The stretches among them become empty elements."""
    lengths = runs.numbers
    if runs.arrivals.any():
        lengths = lengths.copy()
        lengths[spread(runs.at, 2 * runs.arrivals)] = 0
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(runs.data)]
    )


def _destinations(runs: Runs, rows: Rows, elements: Any) -> Any:
    known = {texts.destination for texts in runs.texts}
    if len(known) == 1:
        return pa.repeat(pa.scalar(known.pop().decode(), pa.string()), len(rows))
    return elements.take(pa.array(runs.destinations[runs.shape[rows.run]])).view(pa.string())


def _bodies(runs: Runs, rows: Rows, elements: Any) -> Any:
    if len(rows) == runs.texts_at:  # neither holes nor stretches, and all rows are wanted: nothing to select
        return elements[: len(rows)]
    first_body = runs.begin + (runs.columns - 1) * runs.count
    return elements.take(pa.array(first_body[rows.run] + rows.index))


def arrived_of(runs: Runs, rows: Rows) -> Integers:
    """When each row arrived, ms since the epoch."""
    if not runs.arrivals.any():
        all_alike: Integers = runs.arrived[rows.run]
        return all_alike
    stretches = np.maximum(runs.arrivals, 1)  # of each run
    counts, after = np.repeat(runs.count, stretches), np.zeros(int(stretches.sum()), np.int64)
    parted = np.repeat(runs.arrivals > 0, stretches)
    pairs = spread(runs.at, 2 * runs.arrivals)
    counts[parted], after[parted] = runs.numbers[pairs[::2]], runs.numbers[pairs[1::2]]
    whole = np.repeat(np.repeat(runs.arrived, stretches) + after, counts)  # ms of all messages, wanted or not
    wanted: Integers = whole[(np.cumsum(runs.count) - runs.count)[rows.run] + rows.index]
    return wanted


def _headers(runs: Runs, rows: Rows, elements: Any) -> Any:
    """Headers as their sender gave them, without the destination."""
    layouts = {(texts.names, texts.holes) for texts in runs.texts}
    if len(layouts) == 1:
        names, holes = layouts.pop()
        return _map(
            np.full(len(rows), len(names), np.int64),
            _names(names, len(rows)),
            elements.take(pa.array(_alike(runs, rows, holes))),
        )
    return _mixed_headers(runs, rows, elements)


def _alike(runs: Runs, rows: Rows, holes: tuple[int, ...]) -> Integers:
    """The elements of all header values, where all shapes name the same headers and have the same holes."""
    found = np.empty((len(rows), len(holes)), np.int64)
    fixed = (runs.destinations[runs.shape] + 1)[rows.run]
    first = runs.begin[rows.run] + rows.index
    for column, hole in enumerate(holes):
        found[:, column] = fixed + column if hole < 0 else first + hole * runs.count[rows.run]
    return found.ravel()


def _names(names: tuple[str, ...], rows: int) -> Any:
    """The names of all headers, `rows` times over."""
    if rows > REPEATED_ROWS:
        return _repeated_names(names, rows)
    return _repeated_names(names, REPEATED_ROWS)[: rows * len(names)]


@lru_cache(64)
def _repeated_names(names: tuple[str, ...], rows: int) -> Any:
    return (
        pa.array([_utf8(name) for name in names], pa.binary())
        .view(pa.string())
        .take(pa.array(np.tile(np.arange(len(names)), rows)))
    )


def _mixed_headers(runs: Runs, rows: Rows, elements: Any) -> Any:
    sizes = np.array([len(texts.names) for texts in runs.texts], np.int64)
    before = np.cumsum(sizes) - sizes
    shape = runs.shape[rows.run]
    counts = sizes[shape]
    places = spread(before[shape], counts)  # of each entry among the names of all shapes
    names = pa.array([_utf8(name) for texts in runs.texts for name in texts.names], pa.binary()).view(
        pa.string()
    )
    hole = np.array([hole for texts in runs.texts for hole in texts.holes], np.int64)[places]
    chosen = spread(runs.destinations[shape] + 1, counts)
    varies = hole >= 0
    run, index = np.repeat(rows.run, counts)[varies], np.repeat(rows.index, counts)[varies]
    chosen[varies] = runs.begin[run] + hole[varies] * runs.count[run] + index
    return _map(counts, names.take(pa.array(places)), elements.take(pa.array(chosen)))


def _map(counts: Integers, names: Any, values: Any) -> Any:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:], dtype=np.int32)
    ends = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
    return pa.MapArray.from_arrays(ends, names, values.view(pa.string()))
