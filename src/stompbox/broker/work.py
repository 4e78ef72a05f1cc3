"""How much work is done in one go, counted in steps, and who goes on later.

A step is about what one term of a selector costs for one message. Matching, sorting, expiring and the like stop when the portion of this
turn is used up (`is_over`), remember where they were and queue up in `Turns`; whoever runs the engine gives them the next portion
behind everybody else (`Engine.dispatch_rest`).

How long a step takes, no count can say: a text may be long, a machine slow. So what goes on in portions stops when their time is over,
too (`is_late`), where whoever runs the engine gives it a clock. Whether a message is put off is decided by steps alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

PORTION: Final = 5_000  # steps: half a millisecond
TIME: Final = 0.000_5  # seconds of a portion
QUESTION: Final = 5  # steps that one of a question takes, which looks into bodies and long texts
MESSAGE: Final = 20  # steps that it takes to move a segment from one place to another
HANDED: Final = 5 * MESSAGE  # and to hand it out, with all that is noted of who has it: 10 us and more
LOOK: Final = (
    MESSAGE // 4
)  # and to look at what waits first for one of those who take messages, or at whether one of them takes some
COPY: Final = 10 * MESSAGE  # and to publish it again elsewhere
# consumers that are asked in one go about one segment: very many may have no credit, or each of them credit for one message
ASKED: Final = 128
AGAIN: Final = 4  # of those that the disk has held up go on at a time, so that not all of them make more before they are held up again


class Work:
    """Steps that were taken (`done`) since the last `begin`, of the `portion` that may be. Time counts, too, where it has a `clock`."""

    __slots__ = ("_until", "clock", "done", "portion", "total")

    def __init__(self, portion: int = PORTION) -> None:
        self.portion = portion
        self.clock: Callable[[], float] | None = None  # in seconds
        self.done = 0
        self.total = 0  # since the start, but for those of `done`
        self._until = 0.0  # when it is late, once somebody has asked

    def time_by(self, clock: Callable[[], float] | None) -> None:
        """Has portions end by this clock, too, from now on."""
        self.clock = clock

    def begin(self) -> None:
        """Begins to count a new turn."""
        self.total += self.done
        self.done = 0
        self._until = 0.0

    def spend(self, steps: int) -> None:
        self.done += steps

    @property
    def is_over(self) -> bool:
        return self.done >= self.portion

    @property
    def is_late(self) -> bool:
        """The portion is used up, or has lasted for TIME since this was asked first."""
        if self.done >= self.portion:
            return True
        if self.clock is None:
            return False
        now = self.clock()
        if not self._until:
            self._until = now + TIME
        return now > self._until

    @property
    def has_begun(self) -> bool:
        """Something is to be forgotten before others begin."""
        return self.done > 0 or self._until > 0.0

    @property
    def asked(self) -> int:
        """Steps of a question that are a portion."""
        return max(1, self.portion // QUESTION)

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
        return self.portion

    @property
    def rounds(self) -> int:
        """Segments that are handed out in one go, so that one backlog does not hold up the rest."""
        return max(1, self.portion // HANDED)

    @property
    def left(self) -> int:
        return max(0, self.portion - self.done)

    def __repr__(self) -> str:
        return f"<Work {self.done} of {self.portion} steps>"


Piece = tuple[object, Callable[[], object]]


class Disk(Protocol):
    """What says how far the disk is behind what is made for it."""

    @property
    def made(self) -> int:
        """What was made for it since the start."""

    @property
    def is_behind(self) -> bool:
        """Whether it has enough to do."""

    def holds_up(self, made: int) -> bool:
        """Whether who has begun when so much was made has made more of it, and goes on when the disk has done that: `go_on` follows."""


class Turns:
    """What stopped half-way: each key waits once. Those on whose behalf it is done (`by`: a connection's session, a user; None: nobody's)
    take turns, however much one of them has; what one has is done in the order in which it stopped. What makes more for the disk, where
    there is one, than that is through with has no turn meanwhile."""

    __slots__ = ("_count", "_held_up", "_keys", "_made", "_under_way", "disk", "waiting", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.disk: Disk | None = None
        self.waiting: dict[object, deque[Piece]] = {}  # by whose it is; whose turn comes next is the first
        self._held_up: deque[tuple[object, Piece]] = deque()  # whose it is, and what
        self._keys: set[object] = set()
        self._count = 0
        self._under_way: object = None  # the key of what has its turn,
        self._made = 0  # and what was made for the disk when that began

    def heed(self, disk: Disk) -> None:
        """Holds up what makes more for this disk than it is through with, from now on."""
        self.disk = disk

    def add(self, key: object, step: Callable[[], object], *, by: object = None) -> None:
        if key not in self._keys:
            self._keys.add(key)
            if self.disk is not None and key == self._under_way and self.disk.holds_up(self._made):
                self._held_up.append((by, (key, step)))
            else:
                self._wait(by, (key, step))

    def _wait(self, by: object, piece: Piece) -> None:
        self._count += 1
        own = self.waiting.get(by)
        if own is None:
            self.waiting[by] = deque([piece])
        else:
            own.append(piece)

    def go_on(self) -> bool:
        """The disk has done what it was given: AGAIN of those that were held up go on. True when others are still."""
        for _ in range(min(AGAIN, len(self._held_up))):
            self._wait(*self._held_up.popleft())
        return bool(self._held_up)

    def take(self, key: object, steps: Iterator[None], *, by: object = None) -> None:
        """Takes steps until the portion is used up, or its time is over, one of them at least; the others when it is their turn. What
        goes on already under this key goes on alone: whoever makes steps looks at what there is when they are taken."""
        if key not in self._keys:
            self._take(key, steps, by)

    def _take(self, key: object, steps: Iterator[None], by: object) -> None:
        for _ in steps:
            if self.work.is_late:
                self.add(key, partial(self._take, key, steps, by), by=by)
                return

    def _next(self) -> Piece:
        """Its client comes again behind the others."""
        by = next(iter(self.waiting))
        own = self.waiting.pop(by)
        piece = own.popleft()
        if own:
            self.waiting[by] = own
        self._keys.discard(piece[0])
        self._count -= 1
        return piece

    def run(self, goes_on: Callable[[], bool]) -> bool:
        """So many as wait get their turn, with a portion each, as long as `goes_on` says so. False when there was none.
        What it has cost is not held against those who come next."""
        count = self._count
        for _ in range(count):
            self._under_way, step = self._next()
            if self.disk is not None:
                self._made = self.disk.made
            self.work.begin()
            step()
            if not goes_on():
                break
        self._under_way = None
        if self._held_up and self.disk is not None and not self.disk.is_behind:
            self.go_on()
        if count:
            self.work.begin()
        return count > 0

    def __len__(self) -> int:
        return self._count + len(self._held_up)

    def __repr__(self) -> str:
        return f"<Turns {len(self)} {self.work!r}>"
