"""Pipelines with users, permissions and TLS: the right user may, the wrong one reads which right is missing, and no passcode is shown."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("pyspark")

from stompbox import blocking
from stompbox.errors import StompboxError
from stompbox.pipelines import running
from stompbox.pipelines.checks import check
from stompbox.pipelines.plan import read_plan
from stompbox.spark.link import forget
from tests.conftest import ROOT, Served, end, start_broker
from tests.spark.archive import QUICK
from tests.spark.fake_broker import PEM
from tests.users import users

WITHIN = 240.0  # s
PASSCODES = {
    "lake": "pelican-brief-1",
    "reader": "pelican-brief-2",
    "sender": "pelican-brief-3",
    "watcher": "pelican-brief-4",
}
RIGHTS = """
[[permission]]
match = "#"
consume = ["lake", "reader", "watcher"]
send = ["lake", "sender"]
create-address = ["lake", "reader", "sender", "watcher"]
create-durable-queue = ["lake", "watcher"]
browse = ["lake"]
"""
STEPS = """
[[archive]]
name = "orders"
destinations = ["/queue/orders"]
table = "orders"
format = "delta"
schema = "n INT"
[[transform]]
name = "doubled"
sql = "SELECT n * 2 AS n FROM orders"
destination = "/queue/doubled"
[[transform.source]]
name = "orders"
destinations = ["/queue/orders"]
schema = "n INT"
[[replay]]
name = "again"
archive = "orders"
destination = "/queue/again"
[[report]]
name = "figures"
archives = ["orders"]
[[audit]]
name = "check"
archive = "orders"
output = "differences"
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with users, on TLS alone; its certificate is its own CA. With ten orders, which lake has sent."""
    folder = tmp_path_factory.mktemp("broker")
    told = users(*[f"{name}:{passcode}@{name}" for name, passcode in PASSCODES.items()])
    (folder / "users.toml").write_text(told + RIGHTS)
    served = start_broker(
        folder, "--listen", f"ssl://127.0.0.1:0?keyStorePath={PEM}", "--no-admin", "--config", "users.toml"
    )
    with blocking.connect(url_of(served, "lake"), tls=ssl.create_default_context(cafile=str(PEM))) as client:
        for number in range(10):
            client.send("/queue/orders", b'{"n": %d}' % number)
    yield served
    forget()
    end(served)


def url_of(served: Served, user: str = "") -> str:
    given = f"{user}:{PASSCODES[user]}@" if user else ""
    return f"stomps://{given}127.0.0.1:{urlsplit(served.listeners[0]).port}"


def pipeline(served: Served, user: str, folder: Path, steps: str = STEPS) -> Path:
    (folder / "secret").mkdir()
    (folder / "secret" / "passcode").write_text(PASSCODES[user] + "\n")
    file = folder / "lake.toml"
    head = f'name = "{user}"\nurl = "{url_of(served)}"\nlogin = "{user}"\npasscode-file = "secret/passcode"\ntrust-store-path = "{PEM}"\n'
    settings = "".join([f'"{name}" = "{value}"\n' for name, value in QUICK.items()])
    file.write_text(f"{head}[spark]\ncores = 2\nnice = 0\n[spark.settings]\n{settings}{steps}")
    return file


def command(file: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "stompbox", "pipeline", "run", str(file), *arguments]
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )


def holding(folder: Path, *passcodes: str) -> list[Path]:
    """Files below the folder that hold one of them."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "secret"]
    return [path for path in files if any(passcode.encode() in path.read_bytes() for passcode in passcodes)]


@pytest.mark.filterwarnings("default")
def test_the_right_user_may_and_no_passcode_is_written(
    served: Served, spark: Any, python: str, tmp_path: Path
) -> None:
    file = pipeline(served, "lake", tmp_path)
    planned = command(file, "--dry-run")
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "/queue/orders with group lake-orders" in planned.stdout
    done = command(file, "--once", "--json", PYSPARK_PYTHON=python)
    assert done.returncode == 0, done.stderr
    assert '"text":"10 stored, 10 archived, 0 waiting, 10 compared: no difference"' in done.stdout
    assert '"text":"10 of 10 messages sent"' in done.stdout
    assert (tmp_path / "pipeline-state" / "spark.log").exists()
    assert holding(tmp_path, PASSCODES["lake"]) == []
    assert PASSCODES["lake"] not in planned.stdout + done.stdout + done.stderr
    file.write_text(file.read_text().replace('login = "lake"', 'login = "reader"'))
    (tmp_path / "secret" / "passcode").write_text(PASSCODES["reader"])
    assert (
        refusal(spark, file, "again")
        == "replay 'again': user 'reader' does not have the right 'send' on address 'again'"
    )


def refusal(spark: Any, file: Path, step: str) -> str:
    """What a step fails with."""
    plan = read_plan(file, {})
    check(plan)
    steps, _ = running.chosen(plan, [step], once=True)
    with pytest.raises(StompboxError) as caught:
        running.run(spark, plan, steps, lambda event: None, Event(), once=True)
    return str(caught.value)


REFUSED = [
    (
        "reader",
        "orders",
        "archive 'orders': user 'reader' does not have the right 'create-durable-queue' on address 'orders'",
    ),
    (
        "sender",
        "orders",
        "archive 'orders': user 'sender' does not have the right 'consume' on address 'orders'",
    ),
    (
        "reader",
        "doubled",
        "transform 'doubled': user 'reader' does not have the right 'create-durable-queue' on address 'orders'",
    ),
    (
        "watcher",
        "doubled",
        "transform 'doubled': user 'watcher' does not have the right 'send' on address 'doubled'",
    ),
    (
        "sender",
        "figures",
        "report 'figures': user 'sender' does not have the right 'consume' on address 'DLQ'",
    ),
    ("sender", "check", "audit 'check': user 'sender' does not have the right 'consume' on address 'orders'"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0]}-{case[1]}")
@pytest.mark.filterwarnings("default")
def test_a_missing_right_is_named(
    served: Served, spark: Any, case: tuple[str, str, str], tmp_path: Path
) -> None:
    user, step, said = case
    assert refusal(spark, pipeline(served, user, tmp_path), step) == said
    assert holding(tmp_path, PASSCODES[user]) == []
