"""What its sender is told about as one: messages with a receipt, a transaction. Stored with one commit, or taken back.

When the disk refuses a commit, its units get an ERROR and are undone, as far as that can be:

| of a unit                                  | becomes                                                                 |
|--------------------------------------------|-------------------------------------------------------------------------|
| messages that wait in queues               | are gone, from every queue and subscription of the address              |
| messages that a consumer has               | stay with it; when they come back they are dropped, not delivered again |
| acknowledgements in a transaction          | as after ABORT                                                          |
| NACKs in a transaction                     | stand: the delivery has failed, whatever became of the rest             |
| what a ring or a last value has dropped    | waits again, unless something newer has its place                       |
| what finds duplicates, retained messages … | as before                                                               |

What nobody waits for an answer to (SEND and ACK without receipt, dead letters, the catalogue) goes in again with the next
commit, and so do units of addresses whose `disk-full-policy` is BLOCK: their senders just wait longer. So does a unit of which
somebody else has sent a duplicate meanwhile: that one's RECEIPT will say that it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from stompbox.broker.queues import paging
from stompbox.config.settings import DiskFullPolicy
from stompbox.ranges import Ranges

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.duplicates import Duplicates
    from stompbox.broker.engine import Engine
    from stompbox.broker.queues.consumer import Consumer, Sent
    from stompbox.message import Run


class Trouble(NamedTuple):
    """Why nothing can be stored now: the code and text of the ERROR."""

    code: str
    text: str


@dataclass(slots=True, eq=False)
class Consequences:
    """What a unit has brought about beside its messages, where it has: most do not."""

    undo: list[Callable[[], object]] = field(default_factory=list)
    copies: list[tuple[Address, Run, Run]] = field(default_factory=list)  # of what died or expired meanwhile, with the original
    restore: list[Callable[[Mapping[Address, Ranges]], object]] = field(default_factory=list)  # what made room, given all that is withdrawn
    numbered: list[tuple[Duplicates, list[bytes]]] = field(default_factory=list)  # values that find duplicates of it


@dataclass(slots=True, eq=False)
class Unit:
    """What is decided of it here is what its sender is told (`Pending`): nobody else judges by the address that was sent to, since diverts
    send on to others, and settings change."""

    sends: list[tuple[Address, Run]] = field(default_factory=list)
    acked: list[tuple[Consumer, list[Sent]]] = field(default_factory=list)  # in a transaction
    also: Consequences | None = None
    is_refusable: bool = False  # since its end: its sender gets an ERROR when it cannot be stored; else it waits until it can
    is_shared: bool = False  # somebody has sent a duplicate of what is in it, and waits for it to be stored
    is_refused: bool = False  # it is undone

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
        self.consequences.copies += [(address, copy, original) for address, copy in copies]

    def settle(self) -> None:
        """It is not taken back any more."""
        for known, values in self.also.numbered if self.also is not None else ():
            known.brought(self, values)

    @property
    def may_be_shared(self) -> bool:
        return self.also is not None and bool(self.also.numbered)


def is_refusable(sends: Iterable[tuple[Address, Run]]) -> bool:
    """Whether a sender who waits until these are stored gets an ERROR when they cannot be."""
    return any(is_failing(address) and not address.is_volatile(run) for address, run in sends)


def is_failing(address: Address) -> bool:
    """disk-full-policy FAIL."""
    return address.settings.disk_full_policy is DiskFullPolicy.FAIL


def withdraw(engine: Engine, units: list[Unit]) -> None:
    """Undoes all of these, the latest first."""
    addresses: dict[Address, list[Run]] = {}
    for unit in reversed(units):
        unit.is_refused = True
        for address, run in unit.sends:
            run.is_withdrawn = True
            engine.counters["not-stored"] += len(run)
            addresses.setdefault(address, []).append(run)
        for undo in reversed(unit.also.undo if unit.also is not None else ()):
            undo()
    also = [unit.also for unit in reversed(units) if unit.also is not None]
    for address, copy, original in [copied for one in also for copied in one.copies]:
        if original.is_withdrawn:
            copy.is_withdrawn = True
            addresses.setdefault(address, []).append(copy)
    for address, runs in addresses.items():
        address.log.forget_withdrawn()
        for queue in list(address.queues()):
            paging.drop_withdrawn(queue, runs)
    withdrawn = {address: Ranges(sorted([(run.first, run.stop) for run in runs])) for address, runs in addresses.items()}
    for restore in [restore for one in also for restore in reversed(one.restore)]:
        restore(withdrawn)
    for unit in units:
        _unacknowledge(engine, unit)


def _unacknowledge(engine: Engine, unit: Unit) -> None:
    held: dict[Consumer, list[Sent]] = {}
    for consumer, sent in unit.acked:
        there = [(binding, segment) for binding, segment in sent if binding.queue.id in engine.queues]
        for binding, segment in there:
            binding.queue.unacknowledge(segment)
        held.setdefault(consumer, []).extend(there)
    for consumer, sent in held.items():
        engine.unhold(consumer, sent)
