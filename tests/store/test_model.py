"""Both stores against a model that is obvious: a dict of messages per log, a set of offsets per cursor, a dict of entries."""

from __future__ import annotations

import gc
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from stompbox.store import housekeeping, sqlite
from stompbox.store.base import Commit, Store
from stompbox.store.changes import LogState, LogStates
from stompbox.store.chunks import decode
from stompbox.store.journaled import JournaledStore
from stompbox.store.memory import MemoryStore
from stompbox.store.sqlite import SqliteStore
from tests.store.journals import forsake
from tests.store.runs import run, told

CHUNK_BYTES = 200
END = 1 << 40


class Model:
    """What a store should hold. Messages below a log's floor may or may not be there still; `floors` says from where on they must."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.next: dict[int, int] = {}
        self.floors: dict[int, int] = {}
        self.messages: dict[int, dict[int, Any]] = {}
        self.cursors: dict[int, tuple[int, set[int]]] = {}  # log, acknowledged
        self.entries: dict[tuple[str, str], bytes] = {}

    def apply(self, commit: Commit) -> None:
        for log, name in commit.logs.items():
            self.names[log], self.next[log], self.floors[log], self.messages[log] = name, 0, 0, {}
        for cursor, (log, position) in commit.cursors.items():
            self.cursors[cursor] = log, set(range(position))
        for log, runs in commit.runs.items():
            for message in told(runs):
                self.messages[log][message[0]] = message
                self.next[log] = max(self.next[log], message[0] + 1)
        for log, offset in commit.next_offsets.items():
            self.next[log] = max(self.next[log], offset)
        for cursor, ranges in commit.acknowledged.items():
            for start, stop in ranges:
                self.cursors[cursor][1].update(range(start, stop))
        for place, value in commit.entries.items():
            self.entries.pop(place, None)
            if value is not None:
                self.entries[place] = value
        for log, floor in commit.trims.items():
            self.floors[log] = max(self.floors[log], min(floor, self.next[log]))
        for cursor in commit.dropped_cursors:
            self.cursors.pop(cursor)
        for log in commit.dropped_logs:
            for table in (self.names, self.next, self.floors, self.messages):
                table.pop(log)


class Stores(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.model = Model()
        self.sqlite = self.opened()
        self.journaled = self.opened_with_journal()
        self.memory = MemoryStore(chunk_bytes=CHUNK_BYTES)

    def opened_with_journal(self) -> JournaledStore:
        return JournaledStore(
            SqliteStore(self.folder / "journaled", synchronous=False, chunk_bytes=CHUNK_BYTES)
        )

    def opened(self) -> SqliteStore:
        return SqliteStore(self.folder / "data", synchronous=False, chunk_bytes=CHUNK_BYTES)

    def apply(self, commit: Commit) -> None:
        self.model.apply(commit)
        self.sqlite.apply(commit)
        self.journaled.apply(commit)
        self.memory.apply(commit)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        commit = Commit()
        model = self.model
        ids = st.integers(1, 4)
        if (log := data.draw(ids)) not in model.names:
            commit.logs[log] = f"log {log}"
        logs = [*model.names, *commit.logs]
        for log in data.draw(st.lists(st.sampled_from(logs), unique=True, max_size=3)):
            first = model.next.get(log, 0) + data.draw(st.sampled_from([0, 0, 3]))
            counts = data.draw(st.lists(st.integers(1, 12), max_size=3))
            commit.runs[log] = [
                run(first + sum(counts[:at]), count, arrived=first) for at, count in enumerate(counts)
            ]
            if data.draw(st.booleans()):
                commit.next_offsets[log] = first + data.draw(st.integers(0, 40))
            if data.draw(st.booleans()):
                commit.trims[log] = data.draw(st.integers(0, first + 30))
        if data.draw(st.booleans()):
            commit.cursors[data.draw(ids)] = data.draw(st.sampled_from(logs)), data.draw(st.integers(0, 20))
        for cursor in data.draw(st.lists(st.sampled_from([0, *model.cursors, *commit.cursors]), unique=True)):
            if cursor:
                starts = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=4))
                commit.acknowledged[cursor] = [
                    (start, start + data.draw(st.integers(1, 9))) for start in starts
                ]
        for key in data.draw(st.lists(st.sampled_from("abc"), unique=True)):
            commit.entries["queue", key] = data.draw(st.none() | st.binary(max_size=3))
        self.apply(commit)

    @rule(data=st.data(), log=st.integers(1, 4))
    def store_late(self, data: st.DataObject, log: int) -> None:
        """Messages that were not worth storing, until their queue was paged."""
        gaps = sorted(
            set(range(self.model.floors.get(log, 0), self.model.next.get(log, 0)))
            - self.model.messages.get(log, {}).keys()
        )
        if gaps:
            chosen = data.draw(st.lists(st.sampled_from(gaps), unique=True, min_size=1, max_size=4))
            self.apply(
                Commit(runs={log: [run(offset, arrived=offset, body=b"late") for offset in sorted(chosen)]})
            )

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        logs = data.draw(st.lists(st.sampled_from([0, *self.model.names]), unique=True, max_size=2))
        cursors = data.draw(st.lists(st.sampled_from([0, *self.model.cursors]), unique=True, max_size=2))
        self.apply(
            Commit(
                dropped_logs=[log for log in logs if log],
                dropped_cursors=[cursor for cursor in cursors if cursor],
            )
        )

    @rule()
    def maintain(self) -> None:
        assert self.memory.maintain() is False
        self.sqlite.maintain()
        self.journaled.maintain()

    @rule()
    def reopen(self) -> None:
        self.sqlite.close()
        self.sqlite = self.opened()
        self.journaled.close()
        self.journaled = self.opened_with_journal()

    @rule()
    def crash(self) -> None:
        """Without a word: what was in the journal is read from there."""
        forsake(self.journaled)
        self.journaled = self.opened_with_journal()

    @rule(
        start=st.integers(0, 80),
        size=st.integers(0, 40),
        max_bytes=st.integers(0, 1000),
        log=st.integers(1, 4),
    )
    def read(self, start: int, size: int, max_bytes: int, log: int) -> None:
        found = self.sqlite.read(log, start, start + size, max_bytes)
        assert found == self.memory.read(log, start, start + size, max_bytes)
        assert all(one.stop <= other.first for one, other in pairwise(found)), "chunks never overlap"
        if found:
            assert found[0].stop > start
            assert found[-1].first < start + size
            assert len(found) == 1 or sum(len(chunk.blob) for chunk in found) <= max_bytes

    @rule(timestamp=st.integers(0, 80), log=st.integers(1, 4))
    def find_time(self, timestamp: int, log: int) -> None:
        assert self.sqlite.find_time(log, timestamp) == self.memory.find_time(log, timestamp)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        for store in (self.sqlite, self.journaled, self.memory):
            self.assert_recovers(store)
            self.assert_reads(store)
        assert self.sqlite.sizes(range(5)) == self.memory.sizes(range(5))

    def assert_recovers(self, store: Store) -> None:
        found = store.recover()
        assert {log.id: (log.name, log.next) for log in found.logs} == {
            log: (name, self.model.next[log]) for log, name in self.model.names.items()
        }
        assert found.entries == self.model.entries
        cursors = {}
        for cursor in found.cursors:
            ahead = {offset for start, stop in cursor.ahead for offset in range(start, stop)}
            assert cursor.position not in ahead
            cursors[cursor.id] = cursor.log, ahead | set(range(cursor.position))
        assert cursors == self.model.cursors

    def assert_reads(self, store: Store) -> None:
        firsts = {log.id: log.first for log in store.recover().logs}
        for log in range(1, 5):
            stored = [
                message
                for chunk in store.read(log, 0, END, END)
                for message in told(decode(chunk.blob, chunk.first))
            ]
            expected = self.model.messages.get(log, {})
            floor = self.model.floors.get(log, 0)
            assert [message for message in stored if message[0] >= floor] == [
                expected[at] for at in sorted(expected) if at >= floor
            ]
            assert all(expected[message[0]] == message for message in stored)
            if log in firsts:
                assert firsts[log] == (stored[0][0] if stored else self.model.next[log])

    def teardown(self) -> None:
        if hasattr(self, "sqlite"):
            self.sqlite.close()
            self.journaled.close()
            shutil.rmtree(self.folder)


def test_stores_do_what_the_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "FOLD_ROWS", 3)
    for name, value in (("SWEEP_BYTES", 1), ("SWEEP_ROWS", 1), ("SWEEP_TIMES", 0)):
        monkeypatch.setattr(housekeeping, name, value)
    run_state_machine_as_test(
        Stores, settings=settings(max_examples=50, stateful_step_count=30, deadline=None, derandomize=True)
    )


def test_a_log_that_the_store_has_heard_of_is_no_object_of_its_own() -> None:
    """It would be made between what is young, and lie there as long as the log."""
    store = MemoryStore()
    names = {log: f"heard-of {log}" for log in range(100)}
    store.apply(Commit(logs=names, next_offsets=dict.fromkeys(names, 1000), trims=dict.fromkeys(names, 500)))
    assert not [
        found for found in gc.get_objects() if type(found) is LogState and found.name in names.values()
    ]
    assert {log.id: (log.name, log.next) for log in store.recover().logs} == {
        log: (name, 1000) for log, name in names.items()
    }


def test_states_of_logs_are_those_that_were_told_last() -> None:
    states = LogStates()
    states.update({1: LogState("one"), 2: LogState("two", 7, 5, 6)})
    states.update({1: LogState("one", 3)})
    assert dict(states) == {1: LogState("one", 3), 2: LogState("two", 7, 5, 6)}
    states.drop([2, 99])
    assert dict(states) == {1: LogState("one", 3)}
    states.update({2: LogState("again")})
    assert states[2] == LogState("again"), "nothing is left of the one before"
    assert states.get(3) is None
