"""HTTP on a STOMP port: what opens no WebSocket is answered in HTTP, logged with its code, and harms nobody."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import Served
from tests.users import users

WITHIN = 20.0  # seconds
UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"  # RFC 6455, 1.3
METHODS = ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH")

REFUSED = [
    ("GET /nowhere HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + KEY, "404", "no-such-path"),
    ("GET //[ HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + KEY, "404", "no-such-path"),  # no URL
    (
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\n" + UPGRADE + KEY,
        "403",
        "origin-refused",
    ),
    ("GET /ws/info HTTP/1.1\r\nHost: localhost\r\n", "404", "no-such-path"),  # SockJS
    (
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nOrigin: https://elsewhere.example\r\n" + UPGRADE + KEY,
        "403",
        "origin-refused",
    ),
    (
        "GET /ws HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n" + UPGRADE + KEY,
        "421",
        "host-not-allowed",
    ),
    ("GET /ws HTTP/1.1\r\nHost: evil.example\r\n" + UPGRADE + KEY, "421", "host-not-allowed"),
    ("GET /ws HTTP/1.1\r\nHost: localhost/\r\n" + UPGRADE + KEY, "421", "host-not-allowed"),
    ("GET /ws HTTP/1.1\r\n" + UPGRADE + KEY, "421", "host-not-allowed"),
    ("GET /ws HTTP/1.1\r\nHost: localhost\r\n", "426", "bad-handshake"),  # a browser that looks at it
    ("GET /ws HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE, "400", "bad-handshake"),  # no key
    (
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nSec-WebSocket-Protocol: ,\x01\r\n" + UPGRADE + KEY,
        "400",
        "bad-handshake",
    ),
    ("GET nothing\r\n", "400", "bad-handshake"),
    *[
        (f"{method} /ws HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n", "405", "method-not-allowed")
        for method in METHODS
    ],
    ("PRI * HTTP/2.0\r\n", "405", "method-not-allowed"),
]


def answer_to(port: int, request: str) -> str:
    """The status line, or what else came, until the broker closed."""
    with socket.create_connection(("127.0.0.1", port), WITHIN) as stream:
        stream.sendall(f"{request}\r\n".encode())
        came = b""
        while octets := stream.recv(4096):
            came += octets
            if "101" in came.decode("latin-1").partition("\r\n")[0]:
                break
    return came.decode("latin-1").partition("\r\n")[0]


def test_what_opens_no_websocket_is_answered_and_told(serve: Callable[..., Served]) -> None:
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")
    for request, status, _ in REFUSED:
        assert answer_to(served.port, request).split(" ")[1] == status, request
    assert (
        answer_to(served.port, "GET /ws HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + KEY).split(" ")[1]
        == "101"
    )
    assert served.stop() == 0
    told = [
        line
        for line in served.log.read_text().splitlines()
        if "closed" in line and "connection from 127.0.0.1" in line
    ]
    assert [line.rpartition("(")[2].partition(")")[0] for line in told] == [code for _, _, code in REFUSED]
    assert "Traceback" not in served.log.read_text()


@pytest.mark.parametrize("offered", ["v12.stomp", "v10.stomp, v11.stomp", "mqtt, v12.stomp"])
def test_the_highest_version_that_both_know_is_chosen(broker: tuple[str, int], offered: str) -> None:
    request = (
        f"GET /stomp HTTP/1.1\r\nHost: localhost\r\nSec-WebSocket-Protocol: {offered}\r\n{UPGRADE}{KEY}\r\n"
    )
    with socket.create_connection(broker, WITHIN) as stream:
        stream.sendall(request.encode())
        came = b""
        while b"\r\n\r\n" not in came:
            came += stream.recv(4096)
    lines = came.decode().splitlines()
    assert f"Sec-WebSocket-Protocol: {offered.rsplit(', ', maxsplit=1)[-1]}" in lines


def test_with_users_the_name_does_not_matter(serve: Callable[..., Served], tmp_path: Path) -> None:
    """Who comes through a balancer or by a public name logs in; and who lists the origins has said whom he trusts."""
    file = tmp_path / "users.toml"
    file.write_text(users("alice:secret"))
    request = "GET /ws HTTP/1.1\r\nHost: broker.example\r\nOrigin: http://broker.example\r\n" + UPGRADE + KEY
    served = serve("--memory", "--no-admin", "--config", str(file), "--listen", "tcp://127.0.0.1:0")
    assert answer_to(served.port, request).split(" ")[1] == "101"
    served = serve(
        "--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0?allowedOrigins=http://broker.example"
    )
    assert answer_to(served.port, request).split(" ")[1] == "101"
    assert (
        answer_to(served.port, request.replace("Origin: http://broker", "Origin: http://evil")).split(" ")[1]
        == "403"
    )


@pytest.mark.parametrize("method", METHODS)
def test_an_answer_says_what_is_allowed_and_why(broker: tuple[str, int], method: str) -> None:
    """In HTTP, however the request is cut; to a HEAD without a body."""
    with socket.create_connection(broker, WITHIN) as stream:
        for octet in f"{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\nCONNECT".encode():
            with suppress(OSError):  # it has answered as soon as it knew the method
                stream.sendall(bytes([octet]))
        came = b""
        with suppress(ConnectionResetError):
            while octets := stream.recv(4096):
                came += octets
    head, _, body = came.decode().partition("\r\n\r\n")
    assert head.split("\r\n")[0] == "HTTP/1.1 405 Method Not Allowed"
    assert {"Allow: GET", "Connection: close"} <= set(head.split("\r\n"))
    assert body == (
        ""
        if method == "HEAD"
        else f"{method} on a STOMP port; HTTP opens a WebSocket here, with GET, and nothing else (method-not-allowed)\n"
    )


def test_what_only_begins_like_http_is_stomp(broker: tuple[str, int]) -> None:
    for first in (b"GETS\n\n\0", b"POSTED\n\n\0", b"P\n\n\0", b"H\0"):
        with socket.create_connection(broker, WITHIN) as stream:
            stream.sendall(first)
            assert stream.recv(4096).startswith(b"ERROR\n"), first
