"""Destinations to a table: every message once, also over a kill of anything and the loss of the checkpoint.

Each batch is staged, then committed under (query, batch): what Spark does again after a crash is known by that. A checkpoint that is new
to a table that is not has a frontier: per address the last offset and time in the table. What the group gives again below it is left out,
so that a lost checkpoint doubles nothing; a log that was made anew has later times and is taken.

A row of an archive has the source's columns, `archived` (when the batch was made) and `date` (the day of arrival, UTC). Its files are
written by the tasks (tasks.py, `writer = "arrow"`), or by Java, which the rows are handed to (staging.py). What they read, and how they are
committed, is the same, and a checkpoint of the one goes on with the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from stompbox.pipelines import disk
from stompbox.pipelines.checkpoints import query_id
from stompbox.pipelines.frames import frame_of
from stompbox.pipelines.locations import Where
from stompbox.pipelines.plan import Plan
from stompbox.pipelines.progress import Compacted, Report
from stompbox.pipelines.settings import ArchiveTable, Stream, TransformTable, Writer, Written
from stompbox.pipelines.staging import forget, read, stage
from stompbox.pipelines.tables import Policy, Retention, Staged, Table, compact, open_table, tidy
from stompbox.pipelines.tasks import ARCHIVED, DAY, Frontier, Source, stage_messages
from stompbox.spark.options import Given, source_options

FRONTIER: Final = "frontier.json"

IN_TABLE: Final = -1
Counts = MutableMapping[int, int]
"""Rows by batch, where Spark does not know: they did not come through Java, or (IN_TABLE) the batch was in the table already."""
Stager = Callable[[Any, str, Frontier], tuple[Staged, int | None]]
"""What makes files of a batch, under a name, of those rows that lie beyond what the table has; and how many it had (None: Spark knows)."""


def policy_of(step: Written) -> Policy:
    return Policy(step.compact_files, step.small_file, step.target_file)


def written_table(step: Written, where: Where) -> Table:
    """The table of a step that writes it, rid of what a killed run has left."""
    table = open_table(step.format, where, Retention(step.keep_replaced, step.keep_snapshots))
    tidy(table)
    return table


def group_of(plan: Plan, step: ArchiveTable) -> str:
    return step.group or f"{plan.name}-{step.name}"


def start(spark: Any, plan: Plan, step: ArchiveTable, report: Report, counts: Counts, *, once: bool) -> Any:
    """The streaming query of an archive. `counts` gets the rows of batches of which Spark does not know them."""
    table = written_table(step, plan.where(step.table, step.format))
    rows, stager = (_by_arrow if step.writer is Writer.ARROW else _by_java)(spark, plan, step, table)
    checkpoint = plan.state(step.name) / "checkpoint"
    write = partial(
        _write, table=table, step=step, checkpoint=checkpoint, stager=stager, report=report, counts=counts
    )
    return started(rows, plan, step, write, once=once)


def _by_arrow(spark: Any, plan: Plan, step: ArchiveTable, table: Table) -> tuple[Any, Stager]:
    """The ranges of a batch as rows, and who makes files of what they stand for."""
    from stompbox.spark.ranges import FORMAT, RangeSource

    options = plan.stream_options(step, step, group_of(plan, step))
    source = source_of(options)
    spark.dataSource.register(RangeSource)

    def staged(frame: Any, name: str, known: Frontier) -> tuple[Staged, int | None]:
        return stage_messages(frame, source, table.attempt(name, source.schema, DAY), step.format, known)

    return spark.readStream.format(FORMAT).options(**options).load(), staged


def source_of(options: dict[str, str]) -> Source:
    """What these options of the data source read, and a table has of it."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import DateType, StructType, TimestampType

    from stompbox.spark.datasource import StompSource
    from stompbox.spark.source import view_of

    given = source_options(Given(options), streaming=True)
    schema = StructType.fromDDL(StompSource(options).schema())
    view = view_of(schema, given)
    whole = StructType([*schema.fields]).add(ARCHIVED, TimestampType(), nullable=False).add(DAY, DateType())
    return Source(given, view, to_arrow_schema(whole, timezone="UTC"))


