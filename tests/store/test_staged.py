"""Chunks that lie in the pieces of what a sink has staged: every store reads them as if they had been written when they were published."""

from __future__ import annotations

import sqlite3
import struct
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from stompbox.errors import StoreError
from stompbox.handles import Large, Staged
from stompbox.message import MULTICAST, Run, Shape
from stompbox.store import folder
from stompbox.store.base import Commit, Part, Store
from stompbox.store.check import Verifying, damage
from stompbox.store.chunks import decode, encode
from stompbox.store.losses import Losses
from stompbox.store.readonly import ReadOnlyStore
from stompbox.store.sqlite import SqliteStore
from stompbox.store.staged import chunk_size, encode_staged, has_rows, taken_out, verified
from tests.store.conftest import Opened
from tests.store.runs import run, told
from tests.store.test_large_bodies import rows, settle, stored

ONE = Shape({"destination": "/topic/kept", "kind": "one"})
OTHER = Shape({"destination": "/topic/kept"}, holes=("id",), persistent=True)
PIECES = 3  # beside that of the summary


def given() -> list[Run]:
    """Two shapes, one of them with a hole, in runs that take turns."""
    found, first = [], 0
    for number in range(6):
        bodies = [b"%d-%d" % (number, at) for at in range(5)]
        columns = ([b"id%d" % at for at in range(5)],)
        found.append(Run(OTHER, bodies, columns) if number % 2 else Run(ONE, bodies))
        found[-1].first, first = first, first + 5
    return found


CHUNK = encode(given(), 0)


def staged_run(
    first: int, body: int = 7, arrived: int = 1000, size: int = len(CHUNK), count: int = 30
) -> Run:
    found = Run.of_staged(ONE, Staged(Large(body, size), count), routing=MULTICAST, sender=3)
    found.first, found.arrived = first, arrived
    return found


def parts(body: int = 7, chunk: bytes = CHUNK) -> dict[tuple[int, int], bytes]:
    size = -(-len(chunk) // PIECES)
    pieces = [chunk[at : at + size] for at in range(0, len(chunk), size)]
    return {(body, 0): b"summary"} | {(body, number): piece for number, piece in enumerate(pieces, 1)}


def published(first: int, arrived: int = 1000) -> list[Run]:
    """The same messages as they are read later."""
    return [
        Run(one.shape, one.bodies, one.columns, first=first + one.first, arrived=arrived, routing=MULTICAST)
        for one in given()
    ]


def read(store: Store, start: int = 0, stop: int = 1 << 30, most: int = 1 << 30) -> list[Run]:
    return [one for chunk in store.read(1, start, stop, most) for one in decode(chunk.blob, chunk.first)]


def test_it_is_read_as_if_it_had_been_written(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "kept"}, parts=parts()))
    opened.store.apply(Commit(runs={1: [run(0, 2), staged_run(2), run(32, arrived=1001)]}, holds={7: False}))
    expected = told([run(0, 2), *published(2), run(32, arrived=1001)])
    for store in opened.both():
        settle(store)
        assert told(read(store)) == expected
        (chunk,) = store.read(1, 10, 11, 1 << 20)
        assert (chunk.first, chunk.count) == (2, 30)
        assert chunk.blob == encode(published(2), 2), "octet for octet"
        assert store.find_time(1, 1000) == 2
        assert list(store.outline(1))[1] == Part(2, 32, len(CHUNK), 1000)
        messages, size = store.sizes([1])[1]
        assert messages == 33
        assert len(CHUNK) < size < len(CHUNK) + 500
        assert store.read(1, 0, 40, len(CHUNK) - 1)[-1].stop == 2, (
            "it counts whole against what a reader takes"
        )


def test_its_pieces_go_with_it(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "kept", 2: "other"}, parts=parts()))
    opened.store.apply(Commit(runs={1: [staged_run(0)], 2: [staged_run(5)]}, holds={7: False}))
    opened.store.apply(Commit(trims={1: 30}))
    for store in opened.both():
        settle(store)
        assert read(store) == []
        assert len(store.read(2, 0, 99, 1 << 20)) == 1
    opened.store.apply(Commit(dropped_logs=[2]))
    settle(opened.store)
    assert stored(opened.store, 7) == b""


def test_what_is_trimmed_with_it_is_not_written(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "kept"}, parts=parts()))
    opened.store.apply(Commit(runs={1: [staged_run(0), run(30)]}, trims={1: 30}, holds={7: False}))
    settle(opened.store)
    assert [one.first for one in read(opened.store)] == [30]
    assert stored(opened.store, 7) == b""


def test_a_late_run_before_it_leaves_it_alone(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "kept"}, parts=parts()))
    opened.store.apply(Commit(runs={1: [staged_run(5)]}, holds={7: False}))
    opened.store.apply(Commit(runs={1: [run(1), run(35)]}))
    for store in opened.both():
        assert told(read(store)) == told([run(1), *published(5), run(35)])


# On disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with closing(SqliteStore(path)) as store:
        store.apply(Commit(logs={1: "kept"}, parts=parts()))
        store.apply(Commit(runs={1: [run(0), staged_run(1), run(31)]}, holds={7: False}))
    return path


