"""The readers of the data source `stomp`: batch and streaming.

Spark makes these objects several times, in several processes, and pickles them in between: nothing here connects before a method has to
know something, and what a method needs of an earlier one is on the broker or in the offsets.

    initialOffset()       must say the same again after a crash in batch 0, whose start Spark does not keep: hence `group`
    latestOffset(start)   `start` is done with: acknowledged here, because Spark commits a last batch only when the next one is planned
    partitions(…)         from start and end alone: Spark calls it again for a batch that a crash cut off
    commit(end)           acknowledged as well; a position never goes back

Decides what is read when. How ranges are read is reading.py's, how they are dealt out offsets.py's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructField, StructType

from stompbox.errors import StompboxError, UsageError
from stompbox.spark import link as links
from stompbox.spark.bodies import Decoding, decoding_of
from stompbox.spark.bounds import Bound, BoundKind
from stompbox.spark.ddl import TYPES, refuse_types
from stompbox.spark.faults import plain
from stompbox.spark.offsets import (
    Extent,
    Loss,
    OffsetRange,
    Offsets,
    advance,
    available,
    between,
    dealt,
    losses,
    number_of,
    numbers_of,
    position,
    starts,
    told,
)
from stompbox.spark.options import SourceOptions
from stompbox.spark.reading import View, batches, refuse_unknown, report, resolved
from stompbox.spark.requests import (
    commit_group,
    describe,
    describe_each,
    group_positions,
    open_group,
    reopen_group,
)
from stompbox.spark.selection import selection_of
from stompbox.spark.versions import arrow_schema

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.0 and 4.1, whose streams datasource.py refuses
    ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxRows = SupportsTriggerAvailableNow = object

# in a field of a schema as JSON
_DEMANDS: Final = re.compile('"(?:nullable|containsNull|valueContainsNull)":false')
# from here on it is worth a request to know how large a micro-batch is: so many bodies of 1 MiB are its limit
SIZED_ROWS: Final = 256


def view_of(schema: StructType, options: SourceOptions) -> View:
    """What a schema asks for: it may be a part of all the columns. Raises UsageError naming the column or option that is wrong."""
    # a wrong selector is refused here, where the user sees it, and not in a task
    selection_of(options.selector)
    decoded = []
    if not options.include_headers and "headers" in schema.fieldNames():
        raise UsageError(
            "bad-schema",
            "the schema names the column 'headers', which the option includeHeaders=false leaves out",
        )
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in TYPES and options.body_format:
            decoded.append(field)
        elif TYPES.get(field.name) != kind:
            known = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
            raise UsageError(
                "bad-schema",
                f"format stomp has no column {field.name!r} of type {kind}; its columns are {known}",
            )
    return View(
        tuple(schema.fieldNames()), options.selector, _decoding(decoded, options) if decoded else None
    )


def _decoding(fields: list[StructField], options: SourceOptions) -> Decoding:
    for field in fields:
        if _DEMANDS.search(field.json()):
            # Spark takes its word for it, and would fail at a body that lacks the value
            why = f"column {field.name!r} is decoded from bodies, any of which may lack a value"
            raise UsageError("bad-schema", f"{why}; the schema must let it be NULL, and whatever it holds")
        refuse_types(field.name, field.dataType.simpleString(), options.body_format)
    return decoding_of(
        options.body_format, arrow_schema(StructType(fields)), mode=options.mode, corrupt=options.corrupt
    )


class Ranges(InputPartition):  # type: ignore[misc]
    """What one task is to read."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)


class _Reading:
    """What batch and stream share: reading what a task was dealt."""

    def __init__(self, options: SourceOptions, view: View) -> None:
        self._options: Final = options
        self._view: Final = view

    @plain
    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is not None:  # Spark's stand-in where there are no partitions
            yield from batches(self._options, partition.value, self._view)

    def _dealt(self, start: Offsets, end: Offsets) -> list[Ranges]:
        options = self._options
        most, least, records = options.partitions, options.min_partitions, options.max_records
        return [
            Ranges(ranges) for ranges in dealt(between(start, end), most, at_least=least, max_records=records)
        ]


