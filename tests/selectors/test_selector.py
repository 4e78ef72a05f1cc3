from __future__ import annotations

import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompbox.errors import SelectorError
from stompbox.selectors import Selector, SelectorLimits, compile_selector


def test_it_tells_what_it_reads() -> None:
    selector = compile_selector(
        "color = 'red' AND (JMSPriority > 4 OR AMQDurable = 'DURABLE') AND color <> shade"
    )
    assert selector.text == "color = 'red' AND (JMSPriority > 4 OR AMQDurable = 'DURABLE') AND color <> shade"
    assert selector.names == {"color", "shade", "JMSPriority", "AMQDurable"}
    assert selector.facts == {"priority", "durable"}
    assert selector.headers == selector.names | {"priority", "persistent"}
    assert not selector.needs_body
    assert not selector.is_per_message


@pytest.mark.parametrize(
    ("text", "needs_body", "is_per_message"),
    [
        ("a = 1", False, False),
        ("JMSPriority = 4", False, False),
        ("JMSTimestamp > 4", False, True),
        ("a = 1 OR NOT (XPATH '//a')", True, True),
        ("XQUERY '//a'", False, False),
    ],
)
def test_whether_a_verdict_may_be_kept(text: str, needs_body: bool, is_per_message: bool) -> None:
    selector = compile_selector(text)
    assert (selector.needs_body, selector.is_per_message) == (needs_body, is_per_message)


def test_the_body_is_asked_for_once_and_only_by_xpath() -> None:
    calls: list[int] = []

    def body() -> bytes:
        calls.append(1)
        return b"<a/>"

    assert compile_selector("a = 1").matches({"a": "1"}, {}, body)
    assert not compile_selector("a = 2 AND XPATH '//a'").matches({"a": "1"}, {}, body)
    assert calls == []
    assert compile_selector("XPATH '//a' AND NOT XPATH '//b'").matches({}, {}, body)
    assert calls == [1]


def test_conversion_is_the_callers_choice_unless_the_text_says_so() -> None:
    age = {"age": "21"}
    assert compile_selector("age > 18").matches(age, {})
    assert not compile_selector("age > 18", conversion=False).matches(age, {})
    assert not compile_selector("no_convert_string_expressions:age > 18").matches(age, {})
    assert compile_selector("convert_string_expressions:age > 18", conversion=False).matches(age, {})
    assert compile_selector("NOT (age > 18)", conversion=False).matches(age, {})
    assert not compile_selector("age + 1 = 22", conversion=False).matches(age, {})
    assert not compile_selector("flag", conversion=False).matches({"flag": "true"}, {})
    assert not compile_selector("JMSPriority = '4'", conversion=False).matches({}, {"priority": 4})


def test_pickled_by_its_text() -> None:
    selector = compile_selector("age > 18", conversion=False, limits=SelectorLimits(terms=7))
    again = pickle.loads(pickle.dumps(selector))
    assert again == selector
    assert hash(again) == hash(selector)
    assert not again.matches({"age": "21"}, {})
    assert selector != compile_selector("age > 18")


def test_repr_is_its_text() -> None:
    assert repr(compile_selector("a = 'x'")) == "Selector(\"a = 'x'\")"


def test_no_selector_becomes_code() -> None:
    hostile = "'); import os; k1 = lambda *a: True #"
    selector = compile_selector(f"a = {chr(39)}{hostile.replace(chr(39), chr(39) * 2)}{chr(39)}")
    assert selector.matches({"a": hostile}, {})
    assert not selector.matches({"a": "x"}, {})
    # Names that the generated function uses itself are header names like any other.
    for name in (
        "headers",
        "facts",
        "document",
        "right",
        "number",
        "truth",
        "is_in",
        "k1",
        "t1",
        "f1",
        "__import__",
        "None",
    ):
        assert compile_selector(f"{name} = 'x' AND {name} = 'x'").matches({name: "x"}, {}), name


@pytest.mark.parametrize(
    "text",
    [
        " AND ".join(f"a{number} = {number}" for number in range(500)),
        " OR ".join(f"a{number}" for number in range(1000)),
        "+".join(["a"] * 999) + " = 1",
        "*".join(["a"] * 999) + " = 1",
        "a" + " IS NULL" * 2000,
        "(" * 100 + "a" + ")" * 100,
        "NOT " * 100 + "a",
        "(x AND NOT y OR z AND " * 50 + "a" + ")" * 50,
        "(x = y) = (" * 50 + "a" + ")" * 50,
        "x + y * (" * 100 + "a" + ")" * 100 + " = 1",
        "a = " * 999 + "a",
    ],
    ids=lambda text: text[:12],
)
def test_the_largest_selectors_compile_and_run(text: str) -> None:
    selector = compile_selector(text)
    start = time.process_time()
    assert selector.matches({}, {}) in (True, False)
    assert selector.matches(dict.fromkeys("axyz", "9223372036854775807"), {}) in (True, False)
    assert time.process_time() - start < 1


def test_the_deepest_selector_runs_on_a_deep_stack() -> None:
    text = "(x AND NOT y OR z AND (" * 33 + "NOT a" + "))" * 33

    headers = {"x": "true", "y": "false", "z": "true", "a": "false"}

    def below(levels: int) -> bool:
        return below(levels - 1) if levels else compile_selector(text).matches(headers, {})

    assert below(500)


@pytest.mark.parametrize(
    "text",
    [
        piece * (16384 // len(piece))
        for piece in ("(", "'", "/*", "-", "NOT ", "a ", "9", "-(", "a=", "'a'=", "\x00")
    ],
    ids=lambda text: repr(text[:4]),
)
def test_the_worst_texts_are_refused_soon(text: str) -> None:
    start = time.process_time()
    with pytest.raises(SelectorError) as caught:
        compile_selector(text)
    assert time.process_time() - start < 2
    assert 1 <= caught.value.position <= len(text) + 1
    assert len(caught.value.message) < 300


PIECES = [
    "a",
    "b1",
    "'x'",
    "''",
    "1",
    "2.5",
    "0x1",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "<",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "NOT",
    "AND",
    "OR",
    "IS",
    "NULL",
    "LIKE",
    "ESCAPE",
    "IN",
    "BETWEEN",
    "TRUE",
    "XPATH",
    "XQUERY",
    "'//a'",
    "'!'",
    "--",
    "/*",
    "*/",
]
PIECES += [
    "\n",
    '"',
    ";",
    "é",
    "JMSPriority",
    "hyphenated_props:",
    "no_convert_string_expressions:",
    "9223372036854775808",
]
pieces = st.lists(st.sampled_from(PIECES), max_size=14)


@settings(max_examples=1500, derandomize=True, deadline=None)
@given(st.one_of(st.text(max_size=30), pieces.map(" ".join), pieces.map("".join)))
def test_any_text_is_a_selector_or_refused_with_a_position(text: str) -> None:
    try:
        selector = compile_selector(text)
    except SelectorError as error:
        assert 1 <= error.position <= len(text) + 1
        assert error.code.startswith("selector-")
        assert error.message.isprintable()
    else:
        assert isinstance(selector, Selector)
        for headers in ({}, {"a": "1", "b1": "x"}, {"a": "true"}):
            assert selector.matches(headers, {"priority": 4}, lambda: b"<a/>") in (True, False)
