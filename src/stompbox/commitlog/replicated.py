"""A store that several nodes have the same: the leader appends to the log and applies then, the others read the log and apply.

| step           | the leader                                                    | a follower                    |
|----------------|---------------------------------------------------------------|-------------------------------|
| in the log     | `ReplicatedStore.apply`: when it returns, or it is fenced     | `Applier.step` reads it       |
| in the store   | `Local.apply`: in the same commit as the position in the log  | the same                      |
| durable here   | `Local.settle`: now and then; the log is the truth meanwhile  | the same                      |

So a store never has what the log has not, and one that lost its tail in a crash reads on from what it says it has. Who was fenced, or
could not apply what is in the log, leads no more: nothing is taken back that may be in the log. A log that was put back to an earlier
state, by a backup or by a server that took over without its tail, is found out by the record that the store has come to.

This file decides the order of the two; not when a node tries to lead (server/cluster), and not how records look (records.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from threading import Event, Thread
from time import monotonic
from typing import Final
from zlib import crc32

from msgspec import MsgspecError, Struct, msgpack

from stompbox.commitlog.base import CommitLog, Kind, LogError, Record
from stompbox.commitlog.hearing import Hearing
from stompbox.commitlog.records import Lead, Reader, cut, lead_payload
from stompbox.errors import StoreError
from stompbox.store.base import (
    CLUSTER,
    DEPOSED,
    NOWHERE,
    REFUSALS,
    Commit,
    Part,
    Recovered,
    Store,
    StoredChunk,
)
from stompbox.store.staged import taken_out

# entries of the catalogue, which only this file knows
POSITION: Final = (CLUSTER, "position")
IDENTITY: Final = (CLUSTER, "identity")
LEADER: Final = (CLUSTER, "leader")
OFTEN: Final = 2.0  # seconds after which the position is made durable,
MANY: Final = 1000  # or commits
MOST: Final = 4 << 20  # bytes of records that are read at a time
WAIT: Final = 0.25  # seconds that a read waits for more
GATHER: Final = 0.01  # seconds between two reads where the last one had less than FEW: those that come meanwhile are read at once
FEW: Final = 32  # records
UNMARKED: Final = -1
AGAIN: Final = 0.25  # seconds until a log that is away, or a disk that refuses, is tried again
# a commit that says something of a body, even of none, is not merged with others: so what was loose before it is durable with it
_BARRIER: Final = {0: False}


class Position(Struct, array_like=True, frozen=True):
    """How far a store has come: the record that completed the last commit in it, its epoch, and what tells it from another one that
    could stand there; UNMARKED: a version that did not note it has written this."""

    position: int = 0
    epoch: int = 0
    mark: int = UNMARKED


def mark_of(epoch: int, payload: bytes) -> int:
    return crc32(payload, epoch & 0xFFFFFFFF)


_encode: Final = msgpack.Encoder().encode
_decode: Final = msgpack.Decoder(Position).decode


class Local:
    """A node's own store, and how far in the log it is. `identity`: the cluster and its log, by name; `where`: what errors call the store.

    Raises StoreError `data-of-another-cluster` for a store that was filled from another log, or from none.
    """

    def __init__(
        self, store: Store, identity: str, clock: Callable[[], float] = monotonic, *, where: str = ""
    ) -> None:
        self.store = store
        where = where or repr(store)
        self._clock = clock
        found = store.recover().entries
        known = found.get(IDENTITY)
        if known is None and found:
            problem = "it was filled by a broker that is in no cluster; a node begins with an empty folder"
            raise StoreError("data-of-another-cluster", f"{where}: {problem}")
        if known is not None and known != identity.encode():
            problem = f"it belongs to {known.decode(errors='replace')!r}, not to {identity!r}"
            raise StoreError("data-of-another-cluster", f"{where}: {problem}")
        reached = position_in(found)
        self.position, self.epoch, self.mark = reached.position, reached.epoch, reached.mark
        self.leader = leader_in(found.get(LEADER, b""))  # who leads this epoch
        self.durable = 0  # what was found in a file may be in the system's memory alone
        self._since = 0  # commits
        self._settled = clock()
        if known is None:
            store.apply(
                Commit(entries={IDENTITY: identity.encode(), POSITION: _encode(reached)}, holds=_BARRIER)
            )

    def apply(self, commit: Commit, reached: Position) -> None:
        """Applies what the records up to there say, of which the log is sure. Raises StoreError: then nothing was applied."""
        entries = {**commit.entries, POSITION: _encode(reached)}
        self.store.apply(replace(commit, entries=entries, is_loose=True))
        self.position, self.epoch, self.mark = reached.position, reached.epoch, reached.mark
        self._since += 1
        if self._since >= MANY or self._clock() - self._settled >= OFTEN:
            with suppress(StoreError):  # it is tried again with the next one, and trims wait
                self.settle()

    @property
    def is_settled(self) -> bool:
        return self.durable == self.position

    def settle(self) -> None:
        """All that was applied is durable when this returns. Raises StoreError."""
        if self.is_settled:
            return
        here = Position(self.position, self.epoch, self.mark)
        self.store.apply(Commit(entries={POSITION: _encode(here)}, holds=_BARRIER))
        self.durable, self._since, self._settled = here.position, 0, self._clock()

    def close(self) -> None:
        """Frees the folder, with all of it durable where the disk lets us."""
        with suppress(StoreError):
            self.settle()
        self.store.close()

    def __repr__(self) -> str:
        return f"<Local {self.position} epoch={self.epoch} durable={self.durable} {self.store!r}>"


def reached_by(record: Record) -> Position:
    return Position(record.position, record.epoch, mark_of(record.epoch, record.payload))


def position_in(entries: Mapping[tuple[str, str], bytes]) -> Position:
    data = entries.get(POSITION)
    if data is None:
        return Position()
    try:
        return _decode(data)
    except MsgspecError as error:
        raise StoreError("data-corrupt", f"the position in the log cannot be read ({error})") from error


def leader_in(payload: bytes) -> Lead | None:
    """Who says so in the payload of a record that a LEAD is; None: nobody, or in a way that this program does not read."""
    with suppress(StoreError):
        found = Reader().take(Record(0, 0, Kind.LEAD, payload))
        return found if isinstance(found, Lead) else None
    return None


class Applier:
    """Follows the log into the local store. `led` is called for each record that says who leads, by the thread that reads it."""

    def __init__(
        self,
        local: Local,
        log: CommitLog,
        led: Callable[[Record, Lead], object] = lambda record, lead: None,
        clock: Callable[[], float] = monotonic,
        *,
        is_compared: bool = False,
    ) -> None:
        """With `is_compared` what the store has was found in this log, which was not away since: finding it counts as hearing of others."""
        self.local = local
        self.log = log
        self.reached = (
            local.position
        )  # the last record that was read, which may be of a commit that is not whole
        self.trouble: StoreError | None = None  # for which it is tried again
        self.fault: StoreError | None = None  # with which it has ended
        self.current = 0.0  # by the clock: when there was nothing more to read for the last time
        self.hearing = Hearing(log.heard, clock)
        self.is_compared = is_compared
        self._led = led
        self._clock = clock
        self._reader = Reader()
        self._taken: tuple[Commit, Record] | None = None  # what the store has refused
        self._stopped = Event()
        self._thread = Thread(target=self._work, name="stompbox-applier", daemon=True)

    # One thread alone

    def step(self, wait: float = 0.0) -> int:
        """Reads and applies some; how many records there were. Raises LogError, StoreError: what was read is not lost by that."""
        self._apply_taken()
        self.hearing.asks(wait)
        try:
            self._compare()
            records = self.log.read(self.reached, MOST, wait)
        except LogError:
            self.is_compared = False  # it may be another server that answers the next time
            raise
        self.hearing.answered()
        for record in records:
            self._take(record)
        if not records:
            self.current = self._clock()
        return len(records)

    def _compare(self) -> None:
        """Raises LogError `log-went-back` where the log has not the record that the store has come to, or has another one there."""
        local = self.local
        if self.is_compared or not local.position or local.mark == UNMARKED:
            return
        gone = f"{self.log.name}: record {local.position}, which this node has applied, "
        while not (found := self.log.read(local.position - 1, 1, 0.0)):
            if (last := self.log.last()) < local.position:
                raise LogError("log-went-back", f"{gone}is not there any more: the last one is {last}")
        first = found[0]
        if (first.position, mark_of(first.epoch, first.payload)) != (local.position, local.mark):
            raise LogError("log-went-back", f"{gone}is another one now")
        self.is_compared = True

    def _take(self, record: Record) -> None:
        found = self._reader.take(record)
        self.reached = record.position
        if isinstance(found, Lead):
            self.local.leader = found
            self._led(record, found)
            found = Commit(entries={LEADER: lead_payload(found)})
        if found is not None:
            self._taken = found, record
            self._apply_taken()

    def _apply_taken(self) -> None:
        if self._taken is not None:
            commit, record = self._taken
            self.local.apply(commit, reached_by(record))
            self._taken = None

    def catch_up(self) -> None:
        """Applies all that the log has now. Raises LogError, StoreError."""
        self._compare()
        while self._taken is not None or self.log.last() > self.reached:
            self.step()

    def lead(self, lead: Lead) -> ReplicatedStore:
        """Reads what is left and takes the lead; the thread must have ended. Raises Fenced where somebody else was faster, LogError,
        StoreError."""
        self.catch_up()
        record = self.log.lead(self.reached, lead_payload(lead))
        self.reached = record.position
        self.local.leader = lead
        self.local.apply(Commit(entries={LEADER: record.payload}), reached_by(record))
        return ReplicatedStore(self.local, self.log, record)

    # In a thread of its own

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended: a read that waits may take a moment."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                self._go_on()
                self.trouble = None
            except StoreError as error:
                if error.code == "log-unavailable":
                    self.hearing.refused()
                elif error.code not in REFUSALS:
                    self.fault = error
                    return
                self.trouble = error
                self._stopped.wait(AGAIN)
            except Exception as error:
                self.fault = StoreError("store-failed", f"a fault of ours: {type(error).__name__}: {error}")
                return

    def _go_on(self) -> None:
        if count := self.step(WAIT):
            if count < FEW:
                self._stopped.wait(GATHER)
            return
        if not self.local.is_settled:
            self.local.settle()
        self.local.store.maintain()

    def __repr__(self) -> str:
        return f"<Applier {self.reached} {self.local!r}>"


class ReplicatedStore:
    """The leader's store. Raises Fenced, or StoreError of a code in DEPOSED, when it leads no more: then nothing is applied ever after."""

    def __init__(self, local: Local, log: CommitLog, lead: Record) -> None:
        self.local = local
        self.log = log
        self.epoch = lead.epoch
        self.last = lead.position  # of the log, as far as we know
        self._mark = UNMARKED  # of that record
        self.answered = monotonic()  # when the log has taken something
        self._ended: StoreError | None = None

    def apply(self, commit: Commit) -> None:
        if self._ended is not None:
            raise self._ended
        if not commit:
            return
        if any(run.is_staged for runs in commit.runs.values() for run in runs):
            # a record says what the messages are: other nodes may be of a version that reads no other chunks
            read = self.local.store.read_part
            commit = replace(commit, runs={log: taken_out(runs, read) for log, runs in commit.runs.items()})
        try:
            for kind, payload in cut(commit, self.log.largest):
                self._append(kind, payload)
        except StoreError as error:
            if error.code in DEPOSED:
                self._ended = error
            raise
        try:
            self.local.apply(commit, Position(self.last, self.epoch, self._mark))
        except StoreError as error:
            problem = f"record {self.last} is in the log, and not in this node's store: {error.message} ({error.code})"
            self._ended = StoreError("store-behind", problem)
            raise self._ended from error

    def _append(self, kind: Kind, payload: bytes) -> None:
        self.last = self.log.append(self.last, self.epoch, kind, payload)
        self._mark = mark_of(self.epoch, payload)
        self.answered = monotonic()

    def recover(self) -> Recovered:
        found = self.local.store.recover()
        for key in (POSITION, IDENTITY, LEADER):
            found.entries.pop(key, None)
        return found

    def read(self, log: int, start: int, stop: int, max_bytes: int) -> list[StoredChunk]:
        return self.local.store.read(log, start, stop, max_bytes)

    def read_part(self, body: int, number: int) -> bytes:
        return self.local.store.read_part(body, number)

    def find_time(self, log: int, timestamp: int) -> int:
        return self.local.store.find_time(log, timestamp)

    def sizes(self, logs: Iterable[int], since: Mapping[int, int] = NOWHERE) -> dict[int, tuple[int, int]]:
        return self.local.store.sizes(logs, since)

    def outline(self, log: int) -> Iterator[Part]:
        return self.local.store.outline(log)

    @property
    def unverified(self) -> str:
        return self.local.store.unverified

    def maintain(self) -> bool:
        if not self.local.is_settled:
            self.local.settle()
            return True
        return self.local.store.maintain()

    def close(self) -> None:
        self.local.close()

    def __repr__(self) -> str:
        return f"<ReplicatedStore epoch={self.epoch} last={self.last} {self.local!r}>"
