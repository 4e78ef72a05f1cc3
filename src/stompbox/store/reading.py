"""Reading chunks out of the database: by offset, by time, and their sizes from the index alone.

`start` is where reading begins: nothing below its log's floor is read, and the floor is known to the caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stompbox.store.base import Part, StoredChunk
from stompbox.store.parts import named_size, read_part
from stompbox.store.rows import FROM
from stompbox.store.staged import verified


def read_chunks(
    connection: sqlite3.Connection, file: Path, where: tuple[int, int, int], max_bytes: int
) -> list[StoredChunk]:
    """As Store.read; `where`: log, start, stop. Raises StoreError `data-corrupt`."""
    log, start, stop = where
    if start >= stop:
        return []
    place = {"log": log, "start": start, "stop": stop}
    last, size = None, 0
    for first, more in connection.execute(
        f"SELECT first, size {FROM} AND first < :stop ORDER BY first", place
    ):
        size += more
        if last is not None and size > max_bytes:
            break
        last = first
    if last is None:
        return []
    place["stop"] = last + 1
    found = connection.execute(
        f"SELECT first, count, blob {FROM} AND first < :stop ORDER BY first", place
    ).fetchall()
    read = partial(read_part, connection, file)
    at = f"{file}: log {log}, chunk at offset"
    return [
        StoredChunk(first, count, verified(blob, f"{at} {first}", read)[1]) for first, count, blob in found
    ]


def first_since(connection: sqlite3.Connection, log: int, start: int, timestamp: int) -> int | None:
    """The first offset of a chunk with messages that arrived then or later (ms)."""
    place = {"log": log, "start": start, "time": timestamp}
    found = connection.execute(
        f"SELECT first {FROM} AND newest >= :time ORDER BY first LIMIT 1", place
    ).fetchone()
    return None if found is None else int(found[0])


def size_of(connection: sqlite3.Connection, log: int, start: int) -> tuple[int, int]:
    """Messages, and bytes of blobs and of the large bodies that they name."""
    place = {"log": log, "start": start}
    select = f"SELECT coalesce(sum(messages), 0), coalesce(sum(size), 0) {FROM}"
    messages, size = connection.execute(select, place).fetchone()
    return messages, size + named_size(connection, place)


def parts_of(connection: sqlite3.Connection, log: int, start: int) -> Iterator[Part]:
    """The chunks of a log without their blobs, in offset order."""
    for row in connection.execute(
        f"SELECT first, first + count, size, newest {FROM} ORDER BY first", {"log": log, "start": start}
    ):
        yield Part(*row)
