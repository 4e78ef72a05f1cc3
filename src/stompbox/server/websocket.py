"""STOMP over WebSocket (RFC 6455): the hand-shake, and frames in messages of the kind that the client sends.

A message from the client may hold any part of the stream; what goes out is whole frames, as text where it is UTF-8 and the
client speaks text, else as binary.
"""

from __future__ import annotations

import http
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from stompbox.config import Listener, is_loopback
from stompbox.server.connection import Connection

if TYPE_CHECKING:
    from stompbox.server.broker import Broker
    from stompbox.server.tcp import Socket

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
        )
        self.connection: Connection | None = None
        self.speaks_text = True
        self._parts: list[bytes] = []
        self._deadline = broker.loop.call_later(options.handshake_timeout / 1000, self._late)

    def _late(self) -> None:
        if self.connection is None:
            self.socket.abort()

    # The receiver of a socket

    def receive(self, data: bytes) -> None:
        self.protocol.receive_data(data)
        for event in self.protocol.events_received():
            if isinstance(event, Request):
                self._accept(event)
            elif isinstance(event, Frame):
                self._frame(event)
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

    def _accept(self, request: Request) -> None:
        path = urlsplit(request.path).path
        origins = request.headers.get_all("Origin")
        if path not in self.listener.options.web_socket_path:
            response = self.protocol.reject(http.HTTPStatus.NOT_FOUND, f"STOMP is at {', '.join(self.listener.options.web_socket_path)}\n")
        elif origins and not self._may_come_from(origins[0], request.headers.get("Host", "")):
            self.broker.errors["origin-refused"] += 1
            response = self.protocol.reject(http.HTTPStatus.FORBIDDEN, "this Origin is not allowed here (listener option allowedOrigins)\n")
        else:
            response = self.protocol.accept(request)
        self.protocol.send_response(response)
        if self.protocol.state is State.OPEN:
            self._deadline.cancel()
            self.connection = Connection(self.broker, self.listener, self, self.peer)

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
        for data in self.protocol.data_to_send():
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
        if (kind == "text" or (kind == "auto" and self.speaks_text)) and _is_utf8(data):
            self.protocol.send_text(data)
        else:
            self.protocol.send_binary(data)
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


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
