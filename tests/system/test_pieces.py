"""Frames that come in pieces and go beyond a limit: an ERROR that arrives, and the close, over each transport."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Served, end, start_broker
from tests.system.transports import KINDS, connected, listeners, message

PIECE = b"y" * 1000
Case = tuple[bytes, bytes, int, str]
LOGIN = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"

# what comes first, the piece, how many of them, the code
AFTER_LOGIN = [
    (b"SEND\nx:", PIECE, 200, "header-too-large"),
    (b"SEND\n", b"x:1\n", 17_000, "header-too-large"),
    (b"SEND\ndestination:/queue/a\n\n", PIECE, 300, "body-too-large"),
    (b"SUBSCRIBE\nid:1\n\n", PIECE, 300, "body-too-large"),
    (b"SEND\ndestination:/queue/a\ncontent-length:300000\n\n", PIECE, 300, "body-too-large"),
    (b"SEND\nx:\\t", PIECE, 200, "header-too-large"),
]
BEFORE_LOGIN = [
    (b"SEND\nx:", PIECE, 200, "header-too-large"),
    (b"CONNECT\nlogin:", PIECE, 100, "header-too-large"),
    (b"CONNECT\n\n", PIECE, 100, "body-too-large"),
    (b"\n", b"\n" * 1000, 100, "too-much-before-login"),
    (b"\r\n", b"\r\n\0" * 300, 100, "too-much-before-login"),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("pieces")
    served = start_broker(
        folder, "--memory", "--no-admin", *listeners(folder, "maxBodySize=200000;stompMinLargeMessageSize=-1")
    )
    yield served
    end(served)
    assert "Traceback" not in served.log.read_text()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", AFTER_LOGIN)
def test_what_grows_beyond_a_limit(small: Served, case: Case, kind: str) -> None:
    first, piece, count, code = case
    with connected(small, kind) as client:
        client.log_in()
        client.say(first)
        for _ in range(count):
            client.say(piece)
        said = client.hear_all()
        assert b"ERROR" in said
        assert b"\ncode:" + code.encode() + b"\n" in said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", BEFORE_LOGIN)
def test_the_same_before_the_login(small: Served, case: Case, kind: str) -> None:
    first, piece, count, code = case
    with connected(small, kind) as client:
        client.say(first)
        for _ in range(count):
            client.say(piece)
        said = client.hear_all()
        assert b"ERROR" in said
        assert b"\ncode:" + code.encode() + b"\n" in said


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_arrives_although_the_client_says_more(small: Served, kind: str) -> None:
    """What is on its way when the broker refuses is read and dropped: unread it would reset the connection, and the ERROR with it."""
    with connected(small, kind) as client:
        client.log_in()
        client.say(b"SEND\nx:" + b"y" * 70_000)
        for _ in range(40):
            client.say(b"z" * 100_000)
        assert b"\ncode:header-too-large\n" in client.hear_all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_with_the_login_may_be_much(small: Served, kind: str) -> None:
    """The limit is that of what comes before the login ends, not of what was sent together with it."""
    with connected(small, kind) as client:
        send = b"SEND\ndestination:/topic/much\n\n" + b"x" * 900 + b"\0"
        parts = [b"\n" * 60_000 + LOGIN, send * 300 + b"DISCONNECT\nreceipt:bye\n\n\0"]
        client.raw(b"".join([message(part) for part in parts] if kind == "websocket" else parts))
        said = client.hear_all()
        assert b"CONNECTED" in said
        assert b"receipt-id:bye" in said
        assert b"ERROR" not in said
