"""A table of plain Parquet files with a log of one file, in the form that Spark's own streaming sink has.

    _spark_metadata/17.compact     `v1`, then one line of JSON per live file; the first also says which batches are in

Spark reads a folder with such a log by the log alone, never by listing: rows appear and files are exchanged at once, when the next number
is renamed into place. Spark takes a file N.compact for the whole truth up to N; the numbers go on one by one, because it reckons its
interval from the last two of them. Readers who list the folder instead see the same files, unless a writer was killed: what does not stand
in the log is swept away under the lock before the next change.

Spark's sink may not write into such a table beside us, and does not: its log has other names, and a table that it made is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from stompbox.errors import UsageError
from stompbox.pipelines import disk
from stompbox.pipelines.tables import DataFile, Staged, file_of, put_in_place

LOG: Final = "_spark_metadata"
_VERSION: Final = "v1"
_OURS: Final = "stompbox"

Batches = dict[str, int]


class ParquetFiles:
    """Keeps nothing in memory: what holds stands in the log."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

    def __repr__(self) -> str:
        return f"<ParquetFiles {self.folder}>"

    def files(self) -> list[DataFile]:
        return self._read()[1]

    def last_batch(self, query: str) -> int:
        return self._read()[2].get(query, -1)

    def append(self, staged: Staged, query: str, batch: int) -> bool:
        with disk.locked(self.folder):
            number, files, batches = self._read()
            self._sweep(number, files)
            if batches.get(query, -1) >= batch:
                return False
            placed = put_in_place(self.folder, staged, query, batch)
            self._write(number, [*files, *placed], {**batches, query: batch})
            return True

    def replace(self, old: Sequence[DataFile], merged: Path) -> bool:
        with disk.locked(self.folder):
            number, files, batches = self._read()
            self._sweep(number, files)
            gone = {file.path for file in old}
            if not gone <= {file.path for file in files} or not merged.exists():
                return False
            target = self.folder / old[0].partition / merged.name
            disk.move(merged, target)
            kept = [file for file in files if file.path not in gone]
            self._write(number, [*kept, file_of(target, old[0].partition)], batches)
            for file in old:
                disk.remove(file.path)
            return True

    def sweep(self) -> None:
        with disk.locked(self.folder):
            number, files, _ = self._read()
            self._sweep(number, files)

    def _logs(self) -> list[int]:
        names = [path.name for path in (self.folder / LOG).iterdir()] if (self.folder / LOG).is_dir() else []
        if any(name.isdigit() for name in names):
            raise UsageError("not-our-table", f"{self.folder} was written by a Spark query of its own; take another folder")
        return sorted(int(name.removesuffix(".compact")) for name in names if name.endswith(".compact") and not name.startswith("."))

    def _read(self) -> tuple[int, list[DataFile], Batches]:
        """The number of the log (-1: none), the live files, and the last batch of each query."""
        while numbers := self._logs():
            try:
                text = (self.folder / LOG / f"{numbers[-1]}.compact").read_text()
            except FileNotFoundError:  # the next one has come meanwhile
                continue
            version, *lines = text.splitlines()
            entries = [json.loads(line) for line in lines]
            if version != _VERSION or not entries or _OURS not in entries[0]:
                raise UsageError("not-our-table", f"{self.folder / LOG} is the log of a Spark query; take another folder")
            return numbers[-1], [self._file(entry) for entry in entries], entries[0][_OURS]["batches"]
        return -1, [], {}

    def _file(self, entry: dict[str, Any]) -> DataFile:
        path = Path(unquote(urlsplit(entry["path"]).path))
        partition = path.parent.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else ""
        return DataFile(path, "" if partition == "." else partition, entry[_OURS]["rows"], entry["size"], entry["modificationTime"])

    def _write(self, number: int, files: Sequence[DataFile], batches: Batches) -> None:
        """The next log. It counts as soon as it has its name."""
        lines = [json.dumps(_entry(file) | {_OURS: {"rows": file.rows}}) for file in files[1:]]
        first = json.dumps(_entry(files[0]) | {_OURS: {"rows": files[0].rows, "batches": batches}})
        disk.write(self.folder / LOG / f"{number + 1}.compact", "\n".join([_VERSION, first, *lines]).encode())
        disk.remove(self.folder / LOG / f"{number}.compact")

    def _sweep(self, number: int, files: Sequence[DataFile]) -> None:
        """Removes what a writer or a compaction left that was killed: an older log, and files that do not count."""
        for older in self._logs():
            if older < number:
                disk.remove(self.folder / LOG / f"{older}.compact")
        live = {file.path for file in files}
        for path in [*self.folder.glob("*.parquet"), *self.folder.glob("*=*/*.parquet")]:
            if path not in live:
                disk.remove(path)


def _entry(file: DataFile) -> dict[str, Any]:
    """One line of Spark's log (SinkFileStatus)."""
    return {
        "path": file.path.as_uri(), "size": file.size, "isDir": False, "modificationTime": file.modified,
        "blockReplication": 1, "blockSize": 33_554_432, "action": "add",
    }  # fmt: skip


