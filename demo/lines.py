"""How the processes of the demo talk to the one that started them: facts as JSON lines on stdout, orders as words on stdin.

An actor reports often and says the latest value of each fact. When its stdin ends the parent is gone, and the actor goes too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

Facts = dict[str, Any]

REPORT_EVERY: Final = 0.2  # s


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


class Orders:
    """Words that the parent has given so far. For actors with an event loop."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._came = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            self._given.add(line.decode().strip())
            self._came.set()
        os.kill(os.getpid(), signal.SIGTERM)

    async def wait(self, word: str) -> None:
        while word not in self._given:
            self._came.clear()
            await self._came.wait()


def order_given(word: str) -> threading.Event:
    """An event that is set when the parent has said `word`. For actors without an event loop."""
    given = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == word:
                given.set()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()
    return given


async def work_until(
    word: str, work: Coroutine[Any, Any, None], facts: Callable[[], Facts], orders: Orders
) -> None:
    """Runs `work` and reports `facts` until the parent says `word`. Raises what `work` raises."""
    working = asyncio.create_task(work)
    told = asyncio.create_task(orders.wait(word))
    try:
        while not told.done():
            await asyncio.wait((working, told), timeout=REPORT_EVERY, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
                await told
            say(**facts())
    finally:
        working.cancel()
        await asyncio.wait((working,))
    say(**facts())
