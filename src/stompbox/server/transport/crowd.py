"""Strangers who all speak at once are read in turns.

The loop reads every socket that has something before anybody has a turn, at 5 us each: of thousands who say their first octet at the same
time everybody else would feel tens of milliseconds. So once MANY strangers of a listener have spoken, or ended, in one turn, the others are
read no further: the loop leaves them out at once, also those of whom it knows already that they have something. PORTION of them are read
again in each turn, the oldest first. Who is silent takes nobody's place.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

MANY: Final = 64  # in one turn: half a millisecond
PORTION: Final = 8  # read again in one turn: each may have to be met, too


class Stranger(Protocol):
    """A socket whose client has not logged in."""

    def hold_off(self) -> bool:
        """Reads no further, for now. False: it is not read anyway."""

    def read_on(self) -> None:
        """Reads again, where nothing else is against it."""


class Crowd:
    """Reads the strangers of one listener in turns. `strangers`: all who are there, the oldest first; `few` does work in a turn in which it
    is one of few."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        few: Callable[[Callable[[], None]], None],
        strangers: Iterable[Stranger],
    ) -> None:
        self._loop = loop
        self._few = few
        self._strangers = strangers
        self._spoken = 0  # in this turn
        self._held: deque[Stranger] = deque()

    def spoke(self) -> None:
        """One of them did, or has ended."""
        self._spoken += 1
        if self._spoken == 1:
            self._loop.call_soon(self._begin)
        elif self._spoken == MANY:
            self._hold()

    def _begin(self) -> None:
        self._spoken = 0

    def _hold(self) -> None:
        is_held = bool(self._held)
        self._held.extend([stranger for stranger in self._strangers if stranger.hold_off()])
        if self._held and not is_held:
            self._few(self._let_go)

    def _let_go(self) -> None:
        for _ in range(min(PORTION, len(self._held))):
            self._held.popleft().read_on()
        if self._held:
            self._loop.call_soon(self._few, self._let_go)

    def __repr__(self) -> str:
        return f"<Crowd held={len(self._held)}>"
