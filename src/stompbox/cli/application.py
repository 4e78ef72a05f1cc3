"""The command line as the library reads it: every command of the list, its module loaded when it is called.

Decides nothing of its own: `overview` has the list, each module what its command takes.
"""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError, Group, MissingArgumentError, UnusedCliTokensError

from stompbox.cli import version
from stompbox.cli.examples import ALL
from stompbox.cli.overview import ABOUT, COMMANDS, GROUPS

app = App(
    name="stompbox",
    version=lambda: version(is_verbose="--verbose" in sys.argv),
    help=ABOUT,
    help_format="plaintext",
    help_epilogue=ALL,
)
_groups = {title: Group(title, sort_key=at) for at, title in enumerate(GROUPS)}
for _group, _name, _target, _help in COMMANDS:
    app.command(f"stompbox.cli.{_target}", name=_name, group=_groups[_group], help=_help)


def obey() -> str | None:
    """Obeys the process's arguments; returns what is wrong with them, if something is."""
    try:
        app(print_error=False, exit_on_error=False)
    except CycloptsError as error:
        command = " ".join(("stompbox", *(error.command_chain or ())))
        return f"{command}: {_told(error)}; {command} --help says what there is"
    return None


def _told(error: CycloptsError) -> str:
    """Says what is wrong with a command line."""
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"{error.unused_tokens[0]!r} is one argument more than it takes"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        named = error.keyword or next(
            (token.keyword for token in error.argument.tokens if token.keyword), None
        )
        return f"{named} needs a value" if named else f"{error.argument.name} is missing"
    error.verbose = False
    return str(error).partition(" Available commands")[0].strip().rstrip(".")
