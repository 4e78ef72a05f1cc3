"""Tables as pipelines see them: a set of live Parquet files that a commit changes at once, in one of three formats.

    append(…)    the files of one batch join the table; the same batch of the same query a second time changes nothing
    replace(…)   one file in place of several small ones, the rows being the same

Spark's tasks write the files into a staging folder of the table (tasks.py, staging.py); what makes them count is the commit, in the driver:

    parquet   a log of one file, in the form of Spark's own (`_spark_metadata`), so that Spark reads exactly the live files   parquet.py
    delta     a version of the Delta log, the batch as its application transaction                                           delta.py
    iceberg   a snapshot, the batch as a property of the table                                                                iceberg.py

What keeps writers, compactions and readers from each other is the location's (locations.py). Decides when small files are worth rewriting.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

from pyarrow import parquet

from stompbox.errors import UsageError
from stompbox.pipelines.locations import STAGING, Attempt, CatalogEntry, Folder, Location, Where, staging_of
from stompbox.pipelines.settings import Format

NULL: Final = "__HIVE_DEFAULT_PARTITION__"  # in the name of a partition's folder
COMMITS: Final = 10  # attempts at one commit, each on what another writer has made of the table meanwhile
PAUSE: Final = 0.1  # s before the second of them, at most; before each further one more
MERGE_ROWS: Final = 65_536  # rows held at once while files are merged, at most
MERGE_BYTES: Final = 32 << 20  # and about so many bytes of them


@dataclass(frozen=True, slots=True)
class DataFile:
    """A live file. `partition` is the folder it is in, `date=2026-03-01`; empty: the table has no partitions."""

    path: PurePath
    partition: str
    rows: int
    size: int  # bytes
    modified: int = 0  # ms


@dataclass(frozen=True, slots=True)
class Staged:
    """The files of one batch, not yet part of the table. `schema` is Arrow's, of all columns, the one the table is partitioned by too.

    `folder` is thrown away when the batch is in the table; None where the files are written where they stay.
    """

    folder: Path | None
    files: tuple[DataFile, ...]
    schema: Any
    partition_by: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """When a partition is worth rewriting: `files` below `small` bytes; a new file has about `target` bytes."""

    files: int = 10
    small: int = 16 << 20
    target: int = 128 << 20


@dataclass(frozen=True, slots=True)
class Retention:
    """What stays of the past, for those who read: files that were replaced, in seconds, and the newest snapshots of Iceberg."""

    replaced: float = 600.0
    snapshots: int = 50


class Table(Protocol):
    @property
    def uri(self) -> str:
        """The location of the table as people are told it."""

    @property
    def folder(self) -> Path | None:
        """Where Spark's own readers find it, and Java may write; None: in an object store, or where a catalogue says."""

    def reading(self) -> AbstractContextManager[None]:
        """Nothing that is live now is removed meanwhile, where that can be had."""

    def filesystem(self) -> Any:
        """Arrow's file system, which has the live files."""

    def schema(self) -> Any:
        """Arrow's, of all columns that the table has now."""

    def attempt(self, name: str, schema: Any, partition_by: str) -> Attempt:
        """Where the tasks of one attempt at a batch of this schema (Arrow's, of all columns) write."""

    def merging(self, partition: str) -> PurePath:
        """Where a file is written that replaces others of this partition."""

    def remove(self, path: PurePath) -> None:
        """Removes a file that does not count."""

    def files(self) -> list[DataFile]:
        """The live files; none of a table that is not there yet."""

    def last_batch(self, query: str) -> int:
        """The last batch of this query that is in the table; -1: none."""

    def append(self, staged: Staged, query: str, batch: int) -> bool:
        """Makes the files of a batch count. False when the batch was there already."""

    def replace(self, old: Sequence[DataFile], merged: PurePath) -> bool:
        """`merged` lies where `merging` has said. False when somebody else has changed one of `old` meanwhile: nothing happens then."""

    def sweep(self) -> None:
        """Removes what was put in place and never counted, or counts no more, where readers who list the folder would see it."""


def open_table(kept: Format, where: Where, retention: Retention = Retention()) -> Table:
    """The table there, which need not be there yet. `retention` is for those who write."""
    if kept is Format.ICEBERG:
        from stompbox.pipelines.iceberg import IcebergFiles

        assert isinstance(where, Path | CatalogEntry)  # checks.py
        return IcebergFiles(where, retention)
    assert not isinstance(where, CatalogEntry)
    if kept is Format.DELTA:
        from stompbox.pipelines.delta import DeltaFiles

        return DeltaFiles(Folder(where) if isinstance(where, Path) else where)
    from stompbox.pipelines.parquet import ParquetFiles

    assert isinstance(where, Path)
    return ParquetFiles(where, retention.replaced)


def partition_value(partition: str) -> str | None:
    """What stands behind the `=` of a partition's folder; None is SQL's NULL."""
    value = partition.partition("=")[2]
    return None if value == NULL else unquote(value)


