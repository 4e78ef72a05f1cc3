"""How a selector is refused: the codes, and one wording that names position, what was found and what was expected.

Decides: the text of every SelectorError. Does not decide what is refused.
"""

from __future__ import annotations

from stompbox.errors import SelectorError

EMPTY = "selector-empty"
SYNTAX = "selector-syntax"
TYPE = "selector-type"
NUMBER = "selector-number"
FUNCTION = "selector-function"
XPATH = "selector-xpath"
LIMIT = "selector-limit"

_SHOWN = 40


def shown(text: str) -> str:
    """`text` in quotes, short and without control characters, fit for one header line."""
    short = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return "'" + "".join(char if char.isprintable() else "?" for char in short) + "'"


def refusal(code: str, position: int, found: str, expected: str) -> SelectorError:
    """`position` counts characters of the selector from 1."""
    return SelectorError(code, f"selector, position {position}: found {found}, expected {expected}", position)
