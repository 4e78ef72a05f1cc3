"""The seam to the disk: what one group commit is, and the eight things a store can do.

A commit is a value: all that one group commit changes. A store is a deterministic function of the commits applied to it;
recovery, backup and tests rely on that, and so would a replicated log of commits. Nothing in broker/ knows which store it has.

All state that outlives the process is named here, and nothing else is persisted:

| what        | as                                | meaning                                                                     |
|-------------|-----------------------------------|-----------------------------------------------------------------------------|
| log         | id -> name, next offset           | one per address; ids are never used again                                    |
| chunk       | (log, first) -> count, blob       | messages in the encoding of store/chunks.py; gaps are legal, overlaps are not |
| cursor      | id -> log, position, ranges ahead | everything below position, and the ranges, is acknowledged                   |
| delivery    | cursor, range -> deliveries, failures | how often messages that are not acknowledged were delivered     |
| entry       | (kind, key) -> JSON bytes         | the engine's catalogue: addresses, queues, durable subscriptions, groups …   |
| part        | (body, number) -> bytes           | a large body, in pieces; chunks name it by its handle (message.py, Large)   |

A body stays as long as a stored chunk names it or memory holds it (`holds`); after a restart memory holds those that are the key of
an entry of the kind `staged`, and no other. Nobody has to drop one: what nothing keeps any more goes by itself.

This file decides what is kept, not when (server/committer.py) and not where (store/sqlite.py, store/memory.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from stompbox.message import Run
from stompbox.ranges import Ranges

NOWHERE: Final[Mapping[int, int]] = MappingProxyType({})
# codes: what a disk refuses now it may take another time
REFUSALS: Final = frozenset(("disk-full", "io-error", "data-not-writable"))
# codes: the store of a node that leads its cluster no more; nothing of it was taken back, and nothing may follow
DEPOSED: Final = frozenset(("fenced", "log-closed", "store-behind"))
CLUSTER: Final = "cluster"  # the kind of entries that a node of a cluster has beside the broker's (commitlog/replicated.py)
STAGED: Final = "staged"  # the kind of entries whose keys are bodies that outlive a restart
PIECE: Final = 256 << 10  # bytes of each piece of a large body, but for the last


Delivered = tuple[int, int, int, int]
"""The messages start .. stop-1 were delivered so often; so often that failed."""


@dataclass(slots=True)
class Commit:
    """What one group commit changes. Applied whole or not at all, in the order of the fields, but trims after entries, and drops last.

    What it says of a cursor or log that is not there has no effect; runs and cursors need their log (`no-such-log`).
    """

    logs: dict[int, str] = field(default_factory=dict)  # new logs: id -> name
    # per log, in offset order: one chunk each (or a few, by size); one that is staged is a chunk already
    runs: dict[int, list[Run]] = field(default_factory=dict)
    # per log: never given out again, also when its messages need no storing
    next_offsets: dict[int, int] = field(default_factory=dict)
    # new cursors, or old ones put elsewhere: id -> (log, position)
    cursors: dict[int, tuple[int, int]] = field(default_factory=dict)
    # per cursor: half-open ranges, any order
    acknowledged: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    delivered: dict[int, list[Delivered]] = field(default_factory=dict)  # per cursor: the later ones count
    dropped_cursors: list[int] = field(default_factory=list)
    # (kind, key) -> value; None deletes
    entries: dict[tuple[str, str], bytes | None] = field(default_factory=dict)
    trims: dict[int, int] = field(default_factory=dict)  # per log: chunks wholly below this offset go
    dropped_logs: list[int] = field(default_factory=list)  # with their chunks
    # pieces of large bodies, which memory holds from then on
    parts: dict[tuple[int, int], bytes] = field(default_factory=dict)
    holds: dict[int, bool] = field(default_factory=dict)  # bodies: whether memory holds them from now on
    # a loss of power may undo it, as long as no later one that is not loose was applied: it costs no fsync
    is_loose: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.logs
            or self.runs
            or self.next_offsets
            or self.cursors
            or self.acknowledged
            or self.delivered
            or self.dropped_cursors
            or self.entries
            or self.trims
            or self.dropped_logs
            or self.parts
            or self.holds
        )


@dataclass(frozen=True, slots=True)
class StoredLog:
    id: int
    name: str
    first: int  # offset of the first message still stored; next when none is
    stop: int  # the offset after the last one; next when none is
    next: int  # the offset that the next message gets


@dataclass(frozen=True, slots=True)
class StoredCursor:
    id: int
    log: int
    position: int
    ahead: Ranges
    # of what is not acknowledged, in order, without overlaps
    delivered: list[Delivered] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """`count` offsets from `first` on; `blob` holds the messages among them (store/chunks.py)."""

    first: int
    count: int
    blob: bytes

    @property
    def stop(self) -> int:
        return self.first + self.count


class Part(NamedTuple):
    """A chunk, or several: offsets first .. stop-1, their bytes, the latest arrival (ms)."""

    first: int
    stop: int
    size: int
    newest: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a store holds when it is opened: indices only, never bodies."""

    logs: list[StoredLog]
    cursors: list[StoredCursor]
    entries: dict[tuple[str, str], bytes]


class Store(Protocol):
    """Raises StoreError for whatever the disk refuses; after that nothing of the commit counts as stored.

    `apply` is called by one thread at a time; `read`, `read_part` and `find_time` by another at the same time.
    """

    def recover(self) -> Recovered: ...

    def apply(self, commit: Commit) -> None:
        """Returns when the commit is durable (fsynced, where the store keeps that promise, and the commit is not loose)."""

    def read(self, log: int, start: int, stop: int, max_bytes: int) -> list[StoredChunk]:
        """Chunks that overlap start .. stop-1 in offset order, at least one if there is any, then no more than max_bytes of blobs."""

    def read_part(self, body: int, number: int) -> bytes:
        """One piece of a large body. Raises StoreError `no-such-body` when it is not there."""

    def find_time(self, log: int, timestamp: int) -> int:
        """The first offset of a chunk whose messages arrived at or after `timestamp` (ms); the log's next offset when there is none."""

    def sizes(self, logs: Iterable[int], since: Mapping[int, int] = NOWHERE) -> dict[int, tuple[int, int]]:
        """Per log: (messages, bytes of blobs and of the large bodies that they name) stored now, in chunks that reach beyond the
        offset in `since`."""

    def outline(self, log: int) -> Iterator[Part]:
        """The chunks that are stored of a log, in offset order, from the index alone."""

    @property
    def unverified(self) -> str:
        """What was not read through when the store was opened, and is being read now; empty: nothing. From any thread."""

    def maintain(self) -> bool:
        """One portion of housekeeping (about 10 ms): checkpoints, deletions, file space. Called by the committer's thread when
        it is idle, again while it says that there is more to do."""

    def close(self) -> None: ...
