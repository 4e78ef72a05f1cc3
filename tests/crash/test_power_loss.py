"""Power lost at any moment: what was synced is there, what was not may be there in any part. The store has exactly its commits.

Commits and housekeeping are recorded write by write; then the disk is put together as a loss of power at some point may have
left it, and opened. `make soak` tries every point of more recordings.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

import pytest

from stompbox.store import sqlite, wal
from stompbox.store.memory import MemoryStore
from stompbox.store.sqlite import SqliteStore
from tests.crash.commits import Commits, contents
from tests.crash.disk import Disk, Operation, Platter, Sync
from tests.crash.stores import CHUNK_BYTES, Opening, alone, make_busy, with_journal

IS_LONG = bool(os.environ.get("SOAK"))
SEEDS = range(20) if IS_LONG else range(2)
COMMITS = 60
EVERY = 1 if IS_LONG else 11  # points of a recording that are tried
NEVER = 1 << 60
SHARES = (0.0, 0.5, 1.0)  # of the sectors on their way that arrive


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a store does now and then, often."""
    make_busy(monkeypatch, fold_rows=7, wal_most=100_000, wal_idle=30_000, waiting=5)
    monkeypatch.setattr("stompbox.store.wal.Walk.sums", remembered(wal.Walk.sums))


def remembered(
    sums: Callable[[wal.Walk, int, wal.Sums], wal.Sums],
) -> Callable[[wal.Walk, int, wal.Sums], wal.Sums]:
    """Most frames of a write-ahead log are those of the moment before."""
    known: dict[tuple[bytes, wal.Sums], wal.Sums] = {}

    def look(walk: wal.Walk, at: int, before: wal.Sums) -> wal.Sums:
        key = walk.data[at : at + walk.size], before
        found = known.get(key)
        if found is None:
            found = known[key] = sums(walk, at, before)
        return found

    return look


class Recording:
    """`states[n]`: the contents after n commits; `durable[n]`: how many operations had been done when that was promised.

    Some commits are loose, so that nothing is promised until the next one that is not. With a journal none is: there they wait in memory
    alone, and one that is lost leaves a hole behind which others are.
    """

    def __init__(self, open: Opening, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        disk = Disk(f"recording-{open.__name__}-{seed}")
        random, commits = Random(seed), Commits(seed)
        self.operations: list[Operation] = disk.operations
        self.durable = [0]
        self.applied = [0]  # how many had been done when the store had the commit
        self.loose = 0
        with closing(MemoryStore(chunk_bytes=CHUNK_BYTES)) as memory, monkeypatch.context() as patched:
            disk.take_over(patched)
            self.states: list[dict[str, Any]] = [contents(memory)]
            store = open(folder)
            for _ in range(COMMITS):
                commit = next(commits)
                commit.is_loose = open is alone and not commit.logs and random.random() < 0.3
                store.apply(commit)
                self.applied.append(len(disk.operations))
                if commit.is_loose:
                    self.loose += 1
                    self.durable.append(NEVER)
                else:
                    self.durable.append(len(disk.operations))
                memory.apply(commit)
                self.states.append(contents(memory))
                if random.random() < 0.2:
                    while store.maintain():
                        pass
                if random.random() < 0.05:
                    store.close()
                    store = open(folder)
            store.close()
            self.records = disk.records


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("open", [alone, with_journal])
def test_a_store_has_its_commits_after_power_was_lost(
    open: Opening, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording(open, tmp_path / "recorded", seed, monkeypatch)
    random, platter = Random(seed), Platter()
    tried, further = 0, 0
    # by what lies on the disk: where nothing of the last operations arrived it is the same
    opened: dict[bytes, dict[str, Any]] = {}
    for cut, operation in enumerate(recording.operations, 1):
        platter.do(operation)
        if random.randrange(EVERY):
            continue
        files = platter.after_power_loss(random, random.choice(SHARES))
        key = digest(files)
        if key not in opened:
            opened[key] = found_in(open, tmp_path / f"cut-{cut}", files)
        found = opened[key]
        promised = max(number for number, at in enumerate(recording.durable) if at <= cut)
        applied = max(number for number, at in enumerate(recording.applied) if at <= cut)
        possible = recording.states[promised : applied + 2]
        assert found in possible, (
            f"seed {seed}, power lost after operation {cut}: {found['entries']}, promised {possible[0]['entries']}"
        )
        tried, further = tried + 1, further + (found != possible[0])
    assert tried > 100
    assert (recording.records > 10) == (open is with_journal), "what is to be tried is written"
    assert further > 0
    assert (recording.loose > 5) == (open is alone)


def digest(files: dict[str, bytearray]) -> bytes:
    found = blake2b()
    for name, content in sorted(files.items()):
        found.update(b"%b %d\n" % (name.encode(), len(content)))
        found.update(content)
    return found.digest()


def found_in(open: Opening, folder: Path, files: dict[str, bytearray]) -> dict[str, Any]:
    """What a store has that is opened on these files."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with closing(open(folder)) as store:
        found = contents(store)
    rmtree(folder)
    return found


def test_loose_commits_cost_no_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "WAL_MOST", 1 << 30)  # a checkpoint syncs, now and then
    disk, commits = Disk("loose"), Commits(1)
    with monkeypatch.context() as patched:
        disk.take_over(patched)
        with closing(alone(tmp_path / "data")) as store:
            store.apply(next(commits))
            before = disk.operations.count(Sync("stompbox.db-wal")), len(disk.operations)
            for _ in range(10):
                commit = next(commits)
                commit.is_loose = True
                store.apply(commit)
            assert not any(isinstance(operation, Sync) for operation in disk.operations[before[1] :])
            assert len(disk.operations) > before[1] + 10, "they are written all the same"
            store.apply(next(commits))
            assert disk.operations.count(Sync("stompbox.db-wal")) == before[0] + 1


def test_a_disk_that_never_syncs_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the test above can fail: without fsync commits are lost."""
    disk = Disk("careless")
    platter = Platter()
    with monkeypatch.context() as patched:
        disk.take_over(patched)
        with closing(SqliteStore(tmp_path / "recorded", synchronous=False)) as store:
            store.apply(next(Commits(1)))
            for operation in disk.operations:
                platter.do(operation)
    folder = tmp_path / "cut"
    folder.mkdir()
    for name, content in platter.after_power_loss(Random(1), 0.0).items():
        (folder / name).write_bytes(content)
    with closing(SqliteStore(folder)) as store:
        assert contents(store)["logs"] == {}
