from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stompbox.broker.work import Turns as Later
from stompbox.broker.work import Work
from stompbox.config import Configuration
from stompbox.server.beats import TICKS, Beats
from stompbox.server.turns import PLANNED, Turns
from tests.server.turning import LOOKS, Clock, Handle

TICK = 1 / TICKS


class Timed:
    """A loop whose time a test sets; `timers` are those that are not cancelled, by their times."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: dict[int, tuple[float, Callable[[], None]]] = {}
        self.soon: list[Callable[[], object]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *_: Any) -> Handle:
        self.soon.append(callback)
        return Handle()

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        number = len(self.timers) + 1
        self.timers[number] = when, callback
        handle = Handle()
        handle.cancel = lambda: self.timers.update({number: (0.0, lambda: None)})  # type: ignore[method-assign]
        return handle

    def until(self, when: float) -> None:
        """Goes on to this time, timer by timer; what a turn puts off is done in the next ones."""
        while True:
            due = [number for number, (at, _) in self.timers.items() if 0.0 < at <= when]
            if not due:
                break
            number = min(due, key=lambda number: self.timers[number][0])
            at, callback = self.timers[number]
            self.timers[number] = 0.0, lambda: None
            self.now = max(self.now, at)
            callback()
            self.turn()
        self.now = when

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class House:
    has_failed = False

    def __init__(self) -> None:
        self.timed = Timed()
        self.loop = cast(asyncio.AbstractEventLoop, self.timed)
        settings = Configuration(memory=True)
        budget = PLANNED * settings.max_turn_time / 1000
        self.turns = Turns(cast(Any, self), settings, Clock(budget / LOOKS))
        self.beats = Beats(self)
        self.engine = type("Engine", (), {"later": Later(Work())})
        self.pressure = SimpleNamespace(made=0, is_behind=False, holds_up=lambda _: False)

    def set_time(self) -> None:
        pass

    def flush(self, *, is_turn_over: bool = False) -> None:
        pass

    def flush_soon(self) -> None:
        self.timed.call_soon(self.turns.serve)


class One:
    """A connection that is due every `every` seconds, and notes when it was looked at then."""

    def __init__(self, house: House, every: float) -> None:
        self.house, self.every = house, every
        self.slot: dict[Any, None] | None = None
        self.deadline = house.timed.now + every
        self.looks: list[float] = []
        self.late: list[float] = []
        house.beats.plan(self, self.deadline)

    def beat(self) -> None:
        now = self.house.timed.now
        self.looks.append(now)
        if now >= self.deadline:
            self.late.append(now - self.deadline)
            self.deadline = now + self.every
        self.house.beats.plan(self, self.deadline)


@pytest.mark.parametrize("every", [0.02, 0.5, 1.0, 3.3, 9.99, 10.0, 60.0, 3600.0])
def test_what_is_due_is_looked_at_within_a_tick_and_seldom_before(every: float) -> None:
    house = House()
    one = One(house, every)
    house.timed.until(house.timed.now + 5 * every + 1)
    assert len(one.late) >= 5
    assert max(one.late) <= 2 * TICK
    assert len(one.looks) <= 3 * len(one.late) + 3, "twice before it is due, at the most"


def test_thousands_have_one_timer_and_few_slots() -> None:
    house = House()
    many = []
    for _ in range(5000):
        house.timed.now += 0.001
        many.append(One(house, 60.0))
    assert len([1 for when, _ in house.timed.timers.values() if when]) == 1
    assert repr(house.beats).startswith("<Beats of 5000 in 1")
    assert len({id(one.slot) for one in many}) <= 12


def test_who_has_left_is_not_looked_at() -> None:
    house = House()
    one, other = One(house, 0.5), One(house, 0.5)
    house.beats.leave(one)
    house.beats.leave(one)
    house.timed.until(house.timed.now + 0.6)
    assert not one.looks
    assert other.looks


def test_who_leaves_while_others_are_looked_at_is_not() -> None:
    house = House()
    many = [One(house, 0.5) for _ in range(3)]
    first, second, third = many
    first.beat = lambda: house.beats.leave(second)  # type: ignore[method-assign]
    house.timed.until(house.timed.now + 0.51)
    assert not second.looks
    assert third.looks


def test_those_that_are_due_at_once_have_their_turns() -> None:
    house = House()
    many = [One(house, 0.5) for _ in range(100)]
    due = house.timed.now + 0.51
    at, callback = min(timer for timer in house.timed.timers.values() if timer[0])
    house.timed.now = at
    callback()
    looked = sum(bool(one.looks) for one in many)
    assert 0 < looked <= LOOKS, "one turn has looked at some of them"
    for _ in range(100):
        house.timed.turn()
    assert all(one.looks for one in many)
    assert at <= due


def test_it_stops() -> None:
    house = House()
    one = One(house, 0.5)
    house.beats.stop()
    house.timed.until(house.timed.now + 5)
    assert not one.looks
