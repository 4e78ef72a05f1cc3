"""Chunks of a broker without a disk: in files that go when nothing in them is needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stompbox.errors import StoreError
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from stompbox.store.overflow import Overflow
from tests.store.runs import run

FILES = Path(f"/proc/{os.getpid()}/fd")


def open_files() -> int:
    """Files without a name that this process holds."""
    found = 0
    for link in FILES.iterdir():
        try:
            found += "stompbox-" in os.readlink(link) or "(deleted)" in os.readlink(link)
        except FileNotFoundError:
            continue
    return found


@pytest.mark.skipif(not FILES.exists(), reason="needs /proc")
def test_what_is_consumed_gives_its_disk_back() -> None:
    before = open_files()
    store = MemoryStore(chunk_bytes=100, overflow=Overflow(file_bytes=2000))
    assert open_files() == before, "nothing is made before it is needed"
    store.apply(Commit(logs={1: "q"}))
    for number in range(100):
        store.apply(Commit(runs={1: [run(number)]}))
    most = open_files() - before
    assert most > 3
    assert [chunk.first for chunk in store.read(1, 40, 60, 1 << 20)] == list(range(40, 60))
    store.apply(Commit(trims={1: 90}))
    assert open_files() - before < most / 2
    store.apply(Commit(dropped_logs=[1]))
    store.close()
    del store
    assert open_files() == before


def test_a_full_disk_is_an_error_and_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(overflow=Overflow())
    store.apply(Commit(logs={1: "q"}))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(StoreError, match="No space left") as error:
            store.apply(Commit(runs={1: [run(0)]}))
    assert error.value.code == "disk-full"
    assert store.read(1, 0, 10, 1 << 20) == []
    store.apply(Commit(runs={1: [run(0)]}))
    assert len(store.read(1, 0, 10, 1 << 20)) == 1
