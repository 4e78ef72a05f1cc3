"""What its sender is told about as one: messages with a receipt, a transaction. Stored with one commit, or taken back.

When the disk refuses a commit, its units get an ERROR and are undone, as far as that can be:

| of a unit                                  | becomes                                                                 |
|--------------------------------------------|-------------------------------------------------------------------------|
| messages that wait in queues               | are gone, from every queue and subscription of the address              |
| messages that a consumer has               | stay with it; when they come back they are dropped, not delivered again |
| acknowledgements in a transaction          | as after ABORT                                                          |
| what finds duplicates, retained messages … | as before                                                               |

What nobody waits for an answer to (SEND and ACK without receipt, dead letters, the catalogue) goes in again with the next
commit, and so do units of addresses whose `disk-full-policy` is BLOCK: their senders just wait longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from stompbox.config.settings import DiskFullPolicy

if TYPE_CHECKING:
    from stompbox.broker.address import Address
    from stompbox.broker.consumer import Consumer, Sent
    from stompbox.broker.engine import Engine
    from stompbox.message import Run


class Trouble(NamedTuple):
    """Why nothing can be stored now: the code and text of the ERROR."""

    code: str
    text: str


@dataclass(slots=True)
class Unit:
    sends: list[tuple[Address, Run]] = field(default_factory=list)
    acked: list[tuple[Consumer, list[Sent]]] = field(default_factory=list)  # in a transaction
    undo: list[Callable[[], object]] = field(default_factory=list)

    @property
    def is_refusable(self) -> bool:
        """Whether its sender gets an ERROR when it cannot be stored; else it waits until it can."""
        return is_refusable(self.sends)


def is_refusable(sends: Iterable[tuple[Address, Run]]) -> bool:
    """Whether a sender who waits until these are stored gets an ERROR when they cannot be."""
    return any(may_fail(address, run) for address, run in sends)


def may_fail(address: Address, run: Run) -> bool:
    """The same of one."""
    return is_failing(address) and not address.is_volatile(run)


def is_failing(address: Address) -> bool:
    """disk-full-policy FAIL."""
    return address.settings.disk_full_policy is DiskFullPolicy.FAIL


def withdraw(engine: Engine, units: list[Unit]) -> None:
    """Undoes all of these, the latest first."""
    addresses: dict[Address, None] = {}
    for unit in reversed(units):
        for address, run in unit.sends:
            run.is_withdrawn = True
            engine.counters["not-stored"] += len(run)
            addresses[address] = None
        for undo in reversed(unit.undo):
            undo()
    for address in addresses:
        address.log.forget_withdrawn()
        for queue in list(address.queues()):
            queue.drop_withdrawn()
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
