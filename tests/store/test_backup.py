"""Copies of a store: while somebody writes to it, of a damaged one, onto a disk without room, into a folder that is in use."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from stompbox.errors import StoreError
from stompbox.incarnations import ENDED, INCARNATIONS, Incarnations
from stompbox.store import backup, folder
from stompbox.store.backup import copy
from stompbox.store.base import CLUSTER, Commit
from stompbox.store.check import damage
from stompbox.store.chunks import decode
from stompbox.store.sqlite import SqliteStore
from tests.store.runs import run

END = 1 << 40


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with closing(SqliteStore(path)) as store:
        store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}, entries={("queue", "1"): b"{}"}))
        for first in range(30):
            store.apply(
                Commit(runs={1: [run(first, body=os.urandom(9_000))]}, acknowledged={1: [(first, first + 1)]})
            )
    return path


def offsets(store: SqliteStore) -> list[int]:
    chunks = store.read(1, 0, END, END)
    return [
        offset
        for chunk in chunks
        for part in decode(chunk.blob, chunk.first)
        for offset in range(part.first, part.stop)
    ]


def refusal(do: Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as caught:
        do()
    return caught.value


def test_a_copy_is_a_data_folder_of_the_owners_alone(data: Path, tmp_path: Path) -> None:
    seen: list[list[tuple[int, int]]] = [[], []]
    octets = copy(
        data, tmp_path / "new" / "copy", *[lambda done, total, to=to: to.append((done, total)) for to in seen]
    )
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new" / "copy").iterdir()}
    assert files == {folder.DATABASE: 0o600, folder.LOCK: 0o600}
    assert stat.S_IMODE((tmp_path / "new" / "copy").stat().st_mode) == 0o700
    assert octets == (tmp_path / "new" / "copy" / folder.DATABASE).stat().st_size
    assert [progress[-1][0] == progress[-1][1] > 1 for progress in seen] == [True, True]
    with closing(SqliteStore(data)) as store, closing(SqliteStore(tmp_path / "new" / "copy")) as again:
        assert again.recover() == store.recover()
        assert again.read(1, 0, END, END) == store.read(1, 0, END, END)


def test_a_copy_has_the_commits_of_one_moment_however_many_come_meanwhile(data: Path, tmp_path: Path) -> None:
    """Each commit has a message, its acknowledgement and its number: none of them without the others."""
    with closing(SqliteStore(data)) as store:
        written, enough = threading.Event(), threading.Event()

        def write() -> None:
            number = 30
            while not enough.is_set():
                entry = {("serial", ""): b"%d" % number}
                store.apply(
                    Commit(
                        runs={1: [run(number, body=bytes(5000))]},
                        acknowledged={1: [(number, number + 1)]},
                        entries=entry,
                    )
                )
                store.maintain()
                number += 1
                written.set()

        def copied(_: int, __: int) -> None:
            written.clear()
            assert written.wait(30), "nobody can write while a copy is made"

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert written.wait(30)
            copy(data, tmp_path / "copy", copied)
        finally:
            enough.set()
            writer.join()
        with closing(SqliteStore(tmp_path / "copy")) as again:
            found = again.recover()
            stop = int(found.entries["serial", ""]) + 1
            assert offsets(again) == list(range(stop))
            assert (found.logs[0].next, found.cursors[0].position) == (stop, stop)
            assert stop < store.recover().logs[0].next


def test_a_copy_takes_what_the_write_ahead_log_has(data: Path, tmp_path: Path) -> None:
    with closing(SqliteStore(data)) as store:
        store.apply(Commit(runs={1: [run(30)]}))
        copy(data, tmp_path / "copy")
    assert list(damage(tmp_path / "copy")) == []
    with closing(SqliteStore(tmp_path / "copy")) as again:
        assert offsets(again) == list(range(31))


def test_a_folder_in_which_something_is_keeps_it(data: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter").write_text("mine")
    for target, what in (
        (mine, "letter is in it"),
        (data, "a store is in it"),
        (mine / "letter", "is a file"),
    ):
        before = sorted(tmp_path.rglob("*"))
        error = refusal(lambda target=target: copy(data, target))
        assert error.code == "folder-not-empty"
        assert str(target) in error.message and what in error.message
        assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_of_a_broker_that_just_started_is_refused(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    target.mkdir()
    lock = folder.lock_folder(target)
    try:
        assert refusal(lambda: copy(data, target)).code == "data-in-use"
    finally:
        os.close(lock)


def test_a_damaged_store_makes_no_copy(data: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(data / folder.DATABASE, isolation_level=None)) as other:
        other.execute("UPDATE chunk SET blob = zeroblob(length(blob)) WHERE first = 3")
    error = refusal(lambda: copy(data, tmp_path / "copy"))
    assert error.code == "data-corrupt"
    assert "offset 3" in error.message and str(data) in error.message
    assert list((tmp_path / "copy").iterdir()) == []


def test_no_room_for_a_copy(data: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        error = refusal(lambda: copy(data, tmp_path / "copy"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.code in {"io-error", "disk-full"}
    assert str(tmp_path / "copy" / backup.PARTIAL) in error.message
    assert list((tmp_path / "copy").iterdir()) == []
    copy(data, tmp_path / "copy")


@pytest.mark.parametrize(
    "what", ["nothing", "a file", "an empty folder", "another folder", "no database", "an empty file"]
)
def test_what_is_no_store_is_named(tmp_path: Path, what: str) -> None:
    source = tmp_path / "source"
    if what == "a file":
        source.write_text("x")
    elif what != "nothing":
        source.mkdir()
    if what == "another folder":
        (source / "letter").write_text("x")
    elif what == "no database":
        (source / folder.DATABASE).write_bytes(b"no database" * 1000)
    elif what == "an empty file":
        (source / folder.DATABASE).touch()
    error = refusal(lambda: copy(source, tmp_path / "copy"))
    assert error.code == ("data-corrupt" if what in ("no database", "an empty file") else "data-not-found")
    assert str(source) in error.message
    assert not (tmp_path / "copy").exists() or list((tmp_path / "copy").iterdir()) == []


def test_a_copy_is_another_log_from_where_it_ends_on(data: Path, tmp_path: Path) -> None:
    told = Incarnations((("a", 0),))
    with closing(SqliteStore(data)) as store:
        entries = {(INCARNATIONS, "1"): json.dumps(told.wire()).encode(), (ENDED, "old"): b"12"}
        entries[ENDED, "gone"] = json.dumps({"next": 9, "incarnations": told.wire()}).encode()
        store.apply(Commit(entries={**entries}, next_offsets={1: 1 << 20}))
    ids = iter("bcde")
    for target in ("one", "two"):
        copy(data, tmp_path / target, new_id=ids.__next__)
    with (
        closing(SqliteStore(data)) as store,
        closing(SqliteStore(tmp_path / "one")) as one,
        closing(SqliteStore(tmp_path / "two")) as two,
    ):
        (there, first, second) = (found.recover().entries for found in (store, one, two))
    assert json.loads(there[INCARNATIONS, "1"]) == [["a", 0]]
    assert json.loads(first[INCARNATIONS, "1"])[0] == ["a", 0]
    assert {json.loads(found[INCARNATIONS, "1"])[1][1] for found in (first, second)} == {30}, (
        "not where offsets are set aside"
    )
    assert json.loads(first[INCARNATIONS, "1"]) != json.loads(second[INCARNATIONS, "1"])
    assert json.loads(first[ENDED, "gone"])["incarnations"][1][1] == 9
    assert first[ENDED, "old"] == b"12"


@pytest.mark.parametrize("is_same", [False, True])
def test_a_copy_of_a_node_is_of_no_cluster(data: Path, tmp_path: Path, *, is_same: bool) -> None:
    """Unless it goes on as the node did: another one that catches up by it."""
    place = CLUSTER, "position"
    with closing(SqliteStore(data)) as store:
        store.apply(Commit(entries={place: b"\x92\x07\x01"}))
    copy(data, tmp_path / "copy", is_same=is_same)
    with closing(SqliteStore(tmp_path / "copy")) as store:
        found = store.recover().entries
    assert (place in found) is is_same
    assert ("queue", "1") in found
