"""Rows as runs: the columns of a DataFrame become messages that the broker stores as they are.

Rows that share destination, content type, priority, expiry, persistence and the names of their headers make one run, in their order; a
header whose value differs among them becomes a hole of the shape. Rows of different destinations change places with each other, rows
of one destination never do.

| column       | type                | meaning                                                                            |
|--------------|---------------------|------------------------------------------------------------------------------------|
| body         | binary or string    | required; NULL is an empty body                                                    |
| destination  | string              | NULL or absent: the option destination                                             |
| headers      | map<string,string>  | a header with value NULL is left out, as are those that only the broker writes     |
| content_type | string              | header content-type                                                                |
| priority     | tinyint to bigint   | 0 to 9                                                                             |
| expires      | timestamp           | when the message expires                                                           |
| persistent   | boolean             | is it stored?                                                                      |

The columns address, offset and timestamp are let pass and not used, so that rows read from a broker can be sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stompbox.errors import IllegalFrame, UsageError
from stompbox.message import NOT_TAKEN, Shape
from stompbox.spark.options import CONTROLS
from stompbox.stomp.runs import may_be_hole
from stompbox.stomp.shapes import shape_of
from stompbox.store.chunks import Flat, encode_flat
from stompbox.store.cutting import EACH

Integers = npt.NDArray[np.int64]

_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "destination": ("string",),
    "headers": ("map<string,string>",),
    "content_type": ("string",),
    "priority": _NUMBERS,
    "expires": ("timestamp",),
    "persistent": ("boolean",),
}
UNUSED: Final = frozenset(("address", "offset", "timestamp"))
_HEADER_OF: Final = {
    "content_type": "content-type",
    "priority": "priority",
    "expires": "expires",
    "persistent": "persistent",
}
# what a hole may hold (message.py, Shape)
_PLAIN: Final = bytes(octet for octet in range(0x20, 0x7F) if octet not in b":\\")
MOST_SHAPES: Final = 1024  # kept from batch to batch


def check_columns(types: Mapping[str, str], destination: str) -> None:
    """Raises UsageError naming the column that is missing, unknown or of a wrong type."""
    for name, kind in types.items():
        allowed = COLUMNS.get(name)
        if allowed is None and name not in UNUSED:
            close = get_close_matches(name, COLUMNS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"columns of messages are {', '.join(COLUMNS)}"
            raise UsageError("bad-column", f"format stomp cannot write column {name!r}; {hint}")
        if allowed is not None and kind not in allowed:
            raise UsageError(
                "bad-column",
                f"column {name!r} is of type {kind}; format stomp writes it from {' or '.join(allowed)}",
            )
    if "body" not in types:
        raise UsageError(
            "missing-column", "column 'body' is missing: binary or string, what the messages hold"
        )
    if "destination" not in types and not destination:
        raise UsageError(
            "missing-column",
            "where to? Neither a column 'destination' (string) nor the option 'destination' is there",
        )


@dataclass(frozen=True, slots=True)
class Values:
    """Binary values as Arrow has them: the one at row i is octets[edges[i]:edges[i + 1]]."""

    edges: Integers
    octets: memoryview

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __getitem__(self, row: int) -> bytes:
        return bytes(self.octets[self.edges[row] : self.edges[row + 1]])

    def cut(self, start: int, stop: int) -> Values:
        return Values(self.edges[start : stop + 1], self.octets)

    def joined(self) -> memoryview:
        return self.octets[self.edges[0] : self.edges[-1]]

    def is_constant(self) -> bool:
        """Whether each row has the value of the first."""
        if len(self.edges) == 2:
            return True
        first, data = self[0], self.joined()
        return (
            len(data) == len(first) * len(self)
            and bool((np.diff(self.edges) == len(first)).all())
            and first * len(self) == data
        )

    def flat(self) -> tuple[memoryview, memoryview]:
        return np.diff(self.edges).astype("<u4").data, self.joined()


def _values(column: Any) -> Values:
    """The values of a binary column, whose NULLs are empty: its own buffers."""
    octets = column.buffers()[2]
    return Values(_edges(column), memoryview(octets).cast("B") if octets is not None else memoryview(b""))


def _edges(column: Any) -> Integers:
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages of one shape: a column for each hole, and the bodies."""

    shape: Shape
    columns: tuple[Values, ...]
    bodies: Values

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def size(self) -> int:
        """Octets, about: a message costs a little beside its body."""
        return int(self.bodies.edges[-1] - self.bodies.edges[0]) + EACH * len(self)

    def first_of(self, size: int) -> int:
        """How many of them are not larger than that, together."""
        ends = self.bodies.edges[1:] - self.bodies.edges[0] + EACH * np.arange(1, len(self) + 1)
        return int(np.searchsorted(ends, size, "right"))

    def cut(self, start: int, stop: int) -> Rows:
        return Rows(
            self.shape,
            tuple([column.cut(start, stop) for column in self.columns]),
            self.bodies.cut(start, stop),
        )

    def flat(self) -> Flat:
        return Flat(self.shape, len(self), [column.flat() for column in (*self.columns, self.bodies)])


