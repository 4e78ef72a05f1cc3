"""Text of a selector -> tokens.

Decides: the lexical grammar (JMS 1.1, 3.8.1.1, as ActiveMQ Artemis reads it): prefixes, keywords in any case, identifiers in any script,
literals, blanks, comments; the limits of length and terms. Does not decide what may follow what.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from stompbox.errors import SelectorError
from stompbox.selectors.limits import SelectorLimits
from stompbox.selectors.refusal import EMPTY, LIMIT, NUMBER, SYNTAX, refusal, shown
from stompbox.selectors.steps import STEP, Steps, result


class TokenKind(Enum):
    NAME = "a header name"
    TEXT = "a text"
    NUMBER = "a number"
    KEYWORD = "a keyword"
    SYMBOL = "a symbol"
    END = "the end"


# a selector may have thousands, and a tuple is made in a third of a dataclass's time
class Token(NamedTuple):
    """A token of the text of a selector. `word`: keyword in capitals, symbol, name; `value`: what a text or number literal stands for;
    `position` counts from 1."""

    kind: TokenKind
    word: str
    position: int
    value: str | int | float = ""

    def __str__(self) -> str:
        return "the end of the selector" if self.kind is TokenKind.END else shown(self.word)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the prefixes of a selector switch. conversion: a text header is read as what it is compared with. hyphenated: `-` in names."""

    conversion: bool = True
    hyphenated: bool = False


KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "LIKE", "ESCAPE", "IN", "IS", "TRUE", "FALSE", "NULL", "XPATH", "XQUERY")
)

_PREFIX = re.compile(r"[ \t\n\r\f]*(no_)?(convert_string_expressions|hyphenated_props):")
_LINE = re.compile(r"[^\n\r]*+")
_TOKEN = re.compile(
    # Longest match decides, so that 089.5 is a float although 08 is no octal number. No symbol is what begins a comment.
    r"[ \t\n\r\f]*+(?:(?P<float>(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[0-9]++[eE][+-]?[0-9]++)"
    r"|(?P<hex>0[xX][0-9A-Fa-f]++)"
    r"|(?P<decimal>[1-9][0-9]*+)[lL]?"
    r"|(?P<octal>0[0-7]*+)"
    r"|(?P<symbol><>|<=|>=|[=<>(),+*%]|-(?!-)|/(?!\*))"
    r"|(?P<text>'(?:[^']++|'')*+')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*+))"
)
_BLANK = frozenset(" \t\n\r\f")
_LONGEST_KEYWORD = max(map(len, KEYWORDS))
_TERMS = frozenset((TokenKind.NAME, TokenKind.TEXT, TokenKind.NUMBER))
_BEYOND_64_BITS = 20  # decimal digits without a leading zero

_HINTS = {
    '"': "text in single quotes, or a bare header name",
    "!": "an operator; unequal is written <>",
    ";": "the end of the selector",
    ".": "a character of a name or an operator; names have no dots",
    "&": "an operator; the conjunction is written AND",
    "|": "an operator; the disjunction is written OR",
}


def read_prefixes(text: str, *, conversion: bool) -> tuple[Dialect, int]:
    """The dialect that the prefixes choose (the last of a kind wins), and the offset behind them."""
    chosen = {"convert_string_expressions": conversion, "hyphenated_props": False}
    offset = 0
    while match := _PREFIX.match(text, offset):
        chosen[match[2]] = match[1] is None
        offset = match.end()
    return Dialect(chosen["convert_string_expressions"], chosen["hyphenated_props"]), offset


def tokenize(text: str, *, conversion: bool, limits: SelectorLimits) -> tuple[Dialect, list[Token]]:
    """All tokens, the last one END. Raises SelectorError for what is no token, for empty text and beyond the limits."""
    return result(tokenizing(text, conversion=conversion, limits=limits))


def tokenizing(text: str, *, conversion: bool, limits: SelectorLimits) -> Steps[tuple[Dialect, list[Token]]]:
    """Divides the text of a selector as `tokenize` does, in steps."""
    _check_length(text, limits.length)
    dialect, offset = read_prefixes(text, conversion=conversion)
    tokens: list[Token] = []
    terms = 0
    for token in _tokens(text, offset, hyphenated=dialect.hyphenated):
        if token.kind in _TERMS or _is_constant(token, tokens):
            terms += 1
            if terms > limits.terms:
                raise refusal(
                    LIMIT,
                    token.position,
                    f"name or literal number {terms}",
                    f"at most {limits.terms} (maxSelectorTerms)",
                )
        tokens.append(token)
        if len(tokens) % STEP == 0:
            yield
    if not tokens:
        raise refusal(EMPTY, len(text) + 1, "an empty selector", "a condition such as color = 'red'")
    tokens.append(Token(TokenKind.END, "", len(text) + 1))
    return dialect, tokens


