"""All plans together have so many octets: the first ones go, and those whose shapes have gone do not count."""

from __future__ import annotations

import gc

import pytest

from stompbox.broker.addresses import plans
from stompbox.broker.addresses.plans import Plans
from stompbox.broker.queues.matching import KNOWN, PLAN, QUEUE, SELECTOR, TAKERS, Plan
from stompbox.selectors import compile_selector
from tests.broker.world import STAYING

EACH = PLAN + SELECTOR  # octets of one of these


def plan() -> Plan:
    found = Plan(object(), STAYING)
    found.add_by_value(compile_selector("k > 5"))
    return found


def test_the_oldest_are_forgotten_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST", 3 * EACH)
    known, made = Plans(), [plan() for _ in range(5)]
    for one in made:
        known.add(one)
    assert [one.version is None for one in made] == [True, True, False, False, False]
    assert [len(one.by_value) for one in made] == [0, 0, 1, 1, 1]
    assert repr(known) == f"<Plans 3 of {3 * EACH} octets>"


def test_what_they_come_to_know_counts_and_makes_room_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST", 3 * EACH)
    known, first, second = Plans(), plan(), plan()
    known.add(first)
    known.grow(first, 3 * EACH)
    assert first.version is not None
    known.add(second)
    assert (first.version is None, known.size) == (True, EACH)
    known.grow(first, 5)
    assert known.size == EACH


def test_those_that_are_gone_or_out_of_date_do_not_count() -> None:
    known, staying, leaving = Plans(), plan(), plan()
    gc.disable()
    try:
        for one in (staying, leaving):
            known.add(one)
            known.grow(one, one.know((b"1",), ()))
        del one, leaving
        assert (len(known), known.size) == (1, EACH + TAKERS)
        known.forget(staying)
        known.forget(staying)
        assert (len(known), known.size) == (0, 0)
    finally:
        gc.enable()


def test_who_takes_combinations_of_values_counts_with_those_who_do() -> None:
    known, one = Plans(), plan()
    known.add(one)
    takers = tuple(one.by_value) * 1000
    for number in range(2 * KNOWN // (TAKERS + 1000 * QUEUE)):
        known.grow(one, one.know((b"%d" % number,), takers))
        assert known.size - EACH == len(one.known) * (TAKERS + 1000 * QUEUE) <= KNOWN
