"""A selector of many terms is compiled in steps none of which grows with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from weakref import ref

import pytest

from stompbox.errors import SelectorError
from stompbox.selectors import SelectorLimits, compile_selector
from stompbox.selectors.selector import compiling
from stompbox.selectors.steps import Steps, on_a_stack, result

LIMITS = SelectorLimits()


def calls_of(steps: Steps[object]) -> Iterator[int]:
    """Of Python functions, in each of the steps."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    is_over = False
    while not is_over:
        calls = 0
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            next(steps)
        except StopIteration:
            is_over = True
        finally:
            sys.setprofile(before)
        yield calls


def longest(text: str) -> int:
    compile_selector("a = 1")  # what is imported first
    return max(calls_of(compiling(text, conversion=True, limits=LIMITS)))


@pytest.mark.parametrize(
    ("term", "joint"),
    [("h{} = '{}'", " OR "), ("h{} = '{}'", " AND "), ("h{} LIKE '%{}'", " OR "), ("h{} * {}", " + ")],
)
def test_no_step_is_longer_the_longer_the_selector_is(term: str, joint: str) -> None:
    def text(count: int) -> str:
        made = joint.join([term.format(number, number) for number in range(count)])
        return f"{made} > 0" if "*" in term else made

    assert longest(text(480)) <= 1.5 * longest(text(120)) + 100


@pytest.mark.parametrize("joint", ["+", "/", "//", " or ", " | "])
def test_no_step_is_longer_the_longer_an_xpath_is(joint: str) -> None:
    def text(count: int) -> str:
        return f"XPATH '{joint.join(['a'] * count)}'"

    assert longest(text(480)) <= 1.5 * longest(text(120)) + 100


def test_what_is_wrong_behind_the_first_step_of_an_xpath_is_told_with_its_place() -> None:
    with pytest.raises(SelectorError, match="position 608: found 'no-such'"):
        compile_selector(f"XPATH '{'/'.join(['a'] * 300)}/no-such()'")


def test_who_lets_go_of_a_long_xpath_half_way_leaves_nothing() -> None:
    class Given:
        pass

    given = Given()
    gone = ref(given)

    def recursion(rest: Callable[[], None], kept: Given = given) -> Given:
        rest()
        return kept

    steps = on_a_stack(recursion)
    next(steps)
    del recursion, given, steps
    assert gone() is None


def test_what_they_come_to_is_what_they_return() -> None:
    def steps() -> Steps[int]:
        yield
        yield
        return 7

    assert result(steps()) == 7
