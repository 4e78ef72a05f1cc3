"""What was made or asked for last, within a bound: for what only saves time, of which there may be more than anybody wants to keep.

It has two halves. What comes is noted in the one; when that is full it becomes the other, and what was there is gone, but for what
was asked for meanwhile. So nothing is kept about the order of thousands, and to throw half of them out is one assignment. Threads may
share it: at worst something is made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key. `most`: what all of them may weigh, each at least 1; `weigh` says what one does, else each weighs 1."""

    __slots__ = ("_before", "_half", "_recent", "_weigh", "_weight")

    def __init__(self, most: int, weigh: Callable[[V], int] | None = None) -> None:
        self._half = most // 2
        self._weigh = weigh
        self._recent: dict[K, V] = {}
        self._before: dict[K, V] = {}
        self._weight = 0  # of the recent ones

    def of(self, key: K) -> V | None:
        """What was noted; None: nothing, or it is gone."""
        found = self._recent.get(key)
        if found is None:
            found = self._before.get(key)
            if found is not None:
                self.note(key, found)
        return found

    def note(self, key: K, value: V) -> None:
        """Keeps it for a while. One that weighs more than a half is not kept."""
        weight = 1 if self._weigh is None else self._weigh(value)
        if weight > self._half:
            return
        if self._weight + weight > self._half:
            self._before, self._recent, self._weight = self._recent, {}, 0
        self._recent[key] = value
        self._weight += weight

    def forget(self) -> None:
        """Lets go of all."""
        self._recent, self._before, self._weight = {}, {}, 0

    def __len__(self) -> int:
        """How many are kept; one that was asked for again may count twice."""
        return len(self._recent) + len(self._before)

    def __repr__(self) -> str:
        return f"<Recent {len(self)}>"
