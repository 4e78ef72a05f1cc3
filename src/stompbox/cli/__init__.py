"""The command line: `stompbox`, also `python -m stompbox`. Each command is a module of its own, loaded when it is called.

Decides that the list of commands and the version wait for no library, that what is wrong with a command line is one line on stderr,
and how every command ends whose output nobody reads any more (`| head -3`): in silence and with exit code 0. The signal itself stays
ignored: a broker's lost socket must not end a command.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn

import stompbox
from stompbox.cli.overview import print_overview

if TYPE_CHECKING:
    from stompbox.cli.serving import Asked

DEFAULT_URL = "stomp://127.0.0.1:61613"  # of the broker that a command means where nothing says which
FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130  # as the library leaves
COMPLETE = "__complete"  # what the scripts of `stompbox completion` ask with, of cyclopts
SOON = 3  # seconds


def version(*, is_verbose: bool) -> str:
    """`--version`; with `--verbose` also which build this is, and the Python that runs it."""
    if not is_verbose:
        return stompbox.__version__
    found = find_spec("stompbox.message")
    is_compiled = found is not None and str(found.origin).endswith(tuple(EXTENSION_SUFFIXES))
    build = "compiled by mypyc" if is_compiled else "pure Python"
    return f"{stompbox.__version__}, {build}, {platform.python_implementation()} {platform.python_version()}"


def main() -> None:
    if sys.stdout is None:
        # closed by who has started us: what is printed goes nowhere, and what was asked for is done
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    try:
        try:
            _choose_context()
            wrong = _obey()
        finally:
            if sys.stdout is not None:
                # here, where it can be told; the interpreter would do it after the last handler
                sys.stdout.flush()
    except BrokenPipeError:
        _unread()
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):  # rich makes that of it
            _unread()
        raise
    except OSError as error:  # of the output, most of all: a full disk
        print(
            f"stompbox: {error.strerror or error}{f': {error.filename}' if error.filename else ''}",
            file=sys.stderr,
        )
        _leave_stdout()
        sys.exit(FAILED)
    if wrong is not None:
        print(wrong, file=sys.stderr)
        sys.exit(WRONG_USE)


def _obey() -> str | None:
    """Obeys the arguments; returns what is wrong with them. The list of commands, and the version, wait for no library."""
    match sys.argv[1:]:
        case [] | ["--help"] | ["-h"]:
            print_overview()
        case ["--version"]:
            print(version(is_verbose=False))
        case ["serve", *words] if (asked := _usual(words)) is not None:
            _serve(asked)
        case _:
            from stompbox.cli.application import obey

            return obey()
    return None


def _usual(words: list[str]) -> Asked | None:
    """The broker that is asked for, where that is said in the usual way."""
    from stompbox.cli.usual import asked

    return asked(words)


def _serve(asked: Asked) -> None:
    from stompbox.cli.serving import serve

    try:
        serve(asked)
    except KeyboardInterrupt:  # before the loop takes the signal
        sys.exit(INTERRUPTED)


def _choose_context() -> None:
    """`stompbox --context NAME …`: the command that follows finds it in the environment."""
    if sys.argv[1:2] == [COMPLETE]:
        _complete_soon()
        return
    flag, equals, name = sys.argv[1].partition("=") if len(sys.argv) > 1 else ("", "", "")
    if flag != "--context":
        return
    given = [name] if equals else sys.argv[2:3]
    if not given or not given[0]:
        print("stompbox: --context needs a name; `stompbox context list` has them", file=sys.stderr)
        sys.exit(WRONG_USE)
    os.environ["STOMPBOX_CONTEXT"] = given[0]
    del sys.argv[1 : 2 if equals else 3]


def _complete_soon() -> None:
    """A shell asks for names, in the middle of a line: what comes late is nothing. Of its context the words behind do not tell."""
    if hasattr(signal, "alarm"):  # not on Windows
        signal.alarm(SOON)
    if sys.argv[2:3] == ["--context"] and len(sys.argv) > 4:
        os.environ["STOMPBOX_CONTEXT"] = sys.argv[3]
        del sys.argv[2:4]


def _unread() -> NoReturn:
    _leave_stdout()
    sys.exit(0)


def _leave_stdout() -> None:
    """Nobody reads it any more: what is still written to it goes nowhere, and the interpreter does not complain at its end."""
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