def chunks_of(found: Sequence[Rows], limit: int) -> Iterator[bytes]:
    """Chunks of about `limit` bytes, of one message at least, with all of these in their order."""
    portion: list[Flat] = []
    left = limit
    for run in found:
        rows = run
        while rows.size > left:
            count = max(rows.first_of(left), 0 if portion else 1)
            portion += [rows.cut(0, count).flat()] if count else []
            yield encode_flat(portion)
            portion, left, rows = [], limit, rows.cut(count, len(rows))
        if len(rows):
            portion.append(rows.flat())
            left -= rows.size
    if portion:
        yield encode_flat(portion)


class RowsToRuns:
    """Makes runs of RecordBatches, without a look at single rows. Keeps shapes, so that equal ones are one object from batch to batch."""

    def __init__(self, destination: str) -> None:
        self._destination: Final = destination
        self._shapes: Final[dict[tuple[object, ...], Shape]] = {}

    def runs(self, batch: Any) -> list[Rows]:
        """Raises UsageError naming the column for a value that cannot be sent."""
        if not len(batch):
            return []
        batch = self._by_destination(batch)
        columns = {name: batch.column(name) for name in batch.schema.names if name in COLUMNS}
        destinations = self._destinations(columns.get("destination"), len(batch))
        fixed = {
            _HEADER_OF[name]: _texts_of(name, column)
            for name, column in columns.items()
            if name in _HEADER_OF
        }
        headers = _Headers(columns.get("headers"), len(batch))
        bodies = _values(columns["body"].cast(pa.binary()).fill_null(b""))
        codes, values = zip(*(_coded(texts) for texts in (destinations, *fixed.values())), strict=True)
        _require_one_line(values[0])
        kinds = _combined([*codes, headers.kinds])
        edges = [0, *(np.flatnonzero(np.diff(kinds) != 0) + 1).tolist(), len(batch)]
        found: list[Rows] = []
        for start, stop in pairwise(edges):
            given = {
                name: value
                for name, value in _given(("destination", *fixed), codes, values, start)
                if value is not None
            }
            found += self._of_kind(given, headers, start, bodies.cut(start, stop))
        return found

    def _by_destination(self, batch: Any) -> Any:
        """The rows of each destination together, in their order: whole columns change places at once."""
        if "destination" not in batch.schema.names:
            return batch
        # where NULL stands, too, for the option's
        codes, values = _coded(self._destinations(batch.column("destination"), len(batch)))
        if len(values) == 1 or (np.diff(codes) >= 0).all():
            return batch
        return batch.take(pa.array(np.argsort(codes, kind="stable")))

    def _destinations(self, column: Any, rows: int) -> Any:
        if column is None:
            return pa.repeat(pa.scalar(self._destination, pa.string()), rows)
        if column.null_count and self._destination:
            column = column.fill_null(self._destination)
        if column.null_count or pc.any(pc.equal(column, "")).as_py():
            raise UsageError(
                "missing-destination",
                "column 'destination' is NULL or empty in a row, and there is no option 'destination'",
            )
        return column

    def _of_kind(
        self, given: Mapping[str, str], headers: _Headers, start: int, bodies: Values
    ) -> Iterator[Rows]:
        """The runs of the rows from `start` on, one for each body, that differ only in the values of their headers."""
        every = headers.names(start)
        places = [at for at, name in enumerate(every) if name not in given and name not in NOT_TAKEN]
        names = [every[at] for at in places]
        columns = [headers.column(at).cut(start, start + len(bodies)) for at in places]
        varies = [not column.is_constant() for column in columns]
        split = [
            column
            for name, column, vary in zip(names, columns, varies, strict=True)
            if vary and not _may_be_hole(name, column)
        ]
        if not split:
            yield self._run(given, names, columns, varies, bodies)
            return
        keys = [tuple([column[row] for column in split]) for row in range(len(bodies))]
        for _, part in groupby(range(len(bodies)), keys.__getitem__):
            rows = list(part)
            some = [column.cut(rows[0], rows[-1] + 1) for column in columns]
            varies = [not column.is_constant() for column in some]
            yield self._run(given, names, some, varies, bodies.cut(rows[0], rows[-1] + 1))

    def _run(
        self,
        given: Mapping[str, str],
        names: Sequence[str],
        columns: Sequence[Values],
        varies: Sequence[bool],
        bodies: Values,
    ) -> Rows:
        fixed, samples = dict[str, str](), dict[str, str]()
        for name, column, vary in zip(names, columns, varies, strict=True):
            (samples if vary else fixed)[name] = column[0].decode()
        shape = self._shape({**given, **fixed}, tuple(samples), samples)
        return Rows(
            shape, tuple([column for column, vary in zip(columns, varies, strict=True) if vary]), bodies
        )

    def _shape(self, headers: dict[str, str], holes: tuple[str, ...], samples: Mapping[str, str]) -> Shape:
        key = (*headers.items(), holes)
        found = self._shapes.get(key)
        if found is None:
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            try:
                found = shape_of({**headers, **samples, "content-length": ""}, holes=holes)
            except IllegalFrame as fault:
                raise UsageError(fault.code, f"column 'headers' or the column of its name: {fault}") from None
            self._shapes[key] = found
        return found


