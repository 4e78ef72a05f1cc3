"""Times and places: they come out in the order of their times, however they went in, and take little."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import delayed
from stompbox.broker.queues.delayed import DueTimes, Waits
from stompbox.broker.timers import Timers
from tests.broker.world import run_of


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


class Looked(Segment):
    """A segment that counts how often it is asked what it is."""

    asked = 0

    def __getattribute__(self, name: str) -> object:
        if name in ("first", "stop", "deliveries"):
            type(self).asked += 1
        return super().__getattribute__(name)


def _segment(offset: int, deliveries: int = 0) -> Segment:
    return Looked(run_of("/queue/q", b"x"), offset, offset + 1, deliveries)


@given(
    st.lists(
        st.tuples(st.sampled_from(("add", "again", "back", "due", "fresh")), st.integers(0, 50)), max_size=100
    )
)
def test_what_waits_comes_in_the_order_of_its_times_whether_or_not_it_was_delivered(
    steps: list[tuple[str, int]],
) -> None:
    """Beside a list that is sorted anew each time."""
    waits = Waits(Timers(), lambda: None)
    model: list[tuple[int, int, int, int]] = []  # when, turn, offset, deliveries
    for turn, (step, number) in enumerate(steps, 1):
        if step == "due":
            model.sort()
            expected = [offset for when, _, offset, _ in model if when <= number][:3]
            assert waits.has_due(number) == bool(expected)
            assert [each.first for each in waits.due(number, 3)] == expected
            model = [each for each in model if each[2] not in expected]
        elif step == "fresh":
            found = {(when, each.first) for when, each in waits.take_fresh(number, 3)}
            assert found <= {(when, offset) for when, _, offset, deliveries in model if not deliveries}
            assert all(first >= number for _, first in found)
            model = [each for each in model if (each[0], each[2]) not in found]
        elif step == "back":
            waits.put_back(_segment(turn, number % 2))
            model.append((0, -turn, turn, number % 2))
        else:
            waits.add(_segment(turn, int(step == "again")), number)
            model.append((number, turn, turn, int(step == "again")))
        assert waits.count == len(model)
        assert waits.stop >= max([offset + 1 for _, _, offset, _ in model], default=0)
    waits.set_apart()
    assert not waits.has_due(100)
    assert not waits.has_fresh
    taken = [each.first for each in waits.take_apart(1000)]
    assert sorted(taken) == sorted([offset for _, _, offset, _ in model])
    assert waits.count == 0


def test_nothing_goes_through_all_that_wait() -> None:
    waits = Waits(Timers(), lambda: None)
    for offset in range(3000):
        waits.add(_segment(offset, offset % 2), 10 + offset)
    Looked.asked = 0
    assert waits.stop == 3000
    assert len(waits.take_fresh(0, 10)) == 10
    assert waits.take_fresh(5000, 10) == []
    waits.set_apart()
    assert Looked.asked < 100
    assert waits.count == 2990


def test_what_cannot_be_read_from_the_log_any_more_is_looked_at_once() -> None:
    waits = Waits(Timers(), lambda: None)
    for offset in range(100):
        waits.add(_segment(offset), 10 + offset)
    found = []
    while waits.has_fresh:
        found += [segment.first for _, segment in waits.take_fresh(60, 7)]
    assert sorted(found) == list(range(60, 100))
    assert waits.stop > 59
    assert [segment.first for segment in waits.due(1000, 1000)] == list(range(60))
