"""A store of either kind, small chunks so that there are many, and a way to open it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stompbox.store.base import Store
from stompbox.store.journaled import JournaledStore
from stompbox.store.memory import MemoryStore
from stompbox.store.overflow import Overflow
from stompbox.store.sqlite import SqliteStore

CHUNK_BYTES = 400


class Opened:
    """`store`, and `again()`: closed and opened again, where there is something to open."""

    def __init__(self, open: Callable[[], Store], *, keeps: bool) -> None:
        self._open = open
        self._keeps = keeps
        self.merges = False  # commits, so that chunks are not as they came
        self.store = open()

    def again(self) -> Store:
        if self._keeps:
            self.store.close()
            self.store = self._open()
        return self.store

    def both(self) -> Iterator[Store]:
        """As it is, and opened again."""
        yield self.store
        yield self.again()


@pytest.fixture(params=["memory", "overflow", "sqlite", "journaled"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    if request.param == "memory":
        found = Opened(lambda: MemoryStore(chunk_bytes=CHUNK_BYTES), keeps=False)
    elif request.param == "overflow":
        found = Opened(
            lambda: MemoryStore(chunk_bytes=CHUNK_BYTES, overflow=Overflow(file_bytes=1000)), keeps=False
        )
    elif request.param == "journaled":
        found = Opened(
            lambda: JournaledStore(SqliteStore(tmp_path / "data", chunk_bytes=CHUNK_BYTES)), keeps=True
        )
        found.merges = True
    else:
        found = Opened(lambda: SqliteStore(tmp_path / "data", chunk_bytes=CHUNK_BYTES), keeps=True)
    yield found
    found.store.close()


@pytest.fixture
def store(opened: Opened) -> Store:
    return opened.store
