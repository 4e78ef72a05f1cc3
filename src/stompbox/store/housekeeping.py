"""Housekeeping of the database between commits: checkpoints, deleting what was trimmed, giving file space back.

Everything in portions, because a commit may be waiting: a portion takes about STEP seconds. Measured with bench/store.py.
"""

from __future__ import annotations

import sqlite3
from itertools import islice
from time import thread_time
from typing import Final

from stompbox.store.parts import Parts
from stompbox.store.schema import DROPPED, PAGE
from stompbox.store.statements import delete, of_each
from stompbox.store.totals import Counted

WAL_IDLE: Final = 1 << 20  # bytes; an idle committer checkpoints from here on: 1 to 2 ms
WAL_MOST: Final = 8 << 20  # bytes; a busy one from here on: 15 ms; longer logs gain nothing
SWEEP_BYTES: Final = 8 << 20  # of trimmed chunks that one portion deletes
SWEEP_ROWS: Final = 256  # chunks that one portion deletes
SWEEP_TIMES: Final = 2  # and a commit this many times what it writes, so that what is trimmed never piles up
STEP: Final = 0.005  # s of the processor
DROPPED_LOGS: Final = 1024  # that one portion looks at for whether they have chunks
SLACK: Final = 4 << 20  # bytes of free pages that stay in the file, because the next messages need them
FREE_SHARE: Final = 4  # give back when a quarter of the file is free: each page moved then frees at least one
VACUUM_FIRST: Final = 128  # pages in the first portion, then what STEP allows
VACUUM_MOST: Final = 1024  # pages; the file system needs time too, to cut a file


class Housekeeping:
    """Gives free pages of the database back, in the writer's thread."""

    def __init__(self, connection: sqlite3.Connection, parts: Parts, counted: Counted) -> None:
        self._parts = parts
        self._counted = counted
        self._execute = connection.execute
        self._script = connection.executescript
        self.wal = 0  # bytes written since the last checkpoint, about
        self._vacuum = 0  # pages of the next portion; 0: nothing to give back
        self._look = True  # for free pages: something was deleted

    def is_due(self) -> bool:
        return self.wal >= WAL_IDLE or self._vacuum > 0 or self._look

    def step(self) -> None:
        """Does one portion of what is due."""
        if self.wal >= WAL_IDLE:
            self.checkpoint()
        elif self._vacuum:
            self._give_back()
        elif self._look:
            self._look = False
            free = self._free()
            (pages,) = self._execute("PRAGMA page_count").fetchone()
            self._vacuum = VACUUM_FIRST if free * PAGE > 2 * SLACK and free * FREE_SHARE > pages else 0

    def checkpoint(self) -> None:
        """Copies the write-ahead log into the database as far as readers allow; never waits for one."""
        _, frames, done = self._execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        # What a reader held back is tried again after some more commits, not at once and again.
        self.wal = 0 if frames == done else WAL_IDLE // 2

    def sweep(
        self, logs: dict[int, int], written: int = 0, chunks: int = 0, parts: int = 0
    ) -> dict[int, int]:
        """Deletes a portion of the chunks below their log's floor, and of large bodies that nothing keeps; returns the logs that
        have more. Inside a transaction.

        `written`: bytes that the transaction writes, in `chunks` chunks and `parts` pieces of bodies.
        """
        if self._parts.is_due and self._parts.sweep(parts):
            self._look = True
        left = dict(logs)
        if left:
            self._drop_empty(left)
        budget, rows = SWEEP_BYTES + SWEEP_TIMES * written, SWEEP_ROWS + SWEEP_TIMES * chunks
        for log, floor in list(left.items()):
            if budget <= 0 or rows <= 0:
                break
            last, budget, rows = self._portion(log, floor, budget, rows)
            if last is not None:
                below = "log = ? AND first <= ? AND first + count <= ?"
                self._counted.delete_chunks(below, (log, last, floor))
                self._parts.unname_below(log, last, floor)
                self._look = True
            if budget > 0 and rows > 0:
                del left[log]
                if floor == DROPPED:
                    self._execute("DELETE FROM log WHERE id = ?", (log,))
            rows -= 1  # to look for them took a statement
        return left

    def _drop_empty(self, logs: dict[int, int]) -> None:
        """Logs that were dropped, and have no chunk any more, go at once: there may be thousands, which had nothing."""
        dropped = list(islice((log for log, floor in logs.items() if floor == DROPPED), DROPPED_LOGS))
        which = "SELECT id FROM log WHERE NOT EXISTS (SELECT 1 FROM chunk WHERE chunk.log = log.id) AND id"
        empty = [log for (log,) in of_each(self._execute, which, dropped)]
        delete(self._execute, "DELETE FROM log WHERE id", empty)
        for log in empty:
            del logs[log]

    def _portion(self, log: int, floor: int, budget: int, rows: int) -> tuple[int | None, int, int]:
        """The last chunk that may go now, and what is left of the budget."""
        last = None
        below = "log = ? AND first < ? AND first + count <= ?"
        for first, size in self._execute(
            f"SELECT first, size FROM chunk WHERE {below} ORDER BY first", (log, floor, floor)
        ):
            last, budget, rows = first, budget - size, rows - 1
            if budget <= 0 or rows <= 0:
                break
        return last, budget, rows

    def wrote(self, octets: int) -> None:
        """Notes what a commit wrote, or what was written with nobody waiting."""
        self.wal += octets + 4 * PAGE
        if self.wal >= WAL_MOST:
            self.checkpoint()

    def give_all_back(self) -> None:
        """Gives every free page back to the disk at once."""
        while self._free():
            self._script(f"PRAGMA incremental_vacuum({VACUUM_MOST})")
            self.checkpoint()
        self._script("PRAGMA wal_checkpoint(TRUNCATE)")
        self.wal, self._vacuum, self._look = 0, 0, False

    def _free(self) -> int:
        (free,) = self._execute("PRAGMA freelist_count").fetchone()
        return int(free)

    def _give_back(self) -> None:
        begun = thread_time()  # of the processor: waiting for the disk does not grow with the portion
        # A script, because execute() stops after the first page.
        self._script(f"PRAGMA incremental_vacuum({self._vacuum})")
        self.checkpoint()  # this is what cuts the file
        took = thread_time() - begun
        pages = max(16, min(VACUUM_MOST, int(self._vacuum * min(2.0, STEP / max(took, 1e-4)))))
        self._vacuum = pages if self._free() * PAGE > SLACK else 0
