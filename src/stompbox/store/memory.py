"""The store of a broker that keeps nothing: the same contract as sqlite.py, in dicts, gone with the process.

Large bodies lie in a temporary file (spool.py). So do chunks where that is asked for (overflow.py): nothing gets into the store of a
broker without a disk but what does not fit into memory, or is to be kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Final

from stompbox.ranges import Ranges
from stompbox.store.base import (
    NOWHERE,
    Commit,
    Delivered,
    Part,
    Recovered,
    StoredChunk,
    StoredCursor,
    StoredLog,
)
from stompbox.store.changes import CursorState, LogStates, Named, Written, encoded, moved, still_counted
from stompbox.store.chunks import ChunkHead
from stompbox.store.overflow import Blob, Overflow
from stompbox.store.spool import Spool
from stompbox.store.staged import is_elsewhere, verified

CHUNK_BYTES: Final = 1 << 20


class _Chunks:
    """The chunks of one log, in offset order."""

    __slots__ = ("blobs", "heads")

    def __init__(self) -> None:
        self.heads: list[ChunkHead] = []
        self.blobs: list[bytes | Blob] = []

    def add(self, head: ChunkHead, blob: bytes | Blob) -> None:
        at = bisect_right(self.heads, head.first, key=_first)
        self.heads.insert(at, head)
        self.blobs.insert(at, blob)

    def remove(self, first: int) -> None:
        at = self.reaching(first)
        del self.heads[at], self.blobs[at]

    def has(self, first: int) -> bool:
        at = self.reaching(first)
        return at < len(self.heads) and self.heads[at].first == first

    def trim(self, floor: int) -> None:
        gone = self.reaching(floor)
        del self.heads[:gone], self.blobs[:gone]

    def reaching(self, start: int) -> int:
        """The place of the first chunk with an offset from `start` on."""
        at = bisect_right(self.heads, start, key=_first)
        return at - 1 if at and _stop(self.heads[at - 1]) > start else at


def _first(head: ChunkHead) -> int:
    return head.first


def _stop(head: ChunkHead) -> int:
    return head.first + head.count


class _Names:
    """The large bodies that chunks name: by log, by first offset of the chunk."""

    def __init__(self) -> None:
        self.counts = Counter[int]()  # chunks that name a body
        self._by_log: dict[int, dict[int, list[Named]]] = {}

    def add(self, named: Named) -> None:
        self._by_log.setdefault(named.log, {}).setdefault(named.first, []).append(named)
        self.counts[named.body] += 1

    def remove(self, log: int, first: int) -> set[int]:
        """A chunk is gone: the bodies that it had named."""
        named = self._by_log.get(log, {}).pop(first, [])
        for one in named:
            self.counts[one.body] -= 1
            if not self.counts[one.body]:
                del self.counts[one.body]
        return {one.body for one in named}

    def firsts(self, log: int) -> list[int]:
        return list(self._by_log.get(log, ()))

    def size(self, log: int, start: int) -> int:
        return sum(
            one.size for named in self._by_log.get(log, {}).values() for one in named if one.stop > start
        )


class MemoryStore:
    """The Store without a disk. `chunk_bytes` as for SqliteStore; `overflow`: where chunks lie, None: in memory."""

    def __init__(self, *, chunk_bytes: int = CHUNK_BYTES, overflow: Overflow | None = None) -> None:
        self._chunk_bytes = chunk_bytes
        self._overflow = overflow
        self._turn = Lock()
        self._logs = LogStates()
        self._chunks: dict[int, _Chunks] = {}
        self._cursors: dict[int, CursorState] = {}
        self._delivered: dict[int, list[Delivered]] = {}
        self._entries: dict[tuple[str, str], bytes] = {}
        self._spool = Spool()
        self._held: set[int] = set()  # large bodies that memory holds
        self._names = _Names()

    def recover(self) -> Recovered:
        with self._turn:
            logs = []
            for log, state in self._logs.items():
                heads = self._chunks[log].heads
                first, stop = (heads[0].first, _stop(heads[-1])) if heads else (state.next, state.next)
                logs.append(StoredLog(log, state.name, first, stop, state.next))
            cursors = []
            for cursor, held in self._cursors.items():
                counted = still_counted(self._delivered.get(cursor, ()), held.position, held.ahead)
                cursors.append(StoredCursor(cursor, held.log, held.position, Ranges(held.ahead), counted))
            return Recovered(logs, cursors, dict(self._entries))

    def apply(self, commit: Commit) -> None:
        with self._turn:
            after = moved(self._logs, commit)  # what can fail comes first
            written = encoded(self._logs, commit, after, self._chunk_bytes, self._find)
            self._put_parts(commit)
            chunks = [(log, head, self._placed(self._here(blob))) for log, head, blob in written.chunks()]
            self._logs.update(after)
            for log in commit.logs:
                self._chunks[log] = _Chunks()
            for log, first in written.replaced:
                self._chunks[log].remove(first)
            for log, head, blob in chunks:
                self._chunks[log].add(head, blob)
            self._move_cursors(commit)
            for place, value in commit.entries.items():
                self._entries.pop(place, None)
                if value is not None:
                    self._entries[place] = value
            for log in commit.trims:
                if log in self._logs:
                    self._chunks[log].trim(self._logs[log].floor)
            self._logs.drop(commit.dropped_logs)
            for log in commit.dropped_logs:
                self._chunks.pop(log, None)
            if self._held or self._names.counts or written.named:
                self._name(commit, written)

    def _here(self, blob: bytes) -> bytes:
        """A chunk that was staged is taken out of its body: what is written twice here costs no disk."""
        return verified(blob, "chunk", self._spool.get)[1] if is_elsewhere(blob) else blob

    def _placed(self, blob: bytes) -> bytes | Blob:
        return blob if self._overflow is None else self._overflow.put(blob)

    def _put_parts(self, commit: Commit) -> None:
        """What is half done when it fails is dropped: the commit comes again, or nobody holds these."""
        for (body, number), data in commit.parts.items():
            self._spool.put(body, number, data)
            self._held.add(body)

    def _name(self, commit: Commit, written: Written) -> None:
        """Large bodies that neither a chunk names nor memory holds go."""
        doubtful = {body for body, is_held in commit.holds.items() if not is_held}
        self._held |= commit.holds.keys() - doubtful
        self._held -= doubtful
        for log, first in written.replaced:
            doubtful |= self._names.remove(log, first)
        for named in written.named:
            if named.size:
                self._names.add(named)
        for log in {*commit.trims, *commit.dropped_logs}:
            held = self._chunks.get(log)
            for first in self._names.firsts(log):
                if held is None or not held.has(first):
                    doubtful |= self._names.remove(log, first)
        for body in doubtful - self._held:
            if not self._names.counts[body]:
                self._spool.drop(body)

    def _move_cursors(self, commit: Commit) -> None:
        for cursor, (log, position) in commit.cursors.items():
            self._cursors[cursor] = CursorState(log, position, Ranges())
            self._delivered.pop(cursor, None)
        for cursor, told in commit.delivered.items():
            if cursor in self._cursors:
                held = self._cursors[cursor]
                self._delivered[cursor] = still_counted(
                    [*self._delivered.get(cursor, ()), *told], held.position, held.ahead
                )
        for cursor, ranges in commit.acknowledged.items():
            if cursor in self._cursors:
                self._cursors[cursor].acknowledge(ranges)
        for cursor in commit.dropped_cursors:
            self._cursors.pop(cursor, None)
            self._delivered.pop(cursor, None)

    def read(self, log: int, start: int, stop: int, max_bytes: int) -> list[StoredChunk]:
        with self._turn:
            return self._find(log, start, stop, max_bytes)

    def _find(self, log: int, start: int, stop: int, max_bytes: int = 0) -> list[StoredChunk]:
        found: list[StoredChunk] = []
        size = 0
        held = self._chunks.get(log) or _Chunks()
        for at in range(held.reaching(start), len(held.heads) if start < stop else 0):
            head, blob = held.heads[at], held.blobs[at]
            size += len(blob)
            if head.first >= stop or (found and size > max_bytes):
                break
            found.append(
                StoredChunk(head.first, head.count, blob if isinstance(blob, bytes) else blob.read())
            )
        return found

    def read_part(self, body: int, number: int) -> bytes:
        with self._turn:
            return self._spool.get(body, number)

    def find_time(self, log: int, timestamp: int) -> int:
        with self._turn:
            if log not in self._logs:
                return 0
            reached = (head.first for head in self._chunks[log].heads if head.newest >= timestamp)
            return next(reached, self._logs[log].next)

    def sizes(self, logs: Iterable[int], since: Mapping[int, int] = NOWHERE) -> dict[int, tuple[int, int]]:
        found = {}
        with self._turn:
            for log in logs:
                held, start = self._chunks.get(log) or _Chunks(), since.get(log, 0)
                at = held.reaching(start)
                size = sum(map(len, held.blobs[at:])) + self._names.size(log, start)
                found[log] = sum([head.messages for head in held.heads[at:]]), size
        return found

    def outline(self, log: int) -> Iterator[Part]:
        with self._turn:
            held = self._chunks.get(log) or _Chunks()
            found = [
                Part(head.first, _stop(head), len(blob), head.newest)
                for head, blob in zip(held.heads, held.blobs, strict=True)
            ]
        yield from found

    @property
    def unverified(self) -> str:
        return ""

    def maintain(self) -> bool:
        return False

    def close(self) -> None:
        """What is stored can still be read, but for large bodies."""
        self._spool.close()

    def __repr__(self) -> str:
        return f"<MemoryStore logs={len(self._logs)} chunks={sum(len(held.heads) for held in self._chunks.values())}>"
