"""What the commands share that change something in a running broker: the question before, the request, what is said of the answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from stompbox.cli.asking import Admin, AsJson, ask, plain, print_json
from stompbox.cli.connecting import leaving
from stompbox.errors import UsageError

Yes = Annotated[
    bool, Parameter(name=["--yes", "-y"], help="Do not ask before.", negative="", show_default=False)
]
QueueName = Annotated[str, Parameter(help="Name, or address::name where several queues have the name.")]
Forced = Annotated[
    bool,
    Parameter(
        name="--force", negative="", show_default=False, help="Also with messages, and from under consumers."
    ),
]

Told = str | Callable[[dict[str, Any]], str]
"""What is printed when it is done; of the answer, where that matters."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Operation:
    """The options of a command that changes something."""

    admin: Admin = None
    as_json: AsJson = False

    def do(self, command: str, path: str, order: Mapping[str, object], told: Told) -> None:
        """What goes wrong ends the command."""
        with leaving(command):
            found = ask(self.admin, path, order)
            if self.as_json:
                print_json(found)
            else:
                print(plain(told if isinstance(told, str) else told(found)))


def sure(command: str, what: str, *, yes: bool) -> None:
    """Asks on a terminal before something is done that cannot be undone; a script is not asked. A no ends the command."""
    if yes or sys.stdin is None or not sys.stdin.isatty():
        return
    with leaving(command):
        print(plain(f"{what}? [y/N] "), end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError("not-confirmed", "nothing was done; --yes does not ask")
