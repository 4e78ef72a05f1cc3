"""A client's link to its broker: the connection there is, the one that replaces it, and what must survive between the two.

    NEW --open--> CONNECTING --> OPEN <--> RECONNECTING --too many failures--> CLOSED
                                   \\---------------- close --------------------^

Survive: subscriptions (subscribed again), confirmed sends whose RECEIPT had not come (sent again with the same receipt, or
reported, as Reconnect.resend says), messages of subscriptions with ack="auto" that the application has not taken.
Do not survive: transactions, requests, acknowledgements on their way; their callers get ConnectionLost.

A send that makes the broker close the connection would do so again and again. An ERROR that names its receipt fails that send
alone; after one that names none the sends in flight are sent again once, and fail when the same happens again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections import Counter
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Protocol, TypeAlias

from stompbox.client.connection import BrokerConnection, open_connection
from stompbox.client.intake import Intake
from stompbox.client.options import Options, Reconnect, require_timeout
from stompbox.client.outgoing import recode
from stompbox.client.protocol import Claim
from stompbox.client.refusal import BrokerError
from stompbox.client.url import Target
from stompbox.errors import ConnectionLost, StompboxError, UsageError
from stompbox.stomp.versions import V12, Version

log = logging.getLogger("stompbox.client")


class ClientState(Enum):
    """How far a client is; see the drawing above."""

    NEW = "new"
    CONNECTING = "connecting"
    OPEN = "open"
    RECONNECTING = "reconnecting"
    CLOSING = "closing"
    CLOSED = "closed"


StateListener: TypeAlias = Callable[[ClientState, StompboxError | None], object]


class Subscriber(Protocol):
    """A subscription as the link sees it."""

    def resubscribe(self, connection: BrokerConnection) -> None:
        """Subscribes again, because there is a new connection."""

    def detached(self) -> None:
        """The connection is gone; another may come."""

    def end(self, error: StompboxError | None) -> None:
        """Ends the subscription: no message will come any more."""


class Call:
    """A call that waits for its receipt."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def confirmed(self, frame: bytes) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def failed(self, frame: bytes, error: StompboxError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Answered:
    """What is to happen when a frame's receipt comes, or does not: for those who wait for many of them."""

    __slots__ = ("confirmed", "failed")

    def __init__(
        self, confirmed: Callable[[bytes], None], failed: Callable[[bytes, StompboxError], None]
    ) -> None:
        self.confirmed = confirmed
        self.failed = failed


