"""The guard: what a change costs beside another commit, load by load."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import guard
from bench.brokers import BenchError, Stompbox, cpu_seconds
from bench.guard import LIMIT, LOADS, change_of, cost_of, parse, table, too_dear
from bench.rows import ROWS, Figure, Row
from bench.run import chosen_rows

QUEUE = next(row for row in ROWS if row.key == "queue")
SYNC = next(row for row in ROWS if row.key == "sync")


def test_it_has_eight_loads_of_the_table() -> None:
    assert len(LOADS) == 8
    assert {row.key for row in chosen_rows(parse([]).rows)} == set(LOADS)
    assert sum(row.figure is Figure.CPU for row in chosen_rows(parse([]).rows)) == 2


def test_one_slow_round_is_no_verdict_and_three_of_five_are() -> None:
    rounds = [{"queue": change, "sync": 1.0} for change in (1.0, 2.0, LIMIT, 0.9, 1.0)]
    assert change_of(QUEUE, rounds) == 1.0
    assert too_dear([QUEUE, SYNC], rounds) == []
    rounds = [{"queue": change, "sync": 1.0} for change in (1.0, 1.2, 1.3, 0.9, 1.11)]
    assert too_dear([QUEUE, SYNC], rounds) == ["queue"]
    assert "| one queue, auto ack, not persistent | 1.11 | 0.90 to 1.30 | **more than 1.10** |" in table(
        [QUEUE, SYNC], rounds
    )


def test_a_commit_that_is_not_there_is_named() -> None:
    with pytest.raises(BenchError, match="no-such-commit"), guard.checked_out("no-such-commit"):
        raise AssertionError("it was checked out")


def test_a_load_that_takes_no_time_and_one_that_goes_wrong_are_no_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = {
        "expected": 1,
        "received": 1,
        "duplicates": 0,
        "disorder": 0,
        "damaged": 0,
        "failed": 0,
        "core_us": 0.0,
    }
    broker, row = Stompbox(Path("log")), Row("queue", "one queue", 1)
    monkeypatch.setattr(guard, "run_row", lambda *_, **__: sound)
    with pytest.raises(BenchError, match="row queue took less than a clock tick"):
        cost_of(Path("stompload"), broker, row, 1, 1.0)
    monkeypatch.setattr(guard, "run_row", lambda *_, **__: {**sound, "received": 0})
    with pytest.raises(BenchError, match="row queue: 1 lost"):
        cost_of(Path("stompload"), broker, row, 1, 1.0)


def test_the_processor_time_of_a_process_grows_with_what_it_does() -> None:
    import os

    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) < before + 0.05:
        sum(range(100_000))
    assert cpu_seconds(0) == 0, "there is no such process"
