"""Rows of the driver as frames."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox.pipelines.frames import frame_of


def test_rows_are_there_without_a_task_of_python(spark: Any) -> None:
    at = datetime(2026, 3, 1, 12, 30, 0, 123456, UTC)
    columns = "name STRING, offset BIGINT, at TIMESTAMP, headers MAP<STRING, STRING>, body BINARY"
    frame = frame_of(
        spark, columns, [("a", 1 << 40, at, {"k": "v"}, b"\0\xff"), ("b", None, None, None, None)]
    )
    assert frame.schema == spark.createDataFrame([], columns).schema
    rows = [row.asDict() for row in frame.selectExpr("*", "unix_micros(at) AS micros").collect()]
    assert [(row["name"], row["offset"], row["headers"], row["body"], row["micros"]) for row in rows] == [
        ("a", 1 << 40, {"k": "v"}, b"\0\xff", int(at.timestamp() * 1_000_000)),
        ("b", None, None, None, None),
    ]
    assert "LocalTableScan" in frame._jdf.queryExecution().executedPlan().toString()


def test_no_rows_are_left_out_of_a_query(spark: Any) -> None:
    none = frame_of(spark, "id BIGINT")
    plan = none.union(spark.range(3)).groupBy("id").count()._jdf.queryExecution().optimizedPlan().toString()
    assert none.count() == 0 and "LocalRelation" not in plan and "Union" not in plan


def test_a_row_that_has_not_these_columns_is_refused(spark: Any) -> None:
    with pytest.raises(ValueError, match="shorter"):
        frame_of(spark, "a BIGINT, b BIGINT", [(1,)])
