"""What a listener's options make of WebSocket connections, asked by a library: kinds of messages, compression, origins, limits."""

from __future__ import annotations

import ssl

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from tests.conftest import ROOT, Serve

LOGIN = "CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"


def opened(serve: Serve, options: str, **how: object) -> ClientConnection:
    served = serve("--memory", "--no-admin", "--listen", f"tcp://127.0.0.1:0?{options}")
    return connect(f"ws://127.0.0.1:{served.port}/stomp", **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "sent", "kind"),
    [
        ("webSocketEncoderType=text", LOGIN.encode(), str),
        ("webSocketEncoderType=binary", LOGIN, bytes),
        ("webSocketEncoderType=auto", LOGIN, str),
        ("webSocketEncoderType=auto", LOGIN.encode(), bytes),
    ],
)
def test_the_kind_of_messages(serve: Serve, options: str, sent: str | bytes, kind: type) -> None:
    with opened(serve, options) as client:
        client.send(sent)
        answer = client.recv(timeout=20)
        assert isinstance(answer, kind)
        assert answer.startswith("CONNECTED" if kind is str else b"CONNECTED")  # type: ignore[arg-type]


@pytest.mark.parametrize(("is_on", "expected"), [("true", True), ("false", False)])
def test_compression(serve: Serve, is_on: str, expected: bool) -> None:
    with opened(serve, f"webSocketCompressionSupported={is_on}") as client:
        assert client.response is not None
        assert ("permessage-deflate" in client.response.headers.get("Sec-WebSocket-Extensions", "")) is expected
        client.send(LOGIN)
        assert str(client.recv(timeout=20)).startswith("CONNECTED")


def test_origins(serve: Serve) -> None:
    with opened(serve, "allowedOrigins=https://a.example", origin=Origin("https://a.example")) as client:
        client.send(LOGIN)
        assert str(client.recv(timeout=20)).startswith("CONNECTED")
    with pytest.raises(InvalidStatus, match="403"):
        opened(serve, "allowedOrigins=https://a.example", origin=Origin("https://b.example"))


def test_a_message_that_is_too_long_is_refused(serve: Serve) -> None:
    with opened(serve, "webSocketMaxFramePayloadLength=70000") as client:
        client.send(LOGIN)
        assert str(client.recv(timeout=20)).startswith("CONNECTED")
        client.send("SEND\ndestination:/queue/q\n\n" + "a" * 70000 + "\0")
        with pytest.raises(ConnectionClosed):
            while True:
                assert str(client.recv(timeout=20)).startswith("ERROR")


def test_the_name_of_the_highest_version(serve: Serve) -> None:
    with opened(serve, "", subprotocols=[Subprotocol("v10.stomp"), Subprotocol("v12.stomp"), Subprotocol("v11.stomp")]) as client:
        assert client.subprotocol == "v12.stomp"


def test_over_tls(serve: Serve) -> None:
    certificate, key = (ROOT / "tests/client" / name for name in ("tls-certificate.pem", "tls-key.pem"))
    served = serve("--memory", "--no-admin", "--listen", f"ssl://127.0.0.1:0?keyStorePath={certificate};keyPath={key}")
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    with connect(f"wss://127.0.0.1:{served.port}/stomp", ssl=context) as client:
        client.send(LOGIN)
        assert str(client.recv(timeout=20)).startswith("CONNECTED")
