"""What is wrong with an installation: each finding is a line that says what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclopts import App

from stompbox.cli import doctor
from tests.admin.conftest import PLACES
from tests.cli.conftest import Run
from tests.conftest import Serve


@pytest.fixture
def run(running: Callable[[App], Run], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("STOMPBOX_ADMIN_URL", "127.0.0.1:1")
    return running(doctor.app)


def told(run: Run, toml: str) -> tuple[int, dict[str, list[str]]]:
    """(exit code, level and text of each finding by what it is about)"""
    Path("stompbox.toml").write_text(toml)
    code, out, err = run("--json")
    assert err == ""
    found: dict[str, list[str]] = {}
    for one in json.loads(out):
        found.setdefault(one["about"], []).append(f"{one['level']}: {one['text']}")
    return code, found


LISTENER = '[[listener]]\nurl = "tcp://127.0.0.1:0"\n'


def test_a_good_one(run: Run) -> None:
    code, found = told(run, LISTENER)
    assert code == 0, found
    assert found["configuration"] == ["good: read, 0 users"]
    assert found["data folder"] == ["good: stompbox-data is not there yet, and will be made"]
    assert found["broker"][0].startswith("warning: none runs, or it cannot be asked")
    lines = run()[1].splitlines()
    assert len(lines) == sum(map(len, found.values()))
    assert lines[0].startswith("good     python:")


def test_an_admin_interface_at_any_port_is_not_looked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOMPBOX_ADMIN_URL")
    code, found = told(run, LISTENER + '[admin]\nlisten = "127.0.0.1:0"\n')
    assert code == 0, found
    [text] = found["broker"]
    assert text.startswith("warning: the admin interface listens at a port that the system chooses")
    code, found = told(run, LISTENER + '[admin]\nlisten = "unix:///nowhere/admin"\n')
    assert found["broker"][0].startswith("warning: none runs, or it cannot be asked")


def test_a_configuration_with_a_mistake(run: Run) -> None:
    code, found = told(run, "dta = 1\n")
    assert code == 1
    [text] = found["configuration"]
    assert text.startswith("wrong: stompbox.toml:1: dta: unknown key")


def test_a_data_folder_that_cannot_be(run: Run) -> None:
    Path("file").touch()
    code, found = told(run, f'data = "file/data"\n{LISTENER}')
    assert (code, found["data folder"]) == (
        1,
        [f"wrong: {Path('file').absolute()} is a file; `data` names a folder"],
    )


def test_a_data_folder_that_others_may_read(run: Run) -> None:
    Path("data").mkdir(mode=0o755)
    Path("data/x").touch()
    code, found = told(run, f'data = "data"\n{LISTENER}')
    assert (code, found["data folder"][0]) == (0, "warning: data may be read by others (755); chmod 700 data")


def test_a_disk_without_room(run: Run) -> None:
    code, found = told(run, f'min-disk-free = "1000TiB"\n{LISTENER}')
    assert code == 1
    assert "persistent messages are refused; make room" in found["disk"][0]


def test_a_port_that_is_taken(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, found = told(run, f'[[listener]]\nurl = "tcp://127.0.0.1:{port}"\n')
    assert code == 1
    assert found["listener"][0].startswith(f"wrong: tcp://127.0.0.1:{port}: ")


def test_a_limit_of_files_and_a_clock(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    monkeypatch.setattr("time.time", lambda: 86_400.0)
    code, found = told(run, LISTENER)
    assert code == 1
    assert found["open files"][0].startswith("warning: 256 at most")
    assert found["clock"][0].startswith("wrong: it is 1970-01-02 here")


def test_the_data_folder_that_serve_is_given(run: Run) -> None:
    Path("stompbox.toml").write_text(LISTENER)
    Path("elsewhere").mkdir(mode=0o700)
    code, out, _ = run("--json", "--data", "elsewhere")
    found = {one["about"]: one["text"] for one in json.loads(out)}
    assert code == 0, out
    assert "elsewhere" in found["data folder"]


def test_a_broker_that_runs(run: Run, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve("--data", str(tmp_path / "data"), *PLACES)
    monkeypatch.setenv("STOMPBOX_ADMIN_URL", served.admin)
    toml = f"data = '{tmp_path}/data'\n[[listener]]\nurl = 'tcp://127.0.0.1:{served.port}'\n"
    code, found = told(run, toml)
    assert code == 0, found
    assert f"in use by the broker with process id {served.process.pid}" in found["data folder"][0]
    assert found["broker"][0].endswith("answers and is ready, 0 connections")
    assert found["listener"] == [f"good: tcp://127.0.0.1:{served.port}, taken: by the broker that runs"]
