"""Bits that flip and files that are cut short: each is named by `store check`, or nothing of what is stored has changed.

One bit of a file at a time, of each page of the database (more of them in its head, where SQLite keeps its books) and of all parts of
the journal. `make soak` tries many more.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest

from stompbox.errors import StoreError
from stompbox.store import check, journal, schema
from stompbox.store.base import Commit
from stompbox.store.check import damage
from stompbox.store.folder import DATABASE, JOURNAL, LOCK, WATERMARK
from stompbox.store.journal import FIRST, SECTOR
from stompbox.store.journaled import JournaledStore, journal_damage
from stompbox.store.losses import Losses
from stompbox.store.sqlite import SqliteStore
from tests.crash.commits import Commits, contents
from tests.crash.flips import drilled
from tests.store.runs import run

IS_LONG = bool(os.environ.get("SOAK"))
COMMITS = 60  # most of them without pieces of large bodies
HEAD = 120  # bytes of a page with its head and the places of its first cells
FLIPS = 20 if IS_LONG else 1  # in the head of each page, and in the rest of it


def filled(folder: Path) -> dict[str, Any]:
    """A store with rows in each table, and all of it in use; what it holds."""
    with closing(SqliteStore(folder, chunk_bytes=4000)) as store:
        commits = Commits(7)
        for _ in range(COMMITS):
            commit = next(commits)
            commit.delivered = {
                cursor: [(position, position + 3, 2, 1)] for cursor, (_, position) in commits.cursors.items()
            }
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
        if name.name not in (DATABASE, JOURNAL, LOCK, WATERMARK):
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
                assert contents(store) == expected, (
                    f"seed {seed}: a bit at {at} (page {at // schema.PAGE + 1}) is not noticed"
                )
    assert seen["named"] > 50, seen
    file.write_bytes(whole)
    assert problems(folder) == []


def test_a_database_that_is_cut_short_is_named(tmp_path: Path) -> None:
    folder, random = tmp_path / "data", Random(6)
    filled(folder)
    file = folder / DATABASE
    whole = file.read_bytes()
    for cut in [
        *range(schema.PAGE, len(whole), 3 * schema.PAGE),
        *random.sample(range(100, len(whole)), 20),
        len(whole) - 1,
    ]:
        file.write_bytes(whole[:cut])
        assert problems(folder), f"{cut} of {len(whole)} bytes"


def killed(folder: Path) -> tuple[list[int], dict[str, Any]]:
    """A folder with a journal of ten records, none of which is in the database; where each begins, and the contents."""
    with closing(JournaledStore(SqliteStore(folder.with_name("running")))) as store:
        store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}))
        for number in range(10):
            store.apply(Commit(runs={1: [run(number, body=bytes(700))]}, acknowledged={1: [(0, number)]}))
        copytree(folder.with_name("running"), folder)
    data = (folder / JOURNAL).read_bytes()
    begins = [at for at in range(FIRST, len(data), SECTOR) if data.startswith(b"SBjr", at)]
    copytree(folder, folder.with_name("whole"))
    with closing(JournaledStore(SqliteStore(folder.with_name("whole")))) as store:
        return begins, contents(store)


def test_a_flipped_bit_of_the_journal_is_turned_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SIZE", 64 << 10)
    folder, random, seen = tmp_path / "data", Random(8), Counter[str]()
    begins, expected = killed(folder)
    assert len(begins) == 10
    data = (folder / JOURNAL).read_bytes()
    ends = [*begins[1:], begins[-1] + begins[-1] - begins[-2]]
    places = [
        at
        for begin in begins
        for at in (begin, begin + 5, begin + 10, begin + 17, begin + random.randrange(20, 700))
    ]
    places += [
        0,
        10,
        21,
        FIRST - 1,
        *random.sample(range(ends[-1], len(data)), 5),
        *random.sample(range(len(data)), 20 * FLIPS),
    ]
    for number, at in enumerate(places):
        flipped = bytearray(data)
        flipped[at] ^= 1 << random.randrange(8)
        copy = tmp_path / f"copy-{number}"
        copytree(folder, copy)
        (copy / JOURNAL).write_bytes(flipped)
        named, told = list(journal_damage(copy)), []
        losses = Losses(tell=lambda code, text, told=told: told.append((code, text)))
        with closing(JournaledStore(SqliteStore(copy, losses=losses))) as store:
            assert contents(store) == expected, f"a bit at {at} is not noticed"
        seen["repaired" if told else "nothing"] += 1
        assert [code for code, _ in told] == ["data-repaired"] * len(named)
        assert (copy / f"{JOURNAL}.damaged-1").exists() is bool(told)
        is_record = any(begin <= at < begin + 700 for begin in begins)
        assert bool(named) >= is_record, f"a bit at {at} is not named"
    assert seen["repaired"] >= 10 * 5, seen


def test_damage_to_more_than_a_bit_of_the_journal_is_refused_and_can_be_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any record, the last one too: that it was confirmed stands in the high-water mark."""
    monkeypatch.setattr(journal, "SIZE", 64 << 10)
    folder = tmp_path / "data"
    begins, _ = killed(folder)
    data = (folder / JOURNAL).read_bytes()
    for number, begin in enumerate(begins):
        copy, told = tmp_path / f"copy-{number}", []
        copytree(folder, copy)
        (copy / JOURNAL).write_bytes(data[: begin + 100] + bytes(200) + data[begin + 300 :])
        for _ in range(2):
            with pytest.raises(StoreError, match="--accept-loss") as caught:
                JournaledStore(SqliteStore(copy))
            assert caught.value.code == ("data-missing" if number == 9 else "data-corrupt")
        losses = Losses(are_accepted=True, tell=lambda code, text, told=told: told.append(text))
        with closing(JournaledStore(SqliteStore(copy, losses=losses))) as store:
            assert [message[0] for message in contents(store)["messages"][1]] == [
                offset for offset in range(10) if offset != number
            ]
            store.apply(Commit(runs={1: [run(10)]}))
        assert f"1 commits of 1 to 10 are gone; as it was: {JOURNAL}.damaged-1" in told[-1]
        with closing(JournaledStore(SqliteStore(copy))) as store:  # once is enough
            assert len(contents(store)["messages"][1]) == 10


