"""Keeps small what the garbage collector looks at at once: nobody has a turn meanwhile.

It takes 0.05 us for each object, and up to 0.9 us where these refer to many others. There are three generations of them, and each is small:

The youngest (YoungGeneration): the collector counts what is made and takes off what goes, whatever age that is. So where old messages go
as fast as new ones come it has nothing to do for a long time, and then looks at all that was made meanwhile, in whichever thread makes
the next object: 100,000 objects took 31 ms. Here it is looked how many there are, and the collector is asked before they are many. To
look costs 0.1 us for each of them, and the same ones are looked at again: so the youngest generation is emptied into the next one before
a look takes long, and the next one once that may be many.

The oldest (Collector): messages live in flat lists, and what is gone refers to nobody, so that next to nothing waits for a collection of
all that is alive. Where that is more than little it does not come at all: what has become old is put aside (gc.freeze) before it is much.
With 5,000 connections and what they were told a whole collection took 115 ms, every five minutes. What is put aside goes like all else once
nobody refers to it; circles among it are looked for when nobody says anything (trimming.py). It is not counted for that: to ask for a list
of 50,000 objects took 10 ms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, Final

# So many objects made, so many collections of the youngest, of the next: the first two generations are small, 6,000 objects together.
THRESHOLDS: Final = (2_000, 1, 9_000)
EVERY: Final = 0.005  # seconds between two looks, while there is something to do
FEW: Final = 300  # objects: a look of 30 us
MANY: Final = 2_500  # objects: half a millisecond, a good one on a slow machine
OFTEN: Final = 10  # collections of the second generation between two looks at the oldest
# blocks of Python's allocator, made since the start, 12,000 of them for selectors: up to so many a collection of what is not put aside
# takes 5 ms, and up to so many one of all that there is a twentieth of a second
SHORT: Final = 20_000
ALIVE: Final = 100_000


def _count(generation: int) -> int:
    """Objects of one generation. The list of them, which refers to each, is gone before any other thread goes on: one that makes a tuple
    just then, item by item, must be the only one who knows it, or Python raises SystemError there."""
    return next(map(len, map(gc.get_objects, (generation,))))


class YoungGeneration:
    def __init__(self) -> None:
        self._next = 0.0
        self._moved = 0  # objects, at the most, that the next generation has from here

    def look(self, now: float) -> None:
        """Collects what is young where that is much. `now`: seconds by the loop's clock."""
        if now < self._next:
            return
        self._next = now + EVERY
        youngest = _count(0)
        if youngest <= FEW:
            return
        self._moved += youngest
        if self._moved <= MANY:
            gc.collect(0)
        else:
            self._moved = 0
            gc.collect(1)


class Collector:
    """What the collector of this process does with what has become old. There is one, from when all is loaded that the process needs."""

    def __init__(self) -> None:
        self._blocks = sys.getallocatedblocks()
        self.has_put_aside = False  # more than what the start has made

    def begin(self) -> None:
        """What the start has made is not looked at again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)
        gc.enable()

    def load(self, load: Callable[[], None]) -> None:
        """Loads, in a thread, what else the process needs: that is not looked at again, either."""
        load()
        gc.freeze()

    def end(self) -> None:
        gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, told: dict[str, Any]) -> None:
        """Puts aside what is old, where more than little is alive."""
        if phase == "stop" and told["generation"] == 1 and not (gc.get_count()[2] % OFTEN or self.is_short):
            self._put_aside()

    def _put_aside(self) -> None:
        gc.freeze()
        self.has_put_aside = True

    @property
    def is_short(self) -> bool:
        """Whether a collection of what is not put aside takes little."""
        return sys.getallocatedblocks() < self._blocks + SHORT

    @property
    def has_few(self) -> bool:
        """Whether so few objects are alive that one of all that there is does not take very long."""
        return sys.getallocatedblocks() < self._blocks + ALIVE

    def collect(self) -> None:
        """Lets go what Python keeps for itself, which only a collection of the oldest generation does: it looks at few objects, or none."""
        gc.collect(1)
        if not self.is_short:
            self._put_aside()
        gc.collect()

    def collect_all(self) -> int:
        """What was put aside as well, and what the start has made: that alone takes 20 to 50 ms. How many objects of circles it found."""
        self.has_put_aside = False
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        return found

    def __repr__(self) -> str:
        return f"<Collector has_put_aside={self.has_put_aside}>"
