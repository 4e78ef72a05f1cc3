"""The contract of a store (store/base.py), kept by each of them."""

from __future__ import annotations

import threading

import pytest

from stompbox.errors import StoreError
from stompbox.message import Run
from stompbox.ranges import Ranges
from stompbox.store.base import Commit, Part, Recovered, Store, StoredCursor, StoredLog
from stompbox.store.chunks import decode
from stompbox.store.sqlite import SqliteStore
from tests.store.conftest import CHUNK_BYTES, Opened
from tests.store.runs import QUEUE, run, told

EVERYTHING = 1 << 30
NAMES = {1: "orders", 2: "flights.ü"}


def read(
    store: Store, log: int = 1, start: int = 0, stop: int = EVERYTHING, max_bytes: int = EVERYTHING
) -> list[Run]:
    return [
        run for chunk in store.read(log, start, stop, max_bytes) for run in decode(chunk.blob, chunk.first)
    ]


def offsets(runs: list[Run]) -> list[int]:
    return [offset for run in runs for offset in range(run.first, run.stop)]


def fill(store: Store, *firsts: int, count: int = 10) -> None:
    """One commit, and so one chunk, of `count` messages at each of the offsets; the offset is the arrival too."""
    store.apply(Commit(logs={1: "orders"}))
    for first in firsts:
        store.apply(Commit(runs={1: [run(first, count, arrived=first)]}))


def test_an_empty_store(store: Store) -> None:
    assert store.recover() == Recovered([], [], {})
    assert store.read(1, 0, 10, 1000) == []
    assert store.find_time(1, 0) == 0
    assert store.sizes([1, 2]) == {1: (0, 0), 2: (0, 0)}
    store.apply(Commit())
    assert store.recover() == Recovered([], [], {})


def test_everything_comes_back(opened: Opened) -> None:
    commit = Commit(
        logs=NAMES,
        runs={1: [run(0, 3, arrived=7), run(5, 1, arrived=8)], 2: [run(4)]},
        next_offsets={2: 9},
        cursors={7: (1, 0), 8: (2, 4)},
        acknowledged={7: [(5, 6), (0, 2)]},
        entries={("address", "orders"): b"{}", ("queue", "orders"): b"\0\xff"},
    )
    opened.store.apply(commit)
    for store in opened.both():
        found = store.recover()
        assert sorted(found.logs, key=lambda log: log.id) == [
            StoredLog(1, "orders", 0, 6, 6),
            StoredLog(2, "flights.ü", 4, 5, 9),
        ]
        assert sorted(found.cursors, key=lambda c: c.id) == [
            StoredCursor(7, 1, 2, Ranges([(5, 6)])),
            StoredCursor(8, 2, 4, Ranges()),
        ]
        assert found.entries == commit.entries
        assert told(read(store, 1)) == told(commit.runs[1])
        assert told(read(store, 2)) == told(commit.runs[2])


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, 1, [0]),
        (9, 10, [0]),
        (9, 11, [0, 10]),
        (10, 20, [10]),
        (10, 10, []),
        (20, 30, []),  # a gap between chunks
        (19, 31, [10, 30]),
        (35, 36, [30]),
        (39, 100, [30]),
        (40, 100, []),
        (0, 40, [0, 10, 30]),
        (-5, 0, []),
        (15, 12, []),
    ],
)
def test_read_gives_the_chunks_that_overlap(store: Store, start: int, stop: int, expected: list[int]) -> None:
    fill(store, 0, 10, 30)
    assert [chunk.first for chunk in store.read(1, start, stop, EVERYTHING)] == expected


def test_read_keeps_to_max_bytes_but_gives_one(store: Store) -> None:
    fill(store, 0, 10, 20)
    sizes = [len(chunk.blob) for chunk in store.read(1, 0, 30, EVERYTHING)]
    for limit, expected in (
        (0, 1),
        (sizes[0], 1),
        (sizes[0] + sizes[1] - 1, 1),
        (sizes[0] + sizes[1], 2),
        (sum(sizes), 3),
    ):
        assert len(store.read(1, 0, 30, limit)) == expected
    assert [chunk.first for chunk in store.read(1, 12, 30, 0)] == [10]