def test_a_journal_that_is_cut_short_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SIZE", 64 << 10)
    folder = tmp_path / "data"
    begins, _ = killed(folder)
    data = (folder / JOURNAL).read_bytes()
    for cut in (0, 10, FIRST, begins[4], begins[4] + 30, begins[9], len(data) - 1):
        (folder / JOURNAL).write_bytes(data[:cut])
        assert list(journal_damage(folder)), f"{cut} of {len(data)} bytes"


def with_a_log(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A folder that a kill has left: all of it in the write-ahead log."""
    with closing(SqliteStore(tmp_path / "running", chunk_bytes=4000)) as store:
        commits = Commits(9)
        for _ in range(10):
            store.apply(next(commits))
        copytree(tmp_path / "running", tmp_path / "data")
        return tmp_path / "data", contents(store)


def test_a_hole_in_the_write_ahead_log_is_refused_again_and_again_and_can_be_accepted(tmp_path: Path) -> None:
    folder, _ = with_a_log(tmp_path)
    log = folder / f"{DATABASE}-wal"
    data = log.read_bytes()
    log.write_bytes(data[: len(data) // 2] + bytes(4096) + data[len(data) // 2 + 4096 :])
    for _ in range(2):  # SQLite has taken what it can, and the log is gone
        with pytest.raises(StoreError, match=r"ends with transaction \d+, \d+ were confirmed") as caught:
            SqliteStore(folder)
        assert caught.value.code == "data-missing"
    assert any("were confirmed" in problem for problem in damage(folder))
    assert len((folder / f"{DATABASE}-wal.damaged-1").read_bytes()) == len(data)
    told: list[tuple[str, str]] = []
    with closing(
        SqliteStore(folder, losses=Losses(are_accepted=True, tell=lambda *one: told.append(one)))
    ) as store:
        store.apply(Commit(logs={99: "more"}))
    assert [code for code, _ in told] == ["data-missing"]
    SqliteStore(folder).close()


@pytest.mark.parametrize("name", ["", "-wal"], ids=["the database", "its write-ahead log"])
def test_a_file_that_is_gone_is_missed(tmp_path: Path, name: str) -> None:
    folder, _ = with_a_log(tmp_path)
    (folder / f"{DATABASE}{name}").unlink()
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            SqliteStore(folder)
        assert caught.value.code == "data-missing"


def test_a_look_does_not_use_up_a_damaged_write_ahead_log(tmp_path: Path) -> None:
    """SQLite would take what is before the damage and delete the rest, when somebody only looks."""
    folder, expected = with_a_log(tmp_path)
    log = folder / f"{DATABASE}-wal"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 4
    log.write_bytes(data)
    with pytest.raises(StoreError, match="-wal: damaged"):
        list(damage(folder))
    assert log.read_bytes() == data
    told: list[str] = []
    with closing(SqliteStore(folder, losses=Losses(tell=lambda code, _: told.append(code)))) as store:
        assert contents(store) == expected
    assert told == ["data-repaired"]
    assert (folder / f"{DATABASE}-wal.damaged-1").read_bytes() == data


def test_a_damaged_chunk_can_be_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with closing(SqliteStore(folder)) as store:
        store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}))
        for offset in range(3):
            store.apply(Commit(runs={1: [run(offset, body=b"message %d" % offset)]}))
    file = folder / DATABASE
    file.write_bytes(file.read_bytes().replace(b"message 1", b"massage 1"))
    with pytest.raises(StoreError, match="chunk at offset 1: checksum") as caught:
        SqliteStore(folder)
    assert caught.value.code == "data-corrupt"
    told: list[str] = []
    with closing(
        SqliteStore(folder, losses=Losses(are_accepted=True, tell=lambda _, text: told.append(text)))
    ) as store:
        assert [message[0] for message in contents(store)["messages"][1]] == [0, 2]
    assert "left out, its bytes are in stompbox.chunk.damaged-1" in told[-1]
    assert b"massage 1" in (folder / "stompbox.chunk.damaged-1").read_bytes()
    SqliteStore(folder).close()


def test_a_large_store_misses_rows_when_it_opens_and_reads_the_rest_beside_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    filled(folder)
    monkeypatch.setattr(check, "SMALL", 0)
    told: list[str] = []
    with closing(SqliteStore(folder, losses=Losses(tell=lambda code, _: told.append(code)))) as store:
        while store.maintain():
            pass
    assert told == ["data-unverified", "data-verified"]
    with closing(sqlite3.connect(folder / DATABASE)) as other:
        other.execute("UPDATE chunk SET blob = zeroblob(length(blob)) WHERE id = (SELECT min(id) FROM chunk)")
        other.execute(
            "UPDATE part SET data = zeroblob(length(data)) WHERE rowid = (SELECT min(rowid) FROM part)"
        )
        other.commit()
    told.clear()
    with closing(SqliteStore(folder, losses=Losses(tell=lambda code, _: told.append(code)))) as store:
        while store.maintain():
            pass
    assert told == ["data-unverified", "data-corrupt", "data-corrupt", "data-verified"]
    for table in ("chunk", "part"):
        copy = tmp_path / table
        copytree(folder, copy)
        with closing(sqlite3.connect(copy / DATABASE, isolation_level=None)) as other:
            other.execute(f"DELETE FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})")
        with pytest.raises(StoreError, match=f"table {table} has"):
            SqliteStore(copy)


@pytest.mark.parametrize("seed", [1] if not IS_LONG else [1, 2, 3])
def test_no_flipped_bit_loses_anything_in_silence(tmp_path: Path, seed: int) -> None:
    results = list(drilled(tmp_path, 5000 if IS_LONG else 120, seed))
    silent = [f"{where}: {result}" for where, result in results if result.startswith("SILENT")]
    assert silent == [], f"seed {seed}"
    assert sum(result.endswith(("repaired", "data-corrupt")) for _, result in results) > 15
