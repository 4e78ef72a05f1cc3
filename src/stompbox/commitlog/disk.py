"""A log in a folder of this machine, which several processes may share: for trying a cluster out, and for tests. It has no second copy.

| file                     | what                                                                                                   |
|--------------------------|--------------------------------------------------------------------------------------------------------|
| log.json                 | of which cluster it is, and which log                                                                  |
| lock                     | held with flock(2) by whoever appends or trims, for as long as that takes                              |
| head                     | <I4xQQQQQ> CRC-32 of the rest, segment, end, last, epoch, first: what is durable. A cache: it is never synced |
| beat                     | <I4xQd16s> CRC-32 of the rest, epoch, monotonic time, who: the last beat                               |
| 00000000000000000001.log | a segment, named after its first position: <IIQQB3x> CRC-32 of the rest, bytes, position, epoch, kind; |
|                          | behind each of these its payload                                                                       |

Positions have no gaps. Whoever appends writes behind `end`, syncs, and moves the head; others read up to the head without any lock. What
is found behind it was left by a process that ended in between: who finds it syncs the whole records and cuts off what is torn.
The clock of the beats is the machine's, which all its processes share.

This file decides how the bytes lie there, not what they mean (records.py).
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from math import inf
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Final, NamedTuple
from uuid import uuid4

from msgspec import MsgspecError, Struct, json

from stompbox.commitlog.base import Fenced, Kind, LogError, Record
from stompbox.errors import StoreError
from stompbox.store.folder import FILE_MODE, FULL, prepare_folder, sync_folder
from stompbox.syncing import sync, sync_content

try:
    import fcntl
except ImportError:  # Windows
    raise LogError(
        "no-file-locks", "a log in a folder needs file locks (flock), which this system has not"
    ) from None

LARGEST: Final = 4 << 20
SEGMENT: Final = 64 << 20  # bytes from which on another one is begun
ANSWER: Final = 5.0  # seconds in which whoever appends is done, or counts as stopped
POLL: Final = 0.005  # seconds between two looks of a reader that waits
FORMAT: Final = 1

_FRAME: Final = struct.Struct("<IIQQB3x")
_HEAD: Final = struct.Struct("<I4xQQQQQ")
_BEAT: Final = struct.Struct("<I4xQd16s")
_KINDS: Final = (Kind.COMMIT, Kind.PIECE, Kind.LEAD)
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


class Identity(Struct, frozen=True):
    """The text of log.json: which log it is, and of which cluster."""

    format: int
    cluster: str
    identity: str


class Tail(NamedTuple):
    """What is durable: up to `end` of the segment that begins with position `segment`."""

    segment: int
    end: int
    last: int
    epoch: int
    first: int


def refused(error: OSError, what: object) -> LogError:
    """What the disk said, as an error of the log."""
    is_forbidden = error.errno in _FORBIDDEN
    code = "log-full" if error.errno in FULL else "log-not-allowed" if is_forbidden else "log-unavailable"
    return LogError(code, f"{what}: {error.strerror or error}")


class DiskLog:
    """A process's handle of the log in `folder`. `answer`: how long others may hold the lock before the log counts as unavailable."""

    def __init__(self, folder: Path, cluster: str, *, segment: int = SEGMENT, answer: float = ANSWER) -> None:
        self._folder = folder
        self._segment_bytes = segment
        self._answer = answer
        self._turn = Lock()  # files are touched by one thread at a time, but for those of the beats
        self._beating = Lock()
        self._closed = Event()
        self._writer = os.urandom(16)
        self._opened = monotonic()
        self._heard = 0.0
        self._mine = 0  # epoch
        self._files = ExitStack()
        self._open_segment: tuple[int, int] = (0, -1)  # its first position, its descriptor
        self._at = (0, 0, 0)  # behind this record, there: segment, offset
        try:
            self._prepare(cluster)
        except BaseException:
            self._files.close()
            raise

    def _prepare(self, cluster: str) -> None:
        try:
            prepare_folder(self._folder)
        except StoreError as error:
            raise LogError("log-not-allowed", error.message) from error
        try:
            self._lock_file, self._head, self._beats = map(self._opened_file, ("lock", "head", "beat"))
            with self._turn, self._locked(self._answer):
                self.identity = self._identify(cluster)
                self._settle()
        except OSError as error:
            raise refused(error, self.name) from error

    def _opened_file(self, name: str) -> int:
        file = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._files.callback(os.close, file)
        return file

    def _identify(self, cluster: str) -> str:
        file = self._folder / "log.json"
        if not file.exists():
            found = Identity(FORMAT, cluster, uuid4().hex)
            self._write_whole(file, json.encode(found))
            return found.identity
        try:
            found = json.decode(file.read_bytes(), type=Identity)
        except MsgspecError as error:
            raise LogError("log-corrupt", f"{file}: does not say which log it is ({error})") from error
        if found.format > FORMAT:
            raise LogError("log-too-new", f"{file}: format {found.format}, this program reads up to {FORMAT}")
        if found.cluster != cluster:
            raise LogError(
                "log-of-another",
                f"{self.name}: is the log of the cluster {found.cluster!r}, not of {cluster!r}",
            )
        return found.identity

    def _write_whole(self, file: Path, data: bytes) -> None:
        new = file.with_suffix(".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE), "wb") as out:
            out.write(data)
            out.flush()
            sync(out.fileno())
        new.rename(file)
        sync_folder(self._folder)

    largest: Final = LARGEST

    @property
    def name(self) -> str:
        return f"log in {self._folder}"

    def last(self) -> int:
        with self._asking():
            return self._tail().last

    def first(self) -> int:
        with self._asking():
            return self._tail().first

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """One thread's turn, in which the disk's refusals are the log's."""
        if not self._turn.acquire(timeout=self._answer):
            raise LogError(
                "log-unavailable", f"{self.name}: an append waits for more than {self._answer:g} s"
            )
        try:
            self._refuse_closed()
            yield
        except OSError as error:
            raise refused(error, self.name) from error
        finally:
            self._turn.release()

    def _refuse_closed(self) -> None:
        if self._closed.is_set():
            raise LogError("log-closed", f"{self.name}: it was closed")

    @contextmanager
    def _locked(self, wait: float) -> Iterator[None]:
        """Nobody else appends or trims meanwhile. Raises LogError `log-unavailable` after so many seconds, `log-closed`."""
        deadline, pause = monotonic() + wait, 0.0002
        while not self._try_lock():
            if monotonic() > deadline:
                raise LogError(
                    "log-unavailable", f"{self.name}: a process holds its lock for more than {wait:g} s"
                )
            if self._closed.wait(pause):
                self._refuse_closed()
            pause = min(2 * pause, POLL)
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    # What is durable

    def _tail(self) -> Tail:
        """What the head says, or what is found to be so when nobody appends at this moment."""
        tail = self._read_head()
        if tail is None:
            with self._locked(self._answer):
                return self._settle()
        if self._is_whole(tail) or not self._try_lock():
            return tail
        try:
            return self._settle()
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _read_head(self) -> Tail | None:
        data = os.pread(self._head, _HEAD.size, 0)
        if len(data) < _HEAD.size or zlib.crc32(data[4:]) != _HEAD.unpack(data)[0]:
            return None
        return Tail(*_HEAD.unpack(data)[1:])

    def _publish(self, tail: Tail) -> Tail:
        data = _HEAD.pack(0, *tail)[4:]
        os.pwrite(self._head, zlib.crc32(data).to_bytes(4, "little") + data, 0)
        return tail

    def _is_whole(self, tail: Tail) -> bool:
        """Whether nothing lies behind it. Another process may have trimmed and gone on, then it is not."""
        try:
            size = self._file(tail.segment).stat().st_size
        except FileNotFoundError:
            return False
        return size == tail.end and not self._file(tail.last + 1).exists()

    def _file(self, first: int) -> Path:
        return self._folder / f"{first:020}.log"

    def _segments(self) -> list[int]:
        """The first positions of the segments that are there."""
        return sorted(
            [
                int(file.stem) for file in self._folder.glob("*.log") if len(file.stem) == 20
            ]  # as _file names them
        )

    def _settle(self) -> Tail:
        """Under the lock: whole records behind the head are made durable, what is torn goes."""
        tail = self._read_head()
        if tail is not None and self._is_whole(tail):
            return tail
        segments = self._segments()
        if tail is None or tail.segment not in segments:
            tail = self._begun(segments)
        while True:
            tail = self._scanned(tail)
            if tail.segment == tail.last + 1 or not self._file(tail.last + 1).exists():
                return self._publish(tail)
            tail = tail._replace(segment=tail.last + 1, end=0)

    def _begun(self, segments: list[int]) -> Tail:
        """Where to look from when there is no head."""
        if not segments:
            self._make_segment(1)
            return Tail(1, 0, 0, 0, 1)
        # the last one may have no record yet, and the epoch is in the one before
        from_segment = segments[-2:][0]
        return Tail(from_segment, 0, from_segment - 1, 0, segments[0])

    def _make_segment(self, first: int) -> None:
        os.close(os.open(self._file(first), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        sync_folder(self._folder)

    def _scanned(self, tail: Tail) -> Tail:
        """With the whole records that follow in its segment."""
        file = self._descriptor(tail.segment)
        size = os.fstat(file).st_size
        while (record := self._frame(file, tail.end, tail.last + 1)) is not None:
            tail = tail._replace(
                end=tail.end + _FRAME.size + len(record.payload), last=record.position, epoch=record.epoch
            )
        if size - tail.end > _FRAME.size + LARGEST:  # more than one process can leave behind
            raise LogError(
                "log-corrupt",
                f"{self._file(tail.segment)}: record {tail.last + 1} at byte {tail.end} is damaged",
            )
        if size > tail.end:
            os.ftruncate(file, tail.end)
        sync_content(file)
        return tail

    def _frame(self, file: int, offset: int, position: int) -> Record | None:
        """The record there; None when it is not whole."""
        data = os.pread(file, _FRAME.size, offset)
        if len(data) < _FRAME.size:
            return None
        checksum, size, found, epoch, kind = _FRAME.unpack(data)
        if found != position or size > LARGEST or kind >= len(_KINDS):
            return None
        payload = os.pread(file, size, offset + _FRAME.size)
        if len(payload) < size or zlib.crc32(payload, zlib.crc32(data[4:])) != checksum:
            return None
        return Record(position, epoch, _KINDS[kind], payload)

    def _descriptor(self, segment: int) -> int:
        known, file = self._open_segment
        if known == segment:
            return file
        new = os.open(self._file(segment), os.O_RDWR | os.O_CLOEXEC)
        if file >= 0:
            os.close(file)
        self._open_segment = segment, new
        return new

    # Writing

    def append(self, expected: int, epoch: int, kind: Kind, payload: bytes) -> int:
        if len(payload) > LARGEST:
            raise ValueError(f"a record of {len(payload)} bytes; the most is {LARGEST}")
        return self._append(expected, epoch, kind, payload).position

    def lead(self, expected: int, node: bytes) -> Record:
        return self._append(expected, None, Kind.LEAD, node)

    def _append(self, expected: int, epoch: int | None, kind: Kind, payload: bytes) -> Record:
        with self._asking(), self._locked(inf):
            tail = self._settle()
            if expected != tail.last:
                raise Fenced("fenced", f"{self.name}: record {tail.last} is the last, not {expected}")
            if tail.end >= self._segment_bytes:
                self._make_segment(tail.last + 1)
                tail = tail._replace(segment=tail.last + 1, end=0)
            record = Record(tail.last + 1, tail.epoch + 1 if epoch is None else epoch, kind, payload)
            self._write(tail, record)
            self._mine = record.epoch
            return record

    def _write(self, tail: Tail, record: Record) -> None:
        data = b"".join(
            (
                _FRAME.pack(0, len(record.payload), record.position, record.epoch, _KINDS.index(record.kind))[
                    4:
                ],
                record.payload,
            )
        )
        data = zlib.crc32(data).to_bytes(4, "little") + data
        file = self._descriptor(tail.segment)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(file, data[written:], tail.end + written)
            sync_content(file)
        except OSError:
            self._undo(file, tail.end)
            raise
        self._publish(tail._replace(end=tail.end + len(data), last=record.position, epoch=record.epoch))

    def _undo(self, file: int, end: int) -> None:
        """What was written is taken out again, however long that takes: until then nobody may know whether it is there."""
        while True:
            try:
                os.ftruncate(file, end)
                sync_content(file)
            except OSError:
                if self._closed.wait(0.1):
                    self._refuse_closed()
            else:
                return

    def trim(self, position: int) -> None:
        with self._asking(), self._locked(self._answer):
            tail = self._settle()
            first = max(tail.first, min(position, tail.last))
            if first == tail.first:
                return
            self._publish(tail._replace(first=first))
            segments = self._segments()
            for segment, following in pairwise(segments):
                if following <= first:
                    self._file(segment).unlink(missing_ok=True)

    # Reading

    def read(self, after: int, most: int, wait: float) -> list[Record]:
        deadline = monotonic() + wait
        while True:
            with self._asking():
                found = self._found(self._tail(), after, most)
            left = deadline - monotonic()
            if found or left <= 0:
                break
            self._closed.wait(min(POLL, left))
        if found and found[-1].epoch != self._mine:
            self._heard = monotonic()
        return found

    def _found(self, tail: Tail, after: int, most: int) -> list[Record]:
        if after + 1 < tail.first:
            raise LogError(
                "log-trimmed", f"{self.name}: record {after + 1} is gone, {tail.first} is the first"
            )
        if after >= tail.last:
            return []
        segment, offset = self._place(after)
        found: list[Record] = []
        size = 0
        while after < tail.last:
            if (segment, offset) != (tail.segment, tail.end) and self._is_at_end(segment, offset):
                segment, offset = after + 1, 0
            record = self._frame(self._descriptor(segment), offset, after + 1)
            if record is None:
                raise LogError(
                    "log-corrupt", f"{self._file(segment)}: record {after + 1} at byte {offset} is damaged"
                )
            size += len(record.payload)
            if found and size > most:
                break
            found.append(record)
            after, offset = record.position, offset + _FRAME.size + len(record.payload)
            self._at = after, segment, offset
        return found

    def _is_at_end(self, segment: int, offset: int) -> bool:
        return os.fstat(self._descriptor(segment)).st_size <= offset

    def _place(self, after: int) -> tuple[int, int]:
        """Segment and offset behind the record `after`, which is durable or 0."""
        known, segment, offset = self._at
        if known == after and segment and self._file(segment).exists():
            return segment, offset
        segment = max((first for first in self._segments() if first <= after + 1), default=0)
        if not segment:
            raise LogError("log-trimmed", f"{self.name}: record {after + 1} is gone")
        offset = 0
        file = self._descriptor(segment)
        for position in range(segment, after + 1):
            data = os.pread(file, _FRAME.size, offset)
            if len(data) < _FRAME.size or _FRAME.unpack(data)[2] != position:
                raise LogError(
                    "log-corrupt", f"{self._file(segment)}: record {position} at byte {offset} is damaged"
                )
            offset += _FRAME.size + _FRAME.unpack(data)[1]
        return segment, offset

    # Beats

    def beat(self, epoch: int) -> None:
        with self._beating:
            self._refuse_closed()
            tail = self._read_head()
            if tail is not None and tail.epoch > epoch:
                raise Fenced("fenced", f"{self.name}: epoch {tail.epoch} leads, not {epoch}")
            data = _BEAT.pack(0, epoch, monotonic(), self._writer)[4:]
            try:
                os.pwrite(self._beats, zlib.crc32(data).to_bytes(4, "little") + data, 0)
            except OSError as error:
                raise refused(error, self.name) from error

    def heard(self) -> float:
        with self._beating:
            if self._closed.is_set():
                return self._heard
            with suppress(OSError):
                data = os.pread(self._beats, _BEAT.size, 0)
                if len(data) == _BEAT.size and zlib.crc32(data[4:]) == _BEAT.unpack(data)[0]:
                    _, _, at, writer = _BEAT.unpack(data)
                    # not one of before this handle, or of before the machine was started
                    if writer != self._writer and self._opened <= at <= monotonic():
                        self._heard = max(self._heard, at)
        return self._heard

    def close(self) -> None:
        self._closed.set()
        with self._turn, self._beating:
            self._files.close()
            if self._open_segment[1] >= 0:
                os.close(self._open_segment[1])
                self._open_segment = 0, -1

    def __repr__(self) -> str:
        return f"<DiskLog {self._folder} mine={self._mine}>"
