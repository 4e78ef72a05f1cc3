"""Where tables lie: a folder that driver and executors share, an object store, or where an Iceberg catalogue says.

A folder has renames and locks. What is made there lies beside it until its commit puts it in place, and writers, compactions and readers
keep from each other by locks. An object store has neither: files are written under the names they will have, and are part of a table as
soon as its log or its catalogue names them, which a conditional write decides. What nobody ever named is known by its name (NAMED) and
age (UNCOMMITTED), and swept up.

HDFS is used as one: it has renames, and no locks. Python reads and writes these stores by Arrow, the logs by their own libraries: Java
takes no part, and needs no jar. How a store is reached is storage.py's.
Decides how files are reached. Which files a table has is its format's.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from stompbox.pipelines import disk
from stompbox.pipelines.storage import Storage, arrow_path
from stompbox.spark.files import in_store

# of a table whose folder is a filesystem of its own; else it is beside the folder
STAGING: Final = "_staging"
NAMED: Final = "stompbox-"  # begins the names of our files in an object store, where others may have theirs
UNCOMMITTED: Final = 86_400.0  # s after which a file that nothing names is left over: no batch takes so long


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where the tasks of one attempt at a batch write, in whichever process they run. `storage` None: on this machine's disks."""

    folder: PurePath
    prefix: str = ""
    storage: Storage | None = None

    def filesystem(self) -> Any:
        """Arrow's file system of the store; None: the files of this machine."""
        return None if self.storage is None else self.storage.filesystem()


def _filesystem(storage: Storage | None) -> Any:
    from pyarrow.fs import LocalFileSystem

    return LocalFileSystem() if storage is None else storage.filesystem()


class Location(Protocol):
    """A location at which one table lies."""

    @property
    def uri(self) -> str:
        """The location as libraries, and people, name it."""

    @property
    def path(self) -> PurePath:
        """The location as Arrow's file systems name it; of an object store `bucket/key`."""

    @property
    def storage(self) -> Storage | None: ...

    def filesystem(self) -> Any: ...

    def uri_of(self, path: PurePath) -> str:
        """The name of a file of the table, as other readers name it."""

    def locked(self) -> AbstractContextManager[None]:
        """Nobody else changes the table meanwhile, where that can be had."""

    def reading(self) -> AbstractContextManager[None]:
        """Nothing that a reader may have listed is removed meanwhile, where that can be had."""

    def unread(self) -> AbstractContextManager[bool]:
        """Whether nobody is known to read the table, for as long as the context lasts."""

    def attempt(self, name: str, below: str = "") -> Attempt:
        """Where to write what this attempt makes; `below`: the folder of the table that has the data."""

    def merging(self, partition: str, below: str = "") -> PurePath:
        """Where to write a file that replaces others."""

    def placed(self, source: PurePath, target: PurePath) -> PurePath:
        """Puts a file at its name in the table, and says which that is."""

    def files(self, below: str) -> Iterator[tuple[PurePath, float]]:
        """Each file, and when it was written (s)."""

    def may_sweep(self, path: PurePath, written: float) -> bool:
        """May this file, which nothing names, be removed, or could it be somebody's who has not committed it yet?"""

    def remove(self, path: PurePath) -> None: ...

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, data: bytes) -> None: ...


class Folder:
    """A folder of this machine, or one that driver and executors share."""

    storage: Final = None

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    def __repr__(self) -> str:
        return f"<Folder {self.path}>"

    @property
    def uri(self) -> str:
        return str(self.path)

    def filesystem(self) -> Any:
        return _filesystem(None)

    def uri_of(self, path: PurePath) -> str:
        return str(path)

    def locked(self) -> AbstractContextManager[None]:
        return disk.locked(self.path)

    def reading(self) -> AbstractContextManager[None]:
        return disk.reading(self.path)

    def unread(self) -> AbstractContextManager[bool]:
        return disk.unread(self.path)

    def attempt(self, name: str, below: str = "") -> Attempt:
        return attempt(self.path, name)

    def merging(self, partition: str, below: str = "") -> Path:
        return staging_of(self.path) / f"merged-{uuid.uuid4().hex}.parquet"

    def placed(self, source: PurePath, target: PurePath) -> PurePath:
        disk.move(Path(source), Path(target))
        return target

    def files(self, below: str) -> Iterator[tuple[PurePath, float]]:
        yield from (
            (path, path.stat().st_mtime) for path in (self.path / below).rglob("*.*") if path.is_file()
        )

    def may_sweep(self, path: PurePath, written: float) -> bool:
        return True  # under the lock, and nobody else's in a folder of ours

    def remove(self, path: PurePath) -> None:
        disk.remove(Path(path))

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        disk.write(self.path / name, data)


