"""TOML with a memory for places: what `tomllib` reads, plus the line on which each key stands; and the way back to text.

Decides where a key of a valid file stands: the line of the key itself, for tables the line of their header. `tomllib` decides what is
valid and what it means; the scanner here runs only on text that `tomllib` has accepted, and so can be short.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from stompbox.errors import ConfigError

Path = tuple[str | int, ...]

_QUOTES: Final = ('"""', "'''", '"', "'")
DEEP: Final = 32  # words and numbers from the root to a key: what reads TOML takes the square of them
# texts, which may have any number of dots, and comments. Nothing is looked at twice, in texts without an end neither
_TEXTS: Final = re.compile(
    r'"""(?:[^"\\]++|\\[\s\S]|"(?!""))*+(?:"{3,5}+)?'
    r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}+)?"
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+"
)
_CHAIN: Final = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{DEEP}}}")


def read(text: str, name: str) -> tuple[dict[str, Any], dict[Path, int]]:
    """(content, line of each key). `name` is the file's, for errors. Raises ConfigError."""
    try:
        if _CHAIN.search(_TEXTS.sub(_word_for, text)):
            raise RecursionError
        content = tomllib.loads(text)
        return content, Scanner(text).lines()
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            "config-syntax", _where_and_what(str(error), text, name) + _of_another_broker(text)
        ) from None
    except RecursionError:
        raise ConfigError("config-syntax", f"{name}: not TOML: nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise ConfigError("config-syntax", f"{name}: not TOML: {error}") from None


def _word_for(found: re.Match[str]) -> str:
    """What stands for a text, which may be a word of a key, or for a comment, while keys are looked at."""
    return "" if found[0].startswith("#") else "_"


def _where_and_what(problem: str, text: str, name: str) -> str:
    """`tomllib` says "Problem (at line 3, column 5)" or "Problem (at end of document)"."""
    what, _, place = problem.rpartition(" (at ")
    line = place.removeprefix("line ").partition(",")[0]
    number = int(line) if line.isdigit() else text.count("\n") + (not text.endswith("\n"))
    return f"{name}:{number}: not TOML: {what[:1].lower()}{what[1:]}"


def _of_another_broker(text: str) -> str:
    """Where it stands what to write instead of the configuration of another broker; "" for what is none."""
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return (
            "; it is XML, as Artemis's broker.xml: `stompbox import artemis` (or `activemq`) makes TOML of it, and docs/configuration.md "
            "says key by key what to write for it (From a broker.xml)"
        )
    if re.search(r"(?m)^[ \t]*imq\.", text):
        return "; they are properties of OpenMQ: docs/configuration.md says key by key what to write for them (From OpenMQ's properties)"
    return ""


class Scanner:
    """Walks over valid TOML and notes the line of every key and array element. Raises RecursionError where one is too deep."""

    def __init__(self, text: str) -> None:
        self._text: Final = text.replace("\r\n", "\n")
        self._at = 0
        self._line = 1
        self._lines: Final[dict[Path, int]] = {}
        self._tables: Final[dict[Path, int]] = {}  # arrays of tables: how many so far

    def lines(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip_blank(newlines=True):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._key_and_value(table)
        return self._lines

    def _take(self, count: int) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += count
        self._line += taken.count("\n")
        return taken

    def _skip_blank(self, *, newlines: bool) -> bool:
        """Skip blanks and, with `newlines`, comments and line ends. False at the end of the text."""
        blanks = " \t\n" if newlines else " \t"
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter in blanks:
                self._take(1)
            elif letter == "#" and newlines:
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return True
        return False

    def _header(self) -> Path:
        line = self._line
        array = self._text.startswith("[[", self._at)
        self._take(2 if array else 1)
        *above, last = self._dotted()
        self._take(2 if array else 1)
        path: Path = ()
        for word in above:
            path = self._latest((*path, word))
            self._lines.setdefault(path, line)
        path = (*path, last)
        self._lines.setdefault(path, line)
        if array:
            self._tables[path] = self._tables.get(path, 0) + 1
        path = self._latest(path)
        self._lines.setdefault(path, line)
        return path

    def _latest(self, path: Path) -> Path:
        """In a header, the name of an array of tables stands for its last element."""
        return (*path, self._tables[path] - 1) if path in self._tables else path

    def _dotted(self) -> list[str]:
        words = []
        while True:
            self._skip_blank(newlines=False)
            words.append(self._word())
            self._skip_blank(newlines=False)
            if self._text[self._at] != ".":
                return words
            self._take(1)

    def _word(self) -> str:
        if self._text[self._at] in "\"'":
            begin = self._at
            self._skip_string()
            quoted: str = tomllib.loads("word = " + self._text[begin : self._at])["word"]
            return quoted
        begin = self._at
        while self._text[self._at] not in " \t.=]":
            self._at += 1
        return self._text[begin : self._at]

    def _key_and_value(self, table: Path) -> None:
        line, path = self._line, table
        for word in self._dotted():
            path = (*path, word)
            self._lines.setdefault(path, line)
        self._take(1)  # the equals sign
        self._skip_blank(newlines=False)
        self._value(path)

    def _value(self, path: Path) -> None:
        if len(path) > DEEP:
            raise RecursionError
        letter = self._text[self._at]
        if letter == "[":
            self._array(path)
        elif letter == "{":
            self._inline_table(path)
        elif letter in "\"'":
            self._skip_string()
        else:
            while self._at < len(self._text) and self._text[self._at] not in ",]}#\n":
                self._at += 1

    def _array(self, path: Path) -> None:
        self._take(1)
        index = 0
        while self._skip_blank(newlines=True) and self._text[self._at] != "]":
            self._lines[(*path, index)] = self._line
            self._value((*path, index))
            self._skip_blank(newlines=True)
            if self._text[self._at] == ",":
                self._take(1)
            index += 1
        self._take(1)

    def _inline_table(self, path: Path) -> None:
        self._take(1)
        while self._skip_blank(newlines=True) and self._text[self._at] != "}":
            self._key_and_value(path)
            self._skip_blank(newlines=True)
            if self._text[self._at] == ",":
                self._take(1)
        self._take(1)

    def _skip_string(self) -> None:
        quote = next(quote for quote in _QUOTES if self._text.startswith(quote, self._at))
        self._take(len(quote))
        while not self._text.startswith(quote, self._at):
            escaped = self._text[self._at] == "\\" and quote[0] == '"'
            self._take(2 if escaped else 1)
        self._take(len(quote))
        if len(quote) == 3:  # up to two more quotes belong to the text of a multi-line string
            while self._text.startswith(quote[0], self._at):
                self._take(1)


def write(content: Mapping[str, Any], notes: Mapping[Path, str] | None = None, path: Path = ()) -> str:
    """TOML of a tree of tables, arrays of tables, texts, numbers, booleans and lists; None is left out.

    `notes` are comments by the path of their key.
    """
    notes = notes or {}
    plain = [(name, value) for name, value in content.items() if value is not None and not _is_tables(value)]
    parts = (
        [
            "\n".join(
                f"{_name(name)} = {_literal(value)}{_note(notes, (*path, name))}" for name, value in plain
            )
        ]
        if plain
        else []
    )
    for name, value in content.items():
        below = (*path, name)
        if isinstance(value, Mapping):
            parts.append(
                f"[{_header_of(below)}]{_note(notes, below)}\n{write(value, notes, below)}".rstrip("\n")
            )
        elif _is_tables(value):
            parts += [_element(item, notes, (*below, index)) for index, item in enumerate(value)]
    return "\n\n".join(parts) + ("\n" if parts else "")


def _element(item: Mapping[str, Any], notes: Mapping[Path, str], path: Path) -> str:
    note = _note(notes, path) or _note(notes, path[:-1])
    return f"[[{_header_of(path)}]]{note}\n{write(item, notes, path)}".rstrip("\n")


def _note(notes: Mapping[Path, str], path: Path) -> str:
    return f"  # {notes[path]}" if path in notes else ""


def _is_tables(value: object) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)
    )


def _header_of(path: Path) -> str:
    return ".".join(_name(word) for word in path if isinstance(word, str))


def _name(word: str) -> str:
    bare = word.isascii() and word.replace("-", "").replace("_", "").isalnum()
    return word if bare else _literal(word)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    return repr(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in escaped) + '"'
    )