class Link:
    def __init__(
        self, targets: tuple[Target, ...], options: Options, on_state: StateListener | None = None
    ) -> None:
        self.targets = targets
        self.on_state = on_state
        self._told = ClientState.NEW
        self.options = options
        self.state = ClientState.NEW
        self.connection: BrokerConnection | None = None  # set as long as it is not lost; it may be closing
        self.numbers = count(1)  # receipts, transactions, subscriptions: never the same number twice
        self.counters: Counter[str] = Counter()
        self.intake = Intake(options.buffer, options.buffer_limit)
        self.subscriptions: dict[str, Subscriber] = {}
        self.backlog: dict[int, Claim] = {}  # confirmed sends that wait for a connection
        self.version: Version = V12  # of the connection there is, or was last
        self._contexts: dict[Target, ssl.SSLContext] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: StompboxError | None = None  # why it is closed
        self._failures = 0  # connections lost or not come about, one after another
        self._doubted: set[int] = set()  # sends that were in flight when an ERROR came that named none

    # -- open and close ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self.state is not ClientState.NEW:
            raise UsageError("already-opened", "this client was opened before; connect again for another one")
        self.state = ClientState.CONNECTING
        self._tell_state()
        policy = self.options.reconnect
        try:
            self._attach(await self._dial(policy if policy is not None and policy.initial else None))
        except StompboxError as error:
            self._finish(error)
            raise

    async def close(self) -> None:
        """DISCONNECT, its receipt, the end of the socket; after `close_timeout` the end in any case."""
        if self.state in (ClientState.CLOSING, ClientState.CLOSED):
            return
        self.state = ClientState.CLOSING
        self._tell_state()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for subscription in list(self.subscriptions.values()):
            subscription.end(None)
        try:
            if self.connection is not None:
                await self._say_goodbye(self.connection)
        finally:
            self._finish(ConnectionLost("closed", "this client was closed"))

    async def _say_goodbye(self, connection: BrokerConnection) -> None:
        try:
            if connection.is_open:
                call = Call()
                connection.protocol.disconnect(call)
                connection.called()
                await asyncio.wait(
                    [call.future, connection.closed],
                    timeout=self.options.close_timeout,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                is_confirmed = call.future.done() and call.future.exception() is None
                call.future.cancel()  # nobody waits for what comes of it now
                if not is_confirmed and not connection.protocol.was_refused:
                    # STOMP 1.2, ERROR: the broker MUST close after it
                    log.warning("%s: the broker did not confirm DISCONNECT", connection.target)
            connection.close()
            await asyncio.wait([connection.closed], timeout=self.options.close_timeout)
        finally:
            if not connection.closed.done():
                connection.abort(ConnectionLost("closed", "this client was closed"))
                await asyncio.wait([connection.closed])

    def _finish(self, error: StompboxError) -> None:
        self.state = ClientState.CLOSED
        self._error = error
        for waiter, frame in self.backlog.values():
            waiter.failed(frame, error)
        self.backlog.clear()
        for subscription in list(self.subscriptions.values()):
            subscription.end(error)
        self.subscriptions.clear()
        self._changed.set()
        self._tell_state(error)

    def _tell_state(self, error: StompboxError | None = None) -> None:
        """Tells the application of a new state. `error`: why the connection is lost, or closed for good."""
        if self.on_state is None or self._told is self.state:
            return
        self._told = self.state
        try:
            self.on_state(self.state, error)
        except Exception:  # the listener's fault, and not the connection's
            log.exception("on_state failed at %s", self.state.value)

    # -- the connection ----------------------------------------------------------------------------------------------

    async def connected(self, timeout: float | None = None) -> BrokerConnection:
        """The open connection, as soon as there is one. Raises ConnectionLost when there will be none."""
        limit = self.limit(timeout)
        try:
            async with asyncio.timeout(limit):
                while (connection := self.open_connection()) is None:
                    if self.connection is not None:
                        await asyncio.wait([self.connection.closed])
                    else:
                        await self._changed.wait()
        except TimeoutError:
            raise ConnectionLost(
                "reconnecting", f"no connection to {self._urls()} came back within {limit:g} s"
            ) from None
        return connection

    def open_connection(self) -> BrokerConnection | None:
        """The open connection or None while there is none; raises when there will be none."""
        connection = self.connection
        if connection is not None and connection.is_open:
            return connection
        if self.state in (ClientState.NEW, ClientState.CONNECTING):
            raise UsageError(
                "not-opened",
                "this client is not connected yet: use `async with stompbox.connect(…) as client:`",
            )
        if self.state in (ClientState.CLOSING, ClientState.CLOSED):
            error = self._error or ConnectionLost("closed", "this client is being closed")
            raise ConnectionLost(error.code, error.message) from error
        return None

    def _urls(self) -> str:
        return " or ".join(str(target) for target in self.targets)

    async def _open(self, target: Target) -> BrokerConnection:
        options = self.options.merged(target)
        if target.secure and target not in self._contexts:
            self._contexts[target] = options.context()
        return await open_connection(
            target,
            options,
            self._contexts.get(target),
            numbers=self.numbers,
            counters=self.counters,
            intake=self.intake,
            lost=self._connection_lost,
        )

    async def _dial(self, policy: Reconnect | None) -> BrokerConnection:
        """Round after round over all URLs, until one accepts us or the policy gives up."""
        while True:
            error: StompboxError | None = None
            for target in self.targets:
                try:
                    return await self._open(target)
                except UsageError:
                    raise
                except StompboxError as failure:
                    error = failure
                    log.info("not connected to %s: %s", target, failure.message)
            assert error is not None  # there is at least one target
            self._failures += 1
            if policy is None:
                raise error
            if policy.attempts is not None and self._failures >= policy.attempts:
                text = f"gave up after {self._failures} rounds over {self._urls()}; the last error: {error.message}"
                raise ConnectionLost("reconnect-failed", text) from error
            await asyncio.sleep(policy.delay(self._failures, random.random()))

    def _attach(self, connection: BrokerConnection) -> None:
        """The new connection takes over: what was not confirmed goes out first, then the subscriptions."""
        self.connection = connection
        old, self.version = self.version, connection.version
        self.state = ClientState.OPEN
        self.intake.attach(connection)
        backlog, self.backlog = self.backlog, {}
        for number, (waiter, frame) in sorted(backlog.items()):
            connection.confirm(number, recode(frame, old, connection.version), waiter)
        if backlog:
            self.counters["resent"] += len(backlog)
        for subscription in list(self.subscriptions.values()):
            subscription.resubscribe(connection)
        self._changed.set()
        self._tell_state()

    def _connection_lost(self, connection: BrokerConnection, error: StompboxError) -> None:
        if connection is not self.connection:
            return
        self.connection = None
        self.intake.attach(None)
        policy = self.options.reconnect if self.state is ClientState.OPEN else None
        if (
            policy is not None
            and policy.attempts is not None
            and self._lived(connection, policy) >= policy.attempts
        ):
            policy = None
        self._settle(connection, error, resend=policy is not None and policy.resend)
        for subscription in list(self.subscriptions.values()):
            subscription.detached()
        if policy is None:
            self._finish(error)
            return
        self.counters["connections-lost"] += 1
        self.state = ClientState.RECONNECTING
        self._changed.clear()
        # an ERROR has been told, and closes in STOMP 1.2
        level = logging.INFO if connection.protocol.was_refused else logging.WARNING
        log.log(level, "connection lost, connecting again: %s", error.message)
        self._task = asyncio.get_running_loop().create_task(self._reconnect(policy))
        self._tell_state(error)

    def _lived(self, connection: BrokerConnection, policy: Reconnect) -> int:
        """Failures in a row: a connection that confirmed something, or lived longer than the longest delay, was none."""
        is_long = connection.loop.time() - connection.opened_at > policy.max_delay
        self._failures = 0 if is_long or connection.protocol.has_confirmed else self._failures + 1
        return self._failures

    def _settle(self, connection: BrokerConnection, error: StompboxError, *, resend: bool) -> None:
        """Every call that waited on the lost connection is sent again, or fails."""
        protocol = connection.protocol
        refusal: BrokerError | None = protocol.refusal
        claims, protocol.receipts = protocol.receipts, {}
        requests, protocol.requests = protocol.requests, {}
        for waiter in requests.values():
            waiter.failed(refusal or error)
        for number, (owner, frame) in claims.items():
            if resend and frame and not (refusal is not None and number in self._doubted):
                self.backlog[number] = (owner, frame)
            else:
                owner.failed(frame, refusal or error)
        self._doubted = set(self.backlog) if refusal is not None else set()

    async def _reconnect(self, policy: Reconnect) -> None:
        try:
            await asyncio.sleep(policy.delay(max(0, self._failures - 1), random.random()))
            connection = await self._dial(policy)
        except StompboxError as error:
            log.error("not connected again: %s", error.message)
            self._finish(error)
        except Exception as error:  # a fault of ours must not leave callers waiting; asyncio reports it
            self._finish(ConnectionLost("reconnect-failed", f"connecting again failed: {error!r}"))
            raise
        else:
            log.info("connected again to %s", connection.target)
            self._attach(connection)

    # -- calls -------------------------------------------------------------------------------------------------------

    def limit(self, timeout: float | None) -> float | None:
        """The seconds that a call may take. Raises UsageError for a `timeout` that is none."""
        require_timeout(timeout)
        return self.options.receipt_timeout if timeout is None else timeout

    async def settled(self, call: Call, number: int, timeout: float | None, what: str) -> None:
        """Waits for the receipt. Raises BrokerError for an ERROR, ConnectionLost for a lost connection or a timeout."""
        limit = self.limit(timeout)
        try:
            async with asyncio.timeout(limit):
                await call.future
        except TimeoutError:
            raise self.receipt_timeout(what, limit) from None
        finally:
            if call.future.cancelled() or not call.future.done():
                self.forget(number)

    def receipt_timeout(self, what: str, limit: float | None) -> ConnectionLost:
        why = ""
        if self.intake.is_paused:
            why = (
                f"; nothing is read because {self.intake.size} octets of messages wait for the application: "
                "take them in another task, or send over another client"
            )
        return ConnectionLost("receipt-timeout", f"no receipt for {what} within {limit or 0:g} s{why}")

    def forget(self, number: int) -> None:
        """Forgets a receipt that nobody waits for any more."""
        self.backlog.pop(number, None)
        if self.connection is not None:
            self.connection.protocol.give_up(number)

    def __repr__(self) -> str:
        return f"<Link {self.state.name} {self._urls()} subscriptions={len(self.subscriptions)} backlog={len(self.backlog)}>"
