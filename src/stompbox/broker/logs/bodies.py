"""Large bodies: their pieces on the way to the store, and which of them memory holds.

A body comes in pieces before its message is there, and each piece goes into the next commit. Who has the handle (message.py,
Large) may have the pieces read: they are here until their commit is durable, then in the store. The store is told when the last
handle is gone; it keeps the body as long as a chunk names it. So nobody counts who needs a body: a run in a queue, a transaction, a
message that is being written are handles, and when a sender vanishes half-way its handle goes with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from weakref import ref

from stompbox.handles import Large
from stompbox.message import Run
from stompbox.store.base import Commit

EPOCH: int = 1 << 32  # ids: epoch * this + n, so that none comes again

Pieces = dict[int, dict[int, bytes]]  # by body, by number


class Bodies:
    """The large bodies of an engine: which are there, and what the store must still learn of them. `epoch` differs at each start."""

    def __init__(self, epoch: int) -> None:
        self._next = epoch * EPOCH
        self._alive: dict[int, ref[Large]] = {}
        self._gone: deque[int] = deque()  # whose last handle may be gone; whichever thread dropped it says so
        self._known: set[int] = set()  # bodies that the store has heard of
        self._holds: dict[int, bool] = {}  # what the next commit has to say
        self._telling: dict[int, bool] = {}  # and what the one says that the disk works on
        self._pending: Pieces = {}
        self._flying: Pieces = {}  # of the commit that the disk works on

    def new(self) -> Large:
        """A body of which nothing has come yet; its size is set when it is complete."""
        self._next += 1
        return self._watched(Large(self._next - 1, 0))

    def _watched(self, large: Large) -> Large:
        gone, id = self._gone, large.id
        self._alive[id] = ref(large, lambda _: gone.append(id))
        return large

    def put(self, large: Large, number: int, data: bytes) -> None:
        """Takes the next piece of a large body."""
        self._pending.setdefault(large.id, {})[number] = data

    def piece(self, large: Large, number: int) -> bytes | None:
        """A piece that is not durable yet; None: the store has it."""
        for pieces in (self._pending, self._flying):
            found = pieces.get(large.id, {}).get(number)
            if found is not None:
                return found
        return None

    def unsaved(self, large: Large) -> int:
        """Octets of its pieces that are not durable yet."""
        return sum(
            len(data)
            for pieces in (self._pending, self._flying)
            for data in pieces.get(large.id, {}).values()
        )

    @property
    def all_unsaved(self) -> int:
        if not self._pending and not self._flying:
            return 0
        return sum(
            len(data)
            for pieces in (self._pending, self._flying)
            for parts in pieces.values()
            for data in parts.values()
        )

    def adopt(self, runs: Iterable[Run]) -> None:
        """Runs that were read from the store: from now on memory holds their large bodies."""
        for run in runs:
            if run.is_large:
                run.bodies = [self._adopted(run.large(index)) for index in range(len(run))]

    def recall(self, id: int, size: int) -> Large:
        """A body that an entry of the catalogue has kept over a restart."""
        return self._adopted(Large(id, size))

    def _adopted(self, large: Large) -> Large:
        known = self._alive.get(large.id)
        alive = known() if known is not None else None
        if alive is not None:
            return alive
        self._known.add(large.id)
        self._holds[large.id] = True
        return self._watched(large)

    def is_untold(self, large: Large) -> bool:
        """Whether the store does not know yet that memory holds this body: it may go, when no chunk names it any more."""
        return large.id in self._holds or large.id in self._telling

    # Commits

    @property
    def is_dirty(self) -> bool:
        return bool(self._gone or self._pending or self._holds)

    def _let_go(self) -> None:
        while self._gone:
            id = self._gone.popleft()
            handle = self._alive.get(id)
            if handle is None or handle() is not None:
                continue  # it was read again meanwhile
            del self._alive[id]
            self._pending.pop(id, None)
            if id in self._known:
                self._known.discard(id)
                self._holds[id] = False

    def give(self, commit: Commit) -> None:
        """Puts into a commit what is new about large bodies."""
        if not self.is_dirty:
            self._flying = {}
            return
        self._let_go()
        self._telling = commit.holds = self._holds
        self._holds = {}
        self._flying, self._pending = self._pending, {}
        self._known.update(self._flying)
        commit.parts = {
            (id, number): data for id, parts in self._flying.items() for number, data in parts.items()
        }

    def landed(self) -> None:
        """The commit that was given is durable."""
        self._flying, self._telling = {}, {}

    def failed(self, commit: Commit) -> None:
        """The commit that was given is not in the store: all that was in it waits for the next one."""
        self._holds = commit.holds | self._holds
        for id, parts in self._flying.items():
            if id in self._alive:
                self._pending[id] = parts | self._pending.get(id, {})
        self._flying, self._telling = {}, {}
        commit.holds, commit.parts = {}, {}

    def __repr__(self) -> str:
        return f"<Bodies {len(self._alive)} pieces={sum(map(len, self._pending.values()))}+{sum(map(len, self._flying.values()))}>"
