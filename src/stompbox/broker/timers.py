"""What is to be done later, by time. Reads no clock: `due` is told what time it is."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

NONE: Final = -1  # no time


class Timers:
    """Actions by ms since the epoch; those of one time in the order in which they came. Nothing is ever looked through."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._turn = 0

    def at(self, when: int, action: Callable[[], None]) -> None:
        self._turn += 1
        heapq.heappush(self._heap, (when, self._turn, action))

    def next_deadline(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> Iterator[Callable[[], None]]:
        """Takes out what is due, one by one: an action may add others."""
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[2]

    def __len__(self) -> int:
        return len(self._heap)

    def __repr__(self) -> str:
        return f"<Timers {len(self)} next={self.next_deadline()}>"


class Alarm:
    """One action at the earliest of the times that are asked for. `at` is that time."""

    __slots__ = ("_action", "_timers", "at")

    def __init__(self, timers: Timers, action: Callable[[], None]) -> None:
        self._timers = timers
        self._action = action
        self.at = NONE

    def by(self, when: int) -> None:
        """Has the alarm ring at `when` at the latest."""
        if self.at == NONE or when < self.at:
            self.at = when
            self._timers.at(when, partial(self._ring, when))

    def _ring(self, when: int) -> None:
        if when == self.at:  # otherwise an earlier one has been asked for since
            self.at = NONE
            self._action()
