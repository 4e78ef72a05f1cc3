"""The thread in which the client of `stompbox.blocking` lives."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError as FutureCancelled
from typing import Any, TypeVar

from stompbox.errors import ConnectionLost

T = TypeVar("T")


class LoopThread:
    """A thread that runs an event loop, and the ways into it."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._posted: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._is_stopped = False
        self._lock = threading.Lock()  # nothing enters the loop after its stop: it would never come out
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:  # calls of other threads, which would wait for ever
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` in the loop and waits for it. An interrupted wait (Ctrl-C) cancels it."""
        with self._lock:
            if self._is_stopped:
                work.close()
                raise ConnectionLost("closed", "this client was closed")
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except FutureCancelled:
            raise ConnectionLost("closed", "this client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def end(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work`, which ends something that a client that is closed has ended, too: then it does nothing."""
        try:
            self.call(work)
        except ConnectionLost as error:
            if error.code != "closed":
                raise

    def post(self, work: Callable[[], None]) -> None:
        """Has `work` run in the loop soon, in the order posted. Many posts wake the loop once."""
        self._posted.append(work)
        if not self._is_woken:
            self._is_woken = True
            with self._lock:
                if self._is_stopped:
                    raise ConnectionLost("closed", "this client was closed")
                self.loop.call_soon_threadsafe(self._work_off)

    def _work_off(self) -> None:
        self._is_woken = False
        try:
            while self._posted:
                self._posted.popleft()()
        finally:
            if self._posted:  # one of them raised, which asyncio reports; the others go on
                self.loop.call_soon(self._work_off)

    def stop(self) -> None:
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
