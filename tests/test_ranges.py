"""Ranges against a plain set of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompbox.ranges import SPARSE, Ranges, add_range, swept, united

offsets = st.integers(0, 40)
pairs = st.tuples(offsets, offsets)
many = st.lists(pairs, max_size=30)


def as_set(ranges: list[tuple[int, int]]) -> set[int]:
    return {offset for start, stop in ranges for offset in range(start, stop)}


def assert_well_formed(ranges: Ranges) -> None:
    flat = [offset for pair in ranges for offset in pair]
    assert flat == sorted(set(flat)), "sorted, disjoint, none empty, none that touch"


@given(many)
def test_holds_what_was_added(added: list[tuple[int, int]]) -> None:
    ranges = Ranges(added)
    expected = as_set(added)
    assert_well_formed(ranges)
    assert as_set(list(ranges)) == expected
    assert [offset for offset in range(42) if offset in ranges] == sorted(expected)
    assert bool(ranges) == bool(expected)
    assert len(ranges) == len(list(ranges))


@given(many, many)
def test_order_does_not_matter(some: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    assert Ranges(some + more) == Ranges(more + some)


def apart(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [start for start, _ in pairs], [stop for _, stop in pairs]


@given(many, many)
def test_adding_all_at_once_is_adding_each(some: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    ranges = Ranges(some)
    ranges.add_all(*united(*apart(more)))
    assert_well_formed(ranges)
    assert ranges == Ranges(some + more)
    assert not Ranges(), "no other set has got any of it"


def test_adding_a_few_to_very_many_leaves_those_alone() -> None:
    count = 10 * SPARSE
    ranges = Ranges([(3 * at, 3 * at + 1) for at in range(count)])
    ranges.add_all([1, 3 * count - 1], [2, 3 * count])
    assert_well_formed(ranges)
    assert list(ranges)[:2] == [(0, 2), (3, 4)]
    assert ranges.total == count + 2


@given(many)
def test_united_is_what_all_cover(pairs: list[tuple[int, int]]) -> None:
    expected = Ranges(pairs)
    assert united(*apart(pairs)) == (expected.starts, expected.stops)


@given(many, offsets)
def test_take_prefix_moves_the_position_over_what_touches_it(
    added: list[tuple[int, int]], position: int
) -> None:
    ranges = Ranges(added)
    held = as_set(added)
    expected = position
    while expected in held:
        expected += 1
    assert ranges.take_prefix(position) == expected
    assert_well_formed(ranges)
    assert as_set(list(ranges)) == {offset for offset in held if offset >= expected}


@given(many, many)
def test_removing_leaves_the_rest(added: list[tuple[int, int]], removed: list[tuple[int, int]]) -> None:
    ranges = Ranges(added)
    for start, stop in removed:
        ranges.remove(start, stop)
        assert_well_formed(ranges)
    assert as_set(list(ranges)) == as_set(added) - as_set(removed)


@given(many, pairs)
def test_gaps_are_what_is_missing(added: list[tuple[int, int]], window: tuple[int, int]) -> None:
    ranges = Ranges(added)
    gaps = list(ranges.gaps(*window))
    assert as_set(gaps) == as_set([window]) - as_set(added)
    assert_well_formed(Ranges(gaps))
    assert list(Ranges(gaps)) == gaps, "sorted and none that touch"


def test_what_touches_becomes_one() -> None:
    found = [(1, 3)]
    for first, stop in ((3, 5), (7, 8), (8, 9)):
        add_range(found, first, stop)
    assert found == [(1, 5), (7, 9)]


def test_acknowledging_in_a_window_costs_no_memory() -> None:
    ranges, position = Ranges(), 0
    for block in range(0, 64_000, 64):
        for offset in [*range(block + 1, block + 64, 2), *range(block, block + 64, 2)]:
            ranges.add(offset, offset + 1)
            assert len(ranges) <= 32
        position = ranges.take_prefix(position)
    assert position == 64_000
    assert not ranges


def test_how_many_offsets_there_are() -> None:
    assert Ranges().total == 0
    assert Ranges([(1, 3), (7, 9), (20, 21)]).total == 5


def test_equality_and_repr() -> None:
    assert Ranges([(1, 3), (3, 5)]) == Ranges([(1, 5)])
    assert Ranges([(1, 3)]) != Ranges([(1, 4)])
    assert Ranges() != ()
    assert repr(Ranges([(1, 3), (7, 9)])) == "<Ranges 1..3 7..9>"
    assert repr(Ranges()) == "<Ranges none>"


@given(st.lists(st.sets(st.integers(0, 19)), max_size=4))
def test_sweeping_finds_who_takes_what(takers: list[set[int]]) -> None:
    ranges = {
        name: [(offset, offset + 1) for offset in sorted(offsets)] for name, offsets in enumerate(takers)
    }
    for entries in ranges.values():
        for at in range(len(entries) - 1, 0, -1):  # ranges of one taker are apart
            if entries[at - 1][1] == entries[at][0]:
                entries[at - 1 : at + 1] = [(entries[at - 1][0], entries[at][1])]
    parts = list(swept(0, 20, ranges))
    assert [first for first, _, _ in parts] == [0, *[stop for _, stop, _ in parts[:-1]]], "no gap"
    assert parts[-1][1] == 20
    for first, stop, names in parts:
        for offset in range(first, stop):
            assert names == {name for name, offsets in enumerate(takers) if offset in offsets}
