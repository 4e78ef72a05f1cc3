"""The units of deploy/systemd: what they start can be started so, what they open can be listened at, and systemd understands them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from stompbox import blocking
from stompbox.config import load
from tests.conftest import ROOT
from tests.system.plain import Plain

UNITS = ROOT / "deploy" / "systemd"


def unit(name: str) -> RawConfigParser:
    parser = RawConfigParser(strict=name != "stompbox.socket", delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((UNITS / name).read_text(encoding="utf-8"))
    return parser


def test_the_command_of_the_service_has_these_options() -> None:
    command = unit("stompbox.service")["Service"]["ExecStart"].split()
    assert command[:2] == ["/opt/stompbox/bin/stompbox", "serve"]
    shown = subprocess.run(
        [sys.executable, "-m", "stompbox", "serve", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert [word for word in command if word.startswith("--") and word not in shown] == []


def test_the_service_is_one_that_tells_how_it_is() -> None:
    service = unit("stompbox.service")["Service"]
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["RestartPreventExitStatus"] == "2 3"
    assert {"AF_INET", "AF_INET6", "AF_UNIX"} == set(service["RestrictAddressFamilies"].split())
    # time for connections to end
    assert int(service["TimeoutStopSec"]) * 1000 > load(None, {}, {}).graceful_shutdown_timeout


def test_the_page_has_a_listener_for_each_socket_of_the_unit() -> None:
    opened = re.findall(r"^ListenStream=(.+)$", (UNITS / "stompbox.socket").read_text(), re.M)
    page = (ROOT / "docs" / "systemd.md").read_text(encoding="utf-8")
    urls = re.findall(r'^url = "(.+)"$', page, re.M)
    assert urls == [f"unix://{where}" if where.startswith("/") else f"tcp://{where}" for where in opened]
    assert [str(table.parse()) for table in load(None, {}, {"listen": urls}).listeners] == urls


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for name in ("stompbox.service", "stompbox.socket"):
        text = (UNITS / name).read_text().replace("/opt/stompbox/bin/stompbox", "/bin/true")
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, tmp_path.iterdir())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if "stompbox" in line] == []


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd is not here")
def test_a_client_that_comes_before_the_broker_waits_for_it(tmp_path: Path) -> None:
    """systemd's own tool opens the sockets, and starts the broker when somebody connects to one of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "stomp.sock"
    places = {f"127.0.0.1:{port}": f"tcp://127.0.0.1:{port}", str(file): f"unix://{file}"}
    opened = [word for where in places for word in ("--listen", where)]
    told = [word for url in places.values() for word in ("--listen", url)]
    passed = [word for name in ("PYTHONPATH", "PATH") if name in os.environ for word in ("--setenv", name)]
    command = [sys.executable, "-m", "stompbox", "serve", "--memory", "--no-admin", *told]
    with subprocess.Popen(
        ["systemd-socket-activate", *opened, *passed, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as broker:
        try:
            assert broker.stderr is not None
            assert all("Listening on" in broker.stderr.readline() for _ in places)
            with Plain(port) as client:
                client.send("SEND", {"destination": "/queue/early", "receipt": "1"}, b"42 apples")
                assert client.receive().headers["receipt-id"] == "1"
            with blocking.connect(places[str(file)]) as other, other.subscribe("/queue/early") as messages:
                found = messages.receive(timeout=20)
                assert found is not None and found.body == b"42 apples"
        finally:
            broker.terminate()
        assert broker.wait(timeout=60) == 0
