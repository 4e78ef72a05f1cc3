"""The soak in short: one kill of each kind, and what decides when they come. `make soak` runs it with two million messages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.soak import KINDS, Kill, Soak, is_executor, plan

ROWS = 5_000
ONE_EXECUTOR = "local-cluster[1,2,1024]"
KILLS = [Kill("executor", 1, 0.2), Kill("broker", 1, 0.1), Kill("driver", 0, 0.2)]  # the application starts twice


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
