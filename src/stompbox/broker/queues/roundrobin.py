"""Consumers of a queue in the order of their ranks, and whose turn it was last.

This file alone of the queues' is never compiled: mypyc makes no classes from lists (hatch_build.py).
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import Final, Protocol, TypeVar

_PRIORITY: Final = 64  # bits of a rank below those of the priority


class Ranked(Protocol):
    """What stands in a round robin: it comes before all with a higher rank."""

    @property
    def rank(self) -> int: ...


T = TypeVar("T", bound=Ranked)


def rank_of(number: int, priority: int) -> int:
    """The rank of the consumer that came as this one: those of a higher priority come first."""
    return number - (priority << _PRIORITY)


def end_of_priority(rank: int) -> int:
    """All consumers of the same priority have ranks below this one."""
    return ((rank >> _PRIORITY) + 1) << _PRIORITY


RANK: Final = attrgetter("rank")


class RoundRobin(list[T]):
    """Consumers of a queue in the order of their ranks, and the index of whose turn it was last."""

    turn = 0
    is_lasting = False  # whoever is left out for want of credit comes in again when it is fed

    def going_on(self, turn: int) -> RoundRobin[T]:
        """Goes on after the one whose turn it was last, by its index."""
        self.turn = turn
        return self

    def lasting(self, turn: int = 0) -> RoundRobin[T]:
        """Goes on as `going_on` does, in a round robin that is kept: whoever is left out comes in again."""
        self.turn, self.is_lasting = turn, True
        return self

    def add(self, one: T) -> None:
        at = bisect_left(self, one.rank, key=RANK)
        if at <= self.turn and at < len(self):
            self.turn += 1
        self.insert(at, one)

    def discard(self, one: T) -> None:
        at = bisect_left(self, one.rank, key=RANK)
        if at < len(self) and self[at] is one:
            del self[at]
            if at <= self.turn:
                self.turn -= 1

    @property
    def equals(self) -> int:
        """How many of the first have the same priority."""
        return bisect_left(self, end_of_priority(self[0].rank), key=RANK)
