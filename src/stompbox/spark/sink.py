"""Rows become messages: staged on the broker by each task, published by the driver all at once.

    task     write(rows)        stages blobs of runs under (sink, batch, partition, attempt), each with an attempt number of its own
    driver   commit(messages)   publishes the blobs of the tasks that won: one transaction, durable when it returns
             abort(messages)    drops what was staged

The broker remembers the last batch published per sink. A streaming query's sink is its id, which its checkpoint keeps: a batch that is
replayed after a crash is published once. Attempt numbers are random, so that retried, speculative and dead tasks never mix.

commit() runs in another process than write(), so whatever it needs travels in the message. Decides when rows are visible; rows.py
decides what they look like.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from secrets import randbits
from typing import Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from stompbox.errors import StompboxError, UsageError
from stompbox.spark.faults import plain
from stompbox.spark.link import SparkLink, leased
from stompbox.spark.options import SinkOptions
from stompbox.spark.requests import Staging, delete_sink, discard, publish, stage
from stompbox.spark.rows import Rows, RowsToRuns, check_columns, chunks_of

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0, whose streaming writes datasource.py refuses
    DataSourceStreamArrowWriter = object

# What Spark tells a task of its streaming query (measured; there is no other way to it in Python).
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"  # of a streaming query: another one at each start

_ATTEMPT_BITS: Final = 56  # a number of 17 digits at most
MOST_WAITING: Final = 4  # times `stage_bytes`: octets of rows that wait for others of their destination
LEAST_ALONE: Final = 128 << 10  # octets of rows of one destination that are worth a blob

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """What one task has staged for a batch."""

    staging: Staging
    attempts: tuple[int, ...]  # one per blob


class _Stager:
    """Sends rows as blobs; while the broker takes one, the next is made. Those of one destination wait for each other, so that a blob is of
    one where there are few: the broker can keep such a blob as it is. Where there are many, a blob is of whatever waits."""

    def __init__(self, link: SparkLink, options: SinkOptions, staging: Staging, run: str) -> None:
        self._link: Final = link
        self._options: Final = options
        self._staging: Final = staging
        self._run: Final = run
        self._waiting: dict[str, list[Rows]] = {}  # by destination
        self._sizes = Counter[str]()
        self._attempts: list[int] = []

    def take(self, runs: Sequence[Rows]) -> None:
        for rows in runs:
            destination = rows.shape.destination
            self._waiting.setdefault(destination, []).append(rows)
            self._sizes[destination] += rows.size
            if self._sizes[destination] >= self._options.stage_bytes:
                self._send((destination,))
        if self._sizes.total() >= MOST_WAITING * self._options.stage_bytes:
            self._send(list(self._waiting))

    def finish(self) -> Staged:
        self._send(list(self._waiting))
        if self._link.is_waiting:
            self._link.finish()
        return Staged(self._staging, tuple(self._attempts))

    def _send(self, destinations: Collection[str]) -> None:
        """Sends what waits for these; alone what is enough for a blob of its own."""
        large = [one for one in destinations if self._sizes[one] >= LEAST_ALONE]
        small = [rows for one in destinations if one not in large for rows in self._waiting[one]]
        for waiting in (*[self._waiting[one] for one in large], small):
            # a little more than one is not worth two
            for blob in chunks_of(waiting, 2 * self._options.stage_bytes):
                if self._link.is_waiting:
                    self._link.finish()
                self._attempts.append(randbits(_ATTEMPT_BITS))
                self._link.begin(stage(self._staging, self._attempts[-1], blob, self._run))
        for one in destinations:
            del self._waiting[one], self._sizes[one]


def _staged(
    options: SinkOptions, sink: str, batch: int, batches: Iterator[Any], *, is_stream: bool = False
) -> Staged:
    context = TaskContext.get()
    maker = RowsToRuns(options.destination)
    run = context.getLocalProperty(RUN_ID) if context and context.getLocalProperty(QUERY_ID) else None
    with leased(options.target) as link:
        staging = Staging(
            sink, batch, context.partitionId() if context else 0, bool(options.sink and not is_stream)
        )
        stager = _Stager(link, options, staging, run or "")
        for rows in batches:
            stager.take(maker.runs(rows))
        return stager.finish()


def _publish(options: SinkOptions, messages: Sequence[Staged | None], batch: int | None = None) -> None:
    staged = [message for message in messages if message is not None]
    if not staged:
        return  # no task ran: there is nothing to publish
    sink = staged[0].staging.sink
    attempts = [(each.staging.partition, attempt) for each in staged for attempt in each.attempts]
    with leased(options.target) as link:
        number = staged[0].staging.batch if batch is None else batch
        is_single = not options.sink and batch is None
        is_by_destination = staged[0].staging.is_by_destination
        if (
            not publish(
                link, sink, number, attempts, is_by_destination=is_by_destination, is_single=is_single
            )
            and attempts
        ):
            _log.warning("batch %d of sink %s was published before; it is not published again", number, sink)
        if is_single:
            delete_sink(link, sink)  # a batch write under a name of its own comes only once


def _discard(options: SinkOptions, messages: Sequence[Staged | None]) -> None:
    batches = {(message.staging.sink, message.staging.batch) for message in messages if message is not None}
    try:
        with leased(options.target) as link:
            for sink, batch in batches:
                discard(link, sink, batch)
    except StompboxError as fault:
        # the broker drops what is staged by itself in the end; the reason of the abort is what the user should see
        _log.warning("what an aborted write has staged was not dropped: %s", fault)


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """A batch write: published once, under a name of its own, or under `sinkId` and `batchId`, which make it idempotent."""

    def __init__(self, options: SinkOptions, types: Mapping[str, str]) -> None:
        check_columns(types, options.destination)
        self._options: Final = options
        self._sink: Final = options.sink or f"job-{uuid4().hex}"
        self._batch: Final = max(0, options.batch)

    @plain
    def write(self, iterator: Iterator[Any]) -> Staged:
        return _staged(self._options, self._sink, self._batch, iterator)

    @plain
    def commit(self, messages: list[Staged | None]) -> None:
        _publish(self._options, messages)

    def abort(self, messages: list[Staged | None]) -> None:
        _discard(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The sink of a streaming query: each micro-batch is published once, however often it is replayed."""

    def __init__(self, options: SinkOptions, types: Mapping[str, str]) -> None:
        check_columns(types, options.destination)
        self._options: Final = options

    @plain
    def write(self, iterator: Iterator[Any]) -> Staged:
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context else None
        batch = context.getLocalProperty(BATCH_ID) if context else None
        if batch is None or query is None:
            raise UsageError(
                "no-query",
                f"Spark did not say which batch this is (local properties {QUERY_ID} and {BATCH_ID})",
            )
        return _staged(self._options, f"query-{query}", int(batch), iterator, is_stream=True)

    @plain
    def commit(self, messages: list[Staged | None], batchId: int) -> None:
        _publish(self._options, messages, batchId)

    def abort(self, messages: list[Staged | None], batchId: int) -> None:
        _discard(self._options, messages)
