"""Finding a time in a log to which commits come meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stompbox.server.requests.fetching import offset_at_time
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from tests.store.runs import run


class Committer:
    """Of a store to which the next commit comes as soon as a time was looked for."""

    def __init__(self, log: Any, *commits: list[int]) -> None:
        self.log = log
        self.store = MemoryStore()
        self.store.apply(Commit(logs={1: "q"}))
        self.commits = list(commits)

    def _land(self) -> None:
        if self.commits:
            runs = [run(offset, arrived=100 * (offset + 1)) for offset in self.commits.pop(0)]
            self.store.apply(Commit(runs={1: runs}))
            self.log.committed = runs[-1].stop

    async def find_time(self, log: int, timestamp: int) -> int:
        found = self.store.find_time(log, timestamp)
        self._land()
        return found

    async def read(self, log: int, start: int, stop: int, max_bytes: int) -> list[Any]:
        found = self.store.read(log, start, stop, max_bytes)
        self._land()
        return found


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(0, 0), (100, 0), (150, 1), (250, 2), (300, 2), (301, 3), (9999, 3)]
)
def test_what_lands_while_a_time_is_looked_for_is_looked_at(timestamp: int, expected: int) -> None:
    log = SimpleNamespace(id=1, committed=0)
    committer = Committer(log, [0, 1], [2])
    broker: Any = SimpleNamespace(committer=committer)
    address: Any = SimpleNamespace(log=log)
    assert asyncio.run(offset_at_time(broker, address, timestamp)) == expected
