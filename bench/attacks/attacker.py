"""An attacker's client: a raw socket and bytes, so that nothing is done better than an attacker would.

What an attack is, and the list that all of them are noted in.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

WITHIN = 60.0  # seconds that one attack writes, at the most
SILENCE = 0.25  # seconds after which nothing more is said to come
MEGABYTE = 1 << 20
CLIENTS = 256  # MiB: max-client-memory, which all that is kept for connections has together
MESSAGES = 128  # MiB: global-max-size
REMEMBERED = 32  # MiB: max-retained-memory, and max-id-cache-memory as well
SCHEDULED = 64  # MiB: max-scheduled-bytes
TAKES_ALL = "ack:client-individual\nconsumer-window-size:-1\n"  # of a SUBSCRIBE


@dataclass(frozen=True, slots=True)
class Attack:
    """`run(port)` returns what must stay open until the end. `is_ours`: needs what other brokers have not. `toml`: settings.
    `is_admin`: the port is that of the admin interface. `is_tls`: it is that of a listener with TLS. `is_websocket`: HTTP is spoken to a
    port that STOMP has, too.

    `limits`: MiB that the limits with names allow it at the defaults; `stays`: of that, what is not the client's and stays when it goes."""

    run: Callable[[int], list[socket.socket]]
    what: str
    is_ours: bool = False
    toml: str = ""
    limits: int = CLIENTS
    stays: int = 0
    is_admin: bool = False
    is_tls: bool = False
    is_websocket: bool = False

    def suits(self, peer: str) -> bool:
        """Whether another broker can be asked the same, as peers.sh starts it."""
        return not (self.is_ours or self.is_tls) and (peer == "artemis" or not self.is_websocket)


ATTACKS: dict[str, Attack] = {}


def attack(
    what: str,
    *,
    is_ours: bool = False,
    toml: str = "",
    limits: int = CLIENTS,
    stays: int = 0,
    is_admin: bool = False,
    is_tls: bool = False,
    is_websocket: bool = False,
) -> Callable[[Callable[[int], list[socket.socket]]], object]:
    def note(run: Callable[[int], list[socket.socket]]) -> object:
        ATTACKS[run.__name__] = Attack(
            run, what, is_ours, toml, limits, stays, is_admin, is_tls, is_websocket
        )
        return run

    return note


def opened(port: int) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), 10)
    found.settimeout(10)
    return found


def connected(port: int, version: str = "1.2", login: str = "guest") -> socket.socket:
    """Logged in; what has come is read up to the end of CONNECTED."""
    link = opened(port)
    link.sendall(
        f"CONNECT\naccept-version:{version}\nhost:/\nlogin:{login}\npasscode:guest\nheart-beat:0,0\n\n\0".encode()
    )
    got = b""
    while b"\0" not in got:
        more = link.recv(4096)
        if not more:
            raise ConnectionError(f"refused: {got[:200]!r}")
        got += more
    return link


def pour(link: socket.socket, pieces: Iterable[bytes], *, reads: bool = True) -> None:
    """Writes as long as it is taken, for WITHIN seconds; `reads`: throws away what comes back."""
    until = time.monotonic() + WITHIN
    link.setblocking(False)
    with contextlib.suppress(OSError):
        for piece in pieces:
            view = memoryview(piece)
            while view:
                readable, writable, _ = select.select(
                    [link] if reads else [], [link], [], until - time.monotonic()
                )
                if not readable and not writable:
                    return
                if readable and not link.recv(MEGABYTE):
                    return
                if writable:
                    with contextlib.suppress(BlockingIOError):
                        view = view[link.send(view) :]
                if time.monotonic() > until:
                    return


def drain(link: socket.socket, seconds: float = 5.0) -> None:
    """Reads what comes until nothing more does for a while."""
    until = time.monotonic() + seconds
    link.settimeout(SILENCE)
    with contextlib.suppress(OSError):
        while time.monotonic() < until and link.recv(MEGABYTE):
            pass


def send(destination: str, body: bytes = b"", *, headers: str = "") -> bytes:
    return b"SEND\ndestination:%b\n%bcontent-length:%d\n\n%b\0" % (
        destination.encode(),
        headers.encode(),
        len(body),
        body,
    )


