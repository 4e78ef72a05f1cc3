"""A subscription as the application holds it: iteration, `receive`, handlers. What it stands on is feed.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType

from stompbox.client.feed import Feed
from stompbox.client.handlers import NoHandler, failed, handle, require_concurrency, require_handler
from stompbox.client.message import Message


class Subscription:
    """Messages of one destination: `async with client.subscribe(…) as messages: async for message in messages: …`

    Iteration ends when the subscription or the client is closed, and raises when the broker ended it or the connection is lost
    for good. Several tasks may iterate over one subscription; each message goes to one of them.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    @property
    def destination(self) -> str:
        return self._feed.destination

    @property
    def id(self) -> str:
        """The id that the SUBSCRIBE carries."""
        return self._feed.id

    @property
    def ack(self) -> str:
        return self._feed.ack

    @property
    def buffered(self) -> int:
        """How many messages wait for the application."""
        return self._feed.buffered

    async def open(self) -> None:
        """SUBSCRIBE; returns when the broker has confirmed it."""
        await self._feed.open()

    async def unsubscribe(self) -> None:
        """UNSUBSCRIBE; returns when confirmed. What waits in the buffer is dropped (and comes again, unless ack="auto")."""
        await self._feed.unsubscribe()

    async def delete(self) -> None:
        """Like `unsubscribe`, and the broker forgets the durable subscription with all that is kept for it."""
        await self._feed.delete()

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came within `timeout` seconds (None: wait for ever), or none will come."""
        return next(iter(await self._feed.receive_many(1, timeout)), None)

    async def receive_many(self, most: int, timeout: float | None = None) -> list[Message]:
        """At least one message and at most `most`, without waiting for more than one; [] as for `receive`."""
        return await self._feed.receive_many(most, timeout)

    async def run(self, handler: Callable[[Message], Awaitable[object]], *, concurrency: int = 1) -> None:
        """Gives each message to `handler`, up to `concurrency` at a time, until the subscription ends; cancel the task to stop.

        A handler that returns has its message acknowledged, one that raises has it refused (NACK), as in `message.process()`; the
        exception goes to the log `stompbox.client`, and the next message follows. Raises what ended the subscription, UsageError for
        what is no handler.
        """
        require_handler(handler, is_async=True)
        require_concurrency(concurrency, self.ack)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._work(handler))
        except BaseExceptionGroup as ended:  # each of them was told the same
            raise ended.exceptions[0] from None

    async def _work(self, handler: Callable[[Message], Awaitable[object]]) -> None:
        async for message in self:
            try:
                async with message.process():
                    await handle(handler, message)
            except NoHandler:
                raise
            except Exception:
                failed(message)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._feed  # itself would be one more call for each message

    async def __anext__(self) -> Message:
        return await anext(self._feed)

    async def __aenter__(self) -> Subscription:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._feed.leave(is_failing=error is not None)

    def __repr__(self) -> str:
        return f"<Subscription of {self._feed!r}>"
