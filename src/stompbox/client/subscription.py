"""A subscription as the application holds it: SUBSCRIBE and UNSUBSCRIBE, the buffer, iteration, acknowledgements.

It outlives connections: on each one it has a route of its own, and a message can only be acknowledged over the connection it
came by. With ack="client" or "client-individual" what waits in the buffer is thrown away when the connection is lost, for the
broker delivers it again; with "auto" it is kept, for the broker does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from stompbox.client.connection import BrokerConnection
from stompbox.client.intake import OVERHEAD
from stompbox.client.link import Call, Link
from stompbox.client.message import Message, ReceivedMessage
from stompbox.client.outgoing import Headers, header_texts
from stompbox.client.refusal import BrokerError
from stompbox.client.runs import MessageRun
from stompbox.errors import ConnectionLost, StompboxError, UsageError

log = logging.getLogger("stompbox.client")

ACK_MODES: Final = ("auto", "client", "client-individual")  # STOMP 1.2, SUBSCRIBE ack Header
# messages that are handed out one after another before the loop gets its turn, for heart-beats and writes
TURN: Final = 64
ACK_SIZE: Final = 64  # octets of an ACK frame, about
_OWN_HEADERS: Final = frozenset(
    ("destination", "id", "ack", "selector", "receipt", "transaction", "content-length")
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The arguments of `subscribe`, checked."""

    destination: str
    ack: str
    id: str | None = None  # of a durable subscription its name: RabbitMQ knows it by that
    selector: str | None = None
    durable: str | None = None
    prefetch: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def headers_for(self, server: str, client_id: str | None) -> dict[str, str]:
        """The SUBSCRIBE's headers, in the spelling of the broker that CONNECTED named."""
        found = {"destination": self.destination, "ack": self.ack}
        if self.selector is not None:
            found["selector"] = self.selector
        if self.durable is not None:
            found.update(durable_headers(self.durable, server, client_id))
        if self.prefetch is not None:
            found[_prefetch_header(server)] = str(self.prefetch)
        return {**found, **self.headers}


def wanted(
    destination: str,
    ack: str,
    *,
    id: str | None,
    selector: str | None,
    durable: str | None,
    prefetch: int | None,
    headers: Headers | None,
) -> Wanted:
    """Raises UsageError that names the argument and what is allowed."""
    for name, value in (
        ("destination", destination),
        ("id", id),
        ("selector", selector),
        ("durable", durable),
    ):
        if (value is None and name == "destination") or not isinstance(value, str | None) or value == "":
            raise UsageError("bad-argument", f"{name} is {value!r}; allowed is a str that is not empty")
    if ack not in ACK_MODES:
        raise UsageError("bad-argument", f"ack is {ack!r}; allowed are {', '.join(ACK_MODES)}")
    if prefetch is not None and (not isinstance(prefetch, int) or isinstance(prefetch, bool) or prefetch < 1):
        raise UsageError("bad-argument", f"prefetch is {prefetch!r}; allowed is a number of messages from 1")
    texts = header_texts(headers or {})
    for name in _OWN_HEADERS & texts.keys():
        raise UsageError(
            "reserved-header",
            f"header {name!r} of a SUBSCRIBE is written by the client; use the argument of that name",
        )
    return Wanted(destination, ack, id or durable, selector, durable, prefetch, texts)


def durable_headers(name: str, server: str, client_id: str | None) -> dict[str, str]:
    """A durable subscription: by client-id and name as in JMS, or RabbitMQ's way, where the `id` is the name."""
    if server.startswith("RabbitMQ"):
        return {"durable": "true", "auto-delete": "false"}
    if client_id is None:
        raise UsageError(
            "no-client-id",
            f"the durable subscription {name!r} needs a client_id in connect(…): the broker knows it by both",
        )
    return {"durable-subscription-name": name, "activemq.subscriptionName": name}


def _prefetch_header(server: str) -> str:
    """Artemis counts octets where ActiveMQ Classic, RabbitMQ and Stompbox count messages."""
    if server.startswith("ActiveMQ-Artemis"):
        raise UsageError(
            "no-prefetch",
            'prefetch: Artemis counts octets, not messages; use headers={"consumer-window-size": …}',
        )
    return "activemq.prefetchSize" if server.startswith("ActiveMQ") else "prefetch-count"


