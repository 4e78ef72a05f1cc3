"""Bits that flip and files that are cut short: each is named by `store check`, or nothing of what is stored has changed.

One bit of a file at a time, of each page of the database (more of them in its head, where SQLite keeps its books) and of all parts of
the journal. `make soak` tries many more.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest

from stompbox.errors import StoreError
from stompbox.store import journal, schema
from stompbox.store.base import Commit
from stompbox.store.check import damage
from stompbox.store.folder import DATABASE, JOURNAL, LOCK
from stompbox.store.journal import FIRST, SECTOR
from stompbox.store.journaled import JournaledStore, journal_damage
from stompbox.store.sqlite import SqliteStore
from tests.crash.commits import Commits, contents
from tests.store.runs import run

IS_LONG = bool(os.environ.get("SOAK"))
COMMITS = 16
HEAD = 120  # bytes of a page with its head and the places of its first cells
FLIPS = 20 if IS_LONG else 1  # in the head of each page, and in the rest of it


def filled(folder: Path) -> dict[str, Any]:
    """A store with rows in each table, and all of it in use; what it holds."""
    with closing(SqliteStore(folder, chunk_bytes=4000)) as store:
        commits = Commits(7)
        for _ in range(COMMITS):
            commit = next(commits)
            commit.delivered = {cursor: [(position, position + 3, 2, 1)] for cursor, (_, position) in commits.cursors.items()}
            commit.trims = {}
            store.apply(commit)
        return contents(store)


def problems(folder: Path) -> list[str]:
    """What `store check` says."""
    found: list[str] = []
    for look in (damage, journal_damage):
        try:
            found += look(folder)
        except StoreError as error:
            found.append(error.message)
    for name in folder.iterdir():
        if name.name not in (DATABASE, JOURNAL, LOCK):
            name.unlink()  # what SQLite has left beside a file that is no database any more
    return found


def flips(whole: bytes, random: Random) -> Iterator[tuple[int, bytes]]:
    for page in range(0, len(whole), schema.PAGE):
        for size in [HEAD] * FLIPS + [schema.PAGE] * FLIPS:
            at = page + random.randrange(size)
            flipped = bytearray(whole)
            flipped[at] ^= 1 << random.randrange(8)
            yield at, bytes(flipped)


def test_a_flipped_bit_of_the_database_is_named_or_changes_nothing(tmp_path: Path) -> None:
    folder, seen = tmp_path / "data", Counter[str]()
    expected = filled(folder)
    file, seed = folder / DATABASE, 5
    whole = file.read_bytes()
    for at, flipped in flips(whole, Random(seed)):
        file.write_bytes(flipped)
        found = problems(folder)
        seen["named" if found else "nothing"] += 1
        assert all(str(folder) in problem for problem in found), found
        if not found:
            with closing(SqliteStore(folder, chunk_bytes=4000)) as store:
                assert contents(store) == expected, f"seed {seed}: a bit at {at} (page {at // schema.PAGE + 1}) is not noticed"
    assert seen["named"] > 50, seen
    file.write_bytes(whole)
    assert problems(folder) == []


def test_a_database_that_is_cut_short_is_named(tmp_path: Path) -> None:
    folder, random = tmp_path / "data", Random(6)
    filled(folder)
    file = folder / DATABASE
    whole = file.read_bytes()
    for cut in [*range(schema.PAGE, len(whole), 3 * schema.PAGE), *random.sample(range(100, len(whole)), 20), len(whole) - 1]:
        file.write_bytes(whole[:cut])
        assert problems(folder), f"{cut} of {len(whole)} bytes"


def killed(folder: Path) -> tuple[list[int], dict[int, dict[str, Any]]]:
    """A folder with a journal of ten records, none of which is in the database; where each begins, and the contents by their number."""
    states = {}
    with closing(JournaledStore(SqliteStore(folder.with_name("running")))) as store:
        store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}))
        for number in range(10):
            store.apply(Commit(runs={1: [run(number, body=bytes(700))]}, acknowledged={1: [(0, number)]}))
        copytree(folder.with_name("running"), folder)
    data = (folder / JOURNAL).read_bytes()
    begins = [at for at in range(FIRST, len(data), SECTOR) if data.startswith(b"SBjr", at)]
    for count in (9, 10):
        copy = folder.with_name(f"first-{count}")
        copytree(folder, copy)
        if count == 9:
            cut = bytearray(data)
            cut[begins[9] :] = bytes(len(data) - begins[9])
            (copy / JOURNAL).write_bytes(cut)
        with closing(JournaledStore(SqliteStore(copy))) as store:
            states[count] = contents(store)
    return begins, states


def test_a_flipped_bit_of_the_journal_is_named_or_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the last record: that it was confirmed is not to be seen, it looks like one that a crash has cut short."""
    monkeypatch.setattr(journal, "SIZE", 64 << 10)
    folder, random, seen = tmp_path / "data", Random(8), Counter[str]()
    begins, states = killed(folder)
    assert len(begins) == 10
    data = (folder / JOURNAL).read_bytes()
    ends = [*begins[1:], begins[-1] + begins[-1] - begins[-2]]
    places = [at for begin in begins for at in (begin, begin + 5, begin + 10, begin + 17, begin + random.randrange(20, 700))]
    places += [0, 10, 21, FIRST - 1, *random.sample(range(ends[-1], len(data)), 5), *random.sample(range(len(data)), 20 * FLIPS)]
    for number, at in enumerate(places):
        flipped = bytearray(data)
        flipped[at] ^= 1 << random.randrange(8)
        copy = tmp_path / f"copy-{number}"
        copytree(folder, copy)
        (copy / JOURNAL).write_bytes(flipped)
        if list(journal_damage(copy)):
            seen["named"] += 1
            with pytest.raises(StoreError, match=str(copy / JOURNAL)):
                JournaledStore(SqliteStore(copy))
            continue
        with closing(JournaledStore(SqliteStore(copy))) as store:
            found = contents(store)
        is_last = begins[-1] <= at < ends[-1]
        seen["last" if is_last else "nothing"] += 1
        assert found == states[10] or (is_last and found == states[9]), f"a bit at {at} is not noticed"
    assert seen["named"] >= 9 * 5, seen


def test_a_journal_that_is_cut_short_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SIZE", 64 << 10)
    folder = tmp_path / "data"
    begins, _ = killed(folder)
    data = (folder / JOURNAL).read_bytes()
    for cut in (0, 10, FIRST, begins[4], begins[4] + 30, begins[9], len(data) - 1):
        (folder / JOURNAL).write_bytes(data[:cut])
        assert list(journal_damage(folder)), f"{cut} of {len(data)} bytes"
