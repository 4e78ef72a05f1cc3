from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompbox.selectors.facts import Value
from stompbox.selectors.values import (
    CONVERTING,
    STRICT,
    boolean_of_text,
    number_converting,
    number_of_text,
    truth_converting,
    truth_strict,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("21", 21),
        ("021", 21),
        ("-3", -3),
        ("+3", 3),
        ("21.7", 21.7),
        ("5.", 5.0),
        (".5", 0.5),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        ("1E-2", 0.01),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", float(2**63)),
        ("-9223372036854775808", -(2**63)),
        ("1" + "0" * 400, math.inf),
        ("1e999", math.inf),
        ("0" * 60 + "7", 7.0),
    ],
)
def test_text_that_is_a_number(text: str, number: float) -> None:
    assert number_of_text(text) == number
    assert number_converting(text) == number


def test_an_integer_keeps_all_its_digits() -> None:
    assert type(number_of_text("9007199254740993")) is int
    assert number_of_text("9007199254740993") == 9007199254740993


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 21",
        "21 ",
        "abc",
        "1_000",
        "nan",
        "inf",
        "-inf",
        "Infinity",
        "0x1F",
        "5L",
        "1.5f",
        ".",
        "-",
        "+",
        "e5",
        "1e",
        "1.2.3",
        "٣",
        "²",
        "--1",
    ],
)
def test_text_that_is_no_number(text: str) -> None:
    assert number_of_text(text) is None
    assert number_converting(text) is None


def test_a_long_text_of_digits_costs_one_pass() -> None:
    assert number_of_text("9" * 65536 + "x") is None
    assert number_of_text("9" * 65536) == math.inf


def test_text_as_boolean() -> None:
    texts = ["true", "TRUE", "True", "false", "False", "yes", "1", "", " true", "truee"]
    assert [boolean_of_text(text) for text in texts] == [
        True,
        True,
        True,
        False,
        False,
        None,
        None,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("value", "converting", "strict"),
    [
        (None, None, None),
        (True, True, True),
        (False, False, False),
        ("true", True, False),
        ("false", False, False),
        ("x", False, False),
        (1, False, False),
    ],
)
def test_truth_of_a_bare_header(value: Value, converting: bool | None, strict: bool | None) -> None:
    assert truth_converting(value) is converting
    assert truth_strict(value) is strict


@pytest.mark.parametrize(
    ("left", "sign", "right", "converting", "strict"),
    [
        ("a", "=", "a", True, True),
        ("a", "<>", "b", True, True),
        ("a", "<", "b", True, True),
        ("10", "<", "9", True, True),  # two texts: by characters
        ("10", "<", 9, False, False),
        ("10", ">", 9, True, False),
        (9, "<", "10", True, False),
        ("21.7", ">", 18, True, False),
        ("abc", ">", 18, False, False),
        ("abc", "<>", 18, False, False),  # different types are FALSE, whatever the operator
        (10, "=", "10", True, False),
        (10, "<>", "10", False, False),
        (10, "<>", "11", True, False),
        (1, "=", 1.0, True, True),
        (2**53 + 1, ">", float(2**53), True, True),
        (True, "=", True, True, True),
        (True, "=", 1, False, False),
        (True, "<>", 1, False, False),
        (True, "=", "true", True, False),
        ("false", "=", False, True, False),
        ("no", "=", False, False, False),
        (True, ">", False, False, False),
        ("true", ">", False, False, False),
        (None, "=", None, None, None),
        (None, "<>", "a", None, None),
        ("a", "<>", None, None, None),
        (None, ">", 1, None, None),
    ],
)
def test_comparisons(
    left: Value, sign: str, right: Value, converting: bool | None, strict: bool | None
) -> None:
    assert CONVERTING.compare[sign](left, right) is converting
    assert STRICT.compare[sign](left, right) is strict


@pytest.mark.parametrize(
    ("left", "sign", "right", "converting", "strict"),
    [
        (2, "+", 3, 5, 5),
        ("21", "+", 1, 22, None),
        ("21", "*", "2", 42, None),
        ("a", "+", 1, None, None),
        (True, "+", 1, None, None),
        (None, "*", 0, None, None),
        (7, "/", 2, 3.5, 3.5),
        (1, "/", 0, None, None),
        (1.0, "/", 0.0, None, None),
        (1, "%", 0, None, None),
        (1.5, "%", 0, None, None),
        (7, "%", 4, 3, 3),
        (-7, "%", 4, -3, -3),
        (7, "%", -4, 3, 3),
        (-7.5, "%", 4, -3.5, -3.5),
        (2**63 - 1, "+", 1, float(2**63), float(2**63)),
        (-(2**63), "*", -(2**63), float(2**126), float(2**126)),
        (1e308, "*", 10, math.inf, math.inf),
        (math.inf, "-", math.inf, None, None),
        (math.inf, "%", 2, None, None),
    ],
)
def test_arithmetic(
    left: Value, sign: str, right: Value, converting: float | None, strict: float | None
) -> None:
    assert CONVERTING.calculate[sign](left, right) == converting
    assert STRICT.calculate[sign](left, right) == strict


def test_an_integer_result_stays_exact() -> None:
    result = CONVERTING.calculate["-"](2**53 + 1, 0)
    assert result == 2**53 + 1
    assert type(result) is int


@settings(max_examples=500, derandomize=True)
@given(st.text("0123456789.eE+-_ nax٣", max_size=8))
def test_exactly_the_texts_of_the_grammar_are_numbers(text: str) -> None:
    grammar = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
    assert number_of_text(text) == (float(text) if grammar.fullmatch(text) else None)
