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
from stompbox.pipelines.frames import frame_of
from stompbox.pipelines.outputs import Output
from stompbox.pipelines.page import MOST_DRAWN, MOST_LISTED, Figures, Totals, page
from stompbox.pipelines.plan import Plan
from stompbox.pipelines.progress import Finished
from stompbox.pipelines.settings import ArchiveTable, ReportTable
from stompbox.pipelines.staging import read
from stompbox.pipelines.tables import Table, open_table
from stompbox.spark.link import leased
from stompbox.spark.requests import describe

MOST_HOURS: Final = 2_000  # drawn one by one; where there are more, by the day
_HOURS: Final = """
  SELECT archive, address, hour, messages, bytes, size_min, size_avg, sizes[0] AS size_p50, sizes[1] AS size_p99, size_max,
         waits[0] AS wait_p50, waits[1] AS wait_p99, wait_max, first_offset, last_offset
  FROM (SELECT archive, address, date_trunc('hour', timestamp) AS hour, count(*) AS messages, sum(size) AS bytes,
               min(size) AS size_min, avg(size) AS size_avg, percentile_approx(size, array(0.5, 0.99)) AS sizes, max(size) AS size_max,
               percentile_approx(wait, array(0.5, 0.99)) AS waits, max(wait) AS wait_max,
               min(offset) AS first_offset, max(offset) AS last_offset
        FROM (SELECT archive, address, offset, timestamp, length(body) AS size,
                     greatest(0, unix_millis(archived) - unix_millis(timestamp)) AS wait FROM rows)
        GROUP BY archive, address, hour)
  ORDER BY archive, address, hour
"""
_DRAWN: Final = """
  SELECT date_trunc('{unit}', hour) AS hour, if(address IN (SELECT address FROM largest), address, 'others') AS address,
         sum(messages) AS messages, sum(bytes) AS bytes, max(size_p50) AS size_p50, max(size_p99) AS size_p99, max(size_max) AS size_max,
         max(wait_p50) AS wait_p50, max(wait_p99) AS wait_p99, max(wait_max) AS wait_max
  FROM hours GROUP BY 1, 2 ORDER BY 1, 2
"""
_LARGEST: Final = f"""
  SELECT address FROM (SELECT address, row_number() OVER (ORDER BY messages DESC, address) AS by_messages,
                              row_number() OVER (ORDER BY bytes DESC, address) AS by_bytes
                       FROM (SELECT address, sum(messages) AS messages, sum(bytes) AS bytes FROM hours GROUP BY address))
  WHERE by_messages <= {MOST_DRAWN} OR by_bytes <= {MOST_DRAWN}
"""
_TOTALS: Final = """
  SELECT (SELECT coalesce(sum(messages), 0) FROM hours) AS messages, (SELECT coalesce(sum(bytes), 0) FROM hours) AS bytes,
         (SELECT count(DISTINCT address) FROM hours) AS addresses, (SELECT coalesce(sum(waiting), 0) FROM lags) AS waiting,
         (SELECT coalesce(sum(messages), 0) FROM dead_letters) AS dead, (SELECT max(wait_p99) FROM hours) AS worst_wait,
         (SELECT count(*) FROM hours) AS hour_rows, (SELECT count(*) FROM lags) AS lag_rows,
         (SELECT count(*) FROM dead_letters) AS dead_rows
"""
_DEAD: Final = """
  SELECT coalesce(headers['dead-letter-reason'], 'unknown') AS reason, coalesce(headers['_AMQ_ORIG_ADDRESS'], '') AS address,
         date_trunc('hour', timestamp) AS hour, count(*) AS messages, sum(length(body)) AS bytes
  FROM dead GROUP BY reason, address, hour ORDER BY reason, address, hour
"""
_ROWS: Final = (
    "archive STRING, address STRING, offset BIGINT, timestamp TIMESTAMP, archived TIMESTAMP, body BINARY"
)
_DEAD_ROWS: Final = "timestamp TIMESTAMP, headers MAP<STRING, STRING>, body BINARY"
_LAGS: Final = "archive STRING, address STRING, next BIGINT, archived BIGINT, waiting BIGINT"