def test_read_of_an_unknown_log(store: Store) -> None:
    fill(store, 0)
    assert store.read(2, 0, 10, EVERYTHING) == []


def test_a_chunk_says_what_it_covers(store: Store) -> None:
    store.apply(Commit(logs={1: "orders"}, runs={1: [run(5, 2), run(9, 1)]}))
    (chunk,) = store.read(1, 8, 9, EVERYTHING)  # in its gap
    assert (chunk.first, chunk.count, chunk.stop) == (5, 5, 10)


def test_a_large_commit_becomes_several_chunks(store: Store) -> None:
    sent = [run(0, 30), run(30, 1, body=b"x" * 3 * CHUNK_BYTES), run(31, 1)]
    store.apply(Commit(logs={1: "orders"}, runs={1: sent}))
    chunks = store.read(1, 0, EVERYTHING, EVERYTHING)
    assert len(chunks) >= 5
    assert [chunk.first for chunk in chunks][1:] == [chunk.stop for chunk in chunks][:-1]
    assert told(read(store)) == told(sent)


def test_runs_may_come_later_than_their_neighbours(opened: Opened) -> None:
    """A queue is paged: what was not worth storing is stored now, between what is there."""
    opened.store.apply(Commit(logs={1: "orders"}, runs={1: [run(0, 2), run(6, 2), run(10)]}))
    opened.store.apply(Commit(runs={1: [run(20)]}))
    opened.store.apply(
        Commit(runs={1: [run(4, 2, body=b"late"), run(8, body=b"late"), run(15, 2, body=b"late"), run(21)]})
    )
    for store in opened.both():
        assert offsets(read(store)) == [0, 1, 4, 5, 6, 7, 8, 10, 15, 16, 20, 21]
        late = [(15, 22)] if opened.merges else [(15, 17), (20, 21), (21, 22)]
        assert [(chunk.first, chunk.stop) for chunk in store.read(1, 0, 99, EVERYTHING)] == [(0, 11), *late]
        assert offsets(read(store, start=5, stop=6)) == [0, 1, 4, 5, 6, 7, 8, 10]
        assert store.sizes([1])[1][0] == 12
        assert store.recover().logs == [StoredLog(1, "orders", 0, 22, 22)]


def test_late_runs_make_a_full_chunk_two(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, runs={1: [run(0), run(9, 8)]}))
    opened.store.apply(Commit(runs={1: [run(1, 8)]}))
    chunks = opened.again().read(1, 0, 99, EVERYTHING)
    assert len(chunks) == 2
    assert offsets(read(opened.store)) == list(range(17))


def test_empty_runs_are_nothing(store: Store) -> None:
    store.apply(Commit(logs={1: "orders"}, runs={1: []}))
    store.apply(Commit(runs={1: [Run(QUEUE, [], first=0)]}))
    assert store.read(1, 0, 10, EVERYTHING) == []
    assert store.recover().logs == [StoredLog(1, "orders", 0, 0, 0)]


def test_find_time(store: Store) -> None:
    fill(store, 10, 20, 40)
    assert [store.find_time(1, ms) for ms in (0, 10, 11, 20, 21, 40, 41)] == [10, 10, 20, 20, 40, 40, 50]
    assert store.find_time(2, 0) == 0


def test_find_time_after_the_clock_went_back(store: Store) -> None:
    store.apply(Commit(logs={1: "orders"}, runs={1: [run(0, arrived=50), run(1, arrived=20)]}))
    store.apply(Commit(runs={1: [run(2, arrived=30)]}))
    assert [store.find_time(1, ms) for ms in (20, 40, 50, 51)] == [0, 0, 0, 3]


