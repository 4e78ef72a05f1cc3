"""`stompbox user`: the users of a running broker, by its admin interface; and `stompbox user hash`, for those of a configuration file.

Decides where a passcode comes from: a prompt on a terminal (twice), the first line of stdin otherwise. Never an argument: those can be
seen by every user of the machine. It is hashed here: the broker gets the hash alone.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final, NoReturn

from cyclopts import App, Parameter

from stompbox.cli import names
from stompbox.cli.asking import every
from stompbox.cli.examples import examples
from stompbox.cli.listing import Entry, Listing
from stompbox.cli.operating import Operation, sure, warned
from stompbox.cli.parameters import Admin, Flag, Match, Yes

WRONG_USE = 2

app = App(name="user", help_epilogue=examples("user"))

UserName = Annotated[str, Parameter(help="The login.", completer=names.users)]
GroupNames = Annotated[
    list[str] | None,
    Parameter(
        name=["--group", "-g"], consume_multiple=False, negative="",
        help="A group that a permission can name; may be given several times.",
    ),
]  # fmt: skip
_AS_IT_IS: Final = Operation()


@app.command(name="list")
def users(match: Match = "", *, admin: Admin = None, listing: Listing = Listing()) -> None:  # noqa: B008 - a frozen value
    """List users: their groups, how they log in, how many connections they have, and where each was set."""
    columns = ("name", "groups", "login", "connections", "set at")
    listing.show("user list", columns, lambda: list(every(admin, "users", match=match)), _row)


def _row(one: Entry) -> tuple[object, ...]:
    return one["name"], ", ".join(one["groups"]), one["login"], one["connections"], one["source"]


@app.command
def add(
    name: UserName,
    /,
    *,
    group: GroupNames = None,
    no_passcode: Annotated[Flag, Parameter(help="The user logs in by client certificate only.")] = False,
    operation: Operation = _AS_IT_IS,
) -> None:
    """Make a user. The passcode is asked for, or the first line of stdin; the first user of a broker closes it to all others."""
    order: dict[str, Any] = {"name": name, "groups": group or []}
    if not no_passcode:
        order["password"] = _hashed("user add")
    operation.do(
        "user add", "users/create", order, lambda found: [f"user {name} is there now", *warned(found)]
    )


@app.command
def passwd(name: UserName, /, *, operation: Operation = _AS_IT_IS) -> None:
    """Give a user another passcode, which is asked for, or the first line of stdin. Connections with the old one end."""
    order = {"name": name, "password": _hashed("user passwd")}
    told = f"user {name} has another passcode"
    operation.do("user passwd", "users/change", order, lambda found: [told, *warned(found)])


@app.command
def change(name: UserName, /, *, group: GroupNames = None, operation: Operation = _AS_IT_IS) -> None:
    """Put a user into other groups: those that are given, and no others."""
    groups = ", ".join(group or []) or "no group"
    told = f"user {name} is in {groups} now"
    operation.do(
        "user change",
        "users/change",
        {"name": name, "groups": group or []},
        lambda found: [told, *warned(found)],
    )


@app.command
def remove(name: UserName, /, *, yes: Yes = False, operation: Operation = _AS_IT_IS) -> None:
    """Take a user away, and end the user's connections."""
    sure("user remove", f"remove user {name}", yes=yes)
    operation.do(
        "user remove", "users/delete", {"name": name}, lambda found: [f"user {name} removed", *warned(found)]
    )


@app.command(name="hash")
def print_hash() -> None:
    """Read a passcode from stdin or a prompt and print its hash for the configuration file."""
    print(_hashed("user hash"))


def _hashed(command: str) -> str:
    if sys.stdin is None:
        _leave(command, "stdin is closed, and no passcode can be read from it")
    try:
        password = _prompted(command) if sys.stdin.isatty() else _piped(command)
    except (EOFError, KeyboardInterrupt):
        _leave(command, "no passcode was given")
    if not password:
        _leave(command, "an empty passcode is not allowed")

    from stompbox.security import hash_password

    return hash_password(password)


def _prompted(command: str) -> str:
    from getpass import getpass

    password = getpass("Passcode: ")
    if getpass("Again: ") != password:
        _leave(command, "the two passcodes differ")
    return password


def _piped(command: str) -> str:
    try:
        return sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        _leave(command, "the passcode is not UTF-8")


def _leave(command: str, problem: str) -> NoReturn:
    print(f"stompbox {command}: {problem}", file=sys.stderr)
    raise SystemExit(WRONG_USE)
