"""The command line of the benchmark: what it measures is chosen by name, and a wrong name is answered with the right ones."""

from __future__ import annotations

import pytest

from bench.brokers import BenchError
from bench.report import Measured
from bench.rows import ROWS
from bench.run import chosen_peers, chosen_rows, parse, report_faults


def test_rows_come_in_the_order_of_the_table() -> None:
    assert [row.key for row in chosen_rows("latency,queue")] == ["queue", "latency"]
    assert chosen_rows("") == list(ROWS)


def test_a_wrong_name_is_answered_with_the_right_ones() -> None:
    with pytest.raises(BenchError, match="no row 'quueue'; there are queue, queue-1k"):
        chosen_rows("quueue")
    with pytest.raises(BenchError, match="no peer 'kafka'; there are artemis, classic, rabbitmq"):
        chosen_peers("artemis,kafka")


def test_the_defaults_measure_stompbox_alone_three_times() -> None:
    options = parse([])
    assert (options.peers, options.rows, options.runs, options.messages_scale, options.only_peers) == (
        "",
        "",
        3,
        1.0,
        False,
    )


def test_only_our_own_fault_fails_the_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    lost = {"expected": 10, "received": 9, "duplicates": 0, "disorder": 0, "damaged": 0, "failed": 0}
    assert not report_faults({"artemis": Measured(runs={"queue": [lost]})})
    assert "artemis, row queue, run 1: 1 lost" in capsys.readouterr().err
    assert report_faults({"stompbox": Measured(runs={"queue": [{**lost, "received": 10}, lost]})})
    assert "stompbox, row queue, run 2: 1 lost" in capsys.readouterr().err
