"""An Iceberg table, written by pyiceberg: no Java, no jar.

Spark's tasks write the files, pyiceberg adds them to a snapshot. A batch is a property of the table, `stompbox.batch.<query>`, set in the
same commit. The catalogue is one SQLite file in the table's folder, `catalog.db`; the table is `stompbox.<folder's name>` in it. Files that
a snapshot no longer names stay, so that older snapshots can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.transforms import IdentityTransform

from stompbox.errors import UsageError
from stompbox.pipelines import disk
from stompbox.pipelines.tables import DataFile, Staged, put_in_place

CATALOG: Final = "catalog.db"
NAMESPACE: Final = "stompbox"
BATCH: Final = "stompbox.batch."
DATA: Final = "data"


class IcebergFiles:
    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

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
                transaction.set_properties({BATCH + query: str(batch)})
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
            return True

    def sweep(self) -> None:
        """Nothing: whoever reads this table asks its log, never the folder."""

    @property
    def _identifier(self) -> str:
        return f"{NAMESPACE}.{self.folder.name}"

    def _catalog(self) -> SqlCatalog:
        return SqlCatalog(NAMESPACE, uri=f"sqlite:///{self.folder / CATALOG}", warehouse=self.folder.as_uri())

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
        with catalog.create_table_transaction(self._identifier, schema, location=self.folder.as_uri()) as making:
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
        path = Path(unquote(urlsplit(file.file_path).path))
        partition = path.parent.relative_to(self.folder / DATA).as_posix() if path.is_relative_to(self.folder / DATA) else ""
        return DataFile(path, partition.removeprefix("."), file.record_count, file.file_size_in_bytes)
