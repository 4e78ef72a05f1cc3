"""The log of an address: offsets given out, runs on their way to the store, what is kept and what may go."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Final

from stompbox.broker.logs.cursor import FAR, Cursor
from stompbox.broker.logs.retention import Retention
from stompbox.broker.sparse import NONE, NOTHING, put, without
from stompbox.incarnations import INCARNATIONS, Incarnations
from stompbox.message import Run
from stompbox.ranges import Ranges
from stompbox.store.base import Commit

_FIRST = attrgetter("first")

# entries of the catalogue: of a log, offsets that no message will have (recovery.py)
UNUSED: Final = "unused"

# Offsets that were given to messages which never reach the store must not come back after a crash: a message-id would then
# name two messages. So their log's next offset is stored ahead of use, in steps.
RESERVE = 1 << 20


class Log:
    """Offsets are dense in memory; in the store there are gaps where nobody needed the messages."""

    __slots__ = (
        "_low", "_passed", "_reserved_before", "_stored_before", "_trimmed_before", "ahead", "committed", "cursors", "firm", "first",
        "flying", "has_readers", "id", "incarnations", "is_known", "is_retained", "keeps", "name", "next", "offered", "pending",
        "reserved", "retention", "shown", "stored", "trimmed", "unshown", "unused",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        name: str,
        incarnations: Incarnations,
        *,
        first: int = 0,
        next: int = 0,
        is_known: bool = False,
    ) -> None:
        next = max(first, next)
        self.id = id
        self.name = name
        self.incarnations = incarnations  # which messages its offsets mean
        self.first = first  # lowest offset that may be stored
        self.next = next  # the next message's offset
        # all below is on disk, or needs to be nowhere; no restart gives its offsets to other messages
        self.committed = next
        self.shown = next  # readers by offset were shown all below (fanout.py)
        # those of them that were shown all below another offset already, and that offset
        self.ahead: tuple[set[int], int] | None = None
        self.unshown: deque[Run] | None = None  # what is on disk from there on
        self.has_readers = False  # somebody is there who reads by offset
        self.stored = next  # after the last message that the store has, or is about to have
        self.reserved = next if is_known else 0  # the store knows: never again below this
        self.trimmed = first
        self.firm = next  # after the last message that must outlive a loss of power
        # nothing below is anywhere: it went from the store, or was done with before that had it; and what this will be when the commit that
        # is under way has landed
        self._passed = self._low = first
        self.pending: list[Run] = NOTHING  # for the next commit
        self.flying: list[Run] = NOTHING  # what was pending for the commit that the disk works on
        # what these were before that commit. No tuple: a new one of each log that a commit takes would lie between what is young
        self._stored_before, self._reserved_before, self._trimmed_before = next, self.reserved, first
        self.unused = Ranges()  # offsets that no message will have: reserved before a restart (recovery.py)
        self.cursors: dict[int, Cursor] = NONE  # those that hold messages back
        self.is_known = is_known  # the store has heard of it
        self.is_retained = False  # an address setting keeps what was consumed
        self.retention: Retention | None = None  # and says how long; None: for ever
        self.offered = FAR  # below it all have been offered what is for them (fanout.py)
        self.keeps = 0  # so many of the latest messages stay, too, for subscriptions that come later

    @property
    def is_kept(self) -> bool:
        """Messages are stored although nobody waits for them."""
        return self.is_retained or self.keeps > 0

    @property
    def entry(self) -> tuple[str, str]:
        """The key of its incarnations in the catalogue."""
        return INCARNATIONS, str(self.id)

    @property
    def oldest(self) -> int:
        """The lowest offset that may still be read."""
        return max(self._passed, min(self.trimmed, self.committed))

    def low_water(self) -> int:
        """The offset below which no cursor needs anything."""
        low = self.shown if self.has_readers else self.next
        end = min(self.next, self.offered)
        for cursor in self.cursors.values():
            low = min(low, cursor.settle(end))
        return low

    def hold(self, id: int, cursor: Cursor) -> None:
        """The cursor holds messages back from now on."""
        self.cursors = put(self.cursors, id, cursor)

    def let_go(self, id: int) -> None:
        """The cursor of this id, if there is one, holds nothing back any more."""
        self.cursors = without(self.cursors, id)

    def count(self, ranges: Iterable[tuple[int, int]]) -> int:
        """How many messages these offsets may have."""
        return sum([stop - first for low, high in ranges for first, stop in self.unused.gaps(low, high)])

    def add(self, run: Run) -> bool:
        """A run for the next commit, in its place: what was published because of it may have come before it. False: the log has it, or
        will: nothing stands there twice, whoever asks for it."""
        if run.is_logged:
            return False
        pending = self.pending
        at = len(pending)
        if not at:
            pending = self.pending = []
        while at and pending[at - 1].first > run.first:
            at -= 1
        if self.flying and run.first <= self.flying[-1].first:
            self._recall(run)
        pending.insert(at, run)
        run.is_logged = True
        return True

    def _recall(self, run: Run) -> None:
        """A run that nobody needed any more when a commit was taken is needed again while that is under way, which has it not."""
        at = bisect_left(self.flying, run.first, key=_FIRST)
        if self.flying[at] is run:
            del self.flying[at]

    def kept_from(self, now: int) -> int:
        """Below it nobody needs anything, and no rule keeps it."""
        if self.is_retained and self.retention is None:
            return 0
        low = self.low_water()
        if self.keeps:
            low = min(low, max(0, self.next - self.keeps))
        return low if self.retention is None else self.retention.look(low, now)

    def give(self, commit: Commit, now: int = 0, *, is_again: bool = False) -> None:
        """Puts what is new into a commit: runs that somebody still needs, the next offset, what may be deleted. `now`: for retention.
        `is_again`: this commit was given something before."""
        low = self.kept_from(now)
        self._low = low
        runs = self.pending
        if low and runs and runs[0].first < low:
            runs = [run for run in self.pending if run.stop > low]
            for run in self.pending:
                run.is_logged = run.stop > low
        if is_again:
            self.flying = sorted(self.flying + self.pending, key=_FIRST)
        else:
            self.flying = self.pending
            self._stored_before = self.stored
            self._reserved_before = self.reserved
            self._trimmed_before = self.trimmed
        self.pending = NOTHING
        if runs:
            self._tell(commit)
            given = commit.runs.get(self.id) if is_again else None
            commit.runs[self.id] = runs if given is None else sorted(given + runs, key=_FIRST)
            self.stored = max(self.stored, runs[-1].stop)
            for run in reversed(runs):
                if not run.is_loose:
                    self.firm = max(self.firm, run.stop)
                    break
            self.reserved = max(self.reserved, self.firm)
        if self.next > self.reserved:
            self._tell(commit)
            self.reserved = _reserved_from(self.next)
            commit.next_offsets[self.id] = self.reserved
        if low > self.trimmed and self.trimmed < self.stored:
            self.trimmed = min(low, self.stored)
            commit.trims[self.id] = self.trimmed

    def _tell(self, commit: Commit) -> None:
        if not self.is_known:
            commit.logs[self.id] = self.name
            commit.entries[self.entry] = json.dumps(self.incarnations.wire(), separators=(",", ":")).encode()
            if self.first:  # it was there before (lifetimes.py)
                commit.entries["ended", self.name] = None
            self.is_known = True

    def landed(self, next: int) -> None:
        """The commit that was given when the next offset was `next` is on disk."""
        if self.retention is not None:
            for run in self.flying:
                self.retention.note(run)
        if self.has_readers:
            self.unshown = self.unshown or deque()
            self.unshown += [run for run in self.flying if run.is_logged and run.first >= self.committed]
        else:
            self.shown = next
        self.flying = NOTHING
        self.committed = next
        if self.trimmed >= self.stored and (not self.pending or self.pending[0].first >= next):
            self._passed = max(self._passed, self._low)

    def begin_showing(self) -> None:
        """A consumer reads the log by offset from now on."""
        self.has_readers = True

    def show(self, stop: int) -> int:
        """Readers by offset were shown all below; where that ended before."""
        before, self.shown, self.ahead = self.shown, stop, None
        return before

    def show_ahead(self, stop: int) -> set[int]:
        """Some readers are shown all below before the others: those whose queues' ids will stand in this set."""
        ahead: set[int] = set()
        self.ahead = ahead, stop
        return ahead

    def is_showing(self, ahead: set[int]) -> bool:
        """Whether it is still these that are ahead of the others."""
        return self.ahead is not None and self.ahead[0] is ahead

    def shown_to(self, id: int) -> int:
        """The reader with this queue was shown all below."""
        return self.shown if self.ahead is None or id not in self.ahead[0] else self.ahead[1]

    def offer_below(self, offset: int) -> None:
        """Below this offset all have been offered what is for them."""
        self.offered = offset

    def keep(self, count: int, retention: Retention | None) -> None:
        """So many of the latest messages stay for subscriptions that come later, and what was consumed as long as `retention` says."""
        self.keeps = count
        self.retention, self.is_retained = retention, retention is not None

    def enter(self) -> None:
        """The store hears of it with the next commit."""
        self.is_known = True

    def leave(self) -> None:
        """The log is gone: nothing of it goes into a commit."""
        self.pending = NOTHING

    def recall_unused(self, known: list[tuple[int, int]], reserved: tuple[int, int], first: int) -> Ranges:
        """Offsets that no message will have: those that were `reserved` before this restart, those of earlier ones, and all below
        `first`, which is gone. All of them but the last."""
        self.unused = Ranges(known)
        self.unused.add(*reserved)
        told = Ranges(list(self.unused))
        self.unused.add(0, first)
        return told

    def end_showing(self) -> None:
        """Nobody reads the log by offset any more."""
        self.has_readers, self.shown = False, self.committed
        self.unshown = self.ahead = None

    def skip_unshown(self) -> None:
        """Readers by offset find it in the log."""
        self.unshown = self.ahead = None

    def failed(self) -> None:
        """The commit that was given is not in the store: all of it waits for the next one."""
        self.stored, self.reserved = self._stored_before, self._reserved_before
        self.trimmed = self._trimmed_before
        for run in self.flying:
            run.is_logged = True
        self.flying, self.pending = NOTHING, sorted(self.flying + self.pending, key=_FIRST)

    def forget_withdrawn(self) -> None:
        self.pending = [run for run in self.pending if not run.is_withdrawn]

    def unstored(self, start: int) -> Iterator[Run]:
        """Runs from `start` on that are not on disk yet."""
        yield from _from(self.flying, start)
        yield from _from(self.pending, start)

    def on_disk(self, start: int) -> int:
        """Up to where the store has what there is from `start` on; `start` or less where memory has what is next.

        Below `committed` memory has what came into the log late: it was needed nowhere, until its queue had no room for it any more.
        """
        firsts = [run.first for runs in (self.flying, self.pending) for run in islice(_from(runs, start), 1)]
        return min([self.committed, *firsts])

    def in_memory(self, start: int) -> tuple[list[Run], int]:
        """Runs from `start` on that are not on disk yet, up to the next that is, and the offset up to which they are complete."""
        found: list[Run] = []
        at = start
        for run in sorted(self.unstored(start), key=_FIRST):
            if at < self.committed and run.first > at:
                return found, at
            found.append(run)
            at = run.stop
        return found, self.next if at >= self.committed else at

    def __repr__(self) -> str:
        return f"<Log {self.id} {self.name} {self.trimmed}..{self.next} committed={self.committed} pending={len(self.pending)}>"


@lru_cache(256)
def _reserved_from(next: int) -> int:
    """Gives the offset up to which a log reserves them: of very many logs, which have few messages each, it is one number, and no object
    for each that is made late and stays (server/trimming.py)."""
    return next + RESERVE


def _from(runs: list[Run], start: int) -> Iterator[Run]:
    """The runs, in offset order, that have something from `start` on."""
    at = max(0, bisect_right(runs, start, key=_FIRST) - 1)
    for run in islice(runs, at, None):
        if run.stop > start:
            yield run