def partition_of(column: str, value: str | None) -> str:
    """As Hive, Spark and Delta name the folder of a value. They have no empty text."""
    return f"{column}={quote(value, safe=' -:.') if value else NULL}"


def target_of(folder: PurePath, file: DataFile, query: str, batch: int, number: int) -> PurePath:
    """Where a staged file of a batch goes. The same batch, made again after a crash, takes the same names."""
    return folder / file.partition / f"{query[:8]}-{batch:06d}-{number:04d}.parquet"


def put_in_place(
    location: Location, folder: PurePath, staged: Staged, query: str, batch: int
) -> list[DataFile]:
    """The files of a batch at their names in the table, where they do not count yet."""
    placed = []
    for number, file in enumerate(staged.files):
        placed.append(
            replace(file, path=location.placed(file.path, target_of(folder, file, query, batch, number)))
        )
    return placed


def agreed(change: Callable[[], Any], *conflicts: type[Exception]) -> Any:
    """What this change of a table comes to, begun anew wherever another writer was first."""
    for attempt in range(1, COMMITS):
        try:
            return change()
        except conflicts:
            time.sleep(random.uniform(0, PAUSE * attempt))
    return change()


def worthwhile(files: Sequence[DataFile], policy: Policy) -> Iterator[list[DataFile]]:
    """Groups of small files of one partition, each about one target in size."""
    by_partition: dict[str, list[DataFile]] = {}
    for file in files:
        if file.size < policy.small:
            by_partition.setdefault(file.partition, []).append(file)
    for small in by_partition.values():
        if len(small) < policy.files:
            continue
        group: list[DataFile] = []
        for file in sorted(small, key=lambda file: file.path.name):
            if group and sum(each.size for each in group) + file.size > policy.target:
                yield group
                group = []
            group.append(file)
        if len(group) > 1:
            yield group


def compact(table: Table, policy: Policy) -> int:
    """Rewrites small files into few, and says how many it has rewritten. May be killed anywhere, and run beside a writer."""
    rewritten = 0
    for group in worthwhile(table.files(), policy):
        try:
            for alike in _alike(group, table.filesystem()):
                merged = table.merging(alike[0].partition)
                merge(alike, merged, table.filesystem())
                if table.replace(alike, merged):
                    rewritten += len(alike)
                else:
                    table.remove(merged)
        except FileNotFoundError:  # somebody else rewrites this group
            continue
    return rewritten


def tidy(table: Table) -> None:
    """Removes what a process left that was killed."""
    if table.folder is None:
        table.sweep()
    elif table.folder.is_dir():
        for staging in {staging_of(table.folder), table.folder / STAGING}:
            shutil.rmtree(staging, ignore_errors=True)
        table.sweep()


def _alike(files: Sequence[DataFile], filesystem: Any) -> Iterator[list[DataFile]]:
    """Files of the same columns: those from before a change of the schema stay among themselves."""
    groups: dict[str, list[DataFile]] = {}
    for file in files:
        groups.setdefault(
            str(parquet.read_schema(str(file.path), filesystem=filesystem).remove_metadata()), []
        ).append(file)
    yield from (group for group in groups.values() if len(group) > 1)


def merge(files: Sequence[DataFile], target: PurePath, filesystem: Any = None) -> None:
    """One file with the rows of all, in their order."""
    if filesystem is None or filesystem.type_name == "local":
        Path(target.parent).mkdir(parents=True, exist_ok=True)
    rows = 0
    schema = parquet.read_schema(str(files[0].path), filesystem=filesystem)
    with parquet.ParquetWriter(str(target), schema, filesystem=filesystem) as writer:
        for file in files:
            source = parquet.ParquetFile(str(file.path), filesystem=filesystem)
            for batch in source.iter_batches(_at_once(source.metadata)):
                writer.write_batch(batch)
                rows += len(batch)
    expected = sum(file.rows for file in files)
    if rows != expected:
        raise UsageError(
            "table-damaged",
            f"files of {target.parent.parent} hold {rows} rows where the table says {expected}",
        )


def _at_once(metadata: Any) -> int:
    """Rows of a file that are held at once, by what its groups of rows take uncompressed."""
    size = sum(int(metadata.row_group(number).total_byte_size) for number in range(metadata.num_row_groups))
    return max(1, min(MERGE_ROWS, MERGE_BYTES * int(metadata.num_rows) // max(1, size)))


def file_of(path: PurePath, partition: str, filesystem: Any = None) -> DataFile:
    """A Parquet file with its rows and size, as it lies there."""
    rows = parquet.read_metadata(str(path), filesystem=filesystem).num_rows
    if filesystem is None:
        stat = Path(path).stat()
        return DataFile(path, partition, rows, stat.st_size, int(stat.st_mtime * 1000))
    found = filesystem.get_file_info(str(path))
    return DataFile(path, partition, rows, found.size, found.mtime_ns // 1_000_000)
