"""The rows of a table as readers see them that began before a compaction: Spark by the log, DuckDB and pyarrow by the folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("pyspark")

from stompbox.pipelines.settings import Format
from stompbox.pipelines.staging import read
from stompbox.pipelines.tables import Policy, compact, open_table
from tests.pipelines.lake import expected, staged

ROOT = Path(__file__).parents[2]
POLICY = Policy(files=2, small=1 << 20, target=1 << 24)
BATCHES = 60


def live_query(folder: Path) -> str:
    """What the page says to DuckDB for the live files of a table; the last statement is the query."""
    page = (ROOT / "docs" / "pipelines.md").read_text()
    [snippet] = [text.partition("```")[0] for text in page.split("```sql\n")[1:] if "read_text" in text]
    return snippet.replace("lake/orders", str(folder))


def test_readers_of_parquet_that_began_before_a_compaction_come_to_their_end(
    spark: Any, tmp_path: Path
) -> None:
    import duckdb
    from pyarrow import dataset

    folder = tmp_path / "table"
    table = open_table(Format.PARQUET, folder)
    for batch in range(3):
        table.append(staged(table, Format.PARQUET, batch), "query", batch)
    deep = [f"{folder}/**/*.parquet"]
    count = 'SELECT count(*), count(DISTINCT "offset") FROM read_parquet({})'
    before = [spark.read.parquet(str(folder)), read(spark, table)]
    listed = dataset.dataset(folder, format="parquet", partitioning="hive")
    paths = [str(path) for path in folder.glob("**/*.parquet")]
    assert compact(table, POLICY) == 6
    after = [spark.read.parquet(str(folder)), read(spark, table)]
    for rows in (*before, *after):
        assert sorted(row["offset"] for row in rows.select("offset").collect()) == sorted(
            expected(0, 1, 2)
        ), rows
        assert {str(row["date"]) for row in rows.select("date").distinct().collect()} == {
            "2026-03-01",
            "2026-03-02",
        }
    assert all("_compacted=" in unquote(file) for file in after[0].inputFiles()), (
        "Spark reads what the log names"
    )
    assert (
        listed.count_rows()
        == dataset.dataset(folder, format="parquet", partitioning="hive").count_rows()
        == 24
    )
    with duckdb.connect() as connection:
        assert [connection.sql(count.format(files)).fetchall() for files in (deep, paths)] == [
            [(24, 24)],
            [(24, 24)],
        ]


def test_the_documented_query_of_the_live_files_in_duckdb(tmp_path: Path) -> None:
    import duckdb

    folder = tmp_path / "my lake" / "orders"
    table = open_table(Format.PARQUET, folder)
    for batch in range(4):
        table.append(staged(table, Format.PARQUET, batch), "query", batch)
        if batch == 2:
            compact(table, POLICY)
    with duckdb.connect() as connection:
        assert connection.execute(live_query(folder)).fetchall() == [(32,)]
        assert len(connection.sql("SELECT unnest(getvariable('live'))").fetchall()) == len(table.files()) == 4


def test_spark_reads_the_log_while_it_is_written(spark: Any, tmp_path: Path) -> None:
    """Every batch has a log of a new name, and every compaction; a reader sees whole batches."""
    folder = tmp_path / "table"
    table = open_table(Format.PARQUET, folder)
    for batch in range(5):
        table.append(staged(table, Format.PARQUET, batch), "query", batch)
        rows = spark.read.parquet(str(folder))
        compact(table, POLICY)
        assert rows.count() == 8 * (batch + 1)


def test_readers_in_a_loop_beside_a_writer_that_compacts_see_whole_files_and_all_that_counts(
    spark: Any, tmp_path: Path
) -> None:
    """By the log (Spark, ourselves, DuckDB as documented) each read has whole batches; by listing, whole files, none missing."""
    import duckdb

    folder = tmp_path / "table"
    table = open_table(Format.PARQUET, folder)
    table.append(staged(table, Format.PARQUET, 0), "query", 0)
    done, failed = [1], list[BaseException]()

    def write() -> None:
        try:
            for batch in range(1, BATCHES):
                table.append(staged(table, Format.PARQUET, batch), "query", batch)
                compact(table, POLICY)
                done[0] = batch + 1
        except BaseException as fault:
            failed.append(fault)

    listed = f"SELECT count(*) FROM read_parquet(['{folder}/**/*.parquet'])"
    live = live_query(folder)
    readers: dict[str, Callable[[duckdb.DuckDBPyConnection], Any]] = {
        "listing": lambda link: link.sql(listed).fetchall()[0],
        "live": lambda link: link.execute(live).fetchall()[0],
        "spark": lambda _: [spark.read.parquet(str(folder)).count()],
        "own": lambda _: [read(spark, open_table(Format.PARQUET, folder)).count()],
    }
    seen = dict.fromkeys(readers, 0)
    writer = threading.Thread(target=write)
    writer.start()
    with duckdb.connect() as link:
        while writer.is_alive() or not all(seen.values()):
            for name, look in readers.items():
                before, [rows], after = done[0], look(link), done[0]
                assert 8 * before <= rows <= 8 * (after + 1), name
                assert name == "listing" or rows % 8 == 0, name
                seen[name] += 1
    writer.join()
    assert failed == []
    assert done == [BATCHES]
    assert len(table.files()) < BATCHES, "nothing was rewritten"
