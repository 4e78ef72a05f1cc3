"""STOMP in a WebSocket connection, without I/O: a Wire (wire.py) on the sans-I/O protocol of the library websockets.

A STOMP frame goes out as one WebSocket message, which is what all brokers read (some want exactly that): in a text message
where it is UTF-8, in a binary one where it is not. What comes in is one stream of octets, whatever the messages' borders.
"""

from __future__ import annotations

from typing import Final

from websockets.client import ClientProtocol as WebSocketProtocol
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from stompbox.client.url import Target
from stompbox.errors import ConnectionLost
from stompbox.stomp.codec import FrameLimits

_DATA: Final = frozenset((Opcode.TEXT, Opcode.BINARY, Opcode.CONT))
_SUBPROTOCOLS: Final = {
    "1.2": Subprotocol("v12.stomp"),
    "1.1": Subprotocol("v11.stomp"),
    "1.0": Subprotocol("v10.stomp"),
}


class WebSocketWire:
    """A WebSocket connection (RFC 6455) without extensions, under STOMP."""

    def __init__(self, target: Target, versions: tuple[str, ...], limits: FrameLimits) -> None:
        host = f"[{target.host}]" if ":" in target.host else target.host
        uri = parse_uri(f"{target.scheme}://{host}:{target.port}{target.resource}")
        offered = [name for version, name in _SUBPROTOCOLS.items() if version in versions]
        self.is_open = False
        self._socket = WebSocketProtocol(uri, subprotocols=offered, max_size=limits.body + limits.head)

    def start(self) -> bytes:
        self._socket.send_request(self._socket.connect())
        return self.reply()

    def reply(self) -> bytes:
        return b"".join(self._socket.data_to_send())

    def receive(self, data: bytes) -> list[bytes]:
        self._socket.receive_data(data)
        found: list[bytes] = []
        for event in self._socket.events_received():
            if isinstance(event, Response):
                self.is_open = self._socket.state is State.OPEN
            elif isinstance(event, Frame) and event.opcode in _DATA:
                found.append(bytes(event.data))
        self._raise_failure()
        return found

    def _raise_failure(self) -> None:
        refused, broken = self._socket.handshake_exc, self._socket.parser_exc
        if isinstance(refused, InvalidStatus):
            response = refused.response
            answer = f"HTTP {response.status_code} {response.reason_phrase}"
            if response.headers.get("Content-Type", "text/plain").startswith("text/plain"):
                # a page says nothing in one line
                answer += f": {bytes(response.body or b'')[:200].decode('utf-8', 'replace').strip()}"
            raise ConnectionLost(
                "websocket-refused", f"the server answered the WebSocket handshake with {answer}"
            )
        if refused is not None:
            raise ConnectionLost("websocket-refused", f"no WebSocket handshake: {refused}") from refused
        if broken is not None and not isinstance(broken, EOFError):
            raise ConnectionLost(
                "websocket-broken", f"the server broke the WebSocket protocol: {broken}"
            ) from broken

    def wrap(self, frames: list[bytes]) -> bytes:
        socket = self._socket
        try:
            for frame in frames:
                try:
                    frame.decode()
                except UnicodeDecodeError:
                    socket.send_binary(frame)
                else:
                    socket.send_text(frame)
        except WebSocketException:  # the other side has begun to close: what we say has no listener any more
            return b""
        return self.reply()

    def goodbye(self) -> bytes:
        if self._socket.state is State.OPEN:
            self._socket.send_close(CloseCode.NORMAL_CLOSURE)
        return self.reply()

    def last_words(self) -> str:
        close = self._socket.close_rcvd
        return "" if close is None else f"WebSocket close {close.code} {close.reason}".strip()
