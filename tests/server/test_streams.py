"""Readers of a log by offset, while the disk is at work: they wait for it and are told by themselves; others wait for nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stompbox.errors import StoreError
from stompbox.server.broker import Broker
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
        self.broker = Broker(self.configuration, self.store, asyncio.get_running_loop(), is_durable=is_durable)
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
def test_a_reader_waits_for_the_disk_and_a_subscription_does_not(tmp_path: Path, way: str, persistent: str, is_durable: bool) -> None:
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
