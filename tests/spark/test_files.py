"""Batches as Parquet files: groups that are bounded, few files open, and nothing in them that Spark would not write. Without Spark."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from pyarrow import parquet

from stompbox.errors import UsageError
from stompbox.spark import files
from stompbox.spark.columns import schema_of
from stompbox.spark.files import Files, codec_of

SCHEMA = pa.schema([("offset", pa.int64()), ("body", pa.binary())])


def batch(*offsets: int, size: int = 1) -> Any:
    return pa.record_batch(
        [pa.array(offsets, pa.int64()), pa.array([b"x" * size for _ in offsets], pa.binary())], schema=SCHEMA
    )


def offsets(path: str) -> list[int]:
    found: list[int] = parquet.ParquetFile(path).read(["offset"]).column("offset").to_pylist()
    return found


def test_each_partition_is_a_file_with_its_rows_in_order(tmp_path: Path) -> None:
    with Files(tmp_path, SCHEMA) as written:
        for number in range(6):
            written.add(batch(2 * number, 2 * number + 1), f"date=2026-03-0{number % 2 + 1}")
    assert {each.partition: (each.rows, offsets(each.path)) for each in written.written} == {
        "date=2026-03-01": (6, [0, 1, 4, 5, 8, 9]),
        "date=2026-03-02": (6, [2, 3, 6, 7, 10, 11]),
    }
    assert all(Path(each.path).parent == tmp_path / each.partition for each in written.written)


def test_what_is_held_is_bounded_in_bytes_over_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "GROUP_BYTES", 100_000)
    most = 0
    with Files(tmp_path, SCHEMA) as written:
        for number in range(60):
            written.add(batch(number, size=10_000), f"date={number % 3}")
            most = max(most, sum(each.held_bytes for each in written._open.values()))
    assert 50_000 < most < 100_000
    assert {each.rows for each in written.written} == {20}
    groups = [parquet.read_metadata(each.path).num_row_groups for each in written.written]
    assert 6 <= sum(groups) <= 20, "large groups, and not one for each batch"


def test_a_group_has_no_more_rows_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUP_ROWS", 10)
    with Files(tmp_path, SCHEMA) as written:
        for number in range(8):
            written.add(batch(*range(4 * number, 4 * number + 4)))
    [file] = written.written
    metadata = parquet.read_metadata(file.path)
    assert (file.partition, file.rows, offsets(file.path)) == ("", 32, list(range(32)))
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [
        10,
        2,
        10,
        2,
        8,
    ]


def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of old messages may hold a file for each day of years."""
    monkeypatch.setattr(files, "MOST_OPEN", 4)
    with Files(tmp_path, SCHEMA) as written:
        for number in range(20):
            written.add(batch(number), f"date={number % 10}")
            assert len(written._open) <= 4
    assert sorted(offset for each in written.written for offset in offsets(each.path)) == list(range(20))


def test_a_fault_leaves_no_file_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Files(tmp_path, SCHEMA) as written:
        written.add(batch(1))
        raise ZeroDivisionError
    assert written.written == []


def test_nothing_of_arrow_is_in_a_file(tmp_path: Path) -> None:
    """Types as Spark writes them, no schema of Arrow beside, and no bodies among the statistics, where a footer would hold them again."""
    schema = schema_of(("address", "timestamp", "headers", "body")).append(
        pa.field("price", pa.decimal128(9, 2))
    )
    row = {
        "address": "a",
        "timestamp": 5,
        "headers": [("k", None)],
        "body": b"secret",
        "price": Decimal("1.50"),
    }
    with Files(tmp_path, schema) as written:
        written.add(pa.RecordBatch.from_pylist([row], schema=schema))
    file = parquet.ParquetFile(written.written[0].path)
    assert file.metadata.metadata is None
    kinds = {column.path: (column.physical_type, str(column.logical_type)) for column in file.schema}
    assert (
        kinds["timestamp"][0] == "INT64"
        and "isAdjustedToUTC=true, timeUnit=microseconds" in kinds["timestamp"][1]
    )
    assert kinds["price"][0] == "INT32"
    assert set(kinds) == {
        "address",
        "timestamp",
        "headers.key_value.key",
        "headers.key_value.value",
        "body",
        "price",
    }
    group = file.metadata.row_group(0)
    stated = {
        group.column(number).path_in_schema: group.column(number).is_stats_set
        for number in range(group.num_columns)
    }
    assert stated["timestamp"] and not stated["body"]
    assert (
        b"secret"
        not in Path(written.written[0].path).read_bytes()[file.metadata.row_group(0).total_byte_size + 4 :]
    )


@pytest.mark.parametrize(
    ("named", "found"), [("zstd", "ZSTD"), ("NONE", "UNCOMPRESSED"), ("lz4_raw", "LZ4"), ("gzip", "GZIP")]
)
def test_sparks_codec_is_taken(named: str, found: str, tmp_path: Path) -> None:
    with Files(tmp_path, SCHEMA, codec_of(named)) as written:
        written.add(batch(1))
    assert parquet.read_metadata(written.written[0].path).row_group(0).column(0).compression == found


def test_a_codec_that_arrow_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"codec is 'lzo'; allowed are none, "):
        codec_of("lzo")
