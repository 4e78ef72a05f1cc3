"""JSON with a memory for lines: objects that know where they and each of their values stand.

Decides what is refused, with its line: what is no JSON, is too large or too deep, and a value that is not of the type asked for.
"""

from __future__ import annotations

import json
from re import compile as pattern
from typing import Any, Final, NoReturn

from stompbox.config.fields import shown
from stompbox.errors import ConfigError

MOST_BYTES: Final = 64 * 1024 * 1024
DEEPEST: Final = 50
_DECODER: Final = json.JSONDecoder()
_BLANK: Final = pattern(r"[ \t\r\n]*")
_WORD: Final = pattern(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")


class Located(dict[str, Any]):
    """An object of the file `name`, which begins on `line`; `lines` has the line of each value."""

    def __init__(self, name: str, line: int) -> None:
        super().__init__()
        self.name: Final = name
        self.line: Final = line
        self.lines: Final[dict[str, int]] = {}

    def of(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """The value of a key, `default` where it is not there or null. Raises ConfigError where it is of another type."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            kinds = {
                str: "a text",
                int: "a whole number",
                bool: "true or false",
                list: "an array",
                Located: "an object",
            }
            wanted = kinds.get(kind if isinstance(kind, type) else kind[0], "something else")
            self.refuse(key, f"expected {wanted}, not {shown(value)}")
        return value

    def text(self, key: str) -> str:
        """The text that must be there."""
        found: str | None = self.of(key, str)
        if found is None:
            raise ConfigError("config-value", f"{self.name}:{self.line}: {key!r} is missing")
        return found

    def objects(self, key: str) -> list[Located]:
        """The objects of an array; none where the key is not there."""
        items: list[Any] = self.of(key, list, [])
        for index, item in enumerate(items):
            if not isinstance(item, Located):
                self.refuse(key, f"{key}[{index}]: expected an object, not {shown(item)}")
        return items

    def refuse(self, key: str, problem: str) -> NoReturn:
        raise ConfigError("config-value", f"{self.name}:{self.lines.get(key, self.line)}: {key}: {problem}")


def read(text: bytes, name: str) -> Located:
    """The object that a file has. Raises ConfigError that names the line."""
    if len(text) > MOST_BYTES:
        raise ConfigError("config-syntax", f"{name}: has {len(text)} bytes, more than {MOST_BYTES}")
    try:
        plain = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "config-syntax", f"{name}:{line}: not JSON: byte {error.start} is not UTF-8"
        ) from None
    found = _Reading(plain, name).whole()
    if not isinstance(found, Located):
        raise ConfigError("config-syntax", f"{name}:1: expected an object, not {shown(found)}")
    return found


class _Reading:
    """One text on its way to values; `_line` is that of `_at`."""

    def __init__(self, text: str, name: str) -> None:
        self._text: Final = text
        self._name: Final = name
        self._at = 0
        self._line = 1
        self._depth = 0

    def whole(self) -> Any:
        value = self._value()
        self._skip()
        if self._at < len(self._text):
            self._refuse("there is more after its end")
        return value

    def _value(self) -> Any:
        letter = self._skip()
        if letter == "{":
            return self._nested(self._object)
        if letter == "[":
            return self._nested(self._array)
        if letter == '"':
            return self._string()
        found = _WORD.match(self._text, self._at)
        if found is None or len(found[0]) > 100:
            self._refuse("a value is missing")
        try:
            value = json.loads(found[0])
        except json.JSONDecodeError:
            self._refuse(f"{found[0]!r} is no value")
        self._to(found.end())
        return value

    def _nested(self, read: Any) -> Any:
        self._depth += 1
        if self._depth > DEEPEST:
            self._refuse(f"nested deeper than {DEEPEST}")
        value = read()
        self._depth -= 1
        return value

    def _object(self) -> Located:
        found = Located(self._name, self._line)
        self._to(self._at + 1)
        while self._skip() != "}":
            if found and not self._comma("}"):
                self._refuse("expected , or }")
            if self._skip() != '"':
                self._refuse("expected a name in quotes")
            key = self._string()
            if self._skip() != ":":
                self._refuse("expected :")
            self._to(self._at + 1)
            self._skip()
            found.lines[key] = self._line
            found[key] = self._value()
        self._to(self._at + 1)
        return found

    def _array(self) -> list[Any]:
        found: list[Any] = []
        self._to(self._at + 1)
        while self._skip() != "]":
            if found and not self._comma("]"):
                self._refuse("expected , or ]")
            found.append(self._value())
        self._to(self._at + 1)
        return found

    def _comma(self, end: str) -> bool:
        if not self._text.startswith(",", self._at):
            return False
        self._to(self._at + 1)
        if self._skip() == end:
            self._refuse(f"a value is missing before {end}")
        return True

    def _string(self) -> str:
        try:
            value, end = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            self._refuse(error.msg[:1].lower() + error.msg[1:])
        self._to(end)
        return str(value)

    def _skip(self) -> str:
        """Skips blanks; the next letter, "" at the end."""
        found = _BLANK.match(self._text, self._at)
        self._to(found.end() if found else self._at)
        return self._text[self._at : self._at + 1]

    def _to(self, at: int) -> None:
        self._line += self._text.count("\n", self._at, at)
        self._at = at

    def _refuse(self, problem: str) -> NoReturn:
        if self._at >= len(self._text):
            problem = "it ends too early"
        raise ConfigError("config-syntax", f"{self._name}:{self._line}: not JSON: {problem}")
