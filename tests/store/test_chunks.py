"""What goes into a chunk comes out of it, and nothing else does."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.errors import StoreError
from stompbox.handles import Large
from stompbox.message import ANYCAST, FOR_ONE, MEMO, MULTICAST, VOLATILE, Run, Shape
from stompbox.store import chunks
from tests.store.runs import QUEUE, described, run, run_lists, told

AWKWARD = Shape(
    {"destination": "/queue/ü", "a:b": "line\nfeed\r\0", "": "", "\ud800": "no UTF-8"},
    holes=("id", "zeit"),
    priority=9,
)


# Of the format SBC1: written once, and never to be written anew.
FIRST_FORMAT = """
56fdc486534243310a000000000000000b00000000000000e903000000000000040000000100000044000000020000000c00000000000000
4000000007010000050000000000000002000000010000000b0000000900000001000000010000000200000064657374696e6174696f6e2f
71756575652fc3bc6e3169640000000000000000e803000000000000000000000300000003000000020000000a00000000000000e7030000
0000000000000000010000000100000000000000020000000000000001000000010000000100000002000000000000000300000000000000
0500000001000000040000006162636f6e65746872656564666f7572"""


def test_a_chunk_written_by_the_first_version_can_be_read() -> None:
    headers = {"destination": "/queue/ü", "n": "1"}
    shape = Shape(headers, holes=("id",), persistent=True, priority=7, expires=5, has_length=False)
    sent = [
        Run(shape, [b"one", b""], ([b"a", b"bc"],), first=10, arrived=1000, routing=3),
        Run(shape, [b"three"], ([b""],), first=12, arrived=1001, routing=3),
        Run(shape, [b"four"], ([b"d"],), first=20, arrived=999),
    ]
    blob = bytes.fromhex(FIRST_FORMAT)
    assert told(chunks.decode(blob, 10)) == told(sent)
    assert chunks.encode(sent, 10) == blob


@given(run_lists())
def test_round_trip(runs: list[Run]) -> None:
    first = runs[0].first if runs else 7
    blob = chunks.encode(runs, first)
    decoded = chunks.decode(blob, first)
    assert told(decoded) == told(runs)
    head = chunks.verify(blob)
    assert head == chunks.head(blob)
    assert (head.first, head.messages) == (first, sum(map(len, runs)))
    assert head.first + head.count == (runs[-1].stop if runs else first)
    assert head.newest == max((run.arrived for run in runs), default=0)
    assert chunks.encode(decoded, first) == blob, "one blob for one content"


@given(run_lists(), st.integers(0, 2**32))
def test_a_chunk_may_begin_before_its_first_message(runs: list[Run], before: int) -> None:
    moved = [
        Run(r.shape, r.bodies, r.columns, first=r.first + before, arrived=r.arrived, routing=r.routing)
        for r in runs
    ]
    first = runs[0].first if runs else 0
    assert told(chunks.decode(chunks.encode(moved, first), first)) == told(moved)


def test_awkward_text_and_empty_bodies() -> None:
    sent = [
        Run(
            AWKWARD,
            [b"", b"\0", b""],
            ([b"1", b"", b"333"], [b"", b"", b""]),
            first=3,
            arrived=9,
            routing=MULTICAST,
        )
    ]
    assert told(chunks.decode(chunks.encode(sent, 3), 3)) == told(sent)


def test_neighbours_of_one_shape_become_one_run() -> None:
    sent = [run(10, 2, arrived=5), run(12, 1, arrived=5), run(13, 3, arrived=5)]
    (stored,) = chunks.decode(chunks.encode(sent, 10), 10)
    assert (stored.first, len(stored), stored.arrived) == (10, 6, 5)
    assert told([stored]) == told(sent)


def test_neighbours_of_equal_shapes_become_one_run() -> None:
    again = Shape(dict(QUEUE.headers))
    assert len(chunks.decode(chunks.encode([run(0), run(1, shape=again)], 0), 0)) == 1


def test_arrivals_are_kept_apart() -> None:
    sent = [run(0, 2, arrived=5), run(2, 1, arrived=7), run(3, 4, arrived=7), run(7, 1, arrived=6)]
    stored = chunks.decode(chunks.encode(sent, 0), 0)
    assert [(part.first, part.arrived, len(part)) for part in stored] == [(0, 5, 2), (2, 7, 5), (7, 6, 1)]


@pytest.mark.parametrize("arrived", [4, 5 + 2**32])
def test_an_arrival_that_does_not_fit_begins_a_run(arrived: int) -> None:
    sent = [run(0, arrived=5), run(1, arrived=arrived)]
    blob = chunks.encode(sent, 0)
    assert len(chunks.tables(blob).runs) == 2 * 32
    assert told(chunks.decode(blob, 0)) == told(sent)


@pytest.mark.parametrize("where", ["routing", "gap", "shape"])
def test_what_differs_is_not_joined(where: str) -> None:
    shape, columns = (AWKWARD, ([b""], [b""])) if where == "shape" else (QUEUE, ())
    second = Run(shape, [b"x"], columns, first=2 if where == "gap" else 1)
    second.routing = MULTICAST if where == "routing" else 1
    stored = chunks.decode(chunks.encode([run(0), second], 0), 0)
    assert told(stored) == told([run(0), second])
    assert len(stored) == 2


def test_shapes_are_shared_between_chunks() -> None:
    blobs = [chunks.encode([run(first)], first) for first in (0, 1)]
    one, other = (chunks.decode(blob, first)[0] for first, blob in enumerate(blobs))
    assert one.shape is other.shape
    assert described(one.shape) == described(QUEUE)


def test_large_shapes_are_not_kept() -> None:
    large = Shape({"destination": "/queue/x", "large": "x" * chunks.INTERNED_SIZE})
    blob = chunks.encode([run(0, shape=large)], 0)
    one, other = chunks.decode(blob, 0)[0], chunks.decode(blob, 0)[0]
    assert one.shape is not other.shape
    assert described(one.shape) == described(large)


@pytest.mark.parametrize(("octets", "is_kept"), [(100, True), (60_000, False)])
def test_a_shape_keeps_no_second_copy_of_a_long_header(octets: int, *, is_kept: bool) -> None:
    shape = Shape({"destination": "q", "long": "x" * octets})
    key = chunks.shape_bytes(shape)
    assert (key in shape.cache.values(), len(key) <= MEMO) == (is_kept, is_kept)
    back = chunks.shape_of(key)
    assert (back.headers, key in back.cache.values()) == (shape.headers, is_kept)
    assert chunks.shape_bytes(back) == key


def test_every_flipped_bit_is_found() -> None:
    sent = [run(5, 3, arrived=9), Run(AWKWARD, [b"body"], ([b"1"], [b"2"]), first=8)]
    blob = chunks.encode(sent, 5)
    for at in range(len(blob)):
        for bit in range(8):
            bad = bytearray(blob)
            bad[at] ^= 1 << bit
            with pytest.raises(StoreError, match="checksum") as caught:
                chunks.decode(bytes(bad), 5)
            assert caught.value.code == "data-corrupt"


def test_every_truncation_is_found() -> None:
    blob = chunks.encode([run(0, 2)], 0)
    for size in range(len(blob)):
        with pytest.raises(StoreError, match="chunk at offset 0: ") as caught:
            chunks.decode(blob[:size], 0)
        assert caught.value.code == "data-corrupt"


def test_a_chunk_under_a_wrong_key_is_refused() -> None:
    with pytest.raises(StoreError, match="chunk at offset 6: the chunk says it is at offset 5") as caught:
        chunks.decode(chunks.encode([run(5)], 5), 6)
    assert caught.value.code == "data-corrupt"


def test_a_later_format_is_refused() -> None:
    later = bytearray(chunks.encode([run(0)], 0))
    later[4:8] = b"SBC3"
    later[:4] = zlib.crc32(later[4:]).to_bytes(4, "little")
    with pytest.raises(StoreError, match="format 33434253 is not known") as caught:
        chunks.decode(bytes(later), 0)
    assert caught.value.code == "data-too-new"


@given(run_lists(), st.sets(st.integers(0, 2)))
def test_runs_of_some_shapes_are_passed_over(runs: list[Run], left: set[int]) -> None:
    first = runs[0].first if runs else 0
    blob = chunks.encode(runs, first)
    keys = [
        chunks.shape_bytes(shape) for index, shape in enumerate(chunks.tables(blob).shapes) if index in left
    ]
    wanted = [run for run in runs if chunks.shape_bytes(run.shape) not in keys]
    assert told(chunks.decode(blob, first, left)) == told(wanted)


def test_a_blob_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_BLOB", 1000)
    with pytest.raises(StoreError, match="cannot be stored; the most is 1000") as caught:
        chunks.encode([run(0, body=b"x" * 1000)], 0)
    assert caught.value.code == "message-too-large"


def test_tables_are_views_of_the_blob() -> None:
    sent = [run(5, 2, arrived=1), run(7, 1, arrived=4), Run(AWKWARD, [b"body"], ([b"1"], [b"22"]), first=8)]
    blob = chunks.encode(sent, 5)
    table = chunks.tables(memoryview(blob))
    assert [described(shape) for shape in table.shapes] == [described(QUEUE), described(AWKWARD)]
    assert table.numbers.tolist() == [2, 0, 1, 3, 6, 6, 6, 1, 2, 4]  # arrivals, bodies; holes and body
    assert bytes(table.data) == b"body 5body 6body 7122body"
    assert table.data.obj is blob
    assert table.head == chunks.ChunkHead(5, 4, 4, 4)


def test_whom_a_run_is_for_stands_in_its_routing_and_keeps_it_apart_from_others() -> None:
    last = VOLATILE | (VOLATILE - 1)
    routings = [ANYCAST, ANYCAST | 7 << FOR_ONE, ANYCAST | 8 << FOR_ONE, MULTICAST | last << FOR_ONE]
    runs = [Run(QUEUE, [b"x"], first=first, routing=routing) for first, routing in enumerate(routings)]
    found = chunks.decode(chunks.encode(runs, 0), 0)
    assert [(run.first, run.routing) for run in found] == list(enumerate(routings))
    large = Run(QUEUE, [Large(1, 5)], first=0, routing=routings[3])
    [again] = chunks.decode(chunks.encode([large], 0), 0)
    assert (again.is_large, again.routing) == (True, routings[3])
