"""What is given to `run`: a function for each message, several at a time. Decides what counts as such a function, and as its failure.

What becomes of a message is `message.process()`'s to say: a function that returns has it acknowledged, one that raises refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from inspect import isawaitable, iscoroutinefunction
from threading import Semaphore
from typing import Any, TypeVar

from stompbox.client.message import Message, ReceivedMessage
from stompbox.errors import UsageError

log = logging.getLogger("stompbox.client")
M = TypeVar("M")


class NoHandler(UsageError):
    """What was given to `run` is no function of its kind, which was seen only when it was called."""


def require_handler(handler: object, *, is_async: bool) -> None:
    """Raises UsageError where it can be seen before the first message that this is no handler."""
    if not callable(handler):
        kind = "a coroutine function" if is_async else "a function"
        raise UsageError("bad-argument", f"handler is {handler!r}; allowed is {kind} that takes a message")
    if not is_async and (iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)):
        raise UsageError(
            "bad-argument",
            f"handler {handler!r} is a coroutine function, which nobody awaits here; use stompbox.connect, or a plain function",
        )


def require_concurrency(concurrency: int, ack: str) -> None:
    """Raises UsageError where `run` cannot be meant so."""
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        raise UsageError(
            "bad-argument", f"concurrency is {concurrency!r}; allowed is a number of handlers from 1"
        )
    if concurrency > 1 and ack == "client":
        raise UsageError(
            "bad-argument",
            f"concurrency is {concurrency} and ack 'client': each ACK would speak for messages that other handlers are at; "
            "subscribe with ack='client-individual'",
        )


def failed(message: ReceivedMessage) -> None:
    """To be called where a handler's exception is caught: it goes to the log, and the next message follows."""
    log.exception("a handler failed at message %r of %s", message.id, message.destination)


async def handle(handler: Callable[[Message], Awaitable[object]], message: Message) -> None:
    """Has one message handled. Raises what the handler raises, NoHandler where it returned nothing that can be awaited."""
    work = handler(message)
    if not isawaitable(work):
        raise NoHandler(
            "bad-argument",
            f"handler {handler!r} returned {work!r}; allowed is a coroutine function (async def), or what returns an awaitable",
        )
    try:
        await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # something that it waited for was cancelled: that is its failure, and nobody's wish to end `run`
        raise RuntimeError("the handler was cancelled, though `run` was not") from None


def called(handler: Callable[[M], object], message: M) -> None:
    """Has one message handled in this thread. Raises what the handler raises."""
    result = handler(message)
    if isinstance(result, Coroutine):
        result.close()
        raise NoHandler("bad-argument", f"handler {handler!r} returned a coroutine, which nobody awaits here")


class Pool:
    """Threads that each handle one message at a time; `give` waits until one of them is free.

    Messages are taken in the thread that called `run`, so that Ctrl-C, which comes there alone, ends the waiting for them.
    """

    def __init__(self, size: int) -> None:
        self._threads = ThreadPoolExecutor(size, "stompbox-handler")
        self._free = Semaphore(size)
        self._ended: list[BaseException] = []

    def wait(self) -> None:
        """Returns when a thread is free. Raises what ended a handler that is no Exception, such as SystemExit."""
        self._free.acquire()
        if self._ended:
            raise self._ended[0]

    def give(self, work: Callable[[M], None], message: M) -> None:
        """Has a thread, which `wait` has found, do this work."""
        self._threads.submit(work, message).add_done_callback(self._done)

    def _done(self, work: Future[Any]) -> None:
        if (error := work.exception()) is not None:
            self._ended.append(error)
        self._free.release()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        """Returns when the handlers that are at it have ended."""
        self._threads.shutdown()
