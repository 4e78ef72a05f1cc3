"""Tiny chunks become larger ones, beside commits, when idle and by `compact`, and nobody who reads can tell."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stompbox.errors import StoreError
from stompbox.store.base import Commit
from stompbox.store.check import damage
from stompbox.store.chunks import decode
from stompbox.store.merging import PORTION, TINY, WAITING
from stompbox.store.sqlite import SqliteStore
from tests.store.runs import run, told

END = 1 << 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "data", synchronous=False)) as found:
        found.apply(Commit(logs={1: "orders", 2: "news"}, cursors={1: (1, 0)}))
        yield found


def fill(store: SqliteStore, stop: int, first: int = 0, log: int = 1, *, body: bytes = b"x") -> None:
    """A chunk for each message."""
    for offset in range(first, stop):
        store.apply(Commit(runs={log: [run(offset, arrived=offset, body=body)]}))


def idle(store: SqliteStore) -> None:
    while store.maintain():
        pass


def counts(store: SqliteStore, log: int = 1) -> list[int]:
    return [
        count
        for (count,) in store._db.execute("SELECT count FROM chunk WHERE log = ? ORDER BY first", (log,))
    ]


def messages(store: SqliteStore, log: int = 1) -> list[object]:
    return [
        message for chunk in store.read(log, 0, END, END) for message in told(decode(chunk.blob, chunk.first))
    ]


def wanted(stop: int, *, first: int = 0, body: bytes = b"x") -> list[object]:
    return [
        message for offset in range(first, stop) for message in told([run(offset, arrived=offset, body=body)])
    ]


def test_what_waits_for_long_is_merged_beside_commits(store: SqliteStore) -> None:
    stop = WAITING + 3 * PORTION
    fill(store, stop)
    assert counts(store) == [PORTION] * 3 + [1] * WAITING
    assert messages(store) == wanted(stop)
    assert store.sizes([1])[1][0] == stop
    assert list(damage(store.path)) == []


def test_a_queue_that_is_consumed_is_left_alone(store: SqliteStore) -> None:
    for offset in range(2 * WAITING):
        store.apply(Commit(runs={1: [run(offset)]}, trims={1: max(0, offset - WAITING // 2)}))
    idle(store)
    assert set(counts(store)) == {1}


def test_the_floor_is_never_merged_with_what_is_above(store: SqliteStore) -> None:
    fill(store, WAITING)
    store.apply(Commit(trims={1: 100}))
    fill(store, WAITING + 200, WAITING)
    assert counts(store)[0] == PORTION
    assert messages(store) == wanted(WAITING + 200, first=100)


def test_chunks_that_are_not_tiny_stay_as_they_are(store: SqliteStore) -> None:
    for offset in range(WAITING + 2 * PORTION):
        store.apply(Commit(runs={1: [run(offset, body=bytes(TINY if offset % 4 == 0 else 1))]}))
    store.compact()
    assert counts(store)[:4] == [1, 3, 1, 3]


def test_each_log_is_merged_for_itself(store: SqliteStore) -> None:
    fill(store, WAITING + PORTION)
    fill(store, WAITING + PORTION, log=2)
    assert counts(store) == counts(store, 2) == [PORTION] + [1] * WAITING


def test_a_message_that_comes_late_finds_its_gap_in_a_merged_chunk(store: SqliteStore) -> None:
    fill(store, 5)
    fill(store, WAITING + PORTION + 10, 6)
    assert counts(store)[0] > PORTION
    store.apply(Commit(runs={1: [run(5, arrived=5, body=b"x")]}))
    assert messages(store) == wanted(WAITING + PORTION + 10)


def test_a_log_of_the_same_number_begins_anew(store: SqliteStore) -> None:
    fill(store, WAITING + PORTION - 1)
    store.apply(Commit(dropped_logs=[1]))
    store.apply(Commit(logs={1: "again"}))
    fill(store, 10, body=b"y")
    idle(store)
    assert messages(store) == wanted(10, body=b"y")


def test_all_is_merged_by_compact_and_the_file_becomes_small(store: SqliteStore) -> None:
    fill(store, 400)
    fill(store, 300, log=2)
    seen: list[tuple[int, int]] = []
    before = store.file.stat().st_size
    store.compact(lambda done, total: seen.append((done, total)))
    assert (counts(store), counts(store, 2)) == ([400], [300])
    assert messages(store) == wanted(400)
    assert seen[-1] == (700, 700)
    assert store._db.execute("PRAGMA freelist_count").fetchone() == (0,)
    assert store.file.stat().st_size < max(before, 1 << 18)
    fill(store, 401, 400)
    assert messages(store) == wanted(401)
    assert list(damage(store.path)) == []


def test_damage_does_not_fail_a_commit_and_is_told_by_housekeeping(store: SqliteStore) -> None:
    fill(store, WAITING)
    with closing(sqlite3.connect(store.file, isolation_level=None)) as other:
        other.execute("UPDATE chunk SET blob = zeroblob(length(blob)) WHERE log = 1 AND first = 3")
    fill(store, WAITING + PORTION, WAITING)
    assert counts(store) == [1] * (WAITING + PORTION)
    with pytest.raises(StoreError, match="offset 3") as caught:
        store.maintain()
    assert caught.value.code == "data-corrupt"
    idle(store)
    assert len(store.read(1, WAITING, END, END)) == PORTION
