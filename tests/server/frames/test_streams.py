"""Readers of a log by offset, while the disk is at work: they wait for it and are told by themselves; others wait for nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stompbox.errors import StoreError
from stompbox.server.broker import Broker
from stompbox.stomp.frames import Frame
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from tests.crash.calls import WITHIN, Client, configuration

WAYS: Mapping[str, Mapping[str, str]] = {
    "from the first": {"x-stream-offset": "first"},
    "what is next": {},
    "from an offset": {"x-stream-offset": "0"},
    "by name": {"durable-subscription-name": "n", "x-stream-offset": "first"},
}


class Held(MemoryStore):
    """A disk that takes its time: each commit waits for the event."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_full = False

    def apply(self, commit: Commit) -> None:
        assert self.may_go_on.wait(WITHIN)
        if self.is_full:
            raise StoreError("disk-full", "refused by the test")
        super().apply(commit)


class Scene:
    def __init__(self, folder: Path, *, is_durable: bool) -> None:
        self.store = Held()
        self.configuration = configuration(folder)
        self.broker = Broker(
            self.configuration, self.store, asyncio.get_running_loop(), is_durable=is_durable
        )
        self.reader, self.plain, self.sender = [Client(self.broker, self.configuration, "") for _ in range(3)]

    async def subscribed(self, client: Client, destination: str, headers: Mapping[str, str]) -> None:
        client.say("SUBSCRIBE", {"id": "0", "destination": destination, "receipt": "there", **headers})
        await self.until(lambda: "there" in client.receipts)

    def send(self, body: bytes, **headers: str) -> None:
        self.sender.say("SEND", {"destination": "/topic/s", **headers}, body)

    async def until(self, is_so: Callable[[], bool]) -> None:
        deadline = asyncio.get_running_loop().time() + WITHIN
        while not is_so():
            assert asyncio.get_running_loop().time() < deadline, "it never came"
            await asyncio.sleep(0)


@asynccontextmanager
async def scene(folder: Path, *, is_durable: bool = True) -> AsyncIterator[Scene]:
    found = Scene(folder, is_durable=is_durable)
    try:
        yield found
    finally:
        found.store.may_go_on.set()
        await found.broker.stop()


def bodies(client: Client) -> list[bytes]:
    return [frame.body for frame in client.messages]


@pytest.mark.parametrize("is_durable", [True, False], ids=["on disk", "in memory alone"])
@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("way", WAYS)
def test_a_reader_waits_for_the_disk_and_a_subscription_does_not(
    tmp_path: Path, way: str, persistent: str, is_durable: bool
) -> None:
    async def story() -> None:
        async with scene(tmp_path, is_durable=is_durable) as at:
            await at.subscribed(at.reader, "/stream/s", WAYS[way])
            await at.subscribed(at.plain, "/topic/s", {})
            await at.until(lambda: not (at.broker.committer.is_busy or at.broker.engine.is_dirty))
            at.store.may_go_on.clear()
            at.send(b"0", persistent=persistent)
            at.send(b"1", persistent=persistent)
            await at.until(lambda: bodies(at.plain) == [b"0", b"1"])
            await at.until(lambda: at.broker.committer.is_busy)
            assert bodies(at.reader) == []
            at.store.may_go_on.set()
            await at.until(lambda: bodies(at.reader) == [b"0", b"1"])  # nobody says anything meanwhile
            assert [frame.headers["x-stream-offset"] for frame in at.reader.messages] == ["0", "1"]

    asyncio.run(story())


def test_what_the_disk_refuses_is_not_shown_and_the_rest_is_when_it_works_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as at:
            await at.subscribed(at.reader, "/stream/s", WAYS["by name"])
            await at.until(lambda: not (at.broker.committer.is_busy or at.broker.engine.is_dirty))
            at.store.is_full = True
            at.send(b"unanswered")
            at.send(b"refused", receipt="r")
            await at.until(lambda: any(frame.command == "ERROR" for frame in at.sender.heard()))
            assert bodies(at.reader) == []
            at.store.is_full = False
            await at.until(lambda: bodies(at.reader) == [b"unanswered"])

    asyncio.run(story())


ASKED: Mapping[str, tuple[Mapping[str, str], Callable[[Frame], object], object]] = {
    "describe": (
        {"destinations": "/topic/s"},
        lambda answer: json.loads(answer.body)["addresses"]["s"]["next"],
        1,
    ),
    "fetch": (
        {"address": "s", "start": "0", "stop": "9"},
        lambda answer: answer.body.count(b"what was sent"),
        1,
    ),
    "offset-at": (
        {"address": "s", "timestamp": "9999999999999"},
        lambda answer: json.loads(answer.body)["offset"],
        1,
    ),
    "groups": (
        {"group": "g"},
        lambda answer: json.loads(answer.body)["groups"]["g"]["addresses"]["s"]["lag"],
        1,
    ),
}
"""A request of a log, what is looked at of its answer, and what that is when one message is there."""


async def asked(at: Scene, request: str, headers: Mapping[str, str]) -> Callable[[], Frame | None]:
    """Asks; what the answer is, as soon as there is one."""
    before = len(at.reader.messages)
    at.reader.say(
        "SEND", {"destination": "stompbox.requests", "request": request, "request-id": "1", **headers}
    )
    return lambda: next(iter(at.reader.messages[before:]), None)


@pytest.mark.parametrize("is_durable", [True, False], ids=["on disk", "in memory alone"])
@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("is_transacted", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("request_name", ASKED)
def test_what_was_confirmed_is_found_by_offset(
    tmp_path: Path, request_name: str, persistent: str, is_durable: bool, is_transacted: bool
) -> None:
    """Also where the receipt does not wait for the commit that brings the message into the log."""
    headers, seen, expected = ASKED[request_name]

    async def story() -> None:
        async with scene(tmp_path, is_durable=is_durable) as at:
            answer = await asked(
                at, "group-open", {"group": "g", "destinations": "/topic/s", "starting": "earliest"}
            )
            await at.until(lambda: answer() is not None)
            await at.until(lambda: not (at.broker.committer.is_busy or at.broker.engine.is_dirty))
            is_late = not (is_durable and persistent == "true")  # the receipt is told before the commit
            if is_late:
                at.store.may_go_on.clear()
            if is_transacted:
                at.sender.say("BEGIN", {"transaction": "t"})
                at.send(b"what was sent", persistent=persistent, transaction="t")
                at.sender.say("COMMIT", {"transaction": "t", "receipt": "sent"})
            else:
                at.send(b"what was sent", persistent=persistent, receipt="sent")
            await at.until(lambda: "sent" in at.sender.receipts)
            answer = await asked(at, request_name, headers)
            await at.until(lambda: answer() is not None or bool(at.broker.releases._on_durable))
            at.store.may_go_on.set()
            await at.until(lambda: answer() is not None)
            assert seen(answer() or Frame("", {})) == expected

    asyncio.run(story())


def test_who_reads_by_offset_is_answered_although_the_disk_takes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as at:
            answer = await asked(
                at, "group-open", {"group": "g", "destinations": "/topic/s", "starting": "earliest"}
            )
            await at.until(lambda: answer() is not None)
            at.store.is_full = True
            at.send(b"what was sent", persistent="false", receipt="sent")
            await at.until(lambda: "sent" in at.sender.receipts)
            for _ in range(2):  # while it is found out, and then
                answer = await asked(at, "describe", ASKED["describe"][0])
                await at.until(lambda answer=answer: answer() is not None)
                found = answer()
                assert (
                    found is not None and found.headers["status"] == "ok" and ASKED["describe"][1](found) == 0
                )

    asyncio.run(story())
