"""The log's formatters: whatever a client calls things, an entry is one line that can do nothing but be read."""

from __future__ import annotations

import ast
import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stompbox
from stompbox.cli.logs import MOST, JsonFormatter, TextFormatter, spoken
from tests.conftest import Serve
from tests.system.plain import Plain
from tests.users import users

HOSTILE = [
    "\n",
    "\r",
    "\x1b[2J",
    "\0",
    "\x7f",
    "\x9b31m",
    "\x85",
    "\u2028",
    "\u2029",
    "\u202e",
    "\u2066",
    "\ud800",
    "\t",
    "\b",
    "\x0b",
]


def entry(form: Callable[[logging.LogRecord], str], text: str, fault: BaseException | None = None) -> str:
    info = (type(fault), fault, fault.__traceback__) if fault is not None else None
    return form(
        logging.LogRecord(
            "stompbox.connection", logging.INFO, __file__, 1, "connection %s: %s", (7, text), info
        )
    )


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_a_name_cannot_write_a_line_of_its_own(hostile: str) -> None:
    line = entry(TextFormatter().format, f"a{hostile}b")
    assert hostile not in line
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    shown = json.loads(entry(JsonFormatter().format, f"a{hostile}b"))["message"]
    assert hostile not in shown, "also once the JSON is decoded"
    assert shown.isprintable()


def test_what_can_be_read_stays_as_it_is() -> None:
    for text in ("Grüße an 東京 🙂", "a 'quoted' \\ name", "x" * MOST):
        assert spoken(text) == text


def test_a_long_name_is_left_out_but_for_its_ends() -> None:
    line = entry(TextFormatter().format, f"address {'x' * 60_000}\x1b is full (address-full), closed")
    assert len(line) < MOST + 200
    assert "connection 7: address xxx" in line
    assert line.endswith("is full (address-full), closed")
    assert "characters left out" in line
    assert len(json.loads(entry(JsonFormatter().format, "x" * 60_000))["message"]) < MOST + 200


def test_the_text_of_an_exception_cannot_either() -> None:
    try:
        raise ValueError("bad\n2026-01-01 00:00:00,000 WARNING stompbox: forged \x1b[2J" + "x" * 60_000)
    except ValueError as error:
        text = entry(TextFormatter().format, "failed", error)
        shown = json.loads(entry(JsonFormatter().format, "failed", error))
    _, *lines = text.splitlines()
    assert lines
    assert all(line.startswith("  | ") for line in lines)
    assert max(map(len, lines)) < MOST + 200
    assert "\x1b" not in text
    assert "\x1b" not in shown["traceback"]


def test_a_traceback_has_an_end() -> None:
    def deeper(left: int) -> None:
        if left:
            (deeper if left % 2 else deepest)(left - 1)
        else:
            raise ValueError("deep")

    def deepest(left: int) -> None:
        deeper(left)

    try:
        deeper(sys.getrecursionlimit() // 3)
    except ValueError as error:
        assert len(entry(TextFormatter().format, "failed", error).splitlines()) < 300


SOURCES = Path(stompbox.__file__).parent


def calls_with_a_code() -> list[tuple[str, bool]]:
    """(place, says it) of each call of a log whose text has a code in parentheses."""
    found = []
    for path in [
        path for part in ("server", "admin", "store") for path in sorted((SOURCES / part).rglob("*.py"))
    ]:
        for node in ast.walk(ast.parse(path.read_text())):
            is_log = (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and ast.unparse(node.func.value) == "log"
            )
            if not is_log or not isinstance(node, ast.Call) or not node.args:
                continue
            text = next(
                (
                    str(each.value)
                    for each in ast.walk(node)
                    if isinstance(each, ast.Constant) and " " in str(each.value)
                ),
                "",
            )
            if re.search(r"\((%s|[a-z]+(-[a-z]+)+)\)\.?$|\(%s\)(\.|%s)", text) and "max-refusals" not in text:
                found.append(
                    (f"{path.name}:{node.lineno}", any(keyword.arg == "extra" for keyword in node.keywords))
                )
    return found


def test_each_entry_about_a_code_says_it_for_itself() -> None:
    calls = calls_with_a_code()
    assert len(calls) >= 6
    assert [place for place, says_it in calls if not says_it] == []


def test_a_refusal_in_json_has_its_code_its_connection_and_its_user(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "stompbox.toml").write_text(users("alice:a"))
    served = serve("--memory", "--listen", "tcp://127.0.0.1:0", "--no-admin", "--log-format", "json")
    with Plain(served.port, headers={"login": "alice", "passcode": "a"}) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/x (forged-code)", "id": "1", "ack": "sometimes"})
        client.receive()
    served.stop()
    entries = [json.loads(line) for line in served.log.read_text().splitlines()]
    [entry] = [entry for entry in entries if "code" in entry]
    assert (entry["code"], entry["user"]) == ("bad-ack", "alice")
    assert isinstance(entry["connection"], int) and f"connection {entry['connection']} " in entry["message"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_live_broker_logs_what_a_client_says_in_one_line(serve: Serve, tmp_path: Path, form: str) -> None:
    (tmp_path / "broker").mkdir()
    full = '[[address-setting]]\nmatch = "#"\nmax-size-messages = 1\naddress-full-policy = "FAIL"\n'
    (tmp_path / "broker" / "stompbox.toml").write_text(f'memory = true\nlog-format = "{form}"\n{full}')
    served = serve("--no-admin", "--listen", "tcp://127.0.0.1:0")
    name = "q\nforged\x1b[2J" + "x" * 60_000
    with Plain(served.port, "1.1") as client:
        for number in range(2):
            client.send("SEND", {"destination": f"/queue/{name}", "receipt": str(number)}, b"x")
            client.receive()
        client.send(
            "SUBSCRIBE", {"destination": f"/queue/{name}", "id": name, "ack": "\n\x1b", "receipt": "r"}
        )
        client.receive()
    served.stop()
    text = served.log.read_text()
    assert "\x1b" not in text
    assert "xxxx" in text
    assert not [line for line in text.splitlines() if line.startswith("forged") or len(line) > MOST + 300]
