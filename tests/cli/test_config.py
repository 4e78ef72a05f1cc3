"""`stompbox config`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclopts import App

from stompbox.cli.config import app
from tests.cli.conftest import Run

HASH = "$argon2id$v=19$m=19456,t=2,p=1$jjRsVFGNmWy9AYWCq8qfkA$7EVJP934Hsy4pAYGqbAkBZz5iSJxB+sv3QB8PppaaW4"


@pytest.fixture
def run(running: Callable[[App], Run]) -> Run:
    """The command in an empty folder: (exit code, stdout, stderr)."""
    return running(app)


def test_a_good_configuration_is_good(run: Run) -> None:
    assert run("check") == (
        0,
        "good: tcp://127.0.0.1:61613; no users, so anyone from this machine; 0 warnings\n",
        "",
    )


def test_warnings_go_to_stderr(run: Run) -> None:
    Path("x.toml").write_text("[[user]]\nname = 'a'\npassword = 'plain'\n", encoding="utf-8")
    code, out, err = run("check", "--config", "x.toml")
    assert (code, out) == (0, "good: tcp://127.0.0.1:61613; 1 user; 1 warning\n")
    assert err == "warning: the password of user 'a' is plain text; `stompbox user hash` makes a hash of it\n"


def test_what_is_defined_at_run_time_is_in_the_data_folder_that_serve_is_given(run: Run) -> None:
    """A group that only users of the run time are in is no mistake."""
    user = f"[[user]]\nname = 'ann'\npassword = '{HASH}'\n"
    Path("x.toml").write_text(f"{user}[[permission]]\nmatch = '#'\nsend = ['writers']\n", encoding="utf-8")
    Path("data").mkdir()
    Path("data/definitions.toml").write_text(
        f"[[user]]\nname = 'bob'\ngroups = ['writers']\npassword = '{HASH}'\n", encoding="utf-8"
    )
    told = "warning: no user is in the group 'writers' that a [[permission]] names\n"
    assert run("check", "x.toml")[2] == told
    assert run("check", "x.toml", "--data", "data") == (
        0,
        "good: tcp://127.0.0.1:61613; 2 users; 0 warnings\n",
        "",
    )
    assert "bob" not in run("show", "x.toml")[1]
    assert "bob" in run("show", "x.toml", "--data", "data")[1]


@pytest.mark.parametrize("command", ["check", "show"])
def test_the_file_may_be_named_as_it_is(run: Run, command: str) -> None:
    Path("x.toml").write_text("max-turn-frames = 77\n", encoding="utf-8")
    assert run(command, "x.toml") == run(command, "--config", "x.toml")
    assert "nowhere.toml" in run(command, "nowhere.toml")[2]


@pytest.mark.parametrize("command", ["check", "show"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("dta = 1", "stompbox: stompbox.toml:1: dta: unknown key; the nearest known name is 'data'\n"),
        ("data = ", "stompbox: stompbox.toml:1: not TOML: invalid value\n"),
    ],
)
def test_a_bad_configuration_is_one_line_and_code_2(run: Run, command: str, text: str, problem: str) -> None:
    Path("stompbox.toml").write_text(text, encoding="utf-8")
    assert run(command) == (2, "", problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[[address]]\nname = "a"\n[[address.queue]]\nname = "q"\nfilter = "a ="\n',
            "x.toml:5: address[0].queue[0].filter: sel",
        ),
        (
            '[[divert]]\nname = "d"\naddress = "a"\nforwarding-address = "b"\nfilter = "("\n',
            "x.toml:5: divert[0].filter: selector, ",
        ),
        (
            '[[virtual-host]]\nname = "h"\n[[virtual-host.divert]]\nname = "d"\naddress = "a"\nforwarding-address = "b"\nfilter = "("\n',
            "x.toml:7: virtual-host[0].divert[0].filter: selector, ",
        ),
        (
            '[[divert]]\nname = "d"\naddress = "a"\nforwarding-address = "b"\ntransformer = "no.such:thing"\n',
            "x.toml:5: divert[0].transformer: transformer 'no.such:thing' cannot be loaded",
        ),
        (
            '[[listener]]\nurl = "tcp://127.0.0.1:0?messageTransformer=no.such:thing"\n',
            "x.toml:2: listener[0].url: transformer",
        ),
        (
            '[[listener]]\nurl = "ssl://127.0.0.1:0?keyStorePath=/no/such"\n',
            "keyStorePath '/no/such' cannot be used",
        ),
        ('[admin]\nlisten = "127.0.0.1:0"\nkey-store-path = "/no/such"\n', "x.toml:3: admin.key-store-path"),
        (
            '[[user]]\nname = "a"\npassword = "$argon2xy$v=19$m=1,t=1,p=1$x$y"\n',
            "x.toml:3: user[0].password",
        ),
    ],
)
def test_what_a_start_would_refuse_is_refused_with_its_place(run: Run, text: str, problem: str) -> None:
    """And the broker itself says the same, before anything else."""
    Path("x.toml").write_text(text, encoding="utf-8")
    code, out, err = run("check", "--config", "x.toml")
    assert (code, out) == (2, "")
    assert problem in err
    command = [sys.executable, "-m", "stompbox", "serve", "--config", "x.toml"]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert started.returncode == 2
    assert started.stderr.replace("stompbox serve:", "stompbox:") == err


def test_a_missing_file_is_named(run: Run) -> None:
    assert run("check", "--config", "gone.toml") == (
        2,
        "",
        "stompbox: gone.toml: cannot be read: No such file or directory\n",
    )


def test_an_open_door_is_refused_but_can_be_looked_at(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPBOX_LISTEN", "tcp://0.0.0.0:61613")
    code, out, err = run("check")
    assert (code, out) == (2, "")
    assert (
        err.startswith("stompbox: listener tcp://0.0.0.0:61613: no users are configured")
        and err.count("\n") == 1
    )
    code, out, _ = run("show")
    assert code == 0 and 'url = "tcp://0.0.0.0:61613"' in out


def test_show_prints_toml_with_origins_and_stars(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPBOX_DATA", "/data")
    Path("stompbox.toml").write_text("[[user]]\nname = 'a'\npassword = 'hunter2'\n", encoding="utf-8")
    code, out, _ = run("show")
    assert code == 0 and "hunter2" not in out
    content = tomllib.loads(out)
    assert content["data"] == "/data" and content["user"] == [{"name": "a", "password": "***", "groups": []}]
    assert 'data = "/data"  # STOMPBOX_DATA' in out and 'name = "a"  # stompbox.toml:2' in out


def test_show_prints_json(run: Run) -> None:
    code, out, _ = run("show", "--json")
    assert code == 0 and json.loads(out)["listener"] == [{"url": "tcp://127.0.0.1:61613"}]


def test_schema_prints_json_schema(run: Run) -> None:
    code, out, _ = run("schema")
    assert code == 0 and json.loads(out)["$ref"] == "#/$defs/Configuration"
