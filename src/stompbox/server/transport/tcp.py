"""Listeners and sockets: TCP and TLS, with STOMP and STOMP over WebSocket on one port, told apart by the first bytes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from importlib import import_module
from struct import Struct
from sys import intern
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from stompbox.config import Listener
from stompbox.errors import ConfigError, FrameError, IllegalFrame, PeerError, Refused, reason_of
from stompbox.server import systemd
from stompbox.server.faults import guarded
from stompbox.server.sockets import Reader
from stompbox.server.transport import descriptors, proxy, unixsocket
from stompbox.server.transport.admission import Admission, no_files
from stompbox.server.transport.deadlines import Deadlines
from stompbox.server.transport.tls import tls_context
from stompbox.server.transport.tlstransport import TlsTransport
from stompbox.server.turns import FEW

if TYPE_CHECKING:
    from stompbox.errors import StompboxError
    from stompbox.server.broker import Broker
    from stompbox.server.transport.deadlines import Lane
    from stompbox.server.transport.host import Behind, Host
    from stompbox.server.transport.websocket import WebSocket

# How a request of HTTP begins (RFC 9110, 9.3, RFC 5789; and the preface of HTTP/2). CONNECT is STOMP's word, too, and read as that
HTTP = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"TRACE ", b"PATCH ", b"PRI ")
TLS_HELLO = b"\x16\x03"  # how a TLS client begins (RFC 8446, 5.1: handshake, version 3.x)
LAST_HEARD = Struct("52xII")  # struct tcp_info of Linux: tcpi_last_data_recv and tcpi_last_ack_recv, ms
CLOSED = b"\x07"  # the first octet of it, tcpi_state, of a connection that is no more: TCP_CLOSE
PROBES = 127  # unanswered ones after which the system gives up by itself; the most that Linux takes
BACKLOG = 1024  # connections that the system has and that were not accepted yet
# seconds in which the disk must have what a peer waits for that says no more itself, and in which its system must take it then
LAST_WORDS = 10.0
LINGER = 1.0  # seconds in which the peer may read what was last said (STOMP 1.2, Connection Lingering)
DROPPED = 16 << 20  # octets that are read and dropped meanwhile; then nothing is read any more
# what asking the system of a socket raises where it has no such thing, or the socket is closed (uvloop: ValueError)
UNKNOWN = (AttributeError, OSError, ValueError)


class Socket(asyncio.Protocol):
    """One accepted socket. Is the transport of its client's end (host.py), or of the WebSocket in between.

    From here on it has `handshakeTimeout` for all that comes before its login: TLS, PROXY header, WebSocket and CONNECT.
    """

    __slots__ = (
        "__weakref__", "_acceptor", "_awaits_proxy", "_closing", "_deadline", "_dropped", "_first", "_is_half_closed", "_is_met_soon",
        "_is_over", "_reader", "_receiver", "_transport", "broker", "is_clogged", "listener", "network", "peer", "port",
    )  # fmt: skip

    def __init__(self, broker: Host, acceptor: Acceptor) -> None:
        self.broker = broker
        self.listener = acceptor.listener
        self._acceptor = acceptor
        self.is_clogged = False
        self.peer = "local"
        self.network = ""
        self.port = 0
        self._closing = False
        self._dropped = 0  # octets that came meanwhile
        self._is_half_closed = False
        self._is_over = False  # whoever stood behind it knows that its peer is gone
        self._receiver: Behind | None = None
        self._first = b""
        self._is_met_soon = False
        self._awaits_proxy = self.listener.options.proxy_protocol_enabled

    @property
    def place(self) -> None:
        """The process that has it is this one."""

    @guarded
    def accepted(self, transport: asyncio.Transport, reader: Reader) -> None:
        """The first that is known of it; with TLS the hand-shake is still to come."""
        self._transport = transport
        self._reader = reader
        if isinstance(self.broker.loop, asyncio.BaseEventLoop):
            _send_at_once(transport)
        name = transport.get_extra_info("peername")
        # that of a file's socket is a text, which the client chooses
        self.peer = intern(str(name[0])) if name and isinstance(name, tuple) else "local"
        self.port = int(name[1]) if name and isinstance(name, tuple) else 0
        self.broker.sockets.add(self)
        options = self.listener.options
        self._deadline: Lane | None = self._acceptor.deadlines.within(
            options.handshake_timeout / 1000, self, self._late
        )
        descriptors.SOCKETS.add(self)
        beyond = len(descriptors.SOCKETS) - self._acceptor.admission.most_sockets
        if beyond > min(descriptors.LINGERING, self._acceptor.admission.most_sockets):
            self._turn_away(no_files())
            return
        self._acceptor.admission.arrive(self, options, is_crowded=beyond > 0)
        if not self._awaits_proxy:
            self._is_located()

    @guarded
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins to read from the socket, or the hand-shake of TLS."""
        if not self.listener.is_tls:
            raw = cast(asyncio.Transport, transport)
            self.accepted(raw, self.broker.turns.sockets.reads(raw, self))
        elif self._closing:
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = cast(asyncio.Transport, transport)
        self._limit_buffer()

    def _limit_buffer(self) -> None:
        # With no room at all in its buffer a transport writes at once, and tells when the system has taken everything
        self._transport.set_write_buffer_limits(high=0, low=0)

    def _is_located(self) -> bool:
        """Whether its address may have one connection more."""
        try:
            self._acceptor.admission.locate(self, self.peer, self.listener.options)
        except Refused as error:
            self.dismiss(error)
            return False
        return True

    def _late(self) -> None:
        timeout = self.listener.options.handshake_timeout
        self.dismiss(
            IllegalFrame(
                "handshake-timeout", f"no CONNECT within {timeout} ms (handshakeTimeout)", closes=True
            )
        )

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None or self._closing or self.broker.has_failed:
            self._received_first(data)
            return
        try:
            receiver.receive(data)
        except Exception as error:
            self.broker.faults.stop(f"data received of a client at {self.peer}", error)

    @guarded
    def _received_first(self, data: bytes) -> None:
        """What comes while nobody knows what the peer speaks, or when nobody obeys it any more."""
        if self._closing:
            self._drop(len(data))
            return
        self._first += data
        if self._awaits_proxy and not self._introduced():
            return
        if self._first.startswith(TLS_HELLO) and not self.listener.is_tls:
            text = f"a TLS client on {self.listener}, which speaks without TLS; give it an ssl:// listener, or the client a tcp URL"
            self.dismiss(IllegalFrame("tls-not-spoken", text, closes=True))
            return
        if any(len(self._first) < len(word) and word.startswith(self._first) for word in HTTP):
            return
        if not self._is_met_soon:
            self._is_met_soon = True
            self.broker.turns.few(self._meet)
            if self._is_met_soon:  # there are many just now: no more is read of it until then
                self.pause_reading()

    @guarded
    def _meet(self) -> None:
        """Makes what stands behind the socket, as it is known what the peer speaks, and gives it what has come."""
        self._is_met_soon = False
        if self._closing or self._receiver is not None:
            return
        first = self._first
        if first.startswith(HTTP):
            websocket = self._acceptor.library.websocket
            if websocket is None:
                self._await_library()
                return
            self._receiver = websocket(self.broker, self.listener, self, self.peer)
        else:
            self._receiver = self.broker.client_of(self.listener, self, self.peer)
        self._first = b""
        self.resume_reading()
        self._receiver.receive(first)

    def _await_library(self) -> None:
        """Reads no further until WebSocket is there; what has come waits."""
        self.pause_reading()
        library = self._acceptor.library
        if self not in library.waiting:
            library.load(self)

    @guarded
    def library_loaded(self) -> None:
        """There may be many who have waited for it."""
        if not self._closing:
            self._is_met_soon = True
            self.broker.turns.few(self._meet)

    def _introduced(self) -> bool:
        """Whether the balancer has said all of whose connection this is."""
        try:
            found = proxy.read(self._first)
        except FrameError as error:
            self.dismiss(error)
            return False
        except Exception as error:
            self.broker.faults.drop(self, "a PROXY header was parsed", error)
            return False
        if found is None:
            return False
        self._awaits_proxy = False
        if found[0]:  # the port that is known is the balancer's
            self.peer, self.port = found[0], 0
        self._first = self._first[found[1] :]
        return self._is_located() and bool(self._first)

    def dismiss(self, error: StompboxError) -> None:
        """Closes a socket that is to go: told in an ERROR, unless it has not come so far that it could read one, or reads no more."""
        if self._is_over:
            self._transport.abort()
            return
        if self._receiver is None and self._is_readable:
            self._receiver = self.broker.client_of(self.listener, self, self.peer)
        if self._receiver is None or not self._receiver.dismiss(error):
            self._turn_away(error)

    def _turn_away(self, error: StompboxError) -> None:
        """Closes at once; the log alone is told why."""
        self.broker.refusals.tell(f"connection from {self.peer}", error, closes=True)
        self._closing = True
        self._transport.abort()

    def enter(self, user: str) -> None:
        """Logs in. Raises Refused where the listener has enough of them."""
        if self not in self.broker.sockets:
            # gone while its login was verified: what it said is obeyed, and it takes no room
            return
        self._acceptor.admission.enter(self, self.listener.options)
        self._reader.enter(user or self.peer)
        self._in_time()

    def _in_time(self) -> None:
        """What it had a deadline for has come."""
        if self._deadline is not None:
            self._deadline.leave(self)
            self._deadline = None

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
        if not self._transport.can_write_eof():  # TLS closes, once the system has taken what was written
            if not self._closing:
                self._in_time()
                self._deadline = self._acceptor.deadlines.within(LAST_WORDS, self, self._reader.abort)
            return False
        if not self._closing and receiver is not None and receiver.says_its_last():
            self._in_time()
            self._deadline = self._acceptor.deadlines.within(LAST_WORDS, self, self.finish)
            return True
        if not self._closing and receiver is not None:
            # it gets nothing more, however long the socket waits for its turn
            self._leave()
        self.broker.turns.few(self.finish)
        return True

    @guarded
    def connection_lost(self, error: Exception | None) -> None:
        if not self._is_readable and not self._closing:
            text = f"the TLS hand-shake failed: {str(error or 'the peer has gone')[:200]!r}"
            self.broker.refusals.tell(
                f"connection from {self.peer}", PeerError("tls-handshake-failed", text), closes=True
            )
        self._closing = True
        self._acceptor.admission.gone(self)
        self.broker.sockets.discard(self)
        descriptors.SOCKETS.discard(self)
        self._reader.end()
        self._leave()

    def _leave(self) -> None:
        """Whatever stands behind the socket learns that its peer is gone, once; nobody is waited for any more."""
        self._in_time()
        receiver, self._receiver = self._receiver, None
        self._is_over = True
        if receiver is not None:
            receiver.lost()

    # The transport of a client's end

    @property
    def certificate_name(self) -> str:
        certificate = self._transport.get_extra_info("peercert")  # empty unless it was verified
        parts = [part for name in (certificate or {}).get("subject", ()) for part in name]
        return next((value for key, value in parts if key == "commonName"), "")

    @property
    def unread(self) -> int:
        """How many octets wait to be given to who is behind the socket: it is given all at once, but for very small records of TLS."""
        transport = self._transport
        return transport.unread if isinstance(transport, TlsTransport) else 0

    @property
    def unsent(self) -> int:
        """Octets that were written and that the system has not taken."""
        return self._transport.get_write_buffer_size()

    @property
    def silence(self) -> float | None:
        heard = self._last_heard()
        return None if heard is None else heard[0]

    @property
    def absence(self) -> float | None:
        heard = self._last_heard()
        return None if heard is None else min(heard)

    def _last_heard(self) -> tuple[float, float] | None:
        raw = self._transport.get_extra_info("socket")
        try:
            # tcp(7); Linux has it
            info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_HEARD.size)
        except UNKNOWN:
            return None
        data, answer = LAST_HEARD.unpack(info)
        return data / 1000, answer / 1000

    @property
    def is_reset(self) -> bool:
        raw = self._transport.get_extra_info("socket")
        try:
            return bool(raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == CLOSED)
        except UNKNOWN:
            return False

    def probe(self, seconds: int) -> None:
        raw = self._transport.get_extra_info("socket")
        with suppress(*UNKNOWN):
            for option, value in (
                (socket.TCP_KEEPIDLE, seconds),
                (socket.TCP_KEEPINTVL, seconds),
                (socket.TCP_KEEPCNT, PROBES),
            ):
                raw.setsockopt(socket.IPPROTO_TCP, option, value)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # RFC 9293, 3.8.4

    def write(self, data: bytes) -> None:
        if not (self.broker.has_failed or self._transport.is_closing()):
            self._transport.write(data)

    def pause_reading(self) -> None:
        if self._is_deciphered:
            self._transport.pause_reading()
        else:
            self._reader.pause_reading()

    def resume_reading(self) -> None:
        if self._is_deciphered:
            self._transport.resume_reading()
        else:
            self._reader.resume_reading()

    @property
    def _is_readable(self) -> bool:
        """The hand-shake of TLS is done."""
        return not self.listener.is_tls or self._is_deciphered

    @property
    def _is_deciphered(self) -> bool:
        """What was read comes by way of TLS."""
        return isinstance(self._transport, TlsTransport)

    def close(self) -> None:
        """Half-closes where TCP can, reads and drops what comes, and closes when the peer does, or after LINGER."""
        if self._closing:
            return
        self._closing = True
        self._in_time()
        self._acceptor.admission.linger(self)
        if self._is_half_closed:
            self.finish()
            return
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            # what is not read would reset the connection at its close, and what was last said would be lost
            self.resume_reading()
        except OSError:  # the peer is gone
            self._transport.abort()
            return
        self._deadline = self._acceptor.deadlines.within(LINGER, self, self._close_now)

    def _drop(self, size: int) -> None:
        """The system may have megabytes of it, and gives them all in one turn, if nobody stops it."""
        self._dropped += size
        self.pause_reading()
        if self._dropped <= DROPPED:
            self.broker.turns.few(self.resume_reading)

    def _close_now(self) -> None:
        self._close_within(LINGER)

    def _close_within(self, seconds: float) -> None:
        """Closes when the system has taken what was written, and has had so long for it: who reads nothing of it would keep the socket, and
        all that waits there, for ever."""
        self._in_time()
        if self in self.broker.sockets:  # it has not gone meanwhile
            self._transport.close()
            self._deadline = self._acceptor.deadlines.within(seconds, self, self._transport.abort)

    def abort(self) -> None:
        self._transport.abort()

    def finish(self) -> None:
        """Closes, when the system has taken what was written, or after LAST_WORDS."""
        self._close_within(LAST_WORDS)


