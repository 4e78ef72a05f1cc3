"""WebSocket as clients see it: messages that the strictest of them takes, and text that is none."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from stompbox.server.transport.webframes import MESSAGE

WITHIN = 20.0  # seconds


def test_a_backlog_comes_in_messages_that_every_client_takes(broker: tuple[str, int]) -> None:
    """A client that takes 8 KiB at a time, as Spring's does on Tomcat, gets a thousand messages at once."""
    sends = b"".join(
        [b"SEND\ndestination:/queue/small\n\n%04d%b\0" % (number, b"x" * 500) for number in range(1000)]
    )
    with socket.create_connection(broker, WITHIN) as stream:
        stream.sendall(b"CONNECT\n\n\0" + sends + b"DISCONNECT\nreceipt:1\n\n\0")
        while stream.recv(65536):
            pass
    found: list[str] = []
    deadline = time.monotonic() + WITHIN
    with connect(f"ws://{broker[0]}:{broker[1]}/ws", max_size=MESSAGE) as client:
        client.send(
            "CONNECT\naccept-version:1.2\nhost:h\n\n\0SUBSCRIBE\nid:1\ndestination:/queue/small\n\n\0"
        )
        while len(found) < 1001:
            message = client.recv(deadline - time.monotonic())
            assert isinstance(message, str)
            found += [one for one in message.split("\0\n") if one]
    assert [one.rpartition("\n")[2][:4] for one in found[1:]] == [f"{number:04}" for number in range(1000)]


LOGIN = "CONNECT\naccept-version:1.2\nhost:h\n\n\0"


@pytest.mark.parametrize(
    "bad",
    [
        [b"\xff"],
        [b"SEND\ndestination:/queue/utf\n\n\xc3", b"\0"],
        [b"\xe2\x82"],
        [b"ok", b"\xed\xa0\x80"],
        [b"\xc0\xaf"],
        [b"\xe2", b"\x82"],
    ],
    ids=repr,
)
def test_a_text_message_that_is_not_utf8_ends_it(broker: tuple[str, int], bad: list[bytes]) -> None:
    """RFC 6455, 8.1; what came in messages before it is obeyed."""
    with connect(f"ws://{broker[0]}:{broker[1]}/ws") as client:
        client.send(LOGIN)
        assert str(client.recv(WITHIN)).startswith("CONNECTED")
        client.send("SEND\ndestination:/topic/nobody\nreceipt:before\n\n\0")
        with suppress(ConnectionClosed):  # its last fragment, when the broker has heard enough
            client.send(bad, text=True)
        assert "receipt-id:before" in str(client.recv(WITHIN))
        assert "code:not-utf-8" in str(client.recv(WITHIN))
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(WITHIN)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1007


def test_characters_may_be_cut_between_fragments_and_binary_messages_hold_anything(
    broker: tuple[str, int],
) -> None:
    """And a text message begins anew whatever a binary one before it ended with."""
    euro = "€".encode()
    send = b"SEND\ndestination:/topic/nobody\nreceipt:%b\n\n"
    with connect(f"ws://{broker[0]}:{broker[1]}/ws") as client:
        client.send(LOGIN)
        assert str(client.recv(WITHIN)).startswith("CONNECTED")
        client.send([send % b"text" + euro[:1], euro[1:2], euro[2:] + b"\0"], text=True)
        assert "receipt-id:text" in str(client.recv(WITHIN))
        client.send(send % b"binary" + euro[:2] + b"\xff\0" + send % b"half" + euro[:1])
        assert "receipt-id:binary" in _text(client.recv(WITHIN))
        client.send("\0")
        assert "receipt-id:half" in _text(client.recv(WITHIN))


def _text(message: str | bytes) -> str:
    return message if isinstance(message, str) else message.decode()
