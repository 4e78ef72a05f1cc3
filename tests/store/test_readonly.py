"""A store that cannot be written to: what it says is what the store said that wrote it, and it is opened when the disk lets it."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stompbox.errors import StoreError
from stompbox.message import Run
from stompbox.store import folderstore, readonly, schema
from stompbox.store.base import Commit, Store
from stompbox.store.folder import DATABASE, LOCK, lock_folder
from stompbox.store.folderstore import FolderStore
from stompbox.store.journal import Journal
from stompbox.store.journaled import JournaledStore
from stompbox.store.losses import Losses
from stompbox.store.readonly import ReadOnlyStore
from stompbox.store.sqlite import SqliteStore
from tests.crash.commits import END, LOGS, Commits, contents
from tests.store.runs import run

COMMITS = 40


def small(commit: Commit) -> Commit:
    """What may wait in the journal."""
    return Commit(
        runs={log: [run for run in runs if not run.is_large] for log, runs in commit.runs.items()},
        next_offsets=commit.next_offsets,
        acknowledged=commit.acknowledged,
        entries=commit.entries,
        trims=commit.trims,
    )


def written(folder: Path, seed: int) -> JournaledStore:
    """A store with large bodies and all, the last commits of which wait in the journal."""
    store, commits = JournaledStore(SqliteStore(folder)), Commits(seed)
    for number in range(COMMITS):
        commit = next(commits)
        store.apply(commit if number < COMMITS // 2 else small(commit))
    assert store._waiting
    return store


def copied(folder: Path, to: Path) -> Path:
    """What a broker leaves that is killed now."""
    shutil.copytree(folder, to)
    return to


def answers(store: Store | ReadOnlyStore) -> dict[str, Any]:
    """What is asked without a message being read."""
    return {
        "messages": {log: messages for log, (messages, _) in store.sizes(range(1, LOGS + 1)).items()},
        "first": {log.id: log.first for log in store.recover().logs},
        "begin": {log: [part.first for part in store.outline(log)][:1] for log in range(1, LOGS + 1)},
        "none": [store.find_time(log, COMMITS + 1) for log in range(1, LOGS + 2)],
    }


def check_times(found: ReadOnlyStore) -> None:
    """By chunk: nothing that came then or later lies before the place, and the first such message not before the next chunk."""
    for log in found.recover().logs:
        came = arrivals(found, log.id)
        for time in range(COMMITS + 1):
            place = found.find_time(log.id, time)
            assert all(arrived < time for offset, arrived in came if offset < place)
            assert place <= next((offset for offset, arrived in came if arrived >= time), log.next)


def arrivals(found: ReadOnlyStore, log: int) -> list[tuple[int, int]]:
    runs = [one for chunk in found.read(log, 0, END, END) for one in readonly.decode(chunk.blob, chunk.first)]
    return [(offset, one.arrived) for one in runs for offset in range(one.first, one.stop)]


@pytest.mark.parametrize("seed", range(5))
def test_it_says_what_the_store_said_with_what_is_in_the_journal(tmp_path: Path, seed: int) -> None:
    with closing(written(tmp_path / "data", seed)) as store:
        folder = copied(tmp_path / "data", tmp_path / "killed")
        journal = Journal(folder).file
        before = journal.read_bytes()
        with closing(ReadOnlyStore(folder)) as found:
            assert contents(found) == contents(store)  # type: ignore[arg-type]
            assert answers(found) == answers(store)
            check_times(found)
        assert journal.read_bytes() == before


def test_a_reader_gets_portions_that_are_complete(tmp_path: Path) -> None:
    """However little is asked for, what the journal has comes in its place, and nothing is left out."""
    with closing(written(tmp_path / "data", 3)) as store:
        folder = copied(tmp_path / "data", tmp_path / "killed")
        whole = {log: messages for log, messages in contents(store)["messages"].items() if messages}
        with closing(ReadOnlyStore(folder)) as found:
            for log, messages in whole.items():
                at, offsets = messages[0][0], []
                while chunks := found.read(log, at, END, 1):
                    assert len(chunks) == 1
                    offsets += [
                        offset
                        for one in readonly.decode(chunks[0].blob, chunks[0].first)
                        for offset in range(one.first, one.stop)
                    ]
                    at = chunks[0].stop
                assert [offset for offset in offsets if offset >= messages[0][0]] == [
                    message[0] for message in messages
                ]


def test_what_fills_a_gap_of_a_chunk_is_found_in_it(tmp_path: Path) -> None:
    with closing(JournaledStore(SqliteStore(tmp_path / "data"))) as store:
        store.apply(Commit(logs={1: "q"}, runs={1: [run(0, 2), run(5, 2)]}))
        store.apply(Commit(runs={1: [run(9, 1)]}))
        store.apply(Commit(runs={1: [run(3, 1), run(12, 1)]}))
        assert store._waiting
        with closing(ReadOnlyStore(copied(tmp_path / "data", tmp_path / "killed"))) as found:
            chunks = found.read(1, 0, END, END)
            assert (chunks[0].first, chunks[0].stop) == (0, 7)
            assert [offset for chunk in chunks for offset in offsets_of(chunk.blob, chunk.first)] == [
                0,
                1,
                3,
                5,
                6,
                9,
                12,
            ]
            assert [(part.first, part.stop) for part in found.outline(1)] == [(0, 7), (9, 10), (12, 13)]


def offsets_of(blob: bytes, first: int) -> Iterator[int]:
    runs: list[Run] = readonly.decode(blob, first)
    for one in runs:
        yield from range(one.first, one.stop)


def test_damage_of_the_journal_is_named(tmp_path: Path) -> None:
    with closing(written(tmp_path / "data", 1)):
        folder = copied(tmp_path / "data", tmp_path / "killed")
    journal = Journal(folder).file
    data = bytearray(journal.read_bytes())
    data[4096 + 40 : 4096 + 80] = bytes(40)
    journal.write_bytes(data)
    with pytest.raises(StoreError) as caught:
        ReadOnlyStore(folder)
    assert caught.value.code == "data-corrupt"
    assert str(journal) in caught.value.message


# Opening


class Refusing:
    """In place of SqliteStore: the disk refuses as long as it is `full`."""

    def __init__(self) -> None:
        self.full = True
        self.asked = 0

    def __call__(self, path: Path, *, lock: int = -1, losses: Losses | None = None) -> SqliteStore:
        self.asked += 1
        if self.full:
            if lock >= 0:
                os.close(lock)  # it was the store's to close
            raise StoreError("disk-full", f"{path}: no room at all")
        return SqliteStore(path, lock=lock, losses=losses)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    found = Refusing()
    monkeypatch.setattr(folderstore, "SqliteStore", found)
    return found


def test_a_store_is_opened_when_the_disk_lets_it(tmp_path: Path, refusing: Refusing) -> None:
    with closing(written(tmp_path / "data", 2)) as store:
        folder, expected = copied(tmp_path / "data", tmp_path / "killed"), contents(store)
    with closing(FolderStore(folder)) as found:
        assert contents(found) == expected
        for _ in range(2):
            with pytest.raises(StoreError) as caught:
                found.apply(Commit(entries={("k", ""): b"1"}))
            assert (caught.value.code, caught.value.message) == ("disk-full", f"{folder}: no room at all")
            assert contents(found) == expected, "and it is read all the same"
            with pytest.raises(StoreError) as in_use:
                lock_folder(folder)
            assert in_use.value.code == "data-in-use"
        refusing.full = False
        found.apply(Commit(entries={("k", ""): b"1"}))
        expected["entries"]["k", ""] = b"1"
        assert contents(found) == expected
        assert not found.maintain() or contents(found) == expected
    with closing(JournaledStore(SqliteStore(folder))) as again:
        assert contents(again) == expected
    assert refusing.asked == 4


def test_the_folder_is_free_when_it_is_closed(tmp_path: Path, refusing: Refusing) -> None:
    with closing(written(tmp_path / "data", 2)):
        pass
    store = FolderStore(tmp_path / "data")
    store.close()
    with pytest.raises(StoreError) as caught:
        store.recover()
    assert caught.value.code == "store-closed"
    with pytest.raises(StoreError) as caught:
        store.apply(Commit())
    assert caught.value.code == "store-closed"
    assert refusing.asked == 1
    with closing(SqliteStore(tmp_path / "data")):
        pass


@pytest.mark.parametrize("file", ["", LOCK, DATABASE])
def test_where_nothing_was_stored_the_refusal_is_said(tmp_path: Path, refusing: Refusing, file: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    if file:
        (folder / file).touch()
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            FolderStore(folder)
        assert (caught.value.code, caught.value.message) == ("disk-full", f"{folder}: no room at all")


def test_damage_is_said_rather_than_a_full_disk(tmp_path: Path, refusing: Refusing) -> None:
    written(tmp_path / "data", 2).close()
    file = tmp_path / "data" / DATABASE
    data = bytearray(file.read_bytes())
    data[3 * schema.PAGE : 4 * schema.PAGE] = bytes(schema.PAGE)
    file.write_bytes(data)
    with pytest.raises(StoreError) as caught:
        FolderStore(tmp_path / "data")
    assert caught.value.code == "data-corrupt"
    assert refusing.asked == 1


def test_a_store_of_an_older_version_is_not_read_as_if_it_were_one_of_this(
    tmp_path: Path, refusing: Refusing
) -> None:
    written(tmp_path / "data", 2).close()
    with closing(sqlite3.connect(tmp_path / "data" / DATABASE)) as connection:
        connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION - 1}")
    with pytest.raises(StoreError) as caught:
        FolderStore(tmp_path / "data")
    assert caught.value.code == "disk-full"
    assert refusing.asked == 1


def test_a_lock_is_taken_where_its_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open
    (tmp_path / LOCK).touch()

    def read_only(path: Any, flags: int, *rest: Any) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", read_only)
    descriptor = lock_folder(tmp_path)
    with pytest.raises(StoreError) as caught:
        lock_folder(tmp_path)
    assert caught.value.code == "data-in-use"
    os.close(descriptor)
