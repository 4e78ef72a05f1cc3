"""Clients of a cluster that send and get what is not persistent, all the time: for how long did nothing come through?"""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import suppress
from typing import Any

import stompbox
from stompbox.errors import StompboxError

TOPIC = "/topic/drill.chatter"
PERIOD = 0.05  # seconds between two messages


class Chatter:
    """One sender and one subscriber, each at a node of its own."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.times: list[float] = []  # at which something came
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._hear())]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def longest(self, since: float = 0.0) -> float:
        """The longest pause from then on (time.monotonic), in seconds."""
        times = [since, *(at for at in self.times if at > since), time.monotonic()] if since else self.times
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def _connect(self, at: int) -> Any:
        policy = stompbox.Reconnect(attempts=None, first_delay=0.05, max_delay=0.5, initial=True)
        urls = self.urls[at % len(self.urls) :] + self.urls[: at % len(self.urls)]
        return stompbox.connect(urls, reconnect=policy, connect_timeout=4.0)

    async def _send(self) -> None:
        async with self._connect(0) as client:
            while True:
                with suppress(StompboxError):
                    await client.send(TOPIC, b"x", {"persistent": "false"}, confirm=False)
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=PERIOD)

    async def _hear(self) -> None:
        async with self._connect(1) as client, client.subscribe(TOPIC, ack="auto") as messages:
            async for _ in messages:
                self.times.append(time.monotonic())