def test_sizes_count_messages_and_bytes_of_blobs(store: Store) -> None:
    fill(store, 0, 10, 30)
    blobs = [len(chunk.blob) for chunk in store.read(1, 0, EVERYTHING, EVERYTHING)]
    assert store.sizes([1, 9]) == {1: (30, sum(blobs)), 9: (0, 0)}
    store.apply(Commit(trims={1: 15}))
    assert store.sizes([1]) == {1: (20, sum(blobs[1:]))}


def test_the_outline_is_of_chunks_that_can_be_read(store: Store) -> None:
    fill(store, 0, 10, 30)
    chunks = store.read(1, 0, EVERYTHING, EVERYTHING)
    newest = [max(run.arrived for run in decode(chunk.blob, chunk.first)) for chunk in chunks]
    found = [
        Part(chunk.first, chunk.stop, len(chunk.blob), latest)
        for chunk, latest in zip(chunks, newest, strict=True)
    ]
    assert list(store.outline(1)) == found
    store.apply(Commit(trims={1: 15}))
    assert list(store.outline(1)) == found[1:]
    assert list(store.outline(9)) == []


def test_next_offsets_only_grow(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, next_offsets={1: 7}))
    opened.store.apply(Commit(runs={1: [run(2)]}))  # paged later than it came
    opened.store.apply(Commit(next_offsets={1: 5}))
    assert opened.again().recover().logs == [StoredLog(1, "orders", 2, 3, 7)]
    opened.store.apply(Commit(runs={1: [run(7)]}))
    assert opened.again().recover().logs == [StoredLog(1, "orders", 2, 8, 8)]


@pytest.mark.parametrize(
    ("trim", "left"),
    [
        (0, [0, 10, 30]),
        (9, [0, 10, 30]),
        (10, [10, 30]),
        (19, [10, 30]),
        (20, [30]),
        (39, [30]),
        (40, []),
        (10_000, []),
    ],
)
def test_trim_takes_what_lies_wholly_below(opened: Opened, trim: int, left: list[int]) -> None:
    fill(opened.store, 0, 10, 30)
    opened.store.apply(Commit(trims={1: trim}))
    for store in opened.both():
        while store.maintain():
            pass
        assert [chunk.first for chunk in store.read(1, 0, EVERYTHING, EVERYTHING)] == left
        assert store.recover().logs == [StoredLog(1, "orders", left[0] if left else 40, 40, 40)]
        assert store.find_time(1, 0) == (left[0] if left else 40)
    opened.store.apply(Commit(runs={1: [run(40, 10)]}))
    assert offsets(read(opened.again(), start=40)) == list(range(40, 50))


def test_what_a_commit_trims_itself_is_not_stored(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, runs={1: [run(0, 5)]}, trims={1: 5}))
    assert opened.again().recover().logs == [StoredLog(1, "orders", 5, 5, 5)]
    assert opened.store.read(1, 0, 10, EVERYTHING) == []


def test_a_trim_never_goes_back(opened: Opened) -> None:
    fill(opened.store, 0, 10)
    opened.store.apply(Commit(trims={1: 10}))
    opened.store.apply(Commit(trims={1: 0}))
    assert opened.again().recover().logs == [StoredLog(1, "orders", 10, 20, 20)]


def test_a_dropped_log_is_gone_with_its_chunks(opened: Opened) -> None:
    fill(opened.store, 0, 10)
    opened.store.apply(Commit(dropped_logs=[1, 99]))
    for store in opened.both():
        assert store.recover().logs == []
        assert store.read(1, 0, 100, EVERYTHING) == []
        assert store.sizes([1]) == {1: (0, 0)}
        assert store.find_time(1, 0) == 0
        while store.maintain():
            pass
    opened.store.apply(Commit(logs={1: "again"}))
    assert opened.again().recover().logs == [StoredLog(1, "again", 0, 0, 0)]


