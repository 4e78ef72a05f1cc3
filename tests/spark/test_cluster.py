"""Spark as a cluster of processes: who talks to the broker, and that all of it arrives once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.conftest import ROOT
from tests.spark.fake_broker import FakeBroker
from tests.spark.soak import of_session

ROWS = 60_000
BODY = b"x" * 400  # both tasks stage more than one blob
WITHIN = 240.0
EXECUTOR = "CoarseGrainedExecutorBackend"


def run(url: str, log: Path) -> int:
    """The number that it printed last."""
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.cluster", url],
            stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=WITHIN)
        finally:
            for pid, _ in of_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert process.returncode == 0, log.read_text()[-3000:]
    return int(printed.split()[-1])


def ancestors(port: int) -> dict[int, str]:
    """The process that has this local port, and those that it comes from: id and command line (Linux)."""
    pid = owner(f"socket:[{inode(port)}]")
    found = {}
    while pid > 1:
        found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def inode(port: int) -> str:
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return next(fields[9] for fields in lines if fields[1].endswith(f":{port:04X}") and fields[3] == "01")


def owner(link: str) -> int:
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(path) == link:
                return int(path.parts[2])
    raise AssertionError(f"no process has {link}")


def test_executors_fetch_and_stage_themselves(make_fake: Callable[..., FakeBroker], tmp_path: Path) -> None:
    fake = make_fake()
    askers: dict[str, list[dict[int, str]]] = defaultdict(list)
    fake.on_request = lambda name, port: askers[name].append(ancestors(port))
    for first in range(0, ROWS, 1000):
        fake.send("/topic/f.a", [BODY] * 1000, id=[b"%d" % number for number in range(first, first + 1000)])
    assert run(fake.url, tmp_path / "log") == ROWS
    ids = [run.headers(index)["id"] for run in fake.logs["copy"].runs() for index in range(len(run))]
    assert sorted(map(int, ids)) == list(range(ROWS)), "a task that was done twice is in there once"
    for name in ("fetch", "stage"):
        executors = [{pid for pid, command in asker.items() if EXECUTOR in command} for asker in askers[name]]
        assert all(executors), f"{name}: asked by a process that is no executor's"
        assert len(set().union(*executors)) == 2, f"{name}: not by both executors"
    for name in ("describe", "publish"):
        assert askers[name]
        assert not [command for asker in askers[name] for command in asker.values() if EXECUTOR in command]
    fetched = sum(len(answer) for answer in fake.fetched)
    assert fetched < 3 * sum(len(blob) for *_, blob in fake.logs["f.a"].chunks), (
        "each task fetches its own ranges, not all of them"
    )
