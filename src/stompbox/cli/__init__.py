"""The command line: `stompbox`, also `python -m stompbox`. Each command is a module of its own, loaded when it is called.

Decides what `stompbox --help` lists, that what is wrong with a command line is one line on stderr, and how every command ends whose
output nobody reads any more (`| head -3`): in silence and with exit code 0. The signal itself stays ignored: a broker's lost
socket must not end a command.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import NoReturn

from cyclopts import App, CycloptsError, Group, MissingArgumentError, UnusedCliTokensError

import stompbox
from stompbox.cli.examples import ALL

FAILED = 1
WRONG_USE = 2

_MESSAGES, _BROKER, _OPERATING = (
    Group(title, sort_key=at)
    for at, title in enumerate(("Messages", "A broker", "A running broker, by its admin interface"))
)
# Name, where it is, and what the list says of it. The module says the same at its head; here it costs no import.
_COMMANDS = (
    (_MESSAGES, "send", "send:app", "Send messages and wait until the broker has stored them."),
    (_MESSAGES, "subscribe", "subscribe:app", "Print the messages of a destination as they come."),
    (_MESSAGES, "browse", "browse:app", "Print what a queue holds, and leave it there."),
    (_MESSAGES, "request", "request:app", "Send a request and print the reply."),
    (
        _MESSAGES,
        "replay",
        "replay:app",
        "Copy messages of an address, consumed or not, to another destination.",
    ),
    (
        _MESSAGES,
        "pipeline",
        "pipeline:app",
        "Archive, transform, replay, report and audit with Spark, from one TOML file.",
    ),
    (_MESSAGES, "bench", "bench:app", "Send and receive messages, and print rates and latencies."),
    (_BROKER, "serve", "serve:app", "Run a broker until SIGTERM or SIGINT."),
    (_BROKER, "config", "config:app", "Check, show and describe the configuration."),
    (
        _BROKER,
        "import",
        "importing:app",
        "Convert the configuration of Artemis, ActiveMQ Classic, RabbitMQ or OpenMQ.",
    ),
    (_BROKER, "store", "store:app", "Check, compact, back up and restore a data folder."),
    (_BROKER, "doctor", "doctor:app", "Say what is wrong with this installation, and what to do."),
    (_BROKER, "context", "contexts:app", "Name brokers, in place of --url and --admin."),
    (_BROKER, "completion", "completion:app", "Print what a shell needs to complete commands and options."),
    (_OPERATING, "status", "status:app", "Show how a running broker is."),
    (_OPERATING, "top", "top:app", "Watch rates, depths, consumers and connections on a terminal."),
    (_OPERATING, "check", "check:app", "Say in one line how a broker is, with an exit code for monitoring."),
    (
        _OPERATING,
        "addresses",
        "addresses:app",
        "List the addresses of a running broker; pause, block, delete them.",
    ),
    (_OPERATING, "queues", "queues:app", "List the queues of a running broker; pause, resume, delete them."),
    (_OPERATING, "connections", "connections:app", "List the connections of a running broker; close one."),
    (
        _OPERATING,
        "frames",
        "frames:app",
        "Log the frames of a connection, a user or an address of a running broker.",
    ),
    (
        _OPERATING,
        "groups",
        "queues:groups_app",
        "List reader groups, such as Spark's, and how far they are behind; delete or move them.",
    ),
    (
        _OPERATING,
        "sinks",
        "queues:sinks_app",
        "List the sinks that are remembered, such as Spark's; delete them.",
    ),
    (_OPERATING, "user", "user:app", "List, add, change and remove users; hash a passcode for a file."),
    (_OPERATING, "permissions", "definitions:permissions_app", "List, set and delete who may do what."),
    (_OPERATING, "settings", "definitions:settings_app", "Show, set and delete settings of addresses."),
    (
        _OPERATING,
        "definitions",
        "definitions:app",
        "Export and import users, permissions, settings and queues.",
    ),
    (_OPERATING, "declare", "declare:app", "Make an address, a queue or a durable subscription."),
    (_OPERATING, "durables", "declare:durables_app", "List and delete durable subscriptions."),
    (
        _OPERATING,
        "cluster",
        "cluster:app",
        "List the nodes of a cluster; let another one lead, or one not lead; forget one.",
    ),
    (_OPERATING, "reload", "reload:app", "Have a broker read its configuration again."),
    (_OPERATING, "purge", "moving:purge_app", "Drop the messages of a queue."),
    (_OPERATING, "move", "moving:move_app", "Move messages of a queue to another address."),
    (_OPERATING, "redrive", "moving:redrive_app", "Send dead letters back to where they came from."),
)


def version(*, is_verbose: bool) -> str:
    """`--version`; with `--verbose` also which build this is, and the Python that runs it."""
    if not is_verbose:
        return stompbox.__version__
    found = find_spec("stompbox.message")
    is_compiled = found is not None and str(found.origin).endswith(tuple(EXTENSION_SUFFIXES))
    build = "compiled by mypyc" if is_compiled else "pure Python"
    return f"{stompbox.__version__}, {build}, {platform.python_implementation()} {platform.python_version()}"


app = App(
    name="stompbox",
    version=lambda: version(is_verbose="--verbose" in sys.argv),
    help="A fast STOMP message broker, its client and its Spark pipeline.",
    help_format="plaintext",
    help_epilogue=ALL,
)
for _group, _name, _target, _help in _COMMANDS:
    app.command(f"stompbox.cli.{_target}", name=_name, group=_group, help=_help)


def main() -> None:
    if sys.stdout is None:
        # closed by who has started us: what is printed goes nowhere, and what was asked for is done
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    try:
        try:
            _choose_context()
            app(print_error=False, exit_on_error=False)
        finally:
            if sys.stdout is not None:
                # here, where it can be told; the interpreter would do it after the last handler
                sys.stdout.flush()
    except BrokenPipeError:
        _unread()
    except CycloptsError as error:
        command = " ".join(("stompbox", *(error.command_chain or ())))
        print(f"{command}: {_told(error)}; {command} --help says what there is", file=sys.stderr)
        sys.exit(WRONG_USE)
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


def _choose_context() -> None:
    """`stompbox --context NAME …`: the command that follows finds it in the environment."""
    flag, equals, name = sys.argv[1].partition("=") if len(sys.argv) > 1 else ("", "", "")
    if flag != "--context":
        return
    given = [name] if equals else sys.argv[2:3]
    if not given or not given[0]:
        print("stompbox: --context needs a name; `stompbox context list` has them", file=sys.stderr)
        sys.exit(WRONG_USE)
    os.environ["STOMPBOX_CONTEXT"] = given[0]
    del sys.argv[1 : 2 if equals else 3]


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


def _unread() -> NoReturn:
    _leave_stdout()
    sys.exit(0)


def _leave_stdout() -> None:
    """Nobody reads it any more: what is still written to it goes nowhere, and the interpreter does not complain at its end."""
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
