"""Reports with a real broker and a real Spark: the figures against ones counted here, and the page that shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyarrow import parquet

from stompbox.pipelines.page import page
from stompbox.pipelines.report import _LAGS, figures_of
from tests.pipelines.conftest import Run, send, stored

TEXT = """
[[archive]]
name = "orders"
destinations = ["/queue/report.a", "/queue/report.b"]
table = "table"
[[report]]
name = "figures"
archives = ["orders"]
dead-letters = ["/queue/report.dead", "/queue/report.none"]
output = "out"
"""
EXPIRED = {"expires": "1"}


def summed(hours: list[dict[str, Any]], address: str) -> tuple[int, int]:
    rows = [row for row in hours if row["address"] == address]
    return sum(row["messages"] for row in rows), sum(row["bytes"] for row in rows)


def test_figures_per_address_and_hour(run: Run, url: str, tmp_path: Path) -> None:
    sizes = {"a": list(range(1, 101)), "b": [7]}
    for address, numbers in sizes.items():
        send(url, f"/queue/report.{address}", [b"x" * size for size in numbers])
    run(TEXT, "orders")
    send(url, "/queue/report.late", [b"too late", b"late"], EXPIRED)
    assert len(stored(url, "/queue/report.dead")) == 2
    send(url, "/queue/report.dead", [b"?"])
    send(url, "/queue/report.b", [b"waits"])
    facts = run(TEXT, "figures")["figures"].facts
    assert {name: facts[name] for name in ("messages", "bytes", "addresses", "waiting", "dead_letters")} == {
        "messages": 101, "bytes": 5057, "addresses": 2, "waiting": 1, "dead_letters": 3,
    }  # fmt: skip
    hours = parquet.read_table(tmp_path / "out" / "hours").to_pylist()
    assert {address: summed(hours, f"report.{address}") for address in "ab"} == {
        "a": (100, 5050),
        "b": (1, 7),
    }
    assert min(row["size_min"] for row in hours) == 1
    assert max(row["size_max"] for row in hours) == 100
    for row in hours:
        assert row["size_min"] <= row["size_p50"] <= row["size_p99"] <= row["size_max"]
        assert 0 <= row["wait_p50"] <= row["wait_p99"] <= row["wait_max"]
        assert (row["hour"].minute, row["archive"]) == (0, "orders")
    dead = parquet.read_table(tmp_path / "out" / "dead-letters").to_pylist()
    assert sorted((row["reason"], row["address"], row["messages"], row["bytes"]) for row in dead) == [
        ("expired", "report.late", 2, 12), ("unknown", "", 1, 1),
    ]  # fmt: skip
    lags = parquet.read_table(tmp_path / "out" / "lags").to_pylist()
    places = {row["address"]: (row["next"], row["archived"], row["waiting"]) for row in lags}
    assert places == {"report.a": (100, 100, 0), "report.b": (2, 1, 1)}
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<svg") == 4
    assert "report.late" in page and "expired" in page and "http" not in page.replace("http-equiv", "")


def test_nothing_is_left_out_of_the_sums_of_very_many_addresses_and_hours(spark: Any, tmp_path: Path) -> None:
    """30,000 addresses in one hour, and one address over 3,000 hours, which are drawn by the day."""
    sizes = "1L AS size_min, 1.0D AS size_avg, 1L AS size_p50, 2L AS size_p99, 3L AS size_max"
    rest = f"2L AS bytes, {sizes}, 1L AS wait_p50, id AS wait_p99, 9L AS wait_max, 0L AS first_offset, 1L AS last_offset"
    hours = "timestamp_seconds(1767225600 + 3600 * greatest(0, id - 29999)) AS hour"
    address = "concat('a', least(id, 29999)) AS address"
    table = spark.range(0, 33_000, 1, 1).selectExpr(
        "'a' AS archive", address, hours, "1L AS messages", *rest.split(", ")
    )
    table.write.parquet(str(tmp_path / "hours"))
    empty = {
        "lags": _LAGS,
        "dead-letters": "reason STRING, address STRING, hour TIMESTAMP, messages BIGINT, bytes BIGINT",
    }
    for name, columns in empty.items():
        spark.createDataFrame([], columns).write.parquet(str(tmp_path / name))
    figures = figures_of(spark.newSession(), tmp_path, "all")
    totals = figures.totals
    assert (totals.messages, totals.bytes, totals.addresses) == (33_000, 66_000, 30_000)
    assert (totals.hour_rows, totals.worst_wait) == (33_000, 32_999)
    assert (totals.waiting, totals.dead, figures.unit) == (0, 0, "day")
    assert sum(row["messages"] for row in figures.drawn) == 33_000
    assert {row["address"] for row in figures.drawn} > {"a29999", "others"}
    assert len(figures.drawn) < 200
    assert "and 32,500 more rows" in page(figures)
