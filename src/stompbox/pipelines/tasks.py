"""What the tasks of an archive's batch do: they read their messages from the broker and write the files, without handing a row to Java.

Spark plans which offsets a batch has and deals them out to tasks (spark/ranges.py), keeps the checkpoint, and does a batch again that was
cut off. A task answers with the files that it has written into the staging folder of this attempt; they count when the driver commits
them, as those do that Java writes.

Decides what a row of such a file is: the source's columns, `archived`, and the day of arrival (UTC) as its folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

import numpy as np
import pyarrow as pa

from stompbox.pipelines.locations import Attempt
from stompbox.pipelines.settings import Format
from stompbox.pipelines.tables import DataFile, Staged
from stompbox.spark.faults import plain
from stompbox.spark.files import CODEC, DEFAULT_CODEC, Files, WrittenFile, codec_of
from stompbox.spark.options import SourceOptions
from stompbox.spark.ranges import ranges_of
from stompbox.spark.reading import View, batches

DAY: Final = "date"
ARCHIVED: Final = "archived"
DAY_LENGTH: Final = 86_400_000_000  # µs

Frontier = dict[str, tuple[int, int]]
"""Per address the offset after the last one in the table, and the time of that last one (µs)."""


@dataclass(frozen=True, slots=True)
class Source:
    """What an archive reads: `schema` is Arrow's, of all columns of a row of the table."""

    options: SourceOptions
    view: View
    schema: Any


@dataclass(frozen=True, slots=True)
class Work:
    """What the tasks of one attempt at a batch have in common. `schema` is that of the files, `codec` what compresses them."""

    source: Source
    attempt: Attempt
    schema: Any
    archived: int  # µs
    known: Mapping[str, tuple[int, int]]
    codec: str = DEFAULT_CODEC


def stage_messages(
    frame: Any, source: Source, attempt: Attempt, kept: Format, known: Frontier
) -> tuple[Staged, int]:
    """The messages of a batch of ranges as files of this attempt, and how many there were, those that the table had already too."""
    is_in_files = kept is Format.ICEBERG  # whose files hold all columns
    schema = source.schema if is_in_files else source.schema.remove(source.schema.get_field_index(DAY))
    codec = codec_of(frame.sparkSession.conf.get(CODEC))
    work = Work(source, attempt, schema, time.time_ns() // 1000, known, codec)
    found = frame.rdd.mapPartitions(partial(write_messages, work)).collect()
    return staged_in(attempt, [file for _, written in found for file in written], source.schema, DAY), sum(
        count for count, _ in found
    )


def staged_in(attempt: Attempt, written: list[WrittenFile], schema: Any, partition_by: str) -> Staged:
    """What the tasks of an attempt have written, as the driver commits it."""
    from pyarrow.fs import LocalFileSystem

    filesystem = attempt.filesystem() or LocalFileSystem()
    stats = filesystem.get_file_info([file.path for file in written]) if written else []
    path: type[PurePath] = Path if attempt.storage is None else PurePosixPath
    files = (
        DataFile(path(file.path), file.partition, file.rows, stat.size, stat.mtime_ns // 1_000_000)
        for file, stat in zip(written, stats, strict=True)
    )
    return Staged(None if attempt.prefix else Path(attempt.folder), tuple(files), schema, partition_by)


@plain
def write_messages(work: Work, rows: Iterator[Any]) -> Iterator[tuple[int, list[WrittenFile]]]:
    """One task: how many messages it has read, and the files with those of them that were not in the table."""
    count = 0
    with Files(
        work.attempt.folder, work.schema, work.codec, work.attempt.filesystem(), work.attempt.prefix
    ) as files:
        for batch in batches(work.source.options, ranges_of(rows), work.source.view):
            count += len(batch)
            for day, part in by_day(beyond(batch, work.known)):
                files.add(_completed(part, day, work), f"{DAY}={np.datetime64(day, 'D')}")
    yield count, files.written


def beyond(batch: Any, known: Mapping[str, tuple[int, int]]) -> Any:
    """The rows that are not in the table yet. All are of one address."""
    there = known.get(batch.column("address")[0].as_py()) if known and len(batch) else None
    if there is None:
        return batch
    offset, moment = there
    is_new = (batch.column("offset").to_numpy() >= offset) | (_moments(batch) > moment)
    return batch if is_new.all() else batch.filter(pa.array(is_new))


def by_day(batch: Any) -> Iterator[tuple[int, Any]]:
    """The rows of each day of arrival (days since 1970)."""
    days = _moments(batch) // DAY_LENGTH
    if len(days) and days.min() == days.max():
        yield int(days[0]), batch
        return
    for day in np.unique(days):
        yield int(day), batch.filter(pa.array(days == day))


def _moments(batch: Any) -> Any:
    return batch.column("timestamp").view(pa.int64()).to_numpy()


def _completed(batch: Any, day: int, work: Work) -> Any:
    """With the columns that the source does not have, in the order of the files."""
    added = {ARCHIVED: pa.scalar(work.archived, pa.int64()), DAY: pa.scalar(day, pa.int32())}
    arrays = []
    for field in work.schema:
        value = added.get(field.name)
        arrays.append(
            batch.column(field.name) if value is None else pa.repeat(value, len(batch)).view(field.type)
        )
    return pa.RecordBatch.from_arrays(arrays, schema=work.schema)
