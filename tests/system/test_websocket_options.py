"""What a listener's options make of WebSocket connections, asked by a library: kinds of messages, compression, origins, limits."""

from __future__ import annotations

import re
import ssl
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode
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
        assert (
            "permessage-deflate" in client.response.headers.get("Sec-WebSocket-Extensions", "")
        ) is expected
        client.send(LOGIN)
        assert str(client.recv(timeout=20)).startswith("CONNECTED")


def test_origins(serve: Serve) -> None:
    with opened(serve, "allowedOrigins=https://a.example", origin=Origin("https://a.example")) as client:
        client.send(LOGIN)
        assert str(client.recv(timeout=20)).startswith("CONNECTED")
    with pytest.raises(InvalidStatus, match="403"):
        opened(serve, "allowedOrigins=https://a.example", origin=Origin("https://b.example"))


FRAME = "SEND\ndestination:/queue/q\n\n" + "a" * 70000 + "\0"
PARTS = [FRAME[at : at + 30000] for at in range(0, len(FRAME), 30000)]


@pytest.mark.parametrize("message", [FRAME, PARTS], ids=["one frame", "its fragments together"])
@pytest.mark.parametrize("compression", ["deflate", None])
def test_a_message_that_is_too_long_is_refused(
    serve: Serve, message: str | list[str], compression: str | None
) -> None:
    """In STOMP, and then as RFC 6455, 7.4.1 has it. What came before it in the same breath is obeyed."""
    with opened(
        serve,
        "webSocketMaxFramePayloadLength=70000&webSocketCompressionSupported=true",
        compression=compression,
    ) as client:
        client.send(LOGIN)
        assert str(client.recv(timeout=20)).startswith("CONNECTED")
        client.send("SEND\ndestination:/queue/q\nreceipt:before\n\n\0")
        client.send(message)
        said, code = until_closed(client)
        assert "receipt-id:before" in said and "code:websocket-frame-too-large" in said
        assert "the limit is 70000" in said or "more than 70000 octets" in said
        assert code == CloseCode.MESSAGE_TOO_BIG


@pytest.mark.parametrize("compression", ["deflate", None])
def test_so_is_one_before_the_login(serve: Serve, compression: str | None) -> None:
    with opened(
        serve, "maxFrameSizeBeforeLogin=20000&webSocketCompressionSupported=true", compression=compression
    ) as client:
        client.send("CONNECT\naccept-version:1.2\nhost:localhost\nlogin:" + "a" * 30000 + "\n\n\0")
        said, code = until_closed(client)
        assert "code:too-much-before-login" in said and "maxFrameSizeBeforeLogin" in said
        assert code == CloseCode.MESSAGE_TOO_BIG


def until_closed(client: ClientConnection) -> tuple[str, int]:
    """All that came, and the code of the close."""
    said = ""
    with suppress(ConnectionClosed):
        while True:
            said += str(client.recv(timeout=20))
    assert client.close_code is not None
    return said, client.close_code


def test_the_name_of_the_highest_version(serve: Serve) -> None:
    with opened(
        serve, "", subprotocols=[Subprotocol("v10.stomp"), Subprotocol("v12.stomp"), Subprotocol("v11.stomp")]
    ) as client:
        assert client.subprotocol == "v12.stomp"


def test_over_tls(serve: Serve) -> None:
    certificate, key = (ROOT / "tests/client" / name for name in ("tls-certificate.pem", "tls-key.pem"))
    served = serve(
        "--memory", "--no-admin", "--listen", f"ssl://127.0.0.1:0?keyStorePath={certificate};keyPath={key}"
    )
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    with connect(f"wss://127.0.0.1:{served.port}/stomp", ssl=context) as client:
        client.send(LOGIN)
        assert str(client.recv(timeout=20)).startswith("CONNECTED")


def test_a_page_of_the_how_to_hears_the_news(serve: Serve, tmp_path: Path) -> None:
    """docs/howto/browsers.md: its configuration, and its page's destination, of a broker where nobody has made anything."""
    page = (ROOT / "docs" / "howto" / "browsers.md").read_text(encoding="utf-8")
    toml = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    asked = re.search(r'client\.subscribe\("([^"]+)"', page)
    assert toml is not None and asked is not None
    config = tmp_path / "stompbox.toml"
    config.write_text(re.sub(r":616\d\d", ":0", toml[1].replace(password_of(toml[1]), "known")))
    served = serve("--memory", "--no-admin", "--config", str(config))
    port = int(served.listeners[1].partition("?")[0].rpartition(":")[2])
    login = LOGIN.replace("\n\n", "\nlogin:web\npasscode:known\n\n")
    with connect(f"ws://127.0.0.1:{port}/ws", origin=Origin("https://shop.example")) as client:
        client.send(login)
        assert str(client.recv(timeout=20)).startswith("CONNECTED")
        client.send(f"SUBSCRIBE\nid:1\ndestination:{asked[1]}\nreceipt:r\n\n\0")
        assert str(client.recv(timeout=20)).startswith("RECEIPT")


def password_of(toml: str) -> str:
    """That of the page's one user, as a configuration has it: a hash of what nobody knows here."""
    [user] = tomllib.loads(toml)["user"]
    return str(user["password"])