class SubscriptionRoute:
    """A subscription on one connection."""

    __slots__ = ("connection", "is_over", "subscription", "was_stale")

    def __init__(self, subscription: Subscription, connection: BrokerConnection) -> None:
        self.subscription = subscription
        self.connection = connection
        self.is_over = False  # unsubscribed
        self.was_stale = False

    @property
    def is_stale(self) -> bool:
        return self.is_over or not self.connection.is_open

    def deliver(self, run: MessageRun) -> None:
        self.subscription.deliver(run)

    def check(self, message: ReceivedMessage, command: str) -> None:
        """Raises when `message` cannot be acknowledged (any more)."""
        if self.subscription.ack == "auto":
            how = "subscribe with ack='client-individual' or 'client'"
            raise UsageError(
                "auto-ack", f"{command} of {message.id!r}: its subscription has ack='auto'; {how}"
            )
        if message.is_settled:
            raise UsageError(
                "already-settled", f"{command} of {message.id!r}: it was acknowledged (or not) before"
            )
        if self.is_stale:
            why = "its subscription has ended" if self.is_over else "the connection it came by is gone"
            raise ConnectionLost(
                "stale-message", f"{command} of {message.id!r}: {why}; the broker delivers it again"
            )
        self.connection.protocol.check_acknowledge(command, message)

    def post(self, message: ReceivedMessage, command: str) -> bool:
        """ACK or NACK, after `check`, that nobody waits for. True: let the loop have its turn."""
        self.connection.protocol.acknowledge(command, message, self.subscription.id)
        message.is_settled = True
        return self.connection.sent(ACK_SIZE)

    async def settle(
        self, message: ReceivedMessage, command: str, *, confirm: bool, timeout: float | None
    ) -> None:
        self.check(message, command)
        if not confirm:
            await self._post(message, command)
            return
        call = Call()
        number = self.connection.protocol.acknowledge(command, message, self.subscription.id, waiter=call)
        message.is_settled = True
        self.connection.called()
        await self.subscription.link.settled(call, number, timeout, f"{command} of message {message.id!r}")

    async def _post(self, message: ReceivedMessage, command: str) -> None:
        if self.post(message, command):
            await asyncio.sleep(0)
        if self.connection.is_blocked:
            await self.connection.drain()

    async def settle_processed(self, message: ReceivedMessage, *, failed: bool) -> None:
        """At the end of `process()`. What cannot be acknowledged comes again: that is counted and logged, not raised."""
        if self.subscription.ack == "auto" or message.is_settled:
            return
        place = self.subscription.destination
        if self.is_stale:
            self.subscription.link.counters["stale-message"] += 1
            if not self.was_stale:
                self.was_stale = True
                log.warning(
                    "message %r of %s was processed, but its connection is gone: it will come again",
                    message.id,
                    place,
                )
            return
        if failed and not self.connection.version.may_nack:
            log.warning(
                "message %r of %s failed; STOMP 1.0 has no NACK, it stays unacknowledged", message.id, place
            )
            return
        command = "NACK" if failed else "ACK"
        self.connection.protocol.check_acknowledge(command, message)
        await self._post(message, command)


