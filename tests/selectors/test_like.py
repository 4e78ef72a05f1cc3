from __future__ import annotations

import re
import sys
import time
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompbox.selectors import Budget, compile_selector
from stompbox.selectors.like import BLOCK, compile_like, find
from stompbox.selectors.question import Question


@pytest.mark.parametrize(
    ("pattern", "escape", "fits", "fails"),
    [
        ("red", None, ["red"], ["", "re", "redd", "Red", "xred"]),
        ("", None, [""], ["a"]),
        ("%", None, ["", "a", "a\nb"], []),
        ("%%%", None, ["", "abc"], []),
        ("r_d", None, ["red", "r\nd", "r_d", "r%d"], ["rd", "reed"]),
        ("___", None, ["abc", "äöü"], ["ab", "abcd"]),
        ("a%", None, ["a", "ab"], ["", "ba"]),
        ("%a", None, ["a", "ba"], ["", "ab"]),
        ("%a%", None, ["a", "bab"], ["", "b"]),
        ("12%3", None, ["123", "12993"], ["1234", "12"]),
        ("aba%aba", None, ["abaaba", "aba-aba"], ["aba", "ababa"]),  # the two ends may not overlap
        ("a%b%c", None, ["abc", "a-b-b-c", "aXbYc"], ["acb", "ac", "abcb"]),
        ("%ab%ba%", None, ["abba", "xxabyybazz"], ["aba", "ba ab"]),
        ("%a_c%", None, ["abc", "xxaacc", "xa\ncx"], ["ac", "abbc"]),
        ("%_%", None, ["a", "ab"], [""]),
        ("_%_%_", None, ["abc", "abcd"], ["ab"]),
        ("%a_b_%x", None, ["aabbbx", "a1b2x", "a1a1b2x"], ["a1bx", "a1b2"]),
        (".*[a-z]\\(", None, [".*[a-z]\\("], ["abc"]),
        ("!_!%", "!", ["_%"], ["a%", "_a"]),
        ("!!_", "!", ["!a"], ["!!a", "_a"]),
        ("!a", "!", ["a"], ["!a"]),
        ("%%_", "%", ["%a"], ["", "a"]),
        ("__%", "_", ["_", "_a"], ["a"]),
    ],
)
def test_patterns(pattern: str, escape: str | None, fits: list[str], fails: list[str]) -> None:
    matches = compile_like(pattern, escape)
    assert [text for text in fits + fails if matches(text)] == fits


@settings(max_examples=400, derandomize=True)
@given(st.text("ab%_", max_size=9), st.text("ab\n", max_size=9))
def test_agrees_with_a_regular_expression(pattern: str, text: str) -> None:
    expression = "".join({"%": ".*", "_": "."}.get(char, char) for char in pattern)
    assert compile_like(pattern, None)(text) == bool(re.fullmatch(expression, text, re.DOTALL))


@pytest.mark.parametrize(
    "pattern",
    [
        "%a" * 5000 + "%b",
        "%" + "a_" * 5000 + "b%",
        "%" + "a" * 16000 + "b%",
        "a%" * 30 + "b",
        "%" + "ab" * 60 + "b%",
        "_" * 16000 + "%b",
    ],
    ids=lambda pattern: pattern[:6],
)
def test_a_hostile_pattern_on_a_hostile_text_ends_soon(pattern: str) -> None:
    matches = compile_like(pattern, None)
    start = time.process_time()
    assert not matches("a" * 65536)
    assert not matches("ab" * 32767 + "a")
    # backtracking would take years, a search by comparing every place many minutes
    assert time.process_time() - start < 5


@settings(max_examples=300, derandomize=True, deadline=None)
@given(
    st.lists(st.sampled_from(["a" * 200, "b", "a" * 9, "\0" * 20]), max_size=60).map("".join),
    st.text("ab\0", max_size=30),
    st.integers(0, 400),
)
def test_a_search_in_linear_time_finds_what_any_search_does(text: str, wanted: str, start: int) -> None:
    for end in (len(text), len(text) - 7):
        assert find(text, wanted, start, end) == text.find(wanted, start, end)


def test_a_text_in_which_a_search_would_go_back_is_searched_as_a_long_one() -> None:
    """CPython looks through 30,000 characters and more in linear time, whatever they are."""
    searched: list[int] = []

    class Text(str):
        __slots__ = ()

        def find(self, wanted: str, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
            searched.append((len(self) if end is None else end) - start)
            return str.find(self, wanted, start, len(self) if end is None else end)

        def __add__(self, other: str) -> Text:
            return Text(str(self) + other)

    assert not compile_like("%" + "a" * 50 + "b" + "a" * 50 + "%", None)(Text("a" * 29_000))
    assert not compile_like("%" + "a" * 50 + "b" + "a" * 50 + "%c%", None)(Text("a" * 29_000))
    assert len(searched) == 2
    assert min(searched) >= 30_000


def test_a_part_with_an_underscore_costs_two_lines_for_each_character() -> None:
    fits, lines = compile_like("%a_b%", None), 0

    def trace(_: FrameType, event: str, __: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = fits("a" * 10_000)
    finally:
        sys.settrace(before)
    assert not found
    assert lines < 2 * 10_000 + 100


def test_a_part_with_an_underscore_is_searched_in_portions() -> None:
    """A text of 64 KiB takes 33,000 steps; between two portions of 5,000 others have their turn."""
    selector = compile_selector("t LIKE '%a_b%'")
    question = Question(lambda budget: selector.matches({"t": "a" * 65_536}, {}, None, budget))
    portions = [question.budget.spent]
    while (answer := question.go_on(5_000)) is None:
        portions.append(question.budget.spent)
    portions.append(question.budget.spent)
    taken = [after - before for before, after in pairwise(portions)]
    assert answer is False
    assert sum(taken) == 32 * 65_536 // 64
    assert max(taken) <= 5_000 + 32 * BLOCK // 64
    assert len(taken) >= 6


@pytest.mark.parametrize("text", ["a" * 3_000 + "axb", "ab" * 2_000 + "a\nb" + "c" * 5_000, "axb" * 4_000])
def test_what_is_found_takes_no_more_steps_than_it_was_searched_for(text: str) -> None:
    budget = Budget()
    assert compile_selector("t LIKE '%a_b%'").matches({"t": text}, {}, None, budget)
    assert budget.spent <= 32 * (text.index("b", 2) + 3 + BLOCK) // 64 + 32 * len(text) // 64
    assert not budget.is_used_up


@pytest.mark.parametrize("at", [BLOCK - 2, BLOCK - 1, BLOCK, 2 * BLOCK - 1])
def test_a_part_that_lies_over_two_blocks_is_found(at: int) -> None:
    matches = compile_like("%a_b%c%", None)
    assert matches("x" * at + "a-b" + "y" * 3_000 + "c")
    assert not matches("x" * at + "a-" + "y" * 3_000 + "c")


def test_what_would_take_more_than_is_left_is_not_begun() -> None:
    budget = Budget()
    assert not compile_selector("t LIKE '%" + "a_" * 4_000 + "b%'").matches(
        {"t": "a" * 65_536}, {}, None, budget
    )
    assert budget.is_used_up
