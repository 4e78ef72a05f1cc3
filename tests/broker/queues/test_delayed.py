"""Times and places: they come out in the order of their times, however they went in, and take little."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.broker.queues import delayed
from stompbox.broker.queues.delayed import DueTimes


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=200))
def test_the_earliest_comes_first(steps: list[tuple[int, bool]]) -> None:
    """Entries come and go in turn, with blocks of four."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(delayed, "BLOCK", 4)
        found, model = DueTimes(), []
        for number, (when, is_taken) in enumerate(steps):
            found.add(when, 3 * number, 3 * number + 2)
            model.append((when, 3 * number, 3 * number + 2))
            if is_taken:
                model.sort()
                assert found.pop() == model.pop(0)
            assert len(found) == 2 * len(model)
            assert found.next == (min(model)[0] if model else None)
            assert found.first_due(25) == min([first for time, first, _ in model if time <= 25], default=None)
        assert [found.pop() for _ in range(len(model))] == sorted(model)
        assert not found


def test_what_is_due_comes_by_offset_and_not_more_than_asked_for() -> None:
    found = DueTimes()
    for when, first in ((30, 0), (10, 5), (20, 1), (10, 9)):
        found.add(when, first, first + 1)
    assert found.due(9, 10) == []
    assert found.due(25, 2) == [(5, 6), (9, 10)]
    assert found.due(25, 2) == [(1, 2)]
    assert found.due(30, 2) == [(0, 1)]
    assert found.next is None


def test_a_hundred_thousand_take_less_than_three_megabytes() -> None:
    found = DueTimes()
    for number in range(100_000):
        found.add(number * 7919 % 100_003, number, number + 1)
    blocks = found._blocks.values()
    octets = sum(
        sys.getsizeof(array) for block in blocks for array in (block.times, block.firsts, block.stops)
    )
    assert octets + sum(map(sys.getsizeof, found._fresh)) + sys.getsizeof(found._fresh) < 3 << 20
    assert found.due(200_000, 200_000) == [(number, number + 1) for number in range(100_000)]
