"""How much work is done in one go, counted in steps, and who goes on later.

A step is about what one term of a selector costs for one message. Matching, sorting, expiring and the like stop when the portion of this
turn is used up (`is_over`), remember where they were and queue up in `Turns`; whoever runs the engine gives them the next portion
behind everybody else (`Engine.dispatch_rest`). Nothing here reads a clock: how long a step takes, the server knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

PORTION: Final = 5_000  # steps: two or three milliseconds
MESSAGE: Final = 20  # steps that it takes to move a segment from one place to another
COPY: Final = 10 * MESSAGE  # and to publish it again elsewhere


class Work:
    """Steps that were taken (`done`) since the last `begin`, of the `portion` that may be."""

    __slots__ = ("done", "portion", "total")

    def __init__(self, portion: int = PORTION) -> None:
        self.portion = portion
        self.done = 0
        self.total = 0  # since the start, but for those of `done`

    def begin(self) -> None:
        """Begins to count a new turn."""
        self.total += self.done
        self.done = 0

    def spend(self, steps: int) -> None:
        self.done += steps

    @property
    def is_over(self) -> bool:
        return self.done >= self.portion

    @property
    def least(self) -> int:
        """Steps that are not worth asking whether the turn has them left."""
        return self.portion // 20

    @property
    def most(self) -> int:
        """Steps that one run, or one message in a queue, may take at once; beyond, it is put off."""
        return 10 * self.portion

    @property
    def heavy(self) -> int:
        """Steps of one message, beyond which it is more than a portion, so that not all of it is done in one go."""
        return 4 * self.portion

    @property
    def rounds(self) -> int:
        """Segments that are handed out in one go, so that one backlog does not hold up the rest."""
        return max(1, self.portion // MESSAGE)

    @property
    def left(self) -> int:
        return max(0, self.portion - self.done)

    def __repr__(self) -> str:
        return f"<Work {self.done} of {self.portion} steps>"


class Turns:
    """What stopped half-way, in the order in which it did; each key waits once."""

    __slots__ = ("_keys", "steps", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.steps: deque[tuple[object, Callable[[], object]]] = deque()
        self._keys: set[object] = set()

    def add(self, key: object, step: Callable[[], object]) -> None:
        if key not in self._keys:
            self._keys.add(key)
            self.steps.append((key, step))

    def take(self, key: object, steps: Iterator[None]) -> None:
        """Takes steps until the portion is used up, one of them at least; the others when it is their turn. What goes on already under
        this key goes on alone: whoever makes steps looks at what there is when they are taken."""
        if key not in self._keys:
            self._take(key, steps)

    def _take(self, key: object, steps: Iterator[None]) -> None:
        for _ in steps:
            if self.work.is_over:
                self.add(key, partial(self._take, key, steps))
                return

    def run(self, goes_on: Callable[[], bool]) -> bool:
        """Each of those that wait gets its turn, with a portion of its own, as long as `goes_on` says so. False when there was none.
        What it has cost is not held against those who come next."""
        count = len(self.steps)
        for _ in range(count):
            key, step = self.steps.popleft()
            self._keys.discard(key)
            self.work.begin()
            step()
            if not goes_on():
                break
        if count:
            self.work.begin()
        return count > 0

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return f"<Turns {len(self)} {self.work!r}>"
