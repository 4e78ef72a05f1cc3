"""What a client is told: frames in order, behind receipts that wait for the disk, written once for all that a turn has caused.

What has been written and is not read by the peer is unread.py's; large messages, which are read from the store as they go out, are
outgoing.py's.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stompbox.broker.addresses.unitofwork import UnitOfWork
from stompbox.broker.queues.consumer import Consumer, Output
from stompbox.broker.subscriptions.subscribers import start
from stompbox.config import ListenerOptions
from stompbox.errors import StoreError
from stompbox.server.ledger import Account
from stompbox.server.outgoing import SHOWN, Outgoing, Portions, Stream
from stompbox.server.session.receipts import Pending, Receipts
from stompbox.server.session.unread import Unread
from stompbox.stomp import encode
from stompbox.stomp.codec import escape
from stompbox.stomp.frames import Frame
from stompbox.stomp.heartbeat import Pulse
from stompbox.stomp.session import Dialect, Session

if TYPE_CHECKING:
    from stompbox.server.closings import Why
    from stompbox.server.requests.asker import Asked
    from stompbox.server.seam import FrameLog, Transport
    from stompbox.server.session.core import SessionCore


class Writing(metaclass=ABCMeta):
    """The half of a connection that speaks."""

    __slots__ = (
        "__weakref__", "account", "broker", "frames", "is_ended", "is_leaving", "is_lost", "names", "options", "out", "outgoing", "peer",
        "pending", "pulse", "requests", "session", "session_id", "transport", "unflushed", "unread",
    )  # fmt: skip

    def __init__(
        self, broker: SessionCore, options: ListenerOptions, transport: Transport, peer: str
    ) -> None:
        self.broker = broker
        self.options = options
        self.transport = transport
        self.peer = peer
        self.session_id = broker.new_session()
        self.session = Session(
            _dialect(
                options.allow_bodies,
                options.transacted_subscriptions,
                options.openmq_subscription_ids or not options.require_ids,
                options.default_subscription_ids,
                options.nack_in_every_version,
            )
        )
        self.names = broker.names_of(options)
        self.out: list[bytes] = []
        self.outgoing: Outgoing | None = None  # while a large message is going out; `out` waits behind it
        self.pending = Receipts()
        self.unflushed: dict[Consumer, None] = {}
        self.unread = Unread()
        self.account = Account(broker.ledger, options.max_connection_memory)
        self.pulse: Pulse | None = None
        self.requests: Asked | None = None  # that wait for their answers
        self.frames: FrameLog | None = None  # where they are logged
        self.is_ended = False  # nothing more is obeyed
        self.is_leaving = False  # and what it held is going back
        self.is_lost = False  # the socket is gone

    @property
    def _connection(self) -> Any:
        """This object as the connection that it is, for those who want one."""
        return self

    @abstractmethod
    def end(
        self, *, is_failure: bool, then: Callable[[], None] | None = None, why: Why | None = None
    ) -> None:
        """Ends the connection: nothing more is obeyed. `why`: where no refusal says it."""

    def write_out(self) -> None:
        """Hands everything to the system at once; what auto subscriptions got is acknowledged when it was taken."""
        self.unread.encoded = 0
        if self.is_lost:
            self.out.clear()
            return
        if self.outgoing is not None and not self._has_streamed(self.outgoing):
            self.outgoing.follow(self.out)
            self.unread.look(self._connection)
            return
        out = self.out
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            if self.frames is not None:
                self.frames.goes()
                if len(data) > SHOWN:
                    self.stream(Portions([data], SHOWN))
                    self.write_out()
                    return
                self.frames.went(data)
            self.transport.write(data)
            if self.pulse is not None:
                self.pulse.sent(self.broker.loop.time())
        if self.unread.is_much or self.transport.is_clogged:
            self.unread.look(self._connection)
        if self.unflushed and not self.transport.is_clogged:
            self._flushed()
        if self.is_ended and not self.pending.size and not self.is_leaving:
            self.transport.close()

    def stream(self, stream: Stream) -> None:
        """A large message, in its place behind what was said."""
        if self.outgoing is None:
            self.outgoing = Outgoing(self._connection)
        self.outgoing.add(stream)

    def _has_streamed(self, outgoing: Outgoing) -> bool:
        if self.is_lost or not outgoing.write():
            return False
        if self.outgoing is outgoing:
            self.outgoing = None
            if self.requests is not None:
                self.requests.drained()
        return True

    def _cut(self) -> None:
        """Aborts the socket of a connection that has ended and whose peer does not take the rest of a large message."""
        if self.outgoing is not None:
            self.transport.abort()

    def drained(self) -> None:
        """The system has taken all that was written."""
        if self.is_lost:
            return
        self.broker.set_time()
        if self.outgoing is not None:
            self.write_out()
        else:
            if self.requests is not None:
                self.requests.drained()
            self._flushed()
        if self.unread.is_much:
            self.unread.has_drained = True
            self.unread.look(self._connection)
        self.broker.flush_soon()

    def _flushed(self) -> None:
        unflushed, self.unflushed = self.unflushed, {}
        for consumer in unflushed:
            if not consumer.is_closed:
                self.broker.engine.flushed(consumer)

    def say(self, data: bytes) -> None:
        """In its place: behind receipts that still wait for the disk."""
        if self.pending.size:
            self.pending.append(Pending(0, data))
        else:
            self.out.append(data)

    def confirm(
        self,
        receipts: list[bytes],
        *,
        waits: bool,
        consumer: Consumer | None = None,
        unit: UnitOfWork | None = None,
    ) -> None:
        """RECEIPT frames for ids as they stand on the wire, in frame order; a subscription starts behind its own. `unit`: what they are
        for, where that needs the disk."""
        sequence = self.broker.want_commit(self._connection) if waits else 0
        if not sequence and not self.pending.size:
            if receipts:
                self.out.append(encode.receipts(receipts))
            if consumer is not None:
                start(consumer)
            return
        self.pending.confirm(receipts, sequence, consumer, unit)

    def answer(
        self,
        frame: Frame,
        *,
        waits: bool,
        consumer: Consumer | None = None,
        extra: Mapping[str, str] = MappingProxyType({}),
        unit: UnitOfWork | None = None,
    ) -> None:
        """RECEIPT where the frame asks for one; `consumer`: the subscription that it makes; `extra`: more headers of the RECEIPT."""
        receipt = frame.headers.get("receipt")
        ids = []
        if receipt is not None:
            version = self.session.version
            lines = [
                escape(receipt, version),
                *[f"{name}:{escape(value, version)}" for name, value in extra.items()],
            ]
            ids.append("\n".join(lines).encode())
        if ids or consumer is not None:
            self.confirm(ids, waits=waits, consumer=consumer, unit=unit)

    def refuse_commit(self, sequence: int, error: StoreError) -> None:
        """The commit of this sequence is not in the store: ERROR for what was refused with it, the rest waits for the next one."""
        refused = [receipt for item in self.pending.take_refused(sequence) for receipt in item.receipts]
        if self.pending.waits_for(sequence):
            self.pending.wait_on(sequence, self.broker.want_commit(self._connection))
        for receipt in refused:
            self.broker.errors[error.code] += 1
            self.out.append(
                b"ERROR\nmessage:not stored\ncode:%b\nreceipt-id:%b\ncontent-type:text/plain\ncontent-length:%d\n\nnot stored (%b)\n\0\n"
                % (
                    error.code.encode(),
                    receipt.partition(b"\n")[0],
                    14 + len(error.code),
                    error.code.encode(),
                )
            )
            if self.session.version.closes_on_error:
                # STOMP 1.2, ERROR: MUST close; what else it waits for it will not learn
                self.pending.clear()
                # the disk's fault is no attempt of a message
                self.end(is_failure=False, why=(error.code, "not stored"))
                break

    def release(self, sequence: int) -> bool:
        """Commits up to `sequence` are durable: says what waited for them, a portion of it. True when there is more."""
        pending = self.pending
        started = pending.started or []
        for item in pending.take(sequence):
            if item.receipts:
                self.out.append(encode.receipts(item.receipts))
            if item.data:
                self.out.append(item.data)
            if item.consumer is not None:
                started.append(item.consumer)
        if not pending.size:
            self.broker.waiting.pop(self._connection, None)
        self.write_out()
        if self.account.passing:
            self.account.look(self._connection)
        if pending.is_due(sequence):
            pending.started = started or None
            return True
        pending.started = None
        for consumer in started:
            if not (consumer.is_closed or self.is_ended):
                start(consumer)
        return False

    def extra_headers(self, output: Output) -> bytes:
        """What the broker adds to messages that were delivered before."""
        return b"JMSXDeliveryCount:%d\n" % (output.deliveries + 1) if output.deliveries else b""

    @property
    def name(self) -> str:
        return f"connection {self.session_id} from {self.peer}"


@lru_cache(64)
def _dialect(bodies: bool, transacted: bool, no_ids: bool, made_ids: bool, nack: bool) -> Dialect:
    """Gives one object to all connections of a listener."""
    return Dialect(
        allow_bodies=bodies,
        allow_transacted_subscriptions=transacted,
        needs_no_ids=no_ids,
        makes_ids=made_ids,
        always_may_nack=nack,
    )
