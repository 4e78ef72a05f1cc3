"""Messages on their way out: encoded per subscription, written once per connection, as many as the turn has time for.

The others wait for the next turn (turns.py), and those that came about just now go before them: what one client has caused for
thousands of subscriptions does not keep a few messages of another one waiting.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from stompbox.broker.kinds import Kind
from stompbox.broker.queues.consumer import AckMode, Consumer, Output
from stompbox.errors import StompboxError
from stompbox.message import Run
from stompbox.server.addressing.transforming import Transform, outward
from stompbox.server.faults import told
from stompbox.server.latency import Latency
from stompbox.server.outgoing import Stream, Whole
from stompbox.server.turns import OUTWARD
from stompbox.stomp.encode import messages, opening
from stompbox.store.base import PIECE

if TYPE_CHECKING:
    from stompbox.server.broker import Broker
    from stompbox.server.session.connection import Connection

log = logging.getLogger("stompbox")

SUBSCRIPTIONS: Final = 16  # that are encoded before anything is written, and the clock is looked at
OCTETS: Final = 64 << 10  # after which it is the same: to give the system a megabyte takes a millisecond
PORTION: Final = 256 << 10  # of one consumer, after which others have their turn
_AUTO: Final = AckMode.AUTO
OUTPUTS: Final = 64  # runs, after which it is the same: each may have a head that nobody has encoded yet


class Holding(Protocol):
    """What keeps messages from going out for a while."""

    def hold_back(self, consumer: Consumer) -> list[Output]:
        """Takes what may not go yet out of its outbox, and all that is behind it."""


class Deliveries:
    """Messages on their way out of the engine, to the subscriptions of all connections."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.engine = broker.engine
        self.waiting: deque[Consumer] = deque()  # have something, and there was no time for it
        self._rest: list[Consumer] = []  # have more than went out of theirs at once
        self._is_planned = False
        self.suspension: Holding | None = None  # of a node of a cluster whose log is away
        self.latency = Latency()  # from when the broker has a message until it goes out

    def write(self) -> bool:
        """What the engine has put out since the last time. False: the turn is over before all of it has gone."""
        touched, self.engine.touched = self.engine.touched, []
        if len(touched) <= SUBSCRIPTIONS:
            del touched[: self._write_some(touched)]
        is_done = not touched or self._write_in_time(touched)
        self._put_behind()
        return is_done

    def _write_in_time(self, touched: list[Consumer]) -> bool:
        until = self.broker.turns.allowance()
        at = 0
        while at < len(touched):
            at += self._write_some(touched[at : at + SUBSCRIPTIONS])
            if self.broker.turns.clock() > until:
                break
        self._wait(touched[at:])
        return at >= len(touched)

    def put_off(self) -> None:
        """What came of work that goes on in portions waits, where it is much: what comes about next goes before it."""
        if len(self.engine.touched) > SUBSCRIPTIONS:
            touched, self.engine.touched = self.engine.touched, []
            self._wait(touched)

    def _wait(self, touched: list[Consumer]) -> None:
        self.waiting.extend(touched)
        if self.waiting and not self._is_planned:
            self._is_planned = True
            self.broker.turns.later(self._go_on, OUTWARD)

    def _go_on(self, until: float) -> bool:
        waiting = self.waiting
        while waiting:
            some = [waiting.popleft() for _ in range(min(SUBSCRIPTIONS, len(waiting)))]
            waiting.extendleft(reversed(some[self._write_some(some) :]))
            if self.broker.turns.clock() > until:
                break
        self._put_behind()
        self._is_planned = bool(waiting)
        return self._is_planned

    def _write_some(self, consumers: list[Consumer]) -> int:
        """How many of them were encoded and written."""
        holding = self.suspension or self.broker.counting
        written: dict[Connection, None] = {}
        done = outputs = octets = 0
        for consumer in consumers:
            done += 1
            consumer.is_touched = False
            connection: Connection = consumer.owner
            if consumer.is_closed:
                continue
            if connection.unread.is_much:
                connection.unread.put_off(consumer)
                continue
            held = holding.hold_back(consumer) if holding is not None else None
            octets -= connection.unread.encoded
            outputs += self._encode(consumer, connection)
            octets += connection.unread.encoded
            if consumer.outbox:
                self._rest.append(consumer)
            if held:
                consumer.outbox += held
            written[connection] = None
            if octets > OCTETS or outputs >= OUTPUTS:
                break
        for connection in written:
            connection.write_out()
        return done

    def _put_behind(self) -> None:
        """Who has more to get goes on in the next round, where nobody waits; else behind those who do."""
        if not self._rest:
            return
        rest, self._rest = self._rest, []
        for consumer in rest:
            if not self.waiting:
                self.engine.touch(consumer)
            elif not consumer.is_touched:
                consumer.is_touched = True
                self._wait([consumer])

    def _encode(self, consumer: Consumer, connection: Connection) -> int:
        """Encodes what a consumer is to get: how many runs it was."""
        if connection.transform is not None:
            return self._encode_transformed(consumer, connection, connection.transform)
        out, unread = connection.out, connection.unread
        done = 0
        for output in consumer.outbox:
            if unread.encoded > PORTION or done == OUTPUTS:
                break
            done += 1
            run = output.run
            if run.is_large:
                self._stream(consumer, output, connection)
                unread.encoded += PIECE
                continue
            try:
                out.append(self._frames(output, connection, output.first, output.stop))
                unread.encoded += len(out[-1])
            except Exception as error:
                self.broker.errors["internal-fault"] += 1
                text = "%s: messages cannot be encoded together: %s"
                log.warning(text, connection.name, told(error), extra=connection.marks)
                self._encode_singly(consumer, output, connection)
        del consumer.outbox[:done]
        if consumer.ack is _AUTO:
            connection.unflushed[consumer] = None
        return done

    def _frames(self, output: Output, connection: Connection, first: int, stop: int) -> bytes:
        """The messages first .. stop-1 of an output."""
        run = output.run
        extra = connection.extra_headers(output) if output.is_redelivered else b""
        data = messages(
            output.binding.head,
            run,
            first - run.first,
            stop - run.first,
            redelivered=output.is_redelivered,
            extra=extra,
        )
        self.engine.counters["delivered"] += stop - first
        self.latency.deliver(output, self.engine.now, stop - first)
        return data

    def _encode_singly(self, consumer: Consumer, output: Output, connection: Connection) -> None:
        """One by one, up to the message that cannot be encoded: that is a failed delivery, so that it is dead in the end."""
        for offset in range(output.first, output.stop):
            try:
                connection.out.append(self._frames(output, connection, offset, offset + 1))
            except Exception as error:
                fault = self.broker.faults.contain(
                    connection, f"message {output.binding.queue.id}-{offset} was encoded", error
                )
                self.engine.withdraw(consumer, output.binding, offset)
                connection.refuse(fault)
                return

    def _stream(self, consumer: Consumer, output: Output, connection: Connection) -> None:
        """Encodes messages whose bodies are in the store."""
        run = output.run
        extra = connection.extra_headers(output) if output.is_redelivered else b""
        for index in range(output.first - run.first, output.stop - run.first):
            head = opening(output.binding.head, run, index, redelivered=output.is_redelivered, extra=extra)
            connection.stream(
                Stream(head, run.large(index), self._on_gone(consumer, output, run.first + index))
            )
            self.engine.counters["delivered"] += 1
            self.latency.deliver(output, self.engine.now, 1)

    def _on_gone(self, consumer: Consumer, output: Output, offset: int) -> Callable[[], None] | None:
        """What is done about a large message that is gone before it is written, to a reader who holds nothing up."""
        if output.binding.queue.kind not in (Kind.STREAM, Kind.BROWSER):
            return None
        return partial(self._pass_by, consumer, output, offset)

    def _pass_by(self, consumer: Consumer, output: Output, offset: int) -> None:
        """As with one that is gone before it is read: the reader goes on with the next."""
        if output.binding.queue.kind is Kind.STREAM:
            self.engine.counters["retention"] += 1
        if not consumer.is_closed:
            self.engine.acknowledge(consumer, consumer.withdraw(output.binding, offset))

    def _encode_transformed(self, consumer: Consumer, connection: Connection, transform: Transform) -> int:
        """Encodes messages one by one, as the transformer leaves them. What the transformer does not take is a failed delivery."""
        outbox, consumer.outbox = consumer.outbox, []
        for output in outbox:
            for offset in range(output.first, output.stop):
                if output.run.is_large:
                    made = partial(self._transformed_whole, consumer, transform, output, offset)
                    gone = self._on_gone(consumer, output, offset)
                    connection.stream(Whole(output.run.large(offset - output.run.first), made, gone))
                    continue
                connection.out.append(self._transformed(consumer, transform, output, output.run, offset))
                if consumer.is_closed:
                    return len(outbox)
        if consumer.ack is _AUTO:
            connection.unflushed[consumer] = None
        return len(outbox)

    def _transformed(
        self, consumer: Consumer, transform: Transform, output: Output, run: Run, offset: int
    ) -> bytes:
        """The frame of one message; empty when the transformer did not take it."""
        connection: Connection = consumer.owner
        extra = connection.extra_headers(output) if output.is_redelivered else b""
        try:
            run = outward(transform, run, offset - run.first, connection.user.name)
        except StompboxError as error:
            self.engine.withdraw(consumer, output.binding, offset)
            connection.refuse(error)
            return b""
        self.engine.counters["delivered"] += 1
        self.latency.deliver(output, self.engine.now, 1)
        return messages(output.binding.head, run, 0, 1, redelivered=output.is_redelivered, extra=extra)

    def _transformed_whole(
        self, consumer: Consumer, transform: Transform, output: Output, offset: int, body: bytes
    ) -> bytes:
        """Encodes a large message as the transformer leaves it, once all pieces of its body are there."""
        run, index = output.run, offset - output.run.first
        return self._transformed(
            consumer, transform, output, run.part(index, index + 1, bodies=[body]), offset
        )

    def __repr__(self) -> str:
        return f"<Deliveries waiting={len(self.waiting)}>"
