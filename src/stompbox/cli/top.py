"""`stompbox top`: rates, depths, consumers and connections of a running broker, on a terminal, until `q`."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from stompbox.cli.connecting import at_least, leaving
from stompbox.cli.examples import examples
from stompbox.cli.parameters import Admin, Match
from stompbox.errors import UsageError

app = App(name="top", help_epilogue=examples("top"))


@app.default
def top(
    match: Match = "",
    *,
    interval: Annotated[float, Parameter(help="Seconds between two looks.")] = 2.0,
    admin: Admin = None,
) -> None:
    """Watch a running broker on a terminal: rates, depths, consumers, connections.

    Keys: q quits, Tab turns to the connections and back, the letters in the head sort (again: the other way), / finds, space holds.
    """
    with leaving("top"):
        at_least("interval", interval, 0.2, "seconds")
        _refuse_without_terminal()
        try:
            from stompbox.cli.topscreen import Top
        except ImportError as error:
            if not (error.name or "").startswith("textual"):
                raise
            raise UsageError("no-textual", f"{error}: pip install 'stompbox[top]'") from None
        from stompbox.cli.sampling import sample

        take = partial(sample, admin)
        take()  # who is not reached, or lets nobody in, is told before the screen is taken
        Top(take, interval, match).run()


def _refuse_without_terminal() -> None:
    is_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    if not is_terminal or os.environ.get("TERM") in ("dumb", "unknown"):
        problem = "a screen needs a terminal; `stompbox queues --watch 2` and `stompbox status --json` print"
        raise UsageError("no-terminal", problem)
