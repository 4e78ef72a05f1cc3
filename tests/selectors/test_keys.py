"""The text or the numbers by which a selector is found: what it must be told by, and that it is never found by too little."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.selectors import compile_selector
from stompbox.selectors.intervals import Interval
from stompbox.selectors.values import number_of_text

CASES = [
    ("colour = 'red'", (("colour",), "red")),
    ("'red' = colour", (("colour",), "red")),
    ("age > 18 AND colour = 'red' AND size = 'L'", (("colour",), "red")),
    ("(a = 1 OR b = 2) AND (colour = 'red')", (("colour",), "red")),
    ("JMSCorrelationID = '7'", (("JMSCorrelationID", "correlation-id"), "7")),
    ("AMQGroupID = 'g'", (("AMQGroupID", "JMSXGroupID"), "g")),
    ("JMSXGroupID = 'g'", (("JMSXGroupID",), "g")),
    ("colour = 'red' OR size = 'L'", None),
    ("NOT colour = 'red'", None),
    ("colour <> 'red'", None),
    ("colour = size", None),
    ("age = 18", None),
    ("JMSPriority = '4'", None),
    ("AMQDurable = 'DURABLE'", None),
    ("flag", None),
]


@pytest.mark.parametrize(("text", "key"), CASES, ids=[text for text, _ in CASES])
def test_key(text: str, key: object) -> None:
    assert compile_selector(text).key == key


BOUNDS = [
    ("age < 18", (("age",), Interval(-math.inf, 18))),
    ("age <= 18.5", (("age",), Interval(-math.inf, 18.5))),
    ("18 < age", (("age",), Interval(18, math.inf))),
    ("age >= -7", (("age",), Interval(-7, math.inf))),
    ("age = + 7", (("age",), Interval(7, 7))),
    ("- - 7 = age", (("age",), Interval(7, 7))),
    ("age BETWEEN -1 AND 0x10", (("age",), Interval(-1, 16))),
    ("age > 18 AND colour IS NULL AND age < 65 AND size < 3", (("age",), Interval(18, 65))),
    ("flag AND (age > 18 AND age < 3)", (("age",), Interval(18, 3))),
    ("JMSCorrelationID > 7", (("JMSCorrelationID", "correlation-id"), Interval(7, math.inf))),
    ("age NOT BETWEEN 1 AND 2", None),
    ("age <> 18", None),
    ("NOT age < 18", None),
    ("age < 18 OR age > 65", None),
    ("age + 1 < 18", None),
    ("age < size", None),
    ("age BETWEEN 1 AND size", None),
    ("JMSPriority > 4", None),
    ("AMQSize > 4", None),
    ("age = '18'", None),
    ("1 < 2", None),
]


@pytest.mark.parametrize(("text", "bounds"), BOUNDS, ids=[text for text, _ in BOUNDS])
def test_bounds(text: str, bounds: object) -> None:
    assert compile_selector(text).bounds == bounds


TERMS = st.sampled_from(
    ["a = 'x'", "a = 'y'", "'x' = b", "JMSType = 'x'", "a <> 'x'", "b IS NULL", "a = b", "b = 1", "TRUE"]
)
CONDITIONS = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=6,
)


@given(
    CONDITIONS,
    st.dictionaries(st.sampled_from(["a", "b", "type", "JMSType"]), st.sampled_from(["x", "y", "1", ""])),
)
def test_what_takes_a_message_is_found_by_its_text(text: str, headers: dict[str, str]) -> None:
    selector = compile_selector(text)
    if selector.key is not None and selector.matches(headers, {}):
        names, wanted = selector.key
        assert next(headers[name] for name in names if name in headers) == wanted


NUMBERS = st.sampled_from(["1", "-2", "2.5", "0x10", "1e3", "9223372036854775807", "9007199254740993"])
COMPARISONS = st.one_of(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), NUMBERS).map(
        " ".join
    ),
    st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "="]), st.sampled_from("ab")).map(" ".join),
    st.tuples(NUMBERS, NUMBERS, st.sampled_from(["", "NOT "])).map(
        lambda parts: f"a {parts[2]}BETWEEN {parts[0]} AND {parts[1]}"
    ),
    st.sampled_from(["JMSType > 1", "a IS NULL", "a < b", "b = 'x'", "TRUE"]),
)
TEXTS = st.one_of(
    st.sampled_from(
        [
            "1",
            "1.0",
            "-2",
            "2.50",
            "16",
            "1000",
            "9007199254740993",
            "9007199254740992",
            "9223372036854775807",
            "1e400",
        ]
    ),
    st.sampled_from(["", "x", "nan", "inf", "true", " 1", "1_0", "0x10", "٣"]),
)


@given(
    st.lists(COMPARISONS, min_size=1, max_size=4).map(" AND ".join),
    st.dictionaries(st.sampled_from(["a", "b", "type", "JMSType"]), TEXTS),
    st.booleans(),
)
def test_what_takes_a_message_is_found_by_its_number(
    text: str, headers: dict[str, str], conversion: bool
) -> None:
    selector = compile_selector(text, conversion=conversion)
    if selector.bounds is not None and selector.matches(headers, {}):
        names, interval = selector.bounds
        number = number_of_text(next(headers[name] for name in names if name in headers))
        assert number is not None
        assert interval.low <= number <= interval.high
