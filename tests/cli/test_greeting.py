"""What `serve` says before `ready`: on a terminal what a person wants to know, elsewhere what a script reads."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stompbox.cli.greeting import greeting
from stompbox.config import read
from tests.users import users

USER = users("alice:a")


def lines(folder: Path, text: str, *urls: str) -> list[str]:
    file = folder / "stompbox.toml"
    file.write_text(text)
    return list(greeting(read(file, {}, {}).configuration, urls))


def test_a_broker_as_it_comes(tmp_path: Path) -> None:
    text = f'data = "{tmp_path}/data"\n'
    assert lines(tmp_path, text, "tcp://127.0.0.1:61613", "http://127.0.0.1:8161") == [
        "console on http://127.0.0.1:8161",
        f"data in {tmp_path}/data",
        "who is on this machine may connect, without login: no [[user]] is configured",
        "to try it: stompbox send /queue/hello 'it works'",
    ]


def test_users_memory_and_another_place(tmp_path: Path) -> None:
    assert lines(tmp_path, "memory = true\n" + USER, "ssl://0.0.0.0:61614") == [
        "everything is in memory: nothing outlives this process",
        "1 user may connect, each with a passcode",
        "to try it: stompbox send /queue/hello 'it works' --url stomp+ssl://LOGIN:PASSCODE@127.0.0.1:61614",
    ]


@pytest.mark.parametrize("url", ["tcp://[::]:1234", "tcp://127.0.0.1:1234"])
def test_another_port_is_in_the_line_to_copy(tmp_path: Path, url: str) -> None:
    place = url.removeprefix("tcp://").replace("[::]", "[::1]")
    assert lines(tmp_path, "", url)[-1].endswith(f"--url stomp://{place}")


def test_a_terminal_sees_it(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "stompbox",
        "serve",
        "--listen",
        "tcp://127.0.0.1:0",
        "--memory",
        "--no-admin",
    ]
    with subprocess.Popen(command, stdout=follower, stderr=subprocess.DEVNULL, cwd=tmp_path) as broker:
        os.close(follower)
        said = b""
        while b"ready" not in said:
            said += os.read(leader, 4096)
        broker.send_signal(signal.SIGTERM)
    os.close(leader)
    assert b"everything is in memory" in said
    assert said.index(b"listening on") < said.index(b"to try it: stompbox send") < said.index(b"ready")
