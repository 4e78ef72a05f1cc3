"""What becomes of a SEND to an address that is full, as far as its sender sees it: ERROR, or waiting.
broker/addresses/limits.py says what is full.

    FAIL    of a run the first messages are taken, as many as there is room for; each of the others gets its ERROR, but for
            duplicates of what is there: they need no room, and get their RECEIPT
    DROP    the engine drops; the sender notices nothing, its RECEIPT comes
    BLOCK   what was read is taken; then the connection is read no further until there is room (pressure.py)

A connection that consumes, too, must be able to make that room. So it is still read: its ACK and NACK frames are obeyed, those in
transactions aside, and all else waits in order (Holding), up to HELD octets; beyond them it is not read either. When it goes
away, what waits was never taken.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses import duplicates
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.limits import CODE
from stompbox.broker.logs.segments import EACH, HEADER, cost_of
from stompbox.config.settings import AddressFullPolicy
from stompbox.message import Run, room_of
from stompbox.stomp.frames import Frame
from stompbox.stomp.large import Opening, Piece
from stompbox.stomp.runs import Acks, Event, Sends

if TYPE_CHECKING:
    from stompbox.server.seam import ClientConnection, Core

log = logging.getLogger("stompbox.limits")

LINES: Final = 20  # of the log in one go
HELD: Final = 1 << 20  # octets of frames that wait for room on a connection that consumes

_EFFECT: Final = {
    AddressFullPolicy.FAIL: "senders get an ERROR",
    AddressFullPolicy.DROP: "messages are dropped",
    AddressFullPolicy.BLOCK: "senders wait",
}


def judged(event: Sends, addresses: Iterable[Address]) -> list[tuple[int, int, bool]]:
    """A run's messages in stretches (indices), and whether they are taken by all addresses that refuse."""
    gone: set[int] = set()
    for address in addresses:
        limits = address.limits
        if limits is not None and limits.policy is AddressFullPolicy.FAIL:
            gone.update(duplicates.refused(address, Run(event.shape, event.bodies, event.columns)))
            if gone or limits.is_full:
                limits.look()
    found: list[tuple[int, int, bool]] = []
    for is_gone, indices in groupby(range(len(event.bodies)), gone.__contains__):
        part = list(indices)
        found.append((part[0], part[-1] + 1, not is_gone))
    return found


def refuse(connection: ClientConnection, event: Sends, addresses: Iterable[Address]) -> None:
    """Refuses all SENDs of an event, in the words of the address that is full and refuses."""
    refusing = [
        address.limits
        for address in addresses
        if address.limits and address.limits.policy is AddressFullPolicy.FAIL
    ]
    full = [limits for limits in refusing if limits.look()]
    connection.refuse_each((full or refusing)[0].refusal(), event)


def tell(broker: Core) -> None:
    """Says once that an address is full, and once that it is not any more: LINES in one go, and of those beyond `max-refusals-logged` in
    a minute how many there were. A client makes addresses full as often as it likes."""
    full, broker.engine.full = broker.engine.full, []
    lines = broker.pressure.lines
    for number, (limits, is_full, dropped) in enumerate(full):
        if number >= LINES or not lines.takes():
            lines.leave_out(CODE)
            continue
        if is_full:
            name, effect = limits.address.name, _EFFECT[limits.policy]
            log.warning(
                "address %s is full (%s): %s (%s)", name, limits.reason, effect, CODE, extra={"code": CODE}
            )
        else:
            said = f"; {dropped} messages were dropped" if dropped else ""
            log.warning("address %s has room again%s", limits.address.name, said)


class Holding:
    """Frames of one connection that wait until an address has room, in order."""

    __slots__ = ("connection", "events", "size")

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.events: list[Event] = []
        self.size = 0

    def takes(self, event: Event) -> bool:
        """Whether it is to wait. If not, it is to be obeyed at once."""
        if isinstance(event, Acks):
            return False
        if (
            isinstance(event, Frame)
            and event.command in ("ACK", "NACK")
            and "transaction" not in event.headers
        ):
            return False
        self.events.append(event)
        self.size += _size(event)
        self.connection.account.is_stale = True
        if self.size > HELD and not self.connection.reading.is_paused:
            self.connection.reading.pause()
        return True

    @property
    def messages(self) -> int:
        """How many SENDs are among the events."""
        runs = [len(event.bodies) for event in self.events if isinstance(event, Sends)]
        return sum(runs) + sum(
            [isinstance(event, Frame) and event.command == "SEND" for event in self.events]
        )

    def __repr__(self) -> str:
        return f"<Holding {len(self.events)} events {self.size} octets>"


def _size(event: Event) -> int:
    """Octets of memory that it takes while it waits, about: an empty body may come with long headers."""
    if isinstance(event, Sends):
        size = cost_of(Run(event.shape, event.bodies, event.columns))
        return size + sum([EACH + len(receipt) for receipt in event.receipts])
    if isinstance(event, Piece):
        return len(event.data)
    frame = event.frame if isinstance(event, Opening) else event
    return size_of(frame) if isinstance(frame, Frame) else EACH


def size_of(frame: Frame) -> int:
    """Octets of memory that a frame takes while it waits, about."""
    texts = [room_of(name) + room_of(value) + HEADER for name, value in frame.headers.items()]
    return EACH + len(frame.body) + sum(texts)
