"""Power lost at any moment: what was synced is there, what was not may be there in any part. The store has exactly its commits.

Commits and housekeeping are recorded write by write; then the disk is put together as a loss of power at some point may have
left it, and opened. `make soak` tries every point of more recordings.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stompbox.store import housekeeping, merging, schema, sqlite
from stompbox.store.memory import MemoryStore
from stompbox.store.sqlite import SqliteStore
from tests.crash.commits import Commits, contents
from tests.crash.disk import Disk, Operation, Platter

IS_LONG = bool(os.environ.get("SOAK"))
SEEDS = range(20) if IS_LONG else range(2)
COMMITS = 60
EVERY = 1 if IS_LONG else 11  # points of a recording that are tried
SHARES = (0.0, 0.5, 1.0)  # of the sectors on their way that arrive
CHUNK_BYTES = 4000


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a store does now and then, often."""
    monkeypatch.setattr(sqlite, "FOLD_ROWS", 7)
    monkeypatch.setattr(sqlite, "WAL_MOST", 100_000)
    monkeypatch.setattr(housekeeping, "WAL_IDLE", 30_000)
    for name, value in (("SWEEP_ROWS", 2), ("SLACK", 0), ("FREE_SHARE", 1000)):
        monkeypatch.setattr(housekeeping, name, value)
    for module, name, value in ((merging, "WAITING", 1), (merging, "PORTION", 2), (sqlite, "PORTION", 2)):
        monkeypatch.setattr(module, name, value)


class Recording:
    """`states[n]`: the contents after n commits; `durable[n]`: how many operations had been done when that was promised."""

    def __init__(self, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        disk = Disk(f"recording-{seed}")
        random, commits = Random(seed), Commits(seed)
        self.operations: list[Operation] = disk.operations
        self.durable = [0]
        with closing(MemoryStore(chunk_bytes=CHUNK_BYTES)) as memory, monkeypatch.context() as patched:
            patched.setattr(schema, "connect", disk.connect)
            self.states: list[dict[str, Any]] = [contents(memory)]
            store = SqliteStore(folder, chunk_bytes=CHUNK_BYTES)
            for _ in range(COMMITS):
                commit = next(commits)
                store.apply(commit)
                self.durable.append(len(disk.operations))
                memory.apply(commit)
                self.states.append(contents(memory))
                if random.random() < 0.2:
                    while store.maintain():
                        pass
                if random.random() < 0.05:
                    store.close()
                    store = SqliteStore(folder, chunk_bytes=CHUNK_BYTES)
            store.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_has_its_commits_after_power_was_lost(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording(tmp_path / "recorded", seed, monkeypatch)
    random, platter = Random(seed), Platter()
    tried, further = 0, 0
    for cut, operation in enumerate(recording.operations, 1):
        platter.do(operation)
        if random.randrange(EVERY):
            continue
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        for name, content in platter.after_power_loss(random, random.choice(SHARES)).items():
            (folder / name).write_bytes(content)
        promised = max(number for number, at in enumerate(recording.durable) if at <= cut)
        with closing(SqliteStore(folder, chunk_bytes=CHUNK_BYTES)) as store:
            found = contents(store)
        possible = recording.states[promised : promised + 2]
        assert found in possible, f"seed {seed}, power lost after operation {cut}: {found['entries']}, promised {possible[0]['entries']}"
        tried, further = tried + 1, further + (found != possible[0])
    assert tried > 100
    assert further > 0


def test_a_disk_that_never_syncs_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the test above can fail: without fsync commits are lost."""
    disk = Disk("careless")
    platter = Platter()
    with monkeypatch.context() as patched:
        patched.setattr(schema, "connect", disk.connect)
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
