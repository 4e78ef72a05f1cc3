"""Functions in selectors, as ActiveMQ Classic has them: REGEX, REPLACE, INLIST, SPLIT and MAKELIST.

Decides: their arguments and results. A pattern is a literal, and RE2 matches it (google-re2, the extra [regex]): its time grows with the
text as the text does, whatever a stranger's pattern is, and its memory has a limit; in turn there are no references to groups, and
nothing is looked at ahead or behind. Where RE2 is not installed a selector with a pattern is refused.

| function              | result | what it is                                                                                     |
|-----------------------|--------|------------------------------------------------------------------------------------------------|
| REGEX('p', x)         | truth  | the pattern matches somewhere in x                                                             |
| REPLACE(x, 'p', 't')  | text   | x with t for each match; t without $ and \\\\, which stand for groups in Java                    |
| INLIST(list, x)       | truth  | x is one of the list                                                                           |
| SPLIT(x, 'p')         | list   | what stands between the matches, without empty texts at the end                                |
| MAKELIST(x, y, ...)   | list   |                                                                                                |

x and y are headers, literals or a REPLACE. What is missing makes the result UNKNOWN, and so does a budget (budget.py) that is used up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

from stompbox.selectors.budget import Budget
from stompbox.selectors.facts import Value
from stompbox.selectors.values import Truth
from stompbox.selectors.xpath import Document

Function = Callable[..., Any]

_MEMORY: Final = 64 << 10  # octets that a pattern may have, which is about 2,700 instructions of RE2
_FREE: Final = 64  # characters of a text that cost nothing
_TAKEN_APART: Final = 512  # steps for 64 characters: each may be a match
_LONGEST: Final = 1 << 20  # characters that a REPLACE may make
_INSTRUCTIONS_PER_TERM: Final = 32


class Parameter(Enum):
    """What may stand there; the value says it to the user."""

    PATTERN = "a pattern in single quotes"
    TEXT = "a text in single quotes"
    VALUE = "a header name, a text, a number or REPLACE(…)"
    LIST = "SPLIT(…) or MAKELIST(…)"


class BadPattern(Exception):
    """RE2 does not take it; the message says why."""


class NoRegex(Exception):
    """The library RE2 is not installed."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function of selectors takes and gives. `result`: True for a condition, False for a text, None for a list. `make`: of the
    literals to the function of the values."""

    parameters: tuple[Parameter, ...]
    result: bool | None
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """A function of the arguments that are no patterns or texts, and the document. `weight`: steps for 64 characters; `terms`: that the
    pattern is worth; `size`: octets of memory."""

    call: Function
    weight: int = 0
    terms: int = 0
    size: int = 0


SIGNATURES: Final = {
    "REGEX": Signature((Parameter.PATTERN, Parameter.VALUE), result=True),
    "REPLACE": Signature((Parameter.VALUE, Parameter.PATTERN, Parameter.TEXT), result=False),
    "INLIST": Signature((Parameter.LIST, Parameter.VALUE), result=True),
    "SPLIT": Signature((Parameter.VALUE, Parameter.PATTERN), result=None),
    "MAKELIST": Signature((Parameter.VALUE,), result=None, repeats=True),
}


def made(name: str, literals: list[str]) -> Made:
    """Makes a function of its literals. Raises BadPattern or NoRegex."""
    if name == "INLIST":
        return Made(_is_in_list)
    if name == "MAKELIST":
        return Made(_list_of)
    pattern = _compiled(literals[0])
    size = 2 * _MEMORY
    terms = pattern.programsize // _INSTRUCTIONS_PER_TERM
    if name == "REGEX":
        weight = 2 * pattern.programsize
        return Made(_search(pattern, weight), weight, terms, size)
    if name == "SPLIT":
        return Made(_split(pattern), _TAKEN_APART, terms, size)
    if "$" in literals[1] or "\\" in literals[1]:
        raise BadPattern("a text without $ and \\ to put in")
    return Made(_replace(pattern, literals[1]), _TAKEN_APART, terms, size)


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    return options


def _compiled(pattern: str) -> Any:
    try:
        import re2
    except ImportError:
        raise NoRegex from None
    try:
        return re2.compile(pattern, _options())
    except re2.error as error:
        said = error.args[0] if error.args else ""
        raise BadPattern(f"a pattern of RE2 ({said.decode() if isinstance(said, bytes) else said})") from None


def _text(value: Value) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _affords(text: str, weight: int, document: Document | None) -> bool:
    if len(text) <= _FREE:
        return True
    budget = document.budget if document is not None else Budget()
    return budget.spend(weight * len(text) // 64)


def _search(pattern: Any, weight: int) -> Function:
    def search(value: Value, document: Document | None) -> Truth:
        text = _text(value)
        return (
            pattern.search(text) is not None
            if text is not None and _affords(text, weight, document)
            else None
        )

    return search


def _replace(pattern: Any, by: str) -> Function:
    def replace(value: Value, document: Document | None) -> str | None:
        text = _text(value)
        if text is None or len(text) * len(by) > _LONGEST or not _affords(text, _TAKEN_APART, document):
            return None
        return str(pattern.sub(lambda match: by, text))

    return replace


def _split(pattern: Any) -> Function:
    def split(value: Value, document: Document | None) -> list[str] | None:
        text = _text(value)
        if text is None or not _affords(text, _TAKEN_APART, document):
            return None
        parts = pattern.split(text)
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return list(parts)

    return split


def _list_of(*values: Any) -> list[str | None]:
    *items, _ = values  # the last one is the document
    return [_text(item) for item in items]


def _is_in_list(items: list[str] | None, value: Value, document: Document | None) -> Truth:
    text = _text(value)
    return None if items is None or text is None else text in items
