"""What a run tells the broker of its steps, and that a run never suffers from it. Without Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox.errors import LocalError
from stompbox.pipelines.example import EXAMPLE
from stompbox.pipelines.plan import Plan, read_plan
from stompbox.pipelines.progress import (
    Batch,
    Compacted,
    Event,
    Failed,
    Finished,
    Idle,
    Moved,
    Started,
    Warned,
)
from stompbox.pipelines.telling import Steps, telling
from stompbox.spark.telling import MOST_TEXT
from tests.admin.asking import read
from tests.conftest import Serve
from tests.users import users

WITHIN = 20.0  # s until the broker was told
BATCH = Batch(step="orders", batch=3, rows=1200, total=5000, rate=600.5, lag=70, seconds=2.0)
FAULT = "archive 'orders': the disk is full"


def plan_of(folder: Path, url: str = "stomp://127.0.0.1:1", **keys: str) -> Plan:
    file = folder / "lake.toml"
    given = "".join([f'{key} = "{value}"\n' for key, value in {"url": url, **keys}.items()])
    file.write_text(
        given + "".join([line for line in EXAMPLE.splitlines(keepends=True) if not line.startswith("url")])
    )
    return read_plan(file, {})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(plan: Plan, *events: Event, clock: Clock | None = None) -> dict[str, dict[str, Any]]:
    steps = Steps(plan, list(plan.pipeline.steps), clock or Clock())
    for event in events:
        steps.hear(event)
    return {str(said["step"]): said for said in steps.told()}


def test_steps_wait_for_their_turn_and_name_their_groups(tmp_path: Path) -> None:
    found = told(plan_of(tmp_path))
    assert {name: said["state"] for name, said in found.items()} == dict.fromkeys(found, "waiting")
    assert found["orders"]["groups"] == ["lake-orders"]
    assert found["orders-per-minute"]["groups"] == ["lake-orders-per-minute-orders"]
    assert (found["orders-audit"]["kind"], found["orders-audit"]["groups"]) == ("audit", [])


@pytest.mark.parametrize(
    ("step", "events", "expected"),
    [
        ("orders", [Started(step="orders", kind="archive")], {"state": "running"}),
        (
            "orders",
            [BATCH],
            {
                "state": "running",
                "rows": 5000,
                "rate": 600.5,
                "lag": 70,
                "batch": 3,
                "batch_seconds": 2.0,
                "batch_ago": 0,
            },
        ),
        (
            "orders",
            [BATCH, Compacted(step="orders", files=3), Idle(step="orders")],
            {"state": "waiting", "rows": 5000, "rate": 0.0},
        ),
        ("orders", [BATCH, Idle(step="orders"), BATCH], {"state": "running", "rate": 600.5}),
        (
            "orders",
            [BATCH, Failed(step="orders", text="x" * 2000)],
            {"state": "failed", "reason": "x" * MOST_TEXT},
        ),
        (
            "orders",
            [BATCH, Finished(step="orders", text="", facts={"rows": 5000})],
            {"state": "done", "rows": 5000, "reason": ""},
        ),
        (
            "orders-audit",
            [Finished(step="orders-audit", text="2 found", ok=False)],
            {"state": "failed", "reason": "2 found"},
        ),
        (
            "orders-again",
            [Moved(step="orders-again", rows=10, of=200, rate=5.0)],
            {"state": "running", "rows": 10, "of": 200, "rate": 5.0},
        ),
        (
            "orders-again",
            [Finished(step="orders-again", text="", facts={"rows": 9, "sent": 9})],
            {"state": "done", "rows": 9, "of": 9},
        ),
        (
            "orders-again",
            [Finished(step="orders-again", text="", facts={"rows": 9, "sent": 4})],
            {"state": "stopped", "rows": 4, "of": 9},
        ),
        (
            "orders",
            [Warned(step="orders", text="careful"), Started(step="unknown", kind="archive")],
            {"state": "waiting"},
        ),
    ],
)
def test_what_becomes_of_events(
    step: str, events: list[Event], expected: dict[str, Any], tmp_path: Path
) -> None:
    found = told(plan_of(tmp_path), *events)[step]
    assert {name: found[name] for name in expected} == expected


def test_the_age_of_a_batch_grows(tmp_path: Path) -> None:
    clock = Clock()
    steps = Steps(plan_of(tmp_path), list(plan_of(tmp_path).pipeline.steps), clock)
    steps.hear(BATCH)
    clock.now = 2.5
    assert steps.told()[0]["batch_ago"] == 2500


def shown(admin: str) -> dict[str, tuple[str, int, str]]:
    return {
        one["step"]: (one["state"], one["rows"], one["reason"])
        for one in read(admin, "pipelines")["pipelines"]
    }


def test_the_broker_is_told_while_it_runs_and_at_the_end(serve: Serve, tmp_path: Path) -> None:
    served = serve("--memory", "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    plan = plan_of(tmp_path, f"stomp://{served.host}:{served.port}")
    heard: list[Event] = []
    with telling(plan, list(plan.pipeline.steps), heard.append) as report:
        report(Started(step="orders", kind="archive"))
        report(BATCH)
        deadline = time.monotonic() + WITHIN
        while shown(served.admin).get("orders") != ("running", 5000, ""):
            assert time.monotonic() < deadline
        report(Finished(step="orders", text="5,000 rows", facts={"rows": 5000}))
    assert len(heard) == 3
    found = shown(served.admin)
    assert found["orders"] == ("done", 5000, "")
    assert found["orders-audit"] == ("stopped", 0, "")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            [Failed(step="orders", text=FAULT)],
            {"orders": ("failed", 0, FAULT), "orders-audit": ("stopped", 0, "")},
        ),
        ([], {"orders": ("failed", 0, FAULT), "orders-audit": ("failed", 0, FAULT)}),
    ],
)
def test_a_run_that_fails_says_why(
    events: list[Event], expected: dict[str, Any], serve: Serve, tmp_path: Path
) -> None:
    served = serve("--memory", "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    plan = plan_of(tmp_path, f"stomp://{served.host}:{served.port}")
    with (
        pytest.raises(LocalError, match="the disk is full"),
        telling(plan, list(plan.pipeline.steps), lambda _: None) as report,
    ):
        for event in events:
            report(event)
        raise LocalError("step-failed", FAULT)
    found = shown(served.admin)
    assert {name: found[name] for name in expected} == expected


def test_a_broker_that_is_away_is_no_reason_to_fail_or_to_wait(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    heard: list[Event] = []
    with telling(plan, list(plan.pipeline.steps), heard.append) as report:
        report(BATCH)
    assert heard == [BATCH]


def test_a_broker_that_refuses_is_said_once(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(users("ann:a"))
    served = serve("--config", str(config), "--memory", "--listen", "tcp://127.0.0.1:0", "--no-admin")
    plan = plan_of(tmp_path, f"stomp://{served.host}:{served.port}", login="ann", passcode="wrong")
    heard: list[Event] = []
    with telling(plan, list(plan.pipeline.steps), heard.append) as report:
        report(BATCH)
    assert heard[0] == BATCH
    [warned] = heard[1:]
    assert (
        isinstance(warned, Warned)
        and "does not take the progress of this run: login or passcode is wrong" in warned.text
    )
