"""A disk that stands still: who waits for it waits, and nobody else does. Of the log no more is read than the loop can take at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any, cast
from weakref import ref

import pytest

from stompbox.message import Run
from stompbox.server import committer
from stompbox.server.committer import LONG, SHARE, TURNS, WANTED, Committer
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from tests.broker.world import run_of
from tests.server.world import WITHIN, House, configured, play

BEATS = 5
EVERY = 50  # ms


class Stalling(MemoryStore):
    """Once `is_armed`, a commit lasts until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False
        self.stands = Event()
        self.go = Event()

    def apply(self, commit: Commit) -> None:
        if self.is_armed:
            self.stands.set()
            self.go.wait(WITHIN)
        super().apply(commit)


@pytest.mark.parametrize("fast", [True, False], ids=["uvloop", "asyncio"])
def test_heart_beats_and_what_is_not_persistent_go_on(tmp_path: Path, *, fast: bool) -> None:
    store = Stalling()

    async def story(house: House) -> None:
        patient = await house.client(more=f"heart-beat:0,{EVERY}\n")
        other = await house.client()
        other.say("SUBSCRIBE\nid:1\ndestination:/topic/news\nreceipt:ready\n\n\0")
        await other.hear(b"receipt-id:ready\n\n\0\n")
        await house.until(lambda: not house.broker.committer.is_busy, "all is stored")
        store.is_armed = True
        patient.say("SEND\ndestination:/queue/q\npersistent:true\nreceipt:stored\n\nx\0")
        try:
            await house.until(store.stands.is_set, "the disk stands still")
            for number in range(BEATS):
                assert await patient.hear(b"\n") == b"\n"
                other.say(f"SEND\ndestination:/topic/news\n\n{number}\0")
                assert (await other.hear(b"\0\n")).endswith(f"\n\n{number}\0\n".encode())
            assert not store.go.is_set() and not patient.heard
        finally:
            store.go.set()
        assert b"receipt-id:stored" in await patient.hear(b"\0\n")

    play(configured(tmp_path), story, store=store, fast=fast)


class Moments:
    """Stands for the clock of the loop, and for the pauses in which it lets go of Python's lock. `taken`: seconds until it has it again, of
    one pause after the other; then as long as it asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.taken: list[float] = []
        self.count = 0
        monkeypatch.setattr(committer, "sleep", self._sleep)
        monkeypatch.setattr(committer, "perf_counter", self.time)

    def time(self) -> float:
        return self.now

    def _sleep(self, seconds: float) -> None:
        self.count += 1
        self.now += self.taken.pop(0) if self.taken else seconds

    def in_turn(self, writer: Committer, taken: Sequence[float] = ()) -> int:
        """How often the loop gives way in one turn."""
        self.taken, self.count = list(taken), 0
        writer.give_way()
        return self.count


def test_a_busy_loop_gives_way_to_a_commit_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = Moments(monkeypatch)
    writer = Committer(MemoryStore(), cast(Any, moments), lambda *_: None, lambda *_: None)
    try:
        moments.now = 2 * LONG
        assert not moments.in_turn(writer), "there is none"
        writer.is_busy, writer.since = True, moments.now
        moments.now += LONG / 2
        assert not moments.in_turn(writer), "it is a short one"
        moments.now += LONG
        assert moments.in_turn(writer, [2 * WANTED]) == 2, "as long as it is wanted"
        assert moments.in_turn(writer, [SHARE / 2] * 9) == 2, "and for its share of the turn"
        assert [moments.in_turn(writer) for _ in range(TURNS + 2)] == [1, *[0] * TURNS, 1], "nobody wants it"
        assert moments.in_turn(writer) == 0
    finally:
        writer.close()


COUNT = 60  # runs in the log, of one message each
RUNS = 8  # of one portion


def runs() -> list[Run]:
    found = []
    for first in range(COUNT):
        run = run_of(f"q-{first}", b"x" * 100)
        run.first = first
        found.append(run)
    return found


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_log_of_very_many_runs_is_read_in_portions(max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "RUNS", RUNS)
    store = MemoryStore(chunk_bytes=300)
    store.apply(Commit(logs={1: "q"}, runs={1: runs()}))
    in_chunk = max(chunk.count for chunk in store.read(1, 0, COUNT, 1 << 20))
    assert 1 <= in_chunk < RUNS

    async def portions() -> list[list[int]]:
        reader = Committer(store, asyncio.get_running_loop(), lambda *_: None, lambda *_: None)
        found, at = [], 0
        while at < COUNT:
            loaded, stop = await reader.load(1, at, COUNT, max_bytes)
            assert [run.first for run in loaded] == list(range(at, stop))
            found.append([run.first for run in loaded])
            at = stop
        assert await reader.load(1, COUNT, COUNT + 5, max_bytes) == ([], COUNT + 5)
        await asyncio.to_thread(reader.close)
        return found

    found = asyncio.run(portions())
    most = in_chunk if max_bytes == 1 else RUNS - 1 + in_chunk
    assert max(map(len, found)) <= most
    assert max_bytes == 1 or max(map(len, found)) >= RUNS


def test_who_decodes_what_was_read_lets_the_loop_have_its_way_for_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that a chunk moves by 2 ms, and the last one by a second."""
    now, slept, took = [0.0], list[float](), [0.002, 0.002, 1.0]
    store = MemoryStore(chunk_bytes=300)
    store.apply(Commit(logs={1: "q"}, runs={1: runs()}))

    def decoded(*wish: object) -> list[Run]:
        now[0] += took.pop(0) if len(took) > 1 else took[0]
        return []

    monkeypatch.setattr(committer, "decode", decoded)
    monkeypatch.setattr(committer, "perf_counter", lambda: now[0])
    monkeypatch.setattr(committer, "sleep", slept.append)

    async def load() -> None:
        reader = Committer(store, asyncio.get_running_loop(), lambda *_: None, lambda *_: None)
        await reader.load(1, 0, COUNT, 1 << 20)
        await asyncio.to_thread(reader.close)

    asyncio.run(load())
    assert slept[:2] == pytest.approx([0.002, 0.002])
    assert len(slept) > 2 and set(slept[2:]) == {committer.POLITE}


class Kept(Commit):
    """One that can be looked for."""


def test_what_was_stored_last_is_not_kept_until_something_is_stored_again() -> None:
    """It may be all that a client was allowed to send, and the next one may be long in coming."""

    async def story() -> None:
        told = asyncio.Event()
        found = Committer(MemoryStore(), asyncio.get_running_loop(), lambda *_: told.set(), lambda *_: None)
        commit = Kept(entries={("test", "key"): b"value"})
        mark = ref(commit)
        found.submit(commit)
        del commit
        async with asyncio.timeout(WITHIN):
            await told.wait()
            while mark() is not None:
                await asyncio.sleep(0)
        found.close()

    asyncio.run(story())
