"""When connections are looked at for their heart-beats and their time to live: by one timer of the loop for all of them.

A timer of its own costs a connection 700 octets, more than a tenth of all that an idle one has. So those that are due at about the same
time are in one slot. What is far away has a coarse one, which comes a little early, and is planned once more then; so what is due comes
4 ms late at the most. Thousands that are due at once have their turns (turns.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from heapq import heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from stompbox.server.turns import Turns

TICKS: Final = 256  # of a second
SOON: Final = 1  # seconds from now, up to which a slot is one tick
LATER: Final = 10  # up to which it is NEAR of them, and FAR of them beyond
NEAR: Final = TICKS // 8
FAR: Final = TICKS // 2


class Beating(Protocol):
    """A connection, as far as it is looked at from time to time. `slot`: those that are due together, itself among them; None: nobody is
    to look at it."""

    slot: dict[Any, None] | None

    def beat(self) -> None: ...


class Ticking(Protocol):
    """The broker, as far as it has time."""

    loop: asyncio.AbstractEventLoop
    turns: Turns


class Beats:
    """Who is to be looked at, by the tick at which that is due."""

    def __init__(self, broker: Ticking) -> None:
        self._broker = broker
        self._slots: dict[int, dict[Beating, None]] = {}
        self._order: list[int] = []  # a heap of these
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0  # the tick that the timer is for
        self._due: deque[Beating] = deque()  # whose time has come

    def plan(self, connection: Beating, deadline: float) -> None:
        """Has it looked at when the loop's time is this, or before; then it plans again."""
        wait = deadline - self._broker.loop.time()
        grain = NEAR if wait < LATER else FAR
        slot = ceil(deadline * TICKS) if wait < SOON else int(deadline * TICKS) // grain * grain
        found = self._slots.get(slot)
        if found is None:
            found = self._slots[slot] = {}
            heappush(self._order, slot)
            self._wake()
        connection.slot = found
        found[connection] = None

    def leave(self, connection: Beating) -> None:
        """Nobody looks at it any more."""
        slot, connection.slot = connection.slot, None
        if slot is not None:
            slot.pop(connection, None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        first = self._order[0]
        if self._timer is not None:
            if self._next <= first:
                return
            self._timer.cancel()
        self._next = first
        self._timer = self._broker.loop.call_at(first / TICKS, self._look)

    def _look(self) -> None:
        self._timer = None
        now, is_busy = self._broker.loop.time() * TICKS, bool(self._due)
        # a loop may call some microseconds before the time
        while self._order and self._order[0] <= now + 1:
            self._due += self._slots.pop(heappop(self._order))
        if self._order:
            self._wake()
        if self._due and not is_busy and self._go_on(self._broker.turns.allowance()):
            self._broker.turns.later(self._go_on)

    def _go_on(self, until: float) -> bool:
        while self._due:
            connection = self._due.popleft()
            if connection.slot is not None:  # it has not gone meanwhile
                connection.slot = None
                connection.beat()
            if self._broker.turns.clock() > until:
                break
        return bool(self._due)

    def __repr__(self) -> str:
        return f"<Beats of {sum(map(len, self._slots.values()))} in {len(self._slots)} slots, {len(self._due)} due>"
