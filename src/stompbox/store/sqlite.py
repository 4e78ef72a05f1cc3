"""The store on disk: SQLite in WAL mode, one row per chunk.

A commit is one transaction: a row per address touched (the chunk), one row for all that moved (next offsets, floors,
acknowledgements of any number of cursors), and the catalogue's entries. What moved is folded into the rows of logs and
cursors after FOLD_ROWS commits, so that acknowledging costs one short row however many cursors do it.

| promise                             | kept by                                                                             |
|-------------------------------------|-------------------------------------------------------------------------------------|
| durable when `apply` returns        | synchronous=FULL: one fsync of the write-ahead log per commit that is not loose     |
| whole or not at all                 | the transaction; what memory knows changes after it                                 |
| no commit waits long                | housekeeping.py: checkpoints, deletions and file space in portions, mostly when idle |
| ready at once, however much is here | opening and `recover` read indices, never blobs                                     |
| nothing damaged is passed on        | checksums of rows and blobs (rows.py, chunks.py), a look at the pages when opening (check.py) |

Tables and settings are in schema.py, the folder, its lock and the codes of errors in folder.py.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from stompbox.errors import StoreError
from stompbox.ranges import Ranges
from stompbox.store import schema
from stompbox.store.base import NOWHERE, Commit, Part, Recovered, StoredChunk
from stompbox.store.changes import Changes, CursorState, LogState, LogStates, encoded, moved, together
from stompbox.store.check import Verifying, damaged_chunks, look_when_opening
from stompbox.store.chunks import ChunkHead
from stompbox.store.folder import DATABASE, lock_folder, make_file, naming, prepare_folder
from stompbox.store.housekeeping import WAL_MOST, Housekeeping
from stompbox.store.losses import Losses, kept_bytes
from stompbox.store.mending import mend_log
from stompbox.store.merging import IDLE_PORTION, PORTION, Merging
from stompbox.store.parts import Parts, read_part
from stompbox.store.reading import first_since, parts_of, read_chunks, size_of
from stompbox.store.rows import Rows
from stompbox.store.schema import DROPPED, PAGE
from stompbox.store.staged import chunk_size
from stompbox.store.totals import Counted, JournalState, counted
from stompbox.store.watermark import Watermark

# a chunk is read, decoded and deleted whole; larger ones gain nothing (bench/store.py)
CHUNK_BYTES: Final = 1 << 20
FOLD_ROWS: Final = 256  # rows of changes that recovery reads at most, and
# about what they hold; a commit that finds them waits 15 us for each cursor and log among them
FOLD_BYTES: Final = 1 << 20
FOLD_IDLE: Final = 32  # rows from which on an idle committer folds
READERS: Final = 4  # connections kept open between reads


class SqliteStore:
    """The Store of a data folder, which is made if need be.

    `chunk_bytes` is about the most that goes into one chunk, unless a single message is larger. Without `synchronous` nothing is
    fsynced: for what need not outlive the process. `lock`: that of the folder, where the caller has it; it is closed with the store.
    `losses`: what to do where something that was confirmed is damaged or gone; if nothing is said, the store does not open.
    Raises StoreError: `data-in-use`, `data-not-writable`, `data-corrupt`, `data-missing`, `data-too-new`, `disk-full`, `io-error`.
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: bool = True,
        chunk_bytes: int = CHUNK_BYTES,
        lock: int = -1,
        losses: Losses | None = None,
    ) -> None:
        self.path = path
        self.file = path / DATABASE
        self._chunk_bytes = chunk_bytes
        self._synchronous = synchronous
        self._is_loose = False  # nothing is fsynced but by checkpoints
        self._turn = Lock()  # of the writer's connection
        self._readers: list[sqlite3.Connection] = []
        self._closed = False
        if lock < 0:
            prepare_folder(path)
        self._lock = lock_folder(path) if lock < 0 else lock
        self.losses = losses or Losses()
        self.watermark: Watermark | None = None
        try:
            if synchronous:
                self.watermark = Watermark(path, self.losses)
                self._refuse_gone()
            suspect = mend_log(path, self.losses, self._lacks_confirmed)
            make_file(self.file)
            with naming(self.file):
                self._db = schema.connect(self.file)
        except StoreError:
            os.close(self._lock)
            raise
        self._rows = Rows(self._db, self.file)
        # what housekeeping met beside a commit that was none the worse for it
        self._neglected: StoreError | None = None
        try:
            with naming(self.file):
                self._open(suspect)
        except StoreError:
            self.close()
            raise

    def _open(self, suspect: Path | None) -> None:
        """Opens the database. `suspect`: a copy of the write-ahead log, which stays when something is missing."""
        schema.prepare(self._db, self.file, synchronous=self._synchronous)
        self._verifying: Verifying | None = look_when_opening(self._db, self.file, self.losses)
        self._state = self._rows.state() or JournalState()
        self._refuse_lost(suspect)
        if self.losses.are_accepted:  # what there is from now on is what is there
            self._state.totals, self._state.schema = counted(self._db), schema.outline(self._db)
        self._counted = Counted(self._db, self._state.totals)
        self._merging = Merging(self._db, self.file, self._counted)
        self._load()
        self._parts = Parts(self._db, self.file, self._counted)
        self._house = Housekeeping(self._db, self._parts, self._counted)
        if self.losses.are_accepted:
            self._leave_out_damaged()

    def _lacks_confirmed(self) -> bool:
        """Whether SQLite, reading its write-ahead log as it is, finds less than was confirmed."""
        confirmed = self.watermark.found.transactions if self.watermark is not None else 0
        if not confirmed:
            return False
        try:
            with closing(schema.connect_to_read(self.file)) as db:
                state = Rows(db, self.file).state()
        except (StoreError, sqlite3.Error):
            return True
        return state is None or state.transactions < confirmed

    def _refuse_gone(self) -> None:
        """A database that is not there any more must not be made anew as if nothing had been."""
        assert self.watermark is not None
        transactions = self.watermark.found.transactions
        if transactions and not (self.file.is_file() and self.file.stat().st_size):
            self.losses.missing(f"{self.file}: is gone, with all of its {transactions} transactions")

    def _refuse_lost(self, suspect: Path | None) -> None:
        """Refuses a database that has fewer transactions than were confirmed, as one that has lost some."""
        if self.watermark is None:
            return
        have, confirmed = self._state.transactions, self.watermark.found.transactions
        if have < confirmed:
            where = f"; its write-ahead log, as it was: {suspect.name}" if suspect is not None else ""
            what = f"ends with transaction {have}, {confirmed} were confirmed: the last {confirmed - have} are gone"
            self.losses.missing(
                f"{self.file}: {what} (a damaged or missing write-ahead log, or an older copy of the file){where}"
            )
        elif suspect is not None:
            suspect.unlink(missing_ok=True)
        self.watermark.committed(have)

    def _leave_out_damaged(self) -> None:
        """Loss is accepted: chunks that nobody can read go, their bytes into files of their own, so that their queues go on."""
        for row, log, first, blob, text in list(damaged_chunks(self._db, self.file)):
            copy = kept_bytes(self.path / "stompbox.chunk", blob)
            with self._transaction():
                self._counted.delete_chunks("id = ?", (row,))
                self._parts.unname(log, first)
            self._parts.landed()
            self.losses.tell("data-missing", f"{text}; left out, its bytes are in {copy.name}")

    def _load(self) -> None:
        """What memory keeps: the state of each log, what is not folded in, and what is to be deleted."""
        self._unfolded = self._rows.changes()
        self._row, self._size = self._db.execute(
            "SELECT coalesce(max(id), 0), coalesce(sum(length(data)), 0) FROM change"
        ).fetchone()
        self._logs = LogStates()
        self._sweeping: dict[int, int] = {}  # logs with chunks below their floor -> the floor
        for log, state, oldest in self._rows.logs(self._unfolded):
            if state.floor != DROPPED:
                self._logs.update({log: state})
            if state.floor == DROPPED or (oldest is not None and oldest <= state.floor):
                self._sweeping[log] = state.floor

    def recover(self) -> Recovered:
        with naming(self.file), self._reader() as connection:
            return Rows(connection, self.file).recovered()

    def ends(self) -> dict[int, int]:
        """Per log: after the last message that it has, or had."""
        return {log: max(state.stored, state.floor) for log, state in self._logs.items()}

    # Writing

    def apply(self, commit: Commit) -> None:
        with self._turn, naming(self.file):
            self._refuse_closed()
            if commit.is_loose is not self._is_loose:
                self._sync_for(commit)
            after = moved(self._logs, commit)
            written = encoded(self._logs, commit, after, self._chunk_bytes, self._find)
            if self._house.wal >= WAL_MOST:
                self._house.checkpoint()
            size = 4 * PAGE
            size += sum([len(data) + PAGE for data in commit.parts.values()]) if commit.parts else 0
            chunks: list[tuple[int, ChunkHead, int]] = []  # log, head, size
            with self._transaction():
                folds = self._row >= FOLD_ROWS or self._size >= FOLD_BYTES or self._uses_ids_again(commit)
                if folds:
                    self._rows.fold(self._unfolded, self._logs)
                self._create(commit)
                if commit.delivered:
                    self._rows.add_deliveries(commit.delivered)
                for place in written.replaced:
                    self._counted.delete_chunks("log = ? AND first = ?", place)
                    self._parts.unname(*place)
                for some in together(written.chunks()):
                    self._counted.put_chunks(some)
                    chunks += [(log, head, chunk_size(blob)) for log, head, blob in some]
                    size += sum([len(blob) + PAGE for _, _, blob in some])
                if commit.parts or written.named:
                    self._parts.put(commit, written.named)
                changes = self._changes(commit, after)
                row = 1 if folds else self._row + 1
                packed = self._rows.add_changes(row, changes) if changes else 0
                if commit.entries:
                    self._rows.put_entries(commit.entries)
                sweeping = self._house.sweep(self._drop(commit, after), size, len(chunks), len(commit.parts))
                self._house.wal += size
            self._keep(commit, after, sweeping)
            self._parts.landed(commit)
            if folds:
                self._unfolded, self._row, self._size = Changes(), 0, 0
            if changes:
                self._unfolded.add(changes)
                self._row, self._size = row, self._size + packed
            for wrote in chunks:
                self._merging.wrote(*wrote)
            if self._merging.ready:
                self._merge_beside()

    def _sync_for(self, commit: Commit) -> None:
        """Has the next transaction fsynced, with all before it, or not: they stand in one file, one after the other."""
        if self._synchronous:
            self._db.execute(f"PRAGMA synchronous = {'NORMAL' if commit.is_loose else 'FULL'}")
        self._is_loose = commit.is_loose

    def _merge_beside(self) -> None:
        """The commit is durable, whatever becomes of this."""
        log = next(iter(self._merging.ready))
        try:
            with naming(self.file), self._transaction(is_commit=False):
                self._house.wal += self._merging.step(self._logs, PORTION)
        except StoreError as error:
            self._merging.forget(log)
            self._neglected = error

    def _uses_ids_again(self, commit: Commit) -> bool:
        """A new log or cursor must not inherit what an earlier one of the same id left among the changes or chunks."""
        left = self._unfolded
        logs = (
            not commit.logs.keys().isdisjoint(left.next.keys() | left.floors.keys() | self._sweeping.keys())
            if commit.logs
            else False
        )
        return logs or not left.acknowledged.keys().isdisjoint(commit.cursors)

    def _create(self, commit: Commit) -> None:
        for log in commit.logs:
            if log in self._sweeping:
                self._counted.delete_chunks("log = ?", (log,))
                self._parts.unname_all(log)
        if commit.logs:
            self._rows.put_logs((log, LogState(name)) for log, name in commit.logs.items())
        if commit.cursors:
            self._rows.drop_deliveries(list(commit.cursors))
            self._rows.put_cursors(
                (cursor, CursorState(log, position, Ranges()))
                for cursor, (log, position) in commit.cursors.items()
            )

    def _find(self, log: int, start: int, stop: int) -> list[StoredChunk]:
        return self.read(log, start, stop, 0)

    def _changes(self, commit: Commit, after: dict[int, LogState]) -> Changes:
        """What has to be written of next offsets (those that no chunk shows), floors and acknowledgements."""
        changes = Changes(acknowledged=commit.acknowledged)
        for log, state in after.items():
            old = self._logs.get(log) or LogState(state.name)
            if state.floor > old.floor:
                changes.floors[log] = state.floor
            if state.floor > old.floor or (state.next > old.next and state.next != state.stored):
                changes.next[log] = state.next
        return changes

    def _drop(self, commit: Commit, after: dict[int, LogState]) -> dict[int, int]:
        """Drops cursors and logs; returns the logs with chunks that may go, and up to where."""
        if commit.dropped_cursors:
            self._rows.drop_cursors(commit.dropped_cursors)
        sweeping = {log: floor for log, floor in self._sweeping.items() if log not in commit.logs}
        for log in commit.trims:
            if log in after and after[log].floor > (self._logs[log].floor if log in self._logs else 0):
                sweeping[log] = after[log].floor
        dropped: dict[int, LogState] = {}
        for log in commit.dropped_logs:
            state = after.get(log) or self._logs.get(log)
            if state is not None:
                dropped[log] = LogState(state.name, state.next, DROPPED)
                sweeping[log] = DROPPED
        self._rows.put_logs(dropped.items())
        return sweeping

    def _keep(self, commit: Commit, after: dict[int, LogState], sweeping: dict[int, int]) -> None:
        self._logs.update(after)
        self._logs.drop(commit.dropped_logs)
        for log in commit.dropped_logs:
            self._merging.forget(log)
        self._sweeping = sweeping

    @contextmanager
    def _transaction(self, *, is_commit: bool = True) -> Iterator[None]:
        """Housekeeping that finds nothing to do writes nothing, and waits for no disk."""
        self._parts.begin()
        self._counted.begin()
        self._db.execute("BEGIN IMMEDIATE")
        number = self._state.transactions + 1
        try:
            yield
            if is_commit or self._counted.has_changed:
                self._rows.put_state(JournalState(number, self._counted.totals, self._state.schema))
            else:
                number -= 1
            self._db.execute("COMMIT")
        except BaseException:
            self._counted.take_back()
            if self._db.in_transaction:  # some errors make SQLite roll back by itself
                self._db.execute("ROLLBACK")
            raise
        is_written, self._state.transactions = number > self._state.transactions, number
        if is_written and self.watermark is not None and not self._is_loose:
            self.watermark.committed(number)

    @property
    def unverified(self) -> str:
        return (
            ""
            if self._verifying is None
            else f"chunks and large bodies in {self.file.name} are not all read through yet"
        )

    def maintain(self) -> bool:
        with self._turn, naming(self.file):
            self._refuse_closed()
            if self._neglected is not None:
                error, self._neglected = self._neglected, None
                raise error
            if self._is_untidy():
                with self._transaction(is_commit=False):
                    sweeping = self._house.sweep(self._sweeping)
                self._sweeping = sweeping
                self._parts.landed()
                self._house.wal += 4 * PAGE
            elif self._row >= FOLD_IDLE:
                with self._transaction():
                    self._rows.fold(self._unfolded, self._logs)
                self._unfolded, self._row, self._size = Changes(), 0, 0
                self._house.wal += 4 * PAGE
            elif self._merging.ready:
                with self._transaction(is_commit=False):
                    self._house.wal += self._merging.step(self._logs, IDLE_PORTION)
            elif self._house.is_due():
                self._house.step()
            elif self._verifying is not None:
                self._verify(self._verifying)
            is_busy = (
                self._is_untidy()
                or self._row >= FOLD_IDLE
                or bool(self._merging.ready)
                or self._house.is_due()
            )
            return is_busy or self._verifying is not None

    def _verify(self, verifying: Verifying) -> None:
        """One portion of what was too much to be read when the store was opened."""
        for problem in verifying.portion():
            self.losses.tell("data-corrupt", problem)
        if verifying.is_done:
            self.losses.tell(
                "data-verified", f"{self.file}: all of it was read through, damaged {verifying.damaged}"
            )
            self._verifying = None

    def compact(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Does all of the housekeeping at once, as far as it goes: what was trimmed is deleted, neighbours become one chunk, the file as
        small as it can be. Takes its time; `progress` is called with (chunks looked at, chunks in all)."""
        while self._is_untidy() or self._row:
            self._tidy_up()
        with self._turn, naming(self.file):
            self._refuse_closed()
            (total,) = self._db.execute("SELECT count(*) FROM chunk").fetchone()
            done = 0
            for log in self._logs:
                at = 0
                while rows := self._merging.rows(log, at, IDLE_PORTION):
                    with self._transaction():
                        at, written = self._merging.merge(log, rows)
                    self._house.wrote(written)
                    done += sum(first < at for first, _ in rows)
                    if progress is not None:
                        progress(done, total)
            self._house.give_all_back()

    def _is_untidy(self) -> bool:
        return bool(self._sweeping) or self._parts.is_due

    def _tidy_up(self) -> None:
        """One portion of what was trimmed, and what is not folded in."""
        with self._turn, naming(self.file):
            self._refuse_closed()
            with self._transaction():
                sweeping = self._house.sweep(self._sweeping)
                self._rows.fold(self._unfolded, self._logs)
            self._sweeping = sweeping
            self._parts.landed()
            self._unfolded, self._row, self._size = Changes(), 0, 0
            self._house.wrote(0)

    # Reading

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A connection of one's own, in a transaction: one view, whatever is committed meanwhile."""
        self._refuse_closed()
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = schema.connect(self.file)
            connection.execute("PRAGMA query_only = ON")
        try:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        if self._closed or len(self._readers) >= READERS:
            connection.close()
        else:
            self._readers.append(connection)

    def _floor(self, log: int, start: int = 0) -> int:
        state = self._logs.get(log)
        return DROPPED if state is None else max(start, state.floor)

    def read(self, log: int, start: int, stop: int, max_bytes: int) -> list[StoredChunk]:
        with naming(self.file), self._reader() as connection:
            return read_chunks(connection, self.file, (log, self._floor(log, start), stop), max_bytes)

    def read_part(self, body: int, number: int) -> bytes:
        with naming(self.file), self._reader() as connection:
            return read_part(connection, self.file, body, number)

    def find_time(self, log: int, timestamp: int) -> int:
        with naming(self.file), self._reader() as connection:
            found = first_since(connection, log, self._floor(log), timestamp)
        if found is not None:
            return found
        return self._logs[log].next if log in self._logs else 0

    def sizes(self, logs: Iterable[int], since: Mapping[int, int] = NOWHERE) -> dict[int, tuple[int, int]]:
        with naming(self.file), self._reader() as connection:
            return {log: size_of(connection, log, self._floor(log, since.get(log, 0))) for log in logs}

    def outline(self, log: int) -> Iterator[Part]:
        with naming(self.file), self._reader() as connection:
            yield from parts_of(connection, log, self._floor(log))

    # Closing

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError("store-closed", f"{self.file}: the store is closed")

    def close(self) -> None:
        """Frees the folder. A second time does nothing."""
        with self._turn, naming(self.file):
            if self._closed:
                return
            self._closed = True
            try:
                while self._readers:
                    self._readers.pop().close()
                self._db.close()
            finally:
                if self.watermark is not None:
                    self.watermark.close()
                os.close(self._lock)

    def __repr__(self) -> str:
        state = f"logs={len(self._logs)} unfolded={self._row} sweeping={len(self._sweeping)} wal={self._house.wal}"
        return f"<SqliteStore {self.file} {'closed' if self._closed else state}>"
