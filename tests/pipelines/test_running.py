"""Which steps a run has, and what faults of Spark read like. Without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from stompbox.errors import UsageError
from stompbox.pipelines.example import EXAMPLE
from stompbox.pipelines.faults import plain, quieten
from stompbox.pipelines.running import chosen
from stompbox.pipelines.settings import read_plan

STACK = "\tat org.apache.spark.Somewhere.run(Somewhere.scala:1)\n"
PYTHON = 'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n    process()\n'


@pytest.mark.parametrize(
    ("names", "once", "steps", "left_out"),
    [
        ([], False, ["orders", "orders-per-minute"], ["orders-again", "orders-report", "orders-audit"]),
        ([], True, ["orders", "orders-per-minute", "orders-again", "orders-report", "orders-audit"], []),
        (["orders-audit"], False, ["orders-audit"], []),
        (["orders", "orders-report"], True, ["orders", "orders-report"], []),
    ],
)
def test_the_steps_of_a_run(names: list[str], once: bool, steps: list[str], left_out: list[str], tmp_path: Path) -> None:
    (tmp_path / "lake.toml").write_text(EXAMPLE)
    found = chosen(read_plan(tmp_path / "lake.toml", {}), names, once=once)
    assert [[step.name for step in part] for part in found] == [steps, left_out]


def test_a_file_without_streams_runs_all_it_has(tmp_path: Path) -> None:
    (tmp_path / "lake.toml").write_text('[[replay]]\nname = "again"\ntable = "t"\n')
    steps, left_out = chosen(read_plan(tmp_path / "lake.toml", {}), [], once=False)
    assert ([step.name for step in steps], left_out) == (["again"], [])


def test_a_step_that_is_none_is_refused_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "lake.toml").write_text('[[replay]]\nname = "again"\ntable = "t"\n')
    with pytest.raises(UsageError, match=r"--step 'agian' is no step of .*; there are again"):
        chosen(read_plan(tmp_path / "lake.toml", {}), ["agian"], once=False)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (f"[STREAM_FAILED] Query\n{PYTHON}stompbox.errors.Refused: offsets 0 to 4\n{STACK}", "step-failed", "archive 'a': offsets 0 to 4"),
        (f"x\n{PYTHON}stompbox.errors.ConnectionLost: no broker at x\n{STACK}", "broker-away", "archive 'a': no broker at x"),
        (f"[STREAM_FAILED] Query\n{PYTHON}RuntimeError: out of luck\n\n{STACK}", "step-failed", "archive 'a': RuntimeError: out of luck"),
        (f"An error occurred while calling o1.load.\n: java.lang.X: no\n{STACK}", "step-failed", "archive 'a': java.lang.X: no"),
        ("[UNRESOLVED] no column x; line 1 pos 7;\nProject\n", "step-failed", "archive 'a': [UNRESOLVED] no column x; line 1 pos 7;"),
        ("", "step-failed", "archive 'a': Spark gave no reason"),
    ],
)
def test_what_spark_says_becomes_one_line(text: str, code: str, said: str) -> None:
    fault = plain("archive 'a'", text)
    assert (fault.code, fault.message) == (code, said)


def test_what_pyspark_logs_of_sql_is_not_printed(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    from pyspark.logger import PySparkLogger

    quieten()
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.propagate = False  # as PySpark does
    logger.error("no such column")
    assert capfd.readouterr() == ("", "")
    assert "no such column" in caplog.text
