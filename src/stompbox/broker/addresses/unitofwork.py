"""A unit of work: what its sender is told about as one, messages with a receipt or a transaction. Stored with one commit, or taken back.

What is decided of it is kept in it (commits.py), and what it has brought about is noted there by whoever does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stompbox.config.settings import DiskFullPolicy
from stompbox.ranges import Ranges

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Duplicates
    from stompbox.broker.queues.consumer import Consumer, Sent
    from stompbox.message import Run


LARGE: Final = 1000  # messages, beyond which what a unit held goes in parts

Restore = Callable[["Mapping[Address, Ranges]"], object]


@dataclass(slots=True, eq=False)
class Consequences:
    """What a unit has brought about beside its messages, where it has: most do not."""

    undo: list[Callable[[], object]] = field(default_factory=list)
    # of what died or expired meanwhile, with the original
    copies: list[tuple[Address, Run, Run]] = field(default_factory=list)
    restore: list[Restore] = field(default_factory=list)  # what made room, given all that is withdrawn
    # values that find duplicates of it
    numbered: list[tuple[Duplicates, list[bytes]]] = field(default_factory=list)


class UnitOfWork:
    """What is decided of it here is what its sender is told (`Pending`): nobody else judges by the address that was sent to, since diverts
    send on to others, and settings change."""

    __slots__ = ("acked", "also", "is_refusable", "is_refused", "is_shared", "looked", "sends")

    def __init__(self, acked: list[tuple[Consumer, list[Sent]]] | None = None) -> None:
        self.sends: list[tuple[Address, Run]] = []
        self.acked = [] if acked is None else acked  # in a transaction
        self.also: Consequences | None = None
        # since its end: its sender gets an ERROR when it cannot be stored; else it waits until it can
        self.is_refusable = False
        # somebody has sent a duplicate of what is in it, and waits for it to be stored
        self.is_shared = False
        self.is_refused = False  # it is undone
        self.looked = 0  # at so many of its sends, whether one makes it refusable

    @property
    def consequences(self) -> Consequences:
        if self.also is None:
            self.also = Consequences()
        return self.also

    def set_apart(self, first: int, original: Run) -> None:
        """Its messages from this one on are copies of what died as it was published. They are taken back with what they were made of alone,
        which may be another's."""
        copies = self.sends[first:]
        del self.sends[first:]
        self.consequences.copies.extend([(address, copy, original) for address, copy in copies])

    def finish(self) -> None:
        """The unit is there whole: what becomes of it when the disk refuses is decided now."""
        self.look()

    def look(self) -> None:
        """A part of it is there: does that make it one that may be refused?"""
        if not self.is_refusable:
            self.is_refusable = is_refusable(self.sends[self.looked :])
            self.looked = len(self.sends)

    def acknowledge(self, acked: list[tuple[Consumer, list[Sent]]]) -> None:
        """What a transaction acknowledges is part of it."""
        self.acked = acked

    def share(self) -> None:
        """Somebody has sent a duplicate of what is in it."""
        self.is_shared = True

    def refuse(self) -> None:
        """The disk has refused the unit, which is undone."""
        self.is_refused = True

    def settle(self) -> None:
        """The unit is stored, or nothing will refuse it: it is not taken back any more."""
        for known, values in self.also.numbered if self.also is not None else ():
            known.brought(self, values)

    @property
    def is_large(self) -> bool:
        """Whether what it held takes long to go."""
        if not self.acked:
            return len(self.sends) > LARGE
        return max(len(self.sends), len(self.acked)) > LARGE or any(
            len(sent) > LARGE for _, sent in self.acked
        )

    @property
    def may_be_shared(self) -> bool:
        return self.also is not None and bool(self.also.numbered)

    def __repr__(self) -> str:
        return f"<UnitOfWork sends={len(self.sends)} acked={len(self.acked)}>"


def is_refusable(sends: Iterable[tuple[Address, Run]]) -> bool:
    """Whether a sender who waits until these are stored gets an ERROR when they cannot be."""
    return any(is_failing(address) and not address.is_volatile(run) for address, run in sends)


def is_failing(address: Address) -> bool:
    """Whether disk-full-policy is FAIL: messages are refused while the disk is full."""
    return address.settings.disk_full_policy is DiskFullPolicy.FAIL
