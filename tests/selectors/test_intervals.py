"""Intervals around a number: found as looking at each of them finds them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.selectors.intervals import EVERYTHING, PORTION, Interval, Intervals

NUMBERS = st.one_of(
    st.integers(-5, 5), st.floats(-5, 5), st.sampled_from([1 << 53, (1 << 53) + 1, -(1 << 63), 1e300])
)
HALF_LINES = st.one_of(
    NUMBERS.map(lambda low: Interval(low, math.inf)), NUMBERS.map(lambda high: Interval(-math.inf, high))
)
INTERVALS = st.one_of(HALF_LINES, st.builds(Interval, NUMBERS, NUMBERS))


def built(items: Sequence[tuple[Interval, int]]) -> Intervals[int]:
    intervals = Intervals(items)
    for looked in intervals.building():
        assert looked <= PORTION or looked == len(intervals.items)
    return intervals


@given(st.lists(INTERVALS, max_size=40), st.one_of(NUMBERS, st.sampled_from([math.inf, -math.inf])))
def test_found_as_by_looking_at_each(intervals: list[Interval], number: float) -> None:
    found = built(list(zip(intervals, range(len(intervals)), strict=True))).around(number)
    assert sorted(found) == [
        n for n, interval in enumerate(intervals) if interval.low <= number <= interval.high
    ]


def test_nothing_around_anything_where_nothing_is() -> None:
    assert built([]).around(0) == []
    assert built([(Interval(3, 2), 0)]).around(3) == []


@pytest.mark.parametrize("high", [7, math.inf])
def test_many_take_few_steps(high: float) -> None:
    """A tree of ten thousand is not higher than twenty, whatever overlaps, so asking is not slow."""
    intervals = built([(Interval(n, n + high), n) for n in range(10_000)])
    height, level = 0, [intervals]
    while level:
        height += 1
        level = [node for one in level for node in (one._below, one._above) if node is not None]
    assert height <= 20
    assert sorted(intervals.around(100)) == list(range(max(0, 100 - 7) if high == 7 else 0, 101))


def test_two_conditions_leave_what_both_leave() -> None:
    assert Interval(1, 5).within(Interval(3, math.inf)) == Interval(3, 5)
    assert Interval(1, 2).within(Interval(3, 4)).is_empty
    assert not EVERYTHING.is_empty