class Store:
    """A prefix of an object store; or a folder of a catalogue's (`file:`), whose other writers know nothing of our locks and renames."""

    def __init__(self, uri: str, storage: Storage) -> None:
        parts = urlsplit(uri)
        self._is_local: Final = parts.scheme in ("", "file")
        self._scheme: Final = parts.scheme
        self.uri: Final = uri.rstrip("/")
        self.path: Final[PurePath] = path_of(self.uri)
        self.storage: Final = None if self._is_local else storage.at(self.uri)

    def __repr__(self) -> str:
        return f"<Store {self.uri}>"

    def filesystem(self) -> Any:
        return _filesystem(self.storage)

    def uri_of(self, path: PurePath) -> str:
        return f"{self.uri}/{path.relative_to(self.path).as_posix()}"

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()

    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()

    def unread(self) -> AbstractContextManager[bool]:
        return nullcontext(enter_result=True)

    def attempt(self, name: str, below: str = "") -> Attempt:
        return Attempt(self.path / below, NAMED, self.storage)

    def merging(self, partition: str, below: str = "") -> PurePath:
        return self.path / below / in_store(partition) / f"{NAMED}merged-{uuid.uuid4().hex}.parquet"

    def placed(self, source: PurePath, target: PurePath) -> PurePath:
        return source

    def files(self, below: str) -> Iterator[tuple[PurePath, float]]:
        from pyarrow.fs import FileSelector, FileType

        for found in self.filesystem().get_file_info(
            FileSelector(str(self.path / below), recursive=True, allow_not_found=True)
        ):
            if found.type == FileType.File:
                yield PurePosixPath(found.path), found.mtime_ns / 1e9

    def may_sweep(self, path: PurePath, written: float) -> bool:
        is_ours = path.name.startswith(NAMED) or path.suffix == ".avro"  # lists of files: whoever writes them
        return is_ours and written <= time.time() - UNCOMMITTED

    def remove(self, path: PurePath) -> None:
        try:
            self.filesystem().delete_file(str(path))
        except FileNotFoundError:
            return

    def read(self, name: str) -> bytes | None:
        try:
            with self.filesystem().open_input_stream(str(self.path / name)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        with self.filesystem().open_output_stream(str(self.path / name)) as file:
            file.write(data)


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A table that an Iceberg catalogue knows by name. `properties` are pyiceberg's, of the catalogue."""

    identifier: str
    uri: str
    properties: tuple[tuple[str, str], ...] = field(repr=False)
    storage: Storage


Where = Path | Store | CatalogEntry
"""A folder, a prefix of an object store, or a name in a catalogue."""


def is_url(text: str) -> bool:
    scheme, is_one, _ = text.partition("://")
    return bool(is_one) and scheme[:1].isalpha() and all(each.isalnum() or each in "+.-" for each in scheme)


def path_of(uri: str) -> PurePath:
    """The path of a file or a folder, as Arrow's file systems name it. pyiceberg takes the path of a URI as it stands."""
    parts = urlsplit(uri) if is_url(uri) or uri.startswith("file:") else None
    if parts is None or parts.scheme == "file":
        return Path(parts.path if parts else uri)
    return PurePosixPath(arrow_path(uri))


def staging_of(folder: Path) -> Path:
    """Where files are made that do not count yet: outside of the folder, so that nobody who lists it, however deep, takes them for data."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder.parent
    is_near = beside.stat().st_dev == folder.stat().st_dev and os.access(beside, os.W_OK)
    return beside / f".{folder.name}{STAGING}" if is_near else folder / STAGING


def attempt(folder: Path, batch: str) -> Attempt:
    """A staging folder of this attempt alone: after a kill of the driver Java, or a task, may still write what an earlier one began."""
    return Attempt(staging_of(folder) / f"{batch}-{uuid.uuid4().hex[:8]}")
