"""All plans that shapes have, within MOST octets together: those that were made first are forgotten.

A plan names each queue that gets the messages of a shape at an address, so a thousand subscribers are 8 KB of it, and a shape may stay as
long as a message does that is retained, or waits. A shape whose plan is forgotten gets another one with its next run (routing.py).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final
from weakref import ref

if TYPE_CHECKING:
    from stompbox.broker.queues.matching import Plan

MOST: Final = 16 << 20


class Plans:
    __slots__ = ("_sizes", "size")

    def __init__(self) -> None:
        self.size = 0
        self._sizes: OrderedDict[ref[Plan], int] = OrderedDict()  # the oldest first

    def add(self, plan: Plan) -> None:
        """A shape has it from now on, or there is more of it; nobody is using another one just now."""
        self._gone(ref(plan))
        self._sizes[ref(plan, self._gone)] = plan.size
        self.size += plan.size
        while self.size > MOST and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self._gone(oldest)
            if (known := oldest()) is not None:
                known.forget()

    def grow(self, plan: Plan, octets: int) -> None:
        """Counts so many octets of what it knows of combinations of values, more or less than before."""
        mark = ref(plan)
        if mark in self._sizes:
            self._sizes[mark] += octets
            self.size += octets

    def forget(self, plan: Plan) -> None:
        """Has it forget all, as it is out of date."""
        self._gone(ref(plan))
        plan.forget()

    def _gone(self, mark: ref[Plan]) -> None:
        self.size -= self._sizes.pop(mark, 0)

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        return f"<Plans {len(self)} of {self.size} octets>"
