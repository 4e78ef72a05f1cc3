"""Looking through a whole store, also of a broker that runs."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stompbox.errors import StoreError
from stompbox.store import folder
from stompbox.store.base import Commit
from stompbox.store.check import damage
from stompbox.store.sqlite import SqliteStore
from tests.store.runs import run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with closing(SqliteStore(path)) as store:
        store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}, entries={("queue", "orders"): b"{}"}))
        for first in range(5):
            store.apply(
                Commit(
                    runs={1: [run(first, body=random.Random(first).randbytes(20_000))]},
                    acknowledged={1: [(first, first + 1)]},
                )
            )
    return path


def change(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / folder.DATABASE, isolation_level=None)) as other:
        other.execute(statement)


def test_a_whole_store_has_no_damage(data: Path) -> None:
    seen: list[tuple[int, int]] = []
    assert list(damage(data, lambda done, total: seen.append((done, total)))) == []
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


def test_a_store_in_use_can_be_checked(data: Path) -> None:
    with closing(SqliteStore(data)) as store:
        problems = damage(data)
        store.apply(Commit(runs={1: [run(5)]}))
        assert list(problems) == []
        store.apply(Commit(runs={1: [run(6)]}))
        assert store.recover().logs[0].next == 7


def test_everything_wrong_is_told(data: Path) -> None:
    file = data / folder.DATABASE
    change(data, "UPDATE chunk SET newest = 9 WHERE first = 1")
    change(data, "UPDATE chunk SET blob = zeroblob(length(blob)) WHERE first = 3")
    change(data, "UPDATE cursor SET position = 9")
    change(data, "UPDATE entry SET value = 'x' WHERE kind = 'queue'")
    *problems, last = damage(data)
    assert problems == [
        f"{file}: the index of table chunk does not say what was stored",
        f"{file}: row 1 of table cursor is damaged (checksum)",
        f"{file}: row queue orders of table entry is damaged (checksum)",
        f"{file}: log 1, chunk at offset 1: the row does not say what the chunk says",
    ]
    assert last.startswith(f"{file}: log 1, chunk at offset 3: checksum is ")


def test_damaged_pages_are_told(data: Path) -> None:
    with closing(sqlite3.connect(data / folder.DATABASE, isolation_level=None)) as other:
        (root,) = other.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'chunk_place'").fetchone()
        (size,) = other.execute("PRAGMA page_size").fetchone()
    file = data / folder.DATABASE
    whole = bytearray(file.read_bytes())
    whole[(root - 1) * size + 3 : (root - 1) * size + 5] = b"\0\1"  # one entry instead of five
    file.write_bytes(whole)
    problems = list(damage(data))
    assert any("chunk_place" in problem for problem in problems)
    assert all(problem.startswith(str(file)) for problem in problems)


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"{tmp_path}: no store, it is empty"):
        list(damage(tmp_path))
    (tmp_path / folder.DATABASE).write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match="no database") as caught:
        list(damage(tmp_path))
    assert caught.value.code == "data-corrupt"
