"""Listeners and sockets: TCP and TLS, with STOMP and STOMP over WebSocket on one port, told apart by the first bytes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from stompbox.config import Listener
from stompbox.errors import ConfigError, FrameError, IllegalFrame, PeerError
from stompbox.server import proxy
from stompbox.server.connection import Connection
from stompbox.server.faults import guarded
from stompbox.server.keystores import load_key_store

if TYPE_CHECKING:
    from stompbox.server.broker import Broker
    from stompbox.server.websocket import WebSocket

TLS_HELLO = b"\x16\x03"  # how a TLS client begins (RFC 8446, 5.1: handshake, version 3.x)
LAST_WORDS = 10.0  # seconds in which the disk must have what a peer waits for that says no more itself
LINGER = 1.0  # seconds in which the peer may read what was last said (STOMP 1.2, Connection Lingering)


class Socket(asyncio.Protocol):
    """One accepted socket. Is the transport of its Connection, or of the WebSocket in between."""

    def __init__(self, broker: Broker, listener: Listener) -> None:
        self.broker = broker
        self.listener = listener
        self.is_clogged = False
        self._closing = False
        self._is_half_closed = False
        self._receiver: Connection | WebSocket | None = None
        self._first = b""
        self._awaits_proxy = listener.options.proxy_protocol_enabled

    @guarded
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            with suppress(OSError):  # some systems say so when the peer is gone already; it is no fault of ours
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # With no room at all in its buffer a transport writes at once, and tells when the system has taken everything. That of TLS
        # would never tell with 0: it pauses at its limit, a plain one beyond
        self._transport.set_write_buffer_limits(high=1 if self.listener.is_tls else 0, low=0)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if name else "local"
        self.broker.sockets.add(self)
        self._deadline = self.broker.loop.call_later(self.listener.options.handshake_timeout / 1000, self._silent)

    def _silent(self) -> None:
        """Nothing came that tells what this is; a Connection has a deadline of its own."""
        if self._receiver is None:
            self._become_stomp(b"")

    @guarded
    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is not None:
            if not self._closing:
                receiver.receive(data)
            return
        self._first += data
        if self._awaits_proxy and not self._introduced():
            return
        if self._first.startswith(TLS_HELLO) and not self.listener.is_tls:
            text = f"a TLS client on {self.listener}, which speaks without TLS; give it an ssl:// listener, or the client a tcp URL"
            self._refuse(IllegalFrame("tls-not-spoken", text, closes=True))
            return
        if b"GET ".startswith(self._first[:4]) and len(self._first) < 4:
            return
        first, self._first = self._first, b""
        self._deadline.cancel()
        if first.startswith(b"GET "):
            from stompbox.server.websocket import WebSocket  # most brokers start without one

            self._receiver = WebSocket(self.broker, self.listener, self, self.peer)
            self._receiver.receive(first)
        else:
            self._become_stomp(first)

    def _introduced(self) -> bool:
        """Whether the balancer has said all of whose connection this is."""
        try:
            found = proxy.read(self._first)
        except FrameError as error:
            self._refuse(error)
            return False
        except Exception as error:
            self.broker.faults.drop(self, "a PROXY header was parsed", error)
            return False
        if found is None:
            return False
        self._awaits_proxy = False
        self.peer, self._first = found[0] or self.peer, self._first[found[1] :]
        return bool(self._first)

    def _refuse(self, error: PeerError) -> None:
        """Of somebody who is no STOMP client."""
        self._become_stomp(b"")
        assert isinstance(self._receiver, Connection)
        self._receiver.refuse(error)
        self._receiver.write_out()
        self.broker.flush()

    def _become_stomp(self, first: bytes) -> None:
        self._receiver = Connection(self.broker, self.listener, self, self.peer)
        if first:
            self._receiver.receive(first)

    def pause_writing(self) -> None:
        self.is_clogged = True

    @guarded
    def resume_writing(self) -> None:
        self.is_clogged = False
        if self._receiver is not None:
            self._receiver.drained()

    @guarded
    def eof_received(self) -> bool:
        """The peer says no more, and may still read (`nc -N`): what waits for the disk is said first. Else the transport closes."""
        self._is_half_closed = True
        receiver = self._receiver
        if self._closing or not isinstance(receiver, Connection) or not self._transport.can_write_eof():
            return False
        if not receiver.says_its_last():
            return False
        self._deadline.cancel()
        self._deadline = self.broker.loop.call_later(LAST_WORDS, self._transport.close)
        return True

    @guarded
    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self.broker.sockets.discard(self)
        if self._receiver is not None:
            self._receiver.lost()

    # The transport of a Connection

    @property
    def certificate_name(self) -> str:
        certificate = self._transport.get_extra_info("peercert")  # empty unless it was verified
        parts = [part for name in (certificate or {}).get("subject", ()) for part in name]
        return next((value for key, value in parts if key == "commonName"), "")

    def write(self, data: bytes) -> None:
        if not (self.broker.has_failed or self._transport.is_closing()):
            self._transport.write(data)

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Half-closes where TCP can, reads and drops what comes, and closes when the peer does, or after LINGER."""
        if self._closing:
            return
        self._closing = True
        if self._is_half_closed:
            self._deadline.cancel()
            self._transport.close()
            return
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()
                self._transport.resume_reading()
        except OSError:  # the peer is gone
            self._transport.abort()
            return
        self._deadline.cancel()
        self._deadline = self.broker.loop.call_later(LINGER, self._close_now)

    def _close_now(self) -> None:
        self._transport.close()
        self._deadline = self.broker.loop.call_later(LINGER, self._transport.abort)

    def abort(self) -> None:
        self._transport.abort()


class Door:
    """What is listened on, and how those who come are received: both may change while it is open."""

    def __init__(self, broker: Broker, listener: Listener) -> None:
        """Raises ConfigError for certificates or a transformer that cannot be loaded."""
        self.broker = broker
        self.listener = listener
        self.context = tls_context(listener) if listener.is_tls else None
        broker.transform_of(listener.options)

    def change(self, listener: Listener) -> None:
        """For those who come from now on; the files of certificates are read again. When it raises ConfigError nothing has changed."""
        self.broker.transform_of(listener.options)
        if self.context is not None:
            tls_context(listener)
            load_certificates(self.context, listener)
        self.listener = listener

    def receive(self) -> Socket:
        return Socket(self.broker, self.listener)


def tls_context(listener: Listener) -> ssl.SSLContext:
    """The server side of TLS for a listener. Raises ConfigError that names the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificates(context, listener)
    return context


def load_certificates(context: ssl.SSLContext, listener: Listener) -> None:
    options = listener.options
    if not options.key_store_path:
        raise ConfigError("config-value", f"{listener}: ssl:// needs keyStorePath, a file with certificate chain and key")
    try:
        load_key_store(context, options)
        if options.trust_store_path:
            context.load_verify_locations(options.trust_store_path)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError("config-value", f"{listener}: keyStorePath {options.key_store_path!r} cannot be used: {error}") from None
    context.verify_mode = ssl.CERT_REQUIRED if options.need_client_auth else ssl.CERT_NONE


async def listen(broker: Broker, listener: Listener) -> asyncio.Server:
    """Starts to accept. Raises ConfigError when the address cannot be listened on."""
    door = Door(broker, listener)
    try:
        server = await broker.loop.create_server(
            door.receive, listener.host, listener.port, ssl=door.context, backlog=1024, reuse_address=True
        )
    except OSError as error:
        raise ConfigError("cannot-listen", f"cannot listen on {listener}: {error.strerror or error}") from None
    broker.doors.append(door)
    return server
