"""The report: medians, ratios, and a fault that no figure can hide."""

from __future__ import annotations

import pytest

from bench.report import Machine, Measured, Result, cell, fault, middle, ratio, rounded, spread, table
from bench.rows import Figure, Row

ROW = Row("queue", "one queue", 100)
LATENCY = Row("latency", "latency", 100, figure=Figure.LATENCY)


def run(rate: float = 1000, **other: float) -> Result:
    sound = {"expected": 100, "received": 100, "duplicates": 0, "disorder": 0, "damaged": 0, "failed": 0}
    return {**sound, "msgs_per_s": rate, "lat_ms_p50": 1.0, "lat_ms_p99": 2.0, **other}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (run(), ""),
        (run(received=98), "2 lost"),
        (run(duplicates=1), "1 duplicates"),
        (run(disorder=3), "3 out of order"),
        (run(damaged=1, received=99), "1 lost, 1 damaged"),
        (run(failed=1), "the load generator was refused or cut off"),
        (run(expected=0, received=0, drained_lost=5), "5 lost"),
        (run(expected=0, received=0, drained_lost=0, drained_duplicates=2), "2 duplicates"),
    ],
)
def test_a_fault_is_named(result: Result, text: str) -> None:
    assert fault(result) == text


def test_the_median_is_shown_with_three_figures() -> None:
    runs = [run(900_000), run(123_456), run(234_567)]
    assert middle(runs, "msgs_per_s") == 234_567
    assert cell(ROW, runs) == "235,000"
    assert [rounded(rate) for rate in (12.3, 999.6, 3412, 1_234_567)] == [12, 1000, 3410, 1_230_000]


def test_one_wrong_run_spoils_the_cell_and_the_ratio() -> None:
    runs = [run(5000), run(5000, duplicates=1), run(5000)]
    assert cell(ROW, runs) == "**failed**"
    assert ratio(ROW, runs, [run()]) == "-"


def test_a_rate_is_better_when_higher_and_a_latency_when_lower() -> None:
    assert ratio(ROW, [run(6000)], [run(1000)]) == "6.0x"
    ours, theirs = [run(lat_ms_p99=0.5)], [run(lat_ms_p99=2.0)]
    assert ratio(LATENCY, ours, theirs) == "4.0x"
    assert cell(LATENCY, ours) == "1.00 / 0.50"


def test_the_table_has_a_line_for_each_row_and_resource_and_names_noisy_rows() -> None:
    measured = {
        "stompbox": Measured(0.2, 30.0, 90.0, {"queue": [run(6000), run(6000)]}),
        "artemis": Measured(3.0, 180.0, 900.0, {"queue": [run(1000), run(2000)]}),
    }
    lines = table(Machine(2, "3.11.7", "abc", 0.2), [ROW], measured).splitlines()
    assert "| messages/s | Stompbox | Artemis | Stompbox to Artemis |" in lines
    assert "| one queue | 6,000 | 1,500 | 4.0x |" in lines
    assert "| start to ready (s) | 0.20 | 3.00 |  |" in lines
    assert "| resident memory at its highest (MiB) | 90 | 900 |  |" in lines
    assert lines[-1] == "Runs that differ by more than 25% of their median: Artemis queue 67%."


def test_without_the_reference_there_is_no_ratio() -> None:
    lines = table(
        Machine(2, "3.11.7", "abc", 0.2), [ROW], {"stompbox": Measured(0.2, 30.0, 90.0)}
    ).splitlines()
    assert "| one queue | - |" in lines
    assert spread([]) == 0.0
