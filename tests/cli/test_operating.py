"""The commands for operators against a live broker: what they print, what they do, how they fail."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompbox.cli.asking import plain, span
from stompbox.message import Run, Shape
from stompbox.store.chunks import encode
from tests import forked
from tests.admin.conftest import PLACES
from tests.admin.test_access import USERS
from tests.admin.test_views import request
from tests.conftest import Serve, Served, end, start_broker
from tests.system.plain import Plain


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("operating")
    served = start_broker(folder, "--data", str(folder / "data"), *PLACES)
    yield served
    end(served)


def stompbox(served: Served, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """With the addresses of the broker in the environment."""
    places = {"STOMPBOX_URL": f"stomp://127.0.0.1:{served.port}", "STOMPBOX_ADMIN_URL": served.admin}
    return forked.text(forked.run(*arguments, environment={**os.environ, **places, **environment}))


def printed(served: Served, *arguments: str) -> str:
    done = stompbox(served, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def send(served: Served, destination: str, *bodies: bytes) -> None:
    with Plain(served.port) as client:
        for body in bodies:
            client.send("SEND", {"destination": destination, "receipt": "r", "colour": "red"}, body)
            assert client.receive().headers["receipt-id"] == "r"


def test_status(served: Served) -> None:
    send(served, "/queue/op.status", b"x")
    text = printed(served, "status")
    assert f"process {served.process.pid}" in text
    assert "\nready\n" in text
    assert "messages received" in text
    assert json.loads(printed(served, "status", "--json"))["is_ready"] is True


def test_status_of_a_broker_that_is_not_ready(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "full.toml").write_text('min-disk-free = "1000TiB"\n')
    served = serve("--config", str(tmp_path / "full.toml"), "--data", str(tmp_path / "data"), *PLACES)
    done = stompbox(served, "status")
    assert done.returncode == 1
    assert "disk-full" in done.stdout


def test_queues(served: Served) -> None:
    send(served, "/queue/op.q1", b"a", b"b")
    send(served, "/queue/op.q2", b"a")
    lines = printed(served, "queues", "op.q").splitlines()
    assert "ready" in lines[1]
    rows = [line.split()[:4] for line in lines if "anycast" in line]
    assert rows == [["op.q1", "op.q1", "anycast", "2"], ["op.q2", "op.q2", "anycast", "1"]]
    found = json.loads(printed(served, "queues", "op.q", "--json"))
    assert [(one["name"], one["ready"]) for one in found] == [("op.q1", 2), ("op.q2", 1)]


def test_frames(served: Served) -> None:
    assert printed(served, "frames", "--user", "op-alice") == "user op-alice\n"
    assert json.loads(printed(served, "frames", "--address", "orders.#", "--json"))["frames"][1] == {
        "by": "address",
        "value": "orders.#",
    }
    assert printed(served, "frames", "--user", "op-alice", "--off") == "address orders.#\n"
    assert printed(served, "frames") == "address orders.#\n"
    assert printed(served, "frames", "--off") == "no frames are logged\n"


def test_connections(served: Served) -> None:
    with Plain(served.port, headers={"client-id": "op-\x1b[31mred"}) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/op.c", "id": "1"})
        client.sync()
        table = printed(served, "connections", "op-")
        [found] = json.loads(printed(served, "connections", "op-", "--json"))
    assert "op-\\x1b[31mred" in table
    assert "\x1b" not in table
    assert found["subscriptions"][0]["destination"] == "/queue/op.c"


def test_groups(served: Served) -> None:
    send(served, "/queue/op.g", b"a", b"b", b"c")
    with Plain(served.port) as client:
        group = {"request": "group-open", "group": "op-lake", "destinations": "/queue/op.g", "starting": "1"}
        client.send("SEND", {"destination": "stompbox.requests", "request-id": "1"} | group)
        assert client.receive().headers["status"] == "ok"
    [line] = [line for line in printed(served, "groups", "op-lake").splitlines() if "op-lake" in line]
    assert line.split()[:5] == ["op-lake", "op.g", "1", "3", "2"]
    assert json.loads(printed(served, "groups", "op-lake", "--json"))[0]["addresses"][0]["lag_messages"] == 2


def test_browse_takes_nothing(served: Served) -> None:
    send(served, "/queue/op.b", b"one", b"two", b"three")
    for _ in range(2):
        assert printed(served, "browse", "/queue/op.b") == "one\ntwo\nthree\n"
    assert printed(served, "browse", "/queue/op.b", "--count", "2") == "one\ntwo\n"
    assert printed(served, "browse", "/queue/op.b", "--selector", "colour = 'blue'") == ""
    entry = json.loads(printed(served, "browse", "/queue/op.b", "--count", "1", "--json"))
    assert (entry["body"], entry["headers"]["colour"]) == ("one", "red")
    assert "colour: red\n" in printed(served, "browse", "/queue/op.b", "--headers")


def test_purge_move_and_redrive(served: Served) -> None:
    send(served, "/queue/op.m", b"a", b"b", b"c")
    assert printed(served, "move", "op.m", "op.n", "--count", "2") == "2 messages moved from op.m to op.n\n"
    assert printed(served, "browse", "/queue/op.n") == "a\nb\n"
    assert json.loads(printed(served, "purge", "op.m", "--json")) == {
        "queue": "op.m",
        "removed": 1,
        "is_estimate": False,
    }
    assert printed(served, "redrive", "op.n") == "0 messages sent back from op.n\n"
    assert printed(served, "move", "op.n", "op.o", "--count", "1") == "1 message moved from op.n to op.o\n"
    assert printed(served, "purge", "op.n") == "1 message removed from op.n\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("purge", "op.nowhere"), 1, ("op.nowhere", "no-such-queue")),
        (("move", "op.nowhere", "x"), 1, ("no-such-queue",)),
        (("redrive", "q", "--count", "0"), 2, ("--count",)),
        (("queues", "--admin", "ftp://127.0.0.1"), 2, ("--admin", "http://")),
        (("queues", "--admin", "http://127.0.0.1:port"), 2, ("--admin",)),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_code(
    served: Served, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    done = stompbox(served, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words), done.stderr


def test_browse_makes_nothing(served: Served) -> None:
    done = stompbox(served, "browse", "/queue/op.absent")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "stompbox browse: queue '/queue/op.absent' does not exist; a browser looks, and makes none\n"
    )
    assert json.loads(printed(served, "queues", "op.absent", "--json")) == []


def test_browse_of_what_is_no_queue(served: Served) -> None:
    done = stompbox(served, "browse", "/topic/op.t")
    assert (done.returncode, done.stdout) == (1, "")
    assert "one queue" in done.stderr
    assert done.stderr.count("\n") == 1


def test_nobody_answers(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    for command in (("status",), ("queues",), ("connections",), ("purge", "q")):
        done = stompbox(served, *command, "--admin", f"http://127.0.0.1:{free}")
        assert done.returncode == 3
        assert f"http://127.0.0.1:{free}" in done.stderr
        assert done.stderr.count("\n") == 1


def test_something_else_answers(served: Served) -> None:
    done = stompbox(served, "queues", "--admin", f"http://127.0.0.1:{served.port}")
    assert done.returncode in (1, 3)
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_with_users(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "users.toml").write_text(USERS)
    served = serve("--config", str(tmp_path / "users.toml"), "--memory", *PLACES)
    refused = stompbox(served, "status")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "login-required" in refused.stderr
    inside = served.admin.replace("http://", "http://root:r00t@")
    assert stompbox(served, "status", "--admin", inside).returncode == 0
    assert stompbox(served, "status", STOMPBOX_LOGIN="root", STOMPBOX_PASSCODE="r00t").returncode == 0
    wrong = stompbox(served, "status", "--admin", served.admin.replace("http://", "http://root:wrong@"))
    assert "login-failed" in wrong.stderr
    assert "wrong@" not in wrong.stderr


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (90_061_000, "1 d 1 h"),
        (None, "?"),
    ],
)
def test_span(ms: int | None, text: str) -> None:
    assert span(ms) == text


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (1234567, "1,234,567"),
        ("[red]", "[red]"),
        ("a\x1b[2J", "a\\x1b[2J"),
        ("é", "é"),
        ("a\nb", "a\\nb"),
        ("\x9b", "\\x9b"),
    ],
)
def test_plain(cell: object, text: str) -> None:
    assert plain(cell) == text


def test_sinks_are_listed_and_forgotten(served: Served) -> None:
    with Plain(served.port) as client:
        chunk = encode([Run(Shape({"destination": "/queue/op.sink"}), [b"a"])], 0)
        request(client, "stage", chunk, sink="op-sink", batch="7", partition="0", attempt="0")
    [line] = [line for line in printed(served, "sinks", "op-sink").splitlines() if "op-sink" in line]
    assert line.split()[:2] == ["op-sink", "1"]
    assert json.loads(printed(served, "sinks", "--json"))[0]["staged_messages"] == 1
    assert printed(served, "sinks", "delete", "op-sink") == "sink op-sink deleted\n"
    gone = stompbox(served, "sinks", "delete", "op-sink")
    assert (gone.returncode, "no-such-sink" in gone.stderr) == (1, True)


def test_groups_are_put_elsewhere_and_deleted(served: Served) -> None:
    send(served, "/queue/op.group", b"1", b"2")
    with Plain(served.port) as client:
        request(client, "group-open", group="op-pond", destinations="/queue/op.group", starting="latest")
    assert (
        printed(served, "groups", "reset", "op-pond", "--to", "earliest")
        == "reader group op-pond is put elsewhere on 1 addresses\n"
    )
    assert json.loads(printed(served, "groups", "op-pond", "--json"))[0]["addresses"][0]["position"] == 0
    assert printed(served, "groups", "reset", "op-pond", "--to", "1", "--address", "op.group", "--json")
    assert "allowed are earliest" in stompbox(served, "groups", "reset", "op-pond", "--to", "soon").stderr
    assert printed(served, "groups", "delete", "op-pond") == "reader group op-pond deleted\n"
    gone = stompbox(served, "groups", "delete", "op-pond")
    assert (gone.returncode, "no-such-group" in gone.stderr) == (1, True)
