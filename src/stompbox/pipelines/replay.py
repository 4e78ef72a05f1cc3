"""A table, or a range of its time, back to a destination at a chosen speed; each message once, in offset order per address.

First Spark sorts what is to be sent into files of the step's state folder: by the time of arrival, which within an address never goes
back even where a clock did. Then slices of these files are published, each as a numbered batch of a sink, and the number is kept. After a
kill the replay goes on with the slice that is not known to be published; if it was, the broker knows its number.

Headers that had a meaning once are left out: `expires` and other times of delivery, and the id by which the broker drops duplicates.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final

from msgspec import Struct
from msgspec.json import decode, encode
from pyarrow import parquet

from stompbox.config.matching import DOTS
from stompbox.errors import UsageError
from stompbox.message import DUPLICATE_ID, EXPIRATION, SCHEDULED_DELAY, SCHEDULED_TIME
from stompbox.pipelines import disk
from stompbox.pipelines.plan import Plan
from stompbox.pipelines.progress import Finished, Moved, Report
from stompbox.pipelines.settings import ReplayTable
from stompbox.pipelines.staging import read, write
from stompbox.pipelines.tables import open_table
from stompbox.spark.link import SparkLink, leased
from stompbox.spark.requests import Staging, delete_sink, publish, stage
from stompbox.spark.rows import RowsToRuns, chunks_of

LEFT_OUT: Final = ("expires", EXPIRATION, SCHEDULED_DELAY, SCHEDULED_TIME, DUPLICATE_ID)
MOST_ROWS: Final = 10_000  # of a slice
SLICES: Final = 4  # a second, at a chosen rate
CHUNK_BYTES: Final = 4 << 20
TELL_EVERY: Final = 1.0  # s
STATE: Final = "replay.json"


class ReplayState(Struct):
    """How far a replay is. `request` is what it was asked for: another one begins anew."""

    request: str
    sink: str
    rows: int
    slice: int  # rows
    sent: int = 0  # rows


def run(spark: Any, plan: Plan, step: ReplayTable, report: Report, stop: Event) -> Finished:
    folder = plan.state(step.name)
    state = _state(folder, _request(plan, step)) or _prepare(spark, plan, step, folder)
    resumed = state.sent
    begun = told = monotonic()
    maker = RowsToRuns(step.destination or "")
    with leased(plan.target()) as link:
        for batch in _slices(folder, state):
            if step.rate and stop.wait(max(0.0, begun + (state.sent - resumed) / step.rate - monotonic())):
                break
            if stop.is_set():
                break
            _send(link, maker, batch, state)
            state.sent += len(batch)
            disk.write(folder / STATE, encode(state))
            if (now := monotonic()) - told >= TELL_EVERY:
                told = now
                report(
                    Moved(
                        step=step.name,
                        rows=state.sent,
                        of=state.rows,
                        rate=round((state.sent - resumed) / (now - begun), 1),
                    )
                )
        if state.sent >= state.rows:
            delete_sink(link, state.sink)
    seconds = monotonic() - begun
    if state.sent >= state.rows:
        shutil.rmtree(folder, ignore_errors=True)
    text = f"{state.sent:,} of {state.rows:,} messages sent" + (
        "" if state.sent >= state.rows else "; the next run goes on from there"
    )
    facts = {"rows": state.rows, "sent": state.sent, "resumed_at": resumed, "seconds": round(seconds, 3)}
    return Finished(step=step.name, text=text, facts=facts)


def _request(plan: Plan, step: ReplayTable) -> str:
    table, kept = plan.table_of(step)
    return json.dumps(
        [
            str(plan.shown(table, kept)),
            kept.value,
            step.destination,
            step.addresses,
            step.start,
            step.until,
            plan.url.rpartition("@")[2],
        ]
    )


def _state(folder: Path, request: str) -> ReplayState | None:
    try:
        state = decode((folder / STATE).read_bytes(), type=ReplayState)
    except FileNotFoundError:
        return None
    return state if state.request == request else None


def _prepare(spark: Any, plan: Plan, step: ReplayTable, folder: Path) -> ReplayState:
    """Sorts what is to be sent. The state file comes last: without it everything is made anew."""
    text, kept = plan.table_of(step)
    table = open_table(kept, plan.where(text, kept))
    with table.reading():
        return _prepared(plan, step, folder, read(spark, table, merge=True))


def _prepared(plan: Plan, step: ReplayTable, folder: Path, rows: Any) -> ReplayState:
    if rows is None:
        raise UsageError(
            "no-such-table", f"replay {step.name!r}: there is no row in {plan.shown(*plan.table_of(step))}"
        )
    shutil.rmtree(folder, ignore_errors=True)
    write(_sorted(rows, step), folder / "rows")
    count = sum(parquet.read_metadata(path).num_rows for path in _files(folder))
    size = max(1, min(MOST_ROWS, int(step.rate / SLICES))) if step.rate else MOST_ROWS
    state = ReplayState(_request(plan, step), f"replay-{uuid.uuid4().hex}", count, size)
    disk.write(folder / STATE, encode(state))
    return state


def _sorted(rows: Any, step: ReplayTable) -> Any:
    from pyspark.sql import Window
    from pyspark.sql.functions import col, lit, map_filter
    from pyspark.sql.functions import max as highest

    if step.start:
        rows = rows.where(col("timestamp") >= lit(step.start).cast("timestamp"))
    if step.until:
        rows = rows.where(col("timestamp") < lit(step.until).cast("timestamp"))
    if step.addresses:
        known = [row["address"] for row in rows.select("address").distinct().collect()]
        rows = rows.where(col("address").isin([name for name in known if _is_wanted(name, step.addresses)]))
    so_far = (
        Window.partitionBy("address")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    headers = (
        [map_filter("headers", lambda name, _: ~name.isin(*LEFT_OUT)).alias("headers")]
        if "headers" in rows.columns
        else []
    )
    placed = rows.withColumn("time", highest("timestamp").over(so_far)).orderBy("time", "address", "offset")
    return placed.select(*([] if step.destination else ["destination"]), *headers, "body")


def _is_wanted(address: str, patterns: tuple[str, ...]) -> bool:
    return any(DOTS.is_named(pattern, address) for pattern in patterns)


def _files(folder: Path) -> list[Path]:
    return sorted((folder / "rows").glob("part-*.parquet"))


def _slices(folder: Path, state: ReplayState) -> Iterator[Any]:
    """The rows that are not sent yet, in slices that never depend on where it begins."""
    skip = state.sent
    for path in _files(folder):
        file = parquet.ParquetFile(path)
        if skip >= file.metadata.num_rows:
            skip -= file.metadata.num_rows
            continue
        for batch in file.iter_batches(state.slice):
            if skip < len(batch):
                yield batch.slice(skip)
            skip = max(0, skip - len(batch))


def _send(link: SparkLink, maker: RowsToRuns, batch: Any, state: ReplayState) -> None:
    """One slice: staged, then published at once. Its number is the place of its first row."""
    attempts = []
    for number, chunk in enumerate(chunks_of(maker.runs(batch), CHUNK_BYTES)):
        link.ask(stage(Staging(state.sink, state.sent, 0), number, chunk))
        attempts.append((0, number))
    publish(link, state.sink, state.sent, attempts)
