"""All plans together have so many octets: the first ones go, and those whose shapes have gone do not count."""

from __future__ import annotations

import gc

import pytest

from stompbox.broker.addresses import plans
from stompbox.broker.addresses.plans import TAKERS, Plans
from stompbox.broker.queues.matching import PLAN, Plan
from stompbox.selectors import compile_selector
from tests.broker.world import STAYING


def plan() -> Plan:
    found = Plan(object(), STAYING)
    found.add_by_value(compile_selector("k > 5"))
    return found


def test_the_oldest_are_forgotten_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST", 3 * PLAN)
    known, made = Plans(), [plan() for _ in range(5)]
    for one in made:
        known.add(one)
    assert [one.version is None for one in made] == [True, True, False, False, False]
    assert [len(one.by_value) for one in made] == [0, 0, 1, 1, 1]
    assert repr(known) == f"<Plans 3 of {3 * PLAN} octets>"


def test_what_they_come_to_know_counts_and_makes_room_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST", 3 * PLAN)
    known, first, second = Plans(), plan(), plan()
    known.add(first)
    known.grow(first, 3 * PLAN // TAKERS)
    assert first.version is not None
    known.add(second)
    assert (first.version is None, known.size) == (True, PLAN)
    known.grow(first, 5)
    assert known.size == PLAN


def test_those_that_are_gone_or_out_of_date_do_not_count() -> None:
    known, staying, leaving = Plans(), plan(), plan()
    gc.disable()
    try:
        for one in (staying, leaving):
            known.add(one)
            known.grow(one, 2)
        del one, leaving
        assert (len(known), known.size) == (1, PLAN + 2 * TAKERS)
        known.forget(staying)
        known.forget(staying)
        assert (len(known), known.size) == (0, 0)
    finally:
        gc.enable()
