"""The dry run: what each step would read and write, from where on and how much waits, asked of the broker and the tables, not of Spark.

Changes nothing: no group is opened, no address made, no file written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from stompbox.errors import StompboxError
from stompbox.pipelines.archive import group_of
from stompbox.pipelines.checkpoints import batches_done, positions, require_own
from stompbox.pipelines.faults import first_line, masked
from stompbox.pipelines.locations import is_url
from stompbox.pipelines.outputs import Output
from stompbox.pipelines.plan import Plan
from stompbox.pipelines.settings import (
    KINDS,
    ArchiveTable,
    AuditTable,
    Format,
    ReplayTable,
    ReportTable,
    SourceTable,
    Step,
    TransformTable,
)
from stompbox.pipelines.tables import open_table
from stompbox.pipelines.transform import group_of as group_of_source
from stompbox.spark.link import SparkLink, leased
from stompbox.spark.requests import describe

BEGINS: Final = "begins"


class AddressRead(Struct, frozen=True):
    """One address that a stream reads: `position` is where it goes on, `waiting` how many messages lie behind it."""

    address: str
    first: int
    next: int
    position: int
    waiting: int


class Explained(Struct, frozen=True, omit_defaults=True):
    """What one step reads and writes, for people and as JSON."""

    step: str
    kind: str
    reads: list[str]
    writes: list[str]
    notes: list[str] = []
    addresses: list[AddressRead] = []


def explain(plan: Plan, steps: Sequence[Step]) -> list[Explained]:
    """Raises ConnectionLost when the broker is not there, Refused where it lets this user not look, LocalError for another's checkpoint."""
    for step in steps:
        require_own(plan.state(step.name), plan.name)
    with leased(plan.target()) as link:
        return [_explained(link, plan, step) for step in steps]


def _explained(link: SparkLink, plan: Plan, step: Step) -> Explained:
    maker: Any = {
        ArchiveTable: _archive, TransformTable: _transform, ReplayTable: _replay, ReportTable: _report, AuditTable: _audit,
    }[type(step)]  # fmt: skip
    found: Explained = maker(link, plan, step)
    return found


def _archive(link: SparkLink, plan: Plan, step: ArchiveTable) -> Explained:
    group = group_of(plan, step)
    addresses = list(_readings(link, plan, step, step))
    reads = [
        f"{name} with group {group}, {_from(plan, step.name, step.starting)}" for name in step.destinations
    ]
    notes = [
        f"checkpoint {plan.state(step.name) / 'checkpoint'}: {_batches(plan, step.name)}",
        *_missing(step, addresses),
    ]
    return Explained(
        step.name, KINDS[type(step)], reads, [_table(plan, step.table, step.format, "date")], notes, addresses
    )


def _transform(link: SparkLink, plan: Plan, step: TransformTable) -> Explained:
    reads, addresses = [], []
    for source in step.sources:
        if source.table:
            reads.append(
                f"{source.name}: {_table(plan, source.table, source.format)}, as it is when the step starts"
            )
            continue
        group = group_of_source(plan, step, source)
        late = f", watermark {source.watermark} on {source.watermark_column}" if source.watermark else ""
        reads.append(
            f"{source.name}: {', '.join(source.destinations)} with group {group}, {_from(plan, step.name, source.starting)}{late}"
        )
        addresses += list(_readings(link, plan, step, source))
    writes = (
        [f"messages to {step.destination}"]
        if step.destination
        else [_table(plan, step.table or "", step.format, step.partition_by)]
    )
    notes = [
        f"checkpoint {plan.state(step.name) / 'checkpoint'}: {_batches(plan, step.name)}",
        f"mode {step.mode.value}",
    ]
    return Explained(step.name, KINDS[type(step)], reads, writes, notes, addresses)


def _replay(_: SparkLink, plan: Plan, step: ReplayTable) -> Explained:
    table, kept = plan.table_of(step)
    part = [f"from {step.start}"] * bool(step.start) + [f"until {step.until}"] * bool(step.until)
    part += [f"addresses {', '.join(step.addresses)}"] * bool(step.addresses)
    rate = f"{step.rate:g} messages/s" if step.rate else "as fast as it goes"
    writes = [f"messages to {step.destination or 'where each was sent'}, {rate}"]
    return Explained(step.name, KINDS[type(step)], [" ".join([_table(plan, table, kept), *part])], writes)


def _report(link: SparkLink, plan: Plan, step: ReportTable) -> Explained:
    archives = [plan.pipeline.archive(name) for name in step.archives]
    reads = [_table(plan, archive.table, archive.format) for archive in archives]
    for name in step.dead_letters:
        extents = describe(link, name, create=False).extents.values()
        reads.append(f"{name}: {sum(extent.next - extent.first for extent in extents):,} dead letters")
    page = Output(plan, step.name, step.output).shown("index.html")
    return Explained(step.name, KINDS[type(step)], reads, [f"{page} and tables beside it"])


def _audit(link: SparkLink, plan: Plan, step: AuditTable) -> Explained:
    archive = plan.pipeline.archive(step.archive)
    reads = [_table(plan, archive.table, archive.format), f"{', '.join(archive.destinations)} on the broker"]
    if step.sent:
        reads.append(f"what was sent: {step.sent if is_url(step.sent) else plan.path(step.sent)}")
    writes = (
        [f"differences to {Output(plan, step.name, step.output).shown('').rstrip('/')}"]
        if step.output
        else ["nothing"]
    )
    return Explained(
        step.name, KINDS[type(step)], reads, writes, addresses=list(_readings(link, plan, archive, archive))
    )


def _readings(
    link: SparkLink, plan: Plan, step: ArchiveTable | TransformTable, source: ArchiveTable | SourceTable
) -> Iterator[AddressRead]:
    done = positions(plan.state(step.name) / "checkpoint")
    for address, extent in describe(link, ",".join(source.destinations), create=False).extents.items():
        position = done.get(
            address, extent.next if source.starting == "latest" and not done else extent.first
        )
        yield AddressRead(
            address, extent.first, extent.next, position, max(0, extent.next - max(position, extent.first))
        )


def _missing(step: ArchiveTable, addresses: Sequence[AddressRead]) -> Iterator[str]:
    if not addresses:
        yield f"no address that may be read is there yet for {', '.join(step.destinations)}; one without wildcard is made at the start"


def _from(plan: Plan, step: str, starting: str) -> str:
    begun = batches_done(plan.state(step) / "checkpoint") >= 0
    return "from the checkpoint on" if begun else f"from {starting} on unless the group is there"


def _batches(plan: Plan, step: str) -> str:
    done = batches_done(plan.state(step) / "checkpoint")
    return "none, it begins" if done < 0 else f"{done + 1:,} batches done"


def _table(plan: Plan, text: str, kept: Format, partition_by: str | None = None) -> str:
    name = plan.shown(text, kept)
    try:
        files = open_table(kept, plan.where(text, kept)).files()
    except StompboxError as error:
        return f"{name}: {error.message}"
    except Exception as fault:  # of the format's library: the plan says what it can
        return f"{kept.value} table {name}, which cannot be read: {masked(first_line(fault), plan.secrets())}"
    there = f"{sum(file.rows for file in files):,} rows in {len(files):,} files" if files else "not there yet"
    return f"{kept.value} table {name}{f' by {partition_by}' if partition_by else ''} ({there})"
