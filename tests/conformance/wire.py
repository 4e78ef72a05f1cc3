"""A client that knows nothing of Stompbox: a plain socket or a WebSocket, and frames read by the letter of STOMP 1.2.

It shares no code with the project on purpose, so that a mistake there cannot hide here.

Where the broker stores on disk (TESTED_FOLLOWER) a RECEIPT waits for a commit and a MESSAGE does not, so one that was caused later may
come first; STOMP orders frames of one kind only. Who expects a RECEIPT there finds it behind, and hears those MESSAGEs afterwards.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_websocket
from websockets.typing import Subprotocol

ARE_RECEIPTS_LATE = bool(os.environ.get("TESTED_FOLLOWER"))
WITHIN = 20.0  # seconds for anything that is on its way


class Transport(Protocol):
    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes:
        """What came, b"" once the other side has closed. Raises TimeoutError when nothing comes."""


class Tcp:
    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream

    def send(self, data: bytes) -> None:
        self.stream.sendall(data)

    def receive(self) -> bytes:
        try:
            return self.stream.recv(65536)
        except ConnectionResetError:
            return b""


class TcpByteByByte(Tcp):
    """Each octet in a write of its own, without waiting for more (TCP_NODELAY)."""

    def send(self, data: bytes) -> None:
        try:
            for at in range(len(data)):
                self.stream.sendall(data[at : at + 1])
        except (BrokenPipeError, ConnectionResetError):
            return  # refused before its end: the answer is on its way


class WebSocket:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, data: bytes) -> None:
        self.connection.send(data)

    def receive(self) -> bytes:
        try:
            message = self.connection.recv(WITHIN)
        except ConnectionClosed:
            return b""
        return message.encode() if isinstance(message, str) else message


class WebSocketInPieces(WebSocket):
    """The stream cut into messages of seven octets, wherever that cuts the frames."""

    def send(self, data: bytes) -> None:
        try:
            for at in range(0, len(data), 7):
                self.connection.send(data[at : at + 7])
        except ConnectionClosed:
            return  # refused before its end: the answer has been read


@contextmanager
def tcp(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, WITHIN) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield stream


@contextmanager
def websocket(address: tuple[str, int]) -> Iterator[ClientConnection]:
    protocols = [Subprotocol(name) for name in ("v12.stomp", "v11.stomp", "v10.stomp")]
    host, port = address
    with connect_websocket(
        f"ws://{host}:{port}/stomp", subprotocols=protocols, open_timeout=WITHIN, max_size=None
    ) as connection:
        yield connection


TRANSPORTS: dict[str, tuple[Callable[[tuple[str, int]], Any], Callable[[Any], Transport]]] = {
    "tcp": (tcp, Tcp),
    "tcp, byte by byte": (tcp, TcpByteByByte),
    "websocket": (websocket, WebSocket),
    "websocket, in pieces": (websocket, WebSocketInPieces),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A frame as it came: nothing unescaped, nothing trimmed."""

    command: str
    lines: tuple[bytes, ...]
    body: bytes

    def value(self, name: str) -> str | None:
        """The first value of a header whose name and value need no unescaping."""
        prefix = name.encode() + b":"
        return next(
            (line.removeprefix(prefix).decode() for line in self.lines if line.startswith(prefix)), None
        )


class Client:
    """One connection. `say` sends bytes; `hear` gives the next frame, None once the broker has closed."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._came = b""
        self._early: deque[Answer] = deque()  # MESSAGEs that came before a RECEIPT

    def say(self, data: bytes) -> None:
        self.transport.send(data)

    def hear(self) -> Answer | None:
        return self._early.popleft() if self._early else self._next()

    def _next(self) -> Answer | None:
        while not self._came.lstrip(b"\r\n"):
            if not self._more():
                return None
        self._came = self._came.lstrip(b"\r\n")
        while b"\n\n" not in self._came:
            assert self._more(), f"closed within a frame: {self._came!r}"
        head, _, self._came = self._came.partition(b"\n\n")
        command, *lines = head.split(b"\n")
        length = next(
            (int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), None
        )
        body = self._body(length)
        return Answer(command.decode(), tuple(lines), body)

    def _body(self, length: int | None) -> bytes:
        if length is None:
            while b"\0" not in self._came:
                assert self._more(), f"closed within a body: {self._came!r}"
            body, _, self._came = self._came.partition(b"\0")
            return body
        while len(self._came) <= length:
            assert self._more(), f"closed within a body: {self._came!r}"
        assert self._came[length] == 0, f"no NUL after {length} octets: {self._came!r}"
        body, self._came = self._came[:length], self._came[length + 1 :]
        return body

    def _more(self) -> bool:
        octets = self.transport.receive()
        self._came += octets
        return bool(octets)

    def _receipt(self) -> Answer | None:
        while (answer := self._next()) is not None and answer.command == "MESSAGE":
            self._early.append(answer)
        return answer

    def expect_nothing_but(self, command: str) -> Answer:
        """The same, where nothing may have come before."""
        answer = self.expect(command)
        assert not self._early, f"{self._early[0]} where {command} was expected"
        return answer

    def expect(self, command: str) -> Answer:
        answer = self._receipt() if command == "RECEIPT" and ARE_RECEIPTS_LATE else self.hear()
        assert answer is not None, f"closed where {command} was expected"
        assert answer.command == command, f"{answer} where {command} was expected"
        return answer

    def log_in(self, version: str) -> Answer:
        """CONNECT that speaks this version and no other; the CONNECTED."""
        headers = "" if version == "1.0" else f"accept-version:{version}\nhost:localhost\n"
        self.say(f"CONNECT\n{headers}\n\0".encode())
        connected = self.expect("CONNECTED")
        assert connected.value("version") in (version, None)
        return connected

    def subscribe(self, destination: str) -> None:
        """Auto acknowledgement, id 0; returns when it is in place."""
        self.say(f"SUBSCRIBE\nid:0\ndestination:{destination}\nack:auto\nreceipt:subscribed\n\n\0".encode())
        assert self.expect("RECEIPT").value("receipt-id") == "subscribed"


@contextmanager
def connected(address: tuple[str, int], transport: str) -> Iterator[Client]:
    opening, form = TRANSPORTS[transport]
    with opening(address) as opened:
        yield Client(form(opened))
