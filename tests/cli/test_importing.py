"""`stompbox import`: what it prints and writes, its exit codes, and that a broker starts with what it makes."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclopts import App

import stompbox.blocking
from stompbox.cli.config import app as config
from stompbox.cli.importing import app
from stompbox.errors import StompboxError
from tests.cli.conftest import Run
from tests.conftest import start_broker

FILES = Path(__file__).parent.parent / "conversion" / "files"


@pytest.fixture
def run(running: Callable[[App], Run], tmp_path: Path) -> Run:
    for file in FILES.iterdir():
        shutil.copy(file, tmp_path)
    return running(app)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("artemis", "broker.xml"),
        ("activemq", "activemq.xml"),
        ("rabbitmq", "definitions.json"),
        ("openmq", "config.properties"),
    ],
)
def test_what_it_writes_is_good(run: Run, running: Callable[[App], Run], kind: str, source: str) -> None:
    code, out, err = run(kind, source, "--output", "made.toml")
    assert (code, out) == (1, "")
    assert (
        err.startswith("stompbox import: ")
        and "keys carried over to made.toml" in err
        and "look for `not carried over`" in err
    )
    assert stat.S_IMODE(Path("made.toml").stat().st_mode) == 0o600
    assert running(config)("check", "--config", "made.toml")[:2][0] == 0
    assert (
        run(kind, source)[1].partition("\n")[0]
        == Path("made.toml").read_text(encoding="utf-8").partition("\n")[0]
    )


def test_a_broker_starts_with_it_and_its_users_have_their_rights(run: Run, tmp_path: Path) -> None:
    assert run("artemis", "broker.xml", "-o", "made.toml")[0] == 1
    served = start_broker(
        tmp_path,
        "--config",
        "made.toml",
        "--no-admin",
        "--memory",
        "--listen",
        "tcp://127.0.0.1:0?dialect=artemis",
    )
    try:
        with stompbox.blocking.connect(f"stomp://bob:b0b@{served.host}:{served.port}") as client:
            client.send("/queue/orders", b"x", headers={"region": "EU"})
            with (
                pytest.raises(StompboxError, match="does not have the right 'consume'"),
                client.subscribe("/queue/orders"),
            ):
                pass
        with (
            pytest.raises(StompboxError, match="passcode is wrong"),
            stompbox.blocking.connect(f"stomp://admin:x@{served.host}:{served.port}", reconnect=None),
        ):
            pass
    finally:
        served.stop()
        if served.process.stdout is not None:
            served.process.stdout.close()


def test_all_of_it_carried_over_is_code_0(run: Run) -> None:
    Path("plain.xml").write_text("<core/>", encoding="utf-8")
    shutil.rmtree("nothing", ignore_errors=True)
    Path("artemis-users.properties").unlink()
    code, out, err = run("artemis", "plain.xml")
    assert (code, err) == (0, "stompbox import: 4 keys carried over, nothing left out\n")
    assert out.startswith("# Made of plain.xml by `stompbox import artemis`.")


def test_a_file_that_is_there_stays_without_force(run: Run) -> None:
    Path("made.toml").write_text("mine", encoding="utf-8")
    assert run("rabbitmq", "definitions.json", "-o", "made.toml") == (
        2,
        "",
        "stompbox import: made.toml is there already; --force writes over it\n",
    )
    assert run("rabbitmq", "definitions.json", "-o", "made.toml", "--force")[0] == 1
    assert "mine" not in Path("made.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("artemis", "nowhere.xml"), "nowhere.xml: cannot be read: No such file or directory"),
        (("artemis", "definitions.json"), "definitions.json:1: not XML: not well-formed (invalid token)"),
        (("rabbitmq", "broker.xml"), "broker.xml:1: not JSON: a value is missing"),
        (("activemq", "broker.xml"), "broker.xml:2: no <broker> in <configuration>: it is no activemq.xml"),
        (("artemis", "broker.xml", "--users", "broker.xml"), "broker.xml:4: expected `name = value`"),
        (("openmq", "passwd"), "passwd:1: no property begins with `imq.`: it is no config.properties"),
        (
            ("openmq", "config.properties", "--destinations", "nowhere.txt"),
            "nowhere.txt: cannot be read: No such file or directory",
        ),
        (
            ("rabbitmq", "definitions.json", "-o", "no/where.toml"),
            "no/where.toml: cannot be written: No such file or directory",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(run: Run, words: tuple[str, ...], problem: str) -> None:
    assert run(*words) == (2, "", f"stompbox import: {problem}\n")
