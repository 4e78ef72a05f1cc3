"""What a connection has to say and may not say yet: receipts that wait for the disk, and all that comes behind them, in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from stompbox.broker.logs.segments import VALUE

if TYPE_CHECKING:
    from stompbox.broker.addresses.unitofwork import UnitOfWork
    from stompbox.broker.queues.consumer import Consumer

ITEM: Final = 256  # octets of memory that something to say takes beside its own, at a guess
PORTION: Final = 256 << 10  # octets of memory of what is said in one step: half a millisecond


class Pending:
    """Something to say when a commit is durable: bytes, then subscriptions that may start.

    It becomes an ERROR when the disk refuses the commit and the broker takes back what the receipts are for; else it waits for a commit
    that works. `is_refusable` says which; `unit`, where that is not known before.
    """

    __slots__ = ("consumer", "data", "is_refusable", "receipts", "sequence", "size", "unit")

    def __init__(
        self,
        sequence: int,
        data: bytes = b"",
        receipts: list[bytes] | None = None,
        consumer: Consumer | None = None,
        unit: UnitOfWork | None = None,
        *,
        is_refusable: bool = False,
    ) -> None:
        self.sequence = sequence
        self.is_refusable = is_refusable
        self.unit = unit
        self.data = data
        self.receipts = receipts or []
        self.consumer = consumer
        self.size = ITEM + len(data) + _size(self.receipts)

    def beginning(self, octets: int) -> Pending | None:
        """As many of its receipts as count so much, which are no longer its own; None: there are no more."""
        at = size = 0
        for receipt in self.receipts:
            if size >= octets:
                break
            at += 1
            size += VALUE + len(receipt)
        if at == len(self.receipts):
            return None
        begun = Pending(
            self.sequence, receipts=self.receipts[:at], unit=self.unit, is_refusable=self.is_refusable
        )
        del self.receipts[:at]
        self.size -= size
        return begun

    @property
    def is_refused(self) -> bool:
        """Whether its receipts become ERRORs; asked when the disk has refused the commit."""
        return self.unit.is_refused if self.unit is not None else self.is_refusable


class Receipts:
    """What one connection is told when the disk has it. `size`: octets of memory, about; 0: it waits for nothing."""

    __slots__ = ("_items", "size", "started")

    def __init__(self) -> None:
        self._items: deque[Pending] | None = None  # most connections wait for nothing
        self.size = 0
        self.started: list[Consumer] | None = None  # they start when all that is due is said

    def append(self, item: Pending) -> None:
        if self._items is None:
            self._items = deque()
        self._items.append(item)
        self.size += item.size

    def confirm(
        self, receipts: list[bytes], sequence: int, consumer: Consumer | None, unit: UnitOfWork | None
    ) -> None:
        """Together with the last ones, where they wait for the same."""
        last = self._items[-1] if self._items else None
        is_refusable = unit is not None and unit.is_refusable
        if unit is not None and not unit.may_be_shared:
            unit = None
        told = sequence, is_refusable, unit
        if (
            consumer is None
            and last is not None
            and last.receipts
            and (last.sequence, last.is_refusable, last.unit) == told
        ):
            last.receipts += receipts
            size = _size(receipts)
            last.size += size
            self.size += size
        else:
            self.append(
                Pending(
                    sequence, receipts=list(receipts), consumer=consumer, unit=unit, is_refusable=is_refusable
                )
            )

    def take(self, sequence: int) -> list[Pending]:
        """What waited for commits up to this one, a PORTION of it at a time."""
        items, taken, left = self._items, [], PORTION
        while items and items[0].sequence <= sequence and left > 0:
            item = items[0].beginning(left) if items[0].size > left else None
            if item is None:
                item = items.popleft()
                self.size -= item.size
            else:
                self.size -= item.size - ITEM
            left -= item.size
            taken.append(item)
        if not items:
            self._items = None
        return taken

    def is_due(self, sequence: int) -> bool:
        """Whether something has waited for commits up to this one, and is not taken yet."""
        return self._items is not None and self._items[0].sequence <= sequence

    def take_refused(self, sequence: int) -> list[Pending]:
        """What the refused commit of this sequence would have confirmed, and may be refused; the rest stays."""
        items, self._items, self.size = self._items or (), None, 0
        refused = []
        for item in items:
            if item.sequence == sequence and item.is_refused:
                refused.append(item)
            else:
                self.append(item)
        return refused

    def wait_on(self, sequence: int, later: int) -> None:
        """What waited for one commit waits for a later one."""
        for item in self._items or ():
            if item.sequence == sequence:
                item.sequence = later

    def waits_for(self, sequence: int) -> bool:
        return any(item.sequence == sequence for item in self._items or ())

    def clear(self) -> None:
        self._items, self.size = None, 0

    def __repr__(self) -> str:
        return f"<Receipts {len(self._items or ())} of {self.size} octets>"


def _size(receipts: list[bytes]) -> int:
    return sum(map(len, receipts)) + VALUE * len(receipts)