class StompReader(_Reading, DataSourceReader):  # type: ignore[misc]
    """A batch read: from startingOffsets to endingOffsets of the logs that are there."""

    @plain
    def partitions(self) -> list[Ranges]:
        options = self._options
        with links.leased(options.target) as link:
            found = describe(link, options.destination, create=False)
            if found.missing:
                raise UsageError(
                    "no-such-address",
                    f"option 'destination': {', '.join(found.missing)} does not exist on the broker",
                )
            strict = options.fail_on_data_loss
            start = resolved(options.starting, found.extents, link, strict=strict)
            end = resolved(options.ending, found.extents, link, strict=strict)
        return self._dealt(
            start,
            {
                address: told(found.extents[address], max(stop, start[address]))
                for address, stop in end.items()
            },
        )


class StompStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A streaming read. Its state is a memo: another copy, in another process, goes on from the offsets alone."""

    def __init__(self, options: SourceOptions, view: View) -> None:
        super().__init__(options, view)
        # what the broker knows we are done with; None: this copy has not told it anything
        self._acknowledged: Offsets | None = None
        self._target: Mapping[str, int] | None = None  # where a query with trigger(availableNow=True) ends
        self._latest: Mapping[str, int] | None = None
        self._reported: set[str] = set()  # losses that were logged already
        # when it was last time for a micro-batch (option minRowsPerTrigger); the first one comes at once
        self._planned = -inf

    @plain
    def initialOffset(self) -> Offsets:
        options, strict = self._options, self._options.fail_on_data_loss
        with links.leased(options.target) as link:
            extents = describe(link, options.destination, create=True).extents
            if options.group:
                refuse_unknown(options.starting, extents)
                # what is reckoned from a time is not the user's number
                strict = strict and options.starting.latest_time < 0
                found = open_group(
                    link, options.group, options.destination, self._starting(link, extents), strict=strict
                )
                # it may have had others
                found = {address: offset for address, offset in found.items() if address in extents}
                return starts(found, extents)
            if options.starting.latest_time > time.time() * 1000:
                # As with latest: what it means changes until that time has come.
                named = f"{options.starting.option} in the future"
                raise UsageError(
                    "missing-option", f"{named} needs the option 'group', a cursor that keeps the place"
                )
            return starts(resolved(options.starting, extents, link, strict=strict), extents)

    def _starting(self, link: links.SparkLink, extents: Mapping[str, Extent]) -> Bound:
        """Where the group begins that is not there yet, or on addresses that it does not read yet. Elsewhere its position wins."""
        starting = self._options.starting
        if starting.kind is not BoundKind.TIMES and not starting.must_match:
            return starting
        found = resolved(
            starting, extents, link, strict=True, known=group_positions(link, self._options.group)
        )
        return replace(starting, kind=BoundKind.EACH, each=tuple(found.items()))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows)

    @plain
    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        extents, ended = self._look(start)
        for loss in losses(start, extents, ended):
            self._report(loss)
        self._latest = dict(sorted({address: extent.next for address, extent in extents.items()}.items()))
        if self._target is not None:
            extents = _up_to(extents, self._target)
        elif not isinstance(limit, ReadAllAvailable) and self._is_early(start, extents):
            return dict(start)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0
        if not isinstance(limit, ReadAllAvailable):
            size = size or self._options.max_bytes
            if self._options.usual_bytes and sum(map(len, available(start, extents))) > SIZED_ROWS:
                extents, size = self._sized(start, extents), size or self._options.usual_bytes
        return advance(start, extents, max_rows=rows, max_bytes=size)

    def _is_early(self, start: Offsets, extents: Mapping[str, Extent]) -> bool:
        """Are there fewer rows than the user wants in a micro-batch, and is there time to wait for more?"""
        options, now = self._options, time.monotonic()
        if (
            now < self._planned + options.max_delay
            and sum(map(len, available(start, extents))) < options.min_rows
        ):
            return True
        self._planned = now
        return False

    def reportLatestOffset(self) -> Offsets | None:
        return self._latest

    @plain
    def prepareForTriggerAvailableNow(self) -> None:
        with links.leased(self._options.target) as link:
            extents = describe(link, self._options.destination, create=True).extents
        self._target = {address: extent.next for address, extent in extents.items()}

    @plain
    def partitions(self, start: Offsets, end: Offsets) -> list[Ranges]:
        for address, offset in start.items():
            if number_of(end.get(address, offset)) < number_of(offset) and position(offset).incarnation == "":
                self._report(
                    Loss(
                        address,
                        f"the log of {address!r} was made anew and is shorter than offset {number_of(offset)}",
                        -1,
                    )
                )
        return self._dealt(start, end)

    @plain
    def commit(self, end: Offsets) -> None:
        with links.leased(self._options.target) as link:
            self._acknowledge(link, end)

    def stop(self) -> None:
        links.forget()

    def _look(self, start: Offsets) -> tuple[dict[str, Extent], dict[str, Extent]]:
        """Acknowledges what lies below `start` and returns the logs as they are now, and as those have ended that are gone."""
        options = self._options
        with links.leased(options.target) as link:
            if self._acknowledged is None and options.group:
                # After a restart nothing else opens the group, which may be gone with the data of the broker.
                reopen_group(
                    link,
                    options.group,
                    options.destination,
                    {address: position(offset) for address, offset in start.items()},
                )
            self._acknowledge(link, start)
            sizes_from = numbers_of(start) if options.max_bytes else None
            extents = describe(
                link, options.destination, create=self._latest is None, sizes_from=sizes_from
            ).extents
            gone = {address: 0 for address in start if address not in extents}
            return extents, describe_each(link, gone)[1] if gone else {}

    def _sized(self, start: Offsets, extents: Mapping[str, Extent]) -> dict[str, Extent]:
        """The logs with how many messages and bytes wait in them."""
        with links.leased(self._options.target) as link:
            found = describe(
                link, self._options.destination, create=False, sizes_from=numbers_of(start)
            ).extents
        none = Extent(0, 0)  # it is gone since: the next look says so
        sizes = {address: found.get(address, none) for address in extents}
        return {
            address: replace(extent, messages=sizes[address].messages, size=sizes[address].size)
            for address, extent in extents.items()
        }

    def _acknowledge(self, link: links.SparkLink, offsets: Offsets) -> None:
        if self._options.group and offsets != self._acknowledged:
            known = self._acknowledged or {}
            moved = {
                address: position(offset)
                for address, offset in offsets.items()
                if known.get(address) != offset
            }
            if moved:
                commit_group(link, self._options.group, moved)
        self._acknowledged = dict(offsets)

    def _report(self, loss: Loss) -> None:
        fails = self._options.fail_on_data_loss
        if loss.count >= 0 and not fails:
            return  # the tasks find the same gap, and count it where they skip it
        if fails or loss.text not in self._reported:
            self._reported.add(loss.text)
            report(loss, fail=fails)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """What a streaming read becomes whose options are wrong. Where there is no reader at all, Spark's worker fails over that instead."""

    def __init__(self, fault: StompboxError) -> None:
        self._fault: Final = fault

    @plain
    def initialOffset(self) -> Offsets:
        raise self._fault

    @plain
    # Spark 4.0 and 4.1 give neither
    def latestOffset(self, start: Offsets | None = None, limit: ReadLimit | None = None) -> Offsets:
        raise self._fault

    @plain
    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._fault

    @plain
    def prepareForTriggerAvailableNow(self) -> None:
        raise self._fault

    @plain
    def partitions(self, start: Offsets, end: Offsets) -> list[Ranges]:
        raise self._fault

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._fault

    def stop(self) -> None:
        links.forget()


def _up_to(extents: Mapping[str, Extent], target: Mapping[str, int]) -> dict[str, Extent]:
    """The logs as they were when the target was taken."""
    return {
        address: replace(extent, next=min(extent.next, target[address]))
        for address, extent in extents.items()
        if address in target
    }
