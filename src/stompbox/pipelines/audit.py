"""Is everything where it should be? What was sent, what the broker has stored, what the table holds, and every difference by its name.

    missing      stored on the broker, behind the archive's position, and not in the table
    gap          offsets of the archived range that neither the table nor the broker has (not asked where the archive has a selector)
    double       an offset that the table has more than once
    changed      the table's body is not the broker's, by checksum
    beyond       the table has offsets that the broker's log has not come to: the log was made anew

and with a record of what was sent (`sent`): unarchived (and not stored either), twice (the table has an id more often than it was sent),
other-body, unsent (the table has it, the record has not). What is stored and not yet archived is no difference: it waits.

Most of a table is as it should be, which sums say of many offsets at once: only those parts are compared message by message whose sums
differ, as they do where messages still wait.

Decides what counts as a difference; changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from stompbox.errors import UsageError
from stompbox.pipelines.checkpoints import positions
from stompbox.pipelines.frames import frame_of
from stompbox.pipelines.outputs import Output, fetched
from stompbox.pipelines.plan import Plan
from stompbox.pipelines.progress import Finished
from stompbox.pipelines.settings import ArchiveTable, AuditTable, Checksum
from stompbox.pipelines.staging import TASKS, read
from stompbox.pipelines.tables import Table, open_table
from stompbox.spark.link import leased
from stompbox.spark.offsets import Extent
from stompbox.spark.options import Given, source_options
from stompbox.spark.ranges import read_ranges
from stompbox.spark.reading import View
from stompbox.spark.requests import describe
from stompbox.spark.versions import arrow_schema

SHOWN: Final = 20  # differences in the answer; all are in `output`
_HASHES: Final = {
    Checksum.SHA256: "sha2(body, 256)",
    Checksum.MD5: "md5(body)",
    Checksum.CRC32: "lpad(lower(hex(crc32(body))), 8, '0')",
}

PART: Final = 32_768  # offsets that are compared by their sums first
_BODIES: Final = "address STRING, offset BIGINT, body BINARY"
_WHOLE: Final = "address STRING, offset BIGINT, headers MAP<STRING, STRING>, body BINARY"

_PARTS: Final = f"""
  SELECT s.*, coalesce(next > last, true) AND (
           copies = stored AND sum = stored_sum AND ({{anywhere}} OR is_whole) OR stored = 0 AND is_whole) AS is_good
  FROM (SELECT *, copies = last - first + 1
                  AND offsets_sum = aggregate(sequence(first, last), 0L, (sum, offset) -> sum ^ xxhash64(offset)) AS is_whole
        FROM (SELECT address, offset DIV {PART} AS part, min(offset) AS first, max(offset) AS last,
                     count_if(kept) AS copies, count_if(NOT kept) AS stored, bit_xor(if(kept, xxhash64(offset), 0)) AS offsets_sum,
                     bit_xor(if(kept, sum, 0)) AS sum, bit_xor(if(kept, 0, sum)) AS stored_sum
              FROM (SELECT address, offset, xxhash64(offset, body) AS sum, true AS kept FROM archived
                    UNION ALL SELECT address, offset, xxhash64(offset, body), false FROM stored)
              GROUP BY address, part)) s
  LEFT JOIN logs p ON p.address = s.address
"""
"""A part is good where the table has each offset once, and the broker the same bodies or none of them any more. `anywhere`: offsets may be
left out, and the broker must have the same ones. Where all parts are, there can be gaps between them and no other difference of offsets."""
_COMPARED: Final = f"""
  SELECT c.address, offset, offset AS last, copies, low, high, sum, int(stored) AS stored_rows, copies AS kept_rows,
         int(stored AND copies IS NOT NULL) AS compared_rows, p.position, p.next
  FROM (SELECT coalesce(t.address, s.address) AS address, coalesce(t.offset, s.offset) AS offset, t.copies, t.low, t.high, s.sum,
               s.offset IS NOT NULL AS stored
        FROM (SELECT address, offset, count(*) AS copies, min(xxhash64(body)) AS low, max(xxhash64(body)) AS high
              FROM archived LEFT SEMI JOIN bad ON bad.address = archived.address AND bad.part = offset DIV {PART}
              GROUP BY address, offset) t
        FULL OUTER JOIN (SELECT address, offset, xxhash64(body) AS sum
                         FROM again LEFT SEMI JOIN bad ON bad.address = again.address AND bad.part = offset DIV {PART}) s
        ON t.address = s.address AND t.offset = s.offset) c
  LEFT JOIN logs p ON p.address = c.address
