"""What a queue has in memory: the backlog, and what waits there for a time. Each is made when something comes into it.

A wildcard subscription has a queue per address that it covers, and most of them are empty: they cost the queue alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from stompbox.broker.kinds import Kind
from stompbox.broker.queues.delayed import Waits
from stompbox.broker.queues.expiry import Expiring
from stompbox.broker.queues.lanes import Lanes

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.engine import Engine
    from stompbox.broker.logs.cursor import Cursor
    from stompbox.config.settings import AddressSettings


class Waiting(ABC):
    """Of one queue. Who only looks asks for `count`, `size` and `has_waits`: asking for `backlog` and `waits` makes them."""

    __slots__ = ("_backlog", "_expiring", "_waits", "address", "cursor", "engine", "kind", "name")

    def __init__(self, engine: Engine, address: Address, name: str, kind: Kind, cursor: Cursor) -> None:
        self.engine = engine
        self.address = address
        self.name = name
        self.kind = kind
        self.cursor = cursor
        self._backlog: Lanes | None = None
        self._expiring: Expiring | None = None
        self._waits: Waits | None = None

    @abstractmethod
    def _expire(self) -> None:
        """Some of the backlog has expired."""

    @abstractmethod
    def _wake(self) -> None:
        """What has waited is due."""

    @property
    def is_durable(self) -> bool:
        return self.cursor.unsaved is not None

    @property
    def settings(self) -> AddressSettings:
        """By which it lives."""
        return self.address.settings_of(self.name) if self.kind is Kind.ANYCAST else self.address.settings

    @property
    def backlog(self) -> Lanes:
        found = self._backlog
        if found is None:
            is_ranked = self.kind not in (Kind.STREAM, Kind.READER)
            found = self._backlog = Lanes(self.address, self.expiring, queue=self.cursor.id, is_ranked=is_ranked)
        return found

    @property
    def expiring(self) -> Expiring:
        """What of the backlog will expire."""
        if self._expiring is None:
            self._expiring = Expiring(self.engine.timers, self._expire)
        return self._expiring

    @property
    def waits(self) -> Waits:
        """Messages for later."""
        if self._waits is None:
            self._waits = Waits(self.engine.timers, self._wake, self.address.memory)
        return self._waits

    @property
    def count(self) -> int:
        """Messages of the backlog."""
        return self._backlog.count if self._backlog is not None else 0

    @property
    def size(self) -> int:
        """Octets of memory that they take, about."""
        return self._backlog.size if self._backlog is not None else 0

    @property
    def has_waits(self) -> bool:
        return self._waits is not None and self._waits.count > 0

    def let_go(self) -> tuple[Lanes | None, Waits | None]:
        """All of it is nobody's from now on."""
        found = self._backlog, self._waits
        self._backlog = self._waits = None
        return found
