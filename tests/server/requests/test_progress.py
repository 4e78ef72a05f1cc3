"""What is kept of what pipelines tell: how much, for how long, what makes room. Against a broker: tests/admin/test_pipelines.py."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stompbox.errors import Refused
from stompbox.server.requests.progress import KEPT, Progress, Step, StepState, Told
from stompbox.server.requests.progress import progress as obey
from stompbox.stomp.frames import Frame

HERE = {1}  # sessions that are there


def told(
    step: str,
    state: StepState = StepState.RUNNING,
    *,
    user: str = "u",
    at: int = 0,
    session: int = 1,
    rows: int = 0,
) -> Told:
    return Told(user, "p", Step(step, "archive", state, rows=rows), (), session, at)


def steps(progress: Progress) -> list[str]:
    return [one.step.step for one in progress.told.values()]


def test_what_is_told_takes_the_place_of_what_was_told() -> None:
    progress = Progress()
    progress.tell("p", [told("a"), told("b")], HERE)
    progress.tell("p", [told("a", rows=7)], HERE)
    progress.tell("p", [told("a", user="v")], HERE)
    progress.tell("other", [told("a")], HERE)
    assert [(one.user, one.step.step, one.step.rows) for one in progress.told.values()] == [
        ("u", "b", 0), ("u", "a", 7), ("v", "a", 0), ("u", "a", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(("most", "most_of_user"), [(3, 9), (9, 3)])
def test_what_is_over_or_lost_makes_room_the_oldest_first(most: int, most_of_user: int) -> None:
    progress = Progress(most=most, most_of_user=most_of_user)
    progress.tell("p", [told("going"), told("done", StepState.DONE), told("lost", session=2)], HERE)
    progress.tell("p", [told("new")], HERE)
    assert steps(progress) == ["going", "lost", "new"]
    progress.tell("p", [told("newer")], HERE)
    assert steps(progress) == ["going", "new", "newer"]
    with pytest.raises(Refused, match="these are all under way") as refused:
        progress.tell("p", [told("new", StepState.DONE), told("newest"), told("too-many")], HERE)
    assert refused.value.code == "too-many-steps"
    assert steps(progress) == ["going", "new", "newer"], "nothing is kept of what was refused"
    assert progress.told["u", "p", "new"].step.state is StepState.RUNNING


def test_one_user_cannot_push_out_another() -> None:
    progress = Progress(most_of_user=1)
    progress.tell("p", [told("a", StepState.DONE, user="v")], HERE)
    progress.tell("p", [told("b")], HERE)
    with pytest.raises(Refused):
        progress.tell("p", [told("c")], HERE)
    assert steps(progress) == ["a", "b"]


class Asked(set[int]):
    """Sessions that are there, and how often somebody asks for one."""

    count = 0

    def __contains__(self, session: object) -> bool:
        self.count += 1
        return super().__contains__(session)


def test_what_makes_room_for_very_many_is_looked_for_once() -> None:
    progress, sessions = Progress(most=300, most_of_user=200), Asked(HERE)
    progress.tell("p", [told(f"old-{number}", user="v") for number in range(150)], HERE)
    progress.tell("p", [told(f"old-{number}") for number in range(100)], HERE)
    progress.tell("p", [told(f"done-{number}", StepState.DONE) for number in range(50)], HERE)
    progress.tell("p", [told(f"new-{number}") for number in range(50)], sessions)
    assert sessions.count == 300
    assert len(progress.told) == 300
    assert not [step for step in steps(progress) if step.startswith("done")]


def test_what_nobody_speaks_of_is_forgotten() -> None:
    progress = Progress()
    progress.tell("p", [told("a", at=1000), told("b", at=1000)], HERE)
    progress.tell("p", [told("a", at=5000)], HERE)
    progress.forget(1000 + KEPT)
    assert steps(progress) == ["b", "a"]
    progress.forget(1001 + KEPT)
    assert steps(progress) == ["a"]
    progress.tell("p", [told("c", at=6000 + KEPT)], HERE)
    assert steps(progress) == ["c"]


@pytest.mark.parametrize(
    ("state", "session", "shown"),
    [
        (StepState.RUNNING, 1, "running"), (StepState.WAITING, 1, "waiting"), (StepState.RUNNING, 2, "lost"),
        (StepState.WAITING, 2, "lost"),
        (StepState.DONE, 2, "done"), (StepState.FAILED, 2, "failed"), (StepState.STOPPED, 2, "stopped"),
    ],
)  # fmt: skip
def test_a_step_is_lost_when_its_connection_went_before_it_was_over(
    state: StepState, session: int, shown: str
) -> None:
    assert told("a", state, session=session).state(HERE) == shown


class Looked:
    """An address that counts how often somebody looks for its reader groups."""

    looks = 0

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def groups(self) -> dict[str, object]:
        Looked.looks += 1
        return {"g": None}


def test_each_address_is_looked_at_once_however_many_groups_are_told_of() -> None:
    """In turns: the client may name as many groups as fit, again and again."""
    given = [
        {"step": str(one), "kind": "k", "state": "running", "groups": ["g", "h"] * 20} for one in range(200)
    ]
    body = json.dumps({"pipeline": "p", "steps": given}, separators=(",", ":")).encode()
    addresses = {name: Looked(name) for name in ("a", "b", "c")}
    engine = SimpleNamespace(addresses=addresses, group_patterns={"g": [], "h": []})
    asked: list[str] = []
    turns = SimpleNamespace(allowance=lambda: 0.0, clock=lambda: 0.0)
    permissions = SimpleNamespace(require=lambda user, right, address: asked.append(address))
    broker = SimpleNamespace(
        engine=engine, turns=turns, permissions=permissions, progress=None, sessions=set, now=lambda: 0
    )
    connection: Any = SimpleNamespace(
        broker=broker,
        names=SimpleNamespace(qualified=str),
        user=SimpleNamespace(name="u"),
        session_id=1,
        is_lost=False,
    )
    asyncio.run(cast(Any, obey(connection, Frame("SEND", {"request": "progress"}, body))))
    assert asked == ["a", "b", "c"]
    assert Looked.looks == 3
    assert len(broker.progress.told) == 200