def _send_at_once(transport: asyncio.Transport) -> None:
    """What is written does not wait for more. uvloop has said so of each socket; asyncio does not of one that another process opened."""
    raw = transport.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            # some systems say so when the peer is gone already; it is no fault of ours
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class WebSocketLibrary:
    """What speaks WebSocket. Most brokers start and end without it; to load it takes tens of ms, so a thread does, and who asks first
    waits for it. Nobody else does."""

    def __init__(self, broker: Host) -> None:
        self.broker = broker
        self.websocket: type[WebSocket] | None = None  # once it is there
        self.waiting: dict[Socket, None] = {}

    def load(self, waiter: Socket) -> None:
        """Its `library_loaded` is called when it is there."""
        self.waiting[waiter] = None
        if len(self.waiting) == 1:
            self.broker.spawn(self._load())

    async def _load(self) -> None:
        self.websocket = await self.broker.loop.run_in_executor(None, _websocket)
        waiting, self.waiting = self.waiting, {}
        for one in waiting:
            one.library_loaded()


def _websocket() -> type[WebSocket]:
    import_module("websockets.extensions.permessage_deflate")  # which it loads when it is first offered
    from stompbox.server.transport.websocket import WebSocket

    return WebSocket


class Acceptor:
    """What is listened on, and how those who come are received: both may change while it is open."""

    def __init__(self, broker: Host, listener: Listener, admission: Admission | None = None) -> None:
        """Raises ConfigError for certificates or a transformer that cannot be loaded."""
        self.broker = broker
        self.admission = admission or Admission()
        self.deadlines = Deadlines(broker.loop, broker.turns.few)
        self.library = WebSocketLibrary(broker)
        self.listener, self.context = self.prepare(listener)
        self.configured = str(listener)
        self.file: unixsocket.BoundFile | None = None  # the file that it has made

    def prepare(self, listener: Listener) -> tuple[Listener, ssl.SSLContext | None]:
        """What `change` needs; the files of certificates are read again. Raises ConfigError, and changes nothing."""
        self.broker.transform_of(listener.options)
        return listener, tls_context(listener) if listener.is_tls else None

    def change(self, listener: Listener, context: ssl.SSLContext | None) -> None:
        """Accepts those who come from now on with these options and certificates."""
        self.listener, self.context = replace(listener, port=self.listener.port), context

    def opened(self, port: int) -> None:
        """Takes over the port that is listened on, which the system may have chosen: it is shown from now on."""
        self.listener = replace(self.listener, port=port)

    def close(self) -> None:
        """Nobody listens there any more."""
        if self.file is not None:
            self.file.remove()
            self.file = None

    def receive(self) -> asyncio.BaseProtocol:
        """The protocol of who has just connected."""
        accepted = self.newcomer()
        if self.context is None:
            return accepted
        return TlsTransport(accepted, self.context, self.broker.loop, self.broker.turns)

    def newcomer(self) -> Socket:
        return Socket(self.broker, self)