def test_an_id_used_again_inherits_nothing(opened: Opened) -> None:
    fill(opened.store, 0, 10)
    opened.store.apply(Commit(cursors={1: (1, 0)}, acknowledged={1: [(0, 5), (7, 8)]}, trims={1: 10}))
    opened.store.apply(Commit(dropped_cursors=[1], dropped_logs=[1]))
    opened.store.apply(Commit(logs={1: "again"}, cursors={1: (1, 0)}, runs={1: [run(3)]}))
    found = opened.again().recover()
    assert (found.logs, found.cursors) == (
        [StoredLog(1, "again", 3, 4, 4)],
        [StoredCursor(1, 1, 0, Ranges())],
    )
    assert offsets(read(opened.store)) == [3]


def test_made_and_dropped_in_one_commit(opened: Opened) -> None:
    opened.store.apply(
        Commit(
            logs={1: "short"}, cursors={1: (1, 0)}, runs={1: [run(0)]}, dropped_cursors=[1], dropped_logs=[1]
        )
    )
    assert opened.again().recover() == Recovered([], [], {})
    assert opened.store.read(1, 0, 10, EVERYTHING) == []


def test_acknowledgements_in_any_order(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 10), 2: (1, 0)}))
    opened.store.apply(Commit(acknowledged={1: [(30, 31), (12, 15), (11, 12)], 2: [(0, 1)]}))
    opened.store.apply(Commit(acknowledged={1: [(15, 20), (3, 5)], 99: [(0, 1)]}))
    cursors = {cursor.id: cursor for cursor in opened.again().recover().cursors}
    assert cursors == {
        1: StoredCursor(1, 1, 10, Ranges([(11, 20), (30, 31)])),
        2: StoredCursor(2, 1, 1, Ranges()),
    }
    opened.store.apply(Commit(acknowledged={1: [(10, 11)]}))
    assert {c.id: (c.position, list(c.ahead)) for c in opened.again().recover().cursors}[1] == (
        20,
        [(30, 31)],
    )


def test_a_cursor_can_be_put_elsewhere(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}, acknowledged={1: [(0, 5), (8, 9)]}))
    opened.store.apply(Commit(cursors={1: (1, 2)}))
    assert opened.again().recover().cursors == [StoredCursor(1, 1, 2, Ranges())]


def test_the_latest_counts_of_deliveries_count(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0), 2: (1, 5)}))
    opened.store.apply(
        Commit(delivered={1: [(0, 10, 1, 0), (2, 4, 2, 1)], 2: [(3, 8, 1, 1)], 99: [(0, 1, 1, 1)]})
    )
    opened.store.apply(Commit(delivered={1: [(0, 10, 3, 1)]}))
    opened.store.apply(Commit(delivered={1: [(3, 5, 4, 2)]}, acknowledged={1: [(0, 1), (8, 9)]}))
    for store in opened.both():
        counted = {cursor.id: cursor.delivered for cursor in store.recover().cursors}
        assert counted == {1: [(1, 3, 3, 1), (3, 5, 4, 2), (5, 8, 3, 1), (9, 10, 3, 1)], 2: [(5, 8, 1, 1)]}
    opened.store.apply(Commit(dropped_cursors=[1], cursors={2: (1, 0), 99: (1, 0)}))
    opened.store.apply(Commit(cursors={1: (1, 0)}))
    for store in opened.both():
        assert [cursor.delivered for cursor in store.recover().cursors] == [[], [], []]


def test_counts_of_what_was_acknowledged_go(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}))
    for offset in range(600):
        done = {1: [(offset - 1, offset)]} if offset > 1 else {}  # but for the first one
        opened.store.apply(Commit(delivered={1: [(offset, offset + 1, 1, 1)]}, acknowledged=done))
    (cursor,) = opened.again().recover().cursors
    assert cursor.delivered == [(0, 1, 1, 1), (599, 600, 1, 1)]
    if isinstance(opened.store, SqliteStore):
        (rows,) = opened.store._db.execute("SELECT count(*) FROM delivery").fetchone()
        assert rows < 300


