"""What is done about a socket when it has had its time, unless what it had that time for comes first: one timer for all who have as long.

Who came first is due first then. A timer of its own costs a socket 5 us and 500 octets, and of thousands that come and go uvloop keeps
250 timers, wherever in memory they were made. Thousands that are due at once have their turns (turns.py: few).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

EARLY: Final = 0.001  # seconds by which a loop may call before the time


class Lane:
    """Deadlines that are all as far away when they begin, `wait` in seconds."""

    __slots__ = ("_due", "_few", "_loop", "_timer", "_waiting", "wait")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, few: Callable[[Callable[[], None]], None], wait: float
    ) -> None:
        self._loop = loop
        self._few = few
        self.wait = wait
        # until when; the first is due first
        self._waiting: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._due: dict[Hashable, Callable[[], None]] = {}  # their time is over, and they have their turn
        self._timer: asyncio.TimerHandle | None = None

    def plan(self, who: Hashable, then: Callable[[], None]) -> None:
        """Does it when the time of this one is over; that begins now, also where it had begun."""
        self.leave(who)
        self._waiting[who] = (self._loop.time() + self.wait, then)
        if self._timer is None:
            self._timer = self._loop.call_later(self.wait, self._look)

    def leave(self, who: Hashable) -> None:
        """Nothing is done about this one any more."""
        self._waiting.pop(who, None)
        self._due.pop(who, None)

    def _look(self) -> None:
        self._timer = None
        now, due = self._loop.time() + EARLY, []
        for who, (until, _) in self._waiting.items():
            if until > now:
                self._timer = self._loop.call_at(until, self._look)
                break
            due.append(who)
        for who in due:
            self._due[who] = self._waiting.pop(who)[1]
        for _ in due:
            self._few(self._do_next)

    def _do_next(self) -> None:
        """Some of those who were due may have left meanwhile."""
        who = next(iter(self._due), None)
        if who is not None:
            self._due.pop(who)()

    def __repr__(self) -> str:
        return f"<Lane of {self.wait:g} s waiting={len(self._waiting)} due={len(self._due)}>"


class Deadlines:
    """The deadlines of one listener's sockets; `few` does work in a turn in which it is one of few."""

    def __init__(self, loop: asyncio.AbstractEventLoop, few: Callable[[Callable[[], None]], None]) -> None:
        self._loop = loop
        self._few = few
        self._lanes: dict[float, Lane] = {}

    def within(self, wait: float, who: Hashable, then: Callable[[], None]) -> Lane:
        """Does it in `wait` seconds, unless `who` has left the lane by then."""
        lane = self._lanes.get(wait)
        if lane is None:
            lane = self._lanes[wait] = Lane(self._loop, self._few, wait)
        lane.plan(who, then)
        return lane

    def __repr__(self) -> str:
        return f"<Deadlines {list(self._lanes.values())}>"
