"""Is everything where it should be? What was sent, what the broker has stored, what the table holds, and every difference by its name.

    missing      stored on the broker, behind the archive's position, and not in the table
    gap          offsets of the archived range that neither the table nor the broker has (not asked where the archive has a selector)
    double       an offset that the table has more than once
    changed      the table's body is not the broker's, by checksum
    beyond       the table has offsets that the broker's log has not come to: the log was made anew

and with a record of what was sent (`sent`): unarchived (and not stored either), twice (the table has an id more often than it was sent),
other-body, unsent (the table has it, the record has not). What is stored and not yet archived is no difference: it waits.

Decides what counts as a difference; changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from stompbox.errors import UsageError
from stompbox.pipelines import disk
from stompbox.pipelines.checkpoints import positions
from stompbox.pipelines.progress import Finished
from stompbox.pipelines.settings import ArchiveTable, AuditTable, Checksum, Plan
from stompbox.pipelines.staging import read
from stompbox.pipelines.tables import open_table
from stompbox.spark.link import leased
from stompbox.spark.offsets import Extent
from stompbox.spark.requests import describe

SHOWN: Final = 20  # differences in the answer; all are in `output`
_HASHES: Final = {Checksum.SHA256: "sha2(body, 256)", Checksum.MD5: "md5(body)", Checksum.CRC32: "lpad(lower(hex(crc32(body))), 8, '0')"}

_COMPARED: Final = """
  SELECT coalesce(t.address, s.address) AS address, coalesce(t.offset, s.offset) AS offset, t.copies, t.low, t.high, s.sum,
         s.offset IS NOT NULL AS stored, p.position, p.next
  FROM (SELECT address, offset, count(*) AS copies, min(xxhash64(body)) AS low, max(xxhash64(body)) AS high
        FROM archived GROUP BY address, offset) t
  FULL OUTER JOIN (SELECT address, offset, xxhash64(body) AS sum FROM stored) s ON t.address = s.address AND t.offset = s.offset
  LEFT JOIN places p ON p.address = coalesce(t.address, s.address)
"""
_DIFFERENCES: Final = {
    "missing": """SELECT 'missing' AS kind, address, offset, offset AS last, '' AS id FROM compared
                  WHERE copies IS NULL AND offset < position""",
    "gap": """SELECT 'gap' AS kind, address, offset + 1 AS offset, after - 1 AS last, '' AS id FROM
                (SELECT address, offset, lead(offset) OVER (PARTITION BY address ORDER BY offset) AS after FROM compared)
              WHERE after > offset + 1""",
    "double": "SELECT 'double' AS kind, address, offset, offset AS last, '' AS id FROM compared WHERE copies > 1",
    "changed": """SELECT 'changed' AS kind, address, offset, offset AS last, '' AS id FROM compared
                  WHERE copies IS NOT NULL AND (low != high OR (stored AND low != sum))""",
    "beyond": """SELECT 'beyond' AS kind, address, offset, offset AS last, '' AS id FROM compared
                 WHERE copies IS NOT NULL AND offset >= next""",
}
_SENT: Final = """
  SELECT coalesce(s.id, t.id) AS id, t.address, t.offset, s.copies AS sent, t.copies AS kept, w.id IS NOT NULL AS waits,
         s.low AS low, s.high AS high, t.low AS kept_low, t.high AS kept_high
  FROM (SELECT id, count(*) AS copies, min(lower(checksum)) AS low, max(lower(checksum)) AS high FROM sent GROUP BY id) s
  FULL OUTER JOIN (SELECT id, count(DISTINCT address, offset) AS copies, min(sum) AS low, max(sum) AS high, min(address) AS address,
                   min(offset) AS offset FROM known GROUP BY id) t ON s.id = t.id
  LEFT JOIN (SELECT DISTINCT id FROM waiting) w ON w.id = s.id
