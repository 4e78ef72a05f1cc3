"""A broker in this process, on a store of the test's, and one client of it that makes requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from stompbox.config import Configuration, load
from stompbox.server.broker import Broker
from stompbox.store.base import Store
from stompbox.store.chunks import decode
from tests.crash.calls import WITHIN, Client, options

END = 1 << 40
SETTINGS = """[[address-setting]]
match = "#"
auto-delete-queues = false
auto-delete-addresses = false
"""


class World:
    """`client` makes the requests."""

    def __init__(self, settings: Configuration, store: Store) -> None:
        loop = asyncio.get_running_loop()
        self.store = store
        self.broker = Broker(settings, store, loop, is_durable=True)
        loop.set_exception_handler(self.broker.faults.in_loop)
        self.client = Client(self.broker, settings, "")
        self.asked = 0

    async def until(self, is_so: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WITHIN
        while not is_so():
            assert not self.broker.has_failed, self.broker.faults.last
            assert loop.time() < deadline, "it never came"
            await asyncio.sleep(0)

    async def ask(self, request: str, body: bytes = b"", **headers: str) -> tuple[str, dict[str, Any]]:
        """The code of the refusal, or what was answered."""
        self.asked += 1
        id = str(self.asked)
        self.client.say(
            "SEND",
            {"destination": "stompbox.requests", "request": request, "request-id": id, **headers},
            body,
        )
        await self.until(lambda: any(frame.headers["request-id"] == id for frame in self.client.messages))
        answer = next(frame for frame in self.client.messages if frame.headers["request-id"] == id)
        return answer.headers.get("code", ""), json.loads(answer.body or b"{}")

    async def stage(self, chunk: bytes, partition: int = 0, batch: int = 0, **headers: str) -> str:
        """The code of the refusal."""
        place = {"sink": "lake", "batch": str(batch), "partition": str(partition), "attempt": "1", "run": "r"}
        return (await self.ask("stage", chunk, **place, **headers))[0]

    async def publish(self, attempts: int = 1, batch: int = 0, **headers: str) -> tuple[str, dict[str, Any]]:
        wanted = json.dumps({"attempts": [[attempt, 1] for attempt in range(attempts)]}).encode()
        return await self.ask("publish", wanted, **{"sink": "lake", "batch": str(batch), **headers})

    async def settled(self) -> None:
        """No batch is on its way any more, and all that it did is stored."""
        await self.until(
            lambda: (
                not (
                    self.broker.publications.busy
                    or self.broker.engine.is_dirty
                    or self.broker.committer.is_busy
                )
            )
        )

    def there(self) -> dict[str, list[bytes]]:
        """What is stored, by address."""
        logs = self.store.recover().logs
        chunks = {log.name: (log.first, self.store.read(log.id, 0, END, END)) for log in logs}
        return {
            name: [body for part in found for run in decode(part.blob, part.first) for body in run.bodies]
            for name, (_, found) in chunks.items()
        }


def settings(folder: Path, more: str, before: str) -> Configuration:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stompbox.toml").write_text(before + SETTINGS + more)
    return load(folder / "stompbox.toml", {}, options(folder))


def play(
    folder: Path, store: Store, story: Callable[[World], Awaitable[None]], more: str = "", before: str = ""
) -> None:
    """`before`, `more`: what else the configuration says, at its beginning and at its end."""

    async def run() -> None:
        world = World(settings(folder, more, before), store)
        await story(world)
        await world.broker.stop()

    asyncio.run(run())