def _by_java(spark: Any, plan: Plan, step: ArchiveTable, table: Table) -> tuple[Any, Stager]:
    """The rows of a batch, which Spark writes itself."""
    from pyspark.sql.functions import col, current_timestamp, to_date

    folder = table.folder
    assert folder is not None  # checks.py
    rows = (
        spark.readStream.format("stomp")
        .options(**plan.stream_options(step, step, group_of(plan, step)))
        .load()
    )
    rows = rows.withColumn(ARCHIVED, current_timestamp()).withColumn(DAY, to_date(col("timestamp")))

    def staged(frame: Any, name: str, known: Frontier) -> tuple[Staged, int | None]:
        return stage(beyond(frame, known), folder, step.format, name, DAY), None

    return rows, staged


def started(
    rows: Any,
    plan: Plan,
    step: Stream,
    write: Callable[[Any, int], None],
    *,
    once: bool,
    mode: str = "append",
) -> Any:
    """A query that gives its batches to `write`."""
    name: str = getattr(step, "name", "")
    writer = rows.writeStream.foreachBatch(write).queryName(name).outputMode(mode)
    writer = writer.option("checkpointLocation", str(plan.state(name) / "checkpoint"))
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(step.trigger * 1000)} milliseconds").start()


def _write(
    frame: Any,
    batch: int,
    *,
    table: Table,
    step: ArchiveTable,
    checkpoint: Path,
    stager: Stager,
    report: Report,
    counts: Counts,
) -> None:
    query = query_id(checkpoint)
    if table.last_batch(query) >= batch:
        counts[batch] = IN_TABLE
        return
    staged, count = stager(
        frame, f"{query}-{batch}", frontier_of(frame.sparkSession, table, query, checkpoint)
    )
    if count is not None:
        counts[batch] = count
    commit_batch(staged, (query, batch), table)
    maintain(table, step, report)


def commit_batch(staged: Staged, place: tuple[str, int], table: Table) -> None:
    """Makes the staged rows of a batch, which is a query's and has a number, part of the table."""
    query, batch = place
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
        if kept["query"] == query and "ends" in kept:
            # an older one has texts for times, and is as well found anew
            return {address: (offset, moment) for address, (offset, moment) in kept["ends"].items()}
    except FileNotFoundError:
        pass
    found = frontier(spark, table)
    disk.write(file, json.dumps({"query": query, "ends": found}).encode())
    return found


def frontier(spark: Any, table: Table) -> Frontier:
    from pyspark.sql.functions import col, unix_micros
    from pyspark.sql.functions import max as highest

    with table.reading():
        rows = read(spark, table, columns=("address", "offset", "timestamp"))
        if rows is None:
            return {}
        ends = rows.groupBy("address").agg(
            highest("offset").alias("offset"), unix_micros(highest("timestamp")).alias("moment")
        )
        return {
            row["address"]: (row["offset"] + 1, row["moment"])
            for row in ends.select(col("address"), "offset", "moment").collect()
        }


def beyond(rows: Any, known: Frontier) -> Any:
    """The rows that are not in the table yet. A join: a condition per address is more than Spark can plan of thousands."""
    from pyspark.sql.functions import broadcast, timestamp_micros

    if not known:
        return rows
    ends = frame_of(
        rows.sparkSession,
        "name STRING, stop BIGINT, moment BIGINT",
        [(name, *end) for name, end in known.items()],
    )
    # a schema may have columns of these names
    name, stop, moment = ends["name"], ends["stop"], timestamp_micros(ends["moment"])
    is_there = (rows["address"] == name) & (rows["offset"] < stop) & (rows["timestamp"] <= moment)
    return rows.join(broadcast(ends), is_there, "left_anti")
