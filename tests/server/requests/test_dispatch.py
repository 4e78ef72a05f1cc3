"""Requests while the rights that they need change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet, ref

import pytest

from stompbox.config import ListenerOptions
from stompbox.errors import Refused
from stompbox.server.requests import dispatch, jsontext, replies
from stompbox.server.requests.replies import Reply, in_turns
from stompbox.stomp.frames import Frame
from stompbox.stomp.versions import VERSIONS
from tests.server.turning import World
from tests.server.world import uncollected


def served(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[bytes, int]:
    """What is answered to a request while which a reload takes its right away, and how often it was asked."""
    asked = 0

    async def caught_up() -> None: ...

    broker: Any = SimpleNamespace(
        set_time=lambda: None, permissions="old", errors=Counter[str](), flush=lambda: None,
        catch_up=caught_up, standing=dict[str, str],
    )  # fmt: skip
    connection: Any = SimpleNamespace(
        broker=broker, names=SimpleNamespace(without_space=str), is_lost=False, is_ended=False, out=[],
        session=SimpleNamespace(version=VERSIONS["1.2"]), write_out=lambda: None, options=ListenerOptions(),
    )  # fmt: skip

    async def handler(*_: object) -> Reply:
        nonlocal asked
        asked += 1
        if broker.permissions == "new":
            raise Refused("not-permitted", "gone")
        broker.permissions = "new"
        return {}, [b"what was read"]

    monkeypatch.setattr(dispatch, "REQUESTS", {name: handler})
    asyncio.run(dispatch._serve(connection, Frame("SEND", {"request": name, "request-id": "1"})))
    return b"".join(connection.out), asked


@pytest.mark.parametrize("name", sorted(dispatch.READING))
def test_what_was_read_with_rights_of_before_is_not_answered(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    answer, asked = served(monkeypatch, name)
    assert b"code:not-permitted" in answer
    assert b"what was read" not in answer
    assert asked == 2


def test_what_was_done_is_not_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, asked = served(monkeypatch, "publish")
    assert b"status:ok" in answer
    assert asked == 1


def test_short_requests_are_answered_in_turns() -> None:
    """What is refused at once waits for nothing; of thousands of such some are answered in each turn."""
    answered, turns_taken = [0], 0
    now = count()

    async def give_way() -> float:
        nonlocal turns_taken
        turns_taken += 1
        answered.append(0)
        return next(now) + 10

    async def serve(*_: object) -> None:
        answered[-1] += 1

    turns = SimpleNamespace(clock=lambda: next(now), allowance=lambda: next(now) + 10, give_way=give_way)
    connection: Any = SimpleNamespace(
        broker=SimpleNamespace(turns=turns, pressure=SimpleNamespace(let_go=lambda *_: None)),
        is_lost=False,
        transport=SimpleNamespace(is_clogged=False),
        outgoing=None,
    )
    requests = dispatch.Requests(connection)
    requests.waiting.extend([(Frame("SEND", {"request": "unknown", "request-id": "1"}), serve)] * 100)
    asyncio.run(requests._serve())
    assert sum(answered) == 100
    assert max(answered) <= 11
    assert turns_taken >= 9


def asking(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[list[str], list[int]]:
    """What a request has come to, when its client has left while it was answered; and what was counted for it, each time."""
    came: list[str] = []
    sizes: list[int] = []

    async def handler(connection: Any, _: Frame) -> Reply:
        connection.requests.count(1000)
        came.append("begun")
        async for _ in replies.each(connection, range(3)):
            pass
        came.append("read")
        await asyncio.sleep(0)
        came.append("done")
        return {}, []

    async def caught_up() -> None: ...

    async def give_way() -> float:
        await asyncio.sleep(0)
        return 1.0

    async def play() -> None:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        turns = SimpleNamespace(clock=lambda: 2.0, allowance=lambda: 1.0, give_way=give_way)
        broker: Any = SimpleNamespace(
            set_time=lambda: None, permissions="", errors=Counter[str](), flush=lambda: None, loop=loop, catch_up=caught_up,
            standing=dict[str, str], turns=turns, spawn=lambda work: tasks.append(loop.create_task(work)),
            pressure=SimpleNamespace(let_go=lambda *_: None),
        )  # fmt: skip
        connection: Any = SimpleNamespace(
            broker=broker, names=SimpleNamespace(without_space=str), is_lost=False, is_ended=False, requests=None,
            options=ListenerOptions(), outgoing=None, transport=SimpleNamespace(is_clogged=False),
            account=SimpleNamespace(is_stale=False, look=lambda one: sizes.append(one.requests.size)),
        )  # fmt: skip
        dispatch.receive(connection, Frame("SEND", {"request": name, "request-id": "1"}))
        requests = connection.requests
        while not came:
            await asyncio.sleep(0)
        if name in LEFT_AT_READ:
            while came[-1] != "read":
                await asyncio.sleep(0)
        connection.is_lost = True
        requests.drained()
        await asyncio.wait(tasks)

    monkeypatch.setattr(dispatch, "REQUESTS", {name: handler})
    asyncio.run(play())
    return came, sizes


LEFT_AT_READ = ("group-delete", "fetch")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("describe", ["begun"]),
        ("fetch", ["begun", "read"]),
        ("group-commit", ["begun"]),
        ("group-delete", ["begun", "read", "done"]),
    ],
)
def test_what_changes_nothing_ends_with_its_connection(
    monkeypatch: pytest.MonkeyPatch, name: str, expected: list[str]
) -> None:
    """And so does what has changed nothing yet; what is begun comes to its end."""
    assert asking(monkeypatch, name)[0] == expected


def test_what_is_made_of_a_request_counts_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    _, sizes = asking(monkeypatch, "group-delete")
    assert sizes[0] > 1000 and sizes[-1] == 0


@pytest.mark.parametrize("fault", [None, Refused("not-permitted", "gone"), asyncio.CancelledError()])
def test_what_a_request_had_is_emptied_in_turns_when_it_is_done(
    monkeypatch: pytest.MonkeyPatch, fault: BaseException | None
) -> None:
    """However it ends; while it is answered it has all of it."""
    had = {"names": [str(number) for number in range(1000)]}
    emptied: list[Iterator[None]] = []
    broker: Any = SimpleNamespace(
        turns=SimpleNamespace(allowance=lambda: 1.0, clock=lambda: 0.0, run=emptied.append),
        pressure=SimpleNamespace(let_go=lambda *_: None), spawn=lambda work: None,
    )  # fmt: skip
    connection: Any = SimpleNamespace(
        broker=broker, is_lost=False, outgoing=None, requests=None, transport=SimpleNamespace(is_clogged=False),
        account=SimpleNamespace(is_stale=False),
    )  # fmt: skip

    async def serve(connection: Any, _: Frame) -> None:
        assert replies.kept(connection, had) is had
        if fault is not None:
            raise fault
        assert len(had["names"]) == 1000 and not emptied

    work: list[Any] = []
    broker.spawn = work.append
    dispatch.take(connection, Frame("SEND", {"request": "fetch", "request-id": "1"}), serve)
    with suppress(StopIteration, Refused, asyncio.CancelledError):
        work[0].send(None)
    (steps,) = emptied
    assert len(had["names"]) == 1000
    assert len(list(steps)) == 1000 // jsontext.BATCH
    assert not had and not connection.requests.kept


class Made:
    """Something that a request has made of what it was asked for."""


def test_a_request_that_has_ended_with_its_connection_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that only the collector would find: what a task has ended with is not seen by it."""
    left: list[ref[Made]] = []

    async def handler(*_: object) -> Reply:
        made = Made()
        left.append(ref(made))
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it", made)

    async def caught_up() -> None: ...

    async def play() -> None:
        loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()
        broker: Any = SimpleNamespace(
            turns=SimpleNamespace(allowance=lambda: 1.0), catch_up=caught_up, set_time=lambda: None, permissions="",
            spawn=lambda work: tasks.append(loop.create_task(work)),
        )  # fmt: skip
        connection: Any = SimpleNamespace(
            broker=broker, is_lost=False, outgoing=None, requests=None, options=ListenerOptions(),
            transport=SimpleNamespace(is_clogged=False), account=SimpleNamespace(is_stale=False),
        )  # fmt: skip
        dispatch.receive(connection, Frame("SEND", {"request": "fetch", "request-id": "1"}))
        while not left:
            await asyncio.sleep(0)
        connection.is_lost = True
        connection.requests.drained()
        await asyncio.wait(tasks)
        tasks.clear()

    monkeypatch.setattr(dispatch, "REQUESTS", {"fetch": handler})
    with uncollected():
        asyncio.run(play())
        assert [found() for found in left] == [None]


def test_of_a_list_that_is_gone_through_in_turns_nothing_is_kept_that_has_gone() -> None:
    """All queues of thousands of subscriptions that had gone meanwhile went in one step, with the list in which they were."""
    world = World()
    there = [partial(int) for _ in range(50)]
    alive = WeakSet(there)
    left: list[int] = []

    async def look() -> None:
        async for one in in_turns(world.broker.turns, [*there]):
            there.clear()
            del one
            left.append(len(alive))

    work = look()
    with suppress(StopIteration):
        while True:
            work.send(None)
            world.turn()
    assert left == [*range(50, 0, -1)]
