"""Frames of a client that sends and goes: they are obeyed, though its login, or a time in a log, is still being looked at."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stompbox.security import hash_password
from tests.conftest import Serve, Served
from tests.system.plain import Plain
from tests.system.transports import KINDS, Rude, connected, listeners, message, wait_until
from tests.users import users

NUMBERS = [b"%d" % number for number in range(300)]  # more frames than one turn of a WebSocket may have
CONNECT = b"CONNECT\naccept-version:1.2\nhost:localhost\nlogin:u\npasscode:%s\n\n\0"
FROM_A_TIME = b"SUBSCRIBE\nid:1\ndestination:/stream/times\nx-stream-offset:timestamp=1\n\n\0"


def send(body: bytes) -> bytes:
    return b"SEND\ndestination:/queue/last\nreceipt:%s\n\n%s\0" % (body, body)


def say_each(client: Rude, *frames: bytes) -> None:
    """Over WebSocket each in a message of its own, all in one write."""
    client.raw(b"".join(map(message, frames)) if client.kind == "websocket" else b"".join(frames))


def closes(client: Rude) -> None:
    client.stream.close()


def says_goodbye(client: Rude) -> None:
    """As its protocol wants it: close_notify of TLS, CLOSE of WebSocket."""
    if isinstance(client.stream, ssl.SSLSocket):
        client.stream.setblocking(False)
        with suppress(OSError):
            client.stream.unwrap()
    elif client.kind == "websocket":
        client.raw(message(struct.pack(">H", 1000), 8))
    client.stream.close()


@pytest.fixture
def served(serve: Serve, tmp_path: Path) -> Served:
    path = tmp_path / "stompbox.toml"
    path.write_text("memory = true\nfailed-login-delay = 1\n" + users("u:" + hash_password("right")))
    return serve("--config", str(path), "--no-admin", *listeners(tmp_path, "maxConnections=3"))


def taken(served: Served) -> list[bytes]:
    with Plain(served.port, headers={"login": "u", "passcode": "right"}) as plain:
        plain.send("SUBSCRIBE", {"id": "1", "destination": "/queue/last"})
        return [plain.receive().body for _ in NUMBERS]


@pytest.mark.parametrize("go", [closes, says_goodbye])
@pytest.mark.parametrize("kind", KINDS)
def test_who_sends_before_its_login_is_verified_and_goes_has_sent(
    served: Served, kind: str, go: Callable[[Rude], None]
) -> None:
    with connected(served, kind) as client:
        say_each(client, CONNECT % b"right", *map(send, NUMBERS))
        go(client)
    assert taken(served) == NUMBERS


@pytest.mark.parametrize("go", [closes, says_goodbye])
@pytest.mark.parametrize("kind", KINDS)
def test_so_has_who_subscribes_from_a_time_and_sends(
    served: Served, kind: str, go: Callable[[Rude], None]
) -> None:
    with connected(served, kind) as client:
        client.say(CONNECT % b"right")
        client.hear(b"\0\n")
        say_each(client, FROM_A_TIME, *map(send, NUMBERS))
        go(client)
    assert taken(served) == NUMBERS


def test_who_ends_its_side_alone_hears_that_all_was_done(served: Served) -> None:
    with connected(served, "tcp") as client:
        client.raw(CONNECT % b"right" + b"".join(map(send, NUMBERS)))
        client.stream.shutdown(socket.SHUT_WR)
        assert client.hear_all().count(b"RECEIPT\n") == len(NUMBERS)
    assert taken(served) == NUMBERS


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_a_wrong_login_is_not_obeyed_and_who_is_gone_takes_no_room(
    served: Served, kind: str
) -> None:
    for _ in range(2):
        with connected(served, kind) as client:
            say_each(client, CONNECT % b"wrong", *map(send, NUMBERS))
    wait_until(lambda: served.log.read_text().count("(login-failed)") == 2, "each wrong login is refused")
    with Plain(served.port, headers={"login": "u", "passcode": "right"}) as plain:
        plain.send("SUBSCRIBE", {"id": "1", "destination": "/queue/last"})
        for number in range(4):  # more than maxConnections
            with connected(served, kind) as client:
                say_each(client, CONNECT % b"right", send(b"%d" % number))
            assert plain.receive().body == b"%d" % number
