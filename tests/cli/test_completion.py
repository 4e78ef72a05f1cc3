"""What a shell needs to complete commands: of all that there are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclopts import App

from stompbox.cli import completion
from stompbox.cli.application import app as whole
from stompbox.cli.overview import COMMANDS
from tests.admin.conftest import PLACES
from tests.cli.conftest import Run
from tests.conftest import Serve
from tests.system.plain import Plain


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_completed(running: Callable[[App], Run], shell: str) -> None:
    code, out, err = running(completion.app)(shell)
    assert (code, err) == (0, "")
    assert [name for _, name, *_ in COMMANDS if name not in out] == []


# asks bash as it asks the function of the script, with the cursor after the last word
BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_stompbox
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    command = ["bash", "-c", BASH, "bash", str(script), "stompbox", *words]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(script.parent))
    assert told.stderr == ""
    return told.stdout.split()


def environment(folder: Path) -> dict[str, str]:
    """One in which `stompbox` is found, and no broker but by what is typed."""
    command = folder / "bin" / "stompbox"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m stompbox "$@"\n')
    command.chmod(0o755)
    found = {name: value for name, value in os.environ.items() if not name.startswith("STOMPBOX_")}
    return found | {"PATH": f"{command.parent}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(folder)}


def script_of(shell: str, folder: Path) -> Path:
    found = folder / f"completion.{shell}"
    text = subprocess.run(
        [sys.executable, "-m", "stompbox", "completion", shell], capture_output=True, text=True, check=True
    ).stdout
    found.write_text(text)
    return found


def test_names_of_a_broker_are_offered(serve: Serve, tmp_path: Path) -> None:
    served = serve("--memory", *PLACES)
    with Plain(served.port) as client:
        for name in ("orders.new", "orders.old", "bills"):
            client.send("SEND", {"destination": f"/queue/{name}", "receipt": name}, b"x")
            client.receive()
    script = script_of("bash", tmp_path)
    assert offered(script, "purge", "--admin", served.admin, "ord") == ["orders.new", "orders.old"]
    assert offered(script, "addresses", "pause", "--admin", served.admin, "") == [
        "bills",
        "orders.new",
        "orders.old",
    ]
    add = [sys.executable, "-m", "stompbox", "context", "add", "here", "--admin", served.admin]
    subprocess.run(add, check=True, env=environment(tmp_path))
    assert offered(script, "context", "use", "") == ["here"]
    assert offered(script, "--context", "here", "purge", "b") == ["bills"]
    assert offered(script, "purge", "b") == [], "there is no broker at the usual port, and nobody is told"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh: apt-get install zsh")
def test_zsh_finds_it_where_it_is_sourced(tmp_path: Path) -> None:
    text = (
        f"autoload -Uz compinit; compinit -u -D; source {script_of('zsh', tmp_path)}; print $_comps[stompbox]"
    )
    told = subprocess.run(["zsh", "-f", "-c", text], capture_output=True, text=True, check=True)
    assert (told.stdout.strip(), told.stderr) == ("_cyclopts_stompbox", "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish: apt-get install fish")
def test_fish_offers_no_files_where_none_are_taken(tmp_path: Path) -> None:
    script = script_of("fish", tmp_path)
    text = f"source {script}; complete -C 'stompbox groups '"
    told = subprocess.run(
        ["fish", "--no-config", "-c", text], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=environment(tmp_path),
    )  # fmt: skip
    assert [line.split("\t")[0] for line in told.stdout.splitlines()] == ["delete", "reset", "seek"]


def test_a_flag_takes_no_value() -> None:
    """What a shell thinks that takes one has the next word for its own."""
    flags = {argument.name: argument.is_flag() for argument in whole["serve"].assemble_argument_collection()}
    assert (flags["--memory"], flags["--data"]) == (True, False)
