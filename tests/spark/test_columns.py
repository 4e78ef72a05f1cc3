"""Chunks to Arrow columns and back to the same messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.errors import StoreError
from stompbox.message import Run, Shape
from stompbox.spark.columns import COLUMNS, REPEATED_ROWS, batch_of, joined, rows_of, schema_of, sliced
from stompbox.spark.ddl import TYPES
from stompbox.spark.offsets import OffsetRange
from stompbox.store.chunks import encode

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = st.sampled_from(["carrier", "id", "origin", "content-type", "x"])
PLAIN = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters=":\\"), max_size=12
).map(str.encode)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    headers = draw(st.dictionaries(NAMES, st.text(max_size=8), max_size=4))
    holes = draw(st.lists(NAMES.filter(lambda name: name not in headers), unique=True, max_size=2))
    return Shape(
        {"destination": draw(st.sampled_from(["/topic/a", "/queue/a", "/topic/ä"])), **headers},
        holes=tuple(holes),
    )


@st.composite
def logs(draw: st.DrawFn) -> list[list[Run]]:
    """The runs of a few chunks, with gaps between runs and between chunks."""
    known = draw(st.lists(shapes(), min_size=1, max_size=4))
    found, offset, arrived = [], draw(st.integers(0, 10)), 1_700_000_000_000
    for _ in range(draw(st.integers(1, 4))):
        chunk = []
        for _ in range(draw(st.integers(1, 5))):
            shape = draw(st.sampled_from(known))
            size = draw(st.integers(1, 5))
            bodies = draw(st.lists(st.binary(max_size=9), min_size=size, max_size=size))
            columns = tuple(draw(st.lists(PLAIN, min_size=size, max_size=size)) for _ in shape.holes)
            offset += draw(st.sampled_from([0, 0, 0, 3]))
            arrived += draw(st.sampled_from([0, 0, 1, 1000]))
            chunk.append(Run(shape, bodies, columns, first=offset, arrived=arrived))
            offset += size
        found.append(chunk)
    return found


def expected(chunks: list[list[Run]], address: str) -> list[dict[str, Any]]:
    return [
        {
            "address": address,
            "offset": run.first + index,
            "timestamp": EPOCH + timedelta(milliseconds=run.arrived),
            "destination": run.shape.destination,
            "headers": sorted(
                (name, value) for name, value in run.headers(index).items() if name != "destination"
            ),
            "body": run.bodies[index],
        }
        for runs in chunks
        for run in runs
        for index in range(len(run))
    ]


def seen(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        if "headers" in row:
            row["headers"] = sorted(row["headers"])
    return rows


def decode(
    chunks: list[list[Run]], wanted: OffsetRange, names: tuple[str, ...] = tuple(COLUMNS)
) -> pa.RecordBatch:
    runs = joined([encode(chunk, chunk[0].first) for chunk in chunks])
    batch = batch_of(runs, rows_of(runs, wanted), wanted.address, names)
    batch.validate(full=True)
    return batch


@given(logs())
def test_the_same_messages(chunks: list[list[Run]]) -> None:
    batch = decode(chunks, OffsetRange("a", 0, 1 << 40))
    assert batch.schema == schema_of(tuple(COLUMNS))
    assert seen(batch) == expected(chunks, "a")


@given(logs(), st.integers(0, 40), st.integers(0, 40))
def test_only_the_offsets_wanted(chunks: list[list[Run]], start: int, size: int) -> None:
    found = seen(decode(chunks, OffsetRange("a", start, start + size)))
    assert found == [row for row in expected(chunks, "a") if start <= row["offset"] < start + size]


@given(logs(), st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, min_size=1))
def test_a_part_of_the_columns(chunks: list[list[Run]], names: list[str]) -> None:
    found = seen(decode(chunks, OffsetRange("a", 0, 1 << 40), tuple(names)))
    assert found == [{name: row[name] for name in names} for row in expected(chunks, "a")]


@given(logs())
def test_blobs_may_be_views(chunks: list[list[Run]]) -> None:
    blobs = [memoryview(bytearray(encode(chunk, chunk[0].first))) for chunk in chunks]
    runs = joined(blobs)
    assert seen(batch_of(runs, rows_of(runs, OffsetRange("a", 0, 1 << 40)), "a")) == expected(chunks, "a")


def test_many_rows_of_one_shape() -> None:
    count = REPEATED_ROWS + 10
    run = Run(
        Shape({"destination": "/topic/a", "k": "v"}, holes=("n",)),
        [b"x"] * count,
        ([b"%d" % i for i in range(count)],),
        first=0,
    )
    headers = decode([[run]], OffsetRange("a", 0, count), ("headers",)).column("headers")
    assert headers[0].as_py() == [("k", "v"), ("n", "0")]
    assert headers[count - 1].as_py() == [("k", "v"), ("n", str(count - 1))]


def test_a_shape_without_headers() -> None:
    run = Run(Shape({"destination": "/topic/a"}), [b"x", b"y"], first=7)
    assert decode([[run]], OffsetRange("a", 0, 99), ("headers", "offset")).to_pylist() == [
        {"headers": [], "offset": 7},
        {"headers": [], "offset": 8},
    ]


def test_text_that_is_no_utf8() -> None:
    run = Run(Shape({"destination": "/topic/a", "bad": "\udcff"}), [b"x"], first=0)
    assert decode([[run]], OffsetRange("a", 0, 1), ("headers",)).to_pylist() == [{"headers": [("bad", "?")]}]


def test_a_flipped_bit_is_found() -> None:
    blob = bytearray(encode([Run(Shape({"destination": "/topic/a"}), [b"hello"], first=0)], 0))
    blob[-1] ^= 1
    with pytest.raises(StoreError, match="checksum"):
        joined([blob])


@pytest.mark.parametrize(
    ("rows", "pieces"),
    [(0, []), (1, [1]), (10_000, [10_000]), (14_999, [14_999]), (25_000, [12_500, 12_500])],
)
def test_pieces(rows: int, pieces: list[int]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(range(rows), pa.int64())], ["offset"])
    assert [len(piece) for piece in sliced(batch)] == pieces


def test_types_are_those_that_spark_asks_for() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    from pyspark.sql.pandas.types import to_arrow_schema

    spark = {
        "string": types.StringType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
        "binary": types.BinaryType(),
    }
    struct = types.StructType([types.StructField(name, spark[kind]) for name, kind in TYPES.items()])
    assert to_arrow_schema(struct, timezone="UTC") == schema_of(tuple(COLUMNS))
