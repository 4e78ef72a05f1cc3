"""Clients that send and receive large bodies without having them in memory, over each transport."""

from __future__ import annotations

import hashlib
import random
import socket
import sqlite3
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from websockets.sync.client import ClientConnection, connect

from tests.conftest import Served

WITHIN = 60.0  # seconds for anything that is on its way
BLOCK = 1 << 20
MIB = 1 << 20


class Wire(Protocol):
    def send(self, data: bytes) -> None: ...
    def receive(self) -> bytes: ...
    def close(self) -> None: ...


class Tcp:
    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        stream.settimeout(WITHIN)

    def send(self, data: bytes) -> None:
        self.stream.sendall(data)

    def receive(self) -> bytes:
        return self.stream.recv(1 << 16)

    def close(self) -> None:
        self.stream.close()


class Web:
    """Each call of `send` is one WebSocket message."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, data: bytes) -> None:
        self.connection.send(data)

    def receive(self) -> bytes:
        found = self.connection.recv(WITHIN)
        return found.encode() if isinstance(found, str) else found

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True, slots=True)
class Got:
    """A frame; of its body length and digest."""

    command: str
    headers: dict[str, str]
    size: int
    digest: str
    start: bytes


class Client:
    """One connection, logged in with STOMP `version`."""

    def __init__(self, wire: Wire, version: str = "1.2") -> None:
        self.wire = wire
        self.rest = b""
        wire.send(f"CONNECT\naccept-version:{version}\nhost:localhost\n\n\0".encode())
        assert self.receive().command == "CONNECTED"

    def say(self, command: str, body: bytes = b"", **headers: object) -> None:
        lines = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items())
        self.wire.send(f"{command}\n{lines}\n".encode() + body + b"\0")

    def subscribe(self, destination: str, **headers: object) -> None:
        self.say(
            "SUBSCRIBE",
            destination=destination,
            receipt="subscribed",
            **({"id": 0, "ack": "client-individual"} | headers),
        )
        assert self.receive().command == "RECEIPT"

    def _more(self) -> None:
        data = self.wire.receive()
        if not data:
            raise EOFError("the broker closed the connection")
        self.rest += data

    def head(self) -> tuple[str, dict[str, str]]:
        """The next frame up to its body."""
        while b"\n\n" not in self.rest.lstrip(b"\n"):
            self._more()
        self.rest = self.rest.lstrip(b"\n")
        head, _, self.rest = self.rest.partition(b"\n\n")
        command, *lines = head.decode().split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(name, value)
        return command, headers

    def receive(self) -> Got:
        command, headers = self.head()
        if "content-length" not in headers:
            return self._to_nul(command, headers)
        left, digest, start = int(headers["content-length"]), hashlib.sha256(), b""
        size = left
        while left:
            if not self.rest:
                self._more()
            part, self.rest = self.rest[:left], self.rest[left:]
            start = start or part[:100]
            digest.update(part)
            left -= len(part)
        while not self.rest:
            self._more()
        assert self.rest[0] == 0, f"no NUL after {size} octets"
        self.rest = self.rest[1:]
        return Got(command, headers, size, digest.hexdigest(), start)

    def _to_nul(self, command: str, headers: dict[str, str]) -> Got:
        digest, size, start = hashlib.sha256(), 0, b""
        while True:
            part, nul, after = self.rest.partition(b"\0")
            digest.update(part)
            size, start = size + len(part), start or part[:100]
            self.rest = after
            if nul:
                return Got(command, headers, size, digest.hexdigest(), start)
            self._more()

    def is_closed(self) -> bool:
        """Whether the broker closes without saying anything more."""
        try:
            return not self.rest.strip(b"\n") and not self.wire.receive().strip(b"\n")
        except ConnectionResetError:
            return True


def blocks(size: int, *, seed: int = 1, block: int = BLOCK) -> Iterator[bytes]:
    """`size` octets without NUL, made as they are needed."""
    chance = random.Random(seed)
    while size:
        part = chance.randbytes(min(block, size)).replace(b"\0", b"\1")
        yield part
        size -= len(part)


def digest_of(size: int, *, seed: int = 1, block: int = BLOCK) -> str:
    found = hashlib.sha256()
    for part in blocks(size, seed=seed, block=block):
        found.update(part)
    return found.hexdigest()


def send(
    client: Client, destination: str, size: int, *, seed: int = 1, counted: bool = True, **headers: object
) -> None:
    """A SEND of so many octets; a receipt is not waited for."""
    begin(client, destination, size if counted else None, **headers)
    for part in blocks(size, seed=seed):
        client.wire.send(part)
    client.wire.send(b"\0")


def begin(client: Client, destination: str, size: int | None, **headers: object) -> None:
    """Its head."""
    length = {} if size is None else {"content_length": size}
    given = {"destination": destination, "persistent": "true", **headers, **length}
    client.wire.send(
        (
            "SEND\n" + "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in given.items()) + "\n"
        ).encode()
    )


@contextmanager
def tcp(served: Served, version: str = "1.2") -> Iterator[Client]:
    with socket.create_connection((served.host, served.port), WITHIN) as stream:
        yield Client(Tcp(stream), version)


@contextmanager
def tls(served: Served, version: str = "1.2") -> Iterator[Client]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((served.host, served.port), WITHIN) as raw,
        context.wrap_socket(raw) as stream,
    ):
        yield Client(Tcp(stream), version)


@contextmanager
def web(served: Served, version: str = "1.2") -> Iterator[Client]:
    with connect(
        f"ws://{served.host}:{served.port}/stomp", max_size=4 * MIB, open_timeout=WITHIN
    ) as connection:
        yield Client(Web(connection), version)


def stored(data: Path) -> tuple[int, int]:
    """(pieces, names) of large bodies in the store of a data folder."""
    with closing(sqlite3.connect(data / "stompbox.db")) as connection:
        (parts,) = connection.execute("SELECT count(*) FROM part").fetchone()
        (names,) = connection.execute("SELECT count(*) FROM name").fetchone()
        return parts, names
