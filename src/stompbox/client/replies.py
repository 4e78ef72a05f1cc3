"""Requests to other clients, and their replies: one temporary queue of a client's own, and a number for each request.

    SEND destination:/queue/prices  reply-to:/temp-queue/replies-7  correlation-id:12
    MESSAGE from the temporary queue  correlation-id:12

The queue is subscribed to with the first request. It ends with its connection, and with it the replies to what was asked before:
those requests fail at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from stompbox.client.connection import BrokerConnection
from stompbox.client.intake import OVERHEAD
from stompbox.client.link import Call, Link
from stompbox.client.message import ReceivedMessage
from stompbox.client.outgoing import Headers, header_texts
from stompbox.client.refusal import BrokerError
from stompbox.client.runs import MessageRun
from stompbox.errors import ConnectionLost, StompboxError, UsageError

log = logging.getLogger("stompbox.client")

_OWN_HEADERS: Final = ("reply-to", "correlation-id")


class Replies:
    """The requests of one client that wait for their replies, by correlation id."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._id = f"replies-{next(link.numbers)}"
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._connection: BrokerConnection | None = None  # the one on which the queue is subscribed to
        self._subscribing = asyncio.Lock()

    def headers(self, given: Headers | None) -> dict[str, str]:
        """The headers of a request. Raises UsageError for those that are written here."""
        texts = header_texts(given)
        for name in _OWN_HEADERS:
            if name in texts:
                raise UsageError("reserved-header", f"header {name!r} of a request is written by the client")
        return {
            **texts,
            "reply-to": f"/temp-queue/{self._id}",
            "correlation-id": str(next(self._link.numbers)),
        }

    async def open(self, timeout: float | None) -> None:
        """Subscribes to the replies; returns when they can come."""
        async with self._subscribing:
            connection = await self._link.connected(timeout)
            if self._connection is connection:
                return
            if connection.protocol.server.startswith("RabbitMQ"):
                raise UsageError(
                    "no-rpc", "rpc: RabbitMQ has no temporary queues that a client subscribes to"
                )
            call = Call()
            headers = {"destination": f"/temp-queue/{self._id}", "ack": "auto"}
            number = connection.protocol.subscribe(self._id, self, headers, call)
            connection.called()
            self._link.subscriptions[self._id] = self
            try:
                await self._link.settled(call, number, timeout, "SUBSCRIBE to the queue of replies")
            except BrokerError:
                raise
            except BaseException:  # cancelled, or not answered in time: the next request subscribes again
                connection.withdraw(self._id)
                raise
            self._connection = connection

    def expect(self, id: str) -> asyncio.Future[ReceivedMessage]:
        future = self._waiting[id] = asyncio.get_running_loop().create_future()
        return future

    def forget(self, id: str) -> None:
        self._waiting.pop(id, None)

    # -- what protocol.py and link.py say ----------------------------------------------------------------------------

    def deliver(self, run: MessageRun) -> None:
        for message in run.messages:
            self._link.intake.taken(len(message.body) + OVERHEAD)
            future = self._waiting.pop(message.correlation_id or "", None)
            if future is None or future.done():
                self._link.counters["late-reply"] += 1
                log.info("a reply came that nobody waits for: correlation-id %r", message.correlation_id)
            else:
                future.set_result(message)

    def resubscribe(self, connection: BrokerConnection) -> None:
        """Does nothing: the next request subscribes again."""

    def detached(self) -> None:
        self._connection = None
        self._fail(ConnectionLost("reply-lost", "the connection is gone, and with it the queue of replies"))

    def end(self, error: StompboxError | None) -> None:
        self._connection = None
        self._fail(error or ConnectionLost("closed", "this client is being closed"))

    def _fail(self, error: StompboxError) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)


def reply_headers(message: ReceivedMessage, given: Headers | None, server: str) -> tuple[str, dict[str, str]]:
    """(destination, headers) of the reply to a message. Raises UsageError where its sender waits for none."""
    if not isinstance(message, ReceivedMessage):
        raise UsageError("bad-argument", f"message is {message!r}; allowed is one that was received")
    if message.reply_to is None:
        raise UsageError(
            "no-reply-to", f"message {message.id!r} of {message.destination} has no header reply-to"
        )
    texts = header_texts(given)
    if message.correlation_id is not None:
        texts.setdefault("correlation-id", message.correlation_id)
    if server.startswith("Stompbox"):
        texts.setdefault(
            "mandatory", "false"
        )  # who asked may be gone: an ERROR would cost all others this connection
    return message.reply_to, texts