def run(spark: Any, plan: Plan, step: ReportTable) -> Finished:
    archives = [plan.pipeline.archive(name) for name in step.archives]
    with ExitStack() as reading:
        for archive in archives:
            reading.enter_context(_table(plan, archive).reading())
        return _counted(spark.newSession(), plan, step, archives)


def _counted(session: Any, plan: Plan, step: ReportTable, archives: list[ArchiveTable]) -> Finished:
    _rows(session, plan, archives).createOrReplaceTempView("rows")
    _dead(session, plan, step).createOrReplaceTempView("dead")
    output = Output(plan, step.name, step.output)
    folder = output.folder
    tables = {
        "hours": session.sql(_HOURS),
        "lags": frame_of(session, _LAGS, [lag for archive in archives for lag in _lags(plan, archive)]),
        "dead-letters": session.sql(_DEAD),
    }
    for name, table in tables.items():
        table.coalesce(1).write.mode("overwrite").parquet(str(folder / name))
    figures = figures_of(session, folder, f"{plan.name}: {step.name}")
    disk.write(folder / "index.html", page(figures).encode())
    output.put(*tables, "index.html")
    totals = figures.totals
    messages = f"{totals.messages:,} {'message' if totals.messages == 1 else 'messages'}"
    addresses = f"{totals.addresses:,} {'address' if totals.addresses == 1 else 'addresses'}"
    text = f"{messages} of {addresses}: {output.shown('index.html')}"
    return Finished(step=step.name, text=text, facts=_facts(figures, output.shown("index.html")))


def figures_of(session: Any, folder: Path, title: str) -> Figures:
    """What the page shows of the tables in this folder: sums of all their rows, and of each table as many rows as a page lists."""
    for name in ("hours", "lags", "dead-letters"):
        session.read.parquet(str(folder / name)).createOrReplaceTempView(name.replace("-", "_"))
    totals = Totals(**session.sql(_TOTALS).first().asDict())
    session.sql(_LARGEST).createOrReplaceTempView("largest")
    unit = "hour" if session.sql("SELECT DISTINCT hour FROM hours").count() <= MOST_HOURS else "day"
    drawn = [row.asDict() for row in session.sql(_DRAWN.format(unit=unit)).collect()]
    hours, lags, dead = (_listed(session, name) for name in ("hours", "lags", "dead_letters"))
    return Figures(title, totals, drawn, hours, lags, dead, unit)


def _listed(session: Any, name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in session.table(name).limit(MOST_LISTED).collect()]


def _facts(figures: Figures, shown: str) -> dict[str, Any]:
    totals = figures.totals
    return {
        "messages": totals.messages, "bytes": totals.bytes, "addresses": totals.addresses, "waiting": totals.waiting,
        "dead_letters": totals.dead, "page": shown,
    }  # fmt: skip


def _rows(session: Any, plan: Plan, archives: list[ArchiveTable]) -> Any:
    from pyspark.sql.functions import lit

    names = ("archive", "address", "offset", "timestamp", "archived", "body")
    found = frame_of(session, _ROWS)
    for archive in archives:
        rows = read(session, _table(plan, archive), columns=names)
        if rows is not None:
            found = found.unionByName(rows.withColumn("archive", lit(archive.name)).select(*names))
    return found


def _table(plan: Plan, archive: ArchiveTable) -> Table:
    return open_table(archive.format, plan.where(archive.table, archive.format))


def _dead(session: Any, plan: Plan, step: ReportTable) -> Any:
    """The messages of those destinations of dead letters that are there."""
    with leased(plan.target()) as link:
        there = [name for name in step.dead_letters if describe(link, name, create=False).extents]
    if not there:
        return frame_of(session, _DEAD_ROWS)
    options = {**plan.connection(), "destination": ",".join(there), "failOnDataLoss": "false"}
    return session.read.format("stomp").options(**options).schema(_DEAD_ROWS).load()


def _lags(plan: Plan, archive: ArchiveTable) -> list[tuple[str, str, int, int, int]]:
    with leased(plan.target()) as link:
        extents = describe(link, ",".join(archive.destinations), create=False).extents
    done = positions(plan.state(archive.name) / "checkpoint")
    found = []
    for address, extent in extents.items():
        position = done.get(address, extent.first)
        found.append(
            (archive.name, address, extent.next, position, max(0, extent.next - max(position, extent.first)))
        )
    return found
