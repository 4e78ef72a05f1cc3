"""Frames in the log of a running broker: all of them with DEBUG, and those that an operator asks for."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.admin.asking import post, read
from tests.conformance.wire import TRANSPORTS, Client, connected
from tests.conftest import Serve, Served
from tests.users import users

USERS = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0"
""" + users("alice:s3cret@all", "bob:hidden7@all")
WITHIN = 20.0  # seconds


def lines(served: Served) -> list[str]:
    return [line for line in served.log.read_text().splitlines() if "stompbox.frames" in line]


def wait_for(served: Served, text: str) -> list[str]:
    deadline = time.monotonic() + WITHIN
    while not any(text in line for line in lines(served)):
        assert time.monotonic() < deadline, lines(served)
    return lines(served)


def log_in(client: Client, login: str = "", more: str = "") -> None:
    client.say(f"CONNECT\naccept-version:1.2\nhost:h\n{login}{more}\n\0".encode())
    client.expect("CONNECTED")


def confirmed(client: Client, frame: str) -> None:
    client.say(f"{frame}\0SEND\ndestination:/topic/nobody\nreceipt:done\n\n\0".encode())
    answer = client.hear()
    while answer is not None and answer.value("receipt-id") != "done":
        answer = client.hear()
    assert answer is not None


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_debug_logs_every_frame_both_ways(serve: Serve, transport: str, tmp_path: Path) -> None:
    (tmp_path / "users.toml").write_text(USERS)
    served = serve("--config", str(tmp_path / "users.toml"), "--log-level", "debug", "--no-admin")
    with connected((served.host, served.port), transport) as client:
        log_in(client, "login:alice\npasscode:s3cret\n")
        client.say(
            b"SUBSCRIBE\nid:1\ndestination:/queue/q\n\n\0SEND\ndestination:/queue/q\nx:a\\nb\n\n"
            + b"y" * 9000
            + b"\0"
        )
        client.expect("MESSAGE")
        confirmed(client, "SEND\ndestination:/queue/r\n\nfor\x1b[2Jged\n2026 INFO stompbox: a line")
        client.say(b"NONSENSE\npasscode:s3cret\n\n\0")
        client.expect("ERROR")
    text = served.log.read_text()
    assert "s3cret" not in text
    found = lines(served)
    said = [line.split("127.0.0.1 ")[1].split("\\n")[0] for line in found]
    kinds = [kind for kind in said if kind not in ("IN: SEND", "OUT: RECEIPT")]
    assert kinds == [
        "IN: CONNECT",
        "OUT: CONNECTED",
        "IN: SUBSCRIBE",
        "OUT: MESSAGE",
        "IN: NONSENSE",
        "OUT: ERROR",
    ]
    assert len({line.split("connection ")[1].split(" ")[0] for line in found}) == 1
    assert all(len(line) < 2200 for line in found)
    assert any("8488 more octets of the body" in line and "x:a\\nb" in line for line in found)
    assert any("for\\x1b[2Jged\\n2026 INFO" in line for line in found)


def test_a_frame_that_is_refused_before_its_end_is_logged(serve: Serve, tmp_path: Path) -> None:
    served = serve("--memory", "--log-level", "debug", "--no-admin")
    for begun in (
        b"NONSENSE\npasscode:s3cret\n\n",
        b"SEND\ndestination:/queue/q\ncontent-length:many\n\nabc",
    ):
        with connected((served.host, served.port), "tcp") as client:
            log_in(client)
            client.say(begun)
            client.expect("ERROR")
        first, second = wait_for(served, "OUT: ERROR")[-2:]
        assert f"IN: {begun[:4].decode()}" in first and "OUT: ERROR" in second
    assert "s3cret" not in served.log.read_text()


