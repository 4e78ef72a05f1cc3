"""STOMP over WebSocket (RFC 6455): the hand-shake, and frames in messages of the kind that the client sends.

A message from the client may hold any part of the stream; what goes out is whole frames (large ones in pieces), several in one message
as long as they are small, as text where they are UTF-8 and the client speaks text, else as binary.
"""

from __future__ import annotations

import http
import logging
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from stompbox.config import Listener, host_of, is_loopback, is_own_host
from stompbox.errors import PeerError, Refused, StompboxError
from stompbox.server.connection import Connection

if TYPE_CHECKING:
    from stompbox.server.broker import Broker
    from stompbox.server.tcp import Socket

log = logging.getLogger("stompbox.connection")
_library = logging.getLogger("stompbox.websockets")  # what it says of each connection is said here
_library.setLevel(logging.WARNING)
STATUS: Final = MappingProxyType(
    {
        "no-such-path": http.HTTPStatus.NOT_FOUND,
        "origin-refused": http.HTTPStatus.FORBIDDEN,
        "host-not-allowed": http.HTTPStatus.MISDIRECTED_REQUEST,
    }
)
MESSAGE: Final = 8192  # octets of a message with several frames: what the strictest clients take (Tomcat; Jetty 64 KiB, Python 1 MiB)
_CONTENT_LENGTH: Final = b"\ncontent-length:"
_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
SUBPROTOCOLS = [Subprotocol(name) for name in ("v12.stomp", "v11.stomp", "v10.stomp")]


