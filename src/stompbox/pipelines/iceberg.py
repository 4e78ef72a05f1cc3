"""An Iceberg table, written by pyiceberg: no Java, no jar.

Spark's tasks write the files, pyiceberg adds them to a snapshot. A batch is a property of the table, `stompbox.batch.<query>`, set in the
same commit. The catalogue is one SQLite file in the table's folder, `catalog.db`; the table is `stompbox.<folder's name>` in it.

A commit writes what it is a list of: snapshots, manifests, older metadata. So that it costs the same after months, manifests are merged,
only the newest snapshots stay, and files that none of them names are removed some time after that was first seen (`_orphans.json`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import IdentityTransform

from stompbox.errors import UsageError
from stompbox.pipelines import disk
from stompbox.pipelines.tables import DataFile, Retention, Staged, put_in_place

CATALOG: Final = "catalog.db"
NAMESPACE: Final = "stompbox"
BATCH: Final = "stompbox.batch."
DATA: Final = "data"
ORPHANS: Final = "_orphans.json"
PROPERTIES: Final = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergFiles:
    def __init__(self, folder: Path, retention: Retention) -> None:
        self.folder: Final = folder
        self._retention: Final = retention

    def __repr__(self) -> str:
        return f"<IcebergFiles {self.folder}>"

    def files(self) -> list[DataFile]:
        table = self._open()
        return [] if table is None else [self._file(task.file) for task in table.scan().plan_files()]

    def last_batch(self, query: str) -> int:
        table = self._open()
        return -1 if table is None else int(table.properties.get(BATCH + query, -1))

    def append(self, staged: Staged, query: str, batch: int) -> bool:
        with disk.locked(self.folder):
            table = self._open()
            if table is None:
                table = self._made(staged)
            if int(table.properties.get(BATCH + query, -1)) >= batch:
                return False
            self._widen(table, parquet.read_schema(staged.files[0].path))
            placed = put_in_place(self.folder / DATA, staged, query, batch)
            with table.transaction() as transaction:
                transaction.add_files([str(file.path) for file in placed], check_duplicate_files=False)
                transaction.set_properties({BATCH + query: str(batch), **PROPERTIES})
            self._expire(table)
            return True

    def replace(self, old: Sequence[DataFile], merged: Path) -> bool:
        with disk.locked(self.folder):
            table = self._open()
            gone = {file.path for file in old}
            live = {} if table is None else {self._file(task.file).path: task.file for task in table.scan().plan_files()}
            if table is None or not gone <= live.keys() or not merged.exists():
                return False
            target = self.folder / DATA / old[0].partition / merged.name
            disk.move(merged, target)
            with table.transaction() as transaction:
                added = parquet_files_to_data_files(table.io, transaction.table_metadata, iter([str(target)]))
                with transaction.update_snapshot().overwrite() as snapshot:
                    for path in gone:
                        snapshot.delete_data_file(live[path])
                    for file in added:
                        snapshot.append_data_file(file)
            self._expire(table)
            return True

    def sweep(self) -> None:
        """Removes files that no snapshot has named for long enough. Whoever reads this table asks its snapshots, never the folder."""
        with disk.locked(self.folder):
            if (table := self._open()) is not None:
                self._remove_orphans(table)

    def _expire(self, table: Any) -> None:
        """Snapshots beyond the newest, half of them at once: so it is seldom done. Those that a branch or tag names stay."""
        snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number)
        if len(snapshots) < 2 * self._retention.snapshots:
            return
        named = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [snapshot.snapshot_id for snapshot in snapshots[: -self._retention.snapshots] if snapshot.snapshot_id not in named]
        if old:
            with table.transaction() as transaction:
                ExpireSnapshots(transaction).by_ids(old).commit()
            self._remove_orphans(table)

    def _remove_orphans(self, table: Any) -> None:
        """Those that were seen as such long enough ago; of the others it is written down when they were seen first."""
        now = time.time()
        known = self._orphans()
        named = set(_named(table))
        found = [path for place in (DATA, "metadata") for path in (self.folder / place).rglob("*.*") if path.is_file()]
        seen = {name: known.get(name, now) for path in found if path not in named and (name := str(path.relative_to(self.folder)))}
        with disk.unread(self.folder) as is_unread:
            old = [name for name, since in seen.items() if is_unread and since <= now - self._retention.replaced]
            for name in old:
                disk.remove(self.folder / name)
        left = {name: since for name, since in seen.items() if name not in old}
        if left != known:
            disk.write(self.folder / ORPHANS, json.dumps(left).encode())

    def _orphans(self) -> dict[str, float]:
        """Files that no snapshot named, and since when that is known (s)."""
        try:
            return dict(json.loads((self.folder / ORPHANS).read_text()))
        except FileNotFoundError:
            return {}

    @property
    def _identifier(self) -> str:
        return f"{NAMESPACE}.{self.folder.name}"

    def _catalog(self) -> SqlCatalog:
        return SqlCatalog(NAMESPACE, uri=f"sqlite:///{self.folder / CATALOG}", warehouse=str(self.folder))

    def _open(self) -> Any:
        if not (self.folder / CATALOG).exists():
            return None
        try:
            return self._catalog().load_table(self._identifier)
        except NoSuchTableError:
            return None

    def _made(self, staged: Staged) -> Any:
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(NAMESPACE)
        schema = parquet.read_schema(staged.files[0].path).remove_metadata()
        with catalog.create_table_transaction(self._identifier, schema, str(self.folder), properties=PROPERTIES) as making:
            if staged.partition_by:
                with making.update_spec() as spec:
                    spec.add_field(staged.partition_by, IdentityTransform(), staged.partition_by)
        return catalog.load_table(self._identifier)

    def _widen(self, table: Any, schema: Any) -> None:
        """Columns that a batch is the first to have. Raises UsageError where a column has changed its type."""
        try:
            with table.update_schema() as update:
                update.union_by_name(schema.remove_metadata())
        except (ValueError, TypeError, ValidationError) as fault:
            raise UsageError("schema-changed", f"the columns of {self.folder} do not go with those of this batch: {fault}") from None

    def _file(self, file: Any) -> DataFile:
        path = _path(file.file_path)
        partition = path.parent.relative_to(self.folder / DATA).as_posix() if path.is_relative_to(self.folder / DATA) else ""
        return DataFile(path, partition.removeprefix("."), file.record_count, file.file_size_in_bytes)


def _named(table: Any) -> Iterator[Path]:
    """Every file that the table needs: metadata, lists of manifests, manifests, data."""
    manifests: dict[str, Any] = {}
    yield _path(table.metadata_location)
    yield from (_path(entry.metadata_file) for entry in table.metadata.metadata_log)
    yield from (_path(each.statistics_path) for each in (*table.metadata.statistics, *table.metadata.partition_statistics))
    for snapshot in table.metadata.snapshots:
        yield _path(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        yield _path(path)
        yield from (_path(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io))


def _path(location: str) -> Path:
    """Where pyiceberg has put it, which takes the path of a URI as it stands."""
    return Path(urlsplit(location).path if location.startswith("file:") else location)
