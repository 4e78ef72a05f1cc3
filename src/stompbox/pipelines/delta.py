"""A Delta table, written by delta-rs (the package deltalake): no Java, no jar.

Spark's tasks write the files, delta-rs writes the log. A batch is an application transaction of Delta: (query, batch). Files that a version
no longer names stay for Delta's own time of retention, so that older versions can be read; `vacuum` removes them after it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction

from stompbox.errors import UsageError
from stompbox.pipelines import disk
from stompbox.pipelines.tables import DataFile, Staged, file_of, partition_value, put_in_place


class DeltaFiles:
    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

    def __repr__(self) -> str:
        return f"<DeltaFiles {self.folder}>"

    def files(self) -> list[DataFile]:
        table = self._open()
        return [] if table is None else self._live(table)

    def last_batch(self, query: str) -> int:
        table = self._open()
        found = None if table is None else table.transaction_version(query)
        return -1 if found is None else int(found)

    def append(self, staged: Staged, query: str, batch: int) -> bool:
        with disk.locked(self.folder):
            table = self._open() or self._made(staged)
            last = table.transaction_version(query)
            if last is not None and last >= batch:
                return False
            self._widen(table, staged)
            placed = put_in_place(self.folder, staged, query, batch)
            self._commit(table, [self._added(file, changes=True) for file in placed], [Transaction(query, batch)])
            return True

    def replace(self, old: Sequence[DataFile], merged: Path) -> bool:
        with disk.locked(self.folder):
            table = self._open()
            gone = {file.path for file in old}
            if table is None or not gone <= {file.path for file in self._live(table)} or not merged.exists():
                return False
            target = self.folder / old[0].partition / merged.name
            disk.move(merged, target)
            added = self._added(file_of(target, old[0].partition), changes=False)
            self._commit(table, [added, *(self._removed(file) for file in old)], [])
            return True

    def sweep(self) -> None:
        """Nothing: whoever reads this table asks its log, never the folder."""

    def _open(self) -> DeltaTable | None:
        return DeltaTable(str(self.folder)) if DeltaTable.is_deltatable(str(self.folder)) else None

    def _made(self, staged: Staged) -> DeltaTable:
        return DeltaTable.create(str(self.folder), staged.schema, partition_by=[staged.partition_by] if staged.partition_by else None)

    def _live(self, table: DeltaTable) -> list[DataFile]:
        found = []
        for entry in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            path = self.folder / unquote(entry["path"])
            partition = path.parent.relative_to(self.folder).as_posix().removeprefix(".")
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
                raise UsageError("schema-changed", f"column {field.name!r} of {self.folder} {change}; take a new table")
        if new:
            table.alter.add_columns(new)

    def _commit(self, table: DeltaTable, actions: list[Any], transactions: list[Transaction]) -> None:
        partitions = table.metadata().partition_columns
        properties = CommitProperties(app_transactions=transactions or None)
        table.update_incremental()  # a commit that widened it lies behind
        table.create_write_transaction(actions, "append", table.schema(), partitions, commit_properties=properties)

    def _added(self, file: DataFile, *, changes: bool) -> AddAction:
        path = quote(file.path.relative_to(self.folder).as_posix(), safe="/=")
        return AddAction(path, file.size, _values(file), file.modified, changes, json.dumps({"numRecords": file.rows}))

    def _removed(self, file: DataFile) -> RemoveAction:
        path = quote(file.path.relative_to(self.folder).as_posix(), safe="/=")
        return RemoveAction(path, data_change=False, deletion_timestamp=_now(), size=file.size, partition_values=_values(file))


def _values(file: DataFile) -> dict[str, str | None]:
    return {file.partition.partition("=")[0]: partition_value(file.partition)} if file.partition else {}


def _now() -> int:
    return time.time_ns() // 1_000_000
