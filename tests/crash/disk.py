"""A disk that remembers each write and can fail: below SQLite, by way of apsw, which lets a file system be written in Python.

`Disk.connect` takes the place of `schema.connect`. What a power loss leaves of the files is decided here: all that was synced, and
of what was written later any part, in sectors. What SQLite makes of it, and the store, is for the tests.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from stompbox.store import journal, schema
from stompbox.store.journal import Journal

SECTOR = 512  # bytes that are written together, or not at all
_CODES = {
    "open": apsw.SQLITE_CANTOPEN,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "delete": apsw.SQLITE_IOERR_DELETE,
}
_FAULTS = {
    "full": (apsw.FullError, apsw.SQLITE_FULL),
    "read-only": (apsw.ReadOnlyError, apsw.SQLITE_READONLY),
}
_NUMBERS = {"full": errno.ENOSPC, "read-only": errno.EROFS}
_remove = Journal.remove
_NAMES = {code: name for name, code in apsw.mapping_extended_result_codes.items() if isinstance(code, int)}
_NAMES |= {code: name for name, code in apsw.mapping_result_codes.items() if isinstance(code, int)}


@dataclass(frozen=True, slots=True)
class Write:
    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    file: str


@dataclass(frozen=True, slots=True)
class Delete:
    file: str


Operation = Write | Truncate | Sync | Delete


class Disk(apsw.VFS):
    """Passes everything on to the real file system. `fail_at`: which call, counted from 1, fails once, as a full disk or a broken one."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "")
        self.name = name
        self.operations: list[Operation] = []
        self.kinds: list[str] = []  # of the calls
        self.records = 0  # how often the journal was written to
        self.fail_at = 0
        self.fault = ""  # why writes fail: "full", "read-only", else an error of the device
        self.failed = ""  # the call that did

    def take_over(self, patched: pytest.MonkeyPatch) -> None:
        """Whatever a store opens from now on is on this disk."""
        patched.setattr(schema, "connect", self.connect)
        patched.setattr(journal, "write_through", self.write_through)
        patched.setattr(Journal, "remove", lambda one: self.remove(one))  # noqa: PLW0108 (a function becomes a method, a method does not)

    def connect(self, path: Path) -> Any:
        with Translated():
            return Connection(apsw.Connection(str(path), vfs=self.name), self)

    def write_through(self, descriptor: int, data: bytes | memoryview, offset: int) -> None:
        """Takes the place of `journal.write_through`. What it was given may have arrived when it fails."""
        file = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        os.pwrite(descriptor, data, offset)
        self.operations.append(Write(file, offset, bytes(data)))
        self.kinds.append("write")
        self.records += 1
        if len(self.kinds) == self.fail_at:
            self.failed = "write"
            number = _NUMBERS.get(self.fault, errno.EIO)
            raise OSError(number, os.strerror(number))
        self.operations.append(Sync(file))

    def remove(self, one: Journal) -> None:
        """Takes the place of `Journal.remove`."""
        _remove(one)
        self.operations.append(Delete(one.file.name))

    def call(self, what: str) -> None:
        """One call that may fail."""
        self.kinds.append(what)
        if len(self.kinds) != self.fail_at:
            return
        self.failed = what
        kind, code = _FAULTS.get(self.fault if what == "write" else "", (apsw.IOError, _CODES[what]))
        error = kind()
        error.extendedresult = code
        raise error

    def xOpen(self, name: Any, flags: Any) -> File:
        self.call("open")
        return File(self, name, flags)

    def xDelete(self, name: str, syncdir: bool) -> None:
        self.call("delete")
        super().xDelete(name, False)
        self.operations.append(Delete(Path(name).name))


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: Any) -> None:
        super().__init__("", name, flags)
        self.disk = disk
        given = name.filename() if isinstance(name, apsw.URIFilename) else name
        self.file = Path(given).name if given else ""

    def xRead(self, amount: int, offset: int) -> bytes:
        self.disk.call("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        self.disk.call("write")
        super().xWrite(data, offset)
        self.disk.operations.append(Write(self.file, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        self.disk.call("truncate")
        super().xTruncate(size)
        self.disk.operations.append(Truncate(self.file, size))

    def xSync(self, flags: int) -> None:
        """What is below need not wait for its own disk: what is left after power was lost is decided here."""
        self.disk.call("sync")
        self.disk.operations.append(Sync(self.file))


class Connection:
    """An apsw connection that looks like one of the standard library, as far as the store uses it."""

    def __init__(self, connection: apsw.Connection, disk: Disk) -> None:
        self._connection = connection
        self._disk = disk  # lives as long as what is open on it
        connection.set_busy_timeout(5000)

    def execute(self, statement: str, values: Any = ()) -> Any:
        with Translated():
            return Rows(self._connection.execute(statement, values))

    def executemany(self, statement: str, values: Any) -> None:
        with Translated():
            for _ in self._connection.executemany(statement, values):
                pass

    def executescript(self, script: str) -> None:
        with Translated():
            for _ in self._connection.execute(script):
                pass

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def close(self) -> None:
        with Translated():
            self._connection.close()


class Rows:
    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor

    def __iter__(self) -> Iterator[Any]:
        with Translated():
            yield from self._cursor

    def fetchone(self) -> Any:
        with Translated():
            return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        with Translated():
            return self._cursor.fetchall()


class Translated:
    """Errors of apsw become those of the standard library, with the names that SQLite gives them."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, apsw.Error):
            translated = sqlite3.OperationalError(str(error))
            code = getattr(error, "extendedresult", 0)
            translated.sqlite_errorname = _NAMES.get(code, _NAMES.get(code & 0xFF, ""))
            raise translated from error


class Platter:
    """What is on the disk for certain, and what is on its way there, after so many operations.

    The folder has contents too: that a file is gone is certain once the folder was synced, which SQLite's unix file system does with
    the first sync of a new journal or write-ahead log (os_unix.c, UNIXFILE_DIRSYNC).
    """

    def __init__(self) -> None:
        self.durable: dict[str, bytearray] = {}
        self.pending: dict[str, list[Write | Truncate | Delete]] = {}
        self.settled: set[str] = set()  # journals whose being there is certain

    def do(self, operation: Operation) -> None:
        if isinstance(operation, Delete):
            self.settled.discard(operation.file)
        if not isinstance(operation, Sync):
            self.pending.setdefault(operation.file, []).append(operation)
            return
        for waiting in self.pending.pop(operation.file, []):
            apply(self.durable, waiting)
        if operation.file.endswith(("-wal", "-journal")) and operation.file not in self.settled:
            self.settled.add(operation.file)
            self._sync_folder()

    def _sync_folder(self) -> None:
        for waiting in self.pending.values():
            gone = max(
                (at for at, operation in enumerate(waiting) if isinstance(operation, Delete)), default=-1
            )
            for operation in waiting[: gone + 1]:
                apply(self.durable, operation)
            del waiting[: gone + 1]

    def after_power_loss(self, random: Random, share: float) -> dict[str, bytearray]:
        """The files that are left when each sector on its way arrived with this probability, in whatever order."""
        files = {name: content[:] for name, content in self.durable.items()}
        for waiting in self.pending.values():
            for operation in waiting:
                for part in sectors(operation):
                    if random.random() < share:
                        apply(files, part)
        return files


def sectors(operation: Write | Truncate | Delete) -> Iterator[Write | Truncate | Delete]:
    if not isinstance(operation, Write):
        yield operation
        return
    at, end = operation.offset, operation.offset + len(operation.data)
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        yield Write(operation.file, at, operation.data[at - operation.offset : stop - operation.offset])
        at = stop


def apply(files: dict[str, bytearray], operation: Write | Truncate | Delete) -> None:
    if isinstance(operation, Delete):
        files.pop(operation.file, None)
        return
    content = files.setdefault(operation.file, bytearray())
    if isinstance(operation, Truncate):
        del content[operation.size :]
        return
    missing = operation.offset - len(content)
    if missing > 0:
        content.extend(bytes(missing))
    content[operation.offset : operation.offset + len(operation.data)] = operation.data
