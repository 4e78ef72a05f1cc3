"""`stompbox replay` against a live broker that keeps what was consumed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import forked
from tests.conftest import Serve, Served
from tests.system.plain import Plain

TOML = """
[[listener]]
url = "tcp://127.0.0.1:0?stompMinLargeMessageSize=50000"

[[address-setting]]
match = "kept.#"
retention-messages = 1000

[[address-setting]]
match = "kept.few"
retention-messages = 3
"""


@pytest.fixture
def served(serve: Serve, tmp_path: Path) -> Served:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "stompbox.toml").write_text(TOML)
    return serve("--data", str(tmp_path / "data"), "--no-admin")


@pytest.fixture
def replay(served: Served) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    def call(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return forked.run("replay", *arguments, "--url", f"stomp://127.0.0.1:{served.port}")

    return call


Replay = Callable[..., subprocess.CompletedProcess[bytes]]


def consumed(served: Served, destination: str, *bodies: bytes, **headers: str) -> None:
    """Each is sent, delivered and acknowledged, and on disk."""
    with Plain(served.port) as client:
        client.send(
            "SUBSCRIBE",
            {"destination": destination, "id": "1", "ack": "client-individual", "consumer-window-size": "-1"},
        )
        for number, body in enumerate(bodies):
            client.send("SEND", {"destination": destination, "number": str(number), **headers}, body)
            client.send("ACK", {"id": client.receive().headers["ack"], "receipt": "acked"})
            assert client.receive().headers["receipt-id"] == "acked"
        client.send("SEND", {"destination": "/queue/sync", "receipt": "stored"})
        assert client.receive().headers["receipt-id"] == "stored"


def waiting(served: Served, destination: str, count: int) -> list[tuple[bytes, dict[str, str]]]:
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": destination, "id": "1"})
        found = [client.receive() for _ in range(count)]
        assert client.sync() == [], "nothing more is there"
        return [(frame.body, dict(frame.headers)) for frame in found]


def test_what_was_consumed_comes_again(served: Served, replay: Replay) -> None:
    consumed(served, "/queue/kept.orders", b"0", b"1", b"2", color="red", expires="4000000000000")
    done = replay("/queue/kept.orders", "/queue/again", "--json", "--header", "why:audit")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {**result, "seconds": 0} == {
        "address": "kept.orders", "destination": "/queue/again", "from": 0, "to": 3, "messages": 3, "bytes": 3, "seconds": 0,
    }  # fmt: skip
    found = waiting(served, "/queue/again", 3)
    assert [body for body, _ in found] == [b"0", b"1", b"2"]
    headers = found[1][1]
    assert {name: headers[name] for name in ("number", "color", "why", "original-destination", "destination")} == {
        "number": "1", "color": "red", "why": "audit", "original-destination": "/queue/kept.orders", "destination": "/queue/again",
    }  # fmt: skip
    assert "expires" not in headers


def test_expired_or_not_a_part_is_copied_by_offset_and_time(served: Served, replay: Replay) -> None:
    consumed(served, "/queue/kept.parts", b"0", b"1", b"2", b"3")
    middle = datetime.now(UTC).isoformat()
    while datetime.now(UTC).timestamp() * 1000 // 1 == datetime.fromisoformat(middle).timestamp() * 1000 // 1:
        pass  # the clock of the log counts ms
    consumed(served, "/queue/kept.parts", b"4", b"5")
    for number, (bounds, expected) in enumerate([
        (("--from", "1", "--to", "3"), b"12"),
        (("--from", middle), b"45"),
        (("--to", middle), b"0123"),
        (("--from", "latest"), b""),
        (("--from", "4", "--to", "2"), b""),
        (("--to", "99"), b"012345"),
    ]):  # fmt: skip
        done = replay("kept.parts", f"/queue/part.{number}", *bounds)
        assert done.returncode == 0, done.stderr
        assert (
            b"".join([body for body, _ in waiting(served, f"/queue/part.{number}", len(expected))])
            == expected
        ), bounds


def test_an_address_can_be_replayed_into_itself(served: Served, replay: Replay) -> None:
    consumed(served, "/queue/kept.self", b"0", b"1")
    assert replay("kept.self", "/queue/kept.self").returncode == 0
    assert [body for body, _ in waiting(served, "/queue/kept.self", 2)] == [b"0", b"1"]


def test_large_bodies_are_copied_too(served: Served, replay: Replay) -> None:
    body = bytes(range(256)) * 1000
    consumed(served, "/queue/kept.large", b"small", body, b"small again")
    done = replay("kept.large", "/queue/large.again")
    assert done.returncode == 0, done.stderr
    assert [found for found, _ in waiting(served, "/queue/large.again", 3)] == [
        b"small",
        body,
        b"small again",
    ]


def test_a_rate_is_obeyed(served: Served, replay: Replay) -> None:
    consumed(served, "/queue/kept.slow", *[b"x"] * 5)
    done = replay("kept.slow", "/queue/slow.again", "--rate", "10", "--json")
    assert json.loads(done.stdout)["seconds"] >= 0.4


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("no.such", "/queue/x"), 1, b"no.such"),
        (("kept.#", "/queue/x"), 1, b"not one address"),
        (("kept.few", "/queue/x", "--from", "0"), 1, b"holds offsets 7 to 9; --from is 0"),
        (("kept.few", "/queue/x", "--from", "77"), 1, b"--from is 77"),
        (("kept.few", "/queue/x", "--from", "yesterday"), 2, b"--from is 'yesterday'"),
        (("kept.few", "/queue/x", "--to", "2026-11-22T05:00:00"), 2, b"without zone"),
        (("kept.few", "/queue/x", "--rate", "0"), 2, b"--rate"),
        (("kept.few", "/queue/x", "--header", "nocolon"), 2, b"nocolon"),
        (("kept.few", "/stream/x"), 1, b"not sent to"),
    ],
)
def test_wrong_use_says_what_is_wrong(
    served: Served, replay: Replay, arguments: tuple[str, ...], code: int, word: bytes
) -> None:
    consumed(served, "/queue/kept.few", *[b"x"] * 10)
    done = replay(*arguments)
    assert (done.returncode, word in done.stderr) == (code, True), done.stderr
    assert b"Traceback" not in done.stderr


def test_who_cannot_go_on_says_where_it_stopped(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "stompbox.toml").write_text(
        TOML + '[[address-setting]]\nmatch = "full"\naddress-full-policy = "FAIL"\nmax-size-messages = 2\n'
    )
    served = serve("--data", str(tmp_path / "data"), "--no-admin")
    consumed(served, "/queue/kept.orders", *[b"x"] * 5)
    command = [
        sys.executable,
        "-m",
        "stompbox",
        "replay",
        "kept.orders",
        "/queue/full",
        "--url",
        f"stomp://127.0.0.1:{served.port}",
    ]
    done = subprocess.run([*command, "--window", "1"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"is full (max-size-messages 2)" in done.stderr
    (where,) = re.findall(rb"--from (\d+@[0-9a-f]{16}) goes on", done.stderr)
    rest = [*command[:5], "/queue/rest", *command[6:], "--from"]
    again = subprocess.run([*rest, where.decode()], capture_output=True, timeout=60, check=False)
    assert again.returncode == 0, again.stderr
    other = where.decode().partition("@")[0] + "@0123456789abcdef"
    refused = subprocess.run([*rest, other], capture_output=True, timeout=60, check=False)
    assert (
        refused.returncode,
        b"is another one" in refused.stderr,
        b"0123456789abcdef" in refused.stderr,
    ) == (1, True, True)
