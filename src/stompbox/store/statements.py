"""Many rows with few statements.

Each statement of SQLite lets go of Python's lock and has to have it again, which takes longer than a short statement where the loop is
busy: of 6,400 rows that were put in one by one the thread had 30 ms of work, and they took 180, with those of one executemany 160. The
same rows, ROWS in each statement, take 35.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypeVar

ROWS: Final = 64  # of one statement: with ten values each they are below what older libraries allow (999)
_SIZES: Final = (ROWS, 8, 1)  # of statements: few, since the connection remembers as many as it has met

Execute = Callable[[str, Sequence[object]], Iterable[Any]]
"""Of a connection to the database."""

T = TypeVar("T")


def insert(execute: Execute, into: str, rows: Sequence[Sequence[object]]) -> None:
    """Puts rows into a table: `into` is an INSERT up to its columns."""
    for part in _parts(rows):
        execute(_with_values(into, len(part), len(part[0])), tuple(chain.from_iterable(part)))


def of_each(execute: Execute, which: str, keys: Sequence[object], *before: object) -> Iterator[Any]:
    """What a statement finds that ends with the name of a column, with any of these keys in it; `before`: its values before them."""
    for part in _parts(keys):
        yield from execute(_among(which, len(part)), (*before, *part))


def delete(execute: Execute, which: str, keys: Sequence[object], *before: object) -> None:
    """Deletes rows with these keys. `which` as in `of_each`."""
    for _ in of_each(execute, which, keys, *before):
        pass


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    at = 0
    for size in _SIZES:
        while len(items) - at >= size:
            stop = at + size
            yield items[at:stop]
            at = stop


@lru_cache(64)
def _with_values(into: str, rows: int, columns: int) -> str:
    row = f"({','.join('?' * columns)})"
    return f"{into} VALUES {','.join([row] * rows)}"


@lru_cache(64)
def _among(which: str, keys: int) -> str:
    return f"{which} IN ({','.join('?' * keys)})"
