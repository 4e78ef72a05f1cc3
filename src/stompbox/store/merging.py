"""Tiny chunks become larger ones: those of a sender who waits for each receipt, which are one message each.

A backlog of them takes three times the space and is read at a fraction of the speed (bench/store.py). They are merged only
when many more have come behind them, because most queues are consumed before that, and then it would have been for nothing.
What is merged holds the same messages at the same offsets, so nobody who reads can tell.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stompbox.errors import StoreError
from stompbox.store import chunks
from stompbox.store.changes import LogState
from stompbox.store.chunks import ChunkHead
from stompbox.store.totals import Counted

TINY: Final = 8 << 10  # bytes; a larger chunk is left as it is
WAITING: Final = 512  # tiny chunks of a log that stay as they are
PORTION: Final = 64  # chunks that become one beside a commit: 1 ms
IDLE_PORTION: Final = 512  # and when nobody waits
MERGED: Final = 512 << 10  # bytes that go into one

# Chunks that name large bodies stay small: who has them read with their bodies in place takes one at least
_FROM: Final = f"""
    SELECT first, max(size, {TINY} * EXISTS (SELECT 1 FROM name WHERE name.log = chunk.log AND name.first = chunk.first))
    FROM chunk WHERE log = ? AND first >= ? ORDER BY first LIMIT ?"""
_BLOBS: Final = "SELECT first, blob FROM chunk WHERE log = ? AND first BETWEEN ? AND ? ORDER BY first"


class Merging:
    """Joins small chunks, in the writer's thread. It counts what was written since the store was opened; `compact` looks at everything."""

    def __init__(self, connection: sqlite3.Connection, file: Path, counted: Counted) -> None:
        self._db = connection
        self._file = file
        self._counted = counted
        self._tiny: dict[int, int] = {}  # per log: about how many have come since the last merging
        self._from: dict[int, int] = {}  # per log: the first offset that may be merged
        self.ready: dict[int, None] = {}  # logs with more than WAITING

    def wrote(self, log: int, head: ChunkHead, size: int) -> None:
        """Notes a chunk that was committed."""
        if size >= TINY:
            return
        self._from.setdefault(log, head.first)
        count = self._tiny[log] = self._tiny.get(log, 0) + 1
        if count >= WAITING + PORTION:
            self.ready[log] = None

    def forget(self, log: int) -> None:
        for known in (self._tiny, self._from, self.ready):
            known.pop(log, None)

    def step(self, logs: Mapping[int, LogState], most: int) -> int:
        """One portion of one log that is ready, inside a transaction. About how many octets it wrote."""
        log = next(iter(self.ready))
        state = logs.get(log)
        if state is None:
            self.forget(log)
            return 0
        if state.floor > self._from[log]:  # some were consumed meanwhile
            self._from[log] = state.floor
            self._tiny[log] = len(self.rows(log, state.floor, WAITING + PORTION))
        if self._tiny[log] < WAITING + PORTION:
            del self.ready[log]
            return 0
        rows = self.rows(log, self._from[log], min(most, self._tiny[log] - WAITING))
        self._from[log], written = self.merge(log, rows) if rows else (state.next, 0)
        self._tiny[log] -= most
        return written

    def merge(self, log: int, rows: list[tuple[int, int]]) -> tuple[int, int]:
        """Makes one of the first tiny ones among these chunks, (first, size); returns where to go on, and the octets written."""
        skipped = 0
        while skipped < len(rows) and rows[skipped][1] >= TINY:
            skipped += 1
        group, octets = [], 0
        for first, size in rows[skipped:]:
            if size >= TINY or octets + size > MERGED:
                break
            group.append(first)
            octets += size
        after = skipped + len(group)
        if len(group) < 2:
            return (rows[after][0] if after < len(rows) else rows[-1][0] + 1), 0
        written = self._replace(log, group[0], group[-1])
        return (rows[after][0] if after < len(rows) else group[-1] + 1), written

    def _replace(self, log: int, first: int, last: int) -> int:
        runs = []
        for at, blob in self._db.execute(_BLOBS, (log, first, last)):
            try:
                runs += chunks.decode(blob, at)
            except StoreError as error:
                raise StoreError(error.code, f"{self._file}: log {log}, {error.message}") from error
        blob = chunks.encode(runs, first)
        head = chunks.head(blob)
        self._counted.delete_chunks("log = ? AND first BETWEEN ? AND ?", (log, first, last))
        self._counted.put_chunks([(log, head, blob)])
        return len(blob)

    def rows(self, log: int, start: int, most: int) -> list[tuple[int, int]]:
        """(first, size) of the chunks from `start` on."""
        return self._db.execute(_FROM, (log, start, most)).fetchall()

    def __repr__(self) -> str:
        return f"<Merging tiny={sum(self._tiny.values())} ready={len(self.ready)}>"