async def listen(broker: Broker, listener: Listener, acceptor: Acceptor | None = None) -> asyncio.Server:
    """Starts to accept. Raises ConfigError when the address cannot be listened on."""
    acceptor = acceptor or Acceptor(broker, listener)
    try:
        server = await _serve(broker, acceptor)
    except OSError as error:
        raise cannot_listen(listener, error) from None
    if not listener.is_unix:
        acceptor.opened(server.sockets[0].getsockname()[1])
    broker.acceptors.append(acceptor)
    return cast(asyncio.Server, server)


def cannot_listen(listener: Listener, error: OSError) -> ConfigError:
    """What an operator is told of an address that is taken, or is none of this machine's."""
    text = f"cannot listen on {listener}: {reason_of(error)}; --listen chooses another address"
    return ConfigError("cannot-listen", text)


async def _serve(broker: Broker, acceptor: Acceptor) -> Any:  # its sockets are a tuple, uvloop's a list
    """At the socket that the service manager has opened there, else at its own."""
    listener, loop = acceptor.listener, broker.loop
    bound = ready_made(acceptor)
    if bound is not None:
        return await accept(loop, acceptor, bound)
    return _with_backlog(
        await loop.create_server(
            acceptor.receive, listener.host, listener.port, backlog=_at_once(loop), reuse_address=True
        )
    )


