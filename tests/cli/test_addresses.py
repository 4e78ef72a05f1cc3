"""`stompbox addresses`, and the verbs of `queues` and `connections`: what they change, what they refuse, whom they ask."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest

from tests import forked
from tests.cli.test_operating import printed, send, served, stompbox
from tests.conftest import Served
from tests.system.plain import Plain

__all__ = ("served",)


def test_what_there_is(served: Served) -> None:
    send(served, "/queue/ad.list", b"a", b"b")
    head, _, *rows = [line for line in printed(served, "addresses", "ad.list").splitlines() if line.strip()]
    assert max(map(len, [head, *rows])) <= 80
    assert head.split()[:3] == ["address", "routing", "next"]
    assert [row.split()[:4] for row in rows] == [["ad.list", "anycast", "2", "2"]]
    (one,) = json.loads(printed(served, "addresses", "ad.list", "--json"))
    assert (one["name"], one["ready"]) == ("ad.list", 2)


@pytest.mark.parametrize("room", ["addresses", "queues"])
def test_pause_and_resume(served: Served, room: str) -> None:
    name = f"ad.pause.{room}"
    send(served, f"/queue/{name}", b"a")
    assert f"{name} is paused" in printed(served, room, "pause", name)
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1"})
        client.send("SEND", {"destination": f"/queue/{name}.other", "receipt": "r"}, b"")
        assert client.receive().command == "RECEIPT"  # and no MESSAGE before it
        assert f"{name} is handed out again" in printed(served, room, "resume", name)
        assert client.receive().body == b"a"


def test_block_and_unblock(served: Served) -> None:
    send(served, "/queue/ad.block", b"a")
    assert "takes no messages" in printed(served, "addresses", "block", "ad.block")
    assert "blocked" in printed(served, "addresses", "ad.block")
    refused = stompbox(served, "send", "/queue/ad.block", "x")
    assert refused.returncode == 1 and "block" in refused.stderr
    assert "takes messages again" in printed(served, "addresses", "unblock", "ad.block")
    assert stompbox(served, "send", "/queue/ad.block", "x").returncode == 0


@pytest.mark.parametrize(("room", "name"), [("addresses", "ad.del.a"), ("queues", "ad.del.q")])
def test_delete(served: Served, room: str, name: str) -> None:
    send(served, f"/queue/{name}", b"a")
    kept = stompbox(served, room, "delete", name)
    assert kept.returncode == 1 and "is_forced" in kept.stderr
    assert f"{name} deleted" in printed(served, room, "delete", name, "--force")
    gone = stompbox(served, room, "delete", name)
    assert gone.returncode == 1 and f"{name}' does not exist" in gone.stderr


def test_a_connection_is_closed(served: Served) -> None:
    with Plain(served.port, headers={"client-id": "ad.close"}) as client:
        (one,) = json.loads(printed(served, "connections", "ad.close", "--json"))
        assert printed(served, "connections", "close", str(one["id"])) == f"connection {one['id']} closed\n"
        assert client.receive().headers["code"] == "closed-by-operator"
    again = stompbox(served, "connections", "close", str(one["id"]))
    assert again.returncode == 1 and "is not there" in again.stderr


DESTROYING = (
    ("groups", "reset", "nobody", "--to", "latest"),
    ("purge", "ad.ask"),
    ("queues", "delete", "ad.ask", "--force"),
    ("addresses", "delete", "ad.ask", "--force"),
    ("connections", "close", "1"),
    ("groups", "delete", "ad.ask"),
    ("sinks", "delete", "ad.ask"),
)


def on_a_terminal(served: Served, answer: str, *command: str) -> subprocess.CompletedProcess[str]:
    """The command there, where this is typed; nothing: the end of the input."""
    leader, follower = pty.openpty()
    with os.fdopen(leader, "wb", buffering=0) as typed, os.fdopen(follower, "rb", buffering=0) as terminal:
        typed.write(answer.encode() or b"\x04")
        return forked.text(forked.run(*command, "--admin", served.admin, given=terminal))


@pytest.mark.parametrize("command", DESTROYING, ids=lambda command: " ".join(command[:2]))
@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_a_terminal_is_asked_before_something_goes(
    served: Served, command: tuple[str, ...], answer: str
) -> None:
    send(served, "/queue/ad.ask", b"a")
    done = on_a_terminal(served, answer, *command)
    assert done.returncode == 2
    assert "? [y/N] " in done.stderr
    assert "nothing was done; --yes does not ask" in done.stderr
    assert json.loads(printed(served, "addresses", "ad.ask", "--json"))[0]["ready"] >= 1


def test_a_terminal_that_says_yes(served: Served) -> None:
    send(served, "/queue/ad.yes", b"a")
    done = on_a_terminal(served, "y\n", "purge", "ad.yes")
    assert (done.returncode, done.stdout) == (0, "1 message removed from ad.yes\n")
