"""What `stompbox --help` lists: the commands, in groups, with what each does, in boxes as wide as the terminal.

Decides which commands there are and where each lies, and prints the list by itself: who asks for it waits for no library. The help of
one command is that of the library that reads the command line (`application`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from textwrap import wrap
from typing import Final

from stompbox.cli.examples import ALL
from stompbox.numerals import digits

ABOUT: Final = "A fast STOMP message broker, its client and its Spark pipeline."
NARROWEST: Final = 24  # columns: below it there is no room for words beside the names

_MESSAGES: Final = "Messages"
_BROKER: Final = "A broker"
_OPERATING: Final = "A running broker, by its admin interface"
GROUPS: Final = (_MESSAGES, _BROKER, _OPERATING)
# Name, where it is, and what the list says of it. The module says the same at its head; here it costs no import.
COMMANDS: Final = (
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
_ALWAYS: Final = (
    ("--help (-h)", "Display this message and exit."),
    ("--version", "Display application version."),
)
_CYAN, _BOLD, _PLAIN = "\x1b[36m", "\x1b[1m", "\x1b[0m"


def print_overview() -> None:
    """Prints the list to stdout: with colours on a terminal (unless NO_COLOR is set), in ASCII where the encoding has no lines."""
    text = overview(_columns())
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        text = re.sub(r"\x1b\[\d+m", "", text)
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        text = text.translate(str.maketrans("─│╭╮╰╯", "-|++++"))
    print(text)


def overview(columns: int) -> str:
    """The list, with colours, for a terminal of so many columns."""
    boxes = [_box("Commands", _ALWAYS, columns)]
    for group in GROUPS:
        listed = sorted((name, said) for of, name, _, said in COMMANDS if of == group)
        boxes.append(_box(group, listed, columns))
    epilogue = [line for paragraph in ALL.splitlines() for line in wrap(paragraph, columns) or [""]]
    about = wrap(ABOUT, columns)
    return "\n".join([f"{_BOLD}Usage: stompbox COMMAND{_PLAIN}", "", *about, "", *boxes, "", *epilogue])


def _box(title: str, rows: Iterable[tuple[str, str]], columns: int) -> str:
    """Names and what each does, in a frame."""
    listed, title = list(rows), title[: columns - 5]
    names = max(len(name) for name, _ in listed)
    room = columns - names - 6
    lines = [f"╭─ {title} {'─' * (columns - len(title) - 5)}╮"]
    for name, said in listed:
        for at, line in enumerate(wrap(said, room)):
            named = f"{_CYAN}{name if at == 0 else '':<{names}}{_PLAIN}"
            lines.append(f"│ {named}  {line:<{room}} │")
    return "\n".join([*lines, f"╰{'─' * (columns - 2)}╯"])


def _columns() -> int:
    """COLUMNS, else the terminal's width, else 80."""
    told = digits(os.environ.get("COLUMNS", ""))
    if told is not None:
        return max(told, NARROWEST)
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, NARROWEST)
    except OSError:
        return 80
