"""What the lanes of a queue take in memory beside their messages: a lane of three hundred selectors has three hundred places, in its name
and in the order of each selector, which are a hundred times as much as a short message.

They count as memory of the queue and of its address, as messages do: where they take all that a queue may have, what comes stays in the
log (paging.py), and what is to be sorted is not sorted yet. Which lanes there are is in lanes.py.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Final

from stompbox.broker.queues.memory import NO_LIMIT, Memory

if TYPE_CHECKING:
    from collections.abc import Iterable

LANE: Final = 1500  # octets of a lane itself, about
PLACE: Final = 170  # and of each selector in its name
# octets that lanes may take whatever they have, so that those that are empty are used again
EMPTY: Final = 64 << 10
SWEPT: Final = 8  # lanes that are looked at in one step, where there is no room for another one
CROWDED: Final = 256 << 10  # and those that all of them may take whatever else is in memory


class Places:
    """Counts the octets that the lanes of one queue take (`size`), with those of before. `page_size`: those that it may have in memory."""

    __slots__ = ("_memory", "_old", "_page_size", "_relieved", "size")

    def __init__(self, memory: Memory, page_size: int) -> None:
        self._memory = memory
        self._page_size = page_size
        self._relieved = -NO_LIMIT  # when something was left to the log for want of room
        self.size = 0
        self._old = 0  # of lanes of before, which go when what they have is sorted

    @property
    def is_crowded(self) -> bool:
        """Whether lanes take most of what the queue may have, or all memory is full: what is to be sorted waits until some of them are
        empty, or is left to the log (reclaim.py), which is not read again before half is free."""
        size = self.size - self._old
        return size > CROWDED and (self._memory.is_full or 4 * size > 3 * self._page_size)

    def begin_relief(self, now: int, pause: int) -> bool:
        """Whether it is time to leave something to the log: `pause` ms after the last time."""
        if now < self._relieved + pause:
            return False
        self._relieved = now
        return True

    def take(self, lane: Sized) -> None:
        """Counts a lane of these selectors."""
        self._count(_octets_of(lane))

    def forget(self, lane: Sized) -> None:
        """Counts off a lane that has gone."""
        self._count(-_octets_of(lane))

    def retire(self) -> Places:
        """Makes all lanes those of before."""
        self._old = self.size
        return self

    def give_back(self, lanes: Iterable[Sized]) -> None:
        """Counts off lanes of before that have gone."""
        size = sum([_octets_of(lane) for lane in lanes])
        self._old -= size
        self._count(-size)

    def end(self) -> None:
        """Counts for nobody from now on: the queue has gone."""
        self._count(-self.size)
        self._memory = Memory()

    def _count(self, size: int) -> None:
        self.size += size
        self._memory.count_beside(size)

    def __repr__(self) -> str:
        return f"<Places {self.size} octets>"


def _octets_of(lane: Sized) -> int:
    return LANE + PLACE * len(lane)