class WebSocket:
    """Between a socket and its Connection; a transport for the one, a receiver for the other."""

    def __init__(self, broker: Broker, listener: Listener, socket: Socket, peer: str) -> None:
        self.broker = broker
        self.listener = listener
        self.socket = socket
        self.peer = peer
        options = listener.options
        extensions = None
        if options.web_socket_compression_supported:
            from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory

            extensions = [ServerPerMessageDeflateFactory()]
        self.protocol = ServerProtocol(
            subprotocols=SUBPROTOCOLS,
            select_subprotocol=_select,
            extensions=extensions,
            max_size=options.web_socket_max_frame_payload_length,
            logger=_library,
        )
        self.connection: Connection | None = None
        self.speaks_text = True
        self._parts: list[bytes] = []
        self._is_refused = False
        self._deadline = broker.loop.call_later(options.handshake_timeout / 1000, self._late)

    def _late(self) -> None:
        if self.connection is None:
            self.socket.abort()

    # The receiver of a socket

    def receive(self, data: bytes) -> None:
        try:
            frames = self._parsed(data)
        except Exception as error:
            self.broker.faults.drop(self.socket, "what a WebSocket brought was parsed", error)
            return
        for frame in frames:
            self._frame(frame)
        fault = self.protocol.handshake_exc
        if self.connection is None and fault is not None and not self._is_refused:  # nothing that HTTP could answer to
            self._refuse(PeerError("bad-handshake", f"the WebSocket hand-shake is no HTTP request: {str(fault)[:200]!r}"))
            self.socket.write(_BAD_REQUEST)
        self._send()
        if self.protocol.close_expected():
            self.socket.close()

    def drained(self) -> None:
        if self.connection is not None:
            self.connection.drained()

    def lost(self) -> None:
        self._deadline.cancel()
        if self.connection is not None:
            self.connection.lost()

    def _parsed(self, data: bytes) -> list[Frame]:
        """Frames of WebSocket, after the hand-shake is answered. A fault in here has changed nothing but this socket."""
        self.protocol.receive_data(data)
        events = self.protocol.events_received()
        for event in events:
            if isinstance(event, Request):
                self._accept(event)
        return [event for event in events if isinstance(event, Frame)]

    def _accept(self, request: Request) -> None:
        error = self._fault(request)
        response = self.protocol.accept(request) if error is None else self.protocol.reject(STATUS[error.code], f"{error.message}\n")
        if error is None and response.status_code != http.HTTPStatus.SWITCHING_PROTOCOLS:
            error = PeerError("bad-handshake", f"no WebSocket hand-shake: {str(self.protocol.handshake_exc)[:200]!r}")
        if error is not None:
            self._refuse(error)
        self.protocol.send_response(response)
        if self.protocol.state is State.OPEN:
            self._deadline.cancel()
            self.connection = Connection(self.broker, self.listener, self, self.peer)

    def _fault(self, request: Request) -> StompboxError | None:
        path, paths = urlsplit(request.path).path, self.listener.options.web_socket_path
        origins = request.headers.get_all("Origin")
        if path not in paths:
            return PeerError("no-such-path", f"nothing is at {path[:80]!r}; STOMP over WebSocket is at {', '.join(paths)}")
        if not self._is_asked_by_a_name_of_its_own(request):
            shown = ", ".join(request.headers.get_all("Host"))[:80]
            text = f"the Host header is {shown!r}; without users this listener answers to its own address and localhost alone"
            return Refused("host-not-allowed", text)
        if origins and not self._may_come_from(origins[0], request.headers.get("Host", "")):
            return Refused("origin-refused", f"the Origin {origins[0][:80]!r} is not allowed here (listener option allowedOrigins)")
        return None

    def _is_asked_by_a_name_of_its_own(self, request: Request) -> bool:
        """Without users a page must not reach this machine by a name that was made to point here (DNS rebinding)."""
        if len(self.broker.users) or self.listener.options.allowed_origins is not None:
            return True
        hosts = request.headers.get_all("Host")
        host = host_of(hosts[0]) if len(hosts) == 1 else None
        return host is not None and is_own_host(host, self.listener.host)

    def _refuse(self, error: StompboxError) -> None:
        """Told in HTTP, counted and logged as everything that is refused."""
        self._is_refused = True
        self.broker.errors[error.code] += 1
        log.info("connection from %s: %s (%s), closed", self.peer, error.message, error.code)

    def _may_come_from(self, origin: str, host: str) -> bool:
        """Browsers say where a page is from; one of a stranger must not use a broker that trusts this machine."""
        allowed = self.listener.options.allowed_origins
        if allowed is not None:
            return "*" in allowed or origin in allowed
        if len(self.broker.users):
            return True
        parts = urlsplit(origin)
        return parts.hostname is not None and (is_loopback(parts.hostname) or parts.netloc == host)

    def _frame(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self.speaks_text = frame.opcode is Opcode.TEXT
        elif frame.opcode is not Opcode.CONT:
            return
        self._parts.append(bytes(frame.data))
        if frame.fin and self.connection is not None:
            data = b"".join(self._parts)
            self._parts.clear()
            self.connection.receive(data)

    def _send(self) -> None:
        data = b"".join(self.protocol.data_to_send())
        if data:
            self.socket.write(data)

    # The transport of a Connection

    @property
    def certificate_name(self) -> str:
        return self.socket.certificate_name

    @property
    def is_clogged(self) -> bool:
        return self.socket.is_clogged

    def write(self, data: bytes) -> None:
        if self.protocol.state is not State.OPEN:
            return
        kind = self.listener.options.web_socket_encoder_type.value
        wants_text = kind == "text" or (kind == "auto" and self.speaks_text)
        for part in messages(data):
            if wants_text and _is_utf8(part):
                self.protocol.send_text(part)
            else:
                self.protocol.send_binary(part)
        self._send()

    def pause_reading(self) -> None:
        self.socket.pause_reading()

    def resume_reading(self) -> None:
        self.socket.resume_reading()

    def close(self) -> None:
        if self.protocol.state is State.OPEN:
            self.protocol.send_close(1000)
            self._send()
        self.socket.close()

    def abort(self) -> None:
        self.socket.abort()


def _select(protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """The highest version that both know; a client that offers none is let in, too."""
    return next((name for name in SUBPROTOCOLS if name in offered), None)


def messages(data: bytes) -> Iterator[bytes]:
    """`data` cut between frames, so that none has several frames in more than MESSAGE octets. A frame is not cut."""
    start = at = 0
    size = len(data)
    while size - start > MESSAGE and at < size:
        head = data.find(b"\n\n", at)
        line = data.rfind(b"\n", at, head)
        if not data.startswith(_CONTENT_LENGTH, line):  # which comes last, but for what a transformer made
            line = data.find(_CONTENT_LENGTH, at, head)
        counted = data[line + 16 : data.find(b"\n", line + 1)] if line >= 0 else b""
        stop = head + 2 + int(counted) if counted.isdigit() else data.find(b"\0", head + 2)
        end = stop + 2 if head >= 0 and 0 <= stop < size - 2 else size  # NUL and LF; or all: a piece of a large frame
        if end - start > MESSAGE and at > start:
            yield data[start:at]
            start = at
        at = end
    yield data[start:]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
