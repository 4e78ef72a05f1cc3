"""Spark SQL from destinations and tables to a destination or a table, each batch once.

A source with destinations is a stream, one with a table is what the table holds when the step starts. Rows go to a destination as they
are where they have the columns of a message (`body` above all); otherwise each row becomes a JSON object, whose columns `destination`,
`headers`, `content_type`, `priority`, `expires` and `persistent` stay the message's own.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from stompbox.errors import UsageError
from stompbox.pipelines.archive import commit_batch, maintain, started, written_table
from stompbox.pipelines.checkpoints import query_id
from stompbox.pipelines.plan import Plan
from stompbox.pipelines.progress import Report
from stompbox.pipelines.settings import SourceTable, TransformTable
from stompbox.pipelines.staging import read, stage, stage_by_arrow
from stompbox.pipelines.tables import Staged, Table, open_table
from stompbox.spark.rows import COLUMNS

JSON: Final = "application/json"


def group_of(plan: Plan, step: TransformTable, source: SourceTable) -> str:
    return source.group or f"{plan.name}-{step.name}-{source.name}"


def start(spark: Any, plan: Plan, step: TransformTable, report: Report, *, once: bool) -> Any:
    """Starts the streaming query of a transform."""
    session = spark.newSession()  # whose views are this step's own
    for source in step.sources:
        _source(session, plan, step, source).createOrReplaceTempView(source.name)
    rows = session.sql(step.sql)
    checkpoint = plan.state(step.name) / "checkpoint"
    if step.destination:
        options = {**plan.connection(), "destination": step.destination}
        send = partial(_send, options=options, checkpoint=checkpoint)
        return started(as_messages(rows), plan, step, send, once=once, mode=step.mode.value)
    table = written_table(step, plan.where(step.table or "", step.format))
    if step.partition_by and step.partition_by not in rows.columns:
        raise UsageError(
            "missing-column",
            f"transform {step.name!r}: no column {step.partition_by!r} among {', '.join(rows.columns)}",
        )
    write = partial(_write, table=table, step=step, checkpoint=checkpoint, report=report)
    return started(rows, plan, step, write, once=once, mode=step.mode.value)


def _source(spark: Any, plan: Plan, step: TransformTable, source: SourceTable) -> Any:
    if source.table:
        table = open_table(source.format, plan.where(source.table, source.format))
        rows = read(spark, table, merge=True)
        if rows is None:
            there = f"there is no row in {table.uri}"
            raise UsageError("no-such-table", f"transform {step.name!r}: source {source.name!r}: {there}")
        return rows
    options = plan.stream_options(step, source, group_of(plan, step, source))
    rows = spark.readStream.format("stomp").options(**options).load()
    return rows.withWatermark(source.watermark_column, source.watermark) if source.watermark else rows


def as_messages(rows: Any) -> Any:
    """Rows with the columns that the sink takes."""
    from pyspark.sql.functions import col, lit, struct, to_json

    if "body" in rows.columns:
        return rows
    own = [name for name in rows.columns if name in COLUMNS]
    held = [name for name in rows.columns if name not in COLUMNS]
    body = to_json(struct(*[col(f"`{name}`") for name in held])).alias("body")
    kind = [] if "content_type" in own else [lit(JSON).alias("content_type")]
    return rows.select(body, *own, *kind)


def _send(frame: Any, batch: int, *, options: dict[str, str], checkpoint: Path) -> None:
    """As a batch write: Spark lets Python's streaming sinks have no mode `update`. The broker knows the batch by the query's id."""
    sink = f"pipeline-{query_id(checkpoint)}"
    frame.write.format("stomp").mode("append").options(**options, sinkId=sink, batchId=str(batch)).save()


def _write(
    frame: Any, batch: int, *, table: Table, step: TransformTable, checkpoint: Path, report: Report
) -> None:
    query = query_id(checkpoint)
    if table.last_batch(query) < batch:
        staged = _staged(frame, table, step, f"{query}-{batch}")
        commit_batch(staged, (query, batch), table)
        maintain(table, step, report)


def _staged(frame: Any, table: Table, step: TransformTable, name: str) -> Staged:
    if table.folder is None:
        return stage_by_arrow(frame, table, step.format, name, step.partition_by or "")
    return stage(frame, table.folder, step.format, name, step.partition_by or "")
