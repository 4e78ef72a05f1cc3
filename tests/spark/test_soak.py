"""The soak in short: one kill of each kind, and what decides when they come. `make soak` runs it with two million messages."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.spark.soak import FRUITLESS, KINDS, Kill, Soak, is_executor, plan

ROWS = 5_000
ONE_EXECUTOR = "local-cluster[1,2,1024]"
# the application starts twice
KILLS = [Kill("executor", 1, 0.2), Kill("broker", 1, 0.1), Kill("driver", 0, 0.2)]


def test_everything_arrives_once_although_everything_is_killed(tmp_path: Path) -> None:
    soak = Soak(tmp_path)
    try:
        soak.fill(ROWS)
        outcome = soak.run(KILLS, batch=1000, master=ONE_EXECUTOR, quick=True)
        assert outcome.kills == Counter(KINDS)
        assert outcome.starts > 1, "nothing was started again"
        soak.check(ROWS)
    finally:
        soak.close()


def test_a_seed_says_all() -> None:
    assert plan(7, 12, 4) == plan(7, 12, 4) != plan(8, 12, 4)
    assert Counter(kill.kind for kill in plan(7, 12, 4)) == dict.fromkeys(KINDS, 4)
    assert all(isinstance(kill, Kill) and 1 <= kill.batches <= 4 for kill in plan(7, 12, 4))


class Played(Soak):
    """A soak whose application is a script that says which batches it has done; its broker is none. A start in `killed` waits to be."""

    def __init__(self, folder: Path, starts: list[range], killed: tuple[int, ...] = ()) -> None:
        self.starts, self.killed, self.killed_after = starts, killed, list[int]()
        super().__init__(folder, lambda _: None)

    def _start_broker(self) -> Any:
        return None

    def command(self) -> list[str]:
        number = self.outcome.starts - 1
        if number >= len(self.starts):
            return [sys.executable, "-c", "print('end')"]
        waits = "import signal; signal.pause()" if number in self.killed else ""
        return [
            sys.executable,
            "-c",
            f"for at in {self.starts[number]!r}: print('batch parquet', at, flush=True)\n{waits}",
        ]

    def _kill(self, kind: str, session: int) -> None:
        self.killed_after.append(self.done["parquet"])
        self.outcome.kills[kind] += 1


def test_no_kill_follows_a_batch_that_is_done_again(tmp_path: Path) -> None:
    """Else an application that is killed whenever it has done one again would never get anywhere."""
    played = Played(tmp_path, [range(2), range(1), range(2), range(1, 3)], killed=(0, 2, 3))
    outcome = played.run([Kill("driver", 1, 0)] * 3, batch=1)
    assert played.killed_after == [0, 1, 2] and outcome.starts == 5


def test_an_application_that_never_gets_anywhere_ends_the_soak(tmp_path: Path) -> None:
    played = Played(tmp_path, [range(1)] * 20)
    (tmp_path / "application.log").touch()
    with pytest.raises(AssertionError, match="fails again and again"):
        played.run([Kill("driver", 2, 0)], batch=1)
    assert played.outcome.starts == FRUITLESS + 2


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("java -cp jars/* org.apache.spark.executor.CoarseGrainedExecutorBackend --executor-id 0", True),
        ("python -m pyspark.daemon pyspark.worker", True),
        ("java -cp jars/* org.apache.spark.deploy.SparkSubmit pyspark-shell", False),
        ("python -m tests.spark.archive stomp://127.0.0.1:1", False),
    ],
)
def test_executors_are_known_by_their_command(command: str, is_one: bool) -> None:
    assert is_executor(command) == is_one
