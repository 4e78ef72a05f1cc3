"""The seam between the nodes of a cluster: one log of records, which all of them read and only the leader appends to.

A store is a function of the commits applied to it (store/base.py), so whoever has read the log up to a position has the state of that
position. Who may append is decided by fencing and by no clock: an append names the position that it expects to be the last, and is
refused when somebody else has appended since. Clocks only decide when a follower tries to lead.

| verb     | meaning                                                                                                       |
|----------|---------------------------------------------------------------------------------------------------------------|
| `append` | durable on a quorum, with fsync, when it returns; refused (`fenced`) when the last position is another one     |
| `read`   | records in order, then as they come                                                                            |
| `lead`   | a record like any other: whoever appended the last one of this kind leads, and its epoch is in each later one  |
| `beat`   | says that the leader of this epoch is alive, past all appends that wait, and is kept nowhere                   |
| `trim`   | what stands before a position is needed no more                                                                |
| `close`  | ends it, also under an append or read that waits in another thread                                            |

This file decides what a log is, not what a record holds (records.py) and not where it is kept (jetstream.py, postgres.py, memory.py).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from stompbox.errors import StoreError


class Kind(Enum):
    """What a record is for."""

    COMMIT = "commit"  # the last or only piece of a commit
    PIECE = "piece"  # an earlier one
    LEAD = "lead"  # from here on another node leads; pieces before it that lack their last one are void


class Record(NamedTuple):
    """One entry of the log. Positions grow by at least one; `epoch` is that of the leader who appended it, from 1 on."""

    position: int
    epoch: int
    kind: Kind
    payload: bytes


class Fenced(StoreError):
    """Somebody else has appended to the log: this node does not lead (any more), and nothing of its append is in the log."""


class LogError(StoreError):
    """The log cannot be used: `log-unavailable`, `log-full`, `log-closed`, `log-trimmed`, `log-not-safe`, `log-of-another`,
    `log-not-allowed`, `log-too-new`, `log-corrupt`, `log-went-back`."""


class CommitLog(Protocol):
    """Calls block; `append`, `lead` and `trim` come from one thread, `read`, `beat` and `heard` from others at the same time."""

    @property
    def name(self) -> str:
        """What errors call it: the engine, where it is, the cluster's name; never a password."""

    @property
    def largest(self) -> int:
        """The payload, in bytes, that a record may have."""

    @property
    def identity(self) -> str:
        """Which log it is: made with the log, so that one which was dropped and made anew under the same name has another."""

    def last(self) -> int:
        """The position of the last record; 0 of a log without any. Raises LogError `log-unavailable` when the engine does not answer."""

    def first(self) -> int:
        """The position of the oldest record that is still there; `last() + 1` when none is."""

    def append(self, expected: int, epoch: int, kind: Kind, payload: bytes) -> int:
        """The position of the record, which is durable. `expected` is the position of the record before it.

        Raises Fenced when the last record is another one. When the connection is lost meanwhile, what became of the record is found
        out before this returns or raises, however long the engine is away: it blocks until then, or raises LogError `log-closed`.
        Raises LogError of another code (`log-full`, `log-not-allowed`, …) when it was refused: then nothing of it is in the log.
        """

    def lead(self, expected: int, node: bytes) -> Record:
        """Appends a record of the kind LEAD with the next epoch. Raises as `append` does."""

    def read(self, after: int, most: int, wait: float) -> list[Record]:
        """Records behind position `after`, in order, about `most` bytes of payload together but at least one; where there is none yet, it
        waits for so many seconds, and gives none. `after` is the position of a record, or 0.
        Raises LogError `log-trimmed` when some of them are gone, `log-unavailable`."""

    def beat(self, epoch: int) -> None:
        """Tells those who read that the leader of this epoch is alive, and returns when the engine has it. Raises LogError
        `log-unavailable` when it does not answer, Fenced where it is known already that a later epoch leads."""

    def heard(self) -> float:
        """The monotonic time at which the last record or beat of another node's appending came in here; 0.0: none since it was opened."""

    def trim(self, position: int) -> None:
        """Records before `position` may go; the last one always stays. Raises LogError `log-unavailable`; doing it late does no harm."""

    def close(self) -> None:
        """Ends what waits with LogError `log-closed`. What was being appended is in the log, or is not."""
