"""How waits are counted (bench/pair.py), and what of them a machine that stood still has caused (bench/standstills.py)."""

from __future__ import annotations

import pytest

from bench.pair import SPAN, STEP, waits_of
from bench.standstills import merged, within


def test_pauses_of_several_cores_count_once() -> None:
    assert merged([(5.0, 6.0), (1.0, 2.0), (1.5, 3.0), (3.0, 3.5)]) == [(1.0, 3.5), (5.0, 6.0)]


@pytest.mark.parametrize(
    ("begun", "ended", "seconds"),
    [
        (0.0, 1.0, 0.0),
        (0.0, 1.25, 0.25),
        (1.5, 1.75, 0.25),
        (1.5, 6.5, 1.5),
        (3.0, 4.0, 0.0),
        (0.0, 9.0, 2.0),
        (6.0, 9.0, 0.0),
    ],
)
def test_only_what_of_a_pause_lies_within_a_wait_is_taken_from_it(
    begun: float, ended: float, seconds: float
) -> None:
    assert within([(1.0, 2.0), (5.0, 5.5), (5.5, 6.0)], begun, ended) == pytest.approx(seconds)


def test_a_wait_is_told_without_what_the_machine_stood_still_and_with_it() -> None:
    found = waits_of([(0.0, 0.001), (1.0, 1.030)], [(0.9, 1.025), (7.0, 7.010)])
    assert found.worst == pytest.approx(5.0)
    assert found.raw_worst == pytest.approx(30.0)
    assert found.stood_still == pytest.approx(135.0)


def test_the_p99_is_that_of_the_worst_span_of_messages_in_a_row() -> None:
    slow = [(float(number), number + 0.004) for number in range(SPAN // 20)]
    quick = [(float(number), number + 0.001) for number in range(SPAN // 20, SPAN + 10 * STEP)]
    assert waits_of(slow + quick, []).p99 == pytest.approx(4.0)
    assert waits_of(quick, []).p99 == pytest.approx(1.0)


def test_no_messages_have_no_wait() -> None:
    assert waits_of([], [(0.0, 1.0)]).count == 0
