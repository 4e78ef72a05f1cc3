"""A connection from its first byte to its last: CONNECT and its answer, what must not come when, how each version closes."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import certify, needs_openssl, showing, wanting_certificates
from tests.conformance.wire import Answer, Client, Tcp, connected
from tests.conftest import Serve, end, start_broker
from tests.users import users

TRANSPORTS = pytest.mark.parametrize("transport", ["tcp", "websocket"])
VERSIONS = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])


def connect(client: Client, *headers: str, command: str = "CONNECT") -> Answer:
    client.say("\n".join([command, *headers, "", "\0"]).encode())
    answer = client.hear()
    assert answer is not None
    return answer


def assert_closed(client: Client, code: str) -> Answer:
    """An ERROR with what the house says of errors, and the close."""
    error = client.expect("ERROR")
    assert error.value("code") == code, str(error)
    assert error.value("content-type") == "text/plain"
    assert error.value("content-length") == str(len(error.body))
    assert error.value("message")
    assert client.hear() is None
    return error


# CONNECT and CONNECTED


@TRANSPORTS
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        ("1.0", "1.0"), ("1.1", "1.1"), ("1.2", "1.2"), ("1.0,1.1,1.2", "1.2"), ("1.2,1.1,1.0", "1.2"), ("1.0,1.1", "1.1"),
        (" 1.1 , 1.2 ", "1.2"), ("1.1,1.3,2.0", "1.1"), ("1.2,1.2", "1.2"), (None, "1.0"),
    ],
)  # fmt: skip
def test_highest_common_version(
    broker: tuple[str, int], command: str, asked: str | None, agreed: str, transport: str
) -> None:
    with connected(broker, transport) as client:
        lines = [] if asked is None else [f"accept-version:{asked}", "host:anything"]
        answer = connect(client, *lines, command=command)
        assert (answer.command, answer.value("version"), answer.body) == ("CONNECTED", agreed, b"")


@TRANSPORTS
@pytest.mark.parametrize("asked", ["", "1.3", "2.0,3.0", "1", "1.20", "v1.2", "1.0.0"])
def test_no_common_version(broker: tuple[str, int], asked: str, transport: str) -> None:
    """STOMP 1.2, Protocol Negotiation: an ERROR with the supported versions, and the close."""
    with connected(broker, transport) as client:
        client.say(f"CONNECT\naccept-version:{asked}\nhost:x\nreceipt:r\n\n\0".encode())
        assert assert_closed(client, "no-common-version").value("version") == "1.0,1.1,1.2"


@VERSIONS
def test_what_connected_says(broker: tuple[str, int], version: str) -> None:
    sessions = set()
    for _ in range(3):
        with connected(broker, "tcp") as client:
            answer = connect(
                client, f"accept-version:{version}", "request-id:r:1", "receipt:c 1", "heart-beat:0,0"
            )
            assert answer.value("version") == version
            assert (answer.value("response-id"), answer.value("receipt-id")) == ("r:1", "c 1")
            assert (answer.value("server") or "").startswith("Stompbox/")
            assert answer.value("heart-beat") == (None if version == "1.0" else "0,0")
            sessions.add(answer.value("session"))
            client.say(b"SEND\ndestination:/queue/none.said\nreceipt:s\n\n\0")
            assert client.expect("RECEIPT").value("receipt-id") == "s", "CONNECT itself gets no RECEIPT"
    assert len(sessions - {None, ""}) == 3


def test_connected_without_a_server_header(serve: Serve) -> None:
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0?disableStompServerHeader=true")
    with connected((served.host, served.port), "tcp") as client:
        assert connect(client, "accept-version:1.2").value("server") is None


@VERSIONS
def test_login_is_taken_raw(tmp_path: Path, serve: Serve, version: str) -> None:
    """STOMP 1.2, Value Encoding: CONNECT does not escape, so a passcode may hold backslashes and colons."""
    path = tmp_path / "raw.toml"
    path.write_text(
        'memory = true\n[[listener]]\nurl = "tcp://127.0.0.1:0"\n[[user]]\nname = "a\\\\tb"\npassword = ":=1\\\\n2"\n'
    )
    served = serve("--config", str(path), "--no-admin")
    with connected((served.host, served.port), "tcp") as client:
        assert (
            connect(client, f"accept-version:{version}", "login:a\\tb", "passcode::=1\\n2").command
            == "CONNECTED"
        )
    with connected((served.host, served.port), "tcp") as client:
        client.say(f"CONNECT\naccept-version:{version}\nlogin:a\\tb\npasscode:1\n\n\0".encode())
        assert_closed(client, "login-failed")


@TRANSPORTS
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "DISCONNECT", "ACK"])
def test_nothing_comes_before_connect(broker: tuple[str, int], command: str, transport: str) -> None:
    with connected(broker, transport) as client:
        client.say(f"{command}\ndestination:/queue/a\nid:1\nreceipt:r\n\n\0".encode())
        assert assert_closed(client, "not-connected").value("receipt-id") == "r"


@TRANSPORTS
@VERSIONS
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_a_second_connect_is_refused(
    broker: tuple[str, int], version: str, command: str, transport: str
) -> None:
    with connected(broker, transport) as client:
        client.log_in(version)
        client.say(f"{command}\naccept-version:{version}\nhost:localhost\n\n\0".encode())
        assert_closed(client, "already-connected")


@TRANSPORTS
@pytest.mark.parametrize("command", ["MESSAGE", "CONNECTED", "RECEIPT", "ERROR", "NACK"])
def test_what_is_no_command_of_1_0(broker: tuple[str, int], command: str, transport: str) -> None:
    with connected(broker, transport) as client:
        client.log_in("1.0")
        client.say(f"{command}\nmessage-id:1-1\n\n\0".encode())
        assert_closed(client, "unknown-command")


@pytest.mark.parametrize("first", [b"", b"CONNECT\naccept-ver"])
def test_a_login_that_takes_too_long(serve: Serve, first: bytes) -> None:
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0?handshakeTimeout=200")
    with connected((served.host, served.port), "tcp") as client:
        client.say(first)
        assert "200 ms" in assert_closed(client, "handshake-timeout").body.decode()


# Limits: an ERROR, and the close, in every version

LIMITS = "maxHeaderSize=200;maxHeaders=5;maxBodySize=100;maxFrameSizeBeforeLogin=128"
BEYOND = [
    ("command", b"S" * 300 + b"\n", "header-too-large"),
    ("head", b"SEND\ndestination:/queue/a\nlong:" + b"x" * 200 + b"\n\n\0", "header-too-large"),
    ("head without end", b"SEND\ndestination:/queue/a\nlong:" + b"x" * 200, "header-too-large"),
    ("headers", b"SEND\ndestination:/queue/a\n" + b"a:b\n" * 5 + b"\n\0", "too-many-headers"),
    ("body", b"SEND\ndestination:/queue/a\n\n" + b"x" * 101 + b"\0", "body-too-large"),
    ("body without end", b"SEND\ndestination:/queue/a\n\n" + b"x" * 101, "body-too-large"),
    ("announced body", b"SEND\ndestination:/queue/a\ncontent-length:101\n\n", "body-too-large"),
]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    served = start_broker(
        tmp_path_factory.mktemp("narrow"), "--memory", "--no-admin", "--listen", f"tcp://127.0.0.1:0?{LIMITS}"
    )
    yield served.host, served.port
    end(served)


@TRANSPORTS
@VERSIONS
@pytest.mark.parametrize(("data", "code"), [row[1:] for row in BEYOND], ids=[row[0] for row in BEYOND])
def test_what_is_beyond_a_limit(
    narrow: tuple[str, int], data: bytes, code: str, version: str, transport: str
) -> None:
    with connected(narrow, transport) as client:
        client.log_in(version)
        client.say(b"SEND\ndestination:/queue/a\na:b\na:c\nreceipt:r\n\n" + b"x" * 100 + b"\0")
        assert client.expect("RECEIPT").value("receipt-id") == "r", "what keeps to the limits passes"
        client.say(data)
        assert_closed(client, code)


@TRANSPORTS
def test_a_login_has_a_limit_of_its_own(narrow: tuple[str, int], transport: str) -> None:
    with connected(narrow, transport) as client:
        client.say(b"CONNECT\naccept-version:1.2\nlogin:" + b"x" * 100 + b"\n\n\0")
        assert_closed(client, "header-too-large")


# Who is behind it


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.7 127.0.0.1 50000 61613\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x7f\0\0\1\0\1\0\2",
    ],
)
def test_a_balancer_tells_whose_connection_it_is(serve: Serve, header: bytes) -> None:
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0?proxyProtocolEnabled=true")
    with connected((served.host, served.port), "tcp") as client:
        client.say(header + b"CONNECT\naccept-version:1.1\n\n\0SEND\ndestination:/queue/a\npriority:x\n\n\0")
        assert client.expect("CONNECTED").value("version") == "1.1"
        assert client.expect("ERROR").value("code") == "bad-priority"
        assert "192.0.2.7" in served.log.read_text()
    with connected((served.host, served.port), "tcp") as client:
        client.say(b"CONNECT\naccept-version:1.1\n\n\0")
        assert_closed(client, "bad-proxy-header")


def test_a_tls_client_on_a_plain_port_is_told(broker: tuple[str, int]) -> None:
    context = ssl.create_default_context()
    with socket.create_connection(broker) as stream, pytest.raises(ssl.SSLError):
        context.wrap_socket(stream, server_hostname="localhost")
    with connected(broker, "tcp") as client:
        client.say(b"\x16\x03\x01\x02\0\x01")
        assert_closed(client, "tls-not-spoken")


@needs_openssl
def test_a_certificate_is_a_login(tmp_path: Path, serve: Serve) -> None:
    certify(tmp_path, "ca", "server", "alice", "mallory")
    options = wanting_certificates(tmp_path, "server", "ca")
    path = tmp_path / "tls.toml"
    path.write_text(f'memory = true\n[[listener]]\nurl = "ssl://127.0.0.1:0?{options}"\n{users("alice")}')
    served = serve("--config", str(path), "--no-admin")
    for name, command in (("alice", "CONNECTED"), ("mallory", "ERROR")):
        context = showing(tmp_path, name, "ca")
        with (
            socket.create_connection((served.host, served.port)) as stream,
            context.wrap_socket(stream, server_hostname="localhost") as secure,
        ):
            assert connect(Client(Tcp(secure)), "accept-version:1.2").command == command


# The end


@TRANSPORTS
@VERSIONS
def test_disconnect_is_confirmed_then_the_broker_closes(
    broker: tuple[str, int], version: str, transport: str
) -> None:
    with connected(broker, transport) as client:
        client.log_in(version)
        client.say(b"SEND\ndestination:/queue/ended.first\nreceipt:1\n\n\0DISCONNECT\nreceipt:2\n\n\0")
        assert [client.expect("RECEIPT").value("receipt-id") for _ in range(2)] == ["1", "2"]
        assert client.hear() is None


@TRANSPORTS
def test_disconnect_without_a_receipt_closes(broker: tuple[str, int], transport: str) -> None:
    with connected(broker, transport) as client:
        client.log_in("1.2")
        client.say(b"DISCONNECT\n\n\0")
        assert client.hear() is None


@TRANSPORTS
@VERSIONS
def test_what_comes_after_disconnect_is_dropped(
    broker: tuple[str, int], version: str, transport: str
) -> None:
    destination = f"/queue/ended.{version}.{transport}"
    with connected(broker, transport) as client:
        client.log_in(version)
        client.say(
            f"DISCONNECT\nreceipt:1\n\n\0SEND\ndestination:{destination}\nreceipt:2\n\nlate\0".encode()
        )
        assert client.expect("RECEIPT").value("receipt-id") == "1"
        assert client.hear() is None
    with connected(broker, transport) as client:
        client.log_in(version)
        client.subscribe(destination)
        client.say(f"SEND\ndestination:{destination}\n\nnew\0".encode())
        assert client.expect("MESSAGE").body == b"new"


@VERSIONS
def test_an_error_is_read_although_more_was_on_its_way(broker: tuple[str, int], version: str) -> None:
    """STOMP 1.2, Connection Lingering: no reset that takes the ERROR away while the client still writes."""
    with connected(broker, "tcp") as client:
        client.log_in(version)
        client.say(b"NONSENSE\n\n\0" + b"SEND\ndestination:/queue/never\n\nx\0" * 100_000)
        assert_closed(client, "unknown-command")


@VERSIONS
def test_a_lost_connection_aborts_and_gives_back(broker: tuple[str, int], version: str) -> None:
    destination = f"/queue/lost.{version}"
    with connected(broker, "tcp") as other:
        other.log_in(version)
        other.say(f"SEND\ndestination:{destination}\nreceipt:1\n\nold\0".encode())
        other.expect("RECEIPT")
        with connected(broker, "tcp") as client:
            client.log_in(version)
            client.say(f"SUBSCRIBE\nid:0\ndestination:{destination}\nack:client\n\n\0".encode())
            assert client.expect("MESSAGE").value("redelivered") == "false"
            client.say(
                f"BEGIN\ntransaction:t\n\n\0SEND\ndestination:{destination}\ntransaction:t\nreceipt:2\n\nnew\0".encode()
            )
            assert client.expect("RECEIPT").value("receipt-id") == "2"
        other.say(f"SUBSCRIBE\nid:0\ndestination:{destination}\n\n\0".encode())
        again = other.expect("MESSAGE")
        assert (again.body, again.value("redelivered")) == (b"old", "true")
        other.say(f"SEND\ndestination:{destination}\n\nlast\0".encode())
        assert other.expect("MESSAGE").body == b"last"


@VERSIONS
def test_many_short_connections(broker: tuple[str, int], version: str) -> None:
    """STOMP 1.2, Connection Lingering: servers MUST support rapid connects and disconnects."""
    for number in range(200):
        with connected(broker, "tcp") as client:
            client.log_in(version)
            client.say(f"DISCONNECT\nreceipt:{number}\n\n\0".encode())
            assert client.expect("RECEIPT").value("receipt-id") == str(number)
