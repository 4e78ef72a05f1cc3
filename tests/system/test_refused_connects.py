"""A CONNECT that is refused: in every version, for every reason, nothing that the client has sent behind it is obeyed."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stompbox.security import hash_password
from tests.certificates import certify, needs_openssl, showing, wanting_certificates
from tests.conformance.wire import WITHIN, Client, Tcp, connected
from tests.conftest import Serve, Served, end, start_broker
from tests.system.plain import Plain
from tests.users import users

VERSIONS = ["1.0", "1.1", "1.2"]
HASHED = hash_password("right")
USERS = f"""
failed-login-delay = 0
max-failed-logins = 0
{users("plain:right", "hashed:" + HASHED)}
[[virtual-host]]
name = "main"
default = true
[[virtual-host]]
name = "closed"
users = ["plain"]
"""

# What is refused: broker, options of the listener, headers of CONNECT, code
RIGHT = "login:{}\npasscode:right\n"
WRONG = "login:{}\npasscode:wrong\n"
REASONS = {
    "no login": ("users", "", "", "login-required"),
    "no passcode": ("users", "", "login:plain\n", "login-required"),
    "no login where it is required": ("users", "requireLogin=true", "", "login-required"),
    "no users, and a login is required": ("nobody", "requireLogin=true", "", "login-required"),
    "openmq": ("nobody", "dialect=openmq", "", "login-required"),
    "a wrong passcode": ("users", "", WRONG.format("plain"), "login-failed"),
    "a wrong passcode, hashed": ("users", "", WRONG.format("hashed"), "login-failed"),
    "an unknown user": ("users", "", WRONG.format("nobody"), "login-failed"),
    "a full listener": ("nobody", "maxConnections=0", "", "too-many-connections"),
    "a full listener, and a right login": (
        "users",
        "maxConnections=0",
        RIGHT.format("plain"),
        "too-many-connections",
    ),
    "too many of a user": ("users", "maxConnectionsPerUser=0", RIGHT.format("plain"), "too-many-connections"),
    "too many of a user, hashed": (
        "users",
        "maxConnectionsPerUser=0",
        RIGHT.format("hashed"),
        "too-many-connections",
    ),
    "a host of others": ("users", "", "host:closed\n" + RIGHT.format("hashed"), "host-not-permitted"),
    "a body": ("nobody", "", "content-length:1\n", "body-not-allowed"),
    "a transaction": ("nobody", "", "transaction:t\n", "transaction-not-allowed"),
    "a bad heart-beat": ("nobody", "", "heart-beat:x\n", "bad-heart-beat"),
    "no host where it is required": ("nobody", "requireHost=true", "", "missing-host"),
}
NOT_IN_1_0 = {"a bad heart-beat", "no host where it is required"}
ONLY_IN_1_2 = {"a body"}
CASES = [
    (reason, version)
    for reason in REASONS
    for version in VERSIONS
    if (version != "1.0" or reason not in NOT_IN_1_0) and (version == "1.2" or reason not in ONLY_IN_1_2)
]
OPTIONS = {
    name: sorted({"", *[row[1] for row in REASONS.values() if row[0] == name]})
    for name in ("users", "nobody")
}

SEND = "SEND\ndestination:/queue/{0}\nreceipt:r\n\nx\0"
BEHIND = {
    "SEND": SEND,
    "a run of SENDs": SEND * 200,
    "a large SEND": "SEND\ndestination:/queue/{0}\nreceipt:r\n\n" + "x" * 300_000 + "\0",
    "SUBSCRIBE": "SUBSCRIBE\nid:1\ndestination:/queue/{0}\nreceipt:r\n\n\0",
    "a durable SUBSCRIBE": "SUBSCRIBE\nid:1\ndestination:/topic/{0}\ndurable-subscriber-name:n\nreceipt:r\n\n\0",
    "a transaction": "BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/{0}\ntransaction:t\n\nx\0COMMIT\ntransaction:t\nreceipt:r\n\n\0",
    "a request": "SEND\ndestination:stompbox.requests\nrequest:describe\nrequest-id:1\ndestinations:/queue/{0}\ncreate:true\n\n\0",
    "ACK": "ACK\nid:1-0\nsubscription:1\nmessage-id:1-0\nreceipt:r\n\n\0",
    "NACK": "NACK\nid:1-0\nsubscription:1\nmessage-id:1-0\nreceipt:r\n\n\0",
    "UNSUBSCRIBE": "UNSUBSCRIBE\nid:1\nreceipt:r\n\n\0",
    "DISCONNECT": "DISCONNECT\nreceipt:r\n\n\0",
    "another CONNECT": "CONNECT\naccept-version:1.2\nlogin:plain\npasscode:right\n\n\0" + SEND,
    "no frame": "\0\0BLA\n\n\0",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    """One with users, and one without; the first listener of each refuses nobody who knows a passcode."""
    found = {}
    for name, text in (("users", USERS), ("nobody", "")):
        listeners = "".join(
            [f'[[listener]]\nurl = "tcp://127.0.0.1:0?{options}"\n' for options in OPTIONS[name]]
        )
        folder = tmp_path_factory.mktemp(name)
        (folder / "stompbox.toml").write_text(f"memory = true\n{text}{listeners}")
        found[name] = start_broker(folder, "--no-admin")
    yield found
    for served in found.values():
        end(served)


def address_of(served: Served, name: str, options: str) -> tuple[str, int]:
    host, _, port = served.listeners[OPTIONS[name].index(options)].removeprefix("tcp://").rpartition(":")
    return host, int(port)


def made(served: Served, name: str) -> set[str]:
    """The addresses that there are."""
    headers = {"host": "main", "login": "plain", "passcode": "right"} if name == "users" else {}
    with Plain(served.port, headers=headers) as client:
        client.send(
            "SEND",
            {
                "destination": "stompbox.requests",
                "request": "describe",
                "request-id": "1",
                "destinations": "/queue/#",
            },
        )
        return set(json.loads(client.receive().body)["addresses"])


def refused(address: tuple[str, int], transport: str, version: str, headers: str, behind: str) -> str:
    """The code of the ERROR for a CONNECT, after which the broker closes."""
    accept = "" if version == "1.0" else f"accept-version:{version}\n"
    body = "x" if "content-length" in headers else ""
    with connected(address, transport) as client:
        client.say(f"CONNECT\n{accept}{headers}\n{body}\0{behind}".encode())
        error = client.hear()
        assert error is not None and error.command == "ERROR", str(error)
        after = client.hear()
        assert after is None, f"{after} after {error}"
        return error.value("code") or ""


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
@pytest.mark.parametrize(("reason", "version"), CASES)
def test_nothing_behind_a_refused_connect_is_obeyed(
    brokers: dict[str, Served], reason: str, version: str, transport: str
) -> None:
    name, options, headers, code = REASONS[reason]
    served = brokers[name]
    address = address_of(served, name, options)
    where = f"{reason}.{version}.{transport}".replace(" ", "-").replace(",", "")
    for kind, frames in BEHIND.items():
        named = f"{where}.{kind.replace(' ', '-')}"
        # one WebSocket message larger than what comes before login is refused as such, whatever else is wrong with it
        allowed = (
            {code, "too-much-before-login"} if (transport, kind) == ("websocket", "a large SEND") else {code}
        )
        assert refused(address, transport, version, headers, frames.replace("{0}", named)) in allowed, kind
    assert not [found for found in made(served, name) if found.startswith(where)]


def wait_for(address: tuple[str, int], login: str) -> None:
    """Until a CONNECT is accepted."""
    deadline = time.monotonic() + WITHIN
    while True:
        with connected(address, "tcp") as client:
            client.say(f"CONNECT\naccept-version:1.1\n{login}\n\0".encode())
            answer = client.hear()
        if answer is not None and answer.command == "CONNECTED":
            return
        assert time.monotonic() < deadline, str(answer)


@pytest.mark.parametrize("login", ["plain", "hashed"])
def test_the_limit_of_a_users_connections_counts(tmp_path: Path, serve: Serve, login: str) -> None:
    """Refused ones take no place, and one that has ended gives its own back at once, though its socket is still open."""
    path = tmp_path / "stompbox.toml"
    path.write_text(
        f'memory = true\n{USERS}[[listener]]\nurl = "tcp://127.0.0.1:0?maxConnectionsPerUser=2"\n'
    )
    served = serve("--config", str(path), "--no-admin")
    address, headers = (served.host, served.port), RIGHT.format(login)
    one = Plain(served.port, "1.1", {"login": login, "passcode": "right"})
    with Plain(served.port, "1.1", {"login": login, "passcode": "right"}):
        for _ in range(3):
            assert (
                refused(address, "tcp", "1.1", headers, SEND.replace("{0}", "beyond"))
                == "too-many-connections"
            )
        one.send("DISCONNECT", {"receipt": "bye"})
        assert one.receive().command == "RECEIPT"
        with Plain(served.port, "1.1", {"login": login, "passcode": "right"}):
            assert refused(address, "tcp", "1.0", headers, "") == "too-many-connections"
    one.socket.close()
    wait_for(address, headers)
    assert "beyond" not in made(served, "users")


def test_the_limit_of_a_listeners_connections_counts(serve: Serve) -> None:
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0?maxConnections=1")
    address = served.host, served.port
    with Plain(served.port):
        for version in VERSIONS:
            assert (
                refused(address, "tcp", version, "", SEND.replace("{0}", "beyond")) == "too-many-connections"
            )
    wait_for(address, "")


def test_a_refused_one_hears_nothing_of_the_handshake_timeout(serve: Serve) -> None:
    """Its socket lingers for as long as the peer does not close, but all is said."""
    served = serve(
        "--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0?handshakeTimeout=100;requireLogin=true"
    )
    with socket.create_connection((served.host, served.port), WITHIN) as stream:
        stream.sendall(b"CONNECT\naccept-version:1.1\n\n\0")
        said = b""
        while data := stream.recv(4096):  # until the broker has closed
            said += data
        assert said.count(b"ERROR\n") == 1
        stream.settimeout(WITHIN)
        with Plain(served.port, "1.2", {"login": "a", "passcode": "b"}):
            pass
    assert "handshake-timeout" not in served.log.read_text()
    assert "Traceback" not in served.log.read_text()


@needs_openssl
def test_a_certificate_that_names_nobody(tmp_path: Path, serve: Serve) -> None:
    certify(tmp_path, "ca", "server", "mallory")
    options = wanting_certificates(tmp_path, "server", "ca")
    path = tmp_path / "tls.toml"
    listeners = (
        f'[[listener]]\nurl = "tcp://127.0.0.1:0"\n[[listener]]\nurl = "ssl://127.0.0.1:0?{options}"\n'
    )
    path.write_text(f"memory = true\n{USERS}{listeners}")
    served = serve("--config", str(path), "--no-admin")
    port = int(served.listeners[1].rpartition(":")[2])
    context = showing(tmp_path, "mallory", "ca")

    def refuse(version: str, frames: str) -> None:
        with (
            socket.create_connection((served.host, port), WITHIN) as stream,
            context.wrap_socket(stream, server_hostname="localhost") as secure,
        ):
            client = Client(Tcp(secure))
            accept = "" if version == "1.0" else f"accept-version:{version}\n"
            client.say(
                f"CONNECT\n{accept}host:main\n\n\0{frames.replace('{0}', 'mallory.was.here')}".encode()
            )
            error = client.expect("ERROR")
            assert error.value("code") == "login-failed"
            # TLS has no half-close: it lingers for a second, which all of them have together
            assert client.hear() is None

    with ThreadPoolExecutor(len(BEHIND)) as threads:
        list(
            threads.map(
                lambda case: refuse(*case),
                [(version, frames) for version in VERSIONS for frames in BEHIND.values()],
            )
        )
    assert made(served, "users") == set()
