"""The journal: what is in it after each kind of end, and what is damage."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack

from stompbox.errors import StoreError
from stompbox.store import journal, journaled, records
from stompbox.store.backup import copy
from stompbox.store.base import Commit
from stompbox.store.chunks import encode
from stompbox.store.folder import DATABASE, JOURNAL, WATERMARK
from stompbox.store.journal import FIRST, SECTOR, Journal, content, identity_of
from stompbox.store.journaled import JournaledStore, journal_damage, merge
from stompbox.store.sqlite import SqliteStore
from tests.crash.commits import contents
from tests.store.journals import forsake
from tests.store.runs import run

SIZE = 64 << 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SIZE", SIZE)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def opened(data: Path) -> JournaledStore:
    return JournaledStore(SqliteStore(data))


def begun(data: Path, commits: int = 0) -> JournaledStore:
    """With a log, a cursor and so many commits of one message."""
    store = opened(data)
    store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}))
    for offset in range(commits):
        store.apply(one(offset))
    return store


def one(offset: int) -> Commit:
    return Commit(runs={1: [run(offset)]}, entries={("queue", "last"): b"%d" % offset})


def offsets(store: JournaledStore) -> list[int]:
    return [
        offset for chunk in store.read(1, 0, 1 << 40, 1 << 40) for offset in range(chunk.first, chunk.stop)
    ]


def after_a_crash(data: Path, commits: int) -> bytes:
    """The journal, with so many commits in it and none of them in the database."""
    forsake(begun(data, commits))
    return (data / JOURNAL).read_bytes()


def refusal(data: Path, code: str = "data-corrupt") -> str:
    with pytest.raises(StoreError) as caught:
        opened(data).close()
    assert caught.value.code == code
    assert str(data / JOURNAL) in caught.value.message
    return caught.value.message


# Where commits go


def test_a_small_commit_is_one_write(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = []
    with closing(begun(data, 1)) as store, monkeypatch.context() as patched:
        patched.setattr(journal, "write_through", lambda _, data, offset: writes.append((offset, len(data))))
        patched.setattr(store._database, "apply", lambda _: pytest.fail("the database was asked"))
        store.apply(one(1))
        store.apply(one(2))
    assert writes == [(FIRST + SECTOR, SECTOR), (FIRST + 2 * SECTOR, SECTOR)]


def test_records_go_past_the_cache_where_the_file_system_can(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sectors may be larger than ours: then the system refuses, and the cache is in between."""
    through, flags = journal.write_through, []

    def picky(descriptor: int, data: bytes | memoryview, offset: int) -> None:
        flags.append(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        if flags[-1] and len(flags) > 3:
            raise OSError(errno.EINVAL, "no")
        through(descriptor, data, offset)

    store = begun(data)
    monkeypatch.setattr(journal, "write_through", picky)
    for offset in range(6):
        store.apply(one(offset))
    cached = flags.index(0, 2)
    assert not any(flags[cached:])
    forsake(store)
    with closing(opened(data)) as again:
        assert offsets(again) == list(range(6))


@pytest.mark.parametrize("size", [0, 1, SECTOR, 5 * SECTOR + 7, 300 * SECTOR])
def test_it_is_read_as_the_disk_has_it(tmp_path: Path, size: int) -> None:
    file = tmp_path / "a"
    file.write_bytes(os.urandom(size))
    assert content(file) == file.read_bytes()
    with pytest.raises(FileNotFoundError):
        content(tmp_path / "b")


def test_a_record_that_holds_chunks_is_read(data: Path) -> None:
    """As the first journals had them."""
    forsake(begun(data, 2))
    record = records.Record({1: encode([run(2), run(3)], 2)}, entries=[("queue", "last", b"3")])
    written = Journal(data)
    written.begin(identity_of((data / JOURNAL).read_bytes()))
    written._at = FIRST + 2 * SECTOR
    written.append(3, msgpack.encode(record))
    written.close()
    with closing(opened(data)) as store:
        assert offsets(store) == [0, 1, 2, 3]


def test_many_small_commits_become_one_chunk(data: Path) -> None:
    with closing(begun(data, 100)) as store:
        (chunk,) = store.read(1, 0, 1000, 1 << 20)
    assert (chunk.first, chunk.count) == (0, 100)


def test_what_was_consumed_meanwhile_is_never_written(data: Path) -> None:
    with closing(begun(data, 100)) as store:
        store.apply(Commit(acknowledged={1: [(0, 90)]}, trims={1: 90}))
        assert offsets(store) == list(range(90, 100))
        assert store.sizes([1])[1][0] == 10


@pytest.mark.parametrize(
    "commit",
    [
        Commit(logs={2: "more"}),
        Commit(cursors={2: (1, 0)}),
        Commit(dropped_cursors=[1]),
        Commit(runs={1: [run(5, body=b"x" * journaled.SMALL)]}),
    ],
    ids=["a log", "a cursor", "no cursor", "large"],
)
def test_what_is_not_small_goes_to_the_database(data: Path, commit: Commit) -> None:
    store = begun(data, 3)
    store.apply(commit)
    expected = contents(store)
    assert store._waiting == []
    store.apply(one(9))
    assert len(store._waiting) == 1
    forsake(store)
    with closing(SqliteStore(data)) as database:
        found = contents(database)
    assert [message[0] for message in found["messages"][1]] == [
        message[0] for message in expected["messages"][1]
    ]


def test_long_entries_go_to_the_database(data: Path) -> None:
    store = begun(data, 3)
    store.apply(Commit(entries={("retained", "1"): b"x" * (journaled.LARGEST + 1)}))
    assert store._waiting == []
    forsake(store)
    assert (data / JOURNAL).stat().st_size == SIZE
    with closing(opened(data)) as store:
        assert len(store.recover().entries["retained", "1"]) == journaled.LARGEST + 1


def test_a_journal_that_is_too_long_is_read_before_it_is_made_anew(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = after_a_crash(data, 3) + bytes(SECTOR)
    (data / JOURNAL).write_bytes(whole)

    def ended(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "apply", ended)
        with pytest.raises(KeyboardInterrupt):
            opened(data)
    assert (data / JOURNAL).read_bytes() == whole


def test_a_journal_that_was_cut_short_may_lack_records(data: Path) -> None:
    """It has its size before the first of them is written."""
    whole = after_a_crash(data, 3)
    (data / JOURNAL).write_bytes(whole[: FIRST + 2 * SECTOR])
    assert f"is cut short, {FIRST + 2 * SECTOR} of {SIZE} bytes" in refusal(data)


def test_a_full_journal_begins_again(data: Path) -> None:
    count = 3 * (SIZE - FIRST) // SECTOR
    store = begun(data, count)
    forsake(store)
    assert (data / JOURNAL).stat().st_size == SIZE
    with closing(opened(data)) as store:
        assert offsets(store) == list(range(count))


def test_so_many_wait_and_no_more(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled, "MOST", 5)
    with closing(begun(data, 23)) as store:
        assert len(store._waiting) == 3


def test_an_idle_store_has_all_in_the_database(data: Path) -> None:
    with closing(begun(data, 3)) as store:
        while store.maintain():
            pass
        assert store._waiting == []
        with closing(SqliteStoreOf(data)) as found:
            assert found.count() == 3


class SqliteStoreOf:
    """Looks at the database of a store that is open."""

    def __init__(self, data: Path) -> None:
        import sqlite3

        self._db = sqlite3.connect(data / DATABASE)

    def count(self) -> int:
        (found,) = self._db.execute("SELECT coalesce(sum(messages), 0) FROM chunk").fetchone()
        return int(found)

    def close(self) -> None:
        self._db.close()


def test_merged_commits_do_what_each_of_them_did() -> None:
    first = Commit(
        runs={1: [run(0), run(5)]},
        next_offsets={1: 9},
        acknowledged={1: [(0, 1)]},
        entries={("a", ""): b"1", ("b", ""): b"1"},
    )
    second = Commit(
        runs={1: [run(3)]},
        next_offsets={1: 7, 2: 1},
        acknowledged={1: [(3, 4)]},
        entries={("a", ""): None},
        trims={1: 2},
    )
    merged = merge([first, second])
    assert [run.first for run in merged.runs[1]] == [3, 5], "what was trimmed meanwhile is not written"
    assert merged.next_offsets == {1: 9, 2: 1}
    assert merged.acknowledged == {1: [(0, 1), (3, 4)]}
    assert merged.entries == {("a", ""): None, ("b", ""): b"1"}
    assert merged.trims == {1: 2}
    assert [run.first for run in first.runs[1]] == [0, 5]


# After an end


def test_closed_well_there_is_no_journal(data: Path) -> None:
    begun(data, 3).close()
    assert not (data / JOURNAL).exists()
    with closing(SqliteStore(data)) as database:
        assert set(database.recover().entries) == {("queue", "last"), ("journal", "sequence")}
    with closing(opened(data)) as store:
        assert offsets(store) == [0, 1, 2]
        assert store.recover().entries == {("queue", "last"): b"2"}


def test_after_a_crash_everything_is_there_and_once(data: Path) -> None:
    after_a_crash(data, 7)
    for again in range(3):
        store = opened(data)
        assert offsets(store) == list(range(7 + again))
        store.apply(one(7 + again))
        forsake(store)


def test_a_journal_of_which_the_database_knows_nothing_is_of_no_account(data: Path) -> None:
    """The end came between the two."""
    kept = after_a_crash(data, 3)
    opened(data).close()
    (data / JOURNAL).write_bytes(kept)
    with closing(opened(data)) as store:
        store.apply(one(3))
        assert offsets(store) == [0, 1, 2, 3]


@pytest.mark.parametrize("cut", [1, 19, 20, 21, 100, 300])
def test_a_record_that_was_cut_short_does_not_count(data: Path, cut: int) -> None:
    whole = after_a_crash(data, 3)
    last = FIRST + 2 * SECTOR
    (data / JOURNAL).write_bytes(whole[: last + cut] + bytes(len(whole) - last - cut))
    is_whole = not any(whole[last + cut : last + SECTOR])
    if not is_whole:
        assert "ends with record 2, 3 was confirmed" in refusal(data, "data-missing")
        assert list(journal_damage(data)) == [f"{data / JOURNAL}: ends with record 2, 3 was confirmed"]
    (data / WATERMARK).unlink()  # the crash came before anybody was told
    with closing(opened(data)) as store:
        assert offsets(store) == ([0, 1, 2] if is_whole else [0, 1])


@pytest.mark.parametrize("at", [0, 5, 10, 18, 40])
def test_damage_before_a_good_record_is_named(data: Path, at: int) -> None:
    whole = bytearray(after_a_crash(data, 3))
    whole[FIRST + SECTOR + at] ^= 0xFF
    (data / JOURNAL).write_bytes(whole)
    assert "damaged before record 3" in refusal(data)
    assert (data / JOURNAL).read_bytes() == whole
    assert len(list(journal_damage(data))) == 1


def test_a_damaged_head_is_named(data: Path) -> None:
    whole = bytearray(after_a_crash(data, 3))
    whole[7] ^= 3
    (data / JOURNAL).write_bytes(whole)
    assert "head is damaged" in refusal(data)


def test_a_journal_of_another_database_is_named(data: Path, tmp_path: Path) -> None:
    after_a_crash(data, 3)
    other = tmp_path / "other"
    after_a_crash(other, 4)
    (data / JOURNAL).write_bytes((other / JOURNAL).read_bytes())
    assert "another database" in refusal(data)


def test_a_missing_journal_is_named(data: Path) -> None:
    after_a_crash(data, 3)
    (data / JOURNAL).unlink()
    assert "is missing" in refusal(data, "data-missing")


def test_a_gap_before_the_first_record_is_named(data: Path) -> None:
    whole = bytearray(after_a_crash(data, 3))
    whole[FIRST : FIRST + SECTOR] = whole[FIRST + SECTOR : FIRST + 2 * SECTOR]
    whole[FIRST + SECTOR : FIRST + 2 * SECTOR] = whole[FIRST + 2 * SECTOR : FIRST + 3 * SECTOR]
    (data / JOURNAL).write_bytes(whole)
    assert "begins with record 2" in refusal(data)


# When the disk refuses


def failing(times: list[int]) -> Callable[..., None]:
    """Fails where `times` has a call's number; what it was given may have reached the disk all the same."""
    real, calls = journal.write_through, iter(range(1 << 20))

    def write(descriptor: int, data: bytes, offset: int) -> None:
        real(descriptor, data, offset)
        if next(calls) in times:
            raise OSError(5, os.strerror(5))

    return write


def test_a_commit_that_was_refused_does_not_come_back(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = begun(data, 3)
    with monkeypatch.context() as patched:
        patched.setattr(journal, "write_through", failing([0]))
        with pytest.raises(StoreError) as caught:
            store.apply(one(3))
    assert caught.value.code == "io-error"
    assert offsets(store) == [0, 1, 2]
    store.apply(Commit(runs={1: [run(3, body=b"another")]}))
    forsake(store)
    with closing(opened(data)) as store:
        (chunk,) = store.read(1, 3, 4, 1)
        assert b"another" in chunk.blob
        assert offsets(store) == [0, 1, 2, 3]


def test_when_nothing_works_nothing_is_taken_until_it_does(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun(data, 3)

    def full(_: Any) -> None:
        raise StoreError("disk-full", "no room")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "write_through", failing([0, 1, 2]))
        patched.setattr(store._database, "apply", full)
        for _ in range(3):
            with pytest.raises(StoreError):
                store.apply(one(3))
    store.apply(one(3))
    forsake(store)
    with closing(opened(data)) as store:
        assert offsets(store) == [0, 1, 2, 3]


def test_without_room_for_a_journal_the_database_does_it_alone(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "write_through", failing([0]))
    store = begun(data, 3)
    assert store._waiting == []
    assert not (data / JOURNAL).exists()
    forsake(store)
    with closing(opened(data)) as store:
        assert offsets(store) == [0, 1, 2]


def test_a_database_that_refuses_keeps_what_is_in_the_journal(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun(data, 3)

    def full(_: Any) -> None:
        raise StoreError("disk-full", "no room")

    with monkeypatch.context() as patched:
        patched.setattr(store._database, "apply", full)
        for refused in (
            lambda: store.read(1, 0, 9, 9),
            store.maintain,
            lambda: store.apply(Commit(logs={2: "more"})),
        ):
            with pytest.raises(StoreError):
                refused()
        store.apply(one(3))
        store.close()
    assert (data / JOURNAL).exists()
    with closing(opened(data)) as store:
        assert offsets(store) == [0, 1, 2, 3]


# Copies


@pytest.fixture
def running(data: Path) -> Iterator[JournaledStore]:
    with closing(begun(data, 5)) as store:
        yield store


def test_a_copy_has_what_is_in_the_journal(data: Path, tmp_path: Path, running: JournaledStore) -> None:
    assert len(running._waiting) == 5
    copy(data, tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").iterdir() if path.name != "stompbox.lock") == [
        DATABASE
    ]
    with closing(opened(tmp_path / "copy")) as store:
        assert offsets(store) == [0, 1, 2, 3, 4]


def test_nothing_is_wrong_with_a_journal_that_is_in_use(data: Path, running: JournaledStore) -> None:
    assert list(journal_damage(data)) == []
    running.apply(one(5))
    assert list(journal_damage(data)) == []


def loose(offset: int) -> Commit:
    commit = one(offset)
    commit.is_loose = True
    return commit


def test_a_loose_commit_waits_in_memory_alone(data: Path, tmp_path: Path) -> None:
    with closing(begun(data, 3)) as store:
        before = Journal(data).file.read_bytes()
        store.apply(loose(3))
        assert Journal(data).file.read_bytes() == before
        shutil.copytree(data, tmp_path / "killed")
        assert offsets(store) == [0, 1, 2, 3]
    with closing(opened(tmp_path / "killed")) as store:
        assert offsets(store) == [0, 1, 2]


def test_loose_commits_are_written_when_they_are_many(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled, "LOOSE", 3)
    with closing(begun(data, 1)) as store:
        for offset in range(1, 9):
            store.apply(loose(offset))
            assert len(store._waiting) <= 4
        store.apply(one(9))
        assert offsets(store) == list(range(10))


@pytest.mark.parametrize("is_loose", [False, True], ids=["in the journal", "in memory alone"])
def test_no_more_messages_wait_than_are_written_in_a_moment(
    data: Path, monkeypatch: pytest.MonkeyPatch, *, is_loose: bool
) -> None:
    """Others' commits wait while they are."""
    monkeypatch.setattr(journaled, "RUNS", 10)
    with closing(begun(data, 1)) as store:
        for first in range(1, 101, 4):
            store.apply(Commit(runs={1: [run(first + n) for n in range(4)]}, is_loose=is_loose))
            waiting = sum([len(commit.runs[1]) for commit in store._waiting if commit.runs])
            assert waiting <= 13
        assert offsets(store) == list(range(101))


def test_fewer_runs_wait_that_are_not_fsynced_beside_others_that_are(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journaled, "LOOSE_RUNS", 10)
    with closing(begun(data, 1)) as store:
        for first in range(1, 101, 4):
            runs = [run(first + n) for n in range(4)]
            for each in runs[1:]:
                each.is_loose = True
            store.apply(Commit(runs={1: runs}))
            found = [each for commit in store._waiting for each in commit.runs.get(1, ())]
            assert sum([each.is_loose for each in found]) <= 12
        for offset in range(101, 130):
            store.apply(one(offset))
        assert len(store._waiting) > 20
        assert offsets(store) == list(range(130))


def large(offset: int) -> Commit:
    return Commit(runs={1: [run(offset, body=b"x" * journaled.SMALL)]}, is_loose=True)


def test_a_loose_commit_may_be_large_and_what_was_consumed_of_it_is_never_written(data: Path) -> None:
    with closing(begun(data, 1)) as store:
        for offset in range(1, 9):
            store.apply(large(offset))
        store.apply(Commit(acknowledged={1: [(0, 8)]}, trims={1: 8}, is_loose=True))
        assert len(store._waiting) == 10, "with the one that is in the journal"
        assert offsets(store) == [8]
        assert store.sizes([1])[1][0] == 1


def test_loose_commits_are_written_when_they_are_large_together(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journaled, "ROOM", 3 * journaled._size_of(large(1), journaled.ROOM))
    with closing(begun(data, 1)) as store:
        for number, offset in enumerate(range(1, 9), 1):
            store.apply(large(offset))
            assert sum([commit.is_loose for commit in store._waiting]) == number % 4
        assert offsets(store) == list(range(9))
