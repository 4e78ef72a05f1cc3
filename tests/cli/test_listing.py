"""The options of lists: --sort, --limit, --watch, --json."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.test_operating import printed, send, served, stompbox
from tests.conftest import Served
from tests.system.plain import Plain

__all__ = ("served",)


@pytest.fixture(scope="module")
def filled(served: Served) -> Served:
    for name, count in (("ls.b", 3), ("ls.a", 1), ("ls.c", 2)):
        send(served, f"/queue/{name}", *[b"x"] * count)
    return served


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ((), ["ls.a", "ls.b", "ls.c"]),
        (("--sort", "ready"), ["ls.a", "ls.c", "ls.b"]),
        (("--sort", "-ready"), ["ls.b", "ls.c", "ls.a"]),
        (("--sort", "-ready", "--limit", "2"), ["ls.b", "ls.c"]),
        (("--sort", "-name", "--limit", "1"), ["ls.c"]),
    ],
)
@pytest.mark.parametrize("room", ["queues", "addresses"])
def test_order_and_number(filled: Served, room: str, options: tuple[str, ...], names: list[str]) -> None:
    assert [one["name"] for one in json.loads(printed(filled, room, "ls.", "--json", *options))] == names
    rows = [line for line in printed(filled, room, "ls.", *options).splitlines() if "ls." in line]
    assert [row.split()[0] for row in rows] == names


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--sort", "colour"), "--sort is 'colour'; allowed are name, "),
        (("--limit", "0"), "--limit is 0"),
        (("--watch", "0"), "--watch is 0"),
        (("--json", "--format", "csv"), "--json and --format csv exclude each other"),
    ],
)
def test_wrong_use(filled: Served, options: tuple[str, ...], text: str) -> None:
    done = stompbox(filled, "addresses", "ls.", *options)
    assert done.returncode == 2
    assert text in done.stderr and done.stderr.count("\n") == 1


def test_what_some_have_and_others_have_not_can_be_sorted_by(filled: Served) -> None:
    with Plain(filled.port) as client:
        for number, selector in (("1", "b = 1"), ("2", "a = 1")):
            headers = {"destination": "/topic/sel.x", "id": number, "selector": selector}
            client.send("SUBSCRIBE", headers)
        client.send("SUBSCRIBE", {"destination": "/topic/sel.x", "id": "3"})
        client.sync()
        for sort, selectors in (
            ("selector", ["a = 1", "b = 1", None]),
            ("-selector", ["b = 1", "a = 1", None]),
        ):
            found = json.loads(printed(filled, "queues", "sel.x", "--all", "--json", "--sort", sort))
            assert [one["selector"] for one in found] == selectors


def test_a_list_is_watched_until_ctrl_c(filled: Served) -> None:
    command = [sys.executable, "-m", "stompbox", "queues", "ls.a", "--watch", "0.1", "--admin", filled.admin]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as watching:
        assert watching.stdout is not None and watching.stderr is not None
        seen = 0
        for line in watching.stdout:
            seen += "ls.a" in line
            if seen == 3:
                watching.send_signal(signal.SIGINT)
                break
        assert watching.stderr.read() == ""
        assert watching.wait(30) == 130


def test_forms(filled: Served) -> None:
    lines = printed(filled, "queues", "ls.", "--format", "lines").splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["ls.a", "ls.b", "ls.c"]
    assert json.loads(printed(filled, "queues", "ls.", "--format", "json")) == [
        json.loads(line) for line in lines
    ]
    send(filled, "/queue/=1+1,x", b"x")
    table = printed(filled, "queues", "--format", "csv", "--sort", "name").splitlines()
    assert table[0] == "address,queue,kind,ready,delayed,delivering,consumers,state"
    assert table[1] == "'=1+1,'=1+1,anycast,1,0,0,0,", "no spreadsheet takes it for a formula"
