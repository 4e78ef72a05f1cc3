"""Large selectors are run as a program: it answers as the Python code of small ones does, and is made with little work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompbox.errors import SelectorError
from stompbox.selectors import Value, codegen, compile_selector
from stompbox.selectors.limits import SelectorLimits
from tests.selectors.test_cases import CASES
from tests.selectors.test_cases import test_case as check
from tests.selectors.test_codegen import (
    HEADERS,
    NAMES,
    TRUTHS,
    VALUES,
    Tree,
    answers,
    both,
    conditions,
    either,
    negation,
    truth_of,
)


@contextmanager
def as_programs() -> Iterator[None]:
    """Small selectors, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codegen, "LARGEST", 0)
        yield


@settings(max_examples=1500, derandomize=True, deadline=None)
@given(conditions, st.lists(st.sampled_from(VALUES), min_size=4, max_size=4))
def test_agrees_with_the_reference(tree: Tree, values: list[Value]) -> None:
    headers = {name: value for name, value in zip(NAMES, values, strict=True) if value is not None}
    with as_programs():
        assert answers(tree.text(), headers) is truth_of(tree, headers), tree.text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0]))
def test_each_case_of_the_table(case: tuple[int, str, str, str, str]) -> None:
    with as_programs():
        check(*case)


def test_three_values() -> None:
    with as_programs():
        for left in TRUTHS:
            assert answers(f"NOT ({left})", HEADERS) is negation(TRUTHS[left])
            for right in TRUTHS:
                assert answers(f"{left} AND {right}") is both(TRUTHS[left], TRUTHS[right])
                assert answers(f"{left} OR {right}") is either(TRUTHS[left], TRUTHS[right])


FACTS: dict[str, Value] = {"priority": 4, "durable": True, "timestamp": 1_700_000_000_000, "size": 10}


@pytest.mark.parametrize(
    "text",
    [
        "JMSDeliveryMode = 'PERSISTENT' AND AMQDurable = 'DURABLE' AND JMSPriority > 3 AND JMSType = 'news'",
        "JMSCorrelationID LIKE 'a%' OR JMSReplyTo IS NULL AND NOT flag",
        "XPATH '//b' AND NOT XPATH '//c' AND XQUERY 'x' IS NOT NULL",
        "text LIKE '%a_c%' AND 'abc' LIKE '%b%' AND (a + 1) NOT LIKE '1' IS NULL",
        "a BETWEEN b AND 5 OR 3 BETWEEN a AND b OR -a NOT BETWEEN -b AND +b",
        "age + 1 = 22 AND 5 < age AND (flag = TRUE) = TRUE",
    ],
)
def test_it_says_what_the_code_says(text: str) -> None:
    """Of facts, of bodies and without conversion, too."""
    for prefix in ("", "no_convert_string_expressions:"):
        for headers in (
            {},
            {
                "type": "news",
                "correlation-id": "ab",
                "age": "21",
                "a": "1",
                "b": "2",
                "text": "xabcx",
                "flag": "true",
            },
        ):
            code = compile_selector(prefix + text)
            with as_programs():
                program = compile_selector(prefix + text)
            for facts in ({}, FACTS):
                for body in (b"<a><b/></a>", b"<c/>", b"no"):
                    said = [
                        selector.matches(headers, facts, lambda body=body: body)
                        for selector in (code, program)
                    ]
                    assert said[0] is said[1], (headers, facts, body)


def test_a_long_or_ends_at_its_first_true() -> None:
    asked: list[str] = []

    class Asked(dict[str, Value]):
        def get(self, name: str, default: Value = None) -> Value:  # type: ignore[override]
            asked.append(name)
            return super().get(name, default)

    text = " OR ".join(f"h{number} = 1" for number in range(300))
    assert compile_selector(text).matches(Asked(h2="1"), {})
    assert asked == ["h0", "h1", "h2"]


LARGEST = {
    "comparisons": " OR ".join(f"h{n} = 'v{n}'" for n in range(490)),
    "numbers": " AND ".join(f"h{n} > {n}" for n in range(490)),
    "sums": " OR ".join(f"a{n} + b{n} > c" for n in range(330)),
    "between": " OR ".join("a BETWEEN b AND c" for _ in range(333)),
    "null": "a" + " IS NULL" * 2000,
    "not": " OR ".join("NOT a" for _ in range(999)),
    "like": " OR ".join(f"a LIKE '%x{n}%y%'" for n in range(499)),
    "like with one": "a LIKE '" + "%a_b" * 990 + "'",
    "like of many parts": "a LIKE '" + "%a" * 8000 + "'",
    "in": "a IN (" + ",".join(f"'{n}'" for n in range(999)) + ")",
    "xpath": "XPATH '" + "/a" * 499 + "'",
    "xpaths": " OR ".join(f"XPATH '//a[b={n}]'" for n in range(99)),
}


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_are_compiled_with_little_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In calls of functions of Python, of which about five take a microsecond, and in the Python code that is made."""
    sources: list[str] = []
    monkeypatch.setattr(
        codegen,
        "compile",
        lambda source, *rest: sources.append(source) or compile(source, *rest),
        raising=False,
    )  # type: ignore[func-returns-value]
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    compile_selector("a = 1")
    sources.clear()
    sys.setprofile(count)
    try:
        compile_selector(LARGEST[name])
    finally:
        sys.setprofile(None)
    assert calls < 90_000
    assert sum(map(len, sources)) < 10_000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("XPATH '//a[b=1]' OR XPATH '//c[d=2]'", "one token of XPATH more"),
        ("a LIKE '%b_c%d_e%f_g%h_i%j_k%l_m%n_o%p_q%'", "a pattern with 8 such parts"),
    ],
)
def test_what_is_within_a_literal_counts_as_terms(text: str, found: str) -> None:
    compile_selector(text, limits=SelectorLimits(terms=17))
    with pytest.raises(SelectorError, match=rf"{found}.*\(maxSelectorTerms\)") as caught:
        compile_selector(text, limits=SelectorLimits(terms=8))
    assert caught.value.code == "selector-limit"
