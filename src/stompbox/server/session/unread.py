"""What a client was told and does not take: receipts, errors, pongs and messages alike.

    more than UNREAD               nothing more is read from it, nor delivered to it, until it has read
    more than maxConnectionMemory  it is cut off; there is no use in an ERROR that it would not read

While it is not read its heart-beats are not seen, but a host that has vanished must not stay for ever. So what counts for its time to live
meanwhile is that its system takes something, or that ours has got something of it (`last_sign`). A client that is not read for another
reason, such as a sender that waits for room, is not to blame, and its buffers may be full, so that not even its heart-beats come: there
its system is asked whether it is there (TCP keep-alive), and every answer counts.

Counted is what the system has not taken, and what stands behind a large message that is going out. A client that sends much and reads later
has what the systems of both sides hold, and UNREAD, before it must read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from stompbox.errors import Refused
from stompbox.server.pressure import UNREAD, Reason
from stompbox.server.seam import ClientConnection

if TYPE_CHECKING:
    from stompbox.broker.queues.consumer import Consumer
    from stompbox.server.outgoing import Outgoing
    from stompbox.server.session.core import SessionCore

_NOBODY: Final[dict[Consumer, None]] = {}  # what most connections have; who is somebody gets another one

PROBED: Final = 4  # times within a time to live that a host is asked whether it is there


class Told(ClientConnection, Protocol):
    """A connection as far as it speaks."""

    @property
    def broker(self) -> SessionCore: ...
    @property
    def outgoing(self) -> Outgoing | None: ...


class Unread:
    """What one connection was told and its peer has not read. `encoded`: octets of messages that are not written yet."""

    __slots__ = ("_probes", "_sign", "_unsent", "encoded", "has_drained", "is_much", "waiting")

    def __init__(self) -> None:
        self.is_much = False
        self.has_drained = False  # since it was looked for a sign of life
        self._unsent = 0  # octets, then
        self._sign = 0.0
        self._probes = 0  # seconds from one question to the next; 0: nobody has asked
        self.encoded = 0
        self.waiting = _NOBODY  # who have something for it when it has read

    def look(self, connection: Told) -> None:
        behind = connection.outgoing.waiting if connection.outgoing is not None else 0
        if connection.is_lost:
            return
        if not connection.transport.is_clogged and behind <= UNREAD // 2:
            if self.is_much:
                self._go_on(connection)
                connection.account.look(connection)
            return
        size = connection.transport.unsent + behind
        if size > connection.options.max_connection_memory:
            _cut_off(connection, size)
        elif size > UNREAD and not self.is_much:
            self.is_much = True
            self._unsent, self._sign = connection.transport.unsent, connection.broker.loop.time()
            connection.broker.pressure.hold(connection, Reason.UNREAD)
        if not connection.is_ended:
            connection.account.look(connection)

    def put_off(self, consumer: Consumer) -> None:
        """Gives it something when the peer has read."""
        self.waiting = self.waiting or {}
        self.waiting[consumer] = None

    def last_sign(self, connection: Told, now: float) -> float:
        """When there was the last sign of life of a client that is not read, in the loop's time."""
        if not self.is_much:
            return self._last_answer(connection, now)
        unsent, silence = connection.transport.unsent, connection.transport.silence
        if self.has_drained or unsent < self._unsent:
            self._sign = now
        elif silence is not None:
            self._sign = max(self._sign, now - silence)
        self._unsent, self.has_drained = unsent, False
        return self._sign

    def _last_answer(self, connection: Told, now: float) -> float:
        """When the client's host was there at the last, while others are to blame that the client is not read."""
        if not self._probes:
            assert connection.pulse is not None
            self._probes = max(1, connection.pulse.agreement.ttl_ms // 1000 // PROBED)
            connection.transport.probe(self._probes)
            return now  # nobody has asked before
        absence = connection.transport.absence
        return now if absence is None or absence < (PROBED - 1) * self._probes else now - absence

    def _go_on(self, connection: Told) -> None:
        """What waited for it is handed out in the next turn."""
        self.is_much = False
        connection.broker.pressure.let_go(connection, Reason.UNREAD)
        waiting, self.waiting = self.waiting, _NOBODY
        connection.broker.deliver_on(waiting)

    def __repr__(self) -> str:
        return f"<Unread {'much' if self.is_much else 'little'}>"


def _cut_off(connection: Told, size: int) -> None:
    limit = f"{connection.options.max_connection_memory} (maxConnectionMemory)"
    error = Refused(
        "too-much-unread",
        f"{size} octets wait that the client does not take; the limit is {limit}",
        closes=True,
    )
    connection.broker.refusals.tell(connection.name, error, closes=True)
    if not connection.is_ended:
        connection.end(is_failure=True)
    connection.transport.abort()
