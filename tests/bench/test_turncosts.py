"""What turns have taken is summed up by shares, and begins anew when it was told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.turncosts import STEP, Costs, tell


class Clock:
    now = 100.0  # seconds

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def costs() -> Costs:
    clock = Clock()
    found = Costs(clock)
    found.turn_ends()
    for took in [0.1] * 980 + [1.0] * 15 + [7.0] * 4 + [40.0]:
        clock.now += took / 1000
        found.turn_ends()
    return found


def test_shares_of_turns(costs: Costs) -> None:
    assert costs.counts.total() == 1000
    assert costs.part(0.5) == pytest.approx(0.1, abs=2 * STEP)
    assert costs.part(0.99) == pytest.approx(1.0, abs=2 * STEP)
    assert costs.part(0.999) == pytest.approx(7.0, abs=2 * STEP)
    assert costs.longest == pytest.approx(40.0)
    assert costs.long_share == pytest.approx(68 / 181, rel=0.15)  # of 98 + 15 + 28 + 40 ms


def test_what_was_told_does_not_count_again(
    costs: Costs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "told"
    costs.tell_and_forget(path)
    told = json.loads(path.read_text())
    assert told["turns"] == 1000
    tell(told)
    assert "1,000 turns" in capsys.readouterr().out
    costs.turn_ends()  # the first one has begun nobody knows when
    assert not costs.counts and costs.part(0.99) == costs.longest == costs.long_share == 0.0


def test_a_turn_in_which_transports_alone_have_something_to_do_is_one() -> None:
    clock = Clock()
    costs = Costs(clock)
    costs.turn_ends()
    for _ in range(3):
        costs.line_begins()
        clock.now += 0.001
    costs.turn_ends()
    assert costs.counts.total() == 3
    assert costs.longest == pytest.approx(1.0)