def subscribe(number: int, destination: str, *, headers: str = "") -> bytes:
    return f"SUBSCRIBE\nid:{number}\ndestination:{destination}\n{headers}\n\0".encode()


def settle(link: socket.socket) -> None:
    """All that was sent before is done: a receipt came."""
    link.setblocking(True)
    link.settimeout(60)
    link.sendall(b"BEGIN\ntransaction:settled\nreceipt:settled\n\n\0ABORT\ntransaction:settled\n\n\0")
    got = b""
    while b"receipt-id:settled" not in got:
        more = link.recv(MEGABYTE)
        if not more:
            return
        got = got[-64:] + more


def read(link: socket.socket) -> bytes:
    found = link.recv(MEGABYTE)
    if not found:
        raise ConnectionError("closed while it was at it")
    return found


def again(links: Sequence[socket.socket], says: Callable[[int], bytes], seconds: float = 10.0) -> None:
    """Each says what `says` has for it, by its place, and the next as soon as it is answered."""
    places = {link.fileno(): place for place, link in enumerate(links)}
    answered = select.epoll()
    for place, link in enumerate(links):
        link.sendall(says(place))
        answered.register(link.fileno(), select.EPOLLIN)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for fileno, _ in answered.poll(1.0):
            place = places[fileno]
            read(links[place])
            links[place].sendall(says(place))


def answer(link: socket.socket, word: bytes, seconds: float) -> None:
    """Answers each message that comes with ACK or NACK, as long as some do."""
    link.setblocking(False)
    until, got, said = time.monotonic() + seconds, b"", b""
    while time.monotonic() < until:
        readable, writable, _ = select.select([link], [link] if said else [], [], 5)
        if not readable and not writable:
            break
        if writable:
            said = said[link.send(said) :]
        if readable:
            more = link.recv(MEGABYTE)
            if not more:
                break
            whole, _, got = (got + more).rpartition(b"\0")
            said += answers(word, ids_in(whole))


def ids_in(messages: bytes) -> list[bytes]:
    """The ids by which they are answered."""
    return re.findall(rb"\nack:([^\n]+)", messages)


def answers(word: bytes, ids: Iterable[bytes], headers: bytes = b"") -> bytes:
    return b"".join([b"%b\nid:%b\n%b\n\0" % (word, id, headers) for id in ids])


def ids_of_next(link: socket.socket, count: int, silence: float = SILENCE) -> list[bytes]:
    """The ids of so many messages, or of fewer where no more come for `silence` seconds."""
    link.settimeout(silence)
    got = b""
    with contextlib.suppress(TimeoutError):
        while got.count(b"\0") < count:
            got += read(link)
    link.settimeout(10)
    return ids_in(got)


def answer_all(links: Sequence[socket.socket], count: int, other: bytes) -> None:
    """Takes what comes for each, so many messages or fewer, and answers then: ACK to every other one, and `other` to the rest."""
    said = []
    for link in links:
        ids = ids_of_next(link, count)
        said.append(answers(b"ACK", ids[::2]) + answers(other, ids[1::2]))
    for link, words in zip(links, said, strict=True):
        link.sendall(words)


# WebSocket


def websocket(port: int) -> socket.socket:
    link = opened(port)
    key = base64.b64encode(os.urandom(16)).decode()
    link.sendall(
        f"GET /stomp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v12.stomp\r\n\r\n".encode()
    )
    got = b""
    while b"\r\n\r\n" not in got:
        got += link.recv(4096)
    return link


def websocket_client(port: int) -> socket.socket:
    """Logs in; what comes of that is not read."""
    link = websocket(port)
    link.sendall(ws_frame(1, b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0"))
    return link


def ws_frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """Masked with zeros, as a client may."""
    size = len(payload)
    length = struct.pack("!B", 0x80 | size) if size < 126 else struct.pack("!BQ", 0xFF, size)
    return bytes([opcode | (0x80 if fin else 0)]) + length + b"\0\0\0\0" + payload
