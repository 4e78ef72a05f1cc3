"""A TOML file in the making: tables, their keys, and comments beside them that say what could not be carried over and where it stood.

Decides how a comment is worded, what counts as left out, and that the result loads: `settled` turns into a comment what a judge refuses.
Knows no broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from re import Match, fullmatch, sub
from typing import Any, Final

from stompbox.config import toml
from stompbox.errors import ConfigError

NAME: Final = "draft"  # of the text, in what a judge says of it
MOST_STRUCK: Final = 500  # keys that a judge may refuse; beyond, the file is given up
_LONGEST: Final = 240  # characters of a comment
_NAMING: Final = ("name", "match", "url", "address", "forwarding-address")  # without them a table is none


@dataclass(slots=True)
class Entry:
    """One line below a header: a key with its value, or a comment. `line` is that of the source, 0 for none."""

    text: str
    line: int
    key: str = ""
    reason: str = ""  # why it is a comment, where it was a key


@dataclass(slots=True)
class Table:
    """A header such as `[[address]]` and what stands below it; the first table of a draft has none."""

    draft: Draft
    header: str
    line: int
    entries: list[Entry] = field(default_factory=list)
    reason: str = ""  # why all of it is a comment

    def put(self, key: str, value: Any, line: int) -> None:
        """Sets a key, in place of what it had."""
        self.entries = [entry for entry in self.entries if entry.key != key]
        self.entries.append(Entry(toml.write({key: value}).rstrip("\n"), line, key))

    def has(self, key: str) -> bool:
        return any(entry.key == key for entry in self.entries)

    def leave(self, line: int, what: str, why: str) -> None:
        """Something of the source has no place here: a comment says so, and it counts."""
        self.draft.left += 1
        self.entries.append(
            Entry(_comment(f"not carried over, {self.draft.place(line)}: {what}: {why}"), line)
        )

    def remark(self, text: str, line: int = 0) -> None:
        """Says what is good to know; nothing was lost."""
        self.entries.append(Entry(_comment(f"{self.draft.place(line)}: {text}" if line else text), line))

    def is_below(self, other: Table) -> bool:
        """Whether the header of this table belongs to the last element of the other."""
        return bool(other.header) and self.header.startswith(other.header.rstrip("]") + ".")


class Draft:
    """The tables in order. `left` counts what could not be carried over."""

    def __init__(self, source: str) -> None:
        self.source: Final = source
        self.left = 0
        self.tables: Final[list[Table]] = []
        self.top: Final = self.table("", 0)

    def __repr__(self) -> str:
        return f"<Draft of {self.source}: {len(self.tables)} tables, {self.left} left out>"

    def comment(self, text: str) -> Entry:
        """A line that says something of the whole file."""
        return Entry(_comment(text), 0)

    def place(self, line: int) -> str:
        return f"{self.source}:{line}" if line else self.source

    def table(self, header: str, line: int) -> Table:
        """A new table at the end, `header` as in the file."""
        made = Table(self, header, line)
        self.tables.append(made)
        return made

    @property
    def carried(self) -> int:
        """How many keys are set."""
        return sum(
            1
            for table in self.tables
            if not table.reason
            for entry in table.entries
            if entry.key and not entry.reason
        )

    def lines(self) -> list[tuple[str, Table, Entry | None]]:
        """Each line of the text with whose it is."""
        found: list[tuple[str, Table, Entry | None]] = []
        for table in self.tables:
            if not table.header and not table.entries:
                continue
            if found:
                found.append(("", table, None))
            mark = "# " if table.reason else ""
            if table.reason:
                found.append(
                    (_comment(f"not carried over, {self.place(table.line)}: {table.reason}"), table, None)
                )
            if table.header:
                found.append((mark + table.header, table, None))
            for entry in table.entries:
                found += [(line, table, entry) for line in _lines_of(entry, self, mark)]
        return found

    def strike(self, table: Table, entry: Entry | None, reason: str) -> None:
        """Makes a comment of a key; of a whole table, and those below it, where the key is one that it cannot be without."""
        self.left += 1
        if entry is not None and entry.key and entry.key not in _NAMING:
            entry.reason = reason
            return
        table.reason = reason
        at = self.tables.index(table)
        for other in self.tables[at + 1 :]:
            if not other.is_below(table):
                break
            other.reason = "it belongs to the one above"


def _placed(reason: str, lines: list[tuple[str, Table, Entry | None]], draft: Draft) -> str:
    """A reason that names lines of the source where it named those of the draft."""

    def place(found: Match[str]) -> str:
        _, table, entry = lines[int(found[1]) - 1]
        return draft.place(entry.line if entry else table.line)

    return sub(rf"\b{NAME}:([0-9]+)", place, reason)


def _lines_of(entry: Entry, draft: Draft, mark: str) -> list[str]:
    if entry.reason:
        said = _comment(f"not carried over, {draft.place(entry.line)}: {entry.reason}")
        return [said, f"# {entry.text}"]
    return [mark + entry.text if entry.key else entry.text]


def _comment(text: str) -> str:
    """One line, whatever the source had in its names."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return "# " + (plain if len(plain) <= _LONGEST else plain[: _LONGEST - 3] + "...")


def settled(draft: Draft, judge: Callable[[str], object]) -> str:
    """The text that `judge` takes. It raises ConfigError that begins with `draft:LINE:`; the key on that line becomes a comment with
    the reason. Raises ConfigError for what stands on no line, or when there is no end of it."""
    for _ in range(MOST_STRUCK):
        lines = draft.lines()
        text = "\n".join(line for line, _, _ in lines) + "\n"
        try:
            judge(text)
        except ConfigError as error:
            found = fullmatch(rf"{NAME}:([0-9]+): (.*)", error.message)
            if found is None:
                raise
            _, table, entry = lines[int(found[1]) - 1]
            draft.strike(table, entry, _placed(found[2], lines, draft))
            continue
        return text
    raise ConfigError(
        "config-value", f"{draft.source}: more than {MOST_STRUCK} of its values cannot be used here"
    )
