"""The usual lines of `stompbox serve` mean what the library makes of them, and the library is not loaded for them."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest

import stompbox.cli
from stompbox.cli import serve, serving, usual

USUAL = (
    "",
    "--memory",
    "--memory --no-admin --accept-loss",
    "--config /etc/stompbox.toml --data=/var/lib/stompbox",
    "--data ~/relative/../there --config=a/./b.toml",
    "--listen tcp://127.0.0.1:61613?prefetch=10&login=a=b --listen=unix:///run/stompbox.sock",
    "--listen 'tcp://[::1]:61613'",
    "--admin 127.0.0.1:8161 --fronts auto",
    "--fronts 2 --log-level debug --log-format=json",
    "--data ' with blanks '",
    "--data '[\"one\"]' --listen '[\"tcp://a:1\"]' --admin '{}'",
    "--admin null --fronts 007 --config true",
)
# whose words are the library's: mistakes, help, and what few write
UNUSUAL = (
    "--help",
    "--version",
    "now",
    "--memory=true",
    "--no-memory",
    "--memory --memory",
    "--data a --data b",
    "--listen",
    "--listen tcp://a:1 tcp://b:2",
    "--listen --memory",
    "--data=",
    "--data -",
    "--log-level loud",
    "--log-level DEBUG",
    "--log_level debug",
    "--empty-listen",
    "-m",
    "--",
    "-- --memory",
    "--admni 127.0.0.1:8161",
)


def read(line: str, monkeypatch: pytest.MonkeyPatch) -> serving.Asked:
    """What the library makes of it."""
    asked: list[serving.Asked] = []
    monkeypatch.setattr(serving, "serve", asked.append)
    serve.app(shlex.split(line), exit_on_error=False, print_error=False, result_action="return_value")
    (one,) = asked
    return one


@pytest.mark.parametrize("line", USUAL)
def test_a_usual_line_means_what_it_means_to_the_library(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert usual.asked(shlex.split(line)) == read(line, monkeypatch)


@pytest.mark.parametrize("line", UNUSUAL)
def test_all_else_is_left_to_the_library(line: str) -> None:
    assert usual.asked(shlex.split(line)) is None


def test_it_knows_the_options_that_the_library_knows() -> None:
    known = {*usual.FLAGS, *usual.TEXTS, *usual.PATHS, *usual.CHOICES}
    assert set(signature(serve.serve).parameters) == known == {field.name for field in fields(serving.Asked)}


def test_a_broker_runs_without_the_library(tmp_path: Path) -> None:
    """It would stay in its memory for good."""
    command = [sys.executable, "-X", "importtime", "-m", "stompbox", "serve", "--listen", "tcp://127.0.0.1:0"]
    command += ["--data", str(tmp_path / "data"), "--admin=127.0.0.1:0"]
    said = tmp_path / "said"
    with (
        said.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=tmp_path) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "ready":
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in said.read_text().splitlines()}
    assert "stompbox.server.run" in imported
    assert imported.isdisjoint({"cyclopts", "attr", "rich", "stompbox.cli.application"})


def test_who_interrupts_it_before_it_can_stop_is_told_as_by_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_: serving.Asked) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(serving, "serve", interrupted)
    monkeypatch.setattr(sys, "argv", ["stompbox", "serve", "--memory"])
    with pytest.raises(SystemExit) as left:
        stompbox.cli.main()
    assert left.value.code == stompbox.cli.INTERRUPTED
