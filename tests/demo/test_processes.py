"""Processes are heard, killed with all that they started, missed when they die, and ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from demo.processes import Child, Stage, StepFailed, fact_of, members

Heard = list[tuple[str, dict[str, Any]]]
ACTOR = "tests.demo.actor"
WITHIN = 60.0


@asynccontextmanager
async def stage_in(folder: Path) -> AsyncIterator[tuple[Stage, Heard]]:
    heard: Heard = []
    stage = Stage(folder, lambda child, facts: heard.append((child.name, facts)))
    try:
        yield stage, heard
    finally:
        await stage.end_all()


async def ready(stage: Stage, what: str) -> Child:
    child = await stage.start(what, 3, ACTOR, what)
    await stage.until(
        lambda: child.said.get("round") == 2, 3, "a second round", measure=child.said.copy, within=WITHIN
    )
    return child


def play(act: Callable[[Stage, Heard], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def played() -> None:
        async with stage_in(folder) as (stage, heard):
            await act(stage, heard)

    asyncio.run(played())


def test_facts_are_kept_and_passed_on_and_other_lines_go_to_the_log(tmp_path: Path) -> None:
    async def act(stage: Stage, heard: Heard) -> None:
        child = await ready(stage, "ready")
        assert child.said == {"ready": True, "round": 2}
        assert heard == [("ready", {"ready": True, "round": 1}), ("ready", {"round": 2})]
        child.tell("finish")
        await stage.ended(child, "it to end", within=WITHIN)
        assert child.said["finished"] and stage.children == []

    play(act, tmp_path)
    assert (tmp_path / "ready.log").read_text() == "no fact\n"


def test_kill_ends_all_that_a_process_started(tmp_path: Path) -> None:
    async def act(stage: Stage, heard: Heard) -> None:
        child = await ready(stage, "family")
        family = [child.said["parent"], child.said["child"]]
        assert os.getpgid(family[1]) != os.getpgid(family[0])
        assert sorted(members(child.pid)) == sorted(family)
        assert await stage.kill(child) == sorted(family)
        assert members(child.pid) == []

    play(act, tmp_path)


def test_whatever_happens_everything_is_ended(tmp_path: Path) -> None:
    sessions: list[int] = []

    async def act(stage: Stage, heard: Heard) -> None:
        sessions.append((await ready(stage, "family")).pid)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        play(act, tmp_path)
    assert [members(session) for session in sessions] == [[]]


def test_a_process_that_dies_is_missed_while_waiting_for_another(tmp_path: Path) -> None:
    async def act(stage: Stage, heard: Heard) -> None:
        await stage.start("failing", 4, ACTOR, "failing")
        await stage.until(lambda: False, 3, "something else", measure=lambda: 0, within=WITHIN)

    with pytest.raises(StepFailed) as caught:
        play(act, tmp_path)
    assert caught.value.step == 4
    assert caught.value.found.startswith("failing (process ") and caught.value.found.endswith(
        "ended with exit code 1"
    )
    assert caught.value.log is not None and "something is wrong here" in caught.value.log.read_text()


def test_waiting_ends_when_nothing_moves(tmp_path: Path) -> None:
    async def act(stage: Stage, heard: Heard) -> None:
        child = await stage.start("silent", 2, ACTOR, "silent")
        await stage.until(lambda: "ready" in child.said, 2, "a word", measure=lambda: 7, within=0.1)

    with pytest.raises(
        StepFailed, match=r"step 2: expected a word; nothing happened for 0.1 s; last seen: 7"
    ):
        play(act, tmp_path)


@pytest.mark.parametrize("line", [b"{not json}\n", b"[1]\n", b"WARN something\n", b"\n", b"{}x\n"])
def test_what_is_no_fact_is_none(line: bytes) -> None:
    assert fact_of(line) is None


def test_a_fact_is_a_json_object() -> None:
    assert fact_of(b'{"a": 1}\n') == {"a": 1}
