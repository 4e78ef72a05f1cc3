"""An Iceberg table, written by pyiceberg: no Java, no jar.

Spark's tasks write the files, pyiceberg adds them to a snapshot. A batch is a property of the table, `stompbox.batch.<query>`, set in the
same commit. The catalogue is one SQLite file in the table's folder, `catalog.db`; the table is `stompbox.<folder's name>` in it. Or it is
one that others use, too: it says where the table lies, and of two commits on one state of the table it takes one. The other is made again
on what the table is then.

A commit writes what it is a list of: snapshots, manifests, older metadata. So that it costs the same after months, manifests are merged,
only the newest snapshots stay, and files that none of them names are removed some time after that was first seen (`_orphans.json`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import urlsplit

from pyarrow import parquet
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO, parquet_files_to_data_files
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import IdentityTransform

from stompbox.errors import UsageError
from stompbox.pipelines.locations import Attempt, CatalogEntry, Folder, Location, Store, path_of
from stompbox.pipelines.tables import DataFile, Retention, Staged, agreed, partition_of, put_in_place

CATALOG: Final = "catalog.db"
NAMESPACE: Final = "stompbox"
BATCH: Final = "stompbox.batch."
DATA: Final = "data"
ORPHANS: Final = "_orphans.json"
_CONFLICTS: Final = (CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError)
PROPERTIES: Final = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergFiles:
    def __init__(self, where: Path | CatalogEntry, retention: Retention) -> None:
        self._entry: Final = where if isinstance(where, CatalogEntry) else None
        self._folder: Final = where if isinstance(where, Path) else None
        self._retention: Final = retention

    def __repr__(self) -> str:
        return f"<IcebergFiles {self.uri}>"

    @property
    def uri(self) -> str:
        return (
            f"{self._entry.identifier} of the catalogue {self._entry.uri}"
            if self._entry
            else str(self._folder)
        )

    @property
    def folder(self) -> Path | None:
        return self._folder

    def reading(self) -> AbstractContextManager[None]:
        return Folder(self._folder).reading() if self._folder else nullcontext()

    def filesystem(self) -> Any:
        table = self._open()
        return None if table is None else self._location(table).filesystem()

    def schema(self) -> Any:
        table = self._open()
        return None if table is None else table.schema().as_arrow()

    def attempt(self, name: str, schema: Any, partition_by: str) -> Attempt:
        if self._folder:
            return Folder(self._folder).attempt(name)
        return self._location(agreed(partial(self._there, schema, partition_by), *_CONFLICTS)).attempt(
            name, DATA
        )

    def merging(self, partition: str) -> PurePath:
        return self._location(self._open()).merging(partition, DATA)

    def remove(self, path: PurePath) -> None:
        self._location(self._open()).remove(path)

    def files(self) -> list[DataFile]:
        table = self._open()
        return [] if table is None else [file for file, _ in self._live(table)]

    def last_batch(self, query: str) -> int:
        table = self._open()
        return -1 if table is None else int(table.properties.get(BATCH + query, -1))

    def append(self, staged: Staged, query: str, batch: int) -> bool:
        with self._locked():
            return bool(agreed(partial(self._appended, staged, [], query, batch), *_CONFLICTS))

    def _appended(self, staged: Staged, put: list[DataFile], query: str, batch: int) -> bool:
        """Appends staged files to the table in one commit. `put`: the files at their names, where an attempt before has put them there."""
        filesystem = None if self._folder else self.filesystem()
        schema = parquet.read_schema(str((put or staged.files)[0].path), filesystem=filesystem)
        table = self._there(schema.remove_metadata(), staged.partition_by)
        if int(table.properties.get(BATCH + query, -1)) >= batch:
            return False
        self._widen(table, schema)
        location = self._location(table)
        if not put:
            put += put_in_place(location, location.path / DATA, staged, query, batch)
        with self._once(table) as transaction:
            transaction.add_files([location.uri_of(file.path) for file in put], check_duplicate_files=False)
            transaction.set_properties({BATCH + query: str(batch), **PROPERTIES})
        self._expire(table)
        return True

    def replace(self, old: Sequence[DataFile], merged: PurePath) -> bool:
        with self._locked():
            return bool(
                agreed(
                    partial(self._replaced, {file.path for file in old}, old[0].partition, merged),
                    *_CONFLICTS,
                )
            )

    def _replaced(self, gone: set[PurePath], partition: str, merged: PurePath) -> bool:
        table = self._open()
        live = {} if table is None else {file.path: own for file, own in self._live(table)}
        if table is None or not gone <= live.keys():
            return False
        location = self._location(table)
        target = location.path / DATA / partition / merged.name
        is_put = location.filesystem().get_file_info(str(target)).is_file
        if not is_put and not location.filesystem().get_file_info(str(merged)).is_file:
            return False
        target = target if is_put else location.placed(merged, target)
        with self._once(table) as transaction:
            added = parquet_files_to_data_files(
                table.io, transaction.table_metadata, iter([location.uri_of(target)])
            )
            with transaction.update_snapshot().overwrite() as snapshot:
                for path in gone:
                    snapshot.delete_data_file(live[path])
                for file in added:
                    snapshot.append_data_file(file)
        self._expire(table)
        return True

    def _once(self, table: Any) -> Any:
        """A transaction that a conflict ends. pyiceberg would do it again on the newer state of the table, without a look at which batches
        are in it, or which files are live."""
        table.metadata.properties["commit.retry.num-retries"] = "0"
        return table.transaction()

    def sweep(self) -> None:
        """Removes files that no snapshot has named for long enough. Whoever reads this table asks its snapshots, never the folder."""
        with self._locked():
            if (table := self._open()) is not None:
                self._remove_orphans(table)

    def _locked(self) -> AbstractContextManager[None]:
        return Folder(self._folder).locked() if self._folder else nullcontext()

    def _location(self, table: Any) -> Location:
        if self._folder or self._entry is None:
            return Folder(self._folder or Path())
        if "@" in urlsplit(table.location()).netloc and isinstance(table.io, PyArrowFileIO):
            # it would take all of it for a container
            raise UsageError(
                "missing-package",
                f"{self.uri} is at {table.location()}, where pyiceberg needs adlfs: pip install adlfs",
            )
        return Store(table.location(), self._entry.storage.with_iceberg(table.io.properties))

    def _expire(self, table: Any) -> None:
        """Snapshots beyond the newest, half of them at once: so it is seldom done. Those that a branch or tag names stay."""
        snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number)
        if len(snapshots) < 2 * self._retention.snapshots:
            return
        named = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [
            snapshot.snapshot_id
            for snapshot in snapshots[: -self._retention.snapshots]
            if snapshot.snapshot_id not in named
        ]
        if old:
            with suppress(*_CONFLICTS), self._once(table) as transaction:  # the next one expires them, too
                ExpireSnapshots(transaction).by_ids(old).commit()
            self._remove_orphans(table)

    def _remove_orphans(self, table: Any) -> None:
        """Removes files that were seen as orphans long enough ago; of the others it is written down when they were seen first."""
        now, location = time.time(), self._location(table)
        known, named = self._orphans(location), set(_named(table))
        found = [
            path
            for below in (DATA, "metadata")
            for path, at in location.files(below)
            if path not in named and location.may_sweep(path, at)
        ]
        seen = {
            name: known.get(name, now)
            for path in found
            if (name := path.relative_to(location.path).as_posix())
        }
        with location.unread() as is_unread:
            old = [
                name for name, since in seen.items() if is_unread and since <= now - self._retention.replaced
            ]
            for name in old:
                location.remove(location.path / name)
        left = {name: since for name, since in seen.items() if name not in old}
        if left != known:
            location.write(ORPHANS, json.dumps(left).encode())

    def _orphans(self, location: Location) -> dict[str, float]:
        """Files that no snapshot named, and since when that is known (s)."""
        return dict(json.loads(location.read(ORPHANS) or b"{}"))

    @property
    def _identifier(self) -> str:
        return (
            self._entry.identifier
            if self._entry
            else f"{NAMESPACE}.{self._folder.name if self._folder else ''}"
        )

    @cached_property
    def _shared(self) -> Any:
        assert self._entry
        return load_catalog(NAMESPACE, **self._entry.storage.iceberg(), **dict(self._entry.properties))

    def _catalog(self) -> Any:
        if self._entry:
            return self._shared
        return SqlCatalog(NAMESPACE, uri=f"sqlite:///{self._folder}/{CATALOG}", warehouse=str(self._folder))

    def _open(self) -> Any:
        if self._folder and not (self._folder / CATALOG).exists():
            return None
        try:
            return self._catalog().load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _there(self, schema: Any, partition_by: str) -> Any:
        """The table, made with this schema (Arrow's) where it was not there."""
        return self._open() or self._made(schema, partition_by)

    def _made(self, schema: Any, partition_by: str) -> Any:
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
        location = str(self._folder) if self._folder else None
        with catalog.create_table_transaction(
            self._identifier, schema, location, properties=PROPERTIES
        ) as making:
            if partition_by:
                with making.update_spec() as spec:
                    spec.add_field(partition_by, IdentityTransform(), partition_by)
        return catalog.load_table(self._identifier)

    def _widen(self, table: Any, schema: Any) -> None:
        """Columns that a batch is the first to have. Raises UsageError where a column has changed its type."""
        try:
            with table.update_schema() as update:
                update.union_by_name(schema.remove_metadata())
        except (ValueError, TypeError, ValidationError) as fault:
            raise UsageError(
                "schema-changed", f"the columns of {self.uri} do not go with those of this batch: {fault}"
            ) from None

    def _live(self, table: Any) -> Iterator[tuple[DataFile, Any]]:
        """Each file of the newest snapshot, and how pyiceberg has it."""
        data, fields = self._location(table).path / DATA, table.spec().fields
        for task in table.scan().plan_files():
            path = path_of(task.file.file_path)
            partition = path.parent.relative_to(data).as_posix() if path.is_relative_to(data) else ""
            if fields and partition == ".":  # in_store
                partition = partition_of(fields[0].name, task.file.partition[0])
            yield (
                DataFile(
                    path, partition.removeprefix("."), task.file.record_count, task.file.file_size_in_bytes
                ),
                task.file,
            )


def _named(table: Any) -> Iterator[PurePath]:
    """Every file that the table needs: metadata, lists of manifests, manifests, data."""
    manifests: dict[str, Any] = {}
    yield path_of(table.metadata_location)
    yield from (path_of(entry.metadata_file) for entry in table.metadata.metadata_log)
    yield from (
        path_of(each.statistics_path)
        for each in (*table.metadata.statistics, *table.metadata.partition_statistics)
    )
    for snapshot in table.metadata.snapshots:
        yield path_of(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        yield path_of(path)
        yield from (path_of(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io))
