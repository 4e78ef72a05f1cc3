"""What the tests of conversions share: a file of each broker, converted as `stompbox import` does it, and a broker started with it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stompbox.cli.importing import judge
from stompbox.conversion import Accounts, Properties, convert, settled

FILES = Path(__file__).parent / "files"


@dataclass(frozen=True, slots=True)
class Converted:
    text: str
    left: int

    @property
    def content(self) -> dict[str, Any]:
        return tomllib.loads(self.text)

    def named(self, table: str, key: str, name: str) -> dict[str, Any]:
        """The one element of an array of tables that has this name."""
        (found,) = [element for element in self.content[table] if element[key] == name]
        return dict(found)

    def says(self, *words: str) -> bool:
        """Whether one comment has all these words."""
        return any(
            all(word in line for word in words) for line in self.text.splitlines() if line.startswith("#")
        )


Conversion = Callable[..., Converted]


@pytest.fixture
def converted() -> Conversion:
    """converted(kind, text or name of a file) -> what becomes of it; passwords are `hash of` themselves."""

    def run(kind: str, source: str, users: str = "", roles: str = "") -> Converted:
        is_file = "\n" not in source and (FILES / source).is_file()
        accounts = Accounts(
            lambda password: f"hash of {password}",
            Properties.read("users.properties", users.encode()) if users else None,
            Properties.read("roles.properties", roles.encode()) if roles else None,
        )
        content = (FILES / source).read_bytes() if is_file else source.encode()
        draft = convert(kind, source if is_file else "it", content, accounts)
        return Converted(settled(draft, judge), draft.left)

    return run
