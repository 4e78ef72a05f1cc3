"""Figures of archives per address and hour, as tables in Parquet and one HTML page.

    hours          messages, bytes, sizes (min, avg, p50, p99, max), ms from arrival to archive (p50, p99, max)
    lags           how far each archive is behind each log
    dead-letters   per reason, address and hour, from the destinations of dead letters on the broker

Decides what is counted. How the page looks is page.py's.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from stompbox.pipelines import disk
from stompbox.pipelines.checkpoints import positions
from stompbox.pipelines.page import Figures, page
from stompbox.pipelines.progress import Finished
from stompbox.pipelines.settings import ArchiveTable, Plan, ReportTable
from stompbox.pipelines.staging import read
from stompbox.pipelines.tables import open_table
from stompbox.spark.link import leased
from stompbox.spark.requests import describe

MOST_ROWS: Final = 20_000  # of the page: three years of one address by the hour
_HOURS: Final = """
  SELECT archive, address, date_trunc('hour', timestamp) AS hour, count(*) AS messages, sum(length(body)) AS bytes,
         min(length(body)) AS size_min, avg(length(body)) AS size_avg, percentile_approx(length(body), 0.5) AS size_p50,
         percentile_approx(length(body), 0.99) AS size_p99, max(length(body)) AS size_max,
         percentile_approx(wait, 0.5) AS wait_p50, percentile_approx(wait, 0.99) AS wait_p99, max(wait) AS wait_max,
         min(offset) AS first_offset, max(offset) AS last_offset
  FROM (SELECT *, greatest(0, unix_millis(archived) - unix_millis(timestamp)) AS wait FROM rows)
  GROUP BY archive, address, hour ORDER BY archive, address, hour
"""
_DEAD: Final = """
  SELECT coalesce(headers['dead-letter-reason'], 'unknown') AS reason, coalesce(headers['_AMQ_ORIG_ADDRESS'], '') AS address,
         date_trunc('hour', timestamp) AS hour, count(*) AS messages, sum(length(body)) AS bytes
  FROM dead GROUP BY reason, address, hour ORDER BY reason, address, hour
"""
_ROWS: Final = "archive STRING, address STRING, offset BIGINT, timestamp TIMESTAMP, archived TIMESTAMP, body BINARY"
_DEAD_ROWS: Final = "timestamp TIMESTAMP, headers MAP<STRING, STRING>, body BINARY"
_LAGS: Final = "archive STRING, address STRING, next BIGINT, archived BIGINT, waiting BIGINT"


def run(spark: Any, plan: Plan, step: ReportTable) -> Finished:
    archives = [plan.pipeline.archive(name) for name in step.archives]
    with ExitStack() as reading:
        for archive in archives:
            reading.enter_context(disk.reading(plan.path(archive.table)))
        return _counted(spark.newSession(), plan, step, archives)


def _counted(session: Any, plan: Plan, step: ReportTable, archives: list[ArchiveTable]) -> Finished:
    _rows(session, plan, archives).createOrReplaceTempView("rows")
    _dead(session, plan, step).createOrReplaceTempView("dead")
    folder = plan.path(step.output)
    tables = {
        "hours": session.sql(_HOURS),
        "lags": session.createDataFrame([lag for archive in archives for lag in _lags(plan, archive)], _LAGS),
        "dead-letters": session.sql(_DEAD),
    }
    found = {}
    for name, table in tables.items():
        table.coalesce(1).write.mode("overwrite").parquet(str(folder / name))
        found[name] = [row.asDict() for row in session.read.parquet(str(folder / name)).limit(MOST_ROWS).collect()]
    figures = Figures(f"{plan.name}: {step.name}", found["hours"], found["lags"], found["dead-letters"])
    disk.write(folder / "index.html", page(figures).encode())
    text = f"{figures.messages:,} messages of {figures.addresses:,} addresses: {folder / 'index.html'}"
    return Finished(step=step.name, text=text, facts=_facts(figures, folder))


def _facts(figures: Figures, folder: Path) -> dict[str, Any]:
    return {
        "messages": figures.messages, "bytes": figures.bytes, "addresses": figures.addresses, "waiting": figures.waiting,
        "dead_letters": figures.dead, "page": str(folder / "index.html"),
    }  # fmt: skip


def _rows(session: Any, plan: Plan, archives: list[ArchiveTable]) -> Any:
    from pyspark.sql.functions import lit

    names = ("archive", "address", "offset", "timestamp", "archived", "body")
    found = session.createDataFrame([], _ROWS)
    for archive in archives:
        rows = read(session, open_table(archive.format, plan.path(archive.table)))
        if rows is not None:
            found = found.unionByName(rows.withColumn("archive", lit(archive.name)).select(*names))
    return found


def _dead(session: Any, plan: Plan, step: ReportTable) -> Any:
    """Those destinations of dead letters that are there."""
    with leased(plan.target()) as link:
        there = [name for name in step.dead_letters if describe(link, name, create=False).extents]
    if not there:
        return session.createDataFrame([], _DEAD_ROWS)
    options = {**plan.connection(), "destination": ",".join(there), "failOnDataLoss": "false"}
    return session.read.format("stomp").options(**options).schema(_DEAD_ROWS).load()


def _lags(plan: Plan, archive: ArchiveTable) -> list[tuple[str, str, int, int, int]]:
    with leased(plan.target()) as link:
        extents = describe(link, ",".join(archive.destinations), create=False).extents
    done = positions(plan.state(archive.name) / "checkpoint")
    found = []
    for address, extent in extents.items():
        position = done.get(address, extent.first)
        found.append((archive.name, address, extent.next, position, max(0, extent.next - max(position, extent.first))))
    return found
