"""Each call to the disk fails once, in turn, as SQLite tests itself: the store says so, holds nothing half, and goes on.

The same commits run again and again, another call failing in each run. `make soak` leaves out none, and has more commits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from stompbox.errors import StoreError
from stompbox.store.memory import MemoryStore
from tests.crash.commits import Commits, contents
from tests.crash.disk import Disk
from tests.crash.stores import CHUNK_BYTES, AnyStore, Opening, alone, make_busy, patient, with_journal

IS_LONG = bool(os.environ.get("SOAK"))
COMMITS = 30 if IS_LONG else 9
SEED = 9  # of commits of which the journal takes some from the beginning
EVERY = 1 if IS_LONG else 11  # of the reads and writes
CODES = {"io-error", "disk-full", "data-not-writable"}


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a store does now and then, often."""
    make_busy(monkeypatch, fold_rows=5, wal_most=60_000, wal_idle=20_000, waiting=3)


@lru_cache(1)
def states() -> list[dict[str, Any]]:
    """What a store holds before the first commit, and after each: the same in all runs, and so worked out once."""
    memory, commits = MemoryStore(chunk_bytes=CHUNK_BYTES), Commits(SEED)
    found = [contents(memory)]
    for _ in range(COMMITS):
        memory.apply(next(commits))
        found.append(contents(memory))
    return found


class Trial:
    """One run of the commits on a disk that fails once; what fails is tried again. `reads`: what the store has is looked at all the time;
    else only since a call has failed, because up to there all runs are the same."""

    def __init__(self, folder: Path, disk: Disk, open: Opening, *, reads: bool) -> None:
        self.folder = folder
        self.disk = disk
        self.open = open
        self.reads = reads
        self.errors: list[StoreError] = []

    def twice(self, do: Callable[[], object]) -> object:
        """Whatever is wrong once is right the second time."""
        try:
            return do()
        except StoreError as error:
            self.errors.append(error)
            return do()

    def run(self) -> None:
        commits = Commits(SEED)
        store = self.opened()
        for number in range(COMMITS):
            commit = next(commits)
            failures = len(self.errors)
            try:
                store.apply(commit)
            except StoreError as error:
                self.errors.append(error)
                assert contents(store) == states()[number], "something of a commit that failed is there"
                store.apply(commit)
            self.look(store, number + 1)
            while number % 3 == 2 and self.twice(store.maintain):
                pass
            if number == COMMITS // 2 or len(self.errors) > failures:
                # what is on the disk is what was said to be
                self.twice(store.close)
                store = self.opened()
                self.look(store, number + 1)
        self.twice(store.close)

    def look(self, store: AnyStore, commits: int) -> None:
        if self.reads or self.disk.failed:
            assert self.twice(lambda: contents(store)) == states()[commits]

    def opened(self) -> AnyStore:
        found = self.twice(lambda: self.open(self.folder))
        assert isinstance(found, AnyStore)
        return found


def trials(
    open: Opening, folder: Path, monkeypatch: pytest.MonkeyPatch, kinds: str, *, is_full: bool = False
) -> Iterator[Trial]:
    """A run for each call of these kinds."""
    for number in failing(open, folder, monkeypatch, kinds):
        disk = Disk(f"failing-{open.__name__}-{kinds}-{number}")
        disk.fail_at, disk.fault = number, "full" if is_full else ""
        trial = Trial(folder / str(number), disk, open, reads=kinds == "read")
        with monkeypatch.context() as patched:
            disk.take_over(patched)
            trial.run()
        yield trial


def failing(open: Opening, folder: Path, monkeypatch: pytest.MonkeyPatch, kinds: str) -> list[int]:
    """The numbers of the calls that are to fail: all, or of reads and writes some."""
    disk = Disk(f"whole-{open.__name__}-{kinds}")
    with monkeypatch.context() as patched:
        disk.take_over(patched)
        Trial(folder / "whole", disk, open, reads=kinds == "read").run()
    assert (disk.records > 2) == (open is not alone), "what is to fail is written"
    numbers = [number for number, kind in enumerate(disk.kinds, 1) if kind in kinds.split()]
    return numbers[::EVERY] if kinds in ("read", "write") else numbers


# what SQLite swallows, apsw tells Python
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("kinds", "is_full", "noticed"),
    [
        ("sync", False, 5),
        ("open delete truncate", False, 1),
        ("read", False, 1),
        ("write", False, 5),
        ("write", True, 5),
    ],
    ids=["sync", "open, delete, truncate", "read", "write", "write, disk full"],
)
@pytest.mark.parametrize("open", [alone, with_journal, patient])
def test_a_store_survives_the_failure_of_any_call(
    open: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: str, noticed: int, *, is_full: bool
) -> None:
    """Not every failure must be noticed: SQLite reads again, and need not delete."""
    errors: list[StoreError] = []
    for trial in trials(open, tmp_path, monkeypatch, kinds, is_full=is_full):
        for error in trial.errors:
            assert error.code in CODES, (trial.disk.failed, error)
            assert str(trial.folder) in error.message
        errors += trial.errors
        with closing(open(trial.folder)) as store:
            assert contents(store)["entries"]["serial", ""] == b"%d" % COMMITS
        rmtree(trial.folder)
    assert len(errors) >= noticed
    assert {error.code for error in errors} == {"disk-full"} or not is_full
