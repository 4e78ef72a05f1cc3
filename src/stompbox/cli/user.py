"""`stompbox user hash`: a passcode in, its argon2id hash out, for `password` of a [[user]].

Decides where the passcode comes from: a prompt on a terminal (twice), the first line of stdin otherwise. Never an argument: those can be
seen by every user of the machine.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from cyclopts import App

WRONG_USE = 2

app = App(name="user")


@app.command(name="hash")
def print_hash() -> None:
    """Read a passcode from stdin or a prompt and print its hash for the configuration file."""
    if sys.stdin is None:
        _leave("stdin is closed, and no passcode can be read from it")
    try:
        password = _prompted() if sys.stdin.isatty() else _piped()
    except (EOFError, KeyboardInterrupt):
        _leave("no passcode was given")
    if not password:
        _leave("an empty passcode is not allowed")

    from stompbox.security import hash_password

    print(hash_password(password))


def _prompted() -> str:
    from getpass import getpass

    password = getpass("Passcode: ")
    if getpass("Again: ") != password:
        _leave("the two passcodes differ")
    return password


def _piped() -> str:
    try:
        return sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        _leave("the passcode is not UTF-8")


def _leave(problem: str) -> NoReturn:
    print(f"stompbox: {problem}", file=sys.stderr)
    raise SystemExit(WRONG_USE)