class Resubscribed:
    """Waits for the RECEIPT of a SUBSCRIBE that no caller waits for."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def confirmed(self, frame: bytes) -> None:
        log.info("subscribed again to %s", self._subscription.destination)

    def failed(self, frame: bytes, error: StompboxError) -> None:
        if isinstance(error, BrokerError):  # a lost connection is followed by another try
            self._subscription.refused(error)


class Subscription:
    """Messages of one destination: `async with client.subscribe(…) as messages: async for message in messages: …`

    Iteration ends when the subscription or the client is closed, and raises when the broker ended it or the connection is lost
    for good. Several tasks may iterate over one subscription; each message goes to one of them.
    """

    def __init__(self, link: Link, request: Wanted) -> None:
        self.link = link
        self.request = request
        self.id = request.id or f"s{next(link.numbers)}"
        self._buffer: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._in_turn = 0
        self._route: SubscriptionRoute | None = None
        self._is_open = False
        self._is_confirmed = False
        self._is_ended = False
        self._error: StompboxError | None = None

    @property
    def destination(self) -> str:
        return self.request.destination

    @property
    def ack(self) -> str:
        return self.request.ack

    @property
    def buffered(self) -> int:
        """Messages that wait for the application."""
        return len(self._buffer)

    # -- subscribing -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """SUBSCRIBE; returns when the broker has confirmed it."""
        if self._is_open or self._is_ended:
            raise UsageError(
                "already-opened",
                f"the subscription to {self.destination} was opened before; subscribe again for another one",
            )
        if self.id in self.link.subscriptions:
            raise UsageError("bad-argument", f"id {self.id!r} is used by another subscription of this client")
        self._is_open = True
        self.link.subscriptions[self.id] = self
        try:
            while not await self._subscribed():
                pass
        except BaseException:
            self._forget()
            raise

    async def _subscribed(self) -> bool:
        """False: the connection was lost meanwhile, and another one comes."""
        connection = await self.link.connected()
        call = Call()
        number = self._send(connection, call)
        try:
            await self.link.settled(call, number, None, f"SUBSCRIBE to {self.destination}")
        except ConnectionLost:
            if connection.is_open or self.link.options.reconnect is None:
                raise
            return False
        self._is_confirmed = True
        return True

    def _send(self, connection: BrokerConnection, waiter: Call | Resubscribed) -> int:
        headers = self.request.headers_for(connection.protocol.server, connection.options.client_id)
        self._route = SubscriptionRoute(self, connection)
        number = connection.protocol.subscribe(self.id, self._route, headers, waiter)
        connection.called()
        return number

    def resubscribe(self, connection: BrokerConnection) -> None:
        if not self._is_confirmed:  # `open` is at it
            return
        try:
            self._send(connection, Resubscribed(self))
        except UsageError as error:  # the other broker cannot do what the first one could
            self.refused(error)

    def refused(self, error: StompboxError) -> None:
        """It could not be made again: that ends it."""
        self.link.subscriptions.pop(self.id, None)
        if self._route is not None:
            self._route.is_over = True
            self._route.connection.protocol.retire(self.id)
        self.end(error)

    async def unsubscribe(self) -> None:
        """UNSUBSCRIBE; returns when confirmed. What waits in the buffer is dropped (and comes again, unless ack="auto")."""
        await self._unsubscribe({})

    async def delete(self) -> None:
        """Like `unsubscribe`, and the broker forgets the durable subscription with all that is kept for it."""
        if self.request.durable is None:
            raise UsageError(
                "not-durable",
                f"the subscription to {self.destination} is not durable: there is nothing to delete",
            )
        connection = await self.link.connected()
        server = connection.protocol.server
        headers = durable_headers(self.request.durable, server, connection.options.client_id)
        if server.startswith("ActiveMQ/"):  # Classic refuses while the subscription has its consumer
            await self.unsubscribe()
            await self._say_unsubscribe(connection, headers)
        else:
            await self._unsubscribe(headers)

    async def _unsubscribe(self, headers: dict[str, str]) -> None:
        route = self._route
        was_known = self._forget()
        if route is None or route.is_stale or not was_known:
            return
        route.is_over = True
        try:
            await self._say_unsubscribe(route.connection, headers)
        except ConnectionLost:
            if route.connection.is_open or headers:
                raise
            log.info(
                "the connection was lost during UNSUBSCRIBE from %s, which ends it too", self.destination
            )

    async def _say_unsubscribe(self, connection: BrokerConnection, headers: dict[str, str]) -> None:
        call = Call()
        number = connection.protocol.unsubscribe(self.id, headers, call)
        connection.called()
        await self.link.settled(call, number, None, f"UNSUBSCRIBE from {self.destination}")

    def _forget(self) -> bool:
        self.end(None)
        self._clear()
        if self._route is not None and not self._route.is_over and self._route.connection.is_open:
            self._route.connection.protocol.retire(self.id)
        return self.link.subscriptions.pop(self.id, None) is not None

    async def __aenter__(self) -> Subscription:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.unsubscribe()
        except StompboxError as failure:
            if error is None:
                raise
            log.warning("UNSUBSCRIBE from %s failed: %s", self.destination, failure.message)

    # -- what comes --------------------------------------------------------------------------------------------------

    def deliver(self, run: MessageRun) -> None:
        self._buffer.extend(run.messages)
        self._arrived.set()

    def detached(self) -> None:
        if self.ack != "auto":
            self.link.counters["dropped-unacknowledged"] += len(self._buffer)
            self._clear()

    def end(self, error: StompboxError | None) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._error = error
            self._arrived.set()

    def _clear(self) -> None:
        size = sum(len(message.body) + OVERHEAD for message in self._buffer)
        self._buffer.clear()
        self.link.intake.taken(size)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        if not self._buffer or self._in_turn >= TURN:
            await self._more()
            if not self._buffer:
                raise StopAsyncIteration
        return self._take()

    def _take(self) -> Message:
        self._in_turn += 1
        message = self._buffer.popleft()
        self.link.intake.taken(len(message.body) + OVERHEAD)
        return message

    async def _more(self) -> None:
        """Returns when there is a message, or never will be one; raises what ended it."""
        self._in_turn = 0
        if self._buffer:
            await asyncio.sleep(0)
        while not self._buffer:
            if self._is_ended:
                if self._error is not None:
                    raise self._error
                return
            if not self._is_open:
                raise UsageError(
                    "not-opened",
                    "this subscription is not open yet: use `async with client.subscribe(…) as messages:`",
                )
            self._arrived.clear()
            await self._arrived.wait()

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came within `timeout` seconds (None: wait for ever), or none will come."""
        return next(iter(await self.receive_many(1, timeout)), None)

    async def receive_many(self, most: int, timeout: float | None = None) -> list[Message]:
        """At least one message and at most `most`, without waiting for more than one; [] as for `receive`."""
        if not self._buffer or self._in_turn >= TURN:
            try:
                async with asyncio.timeout(timeout):
                    await self._more()
            except TimeoutError:
                return []
        return [self._take() for _ in range(min(most, len(self._buffer)))]

    def __repr__(self) -> str:
        ended = " ended" if self._is_ended else ""
        return f"<Subscription {self.id} to {self.destination} ack={self.ack} buffered={len(self._buffer)}{ended}>"
