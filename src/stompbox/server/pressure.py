"""Senders that are not read any further until what they wait for is there: back-pressure on their sockets.

| a connection that sent …                               | waits until                                   |
|--------------------------------------------------------|-----------------------------------------------|
| while more than UNSAVED bytes are on their way to disk | half of that is                               |
| to an address that blocks when the disk is in trouble  | the disk is good again                        |
| more requests than are answered (requests.py)          | fewer wait                                    |

Who only consumes never waits. What was read already is taken; so a sender goes beyond by one read at the most.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from stompbox.broker.address import Address
from stompbox.broker.units import is_failing
from stompbox.message import Run

if TYPE_CHECKING:
    from stompbox.server.broker import Broker
    from stompbox.server.connection import Connection

UNSAVED: Final = 64 << 20  # bytes


class Reason(Enum):
    BEHIND = "behind"  # the disk is slower than the senders
    DISK = "disk"
    REQUESTS = "requests"  # it asks more than it is answered


class Pressure:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.waiting: dict[Connection, set[Reason]] = {}

    def sent(self, connection: Connection, address: Address, run: Run) -> None:
        """A message was taken while something is in trouble."""
        engine = self.broker.engine
        if engine.trouble is not None and engine.is_durable and not is_failing(address) and not address.is_volatile(run):
            self.hold(connection, Reason.DISK)

    def has_read(self, connection: Connection) -> None:
        """All of one read was obeyed, and there were messages in it."""
        if self.broker.engine.unsaved > UNSAVED:
            self.hold(connection, Reason.BEHIND)

    def hold(self, connection: Connection, reason: Reason) -> None:
        """It is not read until `let_go` or `relieve` takes this reason, and all others, from it."""
        if connection.is_ended:
            return
        reasons = self.waiting.setdefault(connection, set())
        if not reasons:
            connection.pause()
        reasons.add(reason)

    def relieve(self) -> None:
        """Lets those go on who need not wait any more."""
        if not self.waiting:
            return
        engine = self.broker.engine
        over = set()
        if engine.unsaved < UNSAVED // 2:
            over.add(Reason.BEHIND)
        if engine.trouble is None:
            over.add(Reason.DISK)
        for connection in list(self.waiting):
            self.let_go(connection, *over)

    def let_go(self, connection: Connection, *over: Reason) -> None:
        reasons = self.waiting.get(connection)
        if reasons is None:
            return
        reasons.difference_update(over)
        if not reasons:
            del self.waiting[connection]
            connection.resume()

    def leave(self, connection: Connection) -> None:
        self.waiting.pop(connection, None)

    def __repr__(self) -> str:
        return f"<Pressure {len(self.waiting)} connections wait>"