"""
_GOOD: Final = """
  SELECT address, first AS offset, last, 1L AS copies, CAST(NULL AS BIGINT) AS low, CAST(NULL AS BIGINT) AS high,
         CAST(NULL AS BIGINT) AS sum, stored AS stored_rows, copies AS kept_rows, stored AS compared_rows,
         CAST(NULL AS BIGINT) AS position, CAST(NULL AS BIGINT) AS next
  FROM parts WHERE is_good
"""
_RANGES: Final = f"""
  SELECT b.address, greatest(b.part * {PART}, p.oldest) AS start, least((b.part + 1) * {PART}, p.next) AS stop, p.incarnation
  FROM bad b JOIN logs p ON b.address = p.address AND p.next IS NOT NULL
  WHERE greatest(b.part * {PART}, p.oldest) < least((b.part + 1) * {PART}, p.next)
"""
_FOUND: Final = "kind STRING, address STRING, offset BIGINT, last BIGINT, id STRING"
_GAPS: Final = """
  SELECT 'gap' AS kind, address, last + 1 AS offset, after - 1 AS last, '' AS id FROM
    (SELECT address, last, lead(offset) OVER (PARTITION BY address ORDER BY offset) AS after FROM compared)
  WHERE after > last + 1
"""
_DIFFERENCES: Final = (
    """SELECT 'missing' AS kind, address, offset, last, '' AS id FROM compared
       WHERE copies IS NULL AND offset < position""",
    "SELECT 'double' AS kind, address, offset, last, '' AS id FROM compared WHERE copies > 1",
    """SELECT 'changed' AS kind, address, offset, last, '' AS id FROM compared
       WHERE copies IS NOT NULL AND (low != high OR (stored_rows = 1 AND low != sum))""",
    """SELECT 'beyond' AS kind, address, offset, last, '' AS id FROM compared
       WHERE copies IS NOT NULL AND offset >= next""",
)
"""Between the table and the broker, of an offset: there are none but gaps where no part is bad."""
_SENT: Final = """
  SELECT coalesce(s.id, t.id) AS id, t.address, t.offset, s.copies AS sent, t.copies AS kept, w.id IS NOT NULL AS waits,
         s.low AS low, s.high AS high, t.low AS kept_low, t.high AS kept_high
  FROM (SELECT id, count(*) AS copies, min(lower(checksum)) AS low, max(lower(checksum)) AS high FROM sent GROUP BY id) s
  FULL OUTER JOIN (SELECT id, count(DISTINCT address, offset) AS copies, min(sum) AS low, max(sum) AS high, min(address) AS address,
                   min(offset) AS offset FROM known GROUP BY id) t ON s.id = t.id
  LEFT JOIN (SELECT DISTINCT id FROM waiting) w ON w.id = s.id
