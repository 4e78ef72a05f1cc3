"""A connection of a drill: a blocking socket and the codec, which tells being told to stop from losing the broker."""

from __future__ import annotations

import select
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from msgspec import json

from stompbox.stomp.codec import Decoder, encode
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import V11, V12
from tests.crash.events import Closed, Journal, Opened

WITHIN = 30.0  # seconds in which a broker that runs answers
AGAIN = 0.02  # seconds between attempts to connect


class Lost(Exception):
    """The broker is gone, for now."""


class Stopped(Exception):
    """The drill wants no more."""


class Control:
    """How the drill speaks to one who takes part: stdin ends when it is time to stop; progress goes to stdout."""

    def is_over(self, timeout: float = 0.0) -> bool:
        return bool(select.select([sys.stdin], [], [], timeout)[0])

    def progress(self) -> None:
        sys.stdout.write(".")
        sys.stdout.flush()


class Link:
    """Connects on making, waiting for a broker as long as it takes. Raises Stopped when the drill ends meanwhile.

    With `may_be_refused` it speaks STOMP 1.1, where an ERROR does not end the connection, and hands ERROR frames out."""

    def __init__(
        self,
        port: int,
        journal: Journal,
        control: Control,
        client_id: str = "",
        *,
        may_be_refused: bool = False,
    ) -> None:
        self.version = V11 if may_be_refused else V12
        self.may_be_refused = may_be_refused
        self.journal = journal
        self.control = control
        self.frames: deque[Frame] = deque()
        self.requests = 0
        self.heard = 0  # when something came
        while True:
            try:
                self._connect(port, client_id)
                return
            except (OSError, Lost):
                if control.is_over(AGAIN):
                    raise Stopped from None

    def _connect(self, port: int, client_id: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WITHIN)
        self.decoder = Decoder(SERVER_COMMANDS)
        headers = {
            "accept-version": self.version.name,
            "host": "localhost",
            **({"client-id": client_id} if client_id else {}),
        }
        self.write(self.frame("CONNECT", headers))
        connected = self.receive()
        assert connected.command == "CONNECTED", connected
        self.decoder.version = self.version
        self.name = connected.headers["session"]
        self.journal.note(Opened(time.monotonic_ns(), self.name))

    def close(self) -> None:
        """Without a word."""
        self.journal.note(Closed(time.monotonic_ns(), self.name, is_abrupt=True))
        self.socket.close()

    def lost(self) -> None:
        """By whatever; the broker may have known since it was last heard."""
        self.journal.note(Closed(self.heard, self.name, is_abrupt=True))
        self.socket.close()

    def disconnect(self) -> list[Frame]:
        """In peace; what was under way before the RECEIPT."""
        self.write(self.frame("DISCONNECT", {"receipt": "bye"}))
        left = []
        while (frame := self.receive()).headers.get("receipt-id") != "bye":
            left.append(frame)
        self.journal.note(Closed(time.monotonic_ns(), self.name))
        self.socket.close()
        return left

    def ask(self, request: str, headers: Mapping[str, str], body: bytes = b"") -> Any:
        """The answer to a request, read from JSON. Nothing else must be under way."""
        self.requests += 1
        head = {
            "destination": "stompbox.requests",
            "request": request,
            "request-id": str(self.requests),
            **headers,
        }
        self.write(self.frame("SEND", head, body))
        frame = self.receive()
        assert frame.headers.get("request-id") == str(self.requests), frame
        assert frame.headers["status"] == "ok", (frame.headers, frame.body)
        return json.decode(frame.body)

    def frame(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
        return encode(Frame(command, dict(headers), body), self.version)

    def write(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Lost from error

    def receive(self) -> Frame:
        """The next frame; a broker that lives has one within WITHIN seconds."""
        while not self.frames:
            self._read()
        return self.frames.popleft()

    def receive_or_stop(self) -> Frame:
        """The next frame. Raises Stopped when the drill ends before it comes."""
        while not self.frames:
            if sys.stdin in select.select([self.socket, sys.stdin], [], [])[0]:
                raise Stopped
            self._read()
        return self.frames.popleft()

    def receive_within(self, seconds: float) -> Frame | None:
        """The next frame, None when none comes in time. Raises Stopped when the drill ends before."""
        if not self.frames:
            ready = select.select([self.socket, sys.stdin], [], [], seconds)[0]
            if sys.stdin in ready:
                raise Stopped
            if not ready:
                return None
        return self.receive()

    def _read(self) -> None:
        try:
            data = self.socket.recv(1 << 17)
        except TimeoutError as error:
            raise AssertionError(f"no answer from the broker within {WITHIN} s") from error
        except OSError as error:
            raise Lost from error
        if not data:
            raise Lost
        self.heard = time.monotonic_ns()
        for frame in self.decoder.receive(data):
            if isinstance(frame, Frame):
                assert self.may_be_refused or frame.command != "ERROR", (frame, frame.body)
                self.frames.append(frame)
