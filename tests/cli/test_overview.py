"""The list of commands: in boxes of any width, for every encoding, without a library being loaded."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from stompbox.cli.overview import COMMANDS, GROUPS, overview


def listed(**variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    done = subprocess.run(
        [sys.executable, "-m", "stompbox", "--help"],
        capture_output=True,
        check=True,
        env=environment | variables,
    )
    return done.stdout.decode()


@pytest.mark.parametrize("columns", [24, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    lines = listed(COLUMNS=str(columns)).splitlines()
    boxes = [line for line in lines if line[:1] in "│╭╰" and line]
    assert {len(line) for line in boxes} == {columns}
    assert max(len(line) for line in lines) <= columns


def test_columns_that_are_no_number_are_not_obeyed() -> None:
    assert listed(COLUMNS="wide") == listed(COLUMNS="80") == listed()


def test_each_command_stands_in_one_group() -> None:
    text = overview(200)
    for group, name, _, said in COMMANDS:
        assert group in GROUPS
        assert text.count(f"{said} ") == 1, name
    assert len({name for _, name, _, _ in COMMANDS}) == len(COMMANDS)


def test_a_pipe_has_no_colours_and_an_encoding_without_lines_has_others() -> None:
    assert "\x1b" not in listed()
    assert listed(PYTHONIOENCODING="ascii").isascii()


def test_a_terminal_has_colours_unless_it_wants_none() -> None:
    for variables, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        assert (b"\x1b[36m" in on_a_terminal(variables)) is is_coloured


def on_a_terminal(variables: dict[str, str]) -> bytes:
    controlling, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "stompbox"], stdout=terminal, env=environment | {"TERM": "xterm"} | variables
    )
    os.close(terminal)
    said = b""
    try:
        while octets := os.read(controlling, 65536):
            said += octets
    except OSError:
        pass  # the terminal's other end is closed: that is its end of file
    finally:
        os.close(controlling)
    assert process.wait(20) == 0
    return said


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["--version"]], ids=repr)
def test_no_library_is_waited_for(arguments: list[str]) -> None:
    code = (
        "import sys; from stompbox.cli import main\n"
        f"sys.argv[1:] = {arguments!r}; main()\n"
        "print([name for name in ('cyclopts', 'rich', 'asyncio', 'msgspec') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr == "[]\n"
