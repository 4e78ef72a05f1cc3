"""What stands between STOMP and the socket: nothing for TCP and TLS, and websocket.py for WebSocket. No I/O here."""

from __future__ import annotations

from typing import Protocol


class Wire(Protocol):
    """`start`, `reply` and `goodbye` give octets to write at once; `wrap` what stands for some STOMP frames, once `is_open`."""

    is_open: bool

    def start(self) -> bytes:
        """What is written before anything else: the wire's own handshake."""

    def receive(self, data: bytes) -> list[bytes]:
        """The STOMP octets in `data`. Raises ConnectionLost when the other side refuses or breaks the rules of the wire."""

    def reply(self) -> bytes:
        """What the wire itself has to say to what it received."""

    def wrap(self, frames: list[bytes]) -> bytes:
        """Whole STOMP frames (or a heart-beat) as octets for the socket."""

    def goodbye(self) -> bytes:
        """What is written last, before the socket closes."""

    def last_words(self) -> str:
        """Why the other side closed, where the wire can say so."""


class StreamWire:
    """A wire on which STOMP is written to the stream as it is."""

    def __init__(self) -> None:
        self.is_open = True

    def start(self) -> bytes:
        return b""

    def receive(self, data: bytes) -> list[bytes]:
        return [data]

    def reply(self) -> bytes:
        return b""

    def wrap(self, frames: list[bytes]) -> bytes:
        return b"".join(frames)

    def goodbye(self) -> bytes:
        return b""

    def last_words(self) -> str:
        return ""