"""
_SENT_DIFFERENCES: Final = {
    "unarchived": "SELECT 'unarchived' AS kind, address, offset, offset AS last, id FROM both WHERE kept IS NULL AND NOT waits",
    "twice": "SELECT 'twice' AS kind, address, offset, offset AS last, id FROM both WHERE kept > sent",
    "other-body": """SELECT 'other-body' AS kind, address, offset, offset AS last, id FROM both
                     WHERE low != kept_low OR high != kept_high""",
    "unsent": "SELECT 'unsent' AS kind, address, offset, offset AS last, id FROM both WHERE sent IS NULL",
}


def run(spark: Any, plan: Plan, step: AuditTable) -> Finished:
    archive = plan.pipeline.archive(step.archive)
    with disk.reading(plan.path(archive.table)):
        return _audited(spark.newSession(), plan, step, archive)


def _audited(session: Any, plan: Plan, step: AuditTable, archive: ArchiveTable) -> Finished:
    extents = _extents(plan, archive)
    _views(session, plan, archive, extents)
    compared = session.sql(_COMPARED).cache()
    compared.createOrReplaceTempView("compared")
    kept = [compared]  # each is asked several times, and each time would read everything
    kinds = {kind: text for kind, text in _DIFFERENCES.items() if kind != "gap" or not archive.selector}
    if step.sent:
        kept.append(_sent_views(session, step, plan.path(step.sent)))
        kinds |= _SENT_DIFFERENCES
    found = session.sql(" UNION ALL ".join(kinds.values())).cache()
    try:
        return _finished(step, plan, compared, found, session)
    finally:
        for frame in (found, *kept):
            frame.unpersist()


def _extents(plan: Plan, archive: ArchiveTable) -> dict[str, Extent]:
    with leased(plan.target()) as link:
        return describe(link, ",".join(archive.destinations), create=False).extents


def _views(session: Any, plan: Plan, archive: ArchiveTable, extents: dict[str, Extent]) -> None:
    """archived, stored, places: per address how far the archive has come, and where the log ends."""
    rows = read(session, open_table(archive.format, plan.path(archive.table)))
    kept = "address STRING, offset BIGINT, headers MAP<STRING, STRING>, body BINARY"
    archived = session.createDataFrame([], kept) if rows is None else rows.select("address", "offset", "headers", "body")
    archived.createOrReplaceTempView("archived")
    if extents:
        options = {**plan.connection(), "destination": ",".join(archive.destinations), "failOnDataLoss": "false"}
        if archive.selector:
            options["selector"] = archive.selector
        stored = session.read.format("stomp").options(**options).schema(kept).load()
    else:
        stored = session.createDataFrame([], kept)
    stored.createOrReplaceTempView("stored")
    done = positions(plan.state(archive.name) / "checkpoint")
    places = [(address, done.get(address, 0), extents[address].next if address in extents else None) for address in {*done, *extents}]
    session.createDataFrame(places, "address STRING, position BIGINT, next BIGINT").createOrReplaceTempView("places")


def _sent_views(session: Any, step: AuditTable, file: Path) -> Any:
    """sent, known, waiting, both; both, which is kept."""
    if not file.exists():
        raise UsageError("no-such-file", f"audit {step.name!r}: the record {file} is not there")
    reader = {".parquet": session.read.parquet, ".csv": session.read.option("header", "true").csv, ".jsonl": session.read.json}[file.suffix]
    record = reader(str(file))
    for name in ("id", "checksum"):
        if name not in record.columns:
            raise UsageError("missing-column", f"audit {step.name!r}: {file} has no {name!r}; it has {', '.join(record.columns)}")
    record.selectExpr("CAST(id AS STRING) AS id", "checksum").createOrReplaceTempView("sent")
    header = step.id_header.replace("'", "\\'")
    columns = (f"headers['{header}'] AS id", "address", "offset", f"{_HASHES[step.checksum]} AS sum")
    session.table("archived").selectExpr(*columns).where("id IS NOT NULL").createOrReplaceTempView("known")
    session.table("stored").selectExpr(*columns).where("id IS NOT NULL").createOrReplaceTempView("waiting")
    both = session.sql(_SENT).cache()
    both.createOrReplaceTempView("both")
    return both


def _finished(step: AuditTable, plan: Plan, compared: Any, found: Any, session: Any) -> Finished:
    counts = {row["kind"]: row["count"] for row in found.selectExpr("kind", "last - offset + 1 AS n").groupBy("kind")
              .agg({"n": "sum", "kind": "count"}).selectExpr("kind", "coalesce(`sum(n)`, `count(kind)`) AS count").collect()}  # fmt: skip
    listed = [row.asDict() for row in found.orderBy("kind", "address", "offset", "id").limit(SHOWN).collect()]
    figures = compared.selectExpr(
        "count_if(stored) AS stored", "sum(copies) AS archived", "count_if(copies IS NULL AND offset >= coalesce(position, 0)) AS waiting",
        "count_if(stored AND copies IS NOT NULL) AS compared",
    ).first()  # fmt: skip
    facts = {name: figures[name] or 0 for name in ("stored", "archived", "waiting", "compared")}
    if step.sent:
        facts["sent"] = session.table("sent").count()
    if step.output:
        found.write.mode("overwrite").parquet(str(plan.path(step.output)))
    return Finished(step=step.name, text=_text(facts, counts), facts={**facts, "differences": counts, "listed": listed}, ok=not counts)


def _text(facts: dict[str, int], counts: dict[str, int]) -> str:
    what = ", ".join(f"{count:,} {name}" for name, count in facts.items())
    found = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())) if counts else "no difference"
    if not any(facts.values()):
        return f"{what}: there was nothing to compare, neither on the broker nor in the table"
    return f"{what}: {found}" + ("" if facts["compared"] else "; nothing is in both, so no body was compared")