"""
_SENT_DIFFERENCES: Final = (
    "SELECT 'unarchived' AS kind, address, offset, offset AS last, id FROM both WHERE kept IS NULL AND NOT waits",
    "SELECT 'twice' AS kind, address, offset, offset AS last, id FROM both WHERE kept > sent",
    """SELECT 'other-body' AS kind, address, offset, offset AS last, id FROM both
       WHERE low != kept_low OR high != kept_high""",
    "SELECT 'unsent' AS kind, address, offset, offset AS last, id FROM both WHERE sent IS NULL",
)


def run(spark: Any, plan: Plan, step: AuditTable) -> Finished:
    archive = plan.pipeline.archive(step.archive)
    table = open_table(archive.format, plan.where(archive.table, archive.format))
    with table.reading():
        return _audited(spark.newSession(), plan, step, archive, table)


def _audited(session: Any, plan: Plan, step: AuditTable, archive: ArchiveTable, table: Table) -> Finished:
    # first how far it has come, then the table, then the logs: it may go on
    done = positions(plan.state(archive.name) / "checkpoint")
    kept = read(
        session,
        table,
        merge=bool(step.sent),
        columns=("address", "offset", "body", *(("headers",) if step.sent else ())),
    )
    extents = _extents(plan, archive)
    views = _Views(session, plan, archive, kept, extents)
    views.logs(done)
    compared = views.compared()
    cached = [compared]  # each is asked several times, and each time would read everything
    asked = [*(_DIFFERENCES if views.bad else ()), *(() if archive.selector else (_GAPS,))]
    if step.sent:
        cached.append(_sent_views(views, step, fetched(plan, step.name, step.sent)))
        asked += _SENT_DIFFERENCES
    found = (session.sql(" UNION ALL ".join(asked)) if asked else frame_of(session, _FOUND)).cache()
    try:
        return _finished(step, plan, compared, found, session)
    finally:
        for frame in (found, *cached, *views.cached):
            frame.unpersist()


def _extents(plan: Plan, archive: ArchiveTable) -> dict[str, Extent]:
    with leased(plan.target()) as link:
        return describe(link, ",".join(archive.destinations), create=False).extents


class _Views:
    """What an audit compares, as views of a session."""

    def __init__(
        self, session: Any, plan: Plan, archive: ArchiveTable, kept: Any, extents: dict[str, Extent]
    ) -> None:
        self.session: Final = session
        self.cached: Final[list[Any]] = []
        self.bad = 0  # parts
        self._plan: Final = plan
        self._archive: Final = archive
        self._kept: Final = kept
        self._extents: Final = extents

    def archived(self, columns: str) -> Any:
        """Rows of the table with these columns (DDL)."""
        none = frame_of(self.session, columns)
        return none if self._kept is None else self._kept.select(*none.columns)

    def stored(self, columns: str) -> Any:
        """The rows that the broker has of the addresses that are audited."""
        if not self._extents:
            return frame_of(self.session, columns)
        options = {
            **self._plan.connection(),
            "destination": ",".join(self._archive.destinations),
            "failOnDataLoss": "false",
        }
        if self._archive.selector:
            options["selector"] = self._archive.selector
        return self.session.read.format("stomp").options(**options).schema(columns).load()

    def logs(self, done: dict[str, int]) -> None:
        """Per address how far the archive has come, where the log begins and ends, and which one it is."""
        rows = [
            (name, done.get(name, 0), *_extent(self._extents.get(name))) for name in {*done, *self._extents}
        ]
        columns = "address STRING, position BIGINT, oldest BIGINT, next BIGINT, incarnation STRING"
        frame_of(self.session, columns, rows).createOrReplaceTempView("logs")

    def compared(self) -> Any:
        """Each part in which all is well is a row, and each offset of the others, which are read again."""
        self.archived(_BODIES).createOrReplaceTempView("archived")
        self.stored(_BODIES).createOrReplaceTempView("stored")
        parts = self.session.sql(_PARTS.format(anywhere=str(bool(self._archive.selector)).lower())).cache()
        self.cached.append(parts)
        parts.createOrReplaceTempView("parts")
        bad = parts.where("NOT is_good")
        bad.createOrReplaceTempView("bad")
        self.bad = bad.count()
        self._again(self.bad).createOrReplaceTempView("again")
        found = self.session.sql(f"{_COMPARED} UNION ALL {_GOOD}" if self.bad else _GOOD).cache()
        found.createOrReplaceTempView("compared")
        return found

    def _again(self, count: int) -> Any:
        """What the broker has of the parts that are not good, so many, and nothing else of it. Tasks get these parts as rows: no option
        names them, and none passes through the driver."""
        if not count or not self._extents:
            return frame_of(self.session, _BODIES)
        tasks = min(count, TASKS * self.session.sparkContext.defaultParallelism)
        return self.session.sql(_RANGES).repartition(tasks).mapInArrow(self._reading(), _BODIES)

    def _reading(self) -> Callable[[Iterable[Any]], Iterator[Any]]:
        from pyspark.sql.types import StructType

        given = {
            **self._plan.connection(),
            "destination": ",".join(self._archive.destinations),
            "failOnDataLoss": "false",
        }
        options = source_options(Given(given), streaming=False)
        schema = StructType.fromDDL(_BODIES)
        return partial(
            read_ranges,
            options,
            View(tuple(schema.names), self._archive.selector or ""),
            arrow_schema(schema),
        )


def _extent(extent: Extent | None) -> tuple[int | None, int | None, str]:
    return (None, None, "") if extent is None else (extent.first, extent.next, extent.incarnations.current)


def _sent_views(views: _Views, step: AuditTable, file: Path) -> Any:
    """sent, known, waiting, both; both, which is kept."""
    session = views.session
    if not file.exists():
        raise UsageError("no-such-file", f"audit {step.name!r}: the record {file} is not there")
    reader = {
        ".parquet": session.read.parquet,
        ".csv": session.read.option("header", "true").csv,
        ".jsonl": session.read.json,
    }[file.suffix]
    record = reader(str(file))
    for name in ("id", "checksum"):
        if name not in record.columns:
            raise UsageError(
                "missing-column",
                f"audit {step.name!r}: {file} has no {name!r}; it has {', '.join(record.columns)}",
            )
    record.selectExpr("CAST(id AS STRING) AS id", "checksum").createOrReplaceTempView("sent")
    header = step.id_header.replace("'", "\\'")
    columns = (f"headers['{header}'] AS id", "address", "offset", f"{_HASHES[step.checksum]} AS sum")
    views.archived(_WHOLE).selectExpr(*columns).where("id IS NOT NULL").createOrReplaceTempView("known")
    views.stored(_WHOLE).selectExpr(*columns).where("id IS NOT NULL").createOrReplaceTempView("waiting")
    both = session.sql(_SENT).cache()
    both.createOrReplaceTempView("both")
    return both


def _finished(step: AuditTable, plan: Plan, compared: Any, found: Any, session: Any) -> Finished:
    counts = {row["kind"]: row["count"] for row in found.selectExpr("kind", "last - offset + 1 AS n").groupBy("kind")
              .agg({"n": "sum", "kind": "count"}).selectExpr("kind", "coalesce(`sum(n)`, `count(kind)`) AS count").collect()}  # fmt: skip
    listed = [row.asDict() for row in found.orderBy("kind", "address", "offset", "id").limit(SHOWN).collect()]
    figures = compared.selectExpr(
        "sum(stored_rows) AS stored", "sum(kept_rows) AS archived",
        "count_if(copies IS NULL AND offset >= coalesce(position, 0)) AS waiting", "sum(compared_rows) AS compared",
    ).first()  # fmt: skip
    facts = {name: figures[name] or 0 for name in ("stored", "archived", "waiting", "compared")}
    if step.sent:
        facts["sent"] = session.table("sent").count()
    if step.output:
        output = Output(plan, step.name, step.output)
        found.write.mode("overwrite").parquet(str(output.folder))
        output.put("")
    return Finished(
        step=step.name,
        text=_text(facts, counts),
        facts={**facts, "differences": counts, "listed": listed},
        ok=not counts,
    )


def _text(facts: dict[str, int], counts: dict[str, int]) -> str:
    what = ", ".join(f"{count:,} {name}" for name, count in facts.items())
    found = (
        ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
        if counts
        else "no difference"
    )
    if not any(facts.values()):
        return f"{what}: there was nothing to compare, neither on the broker nor in the table"
    return f"{what}: {found}" + ("" if facts["compared"] else "; nothing is in both, so no body was compared")
