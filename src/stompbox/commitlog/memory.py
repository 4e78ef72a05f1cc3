"""A log in the memory of one process, which the handles of several nodes share: for tests, and the model of the protocol.

What an engine and a network can do to a node is set on its handle, at any time and from any thread:

| fault              | what the node sees                                                                                        |
|--------------------|-----------------------------------------------------------------------------------------------------------|
| `is_away`          | nothing gets through: calls raise `log-unavailable`, appends wait                                          |
| `loses`            | the connection ends in the middle of the next append, which LANDED or did not (BEFORE); then it is away    |
| `delay`            | seconds that every call takes                                                                              |
| `blocked`          | is called in place of waiting, so that one thread can play several nodes; it may raise to end the call      |

Of the log itself, `capacity` is how many records it takes before it is full. This file keeps nothing beyond the process.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from threading import Condition
from time import monotonic
from typing import Final
from uuid import uuid4

from stompbox.commitlog.base import Fenced, Kind, LogError, Record

LARGEST: Final = 1 << 20


class Loss(Enum):
    """What became of an append whose answer was lost."""

    BEFORE = "before"  # it never reached the log
    LANDED = "landed"


class SharedLog:
    """The log. `clock` gives seconds, as time.monotonic does."""

    def __init__(self, *, capacity: int | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.identity: Final = uuid4().hex
        self.capacity = capacity
        self.clock: Final = clock
        self.changed: Final = Condition()  # its lock is held whenever something here is touched
        self.records: list[Record] = []  # positions without gaps
        self.first = 1
        self.epoch = 0  # of the last record that is a LEAD
        self.handles: list[MemoryLog] = []

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    def open(self, node: str = "node", *, largest: int = LARGEST) -> MemoryLog:
        """A handle of its own for a node."""
        with self.changed:
            handle = MemoryLog(self, node, largest)
            self.handles.append(handle)
        return handle

    def append(self, writer: MemoryLog, expected: int, epoch: int, kind: Kind, payload: bytes) -> Record:
        """Appends a record; its caller has the lock. Raises what CommitLog.append raises where a log refuses one."""
        if expected != self.last:
            raise Fenced("fenced", f"{writer.name}: record {self.last} is the last, not {expected}")
        if self.capacity is not None and len(self.records) >= self.capacity:
            raise LogError("log-full", f"{writer.name}: there is room for {self.capacity} records")
        record = Record(expected + 1, epoch, kind, payload)
        self.records.append(record)
        if kind is Kind.LEAD:
            self.epoch = epoch
        self.tell(writer)
        return record

    def tell(self, writer: MemoryLog) -> None:
        """Every other node that the network reaches hears of it."""
        for handle in self.handles:
            if handle is not writer:
                handle.hear(self.clock())
        self.changed.notify_all()


class MemoryLog:
    """A node's handle of a SharedLog: a CommitLog with faults on demand."""

    def __init__(self, shared: SharedLog, node: str, largest: int) -> None:
        self._shared = shared
        self.largest: Final = largest
        self.identity: Final = shared.identity
        self._node = node
        self._is_closed = False
        self._is_away = False
        self._heard = 0.0
        self.loses: Loss | None = None
        self.delay = 0.0
        self.blocked: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        return f"log in memory, node {self._node}"

    @property
    def is_away(self) -> bool:
        return self._is_away

    @is_away.setter
    def is_away(self, is_away: bool) -> None:
        with self._shared.changed:
            self._is_away = is_away
            self._shared.changed.notify_all()

    def last(self) -> int:
        with self._shared.changed:
            self._reach()
            return self._shared.last

    def first(self) -> int:
        with self._shared.changed:
            self._reach()
            return self._shared.first

    def append(self, expected: int, epoch: int, kind: Kind, payload: bytes) -> int:
        if len(payload) > self.largest:
            raise ValueError(f"a record of {len(payload)} bytes; the most is {self.largest}")
        return self._append(expected, epoch, kind, payload).position

    def lead(self, expected: int, node: bytes) -> Record:
        return self._append(expected, None, Kind.LEAD, node)

    def _append(self, expected: int, epoch: int | None, kind: Kind, payload: bytes) -> Record:
        shared = self._shared
        with shared.changed:
            self._take_time()
            self._wait_while_away()
            loses, self.loses = self.loses, None
            if loses is not Loss.BEFORE:
                record = shared.append(
                    self, expected, shared.epoch + 1 if epoch is None else epoch, kind, payload
                )
            if loses is None:
                return record
            self._is_away = True
            self._wait_while_away()
            if loses is Loss.LANDED:  # found where it was to be
                return record
            return shared.append(self, expected, shared.epoch + 1 if epoch is None else epoch, kind, payload)

    def _wait_while_away(self) -> None:
        self._refuse_closed()
        while self._is_away:
            if self.blocked is None:
                self._shared.changed.wait()
            else:
                self.blocked()
            self._refuse_closed()

    def read(self, after: int, most: int, wait: float) -> list[Record]:
        shared = self._shared
        with shared.changed:
            self._reach()
            if shared.last <= after and wait > 0 and self.blocked is None:
                shared.changed.wait_for(lambda: self._is_woken(after), wait)
                self._reach()
            if after + 1 < shared.first:
                raise LogError(
                    "log-trimmed", f"{self.name}: record {after + 1} is gone, {shared.first} is the first"
                )
            found: list[Record] = []
            size = 0
            for record in shared.records[after + 1 - shared.first :]:
                size += len(record.payload)
                if found and size > most:
                    break
                found.append(record)
            return found

    def _is_woken(self, after: int) -> bool:
        return self._shared.last > after or self._is_closed or self._is_away

    def beat(self, epoch: int) -> None:
        shared = self._shared
        with shared.changed:
            self._reach()
            if epoch < shared.epoch:
                raise Fenced("fenced", f"{self.name}: epoch {shared.epoch} leads, not {epoch}")
            shared.tell(self)

    def heard(self) -> float:
        return self._heard

    def hear(self, now: float) -> None:
        """Something of another node has come, unless nothing comes here."""
        if not (self._is_away or self._is_closed):
            self._heard = now

    def trim(self, position: int) -> None:
        shared = self._shared
        with shared.changed:
            self._reach()
            gone = min(position, shared.last) - shared.first
            if gone > 0:
                del shared.records[:gone]
                shared.first += gone

    def close(self) -> None:
        with self._shared.changed:
            self._is_closed = True
            if self in self._shared.handles:
                self._shared.handles.remove(self)
            self._shared.changed.notify_all()

    def _reach(self) -> None:
        """For a call that does not wait until the log is back."""
        self._take_time()
        self._refuse_closed()
        if self._is_away:
            raise LogError("log-unavailable", f"{self.name}: no answer")

    def _take_time(self) -> None:
        if self.delay:
            self._shared.changed.wait_for(lambda: self._is_closed, self.delay)

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise LogError("log-closed", f"{self.name}: it was closed")

    def __repr__(self) -> str:
        return f"<MemoryLog {self._node} {self._shared.first}..{self._shared.last} away={self._is_away}>"
