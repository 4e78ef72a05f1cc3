"""Guesses at the same time, over real sockets: how many are looked at, and whom they keep out."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from stompbox.security import hash_password
from tests.conformance.wire import WITHIN, Client, Tcp
from tests.conftest import Serve, Served
from tests.users import users

USERS = "memory = true\n" + users("alice:" + hash_password("right"), "bob:right")


@pytest.fixture
def served(serve: Serve, tmp_path: Path) -> Served:
    path = tmp_path / "stompbox.toml"
    # who waits longer than that for its turn is not looked at, and a busy machine takes seconds for a hundred hashes
    path.write_text(f"failed-login-delay = 1\nmax-failed-login-delay = 10\n{USERS}")
    return serve("--config", str(path), "--no-admin", "--listen", "tcp://127.0.0.1:0?handshakeTimeout=60000")


def begun(served: Served, stack: ExitStack, source: str, login: str, passcode: str) -> Client:
    """A CONNECT that is on its way."""
    stream = stack.enter_context(socket.create_connection((served.host, served.port), WITHIN, (source, 0)))
    client = Client(Tcp(stream))
    client.say(
        f"CONNECT\naccept-version:1.1\nlogin:{login}\npasscode:{passcode}\n\n\0SEND\ndestination:/queue/in\n\n\0".encode()
    )
    return client


def answered(clients: list[Client]) -> Counter[str]:
    found: Counter[str] = Counter()
    for client in clients:
        answer = client.hear()
        assert answer is not None
        found[answer.value("code") or answer.command] += 1
    return found


@pytest.mark.parametrize("login", ["alice", "bob", "nobody"])
def test_of_300_guesses_at_once_20_are_looked_at(served: Served, login: str) -> None:
    with ExitStack() as stack:
        guesses = [begun(served, stack, "127.0.0.1", login, f"guess {number}") for number in range(299)]
        guesses.append(begun(served, stack, "127.0.0.1", login, "right"))
        assert answered(guesses) == {"login-failed": 20, "too-many-failed-logins": 280}


def test_guesses_of_others_keep_nobody_out(served: Served) -> None:
    """From elsewhere, as the same user: while they are looked at, and afterwards."""
    with ExitStack() as stack:
        guesses = [
            begun(served, stack, f"127.0.0.{2 + number % 8}", "alice", f"guess {number}")
            for number in range(160)
        ]
        assert answered([begun(served, stack, "127.0.0.10", "alice", "right")]) == {"CONNECTED": 1}
        found = answered(guesses)
        assert 100 <= found["login-failed"] <= 107, (
            f"{found}: 100 as this user, and one of each address that had none"
        )
        assert answered([begun(served, stack, "127.0.0.11", "alice", "right")]) == {"CONNECTED": 1}
        assert answered([begun(served, stack, "127.0.0.10", "bob", "right")]) == {"CONNECTED": 1}


def test_many_right_logins_at_once_all_pass(served: Served) -> None:
    with ExitStack() as stack:
        assert answered([begun(served, stack, "127.0.0.1", "alice", "right") for _ in range(200)]) == {
            "CONNECTED": 200
        }
