"""What the commands share that change something in a running broker: the question before, the request, what is said of the answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cyclopts import Parameter

from stompbox.cli.asking import ask, plain, print_json
from stompbox.cli.connecting import leaving
from stompbox.cli.parameters import Admin, AsJson
from stompbox.errors import UsageError

Told = str | Callable[[dict[str, Any]], str | list[str]]
"""What is printed when it is done, a line or several; of the answer, where that matters."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Operation:
    """The options of a command that changes something."""

    admin: Admin = None
    as_json: AsJson = False

    def do(self, command: str, path: str, order: Mapping[str, object] | None, told: Told) -> None:
        """The broker is asked, and what it answers is printed. Without an `order` nothing changes. What goes wrong ends the command."""
        with leaving(command):
            found = ask(self.admin, path, order)
            if self.as_json:
                print_json(found)
                return
            said = told if isinstance(told, str) else told(found)
            print("\n".join([plain(line) for line in ([said] if isinstance(said, str) else said)]))


def warned(found: Mapping[str, Any]) -> list[str]:
    """A line for each warning of an answer, and one where it is not all done yet."""
    rest = (
        "addresses that are there are still changed"
        if not found["is_done"] and not found.get("is_dry_run")
        else ""
    )
    return [*[f"warning: {warning}" for warning in found["warnings"]], *([rest] if rest else [])]


def sure(command: str, what: str, *, yes: bool) -> None:
    """Asks on a terminal before something is done that cannot be undone; a script is not asked. A no ends the command."""
    if yes or sys.stdin is None or not sys.stdin.isatty():
        return
    with leaving(command):
        print(plain(f"{what}? [y/N] "), end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError("not-confirmed", "nothing was done; --yes does not ask")
