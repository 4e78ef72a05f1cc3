"""REGEX, REPLACE, INLIST, SPLIT and MAKELIST, as ActiveMQ Classic has them, in linear time."""

from __future__ import annotations

import sys
import time

import pytest

from stompbox.errors import SelectorError
from stompbox.selectors import Budget, SelectorLimits, Value, codegen, compile_selector

HEADERS: dict[str, Value] = {"color": "red", "list": "a,b;c,,", "n": "21", "path": "/a/b", "empty": ""}
FACTS: dict[str, Value] = {"priority": 4, "durable": True}


@pytest.fixture(params=[128, 0], ids=["code", "program"])
def largest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codegen, "LARGEST", request.param)


@pytest.mark.usefixtures("largest")
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("REGEX('^r', color)", True),
        ("REGEX('e', color)", True),
        ("REGEX('^e', color)", False),
        ("regex('^R', color)", False),
        ("REGEX('(?i)^R', color)", True),
        ("REGEX('^r.d$', color) AND n > 20", True),
        ("NOT REGEX('x', color)", True),
        ("REGEX('^$', empty)", True),
        ("REGEX('^4$', JMSPriority)", True),
        ("REGEX('a', 'bab')", True),
        ("REGEX('a', 5)", False),
        ("REGEX('x', missing)", None),
        ("REGEX('it''s', 'it''s')", True),
        ("REGEX('a', REPLACE(color, 'r|d', 'a')) AND color = 'red'", True),
        ("REPLACE('1,2/3', '[,/]', ';') = '1;2;3'", True),
        ("REPLACE(color, 'e', 'oa') LIKE '%oa%'", True),
        ("REPLACE(missing, 'e', 'oa') IS NULL", True),
        ("REPLACE(n, '2', '3') > 30", True),
        ("INLIST(SPLIT('a,b', ','), 'a')", True),
        ("INLIST(SPLIT(list, '[,;]'), 'c')", True),
        ("INLIST(SPLIT(list, '[,;]'), empty)", False),
        ("INLIST(SPLIT(list, ','), missing)", None),
        ("INLIST(SPLIT(missing, ','), color)", None),
        ("INLIST(MAKELIST('red', n), color) OR FALSE", True),
        ("INLIST(MAKELIST('green', missing, 3), color)", False),
        ("INLIST(MAKELIST('21'), n) AND INLIST(MAKELIST(n, 'x', color), 'red')", True),
    ],
)
def test_what_they_answer(text: str, answer: bool | None) -> None:
    said = (
        compile_selector(text).matches(HEADERS, FACTS),
        compile_selector(f"NOT ({text})").matches(HEADERS, FACTS),
    )
    assert said == (answer is True, answer is False)


@pytest.mark.parametrize(
    ("text", "code", "position", "words"),
    [
        ("a = 1 AND FIND('x', a)", "selector-function", 11, "one of the functions REGEX"),
        ("REGEX('(', a)", "selector-function", 1, "missing \\)"),
        ("REGEX('a(?=b)', a)", "selector-function", 1, "RE2"),
        ("REGEX('(a)\\1', a)", "selector-function", 1, "RE2"),
        ("REGEX('((a{500}){500}){500}', a)", "selector-function", 1, "RE2"),
        ("REGEX(b, a)", "selector-syntax", 7, "a pattern in single quotes"),
        ("REGEX('a')", "selector-syntax", 10, ","),
        ("REGEX('a', b, c)", "selector-syntax", 13, "\\)"),
        ("REGEX()", "selector-syntax", 7, "a pattern"),
        ("REGEX('a', b + 1)", "selector-syntax", 14, "\\)"),
        ("REGEX('a', SPLIT(b, ','))", "selector-syntax", 12, "a header name"),
        ("SPLIT(a, ',')", "selector-function", 1, "first argument of INLIST"),
        ("INLIST('a,b', a)", "selector-syntax", 8, "SPLIT"),
        ("MAKELIST() IS NULL", "selector-function", 1, "first argument of INLIST"),
        ("INLIST(MAKELIST(), a)", "selector-syntax", 17, "a header name"),
        ("REPLACE(a, 'b', '$1') = 'x'", "selector-function", 1, "without \\$"),
        ("REPLACE(a, 'b', 'c') + 'x'", "selector-type", 1, "."),
        ("REPLACE(" * 101 + "a" + ", 'b', 'c')" * 101 + " = 'x'", "selector-limit", 801, "maxSelectorDepth"),
        (" OR ".join(["REGEX('a{900}', b)"] * 50), "selector-limit", 1, "maxSelectorTerms"),
    ],
)
def test_what_is_refused(text: str, code: str, position: int, words: str) -> None:
    with pytest.raises(SelectorError, match=words) as caught:
        compile_selector(text)
    assert caught.value.code == code
    assert caught.value.position >= position
    assert len(caught.value.message) < 300


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(SelectorError, match=r"google-re2.*stompbox\[regex\]") as caught:
        compile_selector("a = 1 OR REGEX('x', a)")
    assert (caught.value.code, caught.value.position) == ("selector-function", 10)
    assert compile_selector("INLIST(MAKELIST('a', 'b'), c)").matches({"c": "b"}, {})


@pytest.mark.parametrize(
    "text", ["REGEX('(a+)+b', h)", "REGEX('(a|a)*(a|aa)*c', h)", "REGEX('(.*)(.*)(.*)(.*)x(a{50}){20}', h)"]
)
def test_patterns_that_go_back_elsewhere_take_linear_time(text: str) -> None:
    selector = compile_selector(text)
    begun = time.process_time()
    assert not selector.matches({"h": "a" * 60_000}, {}, None, Budget())
    assert time.process_time() - begun < 1


def test_they_draw_on_the_budget_of_the_message() -> None:
    replaced = compile_selector(
        "REPLACE(h, 'a', 'b') = 'x' OR REGEX('(a{30}){30}', h) OR INLIST(SPLIT(h, 'a'), 'x')"
    )
    assert replaced.is_costly
    budget = Budget()
    assert not replaced.matches({"h": "a" * 60_000}, {}, None, budget)
    assert budget.is_used_up
    budget = Budget()
    assert replaced.matches({"h": "a" * 30 * 30}, {}, None, budget)
    assert not budget.is_used_up
    assert compile_selector("REPLACE(h, '', '" + "x" * 10_000 + "') IS NULL").matches(
        {"h": "a" * 1000}, {}, None, Budget()
    )


def test_a_pattern_counts_as_terms_and_as_memory() -> None:
    small, large = compile_selector("REGEX('a', b)"), compile_selector("REGEX('a{900}', b)")
    assert small.size > 100_000
    assert compile_selector("REGEX('a', b)", limits=SelectorLimits(terms=3)).text == small.text
    with pytest.raises(SelectorError, match="maxSelectorTerms"):
        compile_selector(large.text, limits=SelectorLimits(terms=20))
