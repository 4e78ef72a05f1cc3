"""The fixtures, as a project of others has them: in a pytest of its own, with a settings file of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
WITHIN = 120.0  # seconds

SYNC = """
import pytest, stomp

def test_a_client_of_ours(stomp_broker, stomp_client):
    stomp_client.send("/queue/orders", "42 apples")
    assert [message.text for message in stomp_broker.messages("/queue/orders")] == ["42 apples"]

def test_a_client_of_others(stomp_broker):
    client = stomp.Connection12([(stomp_broker.host, stomp_broker.port)])
    client.connect(wait=True)
    client.send("/queue/orders", "7 pears")
    assert [message.text for message in stomp_broker.wait_for_sent("/queue/orders")] == ["7 pears"]
    client.disconnect()

@pytest.mark.stomp_broker({"user": [{"name": "ann", "password": "secret"}]}, frozen=True)
def test_with_a_mark(stomp_broker):
    before = stomp_broker.now()
    with stomp_broker.client("ann", "secret"):
        assert [each.user for each in stomp_broker.connections] == ["ann"]
    assert stomp_broker.now() == before
"""
ASYNC = """
import pytest, stompbox

@pytest.mark.asyncio
async def test_a_coroutine(stomp_broker):
    async with stompbox.connect(stomp_broker.url) as client:
        await client.send("/queue/orders", "42 apples")
        assert [message.text for message in await stomp_broker.until_sent("/queue/orders")] == ["42 apples"]
"""
ALONE = """
import asyncio, stompbox

def test_a_coroutine_without_a_plugin(stomp_broker):
    async def main():
        async with stomp_broker.connect() as client:
            await client.send("/queue/orders", "42 apples")
    asyncio.run(main())
    assert len(stomp_broker.messages("/queue/orders")) == 1
"""
UNUSED = """
import sys

def test_nothing_was_imported():
    assert [name for name in sys.modules if name.startswith("stompbox.") and name != "stompbox.pytest_plugin"] == []
"""


def play(folder: Path, text: str, *plugins: str) -> tuple[int, str]:
    """Runs these tests; (exit code, what pytest said). Plugins of this machine are left out, but for ours and those named."""
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    settings = "[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n"
    if plugins:
        settings += "asyncio_default_fixture_loop_scope = function\n"
    (folder / "pytest.ini").write_text(settings, encoding="utf-8")
    loaded = [word for name in ("stompbox.pytest_plugin", *plugins) for word in ("-p", name)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *loaded],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "passed"), [(SYNC, 3), (ALONE, 1), (UNUSED, 1)], ids=["sync", "alone", "unused"]
)
def test_it_serves_plain_tests(text: str, passed: int, tmp_path: Path) -> None:
    code, said = play(tmp_path, text)
    assert code == 0 and f"{passed} passed" in said, said


def test_it_serves_pytest_asyncio(tmp_path: Path) -> None:
    pytest.importorskip("pytest_asyncio")
    code, said = play(tmp_path, ASYNC, "pytest_asyncio.plugin")
    assert code == 0 and "1 passed" in said, said


def test_a_wrong_mark_says_what_is_wrong(tmp_path: Path) -> None:
    text = "import pytest\n\n@pytest.mark.stomp_broker({'max-bdy-size': 1})\ndef test_it(stomp_broker): ...\n"
    code, said = play(tmp_path, text)
    assert code == 1 and "max-bdy-size" in said and "the nearest known name" in said, said


def test_pytest_finds_it_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (name,) = project["entry-points"]["pytest11"].values()
    assert importlib.util.find_spec(name) is not None


def test_the_broker_needs_no_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = None; from stompbox.testing import Broker\nwith Broker() as broker: print(broker.url)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WITHIN, check=False
    )
    assert done.stdout.startswith("stomp://127.0.0.1:"), done.stderr
