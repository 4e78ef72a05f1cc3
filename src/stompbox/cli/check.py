"""`stompbox check`: one line and an exit code, as Nagios, Icinga, Checkmk and Sensu read them (Nagios plug-in API):
0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final, NoReturn

from cyclopts import App, Parameter

from stompbox.cli.asking import ask, every, plain
from stompbox.cli.examples import examples
from stompbox.cli.parameters import Admin
from stompbox.errors import ConnectionLost, StompboxError, UsageError
from stompbox.numerals import digits

OK, WARNING, CRITICAL, UNKNOWN = range(4)
_WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
MEASURES: Final = {  # what can be compared, and what it is
    "connections": "connections",
    "waiting": "connections that are not read, because something is full",
    "ready": "messages that wait in queues",
    "delivering": "messages that are handed out and not acknowledged",
    "dead": "dead letters that wait",
    "lag": "messages that the reader group furthest behind has not read",
    "uncommitted": "octets on their way to the disk",
}
_HELP: Final = "NAME=MOST: {} when it is more. Names: " + "; ".join(
    f"{name}: {text}" for name, text in MEASURES.items()
)

app = App(name="check", help_epilogue=examples("check"))

Limit = Annotated[list[str] | None, Parameter(consume_multiple=False, negative="")]


@app.default
def check(
    *,
    warning: Annotated[Limit, Parameter(name=["--warning", "-w"], help=_HELP.format("WARNING"))] = None,
    critical: Annotated[Limit, Parameter(name=["--critical", "-c"], help=_HELP.format("CRITICAL"))] = None,
    admin: Admin = None,
) -> None:
    """Say in one line how a broker is, with an exit code for monitoring: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    A broker that is not ready, or that nobody reaches, is CRITICAL.
    """
    try:
        limits = [(CRITICAL, _limits("--critical", critical)), (WARNING, _limits("--warning", warning))]
        status = ask(admin, "status")
        found = _measured(admin, status)
    except ConnectionLost as error:
        _end(CRITICAL, str(error))
    except (StompboxError, KeyError, TypeError) as error:
        _end(UNKNOWN, str(error))
    if not status["is_ready"]:
        _end(CRITICAL, "; ".join([reason["message"] for reason in status["reasons"]]), found)
    for level, given in limits:
        over = [
            f"{name} is {found[name]}, more than {most}" for name, most in given.items() if found[name] > most
        ]
        if over:
            _end(level, "; ".join(over), found)
    _end(OK, f"{found['connections']} connections, {found['ready']} messages ready", found)


def _limits(flag: str, given: list[str] | None) -> dict[str, int]:
    """The limits of a flag by name. Raises UsageError that names the wrong one."""
    found = {}
    for text in given or ():
        name, _, most = text.partition("=")
        number = digits(most)
        if name not in MEASURES or number is None:
            raise UsageError(
                "bad-argument",
                f"{flag} is {text!r}; allowed is NAME=MOST with a number from 0 and {', '.join(MEASURES)}",
            )
        found[name] = number
    return found


def _measured(admin: str | None, status: dict[str, int]) -> dict[str, int]:
    listed = list(every(admin, "addresses"))
    groups = [one for group in every(admin, "groups") for one in group["addresses"]]
    return {
        "connections": status["connections"],
        "waiting": status["waiting"],
        "ready": sum([one["ready"] for one in listed]),
        "delivering": sum([one["delivering"] for one in listed]),
        "dead": sum([one["ready"] for one in listed if one["is_dead_letters"]]),
        "lag": max([one["lag_messages"] for one in groups], default=0),
        "uncommitted": status["unsaved_bytes"],
    }


def _end(level: int, text: str, found: dict[str, int] | None = None) -> NoReturn:
    """Performance data stand behind a bar, which the text must not have."""
    data = " ".join([f"{name}={value}" for name, value in (found or {}).items()])
    line = plain(f"STOMPBOX {_WORDS[level]}: {text}").replace("|", "/")
    print(f"{line} | {data}" if data else line)
    sys.exit(level)