def _check_length(text: str, limit: int) -> None:
    if len(text) * 4 <= limit:
        return
    octets = text.encode("utf-8", "surrogatepass")
    if len(octets) > limit:
        position = len(octets[:limit].decode("utf-8", "ignore")) + 1
        raise refusal(LIMIT, position, f"{len(octets)} octets", f"at most {limit} (maxSelectorLength)")


def _is_constant(token: Token, before: list[Token]) -> bool:
    """TRUE, FALSE or NULL as a literal, which the NULL of IS NULL and IS NOT NULL is not."""
    if token.kind is not TokenKind.KEYWORD or token.word not in ("TRUE", "FALSE", "NULL"):
        return False
    words = [earlier.word for earlier in before[-2:] if earlier.kind is TokenKind.KEYWORD]
    return words[-1:] != ["IS"] and words != ["IS", "NOT"]


def _tokens(text: str, offset: int, *, hyphenated: bool) -> Iterator[Token]:
    end = len(text)
    while offset < end:
        match = _TOKEN.match(text, offset)
        if match is None:
            # a comment, a name in another script, the blanks at the end, or nothing that may be there
            skipped = _skip_blanks(text, offset)
            if skipped == offset:
                token, skipped = _name(text, offset, offset, hyphenated=hyphenated)
                yield token
            offset = skipped
            continue
        kind, start, offset = match.lastgroup, match.start(match.lastindex or 0), match.end()
        if kind == "symbol":
            yield Token(TokenKind.SYMBOL, match["symbol"], start + 1)
        elif kind == "name":
            token, offset = _name(text, start, offset, hyphenated=hyphenated)
            yield token
        elif kind == "text":
            word = match["text"]
            yield Token(TokenKind.TEXT, word, start + 1, word[1:-1].replace("''", "'"))
        else:
            yield _number_literal(text, match, start)


def _skip_blanks(text: str, offset: int) -> int:
    while offset < len(text):
        if text[offset] in _BLANK:
            offset += 1
        elif text.startswith("--", offset):
            line = _LINE.match(text, offset)
            offset = line.end() if line else len(text)
        elif text.startswith("/*", offset):
            end = text.find("*/", offset + 2)
            if end < 0:
                raise refusal(SYNTAX, offset + 1, "a comment that does not end", "*/")
            offset = end + 2
        else:
            break
    return offset


def _number_literal(text: str, match: re.Match[str], start: int) -> Token:
    end, value = match.end(), _number_value(match)
    word = text[start:end]
    if value == math.inf:
        raise refusal(NUMBER, start + 1, shown(word), "a number that a double can hold")
    if end < len(text) and (_continues_name(text[end]) or text[end] == "."):
        raise refusal(NUMBER, end + 1, shown(text[end]), f"the end of the number {shown(word)}")
    return Token(TokenKind.NUMBER, word, start + 1, value)


def _number_value(match: re.Match[str]) -> int | float:
    digits = match[match.lastgroup or 0]
    if match.lastgroup == "float":
        return float(digits)
    if match.lastgroup == "decimal":
        return int(digits) if len(digits) < _BEYOND_64_BITS else 1 << 64
    return int(digits, 16 if match.lastgroup == "hex" else 8)


def _name(text: str, start: int, end: int, *, hyphenated: bool) -> tuple[Token, int]:
    """Reads a name. `end`: where the ASCII part of the name ends; a name in another script, or with hyphens, goes on there."""
    if start == end:
        if not text[start].isidentifier():
            raise _no_token(text[start], start)
        end = start + 1
    while end < len(text) and (_continues_name(text[end]) or (hyphenated and text[end] == "-")):
        end += 1
    word = text[start:end]
    keyword = word.upper() if end - start <= _LONGEST_KEYWORD and word.isascii() else word
    if keyword in KEYWORDS:
        return Token(TokenKind.KEYWORD, keyword, start + 1), end
    return Token(TokenKind.NAME, word, start + 1), end


def _no_token(char: str, offset: int) -> SelectorError:
    if char == "'":
        return refusal(SYNTAX, offset + 1, "a text that does not end", "a closing '")
    return refusal(SYNTAX, offset + 1, shown(char), _HINTS.get(char, "a name, a literal or an operator"))


def _continues_name(char: str) -> bool:
    # Letters, digits and the marks that some scripts write vowels with (Unicode XID_Continue).
    return char == "$" or ("a" + char).isidentifier()
