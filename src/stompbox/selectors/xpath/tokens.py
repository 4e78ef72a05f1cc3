"""Text of an XPath expression -> tokens (XPath 1.0, 3.7).

Decides: the lexical grammar. Whether a name is an operator, a function or a step is the grammar's to know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from stompbox.selectors.steps import STEP, Steps, result


class XPathFault(Exception):
    """A faulty expression. `offset` counts characters from 0. `is_too_long`: it has more tokens than it may."""

    def __init__(self, offset: int, found: str, expected: str, *, is_too_long: bool = False) -> None:
        super().__init__(f"offset {offset}: found {found}, expected {expected}")
        self.is_too_long = is_too_long
        self.offset = offset
        self.found = found
        self.expected = expected


class Lexeme(Enum):
    NUMBER = "number"
    TEXT = "text"
    NAME = "name"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class XPathToken:
    kind: Lexeme
    text: str
    offset: int

    def __str__(self) -> str:
        return "the end of the expression" if self.kind is Lexeme.END else f"'{self.text[:40]}'"


# XML 1.0, fifth edition, productions 4 and 4a, without the colon (Namespaces in XML, NCName).
_START = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NCNAME = f"[{_START}][{_START}\\-.0-9\u00b7\u0300-\u036f\u203f-\u2040]*+"

_TOKEN = re.compile(
    r"(?P<number>[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)"
    r"|(?P<text>\"[^\"]*+\"|'[^']*+')"
    rf"|(?P<name>{_NCNAME}(?::(?!:)(?:{_NCNAME}|\*))?)"
    r"|(?P<symbol>//|::|\.\.|!=|<=|>=|[()\[\].@,/|+\-=<>*$])"
)
_BLANKS = re.compile(r"[ \t\n\r]*")
_KINDS = {"number": Lexeme.NUMBER, "text": Lexeme.TEXT, "name": Lexeme.NAME, "symbol": Lexeme.SYMBOL}


TOKENS = 1000
"""As many as a selector may have names and literals: each costs time at every message."""


def tokenize_xpath(text: str, most: int = TOKENS) -> list[XPathToken]:
    """All tokens, the last one END. Raises XPathFault."""
    return result(tokenizing_xpath(text, most))


def tokenizing_xpath(text: str, most: int) -> Steps[list[XPathToken]]:
    """Divides the text of an expression as `tokenize_xpath` does, in steps."""
    tokens: list[XPathToken] = []
    at = _end_of_blanks(text, 0)
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise XPathFault(
                at,
                f"'{text[at]}'" if text[at].isprintable() else "a control character",
                "a token of XPath 1.0",
            )
        if len(tokens) == most:
            raise XPathFault(at, f"token number {most + 1}", f"at most {most} tokens", is_too_long=True)
        if len(tokens) % STEP == STEP - 1:
            yield
        tokens.append(XPathToken(_KINDS[match.lastgroup or ""], match[0], at))
        at = _end_of_blanks(text, match.end())
    return [*tokens, XPathToken(Lexeme.END, "", len(text))]


def _end_of_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at
