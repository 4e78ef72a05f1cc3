"""`stompbox reload`: all of the file, or nothing and why."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.admin.conftest import PLACES
from tests.cli.test_operating import stompbox
from tests.conftest import Serve, Served
from tests.system.test_reloading import FULL, taken
from tests.users import users

USERS = users("alice:a@ops", "bob:b")
RIGHTS = '[[permission]]\nmatch = "#"\nmanage = ["ops"]\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "broker").mkdir()
    return tmp_path / "broker" / "stompbox.toml"


def start(serve: Serve, file: Path, text: str) -> Served:
    file.write_text(text)
    return serve("--data", str(file.parent / "data"), *PLACES)


def test_a_new_file_counts_when_it_returns(serve: Serve, file: Path) -> None:
    served = start(serve, file, FULL.format(2))
    assert taken(served, 3) == ["RECEIPT", "RECEIPT", "ERROR"]
    file.write_text(FULL.format(4))
    done = stompbox(served, "reload")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the configuration was read again\n", "")
    assert taken(served, 3) == ["RECEIPT", "RECEIPT", "ERROR"]
    assert json.loads(stompbox(served, "reload", "--json").stdout) == {"is_done": True}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FULL.format('"many"'), "max-size-messages"),
        ("nonsense", "stompbox.toml"),
        (f'log-format = "json"\n{FULL.format(4)}', "only a restart can change log-format"),
    ],
)
def test_a_wrong_file_changes_nothing_and_says_why(serve: Serve, file: Path, text: str, why: str) -> None:
    served = start(serve, file, FULL.format(2))
    file.write_text(text)
    done = stompbox(served, "reload")
    assert done.returncode == 1
    assert why in done.stderr and "Everything stays as it was" in done.stderr and done.stderr.count("\n") == 1
    assert taken(served, 3) == ["RECEIPT", "RECEIPT", "ERROR"]


def test_many_at_once_are_each_answered(serve: Serve, file: Path) -> None:
    served = start(serve, file, FULL.format(2))
    file.write_text(FULL.format(4))
    with ThreadPoolExecutor(6) as pool:
        codes = list(pool.map(lambda _: stompbox(served, "reload").returncode, range(6)))
    assert codes == [0] * 6


def test_it_takes_the_right_to_manage_the_broker(serve: Serve, file: Path) -> None:
    served = start(serve, file, USERS + RIGHTS)
    refused = stompbox(served, "reload", STOMPBOX_LOGIN="bob", STOMPBOX_PASSCODE="b")
    assert refused.returncode == 1 and "not-permitted" in refused.stderr
    assert stompbox(served, "reload", STOMPBOX_LOGIN="alice", STOMPBOX_PASSCODE="a").returncode == 0


def test_a_broker_without_a_file_has_the_environment_and_the_command_line(
    serve: Serve, tmp_path: Path
) -> None:
    served = serve("--data", str(tmp_path / "data"), *PLACES)
    assert stompbox(served, "reload").returncode == 0
