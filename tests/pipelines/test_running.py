"""Which steps a run has, and what faults of Spark read like. Without Spark."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark")

from stompbox.errors import LocalError, UsageError
from stompbox.pipelines import running
from stompbox.pipelines.example import EXAMPLE
from stompbox.pipelines.explaining import explain
from stompbox.pipelines.faults import plain, quieten
from stompbox.pipelines.plan import read_plan
from stompbox.pipelines.progress import Event, Failed, Started, progress_since
from stompbox.pipelines.running import chosen
from stompbox.pipelines.settings import ArchiveTable
from stompbox.spark import session

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
def test_the_steps_of_a_run(
    names: list[str], once: bool, steps: list[str], left_out: list[str], tmp_path: Path
) -> None:
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
        (
            f"[STREAM_FAILED] Query\n{PYTHON}stompbox.errors.Refused: offsets 0 to 4\n{STACK}",
            "step-failed",
            "archive 'a': offsets 0 to 4",
        ),
        (
            f"x\n{PYTHON}stompbox.errors.ConnectionLost: no broker at x\n{STACK}",
            "broker-away",
            "archive 'a': no broker at x",
        ),
        (
            f"[STREAM_FAILED] Query\n{PYTHON}RuntimeError: out of luck\n\n{STACK}",
            "step-failed",
            "archive 'a': RuntimeError: out of luck",
        ),
        (
            f"An error occurred while calling o1.load.\n: java.lang.X: no\n{STACK}",
            "step-failed",
            "archive 'a': java.lang.X: no",
        ),
        (
            "[UNRESOLVED] no column x; line 1 pos 7;\nProject\n",
            "step-failed",
            "archive 'a': [UNRESOLVED] no column x; line 1 pos 7;",
        ),
        ("", "step-failed", "archive 'a': Spark gave no reason"),
    ],
)
def test_what_spark_says_becomes_one_line(text: str, code: str, said: str) -> None:
    fault = plain("archive 'a'", text)
    assert (fault.code, fault.message) == (code, said)


def test_what_pyspark_logs_of_sql_is_not_printed(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.logger import PySparkLogger

    quieten()
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.propagate = False  # as PySpark does
    logger.error("no such column")
    assert capfd.readouterr() == ("", "")
    assert "no such column" in caplog.text


TWO = """
[[archive]]
name = "orders"
destinations = ["/queue/orders"]
table = "lake/orders"
[[report]]
name = "figures"
archives = ["orders"]
"""
HOLD = """
import sys
from pathlib import Path
from stompbox.pipelines import running
from stompbox.pipelines.plan import read_plan
plan = read_plan(Path(sys.argv[1]), {})
with running.alone(plan, [plan.pipeline.archives[0]]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs the archive of lake.toml."""
    (tmp_path / "lake.toml").write_text(TWO)
    arguments = [sys.executable, "-c", HOLD, str(tmp_path / "lake.toml")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_run_of_a_step_is_refused_by_name_and_others_run_beside_it(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    plan = read_plan(tmp_path / "lake.toml", {})
    said = rf"archive 'orders' of .*lake\.toml is run already by process {holder.pid}; .*--step"
    with pytest.raises(LocalError, match=said) as refused, running.alone(plan, list(plan.pipeline.steps)):
        pytest.fail("two run at once")
    assert refused.value.code == "already-running"
    with running.alone(plan, list(plan.pipeline.reports)):
        pass


def test_another_file_that_writes_the_same_table_is_refused(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text('folder = "other-state"\n' + TWO)
    plan = read_plan(tmp_path / "other.toml", {})
    said = rf"the table .*lake/orders is written already by process {holder.pid};"
    with pytest.raises(LocalError, match=said), running.alone(plan, list(plan.pipeline.steps)):
        pytest.fail("two write at once")


def test_another_file_in_the_folder_does_not_go_on_where_a_step_of_the_same_name_is(tmp_path: Path) -> None:
    """Its table would lack what the other one has read."""
    for name in ("lake", "other"):
        (tmp_path / f"{name}.toml").write_text(TWO.replace("lake/orders", f"{name}/orders"))
    plan, other = (read_plan(tmp_path / f"{name}.toml", {}) for name in ("lake", "other"))
    for _ in range(2):
        with running.alone(plan, list(plan.pipeline.steps)):
            pass
    said = r"how far step 'orders' of pipeline 'lake' has come, and this is pipeline 'other'; give the file a `folder`.*name = \"lake\""
    with pytest.raises(LocalError, match=said) as refused, running.alone(other, list(other.pipeline.steps)):
        pytest.fail("one checkpoint of two")
    assert refused.value.code == "other-pipeline"
    with pytest.raises(LocalError, match=said):
        explain(other, list(other.pipeline.steps))
    with running.alone(other, list(other.pipeline.reports)):
        pass
    renamed = tmp_path / "renamed.toml"
    renamed.write_text('name = "lake"\n' + TWO)
    with running.alone(read_plan(renamed, {}), list(plan.pipeline.steps)):
        pass


def test_a_run_that_was_killed_holds_nothing(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    holder.kill()
    holder.wait()
    plan = read_plan(tmp_path / "lake.toml", {})
    with running.alone(plan, list(plan.pipeline.steps)):
        pass


def test_the_command_names_the_process_before_spark_starts(
    holder: subprocess.Popen[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from stompbox.cli.pipeline import run

    monkeypatch.setattr(running, "reach", lambda plan: None)
    monkeypatch.setattr(running, "spark_of", lambda plan: pytest.fail("Spark is started"))
    with pytest.raises(SystemExit) as ended:
        run(tmp_path / "lake.toml")
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert f"by process {holder.pid}" in said and "Traceback" not in said


class Progress:
    """Java's, of one batch."""

    def __init__(self, batch: int, asked: list[int]) -> None:
        self._batch = batch
        self._asked = asked

    def batchId(self) -> int:
        return self._batch

    def timestamp(self) -> str:
        return f"2026-03-01T00:00:0{self._batch}.000Z"

    def json(self) -> str:
        self._asked.append(self._batch)
        source = {"description": "", "startOffset": None, "endOffset": None, "latestOffset": None, "numInputRows": 1,
                  "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}  # fmt: skip
        return json.dumps({"id": str(UUID(int=1)), "runId": str(UUID(int=1)), "name": "q", "timestamp": self.timestamp(),
                           "batchId": self._batch, "batchDuration": 1, "durationMs": {}, "eventTime": {}, "stateOperators": [],
                           "sources": [source], "sink": {"description": "", "numOutputRows": 1}, "observedMetrics": {}})  # fmt: skip


class Kept:
    """What Java keeps of a query's progress: the last three."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._kept: list[Progress] = []

    def add(self, *batches: int) -> None:
        self._kept = [*self._kept, *[Progress(batch, self.asked) for batch in batches]][-3:]

    def recentProgress(self) -> list[Progress]:
        return self._kept

    def lastProgress(self) -> Progress | None:
        return self._kept[-1] if self._kept else None


def test_java_has_a_session_of_its_own_which_gives_way_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `nice` of its processes alone would count among themselves, where the kernel deals out by session."""
    from pyspark import SparkContext, java_gateway

    told: list[object] = []

    def launch(_: Any, popen: dict[str, Any]) -> SimpleNamespace:
        told.append(popen["start_new_session"])
        return SimpleNamespace(proc=SimpleNamespace(pid=4711))

    for name, value in (
        ("JAVA_HOME", str(session.java_home(os.environ))),
        ("PYSPARK_PYTHON", sys.executable),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(logging, "FileHandler", lambda _: logging.NullHandler())
    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(
        SparkContext, "_ensure_initialized", lambda **given: told.append(given["gateway"].proc.pid)
    )
    monkeypatch.setattr(session, "session_gives_way", lambda *given: told.append(given))
    (tmp_path / "lake.toml").write_text('[spark]\nnice = 7\n[[replay]]\nname = "again"\ntable = "t"\n')
    running._launch_apart(tmp_path / "spark.log", {}, read_plan(tmp_path / "lake.toml", {}))
    assert told == [True, (4711, 7), 4711]


def test_progress_comes_out_of_java_once() -> None:
    """A batch's has the offsets of all addresses, which may be a megabyte, and is looked for ten times a second."""
    query, seen, told = Query(""), ("", -1), list[list[int]]()
    for batches in ((), (0,), (), (1, 2), (), (3, 4, 5, 6), ()):
        query._jsq.add(*batches)
        found = progress_since(query, seen)
        told.append([progress.batchId for progress in found])
        seen = (found[-1].timestamp, found[-1].batchId) if found else seen
    assert told == [[], [0], [], [1, 2], [], [4, 5, 6], []], "3 is gone already"
    assert sorted(query._jsq.asked) == [0, 1, 2, 4, 5, 6]


class Query:
    """A streaming query that has ended with this fault."""

    isActive = False

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._jsq = Kept()

    def exception(self) -> Exception:
        return Exception(self._fault)

    def stop(self) -> None:
        """It has ended."""


@pytest.mark.parametrize(
    ("fault", "starts"), [("x: Python worker failed to connect back.\n", running.STARTS), ("another", 1)]
)
def test_a_stream_that_only_a_busy_machine_has_ended_is_started_again(
    fault: str, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake.toml").write_text(TWO)
    plan, said = read_plan(tmp_path / "lake.toml", {}), list[Event]()
    started: list[str] = []

    def start(_: object, __: object, step: ArchiveTable, *___: object, **____: object) -> Query:
        started.append(step.name)
        if len(started) == 2:  # that which plans it may come too late as well
            raise LookupError(fault)
        return Query(fault)

    monkeypatch.setattr("stompbox.pipelines.archive.start", start)
    with pytest.raises(LocalError, match=r"archive 'orders': "):
        running.run(None, plan, [plan.pipeline.archives[0]], said.append, threading.Event(), once=True)
    assert started == ["orders"] * starts
    assert isinstance(said[0], Started) and isinstance(said[1], Failed) and len(said) == 2
