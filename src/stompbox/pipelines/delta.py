"""A Delta table, written by delta-rs (the package deltalake): no Java, no jar.

Spark's tasks write the files, delta-rs writes the log. A batch is an application transaction of Delta: (query, batch). Files that a version
no longer names stay for Delta's own time of retention, so that older versions can be read; `vacuum` removes them after it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from stompbox.errors import UsageError
from stompbox.pipelines.locations import NAMED, UNCOMMITTED, Attempt, Location
from stompbox.pipelines.tables import (
    DataFile,
    Staged,
    agreed,
    file_of,
    partition_of,
    partition_value,
    put_in_place,
)


class DeltaFiles:
    def __init__(self, location: Location) -> None:
        self._location: Final = location
        self._path: Final = location.path

    def __repr__(self) -> str:
        return f"<DeltaFiles {self.uri}>"

    @property
    def uri(self) -> str:
        return self._location.uri

    @property
    def folder(self) -> Path | None:
        return self._path if isinstance(self._path, Path) else None

    def reading(self) -> AbstractContextManager[None]:
        return self._location.reading()

    def filesystem(self) -> Any:
        return self._location.filesystem()

    def schema(self) -> Any:
        table = self._open()
        return None if table is None else pa.schema(table.schema().to_arrow())

    def attempt(self, name: str, schema: Any, partition_by: str) -> Attempt:
        return self._location.attempt(name)

    def merging(self, partition: str) -> PurePath:
        return self._location.merging(partition)

    def remove(self, path: PurePath) -> None:
        self._location.remove(path)

    def files(self) -> list[DataFile]:
        table = self._open()
        return [] if table is None else self._live(table)

    def last_batch(self, query: str) -> int:
        table = self._open()
        found = None if table is None else table.transaction_version(query)
        return -1 if found is None else int(found)

    def append(self, staged: Staged, query: str, batch: int) -> bool:
        put = cache(partial(put_in_place, self._location, self._path, staged, query, batch))
        with self._location.locked():
            return bool(agreed(partial(self._appended, staged, put, query, batch), CommitFailedError))

    def _appended(self, staged: Staged, put: Callable[[], list[DataFile]], query: str, batch: int) -> bool:
        table = self._open() or self._made(staged)
        self._widen(table, staged)
        last = table.transaction_version(query)
        if last is not None and last >= batch:
            return False
        self._commit(table, [self._added(file, changes=True) for file in put()], [Transaction(query, batch)])
        return True

    def replace(self, old: Sequence[DataFile], merged: PurePath) -> bool:
        put = cache(partial(self._location.placed, merged, self._path / old[0].partition / merged.name))
        with self._location.locked():
            return self._is_there(merged) and bool(
                agreed(partial(self._replaced, old, put), CommitFailedError)
            )

    def _replaced(self, old: Sequence[DataFile], put: Callable[[], PurePath]) -> bool:
        table = self._open()
        if table is None or not {file.path for file in old} <= {file.path for file in self._live(table)}:
            return False
        added = self._added(file_of(put(), old[0].partition, self.filesystem()), changes=False)
        self._commit(table, [added, *(self._removed(file) for file in old)], [])
        return True

    def sweep(self) -> None:
        """Removes what was never committed, where it lies among the files of the table: in an object store. Whoever reads this table asks
        its log, never the folder. What older versions name stays as long as Delta itself keeps it."""
        table = None if self._location.storage is None else self._open()
        if table is None:
            return
        hours = round(UNCOMMITTED / 3600)
        unnamed = set(table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True))
        for name in unnamed - set(
            table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=False)
        ):
            path = self._path / unquote(name)
            if path.name.startswith(NAMED):
                self.remove(path)

    def _is_there(self, path: PurePath) -> bool:
        return bool(self.filesystem().get_file_info(str(path)).is_file)

    def _open(self) -> DeltaTable | None:
        storage = self._location.storage
        if storage is None:
            return self._opened()
        # made first, as it knows best what this machine lacks for such a store: delta-rs would but say that it failed
        self.filesystem()
        with storage.explaining(self.uri):
            return self._opened()

    def _opened(self) -> DeltaTable | None:
        return (
            DeltaTable(self.uri, storage_options=self._options)
            if DeltaTable.is_deltatable(self.uri, self._options)
            else None
        )

    def _made(self, staged: Staged) -> DeltaTable:
        partitions = [staged.partition_by] if staged.partition_by else None
        return DeltaTable.create(
            self.uri, staged.schema, mode="ignore", partition_by=partitions, storage_options=self._options
        )

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self._location.storage is None else self._location.storage.delta()

    def _live(self, table: DeltaTable) -> list[DataFile]:
        found, columns = [], table.metadata().partition_columns
        for entry in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            path = self._path / unquote(entry["path"])
            partition = path.parent.relative_to(self._path).as_posix().removeprefix(".")
            if columns and not partition:  # in_store
                partition = partition_of(columns[0], entry[f"partition.{columns[0]}"])
            found.append(DataFile(path, partition, entry["num_records"], entry["size_bytes"]))
        return found

    def _widen(self, table: DeltaTable, staged: Staged) -> None:
        """Columns that a batch is the first to have. Raises UsageError where a column has changed its type."""
        known = {field.name: field for field in table.schema().fields}
        given = Schema.from_arrow(staged.schema).fields
        new = [field for field in given if field.name not in known]
        for field in given:
            if field.name in known and known[field.name].type != field.type:
                change = f"is {known[field.name].type}, and now {field.type}"
                raise UsageError(
                    "schema-changed", f"column {field.name!r} of {self.uri} {change}; take a new table"
                )
        if new:
            table.alter.add_columns(new)
            table.update_incremental()

    def _commit(self, table: DeltaTable, actions: list[Any], transactions: list[Transaction]) -> None:
        """On the version that was looked at, and no other: delta-rs would try again on a newer one, which may have lost these files."""
        partitions = table.metadata().partition_columns
        properties = CommitProperties(max_commit_retries=0, app_transactions=transactions or None)
        table.create_write_transaction(
            actions, "append", table.schema(), partitions, commit_properties=properties
        )

    def _added(self, file: DataFile, *, changes: bool) -> AddAction:
        path = quote(file.path.relative_to(self._path).as_posix(), safe="/=")
        return AddAction(
            path, file.size, _values(file), file.modified, changes, json.dumps({"numRecords": file.rows})
        )

    def _removed(self, file: DataFile) -> RemoveAction:
        path = quote(file.path.relative_to(self._path).as_posix(), safe="/=")
        return RemoveAction(
            path, data_change=False, deletion_timestamp=_now(), size=file.size, partition_values=_values(file)
        )


def _values(file: DataFile) -> dict[str, str | None]:
    return {file.partition.partition("=")[0]: partition_value(file.partition)} if file.partition else {}


def _now() -> int:
    return time.time_ns() // 1_000_000
