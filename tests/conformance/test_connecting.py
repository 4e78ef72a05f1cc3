"""Who may connect: virtual hosts, users of a host, required headers, how many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.brokers import Brokers
from tests.conformance.wire import Client, WebSocket, connected, websocket
from tests.users import users

HOSTS = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?{options}"
[[virtual-host]]
name = "green"
users = ["alice"]
[[virtual-host]]
name = "blue"
{default}
""" + users("alice:a", "bob:b")
ALICE, BOB = "login:alice\npasscode:a\n", "login:bob\npasscode:b\n"

CASES = [
    ("a host that is there", "hosts", f"host:green\n{ALICE}", None),
    ("a host that is not there", "hosts", f"host:red\n{ALICE}", "unknown-host"),
    ("no host", "hosts", ALICE, "unknown-host"),
    ("a user whom the host does not let in", "hosts", f"host:green\n{BOB}", "host-not-permitted"),
    ("a host for all users", "hosts", f"host:blue\n{BOB}", None),
    ("the default host takes the others", "default", f"host:red\n{BOB}", None),
    ("the default host takes who names none", "default", BOB, None),
    ("a wrong passcode", "default", "login:bob\npasscode:a\n", "login-failed"),
    ("no login", "default", "", "login-required"),
    ("requireHost", "strict", BOB, "missing-host"),
]


@pytest.fixture(scope="module")
def brokers(
    broker: tuple[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], tuple[str, int]]]:
    configurations = {
        "hosts": HOSTS.format(options="", default=""),
        "default": HOSTS.format(options="", default="default = true"),
        "strict": HOSTS.format(options="requireHost=true", default="default = true"),
        "few": 'memory = true\n[[listener]]\nurl = "tcp://127.0.0.1:0?maxConnections=2"\n',
    }
    with ExitStack() as stack:
        yield Brokers(broker, configurations, tmp_path_factory, stack).address


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_connect(
    brokers: Callable[[str], tuple[str, int]], case: tuple[str, str, str, str | None], transport: str
) -> None:
    _, configuration, headers, code = case
    with connected(brokers(configuration), transport) as client:
        client.say(f"CONNECT\naccept-version:1.2\n{headers}\n\0".encode())
        if code is None:
            assert client.expect("CONNECTED").value("version") == "1.2"
            return
        assert client.expect("ERROR").value("code") == code
        assert client.hear() is None


def test_so_many_connections_of_a_listener(brokers: Callable[[str], tuple[str, int]]) -> None:
    address = brokers("few")
    with connected(address, "tcp") as one, connected(address, "tcp") as two:
        one.log_in("1.2")
        two.log_in("1.2")
        with connected(address, "tcp") as three:
            three.say(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
            assert three.expect("ERROR").value("code") == "too-many-connections"
            assert three.hear() is None
        two.say(b"DISCONNECT\nreceipt:bye\n\n\0")
        assert two.expect("RECEIPT").value("receipt-id") == "bye"
        assert two.hear() is None


@pytest.mark.parametrize(
    ("passcode", "answers"), [("a", ["CONNECTED", "RECEIPT", "MESSAGE"]), ("wrong", ["ERROR"])]
)
def test_nothing_behind_a_login_is_obeyed_before_it_was_looked_at(
    brokers: Callable[[str], tuple[str, int]], passcode: str, answers: list[str]
) -> None:
    """WebSocket messages that the broker reads at once, in one segment: the login takes a while, what follows must wait."""
    messages = [
        f"CONNECT\naccept-version:1.2\nhost:green\nlogin:alice\npasscode:{passcode}\n\n\0",
        f"SUBSCRIBE\nid:0\ndestination:/queue/early.{passcode}\nreceipt:r\n\n\0",
        f"SEND\ndestination:/queue/early.{passcode}\n\n1\0",
    ]
    with websocket(brokers("hosts")) as opened:
        for message in messages:
            opened.protocol.send_text(message.encode())
        opened.socket.sendall(b"".join(opened.protocol.data_to_send()))
        client = Client(WebSocket(opened))
        assert [client.expect(command).command for command in answers] == answers
        if passcode == "wrong":
            assert client.hear() is None
    with connected(brokers("hosts"), "tcp") as late:
        late.say(f"CONNECT\naccept-version:1.2\nhost:green\n{ALICE}\n\0".encode())
        late.expect("CONNECTED")
        late.subscribe(f"/queue/early.{passcode}")
        late.say(b"SEND\ndestination:/queue/nobody\nreceipt:last\n\n\0")
        assert late.expect("RECEIPT").value("receipt-id") == "last"
