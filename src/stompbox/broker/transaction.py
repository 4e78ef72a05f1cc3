"""A transaction: sends, acknowledgements and refusals that happen together at COMMIT, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.makers import Maker
from stompbox.broker.queues.consumer import Consumer, Sent
from stompbox.message import Run

if TYPE_CHECKING:
    from stompbox.broker.units import Unit

EMPTY: Final = 512  # octets of memory that one takes which holds nothing


class Transaction:
    """Nothing of it is visible before COMMIT; what its ACKs and NACKs name stays held until then, or until ABORT."""

    __slots__ = ("acked", "maker", "nacked", "name", "rejected", "sends", "size", "unit", "written")

    def __init__(self, name: str, maker: Maker | None = None) -> None:
        self.name = name
        self.maker = maker  # for whom what it makes counts
        self.sends: list[tuple[Address, Run]] = []
        self.acked: list[tuple[Consumer, list[Sent]]] = []
        self.nacked: list[tuple[Consumer, list[Sent]]] = []
        self.rejected: list[tuple[Consumer, list[Sent]]] = []  # NACKs that want no redelivery
        self.unit: Unit | None = None  # after COMMIT, where a receipt waits for the disk
        self.written = 0  # octets of bodies that it holds in memory
        self.size = EMPTY + len(name)  # octets of memory, about

    @property
    def is_refusable(self) -> bool:
        """Whether its sender gets an ERROR when it cannot be stored."""
        return self.unit is not None and self.unit.is_refusable

    @property
    def answered(self) -> list[tuple[Consumer, list[Sent]]]:
        """All that it holds of subscriptions."""
        return [*self.acked, *self.nacked, *self.rejected]

    def __repr__(self) -> str:
        nacks = len(self.nacked) + len(self.rejected)
        return f"<Transaction {self.name} sends={len(self.sends)} acks={len(self.acked)} nacks={nacks} bytes={self.size}>"
