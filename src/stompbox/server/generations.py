"""Keeps small what the garbage collector looks at at once.

The collector counts what is made and takes off what goes, whatever age that is. So where old messages go as fast as new ones come it has
nothing to do for a long time, and then looks at all that was made meanwhile, in whichever thread makes the next object: 100,000 objects
took 31 ms, in which nobody had a turn. Here it is looked how many there are, and the collector is asked before they are many.

To look costs 0.1 us for each of them, and the same ones are looked at again: so the youngest generation is emptied into the next one before
a look takes long, and the next one once that may be many.
"""

from __future__ import annotations

import gc
from typing import Final

EVERY: Final = 0.005  # seconds between two looks, while there is something to do
FEW: Final = 300  # objects: a look of 30 us
MANY: Final = 2_500  # objects: half a millisecond, a good one on a slow machine


class YoungGeneration:
    def __init__(self) -> None:
        self._next = 0.0
        self._moved = 0  # objects, at the most, that the next generation has from here

    def look(self, now: float) -> None:
        """Collects what is young where that is much. `now`: seconds by the loop's clock."""
        if now < self._next:
            return
        self._next = now + EVERY
        youngest = len(gc.get_objects(0))
        if youngest <= FEW:
            return
        self._moved += youngest
        if self._moved <= MANY:
            gc.collect(0)
        else:
            self._moved = 0
            gc.collect(1)
