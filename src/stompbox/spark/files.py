"""Arrow batches as Parquet files: what a task of Spark writes without Java.

Rows are held until they make a group of rows, then encoded at once: groups are bounded in rows and bytes, all that is held is bounded in
bytes, and so is the number of files that are open. The files are what Spark itself would write: times in microseconds of UTC, decimals as
integers where they fit, nothing that only Arrow reads. Nobody waits for the disk here: files count when somebody commits them.

Decides how files are written. Which rows are in them is the caller's.
"""

from __future__ import annotations

import re
import uuid
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from stompbox.errors import UsageError

GROUP_ROWS: Final = 1 << 20
GROUP_BYTES: Final = 64 << 20  # held for one group of rows, and for all of a task: bodies may be large
MOST_OPEN: Final = 64  # files of different partitions
PLAIN: Final = re.compile(r"[A-Za-z0-9_.=-]*")
BODY: Final = "body"  # the column of which a file says no smallest and largest value
CODECS: Final = {  # as Spark calls them, and as Arrow does
    "none": "none", "uncompressed": "none", "snappy": "snappy", "gzip": "gzip", "brotli": "brotli", "lz4": "lz4", "lz4_raw": "lz4",
    "zstd": "zstd",
}  # fmt: skip
CODEC: Final = "spark.sql.parquet.compression.codec"  # whoever sets it for Spark means these files, too
DEFAULT_CODEC: Final = "snappy"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """`partition` is the folder below the one that was written to, `date=2026-03-01`; empty: there are none."""

    path: str
    partition: str
    rows: int


@dataclass(slots=True, eq=False)
class _Open:
    """A file that is being written, and the rows of its next group."""

    path: PurePath
    writer: Any
    held: list[Any] = field(default_factory=list)
    held_rows: int = 0
    held_bytes: int = 0
    rows: int = 0


class Files:
    """Writes batches of one schema below a folder. Leaving the context ends the files; what an exception leaves is nobody's.

    `filesystem` is Arrow's, of an object store, and its folder a path there; None: the disks of this machine. In a store, where nobody
    throws a whole folder away, an exception takes the files along. `prefix` begins the names of all.
    """

    def __init__(
        self,
        folder: PurePath,
        schema: Any,
        codec: str = DEFAULT_CODEC,
        filesystem: Any = None,
        prefix: str = "",
    ) -> None:
        self._folder: Final = folder
        self._filesystem: Final = filesystem
        self._prefix: Final = prefix
        self.schema: Final = schema
        self._codec: Final = codec
        self._open: Final[dict[str, _Open]] = {}
        self._bytes = 0
        self.written: Final[list[WrittenFile]] = []

    def __repr__(self) -> str:
        return f"<Files {self._folder}: {len(self.written)} written, {len(self._open)} open>"

    def __enter__(self) -> Files:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._close_all()
        for each in self._open.values():
            with suppress(OSError) if kind else nullcontext():  # the fault that is under way says more
                each.writer.close()
        if kind and self._filesystem is not None:
            self._remove()

    def _remove(self) -> None:
        """All files; one that a store cannot remove now is swept up by its age."""
        for path in (*(each.path for each in self.written), *(each.path for each in self._open.values())):
            with suppress(OSError):
                self._filesystem.delete_file(str(path))

    def add(self, batch: Any, partition: str = "") -> None:
        file = self._open.get(partition) or self._opened(partition)
        file.held.append(batch)
        size = batch.nbytes
        file.held_rows, file.held_bytes, self._bytes = (
            file.held_rows + len(batch),
            file.held_bytes + size,
            self._bytes + size,
        )
        if file.held_rows >= GROUP_ROWS:
            self._encode(file)
        while self._bytes >= GROUP_BYTES:
            self._encode(max(self._open.values(), key=lambda each: each.held_bytes))

    def _opened(self, partition: str) -> _Open:
        if len(self._open) >= MOST_OPEN:
            self._close_all()
        path = (
            self._folder
            / (partition if self._filesystem is None else in_store(partition))
            / f"{self._prefix}{uuid.uuid4().hex}.parquet"
        )
        if self._filesystem is None:
            Path(path.parent).mkdir(parents=True, exist_ok=True)
        stated = [name for name in self.schema.names if name != BODY]
        writer = parquet.ParquetWriter(
            str(path), self.schema, filesystem=self._filesystem, compression=self._codec, store_schema=False,
            store_decimal_as_integer=True, write_statistics=stated,
        )  # fmt: skip
        found = self._open[partition] = _Open(path, writer)
        return found

    def _encode(self, file: _Open) -> None:
        if file.held:
            file.writer.write_table(pa.Table.from_batches(file.held, self.schema), GROUP_ROWS)
        self._bytes -= file.held_bytes
        file.rows += file.held_rows
        file.held, file.held_rows, file.held_bytes = [], 0, 0

    def _close_all(self) -> None:
        for partition, file in list(self._open.items()):
            self._encode(file)
            file.writer.close()
            del self._open[partition]
            self.written.append(WrittenFile(str(file.path), partition, file.rows))


def in_store(partition: str) -> str:
    """The folder of a partition in an object store: its name, where that is the same in a key, in a URL and in a log of paths. Else none:
    readers take the value from the log, or from the rows."""
    return partition if PLAIN.fullmatch(partition) else ""


def codec_of(named: str) -> str:
    """How Arrow calls a codec of Spark's. Raises UsageError for one that it does not have."""
    found = CODECS.get(named.lower())
    if found is None:
        raise UsageError(
            "bad-argument",
            f"spark.sql.parquet.compression.codec is {named!r}; allowed are {', '.join(CODECS)}",
        )
    return found
