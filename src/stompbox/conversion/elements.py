"""XML with a memory for lines, read safely: no document type, no entities of its own, nothing from elsewhere, a bounded size.

Decides what is refused. A namespace's prefix is dropped from names: the configurations that are read have one language each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from re import search
from typing import Final, NoReturn
from xml.parsers import expat

from stompbox.errors import ConfigError

MOST_BYTES: Final = 16 * 1024 * 1024
MOST_ELEMENTS: Final = 200_000
DEEPEST: Final = 50


@dataclass(slots=True)
class Element:
    """An element: its name, where it begins, and what is in it. `text` has no blanks around it."""

    tag: str
    line: int
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def find(self, tag: str) -> Element | None:
        return next((child for child in self.children if child.tag == tag), None)

    def below(self, *tags: str) -> Iterator[Element]:
        """The elements that one gets to by these names, one after the other."""
        if not tags:
            yield self
            return
        for child in self.children:
            if child.tag == tags[0]:
                yield from child.below(*tags[1:])


def read(text: bytes, name: str) -> Element:
    """The root of a document. Raises ConfigError that names the line."""
    if len(text) > MOST_BYTES:
        raise ConfigError("config-syntax", f"{name}: has {len(text)} bytes, more than {MOST_BYTES}")
    reading = _Reading(name)
    try:
        reading.parser.Parse(text, True)
    except expat.ExpatError as error:
        what = expat.errors.messages[error.code]
        raise ConfigError("config-syntax", f"{name}:{error.lineno}: not XML: {what}") from None
    except (LookupError, ValueError) as error:  # an encoding that is none
        raise ConfigError("config-syntax", f"{name}:1: not XML: {error}") from None
    assert reading.root is not None  # expat has seen one
    return reading.root


class _Reading:
    """One document on its way from bytes to elements."""

    def __init__(self, name: str) -> None:
        self.root: Element | None = None
        self._name: Final = name
        self._open: Final[list[Element]] = []
        self._count = 0
        self.parser: Final = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MOST_ELEMENTS:
            self._refuse(f"more than {MOST_ELEMENTS} elements")
        if len(self._open) >= DEEPEST:
            self._refuse(f"elements deeper than {DEEPEST}")
        plain = {key: value for key, value in attributes.items() if not search(r"^xmlns\b|:", key)}
        element = Element(tag.rpartition(":")[2], self.parser.CurrentLineNumber, plain)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        element = self._open.pop()
        element.text = element.text.strip()

    def _characters(self, text: str) -> None:
        self._open[-1].text += text

    def _doctype(self, *_: object) -> None:
        self._refuse("it has a DOCTYPE, which is not read: entities could be anything")

    def _refuse(self, problem: str) -> NoReturn:
        raise ConfigError("config-syntax", f"{self._name}:{self.parser.CurrentLineNumber}: {problem}")
