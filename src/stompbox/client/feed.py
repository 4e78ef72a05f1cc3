"""One subscription, connection after connection: SUBSCRIBE and UNSUBSCRIBE, the buffer, acknowledgements.

It outlives connections: on each one it has a route of its own, and a message can only be acknowledged over the connection it
came by. With ack="client" or "client-individual" what waits in the buffer is thrown away when the connection is lost, for the
broker delivers it again; with "auto" it is kept, for the broker does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

from stompbox.client.connection import BrokerConnection
from stompbox.client.intake import OVERHEAD
from stompbox.client.link import Call, Link
from stompbox.client.message import ACK, NACK, Answer, Message, ReceivedMessage
from stompbox.client.options import require_timeout
from stompbox.client.protocol import ProtocolState
from stompbox.client.refusal import BrokerError
from stompbox.client.runs import MessageRun
from stompbox.client.subscribing import Wanted, durable_headers
from stompbox.errors import ConnectionLost, StompboxError, UsageError

log = logging.getLogger("stompbox.client")

# messages that are handed out one after another before the loop gets its turn, for heart-beats and writes
TURN: Final = 64
TURN_SECONDS: Final = 0.002  # or more of them, for as long
ACK_SIZE: Final = 64  # octets of an ACK frame, about


class SubscriptionRoute:
    """A subscription as one connection has it."""

    __slots__ = ("connection", "is_auto", "is_over", "subscription", "was_stale")

    def __init__(self, subscription: Feed, connection: BrokerConnection) -> None:
        self.subscription = subscription
        self.connection = connection
        self.is_auto = subscription.ack == "auto"
        self.is_over = False  # unsubscribed
        self.was_stale = False

    @property
    def is_stale(self) -> bool:
        return self.is_over or self.connection.protocol.state is not ProtocolState.OPEN

    @property
    def _why_stale(self) -> str:
        return "its subscription has ended" if self.is_over else "the connection it came by is gone"

    def deliver(self, run: MessageRun) -> None:
        self.subscription.deliver(run)

    def check(self, message: ReceivedMessage, answer: Answer) -> None:
        """Raises when `message` cannot be acknowledged (any more)."""
        if self.is_auto:
            how = "subscribe with ack='client-individual' or 'client'"
            raise UsageError(
                "auto-ack", f"{answer.command} of {message.id!r}: its subscription has ack='auto'; {how}"
            )
        if message.is_settled:
            raise UsageError(
                "already-settled", f"{answer.command} of {message.id!r}: it was acknowledged (or not) before"
            )
        if self.is_stale:
            text = f"{answer.command} of {message.id!r}: {self._why_stale}; the broker delivers it again"
            raise ConnectionLost("stale-message", text)
        self.connection.protocol.check_acknowledge(answer, message)

    def post(self, message: ReceivedMessage, answer: Answer) -> bool:
        """ACK or NACK, after `check`, that nobody waits for. True: let the loop have its turn."""
        self.connection.protocol.acknowledge(answer, message, self.subscription.id)
        self._settled(message)
        return self.connection.sent(ACK_SIZE)

    def _settled(self, message: ReceivedMessage) -> None:
        message.is_settled = True
        if (position := self.subscription.log_position) is not None:
            position.settled(message, is_cumulative=self.subscription.ack == "client")

    def say(self, message: ReceivedMessage, answer: Answer) -> bool:
        """Checks an answer and writes it. True: `breathe` before the next one."""
        self.check(message, answer)
        return self.post(message, answer) or self.connection.is_blocked

    async def breathe(self) -> None:
        """Lets the loop have its turn, and the socket take what waits for it."""
        await asyncio.sleep(0)
        if self.connection.is_blocked:
            await self.connection.drain()

    async def settle(self, message: ReceivedMessage, answer: Answer, timeout: float | None) -> None:
        """ACK or NACK; returns when the broker has confirmed it."""
        require_timeout(timeout)
        self.check(message, answer)
        call = Call()
        number = self.connection.protocol.acknowledge(answer, message, self.subscription.id, waiter=call)
        self._settled(message)
        self.connection.called()
        await self.subscription.link.settled(
            call, number, timeout, f"{answer.command} of message {message.id!r}"
        )

    async def settle_processed(self, message: ReceivedMessage, *, failed: bool) -> None:
        """At the end of `process()`. What cannot be acknowledged comes again: that is counted and logged, not raised."""
        if self.subscription.ack == "auto" or message.is_settled:
            return
        place = self.subscription.destination
        if self.is_stale:
            self.subscription.link.counters["stale-message"] += 1
            if not self.was_stale:
                self.was_stale = True
                text = "message %r of %s was processed, but %s: it will come again"
                log.warning(text, message.id, place, self._why_stale)
            return
        if failed and not self.connection.version.may_nack:
            log.warning(
                "message %r of %s failed; STOMP 1.0 has no NACK, it stays unacknowledged", message.id, place
            )
            return
        answer = NACK if failed else ACK
        if self.say(message, answer):
            await self.breathe()


class Resubscribed:
    """Waits for the RECEIPT of a SUBSCRIBE that no caller waits for."""

    def __init__(self, subscription: Feed) -> None:
        self._subscription = subscription

    def confirmed(self, frame: bytes) -> None:
        log.info("subscribed again to %s", self._subscription.destination)

    def failed(self, frame: bytes, error: StompboxError) -> None:
        if isinstance(error, BrokerError):  # a lost connection is followed by another try
            self._subscription.refused(error)


class LogPosition:
    """Where the reader of a log is: after a lost connection it goes on there, and not where it began.

    Behind the last message that the application took, or at the oldest of those that it has not acknowledged.
    """

    __slots__ = ("_next", "_open")

    def __init__(self) -> None:
        self._next: int | None = None
        self._open: dict[int, None] = {}  # taken, not acknowledged; in order

    def taken(self, message: ReceivedMessage, *, is_done: bool) -> None:
        if (offset := message.offset) is not None:
            self._next = offset + 1
            if not is_done:
                self._open[offset] = None

    def settled(self, message: ReceivedMessage, *, is_cumulative: bool) -> None:
        offset = message.offset
        for each in [each for each in self._open if each <= (offset or 0)] if is_cumulative else [offset]:
            self._open.pop(each or 0, None)

    def headers(self, buffered: Sequence[ReceivedMessage]) -> dict[str, str]:
        """For the next SUBSCRIBE; `buffered` are those that wait for the application, and do not come again."""
        last = buffered[-1].offset if buffered else None
        start = next(iter(self._open), self._next) if last is None else last + 1
        return {} if start is None else {"x-stream-offset": f"offset={start}"}


class Feed:
    """What a Subscription stands on: link.py tells it of connections, protocol.py gives it runs."""

    def __init__(self, link: Link, request: Wanted) -> None:
        self.link = link
        self.request = request
        self.id = request.id or f"s{next(link.numbers)}"
        self._buffer: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._in_turn = 0
        self._turn_began = 0.0
        self._route: SubscriptionRoute | None = None
        self._is_open = False
        self._is_confirmed = False
        self._is_ended = False
        self._error: StompboxError | None = None
        self.log_position = LogPosition() if request.offset is not None else None

    @property
    def destination(self) -> str:
        return self.request.destination

    @property
    def ack(self) -> str:
        return self.request.ack

    @property
    def buffered(self) -> int:
        """How many messages wait for the application."""
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
        except (BrokerError, UsageError):
            self._forget()
            raise
        except BaseException:  # cancelled, or not answered in time: the broker may have made it all the same
            self._forget()
            if self._route is not None:
                self._route.connection.withdraw(self.id)
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
        if self.log_position is not None:
            headers.update(self.log_position.headers(self._buffer))
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
        """Ends the subscription, because it could not be made again."""
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

    async def leave(self, *, is_failing: bool) -> None:
        """The end of a block. `is_failing`: an exception goes through it already, which is what its caller is to see."""
        try:
            await self.unsubscribe()
        except StompboxError as failure:
            if not is_failing:
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
        if not self._buffer or (self._in_turn >= TURN and self._is_turn_over()):
            await self._more()
            if not self._buffer:
                raise StopAsyncIteration
        return self._take()

    def _is_turn_over(self) -> bool:
        """Messages that are done with at once have longer turns, so that more ACKs go in one write."""
        now = asyncio.get_running_loop().time()
        if now - self._turn_began < TURN_SECONDS:
            self._in_turn = 0
            return False
        return True

    def _take(self) -> Message:
        self._in_turn += 1
        message = self._buffer.popleft()
        if self.log_position is not None:
            self.log_position.taken(message, is_done=self.request.ack == "auto")
        self.link.intake.taken(len(message.body) + OVERHEAD)
        return message

    async def _more(self) -> None:
        """Returns when there is a message, or never will be one; raises what ended it."""
        self._in_turn = 0
        if self._buffer:
            await asyncio.sleep(0)
        self._turn_began = asyncio.get_running_loop().time()
        while not self._buffer:
            if self._is_ended:
                if self._error is not None:
                    raise self._error
                return
            if not self._is_open:
                raise UsageError(
                    "not-opened",
                    "this subscription is not open yet: open it, or use `client.subscribe(…) as messages` in a `with` (`async with`)",
                )
            self._arrived.clear()
            await self._arrived.wait()
            self._turn_began = asyncio.get_running_loop().time()

    async def receive_many(self, most: int, timeout: float | None = None) -> list[Message]:
        """At least one message and at most `most`, without waiting for more than one; [] when none came within `timeout` seconds, or
        none will come."""
        require_timeout(timeout)
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise UsageError("bad-argument", f"most is {most!r}; allowed is a number of messages from 1")
        if not self._buffer or (self._in_turn >= TURN and self._is_turn_over()):
            try:
                async with asyncio.timeout(timeout):
                    await self._more()
            except TimeoutError:
                return []
        return [self._take() for _ in range(min(most, len(self._buffer)))]

    def __repr__(self) -> str:
        ended = " ended" if self._is_ended else ""
        return f"<Feed {self.id} to {self.destination} ack={self.ack} buffered={len(self._buffer)}{ended}>"
