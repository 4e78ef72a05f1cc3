"""A client as plain as can be: a blocking socket and the codec. For tests that look at frames."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from stompbox.stomp.codec import Decoder, encode
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import VERSIONS

WITHIN = 20.0  # seconds for a frame to come
LEAVES = 2.0  # seconds without a word for the broker to close


class Plain:
    """Connects on entering; `version` None sends nothing by itself."""

    def __init__(
        self, port: int, version: str | None = "1.2", headers: Mapping[str, str] | None = None
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WITHIN)
        self.socket.settimeout(WITHIN)
        self.decoder = Decoder(SERVER_COMMANDS)
        self.frames: deque[Frame] = deque()
        self.version = VERSIONS[version or "1.2"]
        if version is not None:
            accept = {} if version == "1.0" else {"accept-version": version, "host": "localhost"}
            self.send("CONNECT", {**accept, **(headers or {})})
            self.connected = self.receive()
            assert self.connected.command == "CONNECTED", self.connected
            self.decoder.version = self.version

    def send(self, command: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        self.socket.sendall(encode(Frame(command, dict(headers or {}), body), self.version))

    def receive(self) -> Frame:
        """The next frame. Fails after WITHIN seconds, or when the broker closes."""
        while not self.frames:
            data = self.socket.recv(1 << 16)
            assert data, "the broker closed the connection"
            self.frames.extend(frame for frame in self.decoder.receive(data) if isinstance(frame, Frame))
        return self.frames.popleft()

    def is_closed(self) -> bool:
        """Whether the broker closes next, without another frame."""
        while not self.frames:
            data = self.socket.recv(1 << 16)
            if not data:
                return True
            self.frames.extend(frame for frame in self.decoder.receive(data) if isinstance(frame, Frame))
        return False

    def sync(self) -> list[Frame]:
        """What came before all that was sent so far had been obeyed."""
        self.send("SEND", {"destination": "/topic/plain.sync", "receipt": "sync", "persistent": "false"})
        before = []
        while (frame := self.receive()).headers.get("receipt-id") != "sync":
            before.append(frame)
        return before

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends its side without DISCONNECT, and closes when the broker has: what this client had is back where it was then, for whoever
        asks next. A broker that says nothing more within LEAVES is not waited for."""
        with self.socket, suppress(OSError):
            self.socket.settimeout(LEAVES)
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(1 << 16):
                pass
