"""The units of deploy/systemd: what they start can be started so, what they open can be listened at, and systemd understands them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from stompbox.config import load
from tests.conftest import ROOT

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
