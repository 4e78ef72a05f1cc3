"""What was taken out from the middle of something and stands there, empty, until it is swept away: a portion at a time.

Who takes out one sweeps when a PART of what stands there is empty. So nobody ever drops all of a hundred thousand in one go, and who
comes by has no more than that part to step over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

LEAST: Final = 64  # that may stand there, empty, in any case
PART: Final = 32  # of so many, one
PORTION: Final = 256  # that are looked at in one go,
OF_HEAP: Final = 64  # and of a heap, where the others move for each that goes

T = TypeVar("T")


def is_due(empty: int, standing: int) -> bool:
    """Whether so much is empty, of all that stands there, that some of it is to be swept."""
    return empty > LEAST and empty * PART > standing


def sweep(waiting: deque[T], at: int, is_empty: Callable[[T], bool]) -> int:
    """Drops what is empty of a portion from index `at` on; where to go on."""
    waiting.rotate(-at)
    looked = min(PORTION, len(waiting) - at)
    kept = [one for one in [waiting.popleft() for _ in range(looked)] if not is_empty(one)]
    waiting.extendleft(reversed(kept))
    waiting.rotate(at)
    return at + len(kept)


def sweep_heap(heap: list[Any], at: int, is_empty: Callable[[Any], bool]) -> int:
    """Does the same to a heap, which is one afterwards."""
    for _ in range(min(OF_HEAP, len(heap) - at)):
        if is_empty(heap[at]):
            _drop(heap, at)
        else:
            at += 1
    return at


def _drop(heap: list[Any], at: int) -> None:
    """Takes an entry out of a heap: the last one goes to where it belongs from there, upward or downward."""
    last = heap.pop()
    if at == len(heap):
        return
    while at and last < heap[(at - 1) // 2]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    while (below := 2 * at + 1) < len(heap):
        if below + 1 < len(heap) and heap[below + 1] < heap[below]:
            below += 1
        if not heap[below] < last:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = last
