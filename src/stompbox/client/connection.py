"""One connection to one broker on asyncio: moves octets between the socket and the protocol, and hands on what they mean.

Decided here: when to write (frames are collected and written once per turn of the loop, or as soon as WRITE_SIZE octets are
together), back-pressure of the socket, timers. Not decided here: what comes after a connection is lost (client.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, cast

from stompbox.client.intake import OVERHEAD, Intake
from stompbox.client.options import Options
from stompbox.client.protocol import (
    Answered,
    Broken,
    ClientProtocol,
    Confirmed,
    Connected,
    Event,
    Failed,
    ProtocolState,
    Unexpected,
    Waiter,
)
from stompbox.client.runs import MessageRun
from stompbox.client.url import Target
from stompbox.client.wire import StreamWire, Wire
from stompbox.errors import ConnectionLost, StompboxError, reason_of
from stompbox.stomp.versions import Version

log = logging.getLogger("stompbox.client")

WRITE_SIZE: Final = 64 * 1024  # octets: more in one write gains nothing, less costs system calls
SOCKET_BUFFER: Final = 1024 * 1024  # octets in the transport from which on senders wait


class Deliverable(Protocol):
    """What takes the messages of a subscription."""

    def deliver(self, run: MessageRun) -> None: ...


class BrokerConnection(asyncio.Protocol):
    def __init__(
        self,
        target: Target,
        wire: Wire,
        protocol: ClientProtocol,
        intake: Intake,
        lost: Callable[[BrokerConnection, StompboxError], None],
    ) -> None:
        self.target = target
        self.protocol = protocol
        self.loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self.loop.create_future()
        self.closed: asyncio.Future[None] = self.loop.create_future()
        self.opened_at = 0.0
        self.is_blocked = False  # the socket takes nothing at the moment
        self._wire = wire
        self._intake = intake
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._queued = 0  # octets in the protocol's output
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._error: StompboxError | None = None

    @property
    def is_open(self) -> bool:
        return self.protocol.state is ProtocolState.OPEN

    @property
    def options(self) -> Options:
        """The options with what the URL of this connection adds."""
        return self.protocol.options

    @property
    def version(self) -> Version:
        return self.protocol.version

    @property
    def awaits(self) -> bool:
        return self.protocol.awaits

    # -- out ---------------------------------------------------------------------------------------------------------

    def confirm(self, number: int, frame: bytes, waiter: Waiter, *, again: bool = True) -> None:
        """Sends a frame that carries the header `receipt:<number>`."""
        self.protocol.confirm(number, frame, waiter, again=again)
        self.sent(len(frame))
        if self._intake.is_paused:
            self._intake.regulate()

    def confirm_all(self, frames: Sequence[tuple[int, bytes]], waiter: Waiter) -> None:
        """Sends many frames of one sender, each with the number of its receipt."""
        self.protocol.confirm_all(frames, waiter)
        self.sent(sum([len(frame) for _, frame in frames]))
        if self._intake.is_paused:
            self._intake.regulate()

    def post(self, frame: bytes) -> bool:
        """Sends a frame nobody waits for. True: much has been written, now let the loop have its turn."""
        self.protocol.output.append(frame)
        return self.sent(len(frame))

    def sent(self, size: int = 0) -> bool:
        """To be called after frames were queued in the protocol."""
        self._queued += size
        if self._queued >= WRITE_SIZE:
            self.flush()
            return True
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self.flush)
        return False

    def called(self) -> None:
        """Like `sent`, after a call whose answer somebody awaits."""
        self.sent()
        if self._intake.is_paused:
            self._intake.regulate()

    def withdraw(self, id: str) -> None:
        """Ends a subscription that nobody waits for any more, before the broker has said whether it was made."""
        if self.is_open:
            self.protocol.unsubscribe(id, {}, None)
            self.sent()

    def flush(self) -> None:
        self._is_scheduled = False
        transport = self._transport
        if transport is None or not self._wire.is_open:
            return
        self._queued = 0
        frames = self.protocol.take_output(self.loop.time())
        if frames and not transport.is_closing():
            transport.write(self._wire.wrap(frames))

    async def drain(self) -> None:
        """Returns when the socket takes octets again, or is gone."""
        await self._writable.wait()

    # -- in: called by asyncio ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SOCKET_BUFFER)
        self.protocol.started(self.loop.time())
        if octets := self._wire.start():
            self._transport.write(octets)
        self.protocol.connect()
        self.flush()

    def data_received(self, data: bytes) -> None:
        now = self.loop.time()
        try:
            pieces = self._wire.receive(data)
        except ConnectionLost as error:
            self.abort(error)
            return
        for piece in pieces:
            self._handle(self.protocol.receive(piece, now))
        if self._transport is not None and not self._transport.is_closing():
            if octets := self._wire.reply():
                self._transport.write(octets)
            if self.protocol.output and not self._is_scheduled:
                self.flush()

    def eof_received(self) -> bool:
        return False  # closes our side too

    def pause_writing(self) -> None:
        self.is_blocked = True
        self._writable.clear()

    def resume_writing(self) -> None:
        self.is_blocked = False
        self._writable.set()

    def connection_lost(self, cause: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        error = self._error or self._end(cause)
        self.protocol.state = ProtocolState.CLOSED
        if not self.closed.done():
            self.closed.set_result(None)
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # whoever waits sees it; nobody waiting is no fault of its own
        else:
            self._lost(self, error)

    def _end(self, cause: Exception | None) -> ConnectionLost:
        found = self.protocol.eof()
        words = [
            f"{self.target}: {found.message}"
            if cause is None
            else f"{self.target}: the connection broke: {reason_of(cause)}"
        ]
        if last := self._wire.last_words():
            words.append(last)
        if self.protocol.refusal is not None:
            words.append(f"its last ERROR was: {self.protocol.refusal.message}")
        return ConnectionLost(found.code, "; ".join(words))

    # -- reading and time --------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():  # uvloop minds
            self._transport.pause_reading()
            self.protocol.hold()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self.protocol.release(self.loop.time())
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self.protocol.deadline()
        self._timer = None if due is None or self.closed.done() else self.loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._handle(self.protocol.tick(self.loop.time()))
        self.flush()
        self._arm()

    # -- what it means -----------------------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            kind = type(event)
            if kind is MessageRun:
                self._deliver(cast(MessageRun, event))
            elif kind is Confirmed:
                for waiter, frame in cast(Confirmed, event).claims:
                    waiter.confirmed(frame)
            else:
                self._handle_rare(event)

    def _deliver(self, run: MessageRun) -> None:
        cast(Deliverable, run.route).deliver(run)
        self._intake.added(run.size + OVERHEAD * len(run.messages))

    def _handle_rare(self, event: Event) -> None:
        match event:
            case Failed(claims, error):
                for waiter, frame in claims:
                    waiter.failed(frame, error)
                if not claims:
                    log.warning("%s: ERROR that names no call of this client: %s", self.target, error.message)
                    self._arm()
            case Answered(waiter, message):
                waiter.answered(message)
            case Unexpected(kind, text):
                log.warning(
                    "%s: %s (further ones of kind %s are counted, not logged)", self.target, text, kind
                )
            case Broken(error):
                self.abort(error)
            case Connected():
                self.opened_at = self.loop.time()
                self._arm()
                if not self.opened.done():
                    self.opened.set_result(None)

    def abort(self, error: StompboxError) -> None:
        """Ends the connection at once; `error` is what everybody who waits will see."""
        if self._error is None:
            self._error = (
                type(error)(error.code, f"{self.target}: {error.message}")
                if type(error) is ConnectionLost
                else error
            )
        self.protocol.state = ProtocolState.CLOSED
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Ends the connection after all that was written has gone out."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self.flush()
            if octets := self._wire.goodbye():
                transport.write(octets)
            transport.close()

    def __repr__(self) -> str:
        return f"<Connection {self.target} {self.protocol!r}>"


async def _connect(
    target: Target, options: Options, context: ssl.SSLContext | None, connection: BrokerConnection
) -> None:
    loop = asyncio.get_running_loop()
    if target.is_file:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("this system has no sockets that are files")
        await loop.create_unix_connection(lambda: connection, target.host)
        return
    await loop.create_connection(
        lambda: connection,
        target.host,
        target.port,
        ssl=context if target.secure else None,
        server_hostname=(options.server_name or target.host) if target.secure else None,
    )


async def open_connection(
    target: Target,
    options: Options,
    context: ssl.SSLContext | None,
    *,
    numbers: Iterator[int],
    counters: Counter[str],
    intake: Intake,
    lost: Callable[[BrokerConnection, StompboxError], None],
) -> BrokerConnection:
    """A connection that the broker has accepted. Raises BrokerError when it refused, ConnectionLost when there is none."""
    protocol = ClientProtocol(options, numbers, counters)
    wire = _wire(target, options)
    connection = BrokerConnection(target, wire, protocol, intake, lost)
    try:
        async with asyncio.timeout(options.connect_timeout):
            await _connect(target, options, context, connection)
            await connection.opened
    except TimeoutError:
        text = f"{target}: no answer within the connect_timeout of {options.connect_timeout:g} s"
        raise await _given_up(connection, ConnectionLost("connect-timeout", text)) from None
    except ssl.SSLError as error:
        raise await _given_up(
            connection, ConnectionLost("tls-failed", f"{target}: TLS: {_tls_reason(error)}")
        ) from error
    except (OSError, UnicodeError) as error:  # UnicodeError: a host name that is none
        raise await _given_up(
            connection, ConnectionLost("connect-failed", f"no broker answers at {target}: {reason_of(error)}")
        ) from error
    except BaseException as error:  # refused, or our caller was cancelled
        await _given_up(connection, error)
        raise
    if not connection.is_open:  # accepted and lost in the same breath
        raise await _given_up(
            connection,
            ConnectionLost("connection-lost", f"{target}: the broker accepted the connection and closed it"),
        )
    return connection


def _tls_reason(error: ssl.SSLError) -> str:
    """OpenSSL's words, without the place in its sources."""
    words = [(error.reason or "").replace("_", " ").lower(), getattr(error, "verify_message", "")]
    return ": ".join([word for word in words if word]) or reason_of(error)


async def _given_up(connection: BrokerConnection, error: BaseException) -> BaseException:
    """Leaves nothing open behind a connection that did not come about."""
    if connection._transport is not None:
        connection._transport.abort()
        if not connection.closed.done():
            await asyncio.wait([connection.closed])
    return error


def _wire(target: Target, options: Options) -> Wire:
    if not target.websocket:
        return StreamWire()
    # only for those who need it: it costs 20 ms to import
    from stompbox.client.websocket import WebSocketWire

    return WebSocketWire(target, options.versions, options.limits)
