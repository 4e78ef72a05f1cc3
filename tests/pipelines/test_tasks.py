"""What the tasks of an archive write: which rows, in which files. Without Spark, with a small broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyarrow import parquet

from stompbox.errors import Refused
from stompbox.pipelines.locations import Attempt
from stompbox.pipelines.tasks import DAY, DAY_LENGTH, Source, Work, beyond, by_day, write_messages
from stompbox.spark.columns import COLUMNS, schema_of
from stompbox.spark.options import Given, source_options
from stompbox.spark.reading import View
from tests.spark.fake_broker import ARRIVED, FakeBroker

ARCHIVED = 1_800_000_000_000_000
STORED = schema_of(tuple(COLUMNS)).append(pa.field("archived", pa.timestamp("us", "UTC")))


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with closing(FakeBroker()) as broker:
        yield broker


def work(
    fake: FakeBroker, folder: Path, known: dict[str, tuple[int, int]] | None = None, *, date: bool = False
) -> Work:
    options = source_options(Given({"url": fake.url, "destination": "/topic/#"}), streaming=True)
    whole = STORED.append(pa.field(DAY, pa.date32()))
    return Work(
        Source(options, View(tuple(COLUMNS)), whole),
        Attempt(folder),
        whole if date else STORED,
        ARCHIVED,
        known or {},
    )


def task(*ranges: tuple[str, int, int]) -> Iterator[Any]:
    return iter(
        [
            SimpleNamespace(address=address, start=start, stop=stop, incarnation="")
            for address, start, stop in ranges
        ]
    )


def rows(written: list[Any]) -> list[dict[str, Any]]:
    return [row for file in written for row in parquet.ParquetFile(file.path).read().to_pylist()]


@pytest.mark.parametrize("date", [False, True], ids=["date in the folder", "date in the file"])
def test_a_task_writes_what_it_was_dealt(date: bool, fake: FakeBroker, tmp_path: Path) -> None:
    fake.send("/topic/a", [b"%d" % number for number in range(30)])
    fake.send("/topic/b", [b"x"])
    [(count, written)] = write_messages(work(fake, tmp_path, date=date), task(("a", 5, 25), ("b", 0, 1)))
    [file] = written
    assert (count, file.rows, file.partition) == (21, 21, "date=2023-11-14")
    found = rows(written)
    assert [(row["address"], row["offset"], row["body"]) for row in found] == [
        *(("a", number, b"%d" % number) for number in range(5, 25)), ("b", 0, b"x"),
    ]  # fmt: skip
    assert {row["archived"].timestamp() for row in found} == {ARCHIVED / 1e6}
    assert [row.get("date") and str(row["date"]) for row in found] == ["2023-11-14" if date else None] * 21


def test_rows_that_the_table_has_are_left_out_and_counted(fake: FakeBroker, tmp_path: Path) -> None:
    """By offset and time: of a log that was made anew all is new, however low its offsets."""
    fake.send("/topic/a", [b"x"] * 10)
    fake.send("/topic/again", [b"x"] * 10)
    known = {"a": (4, ARRIVED * 1000), "again": (400, ARRIVED * 1000 - 1)}
    [(count, written)] = write_messages(work(fake, tmp_path, known), task(("a", 0, 10), ("again", 0, 10)))
    assert (count, sum(file.rows for file in written)) == (20, 16)
    assert [row["offset"] for row in rows(written) if row["address"] == "a"] == [4, 5, 6, 7, 8, 9]
    [(count, written)] = write_messages(work(fake, tmp_path, {"a": (10, ARRIVED * 1000)}), task(("a", 0, 10)))
    assert (count, written) == (10, [])


def test_what_is_lost_ends_a_task(fake: FakeBroker, tmp_path: Path) -> None:
    fake.send("/topic/a", [b"x"] * 10)
    with pytest.raises(Refused, match="offset 10, before the 20 that was planned"):
        list(write_messages(work(fake, tmp_path), task(("a", 0, 20))))


def test_days_are_those_of_utc() -> None:
    moments = [-1, 0, DAY_LENGTH - 1, DAY_LENGTH, 5]
    schema = schema_of(("address", "offset", "timestamp"))
    columns = [
        pa.array(["a"] * 5),
        pa.array(range(5), pa.int64()),
        pa.array(moments, pa.timestamp("us", "UTC")),
    ]
    batch = pa.record_batch(columns, schema=schema)
    assert {day: part.column("offset").to_pylist() for day, part in by_day(batch)} == {
        -1: [0],
        0: [1, 2, 4],
        1: [3],
    }
    assert [day for day, _ in by_day(batch.slice(1, 2))] == [0]
    assert list(by_day(batch.slice(0, 0))) == []
    assert beyond(batch.slice(0, 0), {"a": (3, 0)}).num_rows == 0
