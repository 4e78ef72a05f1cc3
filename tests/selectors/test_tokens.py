from __future__ import annotations

import pytest

from stompbox.errors import SelectorError
from stompbox.selectors.limits import SelectorLimits
from stompbox.selectors.tokens import Dialect, TokenKind, tokenize


def words(text: str) -> list[str | int | float]:
    _, tokens = tokenize(text, conversion=True, limits=SelectorLimits())
    return [
        token.value if token.kind in (TokenKind.TEXT, TokenKind.NUMBER) else token.word
        for token in tokens[:-1]
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a<>b", ["a", "<>", "b"]),
        ("a<=b>=c<d>e", ["a", "<=", "b", ">=", "c", "<", "d", ">", "e"]),
        ("not And oR between", ["NOT", "AND", "OR", "BETWEEN"]),
        ("NOTE IN_ $x _y x$1", ["NOTE", "IN_", "$x", "_y", "x$1"]),
        ("größe ширина 数量 नाम é1", ["größe", "ширина", "数量", "नाम", "é1"]),
        ("ın ſELECT", ["ın", "ſELECT"]),  # no ASCII letters, so no keywords, whatever their capitals are
        ("'' 'it''s' '''' 'a\nb'", ["", "it's", "'", "a\nb"]),
        ("a\t-- = 1 to the end\r\n=/* any ' thing */1", ["a", "=", 1]),
        ("a - -5", ["a", "-", "-", 5]),
        ("a --5", ["a"]),
        ("7 5L 5l 0 010 0x1F 0Xff", [7, 5, 5, 0, 8, 31, 255]),
        ("5.5 5. .5 5E2 5e-1 089.5 1.E1", [5.5, 5.0, 0.5, 500.0, 0.5, 89.5, 10.0]),
    ],
)
def test_tokens(text: str, expected: list[str | int | float]) -> None:
    assert words(text) == expected


def test_a_float_stays_a_float() -> None:
    assert [type(value) for value in words("5. 5")] == [float, int]


def test_positions_count_characters_from_one() -> None:
    _, tokens = tokenize("  größe\n= 'x'", conversion=True, limits=SelectorLimits())
    assert [token.position for token in tokens] == [3, 9, 11, 14]


@pytest.mark.parametrize(
    ("text", "dialect", "first"),
    [
        ("a", Dialect(conversion=True, hyphenated=False), "a"),
        ("no_convert_string_expressions:a", Dialect(conversion=False, hyphenated=False), "a"),
        ("hyphenated_props:a-b", Dialect(conversion=True, hyphenated=True), "a-b"),
        (
            " hyphenated_props: no_convert_string_expressions: a--b-",
            Dialect(conversion=False, hyphenated=True),
            "a--b-",
        ),
        (
            "no_convert_string_expressions:convert_string_expressions:a",
            Dialect(conversion=True, hyphenated=False),
            "a",
        ),
        (
            "hyphenated_props:hyphenated_props:no_hyphenated_props:a-b",
            Dialect(conversion=True, hyphenated=False),
            "a",
        ),
        ("hyphenated_props:NOT-a", Dialect(conversion=True, hyphenated=True), "NOT-a"),
    ],
)
def test_prefixes(text: str, dialect: Dialect, first: str) -> None:
    found, tokens = tokenize(text, conversion=True, limits=SelectorLimits())
    assert (found, tokens[0].word) == (dialect, first)


def test_the_callers_conversion_holds_without_a_prefix() -> None:
    assert tokenize("a", conversion=False, limits=SelectorLimits())[0].conversion is False
    assert (
        tokenize("convert_string_expressions:a", conversion=False, limits=SelectorLimits())[0].conversion
        is True
    )


@pytest.mark.parametrize(
    ("text", "code", "position", "says"),
    [
        ("", "selector-empty", 1, "empty"),
        (" \t\n", "selector-empty", 4, "empty"),
        ("/* all */ -- comment", "selector-empty", 21, "empty"),
        ("hyphenated_props:", "selector-empty", 18, "empty"),
        ("a = 'red", "selector-syntax", 5, "closing '"),
        ("a = 'it''", "selector-syntax", 5, "closing '"),
        ("a /* b", "selector-syntax", 3, "*/"),
        ('a = "red"', "selector-syntax", 5, "single quotes"),
        ("a != 1", "selector-syntax", 3, "<>"),
        ("a = 1;", "selector-syntax", 6, "the end"),
        ("a.b = 1", "selector-syntax", 2, "no dots"),
        ("a && b", "selector-syntax", 3, "AND"),
        ("a || b", "selector-syntax", 3, "OR"),
        ("a = ?", "selector-syntax", 5, "'?'"),
        ("a = \x00", "selector-syntax", 5, "found '?'"),
        ("a = \ud800", "selector-syntax", 5, "found '?'"),
        ("color:x", "selector-syntax", 6, "':'"),
        ("1x = 1", "selector-number", 2, "'x'"),
        ("1.5f = 1", "selector-number", 4, "'f'"),
        ("09 = 1", "selector-number", 2, "'9'"),
        ("0x = 1", "selector-number", 2, "'x'"),
        ("0L = 1", "selector-number", 2, "'L'"),
        ("5LL = 1", "selector-number", 3, "'L'"),
        ("1.2.3 = 1", "selector-number", 4, "'.'"),
        ("1e999 = 1", "selector-number", 1, "double"),
        ("a = ٣", "selector-syntax", 5, "'٣'"),
    ],
)
def test_refused(text: str, code: str, position: int, says: str) -> None:
    with pytest.raises(SelectorError) as caught:
        tokenize(text, conversion=True, limits=SelectorLimits())
    assert (caught.value.code, caught.value.position) == (code, position)
    assert says in caught.value.message
    assert f"position {position}" in caught.value.message


def test_length_counts_octets() -> None:
    limits = SelectorLimits(length=8)
    assert tokenize("ééé=1", conversion=True, limits=limits)
    with pytest.raises(SelectorError, match="9 octets, expected at most 8") as caught:
        tokenize("éééé=", conversion=True, limits=limits)
    assert (caught.value.code, caught.value.position) == ("selector-limit", 5)


def test_the_default_length() -> None:
    assert tokenize("a" + " " * 16383, conversion=True, limits=SelectorLimits())
    with pytest.raises(SelectorError) as caught:
        tokenize("a" + " " * 16384, conversion=True, limits=SelectorLimits())
    assert caught.value.position == 16385


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a = 1", 2),
        ("a IS NULL", 1),
        ("a IS NOT NULL", 1),
        ("NOT NULL", 1),
        ("NULL OR TRUE OR FALSE", 3),
        ("a IN ('x', 'y')", 3),
        ("a LIKE 'x' ESCAPE '!'", 3),
        ("XPATH '//a'", 1),
    ],
)
def test_terms_are_names_and_literals(text: str, terms: int) -> None:
    assert tokenize(text, conversion=True, limits=SelectorLimits(terms=terms))
    with pytest.raises(SelectorError) as caught:
        tokenize(text, conversion=True, limits=SelectorLimits(terms=terms - 1))
    assert caught.value.code == "selector-limit"


def test_the_default_number_of_terms() -> None:
    assert tokenize("a IN (" + ",".join(["'x'"] * 999) + ")", conversion=True, limits=SelectorLimits())
    with pytest.raises(SelectorError) as caught:
        tokenize("a IN (" + ",".join(["'x'"] * 1000) + ")", conversion=True, limits=SelectorLimits())
    assert caught.value.position == len("a IN (") + 999 * len("'x',") + 1
