"""Over TLS: records of one octet, and very much in one go of very many, which stay."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from bench.attacks.attacker import again, attack, connected, opened, send

HELLO = b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\nheart-beat:0,0\n\n\0"
RECORDS = 8000  # in one write, 200 KB


def trusting_all() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def secured(port: int) -> ssl.SSLSocket:
    """Logged in over TLS."""
    link = trusting_all().wrap_socket(opened(port))
    link.sendall(HELLO)
    got = b""
    while b"\0" not in got:
        got += link.recv(4096)
    return link


class Ciphered:
    """A client whose records are made before they are sent."""

    def __init__(self, port: int) -> None:
        self.socket = opened(port)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = trusting_all().wrap_bio(self._incoming, self._outgoing)
        while not self._has_met():
            self.socket.sendall(self._outgoing.read())
            self._incoming.write(self.socket.recv(1 << 16))
        self._object.write(HELLO)
        self.socket.sendall(self._outgoing.read())

    def _has_met(self) -> bool:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def pairs(self) -> bytes:
        """Forty frames, each in a record of its own; an answer comes to the last."""
        for _ in range(20):
            self._object.write(b"BEGIN\ntransaction:1\n\n\0")
            self._object.write(b"ABORT\ntransaction:1\n\n\0")
        self._object.write(b"BEGIN\ntransaction:2\nreceipt:1\n\n\0ABORT\ntransaction:2\n\n\0")
        return self._outgoing.read()

    def say_line_feeds(self, seconds: float) -> None:
        """Heart-beats, as far as STOMP goes."""
        until = time.monotonic() + seconds
        with suppress(OSError):
            while time.monotonic() < until:
                for _ in range(RECORDS):
                    self._object.write(b"\n")
                self.socket.sendall(self._outgoing.read())


@attack(
    "ten connections of TLS that say line feeds, each in a record of its own, megabytes in one write",
    is_tls=True,
)
def tls_records(port: int) -> list[socket.socket]:
    links = [Ciphered(port) for _ in range(10)]
    threads = [threading.Thread(target=link.say_line_feeds, args=(10.0,)) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [link.socket for link in links]


@attack(
    "500 connections of TLS: forty records in one small write, and the next when they are answered",
    is_tls=True,
)
def tls_small_reads(port: int) -> list[socket.socket]:
    links = [Ciphered(port) for _ in range(500)]
    again([link.socket for link in links], lambda place: links[place].pairs())
    return [link.socket for link in links]


@attack("300 connections of TLS that send a megabyte each in one go, and stay", is_tls=True)
def tls_bursts(port: int) -> list[socket.socket]:
    return _burst([secured(port) for _ in range(300)])


@attack("300 connections that send a megabyte each in one go, and stay")
def bursts(port: int) -> list[socket.socket]:
    return _burst([connected(port) for _ in range(300)])


def _burst(links: Sequence[socket.socket]) -> list[socket.socket]:
    much = send("/topic/nobody", b"x" * 1000) * 900
    for link in links:
        link.sendall(much)
    time.sleep(5.0)
    return list(links)
