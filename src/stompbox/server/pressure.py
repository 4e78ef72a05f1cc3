"""Senders that are not read any further until what they wait for is there: back-pressure on their sockets.

| a connection that sent …                               | waits until                                   |
|--------------------------------------------------------|-----------------------------------------------|
| what goes to the disk, while UNSAVED bytes are to      | half of that is                               |
| to an address that blocks when the disk is in trouble  | the disk is good again                        |
| more requests than are answered (requests/)           | fewer wait                                    |
| to an address that blocks when it is full              | there is room                                 |
| more than the disk has confirmed, by its receipts      | enough of them have gone out (ledger.py)      |
| or subscribed, and does not read UNREAD bytes it got   | it has read them                              |

Who only consumes never waits, nor does for the disk who sends it nothing; who sends it LITTLE goes on up to MOST, so that who sends much
holds up nobody else. What was read already is taken; so a sender goes beyond by one read at the most. Of those who wait for
room, as many go on at a time as it has reads; the others look again after TURN. A connection that consumes, too, is still read while
it waits for room (limiting.py). Of a socket that is neither read nor written to the loop does not hear that its peer has reset it: who
waits is looked at for that each LOOK.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.contracts import Limits
from stompbox.broker.addresses.unitofwork import is_failing
from stompbox.config.settings import AddressFullPolicy
from stompbox.message import Run

if TYPE_CHECKING:
    from stompbox.server.seam import ClientConnection, Core

UNSAVED: Final = 64 << 20  # bytes
MOST: Final = UNSAVED + UNSAVED // 4  # bytes
LITTLE: Final = 16 << 10  # bytes on their way to the disk that one read has caused
READ: Final = 256 << 10  # bytes of one read of a socket
UNREAD: Final = 1 << 20  # bytes beyond what the systems of both sides hold
TURN: Final = 0.005  # seconds
LOOK: Final = 5.0  # seconds


class Reason(Enum):
    BEHIND = "behind"  # the disk is slower than the senders
    DISK = "disk"
    REQUESTS = "requests"  # it asks more than it is answered
    RECEIPTS = "receipts"  # too many of them wait for the disk
    UNREAD = "unread"  # it does not take what it is told
    PIECES = "pieces"  # of a large body, faster than the disk


class Pressure:
    def __init__(self, broker: Core) -> None:
        self.broker = broker
        self.waiting: dict[ClientConnection, set[Reason | Limits]] = {}
        # who waits for room, the first to come first
        self.full: dict[Limits, dict[ClientConnection, None]] = {}
        self._is_planned = False
        self._is_looking = False  # for who has gone

    def sent(self, connection: ClientConnection, address: Address, run: Run) -> None:
        """A message was taken while something is in trouble, or by an address with limits."""
        engine = self.broker.engine
        if (
            engine.trouble is not None
            and engine.is_durable
            and not is_failing(address)
            and not address.is_volatile(run)
        ):
            self.hold(connection, Reason.DISK)
        limits = address.limits
        if limits is not None and limits.policy is AddressFullPolicy.BLOCK and limits.look():
            self.hold(connection, limits)

    def has_read(self, connection: ClientConnection, more: int) -> None:
        """All of one read was obeyed, and there were messages in it: its connection is held where the disk is behind. `more`: bytes that
        are on their way to the disk because of it."""
        unsaved = self.broker.engine.unsaved
        if unsaved > UNSAVED and (more > LITTLE or (more > 0 and unsaved > MOST)):
            self.hold(connection, Reason.BEHIND)

    def hold(self, connection: ClientConnection, reason: Reason | Limits) -> None:
        """Stops reading from a connection, until `let_go` or `relieve` takes this reason, and all others, from it."""
        if connection.is_ended or connection.is_lost:
            return
        self.waiting.setdefault(connection, set()).add(reason)
        self._look_later()
        if not isinstance(reason, Reason):
            self.full.setdefault(reason, {})[connection] = None
        if not isinstance(reason, Reason) and connection.consumers:
            connection.reading.hold_sends()
        elif not connection.reading.is_paused:
            connection.reading.pause()

    def _look_later(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self.broker.loop.call_later(LOOK, self._look_for_gone)

    def _look_for_gone(self) -> None:
        if not self.broker.has_failed:
            self.broker.turns.run(self._looking(), self._has_looked)

    def _looking(self) -> Iterator[None]:
        """One after the other: to ask the system costs a microsecond, and there may be thousands."""
        for connection in list(self.waiting):
            if connection in self.waiting and connection.transport.is_reset:
                connection.transport.abort()
            yield

    def _has_looked(self) -> None:
        self._is_looking = False
        if self.waiting:
            self._look_later()

    def relieve(self) -> None:
        """Lets those go on who need not wait any more."""
        if not self.waiting:
            return
        engine = self.broker.engine
        over: set[Reason | Limits] = set()
        if engine.unsaved < UNSAVED // 2:
            over.add(Reason.BEHIND)
        if engine.trouble is None:
            over.add(Reason.DISK)
        for connection in list(self.waiting):
            upload = connection.upload
            own = {Reason.PIECES} if upload is None or upload.may_go_on else set()
            self.let_go(connection, *over, *own)
        self.let_in()

    def let_in(self) -> None:
        """There may be room in addresses that were full."""
        for limits, connections in list(self.full.items()):
            address = limits.address
            if address.limits is limits and self.broker.engine.addresses.get(address.name) is address:
                if not limits.has_room_again():
                    continue
                admitted = list(connections)[: max(1, limits.room()[0] // READ)]
            else:  # its settings have changed, or it is gone
                admitted = list(connections)
            for connection in admitted:
                del connections[connection]
                self.let_go(connection, limits)
            if not connections:
                del self.full[limits]
            elif not self._is_planned:
                self._is_planned = True
                self.broker.loop.call_later(TURN, self._look_again)

    def _look_again(self) -> None:
        self._is_planned = False
        self.let_in()

    def let_go(self, connection: ClientConnection, *over: Reason | Limits) -> None:
        reasons = self.waiting.get(connection)
        if reasons is None:
            return
        reasons.difference_update(over)
        if not reasons:
            del self.waiting[connection]
            connection.reading.resume()

    def leave(self, connection: ClientConnection) -> None:
        for reason in self.waiting.pop(connection, ()):
            if not isinstance(reason, Reason):
                connections = self.full.get(reason, {})
                connections.pop(connection, None)
                if not connections:
                    self.full.pop(reason, None)

    def __repr__(self) -> str:
        return f"<Pressure {len(self.waiting)} connections wait>"
