"""Sockets that have as long share one timer: who was there first is due first, who leaves is not, and many have their turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import uvloop

from stompbox.server.transport.deadlines import Deadlines
from stompbox.server.turns import FEW, Few
from tests.server.turning import Handle, Loop


class Timed(Loop):
    """Its time is what the test says. `timers`: what is to be called, by when."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.timers: dict[float, Callable[[], object]] = {}

    def time(self) -> float:
        return self.now

    def call_later(self, wait: float, callback: Callable[[], object], *_: Any) -> Handle:  # type: ignore[override]
        return self.call_at(self.now + wait, callback)

    def call_at(self, when: float, callback: Callable[[], object], *_: Any) -> Handle:  # type: ignore[override]
        assert when not in self.timers, "one timer is enough"
        self.timers[when] = callback
        return Handle()

    def go_to(self, now: float) -> None:
        while due := [when for when in self.timers if when <= now]:
            self.now = min(due)
            self.timers.pop(self.now)()
        self.now = now


def deadlines() -> tuple[Timed, Deadlines, list[str]]:
    loop = Timed()
    return loop, Deadlines(loop, Few(loop).few), []  # type: ignore[arg-type]  # as much of a loop as it uses


def test_each_is_done_at_its_time_and_the_timer_goes_when_nobody_is_left() -> None:
    loop, found, done = deadlines()
    for at, name in enumerate("abc"):
        loop.go_to(float(at))
        found.within(10.0, name, lambda name=name: done.append(name))  # type: ignore[misc]
    assert len(loop.timers) == 1
    loop.go_to(9.9)
    assert done == []
    loop.go_to(10.0)
    assert done == ["a"]
    loop.go_to(20.0)
    assert done == ["a", "b", "c"]
    assert not loop.timers


def test_who_leaves_in_time_is_not_done_and_who_begins_anew_has_all_of_it_again() -> None:
    loop, found, done = deadlines()
    lane = found.within(10.0, "a", lambda: done.append("a"))
    found.within(10.0, "b", lambda: done.append("b"))
    loop.go_to(5.0)
    lane.leave("a")
    lane.leave("a")
    lane.plan("b", lambda: done.append("b again"))
    assert repr(found) == "<Deadlines [<Lane of 10 s waiting=1 due=0>]>"
    loop.go_to(14.9)
    assert done == []
    loop.go_to(15.0)
    assert done == ["b again"]


def test_each_wait_has_a_lane() -> None:
    loop, found, done = deadlines()
    found.within(10.0, "a", lambda: done.append("late"))
    found.within(1.0, "b", lambda: done.append("soon"))
    loop.go_to(1.0)
    assert done == ["soon"]
    loop.go_to(10.0)
    assert done == ["soon", "late"]


def test_what_is_done_may_begin_the_next_wait() -> None:
    loop, found, done = deadlines()
    found.within(1.0, "a", lambda: found.within(1.0, "a", lambda: done.append("at last")))
    loop.go_to(1.0)
    assert done == []
    loop.go_to(2.0)
    assert done == ["at last"]


def test_thousands_who_are_due_at_once_have_their_turns_and_may_leave_until_then() -> None:
    loop, found, done = deadlines()
    lanes = [found.within(1.0, n, lambda n=n: done.append(n)) for n in range(1000)]  # type: ignore[misc]
    loop.go_to(1.0)
    assert done == list(range(FEW))
    lanes[999].leave(999)
    before = len(done)
    while loop.callbacks:
        loop.turn()
        assert len(done) - before <= FEW
        before = len(done)
    assert done == list(range(999))


def test_a_loop_that_calls_a_little_early_is_obeyed() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        found, done = Deadlines(loop, Few(loop).few), loop.create_future()
        begun = loop.time()
        found.within(0.02, "a", lambda: done.set_result(loop.time()))
        assert await asyncio.wait_for(done, 20) >= begun + 0.018

    for make in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=make) as runner:
            runner.run(story())
