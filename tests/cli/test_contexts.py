"""Names for brokers: which one a command means, and where they are kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclopts import App

from stompbox import cli
from stompbox.cli import application, contexts
from stompbox.cli.contexts import broker_of
from stompbox.errors import UsageError
from tests.cli.conftest import Run


@pytest.fixture
def run(running: Callable[[App], Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    for name in ("CONTEXT", "URL", "ADMIN_URL"):
        monkeypatch.delenv(f"STOMPBOX_{name}", raising=False)
    return running(contexts.app)


def test_which_broker_a_command_means(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert broker_of("url") is None
    for name in ("prod", "test"):
        assert run("add", name, "--url", f"stomp://u:s3cr3t@{name}:1", "--admin", f"{name}:2") == (0, "", "")
    assert broker_of("url") is None, "none is in use"
    assert run("use", "prod")[0] == 0
    assert (broker_of("url"), broker_of("admin")) == ("stomp://u:s3cr3t@prod:1", "prod:2")
    monkeypatch.setenv("STOMPBOX_ADMIN_URL", "said:3")
    assert broker_of("admin") == "said:3", "a variable counts before the one in use"
    monkeypatch.setenv("STOMPBOX_CONTEXT", "test")
    assert broker_of("admin") == "test:2", "and the one that is named before the variable"
    monkeypatch.setenv("STOMPBOX_CONTEXT", "nope")
    with pytest.raises(UsageError, match="there is no context 'nope'; there are prod, test"):
        broker_of("admin")


def test_they_are_listed_without_passcodes_and_removed(run: Run) -> None:
    run("add", "prod", "--url", "stomp://u:s3cr3t@prod:1")
    run("use", "prod")
    out = run("list")[1]
    assert "s3cr3t" not in out and "prod" in out
    assert contexts.place().stat().st_mode & 0o777 == 0o600
    assert run("remove", "prod")[0] == 0
    assert broker_of("url") is None
    code, _, err = run("use", "prod")
    assert code == 2 and "has none; `stompbox context add NAME" in err
    assert run("add", "x")[0] == 2


def test_where_there_is_none_the_list_says_so_and_how_to_make_one(run: Run) -> None:
    code, out, err = run("list")
    assert (code, out) == (0, "")
    assert err == f"{contexts.place()} has none; `stompbox context add NAME --url … --admin …` makes one\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("x", "--url", "nope"), "url 'nope' begins with 'no scheme'"),
        (("x", "--url", "stomp://h,stomp://:p"), "url"),
        (("x", "--admin", "ftp://u:s3cr3t@h"), "--admin is ftp://***@h; allowed is host:port"),
        (("x", "--admin", "h:port"), "whose host and port cannot be read"),
        ((" ", "--url", "stomp://h"), "NAME is ' '"),
    ],
)
def test_what_is_no_broker_is_not_kept(run: Run, arguments: tuple[str, ...], text: str) -> None:
    code, out, err = run("add", *arguments)
    assert (code, out) == (2, "") and text in err and "s3cr3t" not in err
    assert not contexts.place().exists()


def test_a_file_that_is_none_is_named(run: Run) -> None:
    contexts.place().parent.mkdir(parents=True)
    for text in ("current =", "context = 1", "[context]\nprod = 'x'"):
        contexts.place().write_text(text)
        code, _, err = run("list")
        assert code == 2 and str(contexts.place()) in err


@pytest.mark.parametrize("words", [("--context", "prod", "status"), ("--context=prod", "status")])
def test_it_is_named_before_the_command(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setenv("STOMPBOX_CONTEXT", "")
    monkeypatch.setattr(sys, "argv", ["stompbox", *words])
    seen: list[tuple[list[str], str]] = []
    monkeypatch.setattr(
        application, "app", lambda **_: seen.append((sys.argv[1:], os.environ["STOMPBOX_CONTEXT"]))
    )
    cli.main()
    assert seen == [(["status"], "prod")]


def test_one_without_a_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["stompbox", "--context"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert "--context needs a name" in capsys.readouterr().err
