"""A question whose answer takes long stops when its portion is over, goes on there, and is answered as if it had been asked at once."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest
from greenlet import getcurrent, greenlet

from stompbox.selectors import Budget, compile_selector
from stompbox.selectors.question import Question
from stompbox.selectors.xpath import document

NODES = 3000
BODY = b"<a>" + b"<b>x</b>" * NODES + b"<c>7</c></a>"
PORTION = 1000


def question(text: str, body: bytes = BODY) -> Question:
    selector = compile_selector(text)
    return Question(lambda budget: selector.matches({}, {}, lambda: body, budget))


def answer(asked: Question, portion: int = PORTION) -> tuple[bool, list[int]]:
    """And the steps of each portion."""
    portions: list[int] = []
    while True:
        before = asked.budget.spent
        found = asked.go_on(portion)
        portions.append(asked.budget.spent - before)
        if found is not None:
            return found, portions


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_LAST", type(document._LAST)())


@pytest.mark.parametrize(
    "text",
    [
        "XPATH '//b[. = 5]'",
        "XPATH '//c[. = 7]'",
        "XPATH 'count(//b[. = \"x\"]) = 3000'",
        "XPATH '//b[//b[//b]]'",
        "NOT XPATH '//b[. = 1]' AND XPATH '//c' OR XPATH '//d'",
        "XPATH '//b[position() = last()]'",
        "XPATH '/a'",
    ],
)
def test_it_is_answered_in_portions_as_it_is_at_once(text: str) -> None:
    selector, budget = compile_selector(text), Budget()
    expected = selector.matches({}, {}, lambda: BODY, budget)
    document._LAST.clear()
    asked = question(text)
    found, portions = answer(asked)
    assert (found, asked.budget.left, asked.budget.is_used_up) == (expected, budget.left, budget.is_used_up)
    assert len(portions) > 5
    # one look at all nodes is not divided
    assert max(portions) <= PORTION + 3 * NODES


def test_a_body_is_read_in_portions() -> None:
    _, portions = answer(question("XPATH '/a'"))
    assert max(portions) <= PORTION + 500


def test_a_body_that_was_read_before_costs_as_much_and_takes_no_time() -> None:
    first, second = question("XPATH '/a'"), question("XPATH '/a'")
    answer(first)
    found, portions = answer(second)
    assert (found, second.budget.left) == (True, first.budget.left)
    assert sum(portions) < 10


def test_questions_about_one_body_at_once_do_not_disturb_each_other() -> None:
    asked = [question(f"XPATH '//c[. = {number}]'") for number in range(6, 9)]
    found: dict[int, bool] = {}
    while len(found) < 3:
        for number, one in enumerate(asked):
            if number not in found and (taken := one.go_on(PORTION)) is not None:
                found[number] = taken
    assert found == {0: False, 1: True, 2: False}


def test_who_asks_may_be_another_one_each_time() -> None:
    asked = question("XPATH '//c[. = 7]'")
    assert greenlet(asked.go_on).switch(PORTION) is None
    here = getcurrent()
    assert answer(asked)[0] is True
    assert getcurrent() is here


class Held:
    """Something that a body refers to."""

    def body(self) -> bytes:
        return BODY


def test_a_question_that_is_let_go_leaves_nothing_behind() -> None:
    selector, held = compile_selector("XPATH '//b[. = 5]'"), Held()
    asked = Question(partial(selector.matches, {}, {}, held.body))
    gone = weakref.ref(held)
    assert asked.go_on(PORTION) is None
    gc.disable()
    try:
        del asked, held
        assert gone() is None
    finally:
        gc.enable()
    assert not document._LAST


def test_what_is_no_xml_or_too_large_is_told_in_portions_too() -> None:
    assert answer(question("XPATH '/a'", BODY + b"<"))[0] is False
    assert answer(question("NOT XPATH '/a'", BODY + b"<"))[0] is True
    larger = b"<a>" + b"<b/>" * 12_000 + b"</a>"
    asked = question("XPATH '/a'", larger)
    assert (answer(asked)[0], asked.budget.is_used_up) == (False, True)
