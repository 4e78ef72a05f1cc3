"""A table of plain Parquet files with a log of one file, in the form that Spark's own streaming sink has.

    _spark_metadata/17.compact              `v1`, then one line of JSON per live file; the first also says which batches are in
    date=2026-03-01/1f0e…-000004-0000.parquet   a file of a batch
    date=2026-03-01/_compacted=merged-…     a file that replaces others, for those who read by the log

Spark reads a folder with such a log by the log alone, never by listing: rows appear and files are exchanged at once, when the next number
is renamed into place. Spark takes a file N.compact for the whole truth up to N; the numbers go on one by one, because it reckons its
interval from the last two of them. The last LOGS of them stay, so that whoever listed the log a moment ago can open what it found.

Readers who list the folder instead see files that end in `.parquet`, which hold the same rows. So a compaction takes nothing away: the
files that it replaced stay where they are for `keep` seconds, and the new file has until then a name that no such reader takes for data,
but that Spark does (it begins with `_` and has a `=`). Then the two are exchanged, for all compactions of the last `keep` seconds together
and not while one of our own steps reads. The log remembers what was replaced, when, and by which file.

What stands in the log neither as live nor as replaced was left by a writer that was killed, and is swept away under the lock before the
next change. Spark's sink may not write into such a table beside us, and does not: its log has other names, and a table that it made is
refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from pyarrow import parquet

from stompbox.errors import UsageError
from stompbox.pipelines import disk
from stompbox.pipelines.locations import Attempt, Folder, attempt
from stompbox.pipelines.tables import DataFile, Staged, file_of, put_in_place

LOG: Final = "_spark_metadata"
HIDDEN: Final = "_compacted="
LOGS: Final = 16
_VERSION: Final = "v1"
_OURS: Final = "stompbox"

Batches = dict[str, int]


class Replaced(NamedTuple):
    """A file that the log no longer has: since when (ms), and which file has its rows now."""

    at: int
    by: PurePath


@dataclass(frozen=True, slots=True)
class LogState:
    """What one log says. `exchanged` is when the files of listing readers were last exchanged, ms; number -1: there is no log yet."""

    number: int = -1
    files: tuple[DataFile, ...] = ()
    batches: Batches = field(default_factory=dict)
    replaced: Mapping[PurePath, Replaced] = field(default_factory=dict)
    exchanged: int = 0


class ParquetFiles:
    """Keeps nothing in memory: what holds stands in the log."""

    def __init__(self, folder: Path, keep: float, clock: Callable[[], float] = time.time) -> None:
        self.folder: Final = folder
        self._location: Final = Folder(folder)
        self._keep: Final = round(keep * 1000)
        self._clock: Final = clock

    def __repr__(self) -> str:
        return f"<ParquetFiles {self.folder}>"

    @property
    def uri(self) -> str:
        return str(self.folder)

    def reading(self) -> AbstractContextManager[None]:
        return disk.reading(self.folder)

    def filesystem(self) -> Any:
        return None

    def schema(self) -> Any:
        """The schema of the newest file, because the log has none."""
        return parquet.read_schema(self._read().files[-1].path)

    def attempt(self, name: str, schema: Any, partition_by: str) -> Attempt:
        return attempt(self.folder, name)

    def merging(self, partition: str) -> PurePath:
        return self._location.merging(partition)

    def remove(self, path: PurePath) -> None:
        disk.remove(Path(path))

    def files(self) -> list[DataFile]:
        return list(self._read().files)

    def last_batch(self, query: str) -> int:
        return self._read().batches.get(query, -1)

    def append(self, staged: Staged, query: str, batch: int) -> bool:
        with disk.locked(self.folder):
            state = self._read()
            self._sweep(state)
            if state.batches.get(query, -1) >= batch:
                return False
            placed = put_in_place(self._location, self.folder, staged, query, batch)
            state = self._write(
                replace(state, files=(*state.files, *placed), batches={**state.batches, query: batch})
            )
            self._exchange(state)
            return True

    def replace(self, old: Sequence[DataFile], merged: PurePath) -> bool:
        with disk.locked(self.folder):
            state = self._read()
            self._sweep(state)
            gone = {file.path for file in old}
            if not gone <= {file.path for file in state.files} or not Path(merged).exists():
                return False
            target = self.folder / old[0].partition / f"{HIDDEN}{merged.stem}"
            disk.move(Path(merged), target)
            kept = [file for file in state.files if file.path not in gone]
            entry = Replaced(self._now(), target)
            files = (*kept, file_of(target, old[0].partition))
            state = self._write(
                replace(state, files=files, replaced={**state.replaced, **dict.fromkeys(gone, entry)})
            )
            self._exchange(state)
            return True

    def sweep(self) -> None:
        with disk.locked(self.folder):
            state = self._read()
            self._sweep(state)
            self._exchange(state)

    def _now(self) -> int:
        return round(self._clock() * 1000)

    def _exchange(self, state: LogState) -> None:
        """Gives listing readers the new files in place of those that were replaced long enough ago, all at once."""
        now = self._now()
        horizon = now - self._keep
        if horizon < state.exchanged < now:
            return
        gone = {path: entry for path, entry in state.replaced.items() if entry.at <= horizon}
        if not gone:
            return
        with disk.unread(self.folder) as is_unread:
            if is_unread:
                shown = {_heir(path, gone) for path in gone if not _is_hidden(path)}
                for path in shown:
                    disk.link(Path(path), Path(_visible(path)))
                self._write(_exchanged(state, gone.keys(), shown, now))
                self._remove(gone)

    def _remove(self, paths: Iterable[PurePath]) -> None:
        for path in paths:
            disk.remove(Path(path))

    def _logs(self) -> list[int]:
        names = [path.name for path in (self.folder / LOG).iterdir()] if (self.folder / LOG).is_dir() else []
        if any(name.isdigit() for name in names):
            raise UsageError(
                "not-our-table", f"{self.folder} was written by a Spark query of its own; take another folder"
            )
        return sorted(
            int(name.removesuffix(".compact"))
            for name in names
            if name.endswith(".compact") and not name.startswith(".")
        )

    def _read(self) -> LogState:
        while numbers := self._logs():
            try:
                text = (self.folder / LOG / f"{numbers[-1]}.compact").read_text()
            except FileNotFoundError:  # the next one has come meanwhile
                continue
            version, *lines = text.splitlines()
            entries = [json.loads(line) for line in lines]
            if version != _VERSION or not entries or _OURS not in entries[0]:
                raise UsageError(
                    "not-our-table", f"{self.folder / LOG} is the log of a Spark query; take another folder"
                )
            ours = entries[0][_OURS]
            replaced: dict[PurePath, Replaced] = {
                self.folder / path: Replaced(at, self.folder / by)
                for path, at, by in ours.get("replaced", ())
            }
            files = tuple(self._file(entry) for entry in entries)
            return LogState(numbers[-1], files, ours["batches"], replaced, ours.get("exchanged", 0))
        return LogState()

    def _file(self, entry: dict[str, Any]) -> DataFile:
        path = Path(unquote(urlsplit(entry["path"]).path))
        partition = (
            path.parent.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else ""
        )
        return DataFile(
            path,
            "" if partition == "." else partition,
            entry[_OURS]["rows"],
            entry["size"],
            entry["modificationTime"],
        )

    def _write(self, state: LogState) -> LogState:
        """The next log. It counts as soon as it has its name."""
        first, *files = state.files
        replaced = [
            (self._name(path), entry.at, self._name(entry.by)) for path, entry in state.replaced.items()
        ]
        ours = {
            "rows": first.rows,
            "batches": state.batches,
            "exchanged": state.exchanged,
            "replaced": replaced,
        }
        lines = [json.dumps(_entry(file) | {_OURS: {"rows": file.rows}}) for file in files]
        text = "\n".join([_VERSION, json.dumps(_entry(first) | {_OURS: ours}), *lines])
        disk.write(self.folder / LOG / f"{state.number + 1}.compact", text.encode())
        disk.remove(self.folder / LOG / f"{state.number + 1 - LOGS}.compact")
        return replace(state, number=state.number + 1)

    def _name(self, path: PurePath) -> str:
        return path.relative_to(self.folder).as_posix()

    def _sweep(self, state: LogState) -> None:
        """Removes what a writer or a compaction left that was killed: logs of long ago, and files that do not count."""
        for older in self._logs():
            if older <= state.number - LOGS:
                disk.remove(self.folder / LOG / f"{older}.compact")
        known = {*(file.path for file in state.files), *state.replaced}
        folders = [self.folder, *(path for path in self.folder.glob("*=*") if path.is_dir())]
        found = [path for folder in folders for path in folder.iterdir() if _is_data(path)]
        self._remove(path for path in found if path not in known)


def _is_data(path: Path) -> bool:
    """May this be a file of the table, of any time? The last is what `disk.link` leaves when it is killed."""
    return path.suffix == ".parquet" or _is_hidden(path) or path.name.endswith(".parquet.new")


def _is_hidden(path: PurePath) -> bool:
    return path.name.startswith(HIDDEN)


def _visible(path: PurePath) -> PurePath:
    """The name of a hidden file for readers who list the folder."""
    return path.with_name(f"{path.name.removeprefix(HIDDEN)}.parquet")


def _heir(path: PurePath, gone: Mapping[PurePath, Replaced]) -> PurePath:
    """The file that has the rows of this one, when the files in `gone` are no more."""
    while path in gone:
        path = gone[path].by
    return path


def _exchanged(state: LogState, gone: Iterable[PurePath], shown: Iterable[PurePath], now: int) -> LogState:
    """The state without `gone`. Files in `shown` have a visible name too; a live one has only that, and its hidden one was replaced now."""
    live = {file.path for file in state.files} & set(shown)
    files = tuple(
        replace(file, path=_visible(file.path)) if file.path in live else file for file in state.files
    )
    left = {path: entry for path, entry in state.replaced.items() if path not in set(gone)}
    left |= {path: Replaced(now, _visible(path)) for path in live}
    left |= {_visible(path): state.replaced[path] for path in shown if path not in live}
    return replace(state, files=files, replaced=left, exchanged=now)


def _entry(file: DataFile) -> dict[str, Any]:
    """A file as one line of Spark's log (SinkFileStatus)."""
    return {
        "path": file.path.as_uri(), "size": file.size, "isDir": False, "modificationTime": file.modified,
        "blockReplication": 1, "blockSize": 33_554_432, "action": "add",
    }  # fmt: skip
