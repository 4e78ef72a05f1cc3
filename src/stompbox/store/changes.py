"""What a commit does to logs and cursors: next offsets, floors, acknowledgements. The same for every store.

Nothing below its log's floor is read again, whether its chunk is still on the disk or not. A commit is applied in this order:
new logs and cursors, runs, next offsets, acknowledgements, entries, trims, dropped cursors, dropped logs. What it says
about a cursor or log that is not there (any more) has no effect, but runs and cursors need their log: they would be lost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Final

from msgspec import Struct, field

from stompbox.errors import StoreError
from stompbox.handles import Staged
from stompbox.message import Run
from stompbox.ranges import Ranges
from stompbox.store.base import Commit, Delivered, StoredChunk
from stompbox.store.chunks import ChunkHead, decode, encode, head
from stompbox.store.cutting import pieces
from stompbox.store.staged import encode_staged
from stompbox.store.statements import ROWS

TOGETHER: Final = 1 << 18  # bytes of chunks beyond which no more of them are in memory at the same time


@dataclass(frozen=True, slots=True)
class LogState:
    """`floor` is at most `next`: a trim beyond what is there does not reach what comes later."""

    name: str
    next: int = 0
    floor: int = 0
    stored: int = 0  # no chunk reaches beyond


class LogStates(Mapping[int, LogState]):
    """The states of all logs, by id, in columns: names, and of the numbers those that are not 0.

    An object for each would be made when the store hears of a log first, between what is young, and live on as long as the log: of very
    many addresses these would be what keeps whole arenas of Python's memory (server/trimming.py). Names and numbers are those that the
    log itself has."""

    __slots__ = ("_floors", "_names", "_next", "_stored")

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._next: dict[int, int] = {}
        self._floors: dict[int, int] = {}
        self._stored: dict[int, int] = {}

    def __getitem__(self, log: int) -> LogState:
        next, floor, stored = self._next.get(log, 0), self._floors.get(log, 0), self._stored.get(log, 0)
        return LogState(self._names[log], next, floor, stored)

    def __contains__(self, log: object) -> bool:
        return log in self._names

    def __iter__(self) -> Iterator[int]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def update(self, after: Mapping[int, LogState]) -> None:
        """Takes the states that logs have from now on. Numbers only grow; who reads beside it finds those before, or these."""
        for log, state in after.items():
            for column, number in (
                (self._next, state.next),
                (self._floors, state.floor),
                (self._stored, state.stored),
            ):
                if number:
                    column[log] = number
            self._names.setdefault(log, state.name)

    def drop(self, logs: Iterable[int]) -> None:
        """Forgets logs that are gone, if they were there."""
        for log in logs:
            for column in (self._names, self._next, self._floors, self._stored):
                column.pop(log, None)


@dataclass(slots=True)
class CursorState:
    log: int
    position: int
    ahead: Ranges

    def acknowledge(self, ranges: Iterable[tuple[int, int]]) -> None:
        for start, stop in ranges:
            self.ahead.add(start, stop)
        self.position = self.ahead.take_prefix(self.position)


def still_counted(told: Sequence[Delivered], position: int, ahead: Ranges) -> list[Delivered]:
    """What still counts of all that was told about deliveries: the later ones, of messages that are not acknowledged."""
    if not told:
        return []
    known = Ranges([(0, position), *ahead] if position else ahead)
    found: list[Delivered] = []
    for start, stop, deliveries, failures in reversed(told):
        found += [(low, high, deliveries, failures) for low, high in known.gaps(start, stop)]
        known.add(start, stop)
    return sorted(found)


class Changes(Struct, array_like=True, omit_defaults=True):
    """What one commit, or several, changed beside the chunks."""

    next: dict[int, int] = field(default_factory=dict)  # per log
    floors: dict[int, int] = field(default_factory=dict)  # per log
    acknowledged: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # per cursor

    def __bool__(self) -> bool:
        return bool(self.next or self.floors or self.acknowledged)

    def add(self, later: Changes) -> None:
        for mine, more in ((self.next, later.next), (self.floors, later.floors)):
            for log, offset in more.items():
                mine[log] = max(offset, mine.get(log, 0))
        for cursor, ranges in later.acknowledged.items():
            self.acknowledged.setdefault(cursor, []).extend(ranges)


def moved(logs: Mapping[int, LogState], commit: Commit) -> dict[int, LogState]:
    """The logs that a commit touches, as they are after it. Raises StoreError `no-such-log`, `log-exists`."""
    for log in commit.logs:
        if log in logs:
            raise StoreError(
                "log-exists",
                f"the commit makes log {log} {commit.logs[log]!r}, which is there already as {logs[log].name!r}",
            )
    for log in (*commit.runs, *(log for log, _ in commit.cursors.values())):
        if log not in logs and log not in commit.logs:
            raise StoreError(
                "no-such-log", f"the commit has runs or a cursor for log {log}, which does not exist"
            )
    after: dict[int, LogState] = {}
    for log in {*commit.logs, *commit.runs, *commit.next_offsets, *commit.trims}:
        old = LogState(commit.logs[log]) if log in commit.logs else logs.get(log)
        if old is None:
            continue
        runs = commit.runs.get(log)
        following = max(old.next, commit.next_offsets.get(log, 0), runs[-1].stop if runs else 0)
        floor = max(old.floor, min(commit.trims.get(log, 0), following))
        after[log] = LogState(old.name, following, floor, max(old.stored, runs[-1].stop if runs else 0))
    return after


@dataclass(frozen=True, slots=True)
class Named:
    """A chunk of a log, `first` .. `stop`-1, names a large body of `size` octets; 0: it lies in that body, and its own size says so."""

    log: int
    first: int
    stop: int
    body: int
    size: int


@dataclass(frozen=True, slots=True)
class Written:
    """The chunks of a commit, and those that they replace."""

    pieces: list[tuple[int, Sequence[Run]]]  # log, what becomes a chunk
    replaced: list[tuple[int, int]]  # log, first
    named: list[Named]  # large bodies, by the chunks

    def chunks(self) -> Iterator[tuple[int, ChunkHead, bytes]]:
        """Log, head and blob of each, made when it is asked for: all of them would be a commit's messages once more in memory. Raises
        StoreError for one that is too large."""
        for log, piece in self.pieces:
            blob = encode_staged(piece[0]) if piece[0].is_staged else encode(piece, piece[0].first)
            yield log, head(blob), blob


def together(chunks: Iterable[tuple[int, ChunkHead, bytes]]) -> Iterator[list[tuple[int, ChunkHead, bytes]]]:
    """Chunks that go into the database with one statement: a few large ones, or many small ones."""
    some: list[tuple[int, ChunkHead, bytes]] = []
    room = TOGETHER
    for chunk in chunks:
        some.append(chunk)
        room -= len(chunk[2])
        if room <= 0 or len(some) == ROWS:
            yield some
            some, room = [], TOGETHER
    if some:
        yield some


Find = Callable[[int, int, int], list[StoredChunk]]
"""Log, start, stop: the chunks that overlap."""


def encoded(
    logs: Mapping[int, LogState], commit: Commit, after: Mapping[int, LogState], limit: int, find: Find
) -> Written:
    """What a commit writes; what its own trims make needless is left out. Chunks of a log never overlap."""
    written = Written([], [], [])
    for log, runs in commit.runs.items():
        stored = logs[log].stored if log in logs else 0
        groups: list[Sequence[Run]] = [runs]
        if runs and runs[0].first < stored:
            groups, old = _woven(runs, stored, partial(find, log))
            written.replaced.extend((log, chunk.first) for chunk in old)
        for piece in chain.from_iterable(_pieces(group, limit) for group in groups):
            if piece[-1].stop > after[log].floor:
                written.pieces.append((log, piece))
                if piece[0].is_staged:
                    written.named.append(_named_whole(log, piece[0]))
                else:
                    written.named.extend(_named(log, piece))
    return written


def _pieces(runs: Sequence[Run], limit: int) -> Iterator[Sequence[Run]]:
    """The runs in portions for chunks; what is staged is a chunk already."""
    begin = 0
    for at, run in enumerate(runs):
        if run.is_staged:
            yield from pieces(runs[begin:at], limit)
            yield [run]
            begin = at + 1
    yield from pieces(runs[begin:] if begin else runs, limit)


def _named_whole(log: int, run: Run) -> Named:
    bodies = run.bodies
    assert isinstance(bodies, Staged)
    return Named(log, run.first, run.stop, bodies.body.id, 0)


def _named(log: int, runs: Sequence[Run]) -> Iterator[Named]:
    for run in runs:
        for index in range(len(run) if run.is_large else 0):
            large = run.large(index)
            yield Named(log, runs[0].first, runs[-1].stop, large.id, large.size)


def _woven(
    runs: Sequence[Run], stored: int, find: Callable[[int, int], list[StoredChunk]]
) -> tuple[list[Sequence[Run]], list[StoredChunk]]:
    """Runs that are stored later than those behind them: into the chunk whose gap they fill, else each a chunk of its own."""
    groups: list[Sequence[Run]] = []
    into: dict[int, list[Run]] = {}
    old: dict[int, StoredChunk] = {}
    late = bisect_left(runs, stored, key=attrgetter("first"))
    for run in runs[:late]:
        for chunk in find(run.first, run.stop)[:1]:
            old[chunk.first] = chunk
            into.setdefault(chunk.first, []).append(run)
            break
        else:
            groups.append([run])
    for first, chunk in old.items():
        groups.append(sorted([*decode(chunk.blob, first), *into[first]], key=attrgetter("first")))
    return [*groups, runs[late:]], list(old.values())
