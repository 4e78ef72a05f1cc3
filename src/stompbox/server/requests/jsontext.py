"""JSON that may be long, read and written in steps of some items: the values and texts are those of `json`.

What is short is read at once, by `json` itself. Decides how a text is gone through, and not what it may say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from json import JSONDecodeError
from typing import Any, Final

from stompbox.selectors.steps import Steps

AT_ONCE: Final = 16 << 10  # characters: half a millisecond
BATCH: Final = 200  # short items that are read at once: a tenth of a millisecond
STEP: Final = 50  # other items of one step: a tenth of a millisecond
PIECE: Final = 16 << 10  # characters of an answer that are kept as one, about
DEEP: Final = 900  # containers in each other: about as many as `json` takes

_space = re.compile(r"[ \t\n\r]*").match
# items that are short, as most are: up to BATCH of them are read by `json` in one go. No part is looked at twice (possessive)
_TEXT: Final = r'"[^"\\\x00-\x1f]*+"[ \t\n\r]*+'
_ITEM: Final = rf'(?:{_TEXT}|[-+.\w]++|\[[^\[\]{{}}"]{{0,64}}+\])[ \t\n\r]*+'
_items = re.compile(rf"(?:,[ \t\n\r]*+{_ITEM}){{1,{BATCH}}}+").match
_members = re.compile(rf"(?:,[ \t\n\r]*+{_TEXT}:[ \t\n\r]*+{_ITEM}){{1,{BATCH}}}+").match
_scalar = json.JSONDecoder().raw_decode
_written = json.JSONEncoder(separators=(",", ":"), check_circular=False).iterencode


Container = dict[Any, Any] | list[Any]


def reading(text: str | bytes, kept: list[Container]) -> Steps[Any]:
    """The value of a text. Raises ValueError for one that is not JSON, RecursionError for one that is nested too deep. What is long is
    among the `kept` from the first step on, also where it is wrong in the end: it is to be emptied in steps when nobody needs it."""
    if len(text) <= AT_ONCE:
        return json.loads(text)
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    return (yield from _Reading(text).value(kept))


def emptying(containers: list[Container]) -> Iterator[None]:
    """Takes all out of these, and of what is in them, which would go in one go with them."""
    left = BATCH
    while containers:
        inner = containers[-1]
        if not inner:
            containers.pop()
            continue
        value = inner.popitem()[1] if isinstance(inner, dict) else inner.pop()
        if value and isinstance(value, dict | list):
            containers.append(value)
        left -= 1
        if not left:
            left = BATCH
            yield


class _Reading:
    """How far a text was read. `open`: the containers that have not ended, the innermost last."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open: list[Container] = []
        self.key = ""

    def value(self, kept: list[Container]) -> Steps[Any]:
        self._skip(0)
        found = self._one()
        kept += self.open
        left = STEP
        while self.open:
            left -= STEP if self._batch() else 1
            if left <= 0:
                left = STEP
                yield
            self._next()
        if self.at < len(self.text):
            raise JSONDecodeError("Extra data", self.text, self.at)
        return found

    def _skip(self, at: int) -> None:
        space = _space(self.text, at)
        assert space is not None
        self.at = space.end()

    @property
    def _character(self) -> str:
        return self.text[self.at : self.at + 1]

    def _one(self) -> Any:
        """The value that begins here, as far as it is a scalar; a container is open from here on."""
        character = self._character
        if character in ("{", "["):
            if len(self.open) >= DEEP:
                raise RecursionError
            found: Any = {} if character == "{" else []
            self._skip(self.at + 1)
            self.open.append(found)
            return found
        found, end = _scalar(self.text, self.at)
        self._skip(end)
        return found

    def _batch(self) -> bool:
        """Reads the next items of the innermost container that are short. False where there are none, or one of them is wrong, which is
        told when it is read by itself."""
        inner = self.open[-1]
        is_object = isinstance(inner, dict)
        batch = (_members if is_object else _items)(self.text, self.at) if inner else None
        if batch is None:
            return False
        text = batch.group()[1:]
        try:
            found = json.loads(f"{{{text}}}" if is_object else f"[{text}]")
        except ValueError:
            return False
        if isinstance(inner, dict):
            inner.update(found)
        else:
            inner.extend(found)
        self.at = batch.end()
        return True

    def _next(self) -> None:
        """The next item of the innermost container, or its end."""
        inner = self.open[-1]
        is_object = isinstance(inner, dict)
        if self._character == ("}" if is_object else "]"):
            self.open.pop()
            self._skip(self.at + 1)
            return
        if inner:
            if self._character != ",":
                raise JSONDecodeError("Expecting ',' delimiter", self.text, self.at)
            self._skip(self.at + 1)
        if isinstance(inner, dict):
            self._read_key()
            inner[self.key] = self._one()
        else:
            inner.append(self._one())

    def _read_key(self) -> None:
        if self._character != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", self.text, self.at)
        self.key, end = _scalar(self.text, self.at)
        self._skip(end)
        if self._character != ":":
            raise JSONDecodeError("Expecting ':' delimiter", self.text, self.at)
        self._skip(self.at + 1)


def writing(value: object) -> Generator[None, None, list[bytes]]:
    """The text of a value, in pieces."""
    pieces: list[bytes] = []
    parts: list[str] = []
    size = 0
    for part in _written(value):
        parts.append(part)
        size += len(part)
        if size >= PIECE or len(parts) % STEP == 0:
            if size >= PIECE:
                pieces.append("".join(parts).encode())
                parts, size = [], 0
            yield
    pieces.append("".join(parts).encode())
    return pieces
