"""Rows are put, found and deleted many at a time, whatever their number."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

import pytest

from stompbox.store.statements import ROWS, delete, insert, of_each


@pytest.mark.parametrize("count", [0, 1, 7, 8, 63, ROWS, ROWS + 1, 3 * ROWS + 30])
def test_all_are_there_with_few_statements(count: int) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE t (kind TEXT, key INTEGER PRIMARY KEY, value BLOB)")
        said: list[str] = []

        def execute(text: str, values: Sequence[object]) -> sqlite3.Cursor:
            said.append(text)
            return db.execute(text, values)

        rows = [("a" if key % 2 else "b", key, b"%d" % key) for key in range(count)]
        insert(execute, "INSERT INTO t (kind, key, value)", rows)
        assert db.execute("SELECT kind, key, value FROM t ORDER BY key").fetchall() == rows
        keys = [key for _, key, _ in rows]
        assert list(of_each(execute, "SELECT kind, key, value FROM t WHERE key", [*keys, -1])) == rows
        delete(execute, "DELETE FROM t WHERE kind = ? AND key", keys, "a")
        assert db.execute("SELECT kind, key, value FROM t ORDER BY key").fetchall() == rows[::2]
        assert len(said) <= 3 * (count // ROWS + ROWS // 8 + 8)


def test_a_later_row_replaces_an_earlier_one_of_the_same_statement() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE t (key INTEGER PRIMARY KEY, value INTEGER)")
        insert(db.execute, "INSERT OR REPLACE INTO t (key, value)", [(at % 3, at) for at in range(ROWS)])
        assert db.execute("SELECT key, value FROM t ORDER BY key").fetchall() == [(0, 63), (1, 61), (2, 62)]