def test_its_row_is_small(path: Path) -> None:
    with closing(sqlite3.connect(path / folder.DATABASE)) as other:
        blob, size = other.execute("SELECT blob, size FROM chunk WHERE first = 1").fetchone()
    assert len(blob) < 100 < size == len(CHUNK) == chunk_size(blob)
    assert blob == encode_staged(staged_run(1))
    with pytest.raises(StoreError) as caught:
        decode(blob, 1)
    assert caught.value.code == "data-too-new", "who does not know of such chunks says so"


def test_small_chunks_beside_it_become_one_and_it_stays(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        for first in range(32, 40):
            store.apply(Commit(runs={1: [run(first)]}))
        store.compact()
        assert [chunk.first for chunk in store.read(1, 0, 99, 1 << 20)] == [0, 1, 31]
        assert told(read(store)) == told([run(0), *published(1), run(31, 9)])


def test_it_is_read_where_nothing_may_be_written(path: Path) -> None:
    with closing(ReadOnlyStore(path)) as store:
        assert told(read(store)) == told([run(0), *published(1), run(31)])


DAMAGE = [
    ("UPDATE part SET data = zeroblob(length(data)) WHERE number = 2", "piece 2 of body 7 is damaged"),
    ("DELETE FROM part WHERE number = 3", "piece 3 of body 7 is not there"),
    ("UPDATE chunk SET blob = zeroblob(length(blob)) WHERE first = 1", "checksum"),
]


@pytest.mark.parametrize(("statement", "said"), DAMAGE)
def test_damage_is_found_named_and_passed_to_nobody(path: Path, statement: str, said: str) -> None:
    assert list(damage(path)) == []
    with closing(SqliteStore(path)) as store:
        with closing(sqlite3.connect(path / folder.DATABASE, isolation_level=None)) as other:
            other.execute(statement)
        assert any(said in problem for problem in damage(path))
        with pytest.raises(StoreError, match="log 1, chunk at offset 1") as caught:
            store.read(1, 0, 40, 1 << 20)
        assert caught.value.code == "data-corrupt"
        verifying, found = Verifying(store._db, store.file), []
        while not verifying.is_done:
            found += verifying.portion()
        assert any(said in problem for problem in found)
        assert [one.first for one in store.read(1, 31, 40, 1 << 20)] == [31], "others are read"


def test_where_loss_is_accepted_it_is_left_out_with_its_pieces(path: Path) -> None:
    with closing(sqlite3.connect(path / folder.DATABASE, isolation_level=None)) as other:
        other.execute(DAMAGE[0][0])
    with pytest.raises(StoreError, match="piece 2 of body 7 is damaged"):
        SqliteStore(path)
    said: list[str] = []
    losses = Losses(are_accepted=True, tell=lambda code, text: said.append(f"{code} {text}"))
    with closing(SqliteStore(path, losses=losses)) as store:
        settle(store)
        assert [one.first for one in read(store)] == [0, 31]
    assert any(text.startswith("data-missing") and "chunk at offset 1" in text for text in said)
    assert rows(path, "part") == 0


# The bytes


def parts_of(pieces: dict[tuple[int, int], bytes]) -> object:
    def read_part(body: int, number: int) -> bytes:
        try:
            return pieces[body, number]
        except KeyError:
            raise StoreError("no-such-body", f"piece {number} of body {body} is not there") from None

    return read_part


@pytest.mark.parametrize(
    ("chunk", "size", "count", "said"),
    [
        (CHUNK, len(CHUNK) - 1, 30, "bytes, should have"),
        (CHUNK + b"x", len(CHUNK), 30, "bytes, should have"),
        (CHUNK, len(CHUNK), 29, "is not the chunk that was staged"),
        (b"x" * 20, 20, 30, "20 bytes are no chunk"),
        (b"x" * len(CHUNK), len(CHUNK), 30, "is not the chunk that was staged"),
    ],
)
def test_what_lies_there_is_what_was_staged(chunk: bytes, size: int, count: int, said: str) -> None:
    blob = encode_staged(staged_run(0, size=size, count=count))
    with pytest.raises(StoreError, match=said):
        verified(blob, "chunk at offset 0", parts_of(parts(7, chunk)))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="do not say where"):
        longer = bytearray(blob + b"x")
        struct.pack_into("<I", longer, 0, zlib.crc32(longer[4:]))
        verified(bytes(longer), "chunk at offset 0", parts_of({}))  # type: ignore[arg-type]


def test_a_node_of_a_cluster_writes_what_it_is() -> None:
    runs = [run(0), staged_run(1), run(31)]
    found = taken_out(runs, parts_of(parts()))  # type: ignore[arg-type]
    assert told(found) == told([run(0), *published(1), run(31)])
    assert not any(one.is_staged for one in found)


def test_a_chunk_has_the_rows_that_it_says() -> None:
    assert has_rows(CHUNK, 6, 30)
    assert not has_rows(CHUNK, 5, 30)
    assert not has_rows(CHUNK, 6, 29)


def test_bodies_that_are_not_here_are_given_to_nobody() -> None:
    one = staged_run(4)
    assert (len(one), one.stop, one.size, one.is_staged, one.is_large) == (30, 34, len(CHUNK), True, True)
    for ask in (
        lambda: one.bodies[0],
        lambda: list(one.bodies),
        lambda: one.octets(0),
        lambda: one.part(0, 1),
    ):
        with pytest.raises(TypeError, match="which the log alone has"):
            ask()
