"""A client as rude as can be: octets as they are, over TCP, TLS or WebSocket, cut as the test wants them."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.conftest import ROOT, Served

WITHIN = 30.0  # seconds for anything that is on its way
KINDS = ("tcp", "tls", "websocket")
_UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
)


def listeners(folder: Path, options: str = "") -> list[str]:
    """Arguments of a broker with one listener in plain and one in TLS, with these options."""
    folder.mkdir(parents=True, exist_ok=True)
    pem = folder / "server.pem"
    pem.write_text(
        "".join((ROOT / "tests/client" / name).read_text() for name in ("tls-certificate.pem", "tls-key.pem"))
    )
    return [
        "--listen",
        f"tcp://127.0.0.1:0?{options}",
        "--listen",
        f"ssl://127.0.0.1:0?keyStorePath={pem}&{options}",
    ]


def port_of(served: Served, kind: str) -> int:
    scheme = "ssl" if kind == "tls" else "tcp"
    return int(next(url for url in served.listeners if url.startswith(scheme)).rpartition(":")[2])


def upgrade(host: str = "localhost", path: str = "/ws", more: str = "") -> bytes:
    """The request that opens a WebSocket."""
    return _UPGRADE.format(path=path, host=host, more=more).encode()


def message(data: bytes, opcode: int = 2, *, ends: bool = True) -> bytes:
    """One WebSocket frame of a client (RFC 6455, 5.2), masked with zeros."""
    size = len(data)
    length = bytes([0x80 | min(size, 126)])
    if size > 125:
        length = struct.pack(">BH", 0xFE, size) if size < 65536 else struct.pack(">BQ", 0xFF, size)
    return bytes([(0x80 if ends else 0) | opcode]) + length + bytes(4) + data


def payloads(came: bytearray) -> bytes:
    """What the whole WebSocket frames of a broker say at the beginning of these octets, of which they are taken off."""
    said = b""
    while len(came) >= 2:
        head, size = 2, came[1]
        if size > 125:
            head = 4 if size == 126 else 10
            size = int.from_bytes(came[2:head], "big")
        if len(came) < head + size:
            break
        said += came[head : head + size]
        del came[: head + size]
    return said


class Rude:
    """One connection. Over WebSocket each `say` is one message, and `hear` hears what is in messages; `raw` sends octets as they are."""

    def __init__(self, stream: socket.socket, kind: str) -> None:
        self.stream, self.kind = stream, kind
        self._is_open = False  # the WebSocket
        self._rest = bytearray()  # of a message

    def raw(self, data: bytes) -> None:
        """Sends until the broker closes."""
        with suppress(ConnectionResetError, BrokenPipeError, ssl.SSLError):
            # refused before its end: the answer is on its way
            self.stream.sendall(data)

    def say(self, data: bytes) -> None:
        self.raw(message(data) if self.kind == "websocket" else data)

    def hear(self, until: bytes) -> bytes:
        """All that came, up to these octets or the end of the stream."""
        came, looked_at = bytearray(), 0
        while came.find(until, looked_at) < 0 and (octets := self._receive()):
            looked_at = max(0, len(came) - len(until))
            if self._is_open:
                self._rest += octets
                came += payloads(self._rest)
            else:
                came += octets
        return bytes(came)

    def upgrade(self) -> None:
        self.raw(upgrade())
        assert b"101" in self.hear(b"\r\n\r\n")
        self._is_open = True

    def hear_all(self) -> bytes:
        """All that came until the broker closed, as it came."""
        came = bytes(self._rest)
        while octets := self._receive():
            came += octets
        return came

    def _receive(self) -> bytes:
        try:
            return self.stream.recv(1 << 16)
        except (ConnectionResetError, ssl.SSLEOFError):
            return b""

    def log_in(self, version: str = "1.2", more: str = "") -> None:
        self.say(f"CONNECT\naccept-version:{version}\nhost:localhost\n{more}\n\0".encode())
        assert b"CONNECTED" in self.hear(b"\0\n")


@contextmanager
def connected(served: Served, kind: str, *, receive_buffer: int = 0) -> Iterator[Rude]:
    with socket.socket() as plain:
        plain.settimeout(WITHIN)
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.connect(("127.0.0.1", port_of(served, kind)))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if kind == "tls":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(plain) as secured:
                yield Rude(secured, kind)
            return
        client = Rude(plain, kind)
        if kind == "websocket":
            client.upgrade()
        yield client


def wait_until(is_so: object, what: str) -> None:
    """Asks again and again, until it is so."""
    assert callable(is_so)
    deadline = time.monotonic() + WITHIN
    while not is_so():
        assert time.monotonic() < deadline, f"not within {WITHIN} s: {what}"
