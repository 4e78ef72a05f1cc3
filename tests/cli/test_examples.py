"""Examples at the end of the help: every command has some, the command line reads each, and nobody is shown another's."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from stompbox.cli.application import app
from stompbox.cli.examples import ALL, OF, examples

LINES = [
    *[line for name in OF for line in examples(name).splitlines()[2:]],
    *[line for line in ALL.splitlines() if line.startswith("  stompbox ")],
]


def test_every_command_has_its_own() -> None:
    assert set(OF) == {name for name in app if not name.startswith("-")}
    assert [name for name, lines in OF.items() for line, _ in lines if line.split()[0] != name] == []


@pytest.mark.parametrize("line", LINES)
def test_the_command_line_reads_it(line: str) -> None:
    asked, _, does = line.strip().partition("   ")
    assert does.strip()
    words = shlex.split(asked)[1:]
    if words[0] == "--context":  # read before all others
        del words[:2]
    app.parse_args(words, exit_on_error=False, print_error=False)


def test_lines_fit_a_terminal() -> None:
    assert [line for line in LINES if len(line) > 80] == []


def test_the_help_of_a_command_ends_with_them() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stompbox", "queues", "--help"], capture_output=True, text=True, check=True
    )
    told = done.stdout
    assert told.rstrip().endswith(examples("queues").splitlines()[-1].strip())
    assert examples("send").splitlines()[-1] not in told