def test_many_acknowledgements_fold(opened: Opened) -> None:
    opened.store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0), 2: (1, 0)}))
    for offset in range(600):
        ranges = {1: [(offset, offset + 1)], 2: [(2 * offset, 2 * offset + 1)]}
        opened.store.apply(Commit(acknowledged=ranges, next_offsets={1: offset + 1}))
    found = opened.again().recover()
    assert found.logs == [StoredLog(1, "orders", 600, 600, 600)]
    cursors = {cursor.id: cursor for cursor in found.cursors}
    assert (cursors[1].position, list(cursors[1].ahead)) == (600, [])
    assert (cursors[2].position, list(cursors[2].ahead)) == (1, [(2 * i, 2 * i + 1) for i in range(1, 600)])


def test_entries_are_put_replaced_and_deleted(opened: Opened) -> None:
    opened.store.apply(Commit(entries={("queue", "a"): b"1", ("queue", "b"): b"", ("address", "a"): b"2"}))
    opened.store.apply(
        Commit(entries={("queue", "a"): b"3", ("address", "a"): None, ("address", "never"): None})
    )
    assert opened.again().recover().entries == {("queue", "a"): b"3", ("queue", "b"): b""}


def test_a_failing_commit_leaves_nothing(opened: Opened) -> None:
    fill(opened.store, 0)
    before = opened.store.recover()
    bad = Commit(
        logs={2: "new"},
        runs={2: [run(0)], 3: [run(0)]},
        cursors={5: (2, 0)},
        entries={("queue", "a"): b"1"},
        trims={1: 10},
    )
    for commit, code in (
        (bad, "no-such-log"),
        (Commit(cursors={5: (9, 0)}), "no-such-log"),
        (Commit(logs={1: "twice"}), "log-exists"),
    ):
        with pytest.raises(StoreError) as caught:
            opened.store.apply(commit)
        assert caught.value.code == code
        assert opened.store.recover() == before
    assert opened.again().recover() == before
    opened.store.apply(Commit(runs={1: [run(10)]}))
    assert offsets(read(opened.again())) == list(range(11))


def test_trims_and_next_offsets_of_what_is_gone_have_no_effect(store: Store) -> None:
    store.apply(
        Commit(
            next_offsets={1: 5},
            trims={2: 5},
            dropped_cursors=[3],
            dropped_logs=[4],
            acknowledged={5: [(0, 1)]},
        )
    )
    assert store.recover() == Recovered([], [], {})


def test_logs_do_not_mix(store: Store) -> None:
    store.apply(Commit(logs=NAMES, runs={1: [run(0, 3)], 2: [run(0, 3, body=b"two")]}))
    store.apply(Commit(runs={2: [run(3, body=b"two")], 1: [run(3)]}, trims={2: 3}))
    assert [body for r in read(store, 1) for body in r.bodies] == [b"body 0", b"body 1", b"body 2", b"body 3"]
    assert [body for r in read(store, 2) for body in r.bodies] == [b"two 3"]


def test_reading_while_writing(store: Store) -> None:
    """Whatever is read is whole: a prefix of what was written, without a hole."""
    store.apply(Commit(logs={1: "orders"}))
    wrong: list[list[int]] = []
    seen: list[int] = []
    ended = threading.Event()

    def reads() -> None:
        while not ended.is_set():
            found = offsets(read(store))
            seen.append(len(found))
            if found != list(range(len(found))):
                wrong.append(found)

    threads = [threading.Thread(target=reads) for _ in range(2)]
    for thread in threads:
        thread.start()
    for first in range(0, 300, 3):
        store.apply(Commit(runs={1: [run(first, 3)]}))
    ended.set()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert seen
    assert offsets(read(store)) == list(range(300))


def test_maintaining_changes_nothing_that_can_be_read(opened: Opened) -> None:
    fill(opened.store, *range(0, 500, 10))
    opened.store.apply(Commit(trims={1: 250}))
    before = opened.store.recover(), opened.store.sizes([1]), told(read(opened.store))
    while opened.store.maintain():
        pass
    assert (opened.store.recover(), opened.store.sizes([1]), told(read(opened.store))) == before


def test_repr_shows_the_state(opened: Opened) -> None:
    fill(opened.store, 0)
    assert "logs=1" in repr(opened.store)
    opened.store.close()
