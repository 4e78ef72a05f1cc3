"""What the commands share that list something: how many, in which order, and again and again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter

from stompbox.cli.asking import plain, print_json, print_table
from stompbox.cli.connecting import at_least, leaving
from stompbox.cli.parameters import AsJson
from stompbox.errors import UsageError

_ANEW: Final = "\x1b[2J\x1b[H"  # ANSI: an empty screen, from its first line

Entry = dict[str, Any]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Listing:
    """The options that commands have which print a list."""

    sort: Annotated[
        str | None,
        Parameter(
            help="A name that --json shows, such as ready; -ready: the largest first.",
            allow_leading_hyphen=True,
        ),
    ] = None
    limit: Annotated[int | None, Parameter(help="So many at most.")] = None
    watch: Annotated[float | None, Parameter(help="Again every so many seconds, until Ctrl-C.")] = None
    as_json: AsJson = False
    format: Annotated[
        Literal["table", "json", "lines", "csv"],
        Parameter(
            help="json: all as one list; lines: a JSON object for each; csv: the columns of the table."
        ),
    ] = "table"

    def show(
        self,
        command: str,
        columns: Sequence[str],
        fetch: Callable[[], list[Entry]],
        row: Callable[[Entry], Sequence[object]],
    ) -> None:
        """Fetches and prints, once or for ever. What goes wrong ends the command."""
        with leaving(command):
            at_least("limit", self.limit, 1, "a number")
            at_least("watch", self.watch, 0.1, "seconds")
            if self.as_json and self.format not in ("table", "json"):
                raise UsageError("bad-argument", f"--json and --format {self.format} exclude each other")
            while True:
                found = self._chosen(fetch())
                if self.watch is not None and sys.stdout.isatty():
                    print(_ANEW, end="")
                self._print(columns, found, row)
                if self.watch is None:
                    return
                sys.stdout.flush()
                time.sleep(self.watch)

    def _print(
        self, columns: Sequence[str], found: list[Entry], row: Callable[[Entry], Sequence[object]]
    ) -> None:
        if self.as_json or self.format == "json":
            print_json(found)
        elif self.format == "lines":
            for one in found:
                print(json.dumps(one, ensure_ascii=False))
        elif self.format == "csv":
            import csv

            out = csv.writer(sys.stdout, lineterminator="\n")
            out.writerow([name or "state" for name in columns])
            out.writerows([[_cell(cell) for cell in row(one)] for one in found])
        else:
            print_table(columns, [row(one) for one in found])

    def _chosen(self, found: list[Entry]) -> list[Entry]:
        if self.sort is not None and found:
            name, is_falling = self.sort.removeprefix("-").replace("-", "_"), self.sort.startswith("-")
            # what some have and others have not, such as a selector, can be sorted by, too: those without it come last
            known = {
                key: None
                for one in found
                for key, value in one.items()
                if isinstance(value, str | int | float)
            }
            if name not in known:
                raise UsageError("bad-argument", f"--sort is {self.sort!r}; allowed are {', '.join(known)}")
            having = [one for one in found if one[name] is not None]
            lacking = [one for one in found if one[name] is None]
            found = [*sorted(having, key=lambda one: one[name], reverse=is_falling), *lacking]
        return found[: self.limit]


def _cell(cell: object) -> str:
    """Numbers as they are, and nothing that a spreadsheet would take for a formula: names come from clients."""
    if isinstance(cell, int | float):
        return str(cell)
    text = plain(cell)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