def test_after_an_error_that_ends_nothing_each_frame_is_logged_whole(serve: Serve, tmp_path: Path) -> None:
    """The next frame has come in part when the ERROR goes out."""
    served = serve("--memory", "--log-level", "debug", "--no-admin")
    with connected((served.host, served.port), "tcp") as client:
        client.say(b"CONNECT\naccept-version:1.1\nhost:h\n\n\0")
        client.expect("CONNECTED")
        client.say(b"ABORT\ntransaction:none\n\n\0SEND\ndestination:/queue/q\nx:be")
        client.expect("ERROR")
        client.say(b"gun\n\nand ended\0")
        confirmed(client, "SEND\ndestination:/queue/q\n\nthe next one")
    came = [line for line in lines(served) if "IN: SEND" in line]
    assert "x:begun" in came[0] and "and ended" in came[0] and "the next one" in came[1]


MALFORMED = {  # by a person or a program that has it nearly right: what is sent, and the code of the ERROR
    "no colon": ("CONNECT\naccept-version:1.2\nlogin:alice\npasscode s3cret\n\n\0", "header-without-colon"),
    "two lines": ("CONNECT\naccept-version:1.2\nlogin:alice\npasscode:a\ns3cret\n\n\0", "header-without-colon"),
    "no name": ("CONNECT\naccept-version:1.2\nlogin:alice\n:s3cret\n\n\0", "empty-header-name"),
    "one line": ("CONNECT accept-version:1.2 login:alice passcode:s3cret\n\n\0", "unknown-command"),
    "all in accept-version": ("CONNECT\naccept-version:1.2 login:alice passcode:s3cret\n\n\0", "no-common-version"),
    "all in heart-beat": ("CONNECT\naccept-version:1.2\nheart-beat:1,2 passcode:s3cret\n\n\0", "bad-heart-beat"),
    "an escape": ("CONNECT\naccept-version:1.2\nlogin:alice\npasscode:s3cret\n\n\0SEND\ndestination:/queue/a\nmy-token:s3cret\\x\n\n\0",
                  "undefined-escape"),
    "no colon in a SEND": ("CONNECT\naccept-version:1.2\nlogin:alice\npasscode:s3cret\n\n\0SEND\npasscode=s3cret\n\n\0",
                           "header-without-colon"),
    "a carriage return": ("CONNECT\naccept-version:1.2\nlogin:alice\rpasscode:s3cret\n\n\0", "login-required"),
}  # fmt: skip


def test_no_error_and_no_log_shows_a_secret_that_stands_in_the_wrong_place(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "users.toml").write_text(USERS)
    served = serve("--config", str(tmp_path / "users.toml"), "--log-level", "debug", "--no-admin")
    for name, (octets, code) in MALFORMED.items():
        with connected((served.host, served.port), "tcp") as client:
            client.say(octets.encode())
            answer = client.hear()
            while answer is not None and answer.command != "ERROR":
                answer = client.hear()
            assert answer is not None and answer.value("code") == code, name
            assert "s3cret" not in str(answer), name
    assert "s3cret" not in served.log.read_text()


