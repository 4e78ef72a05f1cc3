"""`stompbox send --json`: lines as `subscribe --json` prints them, and those that are none."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests import forked
from tests.cli.test_operating import served
from tests.conftest import Served
from tests.system.plain import Plain

__all__ = ("served",)


def stompbox(served: Served, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "STOMPBOX_URL": f"stomp://127.0.0.1:{served.port}"}
    return forked.text(forked.run(*arguments, given=given.encode(), environment=environment))


def test_json_goes_round(served: Served) -> None:
    """What `subscribe --json` prints is what `send --json` reads."""
    for body in (b"one", "zwei grün".encode(), b"\xff\x00"):
        with Plain(served.port) as client:
            headers = {"destination": "/queue/json.in", "colour": "a:b", "receipt": "r"}
            client.send("SEND", headers | {"content-length": str(len(body))}, body)
            assert client.receive().command == "RECEIPT"
    lines = stompbox(served, "subscribe", "/queue/json.in", "--json", "--count", "3").stdout
    done = stompbox(served, "send", "/queue/json.out", "--json", "-H", "more:x", given=lines)
    assert (done.returncode, done.stderr) == (0, "3 messages sent to /queue/json.out and confirmed\n")
    again = stompbox(served, "subscribe", "/queue/json.out", "--json", "--count", "3").stdout
    before, after = ([json.loads(line) for line in text.splitlines()] for text in (lines, again))
    assert [(one.get("body"), one.get("body_base64")) for one in after] == [
        (one.get("body"), one.get("body_base64")) for one in before
    ]
    assert {(one["headers"]["colour"], one["headers"]["more"]) for one in after} == {("a:b", "x")}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("nonsense", "line 2 is no JSON"),
        ("[" * 100_000, "line 2 is no JSON"),
        ("[]", "line 2: allowed is an object"),
        ('{"bodi": ""}', "line 2: allowed is an object"),
        ('{"body": 7}', "line 2: allowed is one text"),
        ('{"body": "", "body_base64": ""}', "line 2: allowed is one text"),
        ('{"body_base64": "?"}', "line 2: the body cannot be read"),
        ('{"body": "\\ud800"}', "line 2: the body cannot be read"),
        ('{"headers": {"a": 1}}', "line 2: headers is no object of texts"),
    ],
)
def test_json_that_is_no_message(served: Served, line: str, text: str) -> None:
    done = stompbox(served, "send", "/queue/json.bad", "--json", given='{"body": "first"}\n' + line + "\n")
    assert done.returncode == 2
    assert text in done.stderr and done.stderr.count("\n") == 1
