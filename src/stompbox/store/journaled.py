"""A store with a journal in front: small commits are durable by one short write, and go into the database many at a time.

| commit                                            | durable when                            | in the database                   |
|---------------------------------------------------|-----------------------------------------|-----------------------------------|
| small: messages, acknowledgements, trims, entries | its record is in the journal            | with the next ones, as one commit |
| the same, and loose, of any size                  | never for certain                       | with the next ones                |
| the same as the first, and larger                 | its transaction is, with all that waits | at once                           |
| anything else                                     | its transaction is, after all that waits | at once                          |

What a lone sender stores one by one so becomes chunks of many messages, and what is consumed meanwhile is never written there.
The database knows the sequence of the last record that is in it: reading the journal again after a crash adds nothing twice.
Whoever reads a log of which something waits has it put into the database first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from threading import RLock
from typing import Final

from msgspec import MsgspecError

from stompbox.errors import StoreError
from stompbox.message import Run
from stompbox.store import watermark
from stompbox.store.base import NOWHERE, Commit, Part, Recovered, StoredChunk
from stompbox.store.chunks import decode, head, shape_bytes, shape_of
from stompbox.store.folder import DATABASE
from stompbox.store.inspection import inspecting
from stompbox.store.journal import IDENTITY, LARGEST, Found, Journal, content, examined, identity_of
from stompbox.store.losses import kept, write_back
from stompbox.store.records import Stored, decoded, encode
from stompbox.store.rows import Rows
from stompbox.store.sqlite import SqliteStore

SMALL: Final = 32 << 10  # bytes of a record; from here on the database alone is as fast
# commits that wait, and runs of messages in them: to put these into the database takes 10 ms, and other commits wait for it
MOST: Final = 1024
RUNS: Final = 1024
LOOSE_RUNS: Final = 256  # of these, runs that are not fsynced, so that it costs little to put them in
LOOSE: Final = 128  # commits that wait in memory alone,
ROOM: Final = 4 << 20  # and bytes of them: what is consumed meanwhile costs the database nothing
EACH: Final = 64  # bytes that a message costs beside its body, at a guess
LOOKS: Final = 100  # at a journal that is being written to: damage is what stays as it is

_KIND: Final = "journal"  # in the catalogue
_IDENTITY: Final = (_KIND, "identity")
_SEQUENCE: Final = (_KIND, "sequence")


class JournaledStore:
    """The Store of a data folder. What was in the journal after a crash is in the database when this returns."""

    def __init__(self, database: SqliteStore) -> None:
        self._database = database
        self._journal = Journal(database.path)
        self._watermark = database.watermark
        self._turn = RLock()
        self._waiting: list[Commit] = []  # durable, and not in the database
        self._loose = 0  # of them, so many are not durable, and need not be
        self._room = ROOM  # bytes that these may still take
        self._runs = 0  # of messages, in them,
        self._loose_runs = 0  # and how many of these need not be durable
        self._touched: set[int] = set()  # logs of which there is something among them
        self._known: set[int] = set()  # logs
        self._sequence = 0  # of the last record
        self._is_unsure = False  # that record was refused, and may be there all the same
        self._is_off = False  # there is no room for a journal, or the file system cannot have one
        try:
            self._recovered: Recovered | None = self._read_journal()
            if database.watermark is not None:
                database.watermark.begun(self._sequence)
        except StoreError:
            self.close()
            raise

    def _read_journal(self) -> Recovered:
        found = self._database.recover()
        self._sequence = int.from_bytes(found.entries.pop(_SEQUENCE, b"\0"), "little")
        identity = found.entries.pop(_IDENTITY, None)
        self._known = {log.id for log in found.logs}
        if identity is None:
            if self._sequence < self._confirmed():
                what = f"has record {self._sequence} of the journal as its last, {self._confirmed()} was confirmed"
                self._database.losses.missing(f"{self._database.file}: {what}")
            return found
        self._journal.identity = identity
        is_lost = self._take_records()
        if self._waiting or is_lost:
            self._settle()
        if is_lost:  # the next small commit begins a new one
            self._journal.remove()
            self._database.apply(
                Commit(entries={_IDENTITY: None, _SEQUENCE: self._sequence.to_bytes(8, "little")})
            )
        else:
            self._journal.begin(identity)
        return hide_journal(self._database.recover())

    def _take_records(self) -> bool:
        """Takes what the journal has, with flipped bits turned back; whether something of it is gone for good."""
        file, losses = self._journal.file, self._database.losses
        if not file.is_file():
            losses.missing(f"{file}: is missing, and may hold the last messages before the broker ended")
            return True
        found, before = self._journal.read(self._sequence), self._sequence
        wrong = _fault(file, found, self._confirmed())
        if wrong:
            losses.corrupt(wrong) if found.damage else losses.missing(wrong)
        copy = kept(file) if wrong or found.flipped else file
        for at, bit in found.flipped:
            losses.tell(
                "data-repaired",
                f"{file}: bit {bit} of byte {at} had flipped and was turned back; as it was: {copy.name}",
            )
        for sequence, payload in (*found.records, *found.beyond):
            self._waiting.append(_commit_of(payload, file))
            self._sequence = sequence
        self._sequence = max(self._sequence, self._confirmed())
        if wrong:
            gone = self._sequence - before - len(self._waiting)
            losses.tell(
                "data-missing",
                f"{file}: {gone} commits of {before + 1} to {self._sequence} are gone; as it was: {copy.name}",
            )
        elif found.flipped:
            data = content(file)
            write_back(file, {at: bytes((data[at] ^ 1 << bit,)) for at, bit in found.flipped})
        return bool(wrong)

    def _confirmed(self) -> int:
        """The last record that is known to have been durable."""
        return self._watermark.found.sequence if self._watermark is not None else 0

    def recover(self) -> Recovered:
        with self._turn:
            # what was found when it was opened is large: it is told once
            found, self._recovered = self._recovered, None
            if found is not None and not self._waiting:
                return found
            self._settle()
            return hide_journal(self._database.recover())

    def ends(self) -> dict[int, int]:
        """Per log: after the last message that it has, or had."""
        with self._turn:
            self._settle()
            return self._database.ends()

    # Writing

    def apply(self, commit: Commit) -> None:
        with self._turn:
            self._recovered = None
            if self._is_unsure:
                self._settle()
            if not is_mergeable(commit) or not self._known.issuperset(commit.runs):
                self._settle()
                self._database.apply(commit)
                self._known.update(commit.logs)
                self._known.difference_update(commit.dropped_logs)
                return
            if not self._may_wait(commit) or not (self._journal.is_open or self._begin()):
                self._settle(commit)
                return
            if commit.is_loose:
                self._keep_loose(commit)
                return
            payload = _payload_of(commit)
            if len(payload) > LARGEST:
                self._settle(commit)
                return
            if self._is_much or not self._journal.fits(len(payload)):
                self._settle()
            self._write(payload)
            self._keep(commit)

    def _keep_loose(self, commit: Commit) -> None:
        """A small one that may be lost waits in memory alone."""
        size = _size_of(commit, self._room)
        if self._loose >= LOOSE or self._is_much or size > self._room:
            self._settle(commit)
            return
        self._loose += 1
        self._room -= size
        self._keep(commit)

    @property
    def _is_much(self) -> bool:
        return len(self._waiting) >= MOST or self._runs >= RUNS or self._loose_runs >= LOOSE_RUNS

    def _keep(self, commit: Commit) -> None:
        self._waiting.append(commit)
        for runs in commit.runs.values():
            self._runs += len(runs)
            self._loose_runs += sum([run.is_loose for run in runs])
        self._touched.update(commit.runs, commit.next_offsets, commit.trims)

    def _may_wait(self, commit: Commit) -> bool:
        """A small one, once there is a journal or something to be put into one."""
        if self._is_off or not (commit.runs or self._journal.is_open):
            return False
        if not commit.is_loose and _size_of(commit, SMALL) > SMALL:
            return False
        if commit.acknowledged and sum(map(len, commit.acknowledged.values())) > MOST:
            return False
        return len(commit.entries) <= MOST

    def _begin(self) -> bool:
        """Makes the journal, then tells the database of it: one that it does not know is of no account. False: there is none to be had."""
        identity = os.urandom(IDENTITY)
        try:
            self._journal.begin(identity)
        except StoreError:
            self._is_off = True
            with suppress(StoreError):
                self._journal.remove()
            return False
        try:
            self._database.apply(
                Commit(entries={_IDENTITY: identity, _SEQUENCE: self._sequence.to_bytes(8, "little")})
            )
        except StoreError:
            self._journal.close()
            raise
        return True

    def _write(self, payload: bytes) -> None:
        self._sequence += 1
        try:
            self._journal.append(self._sequence, payload)
            if self._watermark is not None:
                self._watermark.appended(self._sequence)
        except StoreError:
            self._is_unsure = True
            with suppress(StoreError):  # else before the next commit
                self._settle()
            raise

    def _settle(self, more: Commit | None = None) -> None:
        """Puts what waits into the database, and `more` with it. When it raises nothing has changed."""
        if not self._waiting and not self._is_unsure:
            if more is not None:
                self._database.apply(more)
            return
        merged = merge(self._waiting if more is None else [*self._waiting, more])
        merged.is_loose = (
            self._loose == len(self._waiting) and not self._is_unsure and (more is None or more.is_loose)
        )
        merged.entries[_SEQUENCE] = self._sequence.to_bytes(8, "little")
        self._database.apply(merged)
        self._waiting, self._runs, self._loose_runs = [], 0, 0
        self._loose, self._room = 0, ROOM
        self._touched.clear()
        self._is_unsure = False
        self._journal.restart()

    @property
    def unverified(self) -> str:
        return self._database.unverified

    def maintain(self) -> bool:
        with self._turn:
            if self._waiting or self._is_unsure:
                self._settle()
                return True
        return self._database.maintain()

    # Reading

    def read(self, log: int, start: int, stop: int, max_bytes: int) -> list[StoredChunk]:
        self._settle_log(log)
        return self._database.read(log, start, stop, max_bytes)

    def read_part(self, body: int, number: int) -> bytes:
        return self._database.read_part(body, number)

    def outline(self, log: int) -> Iterator[Part]:
        self._settle_log(log)
        return self._database.outline(log)

    def find_time(self, log: int, timestamp: int) -> int:
        self._settle_log(log)
        return self._database.find_time(log, timestamp)

    def sizes(self, logs: Iterable[int], since: Mapping[int, int] = NOWHERE) -> dict[int, tuple[int, int]]:
        wanted = list(logs)
        for log in wanted:
            self._settle_log(log)
        return self._database.sizes(wanted, since)

    def _settle_log(self, log: int) -> None:
        if log in self._touched:
            with self._turn:
                self._settle()

    # Closing

    def close(self) -> None:
        """Frees the folder. The journal goes when all of it is in the database, else the next start reads it."""
        with self._turn:
            try:
                with suppress(StoreError):  # the journal stays, and the next start reads it
                    if self._journal.is_open:
                        self._settle()
                        self._database.apply(Commit(entries={_IDENTITY: None}))
                        self._journal.remove()
            finally:
                self._journal.close()
                self._database.close()

    def __repr__(self) -> str:
        return f"<JournaledStore waiting={len(self._waiting)} {self._database!r}>"


def hide_journal(found: Recovered) -> Recovered:
    """Without what this file alone has written into the catalogue."""
    for key in (_SEQUENCE, _IDENTITY):
        found.entries.pop(key, None)
    return found


def _size_of(commit: Commit, most: int) -> int:
    """Octets that its messages take, about, with the headers of each run; nobody counts beyond `most`."""
    size = 0
    for runs in commit.runs.values():
        for run in runs:
            size += run.size + EACH * len(run.bodies) + run.varying + run.shape.octets
            if size > most:
                return size
    return size


def is_mergeable(commit: Commit) -> bool:
    """Whether it says nothing of which logs, cursors and bodies there are: then its effect is the same together with others."""
    is_rare = (
        commit.logs or commit.cursors or commit.delivered or commit.dropped_cursors or commit.dropped_logs
    )
    if is_rare or commit.parts or commit.holds:
        return False
    for runs in commit.runs.values():
        for run in runs:
            if run.is_large:  # the database must know that a chunk names the body, or lies in it
                return False
    return True


def merge(commits: Sequence[Commit]) -> Commit:
    """Commits that are mergeable as one that has the same effect."""
    merged = Commit()
    for commit in commits:
        for log, runs in commit.runs.items():
            merged.runs.setdefault(log, []).extend(runs)
        for log, offset in commit.next_offsets.items():
            merged.next_offsets[log] = max(offset, merged.next_offsets.get(log, 0))
        for cursor, ranges in commit.acknowledged.items():
            merged.acknowledged.setdefault(cursor, []).extend(ranges)
        merged.entries |= commit.entries
        for log, offset in commit.trims.items():
            merged.trims[log] = max(offset, merged.trims.get(log, 0))
    for log, runs in merged.runs.items():
        runs.sort(key=attrgetter("first"))
        floor = merged.trims.get(log, 0)
        if runs and runs[0].stop <= floor:  # was consumed before it was written
            merged.next_offsets[log] = max(merged.next_offsets.get(log, 0), runs[-1].stop)
            merged.runs[log] = [run for run in runs if run.stop > floor]
    return merged


def _payload_of(commit: Commit) -> bytes:
    """A Record, written as the tuples that it is made of."""
    stored: dict[int, list[tuple[object, ...]]] = {}
    for log, runs in commit.runs.items():
        stored[log] = each = []
        for run in runs:
            each.append(
                (run.first, run.arrived, run.routing, shape_bytes(run.shape), run.columns, run.bodies)
            )
    entries = [(*key, value) for key, value in commit.entries.items()] if commit.entries else ()
    return encode((stored, commit.next_offsets, commit.acknowledged, entries, commit.trims))


def _commit_of(payload: bytes, file: Path) -> Commit:
    try:
        record = decoded(payload)
    except MsgspecError as error:
        raise StoreError(
            "data-corrupt", f"{file}: a record that is whole cannot be read ({error})"
        ) from error
    return Commit(
        runs={log: _runs_of(stored) for log, stored in record.runs.items()},
        next_offsets=record.next_offsets,
        acknowledged=record.acknowledged,
        entries={(kind, key): value for kind, key, value in record.entries},
        trims=record.trims,
    )


def _runs_of(stored: bytes | list[Stored]) -> list[Run]:
    if isinstance(stored, bytes):
        return decode(stored, head(stored).first)
    return [
        Run(
            shape_of(one.shape),
            one.bodies,
            one.columns,
            first=one.first,
            arrived=one.arrived,
            routing=one.routing,
        )
        for one in stored
    ]


def _sequence_in(entries: Mapping[tuple[str, str], bytes]) -> int:
    """The number of the last record that a database with these entries has."""
    return int.from_bytes(entries.get(_SEQUENCE, b"\0"), "little")


def _fault(file: Path, found: Found, confirmed: int) -> str:
    """What is wrong with a journal, in words; empty when all that was confirmed is there."""
    if found.damage:
        return f"{file}: {found.damage}"
    if found.last < confirmed:
        return f"{file}: ends with record {found.last}, {confirmed} was confirmed"
    return ""


def waiting_in(path: Path, entries: dict[tuple[str, str], bytes]) -> list[Commit]:
    """What the journal in folder `path` has for a database with these entries. Raises StoreError `data-corrupt`, `io-error`."""
    if _IDENTITY not in entries:
        return []
    journal = Journal(path)
    journal.identity = entries[_IDENTITY]
    found = journal.read(_sequence_in(entries))
    wrong = _fault(journal.file, found, watermark.read(path).sequence)
    if wrong:
        raise StoreError("data-corrupt", wrong)
    return [_commit_of(payload, journal.file) for _, payload in found.records]


def complete(copy: SqliteStore, journal: bytes, confirmed: int) -> None:
    """Puts what a journal holds into a copy of its database that was made after the journal was read, and that was read after
    record `confirmed` was known to be durable. Raises StoreError `data-corrupt` when something of that is in neither."""
    entries = copy.recover().entries
    identity = entries.get(_IDENTITY)
    merged = Commit(entries={_IDENTITY: None, _SEQUENCE: None})
    found = Found(last=_sequence_in(entries))
    if identity is not None and identity_of(journal):
        found = examined(journal, identity, found.last)
    if found.last < confirmed:
        raise StoreError(
            "data-corrupt",
            f"the copy has record {found.last} of the journal as its last, {confirmed} was confirmed",
        )
    if identity is not None:
        copy.apply(merge([*[_commit_of(payload, copy.file) for _, payload in found.records], merged]))


def journal_damage(path: Path) -> Iterator[str]:
    """What is wrong with the journal in folder `path`, for whom a broker may be running that writes to it."""
    journal = Journal(path)
    confirmed = watermark.read(path).sequence
    with inspecting(path) as connection:
        entries = dict(Rows(connection, path / DATABASE).entries())
    if _IDENTITY not in entries:
        return
    journal.identity = entries[_IDENTITY]
    seen: bytes | None = None
    for _ in range(LOOKS):
        if not journal.file.is_file():
            yield f"{journal.file}: is missing, and may hold the last messages before the broker ended"
            return
        data = content(journal.file)
        found = examined(data, journal.identity, _sequence_in(entries))
        wrong = _fault(journal.file, found, confirmed)
        if not wrong:
            for at, bit in found.flipped:
                yield f"{journal.file}: bit {bit} of byte {at} has flipped; a broker that starts turns it back"
            return
        if data == seen:
            yield wrong
            return
        seen = data
