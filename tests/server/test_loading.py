"""Reads for paged queues: a few are under way at once, and what was read counts until the loop has it where it is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from stompbox.broker.logs.segments import cost_of_all
from stompbox.broker.queues.contracts import Load
from stompbox.errors import StoreError
from stompbox.message import Run
from stompbox.server import committer
from stompbox.server.committer import Committer
from stompbox.server.loading import MOST
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from tests.server.test_committer import COUNT, runs
from tests.server.turning import World

MANY = 3 * MOST


def test_a_few_reads_are_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many queues want something; one that cannot be read makes room for the next."""
    world = World()
    world.client().say(("SUBSCRIBE", {"id": "1", "destination": "/queue/paged"}))
    [queue] = world.broker.engine.queues.values()
    begun: list[Coroutine[Any, Any, None]] = []
    taken: list[int] = []

    async def load(log: int, start: int, stop: int, most: int) -> tuple[list[Run], int]:
        if start == 1:
            raise StoreError("io-error", "it cannot be read")
        return [], stop

    def then(_: object, runs: list[Run], start: int, stop: int) -> None:
        taken.append(start)

    monkeypatch.setattr(world.broker.committer, "load", load)
    monkeypatch.setattr(world.broker, "spawn", begun.append)
    world.broker.engine.loads += [Load(queue, start, start + 1, then) for start in range(MANY)]
    for _ in range(2):
        world.broker.flush()
        assert len(begun) == world.broker.loads.under_way == MOST
    while begun:
        with pytest.raises(StopIteration):
            begun.pop(0).send(None)
        assert world.broker.loads.under_way <= MOST
        world.turn(2)
    assert taken == [start for start in range(MANY) if start != 1], "in order, each once"
    assert world.broker.loads.under_way == 0 and not world.broker.engine.loads


def test_what_the_loop_has_not_taken_over_leaves_room_for_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = runs()
    store = MemoryStore(chunk_bytes=300)
    store.apply(Commit(logs={1: "q"}, runs={1: stored}))
    [chunk] = store.read(1, 0, COUNT, 1)
    assert chunk.count < COUNT // 4
    monkeypatch.setattr(committer, "AHEAD", cost_of_all(stored) // 2)

    async def story() -> None:
        reader = Committer(store, asyncio.get_running_loop(), lambda *_: None, lambda *_: None)
        first, stop = await reader.load(1, 0, COUNT, 1 << 20)
        assert stop == COUNT == len(first), "there was room"
        second, stop = await reader.load(1, 0, COUNT, 1 << 20)
        assert stop == chunk.count == len(second)
        reader.take_over(first)
        third, stop = await reader.load(1, 0, COUNT, 1 << 20)
        assert chunk.count < stop == len(third)
        for found in (second, third):
            reader.take_over(found)
        assert (await reader.load(1, 0, COUNT, 1 << 20))[1] == COUNT
        await asyncio.to_thread(reader.close)

    asyncio.run(story())