class _Headers:
    """The column `headers` of a batch: per row a kind (rows of one kind name the same headers in the same order) and the values."""

    def __init__(self, column: Any, rows: int) -> None:
        self.kinds: Integers = np.zeros(rows, np.int64)
        self._names: list[str] = []
        self._values: Any = None
        self._codes: Integers = np.zeros(0, np.int64)
        self._starts: Integers = np.zeros(rows + 1, np.int64)  # where the entries of each row begin
        self._columns: dict[int, Values] = {}
        if column is None:
            return
        keys, items, counts = _entries(column)
        coded = keys.dictionary_encode()
        self._names = coded.dictionary.to_pylist()
        if "" in self._names:
            raise UsageError("bad-header", "column 'headers' holds an empty name")
        self._values = items.cast(pa.binary())
        self._codes = coded.indices.to_numpy().astype(np.int64)
        self._starts[1:] = np.cumsum(counts)
        self.kinds = self._kinds(counts)

    def _kinds(self, counts: Integers) -> Integers:
        each = int(counts[0])
        if (counts == each).all():
            table = self._codes.reshape(len(counts), each)
            if (table == table[0]).all():
                return np.zeros(len(counts), np.int64)
        known: dict[bytes, int] = {}
        return np.array(
            [known.setdefault(self._codes[a:b].tobytes(), len(known)) for a, b in pairwise(self._starts)],
            np.int64,
        )

    def names(self, row: int) -> list[str]:
        return [self._names[code] for code in self._codes[self._starts[row] : self._starts[row + 1]].tolist()]

    def column(self, at: int) -> Values:
        """The value of the header that stands at this place in each row; of rows that have so many."""
        found = self._columns.get(at)
        if found is None:
            places = self._starts[:-1] + at
            found = self._columns[at] = _values(
                self._values.take(pa.array(places, mask=places >= self._starts[1:]))
            )
        return found


def _entries(column: Any) -> tuple[Any, Any, Integers]:
    """Names, values and how many of them each row has, without those whose value is NULL."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    each = np.diff(offsets)
    names = column.keys[offsets[0] : offsets[-1]]
    values = column.items[offsets[0] : offsets[-1]]
    if not column.null_count and not values.null_count:
        return names, values, each
    row = np.repeat(np.arange(len(each)), each)
    valid = (
        values.is_valid().to_numpy(zero_copy_only=False)
        & column.is_valid().to_numpy(zero_copy_only=False)[row]
    )
    return (
        names.filter(pa.array(valid)),
        values.filter(pa.array(valid)),
        np.bincount(row[valid], minlength=len(each)).astype(np.int64),
    )


def _may_be_hole(name: str, column: Values) -> bool:
    return may_be_hole(name) and not bytes(column.joined()).translate(None, _PLAIN)


def _texts_of(name: str, column: Any) -> Any:
    """A column that stands for a header, as the text of that header."""
    if name == "expires":
        return pc.cast(
            pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", "UTC")).view(pa.int64()),
            pa.string(),
        )
    if name == "priority" and pc.any(pc.or_(pc.less(column, 0), pc.greater(column, 9))).as_py():
        raise UsageError(
            "bad-priority",
            f"column 'priority' holds {pc.min(column).as_py()} to {pc.max(column).as_py()}; allowed are 0 to 9",
        )
    return column if name == "content_type" else pc.cast(column, pa.string())


def _require_one_line(destinations: Sequence[str | None]) -> None:
    """Destinations that lists, logs and command lines can show, as the names in a configuration are."""
    for each in destinations:
        if each is not None and CONTROLS.search(each):
            raise UsageError(
                "bad-column",
                f"column 'destination' holds {each[:80]!r}, which has control characters; a destination is one line of text",
            )


def _coded(column: Any) -> tuple[Integers, list[str | None]]:
    """Each row's value as a number, and what the numbers stand for."""
    coded = column.dictionary_encode(null_encoding="encode")
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()


def _combined(codes: Sequence[Integers]) -> Integers:
    """One number per row, equal where all the numbers are."""
    found = codes[0]
    for code in codes[1:]:
        if code.any():
            found = np.unique(found * (int(code.max()) + 1) + code, return_inverse=True)[1]
    return found


def _given(
    names: Sequence[str], codes: Sequence[Integers], values: Sequence[list[str | None]], row: int
) -> Iterator[tuple[str, str | None]]:
    for name, code, texts in zip(names, codes, values, strict=True):
        yield name, texts[code[row]]
