"""Cases of the wire through a node that follows, which a client must not notice: some of a few files, in 1.2.

`make followers` plays all."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.certificates import certify, needs_openssl, showing, wanting_certificates
from tests.conformance import test_flow, test_subscriptions
from tests.conformance.playing import played
from tests.conformance.script import Case
from tests.conformance.wire import Client, Tcp, connected
from tests.conftest import Served, end, start_follower
from tests.users import users

FILES = (test_subscriptions, test_flow)
TTL = 1.0  # seconds


def ended(served: Served) -> str:
    """What the two nodes have said."""
    end(served)
    said = served.log.read_text()
    assert "Traceback" not in said
    return said


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """In place of the session's: a node that follows."""
    served = start_follower(tmp_path_factory.mktemp("nodes"), "--listen", "tcp://127.0.0.1:0", "--no-admin")
    yield served.host, served.port
    assert "follows, and passes clients to" in ended(served)


def some_of(cases: list[Case]) -> list[Case]:
    """Every third of those that need no broker of their own, in the last version."""
    return [replace(case, versions=case.versions[-1:]) for case in cases if not case.broker][::3]


CASES = [case for file in FILES for case in some_of(file.CASES)]
test_over_tcp, test_over_websocket = played(CASES, CASES[::4])


@needs_openssl
def test_tls_ends_at_the_follower_and_a_certificate_is_a_login(tmp_path: Path) -> None:
    """The leader is not told where the follower's keys lie, and takes its clients for whom their certificates name."""
    certify(tmp_path, "ca", "server", "alice", "mallory")
    options = wanting_certificates(tmp_path, "server", "ca")
    file = tmp_path / "tls.toml"
    file.write_text(f'[[listener]]\nurl = "ssl://127.0.0.1:0?{options}"\n{users("alice")}')
    served = start_follower(tmp_path / "nodes", "--config", str(file), "--no-admin")
    for name, command in (("alice", "CONNECTED"), ("mallory", "ERROR")):
        context = showing(tmp_path, name, "ca")
        with (
            socket.create_connection((served.host, served.port)) as stream,
            context.wrap_socket(stream, server_hostname="localhost") as secure,
        ):
            client = Client(Tcp(secure))
            client.say(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
            client.expect(command)
    ended(served)


def test_the_time_to_live_of_all_listeners_counts_there_too(tmp_path: Path) -> None:
    file = tmp_path / "impatient.toml"
    file.write_text(f'connection-ttl-override = {TTL * 1000:.0f}\n[[listener]]\nurl = "tcp://127.0.0.1:0"\n')
    served = start_follower(tmp_path / "nodes", "--config", str(file), "--no-admin")
    since = time.monotonic()
    with connected((served.host, served.port), "tcp") as client:
        client.log_in("1.2")
        assert client.expect("ERROR").value("code") == "connection-ttl"
        assert time.monotonic() - since >= TTL * 0.9
    ended(served)
