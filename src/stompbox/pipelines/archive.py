"""Destinations to a table: every message once, also over a kill of anything and the loss of the checkpoint.

Each batch is staged, then committed under (query, batch): what Spark does again after a crash is known by that. A checkpoint that is new
to a table that is not has a frontier: per address the last offset and time in the table. What the group gives again below it is left out,
so that a lost checkpoint doubles nothing; a log that was made anew has later times and is taken.

Decides what a row of an archive is: the source's columns, `archived` (when the batch was made) and `date` (the day of arrival, UTC).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from stompbox.pipelines import disk
from stompbox.pipelines.checkpoints import query_id
from stompbox.pipelines.progress import Compacted, Report
from stompbox.pipelines.settings import ArchiveTable, Plan, Stream, TransformTable, Written
from stompbox.pipelines.staging import forget, read, stage
from stompbox.pipelines.tables import Policy, Retention, Table, compact, open_table, tidy

FRONTIER: Final = "frontier.json"
Frontier = dict[str, tuple[int, str]]
"""Per address the offset after the last one in the table, and the time of that last one."""


def policy_of(step: Written) -> Policy:
    return Policy(step.compact_files, step.small_file, step.target_file)


def written_table(step: Written, folder: Path) -> Table:
    """The table of a step that writes it, rid of what a killed run has left."""
    table = open_table(step.format, folder, Retention(step.keep_replaced, step.keep_snapshots))
    tidy(table)
    return table


def group_of(plan: Plan, step: ArchiveTable) -> str:
    return step.group or f"{plan.name}-{step.name}"


def start(spark: Any, plan: Plan, step: ArchiveTable, report: Report, *, once: bool) -> Any:
    """The streaming query of an archive."""
    from pyspark.sql.functions import col, current_timestamp, to_date

    rows = spark.readStream.format("stomp").options(**plan.stream_options(step, step, group_of(plan, step))).load()
    rows = rows.withColumn("archived", current_timestamp()).withColumn("date", to_date(col("timestamp")))
    table = written_table(step, plan.path(step.table))
    checkpoint = plan.state(step.name) / "checkpoint"
    write = partial(_write, table=table, step=step, checkpoint=checkpoint, report=report)
    return started(rows, plan, step, write, once=once)


def started(rows: Any, plan: Plan, step: Stream, write: Callable[[Any, int], None], *, once: bool, mode: str = "append") -> Any:
    """A query that gives its batches to `write`."""
    name: str = getattr(step, "name", "")
    writer = rows.writeStream.foreachBatch(write).queryName(name).outputMode(mode)
    writer = writer.option("checkpointLocation", str(plan.state(name) / "checkpoint"))
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(step.trigger * 1000)} milliseconds").start()


def _write(frame: Any, batch: int, *, table: Table, step: ArchiveTable, checkpoint: Path, report: Report) -> None:
    query = query_id(checkpoint)
    if table.last_batch(query) >= batch:
        return
    rows = beyond(frame, frontier_of(frame.sparkSession, table, query, checkpoint))
    commit_batch(rows, (query, batch), table, step, "date")
    maintain(table, step, report)


def commit_batch(rows: Any, place: tuple[str, int], table: Table, step: ArchiveTable | TransformTable, partition_by: str) -> None:
    """Stages the rows of a batch, which is a query's and has a number, and makes them part of the table."""
    query, batch = place
    staged = stage(rows, table.folder, step.format, f"{query}-{batch}", partition_by)
    if staged.files:
        table.append(staged, query, batch)
    forget(staged)


def maintain(table: Table, step: ArchiveTable | TransformTable, report: Report) -> None:
    """Rewrites small files where it has become worth it."""
    if step.compact and (files := compact(table, policy_of(step))):
        report(Compacted(step=step.name, files=files))


def frontier_of(spark: Any, table: Table, query: str, checkpoint: Path) -> Frontier:
    """Where the table ended when this checkpoint began: kept beside it, for all its batches."""
    file = checkpoint / FRONTIER
    try:
        kept = json.loads(file.read_text())
        if kept["query"] == query:
            return {address: (offset, time) for address, (offset, time) in kept["frontier"].items()}
    except FileNotFoundError:
        pass
    found = frontier(spark, table)
    disk.write(file, json.dumps({"query": query, "frontier": found}).encode())
    return found


def frontier(spark: Any, table: Table) -> Frontier:
    from pyspark.sql.functions import col
    from pyspark.sql.functions import max as highest

    with disk.reading(table.folder):
        rows = read(spark, table)
        if rows is None:
            return {}
        ends = rows.groupBy("address").agg(highest("offset").alias("offset"), highest("timestamp").cast("string").alias("time"))
        return {row["address"]: (row["offset"] + 1, row["time"]) for row in ends.select(col("address"), "offset", "time").collect()}


def beyond(rows: Any, known: Frontier) -> Any:
    """The rows that are not in the table yet."""
    from pyspark.sql.functions import col, lit

    condition = lit(True)
    for address, (offset, time) in known.items():
        there = (col("address") == address) & (col("offset") < offset) & (col("timestamp") <= lit(time).cast("timestamp"))
        condition = condition & ~there
    return rows.where(condition) if known else rows
