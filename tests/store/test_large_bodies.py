"""Large bodies in both stores: pieces come with commits, chunks name them, and what nothing keeps any more goes."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from stompbox.errors import StoreError
from stompbox.handles import Large
from stompbox.message import Run
from stompbox.store import folder, schema
from stompbox.store.base import PIECE, Commit, Store
from stompbox.store.check import damage
from stompbox.store.chunks import decode, encode, has_handles
from stompbox.store.memory import MemoryStore
from stompbox.store.spool import Spool
from stompbox.store.sqlite import SqliteStore
from tests.store.conftest import Opened
from tests.store.runs import QUEUE, run

FIRST = b"first" * 100
SECOND = b"second" * 10


def large_run(first: int, *bodies: tuple[int, int], arrived: int = 0) -> Run:
    """Messages whose bodies are handles: (id, size)."""
    return Run(QUEUE, cast(list[bytes], [Large(*body) for body in bodies]), first=first, arrived=arrived)


def stored(store: Store, body: int) -> bytes:
    """All pieces of a body; empty when it is not there."""
    found, number = b"", 0
    while True:
        try:
            found += store.read_part(body, number)
        except StoreError as error:
            assert error.code == "no-such-body"
            return found
        number += 1


def settle(store: Store) -> None:
    while store.maintain():
        pass


def handles(store: Store, log: int = 1) -> list[tuple[int, int, int]]:
    """(offset, id, size) of all messages that are stored with large bodies."""
    runs = [
        found for chunk in store.read(log, 0, 1 << 30, 1 << 30) for found in decode(chunk.blob, chunk.first)
    ]
    return [
        (found.first + at, found.large(at).id, found.large(at).size)
        for found in runs
        if found.is_large
        for at in range(len(found))
    ]


def test_pieces_come_with_commits_and_stay_while_a_chunk_names_them(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, parts={(7, 0): FIRST}))
    opened.store.apply(Commit(parts={(7, 1): SECOND}, runs={1: [run(0, 2), large_run(2, (7, 560)), run(3)]}))
    opened.store.apply(Commit(holds={7: False}))
    for store in opened.both():
        settle(store)
        assert handles(store) == [(2, 7, 560)]
        assert stored(store, 7) == FIRST + SECOND
        assert store.read_part(7, 1) == SECOND
        messages, size = store.sizes([1])[1]
        assert messages == 4
        assert 560 < size < 1500
    opened.store.apply(Commit(trims={1: 4}))
    settle(opened.store)
    assert stored(opened.store, 7) == b""
    assert opened.store.sizes([1]) == {1: (0, 0)}


def test_what_memory_holds_stays_though_no_chunk_names_it(opened: Opened) -> None:
    opened.store.apply(
        Commit(
            logs={1: "orders"},
            parts={(7, 0): FIRST, (8, 0): SECOND},
            runs={1: [large_run(0, (7, 500), (8, 60))]},
        )
    )
    opened.store.apply(Commit(trims={1: 2}, holds={8: False}))
    settle(opened.store)
    assert stored(opened.store, 7) == FIRST
    assert stored(opened.store, 8) == b""
    opened.store.apply(Commit(holds={7: False}))
    settle(opened.store)
    assert stored(opened.store, 7) == b""


def test_a_body_read_again_is_held_again(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, parts={(7, 0): FIRST}, runs={1: [large_run(0, (7, 500))]}))
    opened.store.apply(Commit(holds={7: False}))
    opened.store.apply(Commit(holds={7: True}))
    opened.store.apply(Commit(trims={1: 1}))
    settle(opened.store)
    assert stored(opened.store, 7) == FIRST


def test_several_logs_share_a_body(opened: Opened) -> None:
    opened.store.apply(
        Commit(
            logs={1: "orders", 2: "copies"}, parts={(7, 0): FIRST}, runs={1: [large_run(0, (7, 500))], 2: [large_run(5, (7, 500))]},
            holds={7: False},
        )
    )  # fmt: skip
    opened.store.apply(Commit(dropped_logs=[1]))
    for store in opened.both():
        settle(store)
        assert stored(store, 7) == FIRST
    opened.store.apply(Commit(dropped_logs=[2]))
    settle(opened.store)
    assert stored(opened.store, 7) == b""


def test_a_chunk_that_takes_in_a_late_run_names_what_it_named(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, parts={(7, 0): FIRST, (8, 0): SECOND}))
    opened.store.apply(Commit(runs={1: [large_run(0, (7, 500)), run(5)]}, holds={7: False}))
    opened.store.apply(Commit(runs={1: [large_run(2, (8, 60))]}, holds={8: False}))
    for store in opened.both():
        settle(store)
        assert handles(store) == [(0, 7, 500), (2, 8, 60)]
        assert (stored(store, 7), stored(store, 8)) == (FIRST, SECOND)


def test_the_same_piece_twice_counts_once(opened: Opened) -> None:
    """A commit that the disk refused comes again."""
    for _ in range(2):
        opened.store.apply(Commit(parts={(7, 0): FIRST, (7, 1): SECOND}))
    assert stored(opened.store, 7) == FIRST + SECOND


def test_a_refused_commit_leaves_no_body(opened: Opened) -> None:
    with pytest.raises(StoreError):
        opened.store.apply(Commit(parts={(7, 0): FIRST}, runs={9: [large_run(0, (7, 500))]}))
    assert stored(opened.store, 7) == b""


def test_large_bodies_do_not_mix_with_others_in_a_chunk() -> None:
    blob = encode([run(0), large_run(1, (7, 500)), large_run(2, (8, 1 << 40)), run(3)], 0)
    assert has_handles(blob)
    assert not has_handles(encode([run(0), run(3)], 0))
    found = decode(blob, 0)
    assert [(one.first, len(one), one.is_large, one.size, one.routing) for one in found] == [
        (0, 1, False, 6, 1), (1, 2, True, 500 + (1 << 40), 1), (3, 1, False, 6, 1),
    ]  # fmt: skip


# On disk


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path / folder.DATABASE)) as other:
        return int(other.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_what_no_chunk_names_goes_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with closing(SqliteStore(path)) as store:
        named = {1: [large_run(0, (1, 100 * len(FIRST)))]}
        store.apply(
            Commit(
                logs={1: "orders"},
                parts={(body, number): FIRST for body in (1, 2) for number in range(100)},
                runs=named,
            )
        )
    assert rows(path, "part") == 200
    with closing(SqliteStore(path)) as store:
        settle(store)
        assert stored(store, 1) == FIRST * 100
    assert rows(path, "part") == 100


def test_a_trim_before_a_crash_is_finished_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with closing(SqliteStore(path)) as store:
        store.apply(Commit(logs={1: "orders"}, parts={(1, 0): FIRST}, runs={1: [large_run(0, (1, 500))]}))
        store.apply(Commit(trims={1: 1}))
    with closing(SqliteStore(path)) as store:
        settle(store)
    assert (rows(path, "part"), rows(path, "name"), rows(path, "chunk")) == (0, 0, 0)


def test_bodies_go_in_portions_and_the_file_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with closing(SqliteStore(path)) as store:
        for number in range(160):
            store.apply(Commit(parts={(1, number): os.urandom(PIECE)}))
        grown = (path / folder.DATABASE).stat().st_size
        store.apply(Commit(holds={1: False}))
        store.apply(Commit(parts={(2, 0): FIRST}))  # takes a portion with it
        assert 1 < rows(path, "part") < 161
        settle(store)
        assert stored(store, 1) == b""
        assert stored(store, 2) == FIRST
        assert (path / folder.DATABASE).stat().st_size < grown // 2


def test_a_database_without_large_bodies_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with closing(SqliteStore(path)) as store:
        store.apply(Commit(logs={1: "orders"}, runs={1: [run(0)]}))
    with closing(sqlite3.connect(path / folder.DATABASE, isolation_level=None)) as other:
        # as version 1 had it
        other.execute("DROP TABLE part")
        other.execute("DROP TABLE name")
        other.execute("DROP TABLE delivery")
        other.execute("PRAGMA user_version = 1")
    with closing(SqliteStore(path)) as store:
        store.apply(Commit(parts={(1, 0): FIRST}))
        assert stored(store, 1) == FIRST
        assert len(store.read(1, 0, 9, 9)) == 1
    with closing(sqlite3.connect(path / folder.DATABASE)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA_VERSION,)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE part SET data = zeroblob(length(data)) WHERE number = 0", "piece 0 of body 1 is damaged"),
        ("DELETE FROM part WHERE number = 0", "piece 0 of body 1 is damaged (checksum) or missing"),
        ("DELETE FROM part WHERE number = 1", "body 1 has 500 bytes, should have 560"),
        ("UPDATE name SET body = 9", "row 1 0 1 9 560 of table name is damaged"),
    ],
)
def test_damage_is_found_and_named(tmp_path: Path, statement: str, said: str) -> None:
    path = tmp_path / "data"
    with closing(SqliteStore(path)) as store:
        store.apply(
            Commit(
                logs={1: "orders"}, parts={(1, 0): FIRST, (1, 1): SECOND}, runs={1: [large_run(0, (1, 560))]}
            )
        )
    assert list(damage(path)) == []
    with closing(sqlite3.connect(path / folder.DATABASE, isolation_level=None)) as other:
        other.execute(statement)
    *others, problem = damage(path)
    assert said in problem
    assert others == (
        [f"{path / folder.DATABASE}: table part has 1 rows, should have 2"]
        if statement.startswith("DELETE")
        else []
    )


def test_small_chunks_that_name_bodies_do_not_become_one(tmp_path: Path) -> None:
    """Whoever reads a chunk with its bodies in place needs room for them."""
    with closing(SqliteStore(tmp_path / "data")) as store:
        store.apply(Commit(logs={1: "orders"}))
        for first in range(0, 30, 3):
            parts = {(first + 1, 0): FIRST}
            store.apply(Commit(runs={1: [run(first)]}))
            store.apply(
                Commit(
                    runs={1: [large_run(first + 1, (first + 1, 500))]}, parts=parts, holds={first + 1: False}
                )
            )
            store.apply(Commit(runs={1: [run(first + 2)]}))
        store.compact()
        assert [chunk.first for chunk in store.read(1, 0, 99, 1 << 20)] == [
            0,
            1,
            *[at for n in range(2, 29, 3) for at in (n, n + 2)],
            29,
        ]
        assert all(stored(store, body) == FIRST for _, body, _ in handles(store))
        store.apply(Commit(trims={1: 30}))
        store.compact()
        assert handles(store) == []
        assert stored(store, 1) == b""


def test_a_damaged_piece_is_not_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with closing(SqliteStore(path)) as store:
        store.apply(Commit(parts={(1, 0): FIRST}))
        with closing(sqlite3.connect(path / folder.DATABASE, isolation_level=None)) as other:
            other.execute("UPDATE part SET data = zeroblob(length(data))")
        with pytest.raises(StoreError) as caught:
            store.read_part(1, 0)
    assert caught.value.code == "data-corrupt"
    assert str(path) in caught.value.message


# In memory


def test_places_in_the_temporary_file_are_used_again() -> None:
    spool = Spool()
    for body in (1, 2):
        for number in range(3):
            spool.put(body, number, b"%d.%d" % (body, number))
    spool.drop(1)
    spool.put(3, 0, bytes(PIECE))
    assert repr(spool) == "<Spool 2 bodies places=6 free=2>"
    assert spool.get(2, 2) == b"2.2"
    assert spool.get(3, 0) == bytes(PIECE)
    spool.drop(2)
    spool.drop(3)
    assert repr(spool) == "<Spool 0 bodies places=0 free=0>"
    spool.put(4, 0, b"x")
    assert spool.get(4, 0) == b"x"
    spool.close()


def test_a_piece_too_large_is_refused() -> None:
    with pytest.raises(StoreError, match="the most is 262144"):
        Spool().put(1, 0, bytes(PIECE + 1))


def test_the_temporary_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = MemoryStore()
    store.apply(Commit(parts={(1, 0): FIRST}))
    assert stored(store, 1) == FIRST
    assert list(tmp_path.iterdir()) == []
    store.close()


def test_a_temporary_file_that_cannot_be_made_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(StoreError, match="nowhere") as caught:
        MemoryStore().apply(Commit(parts={(1, 0): FIRST}))
    assert caught.value.code == "io-error"