def test_info_logs_none_until_a_reload_says_debug(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "level.toml"
    file.write_text('memory = true\n[[listener]]\nurl = "tcp://127.0.0.1:0"\n')
    served = serve("--config", str(file), "--no-admin")
    with connected((served.host, served.port), "tcp") as client:
        log_in(client)
        confirmed(client, "SEND\ndestination:/queue/q\n\nbefore")
        assert lines(served) == []
        file.write_text(f'log-level = "DEBUG"\n{file.read_text()}')
        os.kill(served.process.pid, signal.SIGHUP)
        deadline = time.monotonic() + WITHIN
        while "read again" not in served.log.read_text():
            assert time.monotonic() < deadline
        confirmed(client, "SEND\ndestination:/queue/q\n\nafter")
        assert "after" in "".join(wait_for(served, "OUT: RECEIPT"))


@pytest.mark.parametrize("by", ["connection", "user", "peer", "address"])
def test_an_operator_asks_for_some_at_whatever_level(serve: Serve, tmp_path: Path, by: str) -> None:
    (tmp_path / "users.toml").write_text(USERS)
    served = serve(
        "--config", str(tmp_path / "users.toml"), "--log-level", "warning", "--admin", "127.0.0.1:0"
    )
    admin, alice = served.admin, "alice:s3cret"
    with (
        connected((served.host, served.port), "tcp") as one,
        connected((served.host, served.port), "tcp") as other,
    ):
        log_in(one, "login:alice\npasscode:s3cret\n")
        log_in(other, "login:bob\npasscode:hidden7\n")
        ids = {each["user"]: each["id"] for each in read(admin, "connections", alice)["connections"]}
        value = {
            "connection": str(ids["alice"]),
            "user": "alice",
            "peer": "127.0.0.1",
            "address": "orders.*",
        }[by]
        wish = {"by": by, "value": value}
        assert (
            post(admin, "frames/log", wish, alice).json == {"frames": [wish]} == read(admin, "frames", alice)
        )
        for client, name in ((one, "alice"), (other, "bob")):
            for word in ("orders.new", "bills.new"):
                confirmed(client, f"SEND\ndestination:/queue/{word}\n\nof {name} to {word}")
        assert post(admin, "frames/stop", wish, alice).json == {"frames": []}
        confirmed(one, "SEND\ndestination:/queue/orders.new\n\nlater")
    text = "".join(lines(served))
    expected = {
        "connection": {"alice to orders.new", "alice to bills.new"}, "user": {"alice to orders.new", "alice to bills.new"},
        "peer": {f"{name} to {word}.new" for name in ("alice", "bob") for word in ("orders", "bills")},
        "address": {"alice to orders.new", "bob to orders.new"},
    }[by]  # fmt: skip
    all_of_them = {f"{name} to {word}.new" for name in ("alice", "bob") for word in ("orders", "bills")}
    assert {one for one in all_of_them if one in text} == expected
    assert "later" not in text
    assert "s3cret" not in served.log.read_text()


def test_a_wish_for_a_connection_ends_with_it(serve: Serve) -> None:
    served = serve("--memory", "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    lasting = {"by": "peer", "value": "127.0.0.1"}
    post(served.admin, "frames/log", lasting)
    with connected((served.host, served.port), "tcp") as client:
        log_in(client, "")
        [found] = read(served.admin, "connections")["connections"]
        wish = {"by": "connection", "value": str(found["id"])}
        assert post(served.admin, "frames/log", wish).json == {"frames": [lasting, wish]}
    deadline = time.monotonic() + WITHIN
    while read(served.admin, "frames") != {"frames": [lasting]}:
        assert time.monotonic() < deadline
    error = post(served.admin, "frames/log", wish).json["error"]
    assert error["code"] == "no-such-connection"


def test_what_is_no_wish_is_refused(serve: Serve) -> None:
    served = serve("--memory", "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    for path, body in (
        ("frames/log", {}),
        ("frames/log", {"by": "name", "value": "x"}),
        ("frames/stop", {"by": "user"}),
        ("frames/log", {"by": "peer", "value": "localhost"}),
    ):
        assert post(served.admin, path, body).json["error"]["code"] == "bad-json"
    for value in ("99", "-1", "first"):
        error = post(served.admin, "frames/log", {"by": "connection", "value": value}).json["error"]
        assert (error["code"], value in error["message"]) == ("no-such-connection", True)
    assert read(served.admin, "frames") == {"frames": []}
    wish = {"by": "peer", "value": "::1"}
    assert post(served.admin, "frames/log", wish | {"value": "0:0::1"}).json == {"frames": [wish]}
    assert post(served.admin, "frames/stop", {}).json == {"frames": []}


def test_in_json_an_entry_says_whose_frame_it_is(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "users.toml").write_text(USERS)
    served = serve(
        "--config", str(tmp_path / "users.toml"), "--log-level", "debug", "--log-format", "json", "--no-admin"
    )
    with connected((served.host, served.port), "tcp") as client:
        log_in(client, "login:alice\npasscode:s3cret\n")
        confirmed(client, "SEND\ndestination:/queue/a\n\n{}")
    entries = [json.loads(line) for line in wait_for(served, "OUT: RECEIPT")]
    assert {entry.get("user") for entry in entries if "SEND" in entry["message"]} == {"alice"}
    assert {type(entry["connection"]) for entry in entries} == {int}
