"""A batch read as Parquet files that the tasks write: what Spark's own writer would give, all of it or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyarrow import parquet

from stompbox.errors import UsageError
from stompbox.spark.export import to_parquet
from tests.spark.fake_broker import FakeBroker


def options(fake: FakeBroker, **more: str) -> dict[str, str]:
    return {"url": fake.url, "destination": "/topic/flights.#", **more}


def test_an_export_is_what_spark_would_write(spark: Any, fake: FakeBroker, tmp_path: Path) -> None:
    for carrier in ("UA", "DL"):
        fake.send(f"/topic/flights.{carrier}", [b'{"n": %d}' % number for number in range(15_000)], id="1")
    given = options(fake, schema="n INT, price DECIMAL(9,2)", numPartitions="2")
    assert to_parquet(spark, tmp_path / "ours", **given) == 30_000
    rows = spark.read.format("stomp").options(**given).load()
    rows.write.parquet(str(tmp_path / "theirs"))
    ours, theirs = (spark.read.parquet(str(tmp_path / name)) for name in ("ours", "theirs"))
    assert ours.schema == theirs.schema
    order = ("address", "offset")
    assert ours.drop("headers").orderBy(*order).toArrow() == theirs.drop("headers").orderBy(*order).toArrow()
    assert ours.selectExpr("headers['id'] AS id").distinct().collect() == [("1",)]
    assert len(list((tmp_path / "ours").iterdir())) == 2, "a file for each task"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_of_nothing_there_is_a_file_with_the_columns(spark: Any, fake: FakeBroker, tmp_path: Path) -> None:
    assert to_parquet(spark, tmp_path / "none", **options(fake, includeHeaders="false")) == 0
    [file] = (tmp_path / "none").iterdir()
    assert parquet.read_schema(file).names == ["address", "offset", "timestamp", "destination", "body"]
    assert parquet.read_schema(file).field("timestamp").type == pa.timestamp("us", "UTC")


def test_an_export_that_fails_leaves_nothing(spark: Any, fake: FakeBroker, tmp_path: Path) -> None:
    fake.send("/topic/flights.UA", [b"no json"])
    with pytest.raises(Exception, match=r"option 'mode' is FAILFAST.*offset 0 of 'flights.UA'"):
        to_parquet(spark, tmp_path / "ours", **options(fake, schema="n INT", mode="FAILFAST"))
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_touched(spark: Any, fake: FakeBroker, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is there already"):
        to_parquet(spark, tmp_path, **options(fake))
    with pytest.raises(UsageError, match="did you mean 'group'"):
        to_parquet(spark, tmp_path / "ours", **options(fake, grup="x"))
    assert list(tmp_path.iterdir()) == []
