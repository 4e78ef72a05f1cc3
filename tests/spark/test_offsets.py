"""What a micro-batch takes, and how its ranges are dealt out."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.incarnations import Incarnations
from stompbox.spark.offsets import (
    Extent,
    Offset,
    OffsetRange,
    advance,
    available,
    between,
    dealt,
    losses,
    number_of,
    starts,
)

ADDRESSES = st.sampled_from(["a", "b", "c", "d.e"])
OFFSETS = st.dictionaries(ADDRESSES, st.integers(0, 1000))
EXTENTS = st.dictionaries(
    ADDRESSES,
    st.tuples(st.integers(0, 500), st.integers(0, 500)).map(lambda two: Extent(two[0], two[0] + two[1])),
)


def test_everything_without_limit() -> None:
    assert advance({"a": 3}, {"a": Extent(0, 10), "b": Extent(0, 5), "c": Extent(0, 0)}) == {"a": 10, "b": 5}


def test_a_new_address_without_messages_does_not_change_the_offset() -> None:
    assert advance({"a": 10}, {"a": Extent(0, 10), "b": Extent(0, 0)}) == {"a": 10}


def test_each_address_in_proportion() -> None:
    end = advance({}, {"a": Extent(0, 900), "b": Extent(0, 90), "c": Extent(0, 10)}, max_rows=100)
    assert end == {"a": 90, "b": 9, "c": 1}


def test_bytes_by_the_average_message() -> None:
    logs = {"a": Extent(0, 1000, messages=1000, size=200_000)}
    assert advance({}, logs, max_bytes=20_000) == {"a": 100}
    assert advance({}, logs, max_bytes=1) == {"a": 1}


def test_small_addresses_get_their_turn() -> None:
    offsets: dict[str, int] = {}
    logs = {"a": Extent(0, 3), "b": Extent(0, 3), "c": Extent(0, 3)}
    for _ in range(9):
        offsets = advance(offsets, logs, max_rows=1)
    assert offsets == {"a": 3, "b": 3, "c": 3}


def test_a_log_made_anew_is_read_from_its_beginning() -> None:
    logs = {"a": Extent(0, 20)}
    end = advance({"a": 500}, logs)
    assert end == {"a": 20}
    assert between({"a": 500}, end) == [OffsetRange("a", 0, 20)]


def test_an_address_that_is_gone_leaves_the_offsets() -> None:
    assert advance({"a": 5, "b": 7}, {"b": Extent(0, 7)}) == {"b": 7}
    assert between({"a": 5, "b": 7}, {"b": 7}) == []


def test_new_addresses_join_from_zero() -> None:
    assert between({"a": 5}, {"a": 6, "b": 2}) == [OffsetRange("a", 5, 6), OffsetRange("b", 0, 2)]


def test_what_a_new_address_began_with_is_no_loss() -> None:
    """It was there before, or its first messages are gone: where it is read from is in the offsets before any of it is read."""
    logs = {"a": Extent(0, 6), "b": Extent(100, 150)}
    first = advance({"a": 5}, logs)
    assert first == {"a": 6, "b": ~100}
    assert between({"a": 5}, first) == [OffsetRange("a", 5, 6)]
    assert losses(first, logs) == []
    second = advance(first, logs)
    assert second == {"a": 6, "b": 150}
    assert between(first, second) == [OffsetRange("b", 100, 150)]
    assert losses(first, {"a": Extent(0, 6), "b": Extent(120, 150)}) != [], "gone between the two"
    assert (number_of(~100), number_of(100), number_of(0)) == (100, 100, 0)


@pytest.mark.parametrize(
    ("start", "extents", "words", "count"),
    [
        (
            {"a": 5},
            {},
            "is gone from the broker, or from the destinations; the checkpoint is at offset 5",
            -1,
        ),
        ({"a": 5}, {"a": Extent(0, 3)}, "ends at offset 3, before the checkpoint's 5", -1),
        ({"a": 5}, {"a": Extent(9, 12)}, "offsets 5 to 8 of 'a' were deleted", 4),
    ],
)
def test_losses(start: dict[str, int], extents: dict[str, Extent], words: str, count: int) -> None:
    (loss,) = losses(start, extents)
    assert words in loss.text
    assert loss.count == count


def test_no_losses() -> None:
    assert losses({"a": 5, "b": 0}, {"a": Extent(5, 9)}) == []


@given(OFFSETS, EXTENTS, st.integers(0, 300))
def test_batches_follow_one_another_to_the_end(
    start: dict[str, int], extents: dict[str, Extent], limit: int
) -> None:
    seen: dict[str, list[OffsetRange]] = {}
    offsets = start
    for _ in range(5000):
        end = advance(offsets, extents, max_rows=limit)
        assert list(end) == sorted(end)
        ranges = between(offsets, end)
        marked = [address for address, offset in end.items() if offset < 0 and address not in offsets]
        if not ranges and not marked:
            break
        assert bool(ranges) is bool(available(offsets, extents))
        assert not limit or sum(map(len, ranges)) <= limit + sum(
            max(0, extents[part.address].first - part.start) for part in ranges
        )
        for part in ranges:
            seen.setdefault(part.address, []).append(part)
        offsets = json.loads(json.dumps(end))
    assert not available(offsets, extents)
    for address, extent in extents.items():
        parts = seen.get(address, [])
        for before, after in pairwise(parts):
            assert before.stop == after.start
        if parts:
            assert parts[-1].stop == extent.next
        if address not in start:
            assert [part.start for part in parts[:1]] == (
                [extent.first] if extent.next > extent.first else []
            )


RANGES = st.lists(
    st.tuples(ADDRESSES, st.integers(0, 100), st.integers(1, 200)).map(
        lambda r: OffsetRange(r[0], r[1], r[1] + r[2])
    ),
    max_size=6,
)


@given(RANGES, st.integers(1, 8), st.integers(1, 50))
def test_shares_are_equal_and_whole(ranges: list[OffsetRange], partitions: int, least: int) -> None:
    shares = dealt(ranges, partitions, least)
    assert len(shares) <= partitions
    flat = [
        (part.address, offset)
        for share in shares
        for part in share
        for offset in range(part.start, part.stop)
    ]
    assert flat == [(part.address, offset) for part in ranges for offset in range(part.start, part.stop)]
    sizes = [sum(map(len, share)) for share in shares]
    assert len(set(sizes[:-1])) <= 1
    assert shares == dealt(ranges, partitions, least)


def test_few_rows_are_one_task() -> None:
    assert dealt([OffsetRange("a", 0, 9000)], 4) == [(OffsetRange("a", 0, 9000),)]
    assert len(dealt([OffsetRange("a", 0, 40_000)], 4)) == 4
    assert dealt([], 4) == []


@pytest.mark.parametrize(
    ("rows", "most", "at_least", "records", "sizes"),
    [
        (9000, 4, 3, 0, [3000] * 3),
        (2, 4, 3, 0, [1, 1]),
        (40_000, 2, 1, 15_000, [13_334, 13_334, 13_332]),
        (40_000, 4, 1, 15_000, [10_000] * 4),
        (40_000, 2, 8, 15_000, [5000] * 8),
        (10, 4, 1, 1, [1] * 10),
    ],
)
def test_more_shares_than_one_would_make(
    rows: int, most: int, at_least: int, records: int, sizes: list[int]
) -> None:
    ranges = [OffsetRange("a", 0, rows // 2), OffsetRange("b", 7, 7 + rows - rows // 2)]
    shares = dealt(ranges, most, at_least=at_least, max_records=records)
    assert [sum(map(len, share)) for share in shares] == sizes


def log(first: int, next: int, *incarnations: tuple[str, int]) -> Extent:
    return Extent(first, next, incarnations=Incarnations(incarnations))


ONE = ("one", 0)
RESTORED = log(0, 300, ONE, ("two", 100))


@pytest.mark.parametrize(
    ("start", "extent", "words", "begin"),
    [
        (
            [1000, "one"],
            log(0, 5000, ("other", 0)),
            ("another one", "offset 1000", "incarnation one", "other", "0 to 5000"),
            0,
        ),
        ([1000, "one"], log(40, 50, ("other", 0)), ("another one", "40 to 50"), 40),
        ([150, "one"], RESTORED, ("restored as of offset 100", "offset 150", "incarnation one"), 100),
        ([150, "x"], RESTORED, ("another one",), 0),
        ([100, "one"], RESTORED, (), 100),
        ([20, "one"], RESTORED, (), 20),
        ([150, "two"], RESTORED, (), 150),
        (150, RESTORED, (), 150),  # an older checkpoint is taken at its word
        ([0, "x"], RESTORED, (), 0),  # nothing was read
    ],
)
def test_another_log_is_data_loss(start: Offset, extent: Extent, words: tuple[str, ...], begin: int) -> None:
    found = losses({"a": start}, {"a": extent})
    assert len(found) == bool(words)
    assert all(word in found[0].text for word in ("'a'", *words)) if found else True
    end = advance({"a": start}, {"a": extent})
    (part,) = between({"a": start}, end)
    assert (part.start, part.stop, part.incarnation) == (begin, extent.next, extent.incarnations.current)


def test_another_log_of_which_nothing_was_read_begins_where_it_begins() -> None:
    end = advance({"a": [~7, "x"]}, {"a": RESTORED})
    assert not losses({"a": [~7, "x"]}, {"a": RESTORED})
    assert end == {"a": [~0, "one"]} and not between({"a": [~7, "x"]}, end)
    assert between(end, advance(end, {"a": RESTORED})) == [OffsetRange("a", 0, 300, "two")]


def test_a_new_log_that_is_empty_is_gone_on_with_as_well() -> None:
    there = log(0, 0, ("other", 0))
    end = advance({"a": [1000, "one"]}, {"a": there})
    assert end == {"a": [0, "other", 0]} and not between({"a": [1000, "one"]}, end)
    grown = log(0, 5000, ("other", 0))
    assert not losses(end, {"a": grown})
    assert between(end, advance(end, {"a": grown})) == [OffsetRange("a", 0, 5000, "other")]


def test_a_first_batch_keeps_where_it_began() -> None:
    """Spark keeps its end alone: planned again, the query begins where the log begins by then."""
    there = log(0, 1000, ONE)
    begun = starts({"a": 0}, {"a": there})
    end = advance(begun, {"a": there})
    assert between(begun, end) == [OffsetRange("a", 0, 1000, "one")]
    again = starts({"a": 600}, {"a": log(600, 1200, ONE)})
    assert between(again, end) == [OffsetRange("a", 0, 1000, "one")], "its tasks find what is gone"
    assert advance(end, {"a": there}) == end, "no batch without a message"
    following = advance(end, {"a": log(600, 1200, ONE)})
    assert between(end, following) == [OffsetRange("a", 1000, 1200, "one")]
    assert between(following, advance(following, {"a": log(0, 1300, ONE)})) == [
        OffsetRange("a", 1200, 1300, "one")
    ]


def test_an_older_checkpoint_learns_which_log_it_reads() -> None:
    there = log(0, 300, ONE, ("two", 100))
    assert advance({"a": 80, "b": 0}, {"a": log(0, 80, ONE), "b": there}) == {
        "a": [80, "one"],
        "b": [300, "two"],
    }


def test_an_address_that_is_gone_has_taken_nothing_along_that_was_read() -> None:
    ended = {"a": log(600, 600, ONE)}
    assert not losses({"a": [600, "one"]}, {}, ended)
    assert not losses({"a": 600}, {}, ended)
    for lost in ([599, "one"], [600, "other"]):
        assert len(losses({"a": lost}, {}, ended)) == 1
    assert len(losses({"a": [600, "one"]}, {}, {})) == 1
