"""The whole demo on a slice of the year, as `make demo` starts it; and what is left when it fails or is interrupted: nothing."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.audit import checks
from tests.conftest import ROOT

FLIGHTS = 5_000
WITHIN = 600.0  # s, however busy the machine is


@contextmanager
def demo(output: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "demo", "--flights", str(FLIGHTS), "--output", str(output)],
        cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def printed_until(process: subprocess.Popen[str], words: str) -> str:
    """What it prints up to these words."""
    assert process.stdout is not None
    deadline, found = time.monotonic() + WITHIN, ""
    os.set_blocking(process.stdout.fileno(), False)
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while words not in found:
            assert waiting.select(max(0.0, deadline - time.monotonic())), (
                f"{words!r} was not printed in time: {found}"
            )
            more = os.read(process.stdout.fileno(), 65_536)
            assert more, f"it ended before it printed {words!r}: {found}"
            found += more.decode()
    os.set_blocking(process.stdout.fileno(), True)
    return found


def actors(output: Path) -> list[int]:
    """Processes that were started with a path below `output`, or by one that was."""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("there is no /proc to look for processes in")
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (
                    str(output).encode()
                    in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                ):
                    found.append(int(entry.name))
            except OSError:  # it ended just now
                continue
    return found


def test_a_slice_of_the_year_is_played_to_its_end(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with demo(output) as process:
        printed, _ = process.communicate(timeout=WITHIN)
    assert process.returncode == 0, printed
    record = json.loads((output / "results.json").read_text())
    assert record["flights"] == FLIGHTS
    assert [check for check in checks(record) if not check.is_good] == []
    assert record["archive_kill"]["processes"] >= 3  # the driver, its JVM and Python workers
    assert {batch["job"] for batch in record["batches"]} == {"archive-1", "archive-2"}
    assert record["control_room"]["missed"] == FLIGHTS // 2
    for step in range(1, 7):
        assert re.search(rf"^{step}  \w", printed, re.MULTILINE), f"step {step} is not named: {printed}"
    assert re.search(r"in +[\d,]+ messages/s", printed) and re.search(r"table +[\d,]+ rows/s", printed)
    assert printed.rstrip().endswith(f"The report: {output / 'report.html'}")
    assert (output / "report.html").read_text().count('<tr class="good') == len(checks(record))
    assert actors(output) == []


def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with demo(output) as process:
        # broker, publisher, subscribers and Spark's JVM run by now
        printed = printed_until(process, "have subscribed")
        assert len(actors(output)) > 1
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=WITHIN)
    assert process.returncode == 130, printed + rest
    assert "interrupted" in rest and str(output / "logs") in rest
    assert actors(output) == []


def test_a_failed_step_says_which_and_leaves_its_log(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with demo(output, JAVA_HOME=str(tmp_path / "nowhere")) as process:
        printed, _ = process.communicate(timeout=WITHIN)
    assert process.returncode == 1, printed
    assert "Step 4 failed: Spark archives the stream" in printed
    assert "archive-1" in printed and "JAVA_HOME is" in printed
    assert "JAVA_HOME is" in (output / "logs" / "archive-1.log").read_text()
    assert actors(output) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["--flights", "10"], "allowed are 0 for all and numbers from 1000 on"), ([], "is not empty")],
)
def test_wrong_arguments_are_refused(words: list[str], complaint: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    command = [sys.executable, "-m", "demo", "--output", str(tmp_path), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 2
    assert complaint in " ".join(done.stderr.split())
    assert (tmp_path / "mine.txt").read_text() == "keep"