def ready_made(acceptor: Acceptor) -> socket.socket | None:
    """The socket that the service manager has opened for a listener, or the one that is a file; None: it is to be opened. Raises OSError,
    or ConfigError."""
    listener = acceptor.listener
    bound = systemd.inherited().claim(listener.host, listener.port)
    if bound is None and listener.is_unix:
        bound, acceptor.file = unixsocket.listening(listener.host, listener.options, BACKLOG)
    return bound


async def accept(loop: asyncio.AbstractEventLoop, acceptor: Acceptor, bound: socket.socket) -> Any:
    """The server of a socket that listens."""
    most = _at_once(loop)
    if acceptor.listener.is_unix:
        server = await loop.create_unix_server(acceptor.receive, sock=bound, backlog=most, **unixsocket.KEPT)
    else:
        server = await loop.create_server(acceptor.receive, sock=bound, backlog=most)
    return _with_backlog(server)


def _at_once(loop: asyncio.AbstractEventLoop) -> int:
    """Connections that one turn of the loop accepts at the most: asyncio takes all that its backlog has, at about 30 us each, and uvloop
    takes one."""
    return FEW if isinstance(loop, asyncio.BaseEventLoop) else BACKLOG


def _with_backlog(server: Any) -> Any:
    """Has the system keep BACKLOG of those who wait, whatever the loop has asked it for."""
    if isinstance(server, asyncio.base_events.Server):
        for listening in server.sockets:
            with listening.dup() as same:
                same.listen(BACKLOG)
    return server
