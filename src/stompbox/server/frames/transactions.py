"""BEGIN, COMMIT and ABORT, and what is open for too long or only in a transaction.

Transacted subscriptions, as OpenMQ has them, get messages only while a transaction is open: SUBSCRIBE names an open one, after its COMMIT
or ABORT delivery pauses until the next BEGIN, which starts again with what was not consumed. Without acknowledgements (ack:auto) a COMMIT
consumes all that was sent until then.

A transaction that is open for longer than `transaction-timeout` is aborted, as in Artemis. The client learns of it when it names the
transaction again, by an ERROR of its own code; then the name is free.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from stompbox.broker import transactions
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.fanout import finishing
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.subscriptions.subscribers import start
from stompbox.broker.timers import Alarm
from stompbox.broker.transactions import Transaction, committing, is_long, letting_go
from stompbox.errors import IllegalFrame, Refused
from stompbox.message import Run
from stompbox.server.revoking import requiring_still
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import FramesCore, Speaker

LOOKED: Final = 100  # runs of a transaction that are looked at once more in one step


def transaction_of(connection: Speaker, name: str) -> Transaction:
    found = connection.transactions.get(name)
    if found is None and name in connection.timed_out:
        del connection.timed_out[name]
        timeout = connection.broker.timeouts.timeout
        raise Refused(
            "transaction-timeout",
            f"transaction {name[:80]!r} was open for more than {timeout} ms and has been aborted",
        )
    if found is None:
        raise IllegalFrame("no-such-transaction", f"this connection has no open transaction {name[:80]!r}")
    return found


def begin(connection: Speaker, frame: Frame) -> None:
    name = frame.headers["transaction"]
    if name in connection.transactions:
        raise IllegalFrame("transaction-exists", f"transaction {name[:80]!r} is open already")
    if connection.options.single_transaction and connection.transactions:
        open_one = next(iter(connection.transactions))
        raise IllegalFrame(
            "transaction-exists",
            f"transaction {open_one[:80]!r} is open, and this listener takes one at a time",
        )
    if len(connection.transactions) >= connection.options.max_transactions:
        raise Refused(
            "too-many-transactions",
            f"a connection has no more than {connection.options.max_transactions} open transactions",
        )
    transaction = Transaction(name, connection.allowance.maker, connection.broker.permissions.number)
    connection.transactions = connection.transactions or {}
    connection.transactions[name] = transaction
    connection.timed_out.pop(name, None)
    connection.broker.timeouts.begun(connection, transaction)
    connection.answer(frame, waits=False)
    _resume(connection)


def commit(connection: Speaker, frame: Frame) -> Iterator[None]:
    transaction = transaction_of(connection, frame.headers["transaction"])
    engine = connection.broker.engine
    is_doubtful = transaction.rights != connection.broker.permissions.number
    _end(connection, transaction)
    _consume(connection, transaction)
    if is_doubtful:
        try:
            yield from requiring_still(connection, transaction)
        except Refused:
            yield from _letting_go(connection, transaction)
            raise
    is_in_steps = is_long(transaction)
    try:
        if is_in_steps:
            waits = yield from committing(engine, transaction, is_answered="receipt" in frame.headers)
        else:
            waits = engine.commit(transaction, is_answered="receipt" in frame.headers)
    finally:
        _give_back(connection)
    for at in range(0, len(transaction.sends), LOOKED):
        if at:
            yield
        press(connection, transaction.sends[at : at + LOOKED])
    connection.reading.has_sent = bool(transaction.sends)
    connection.answer(frame, waits=waits and "receipt" in frame.headers, unit=transaction.unit)
    if not is_in_steps:  # else each part has come to all who get it
        yield from finishing(transaction.sends)
    yield from letting_go(transaction.sends)


def press(connection: Speaker, sends: Sequence[tuple[Address, Run]]) -> None:
    """Has a sender wait that has filled an address, or for a disk that takes nothing."""
    engine = connection.broker.engine
    for address, run in sends:
        if engine.trouble is not None or address.limits is not None:
            connection.broker.pressure.sent(connection, address, run)


def abort(connection: Speaker, frame: Frame) -> Iterator[None]:
    yield from _undoing(connection, transaction_of(connection, frame.headers["transaction"]))
    connection.answer(frame, waits=False)


def time_out(connection: Speaker, transaction: Transaction) -> None:
    """The broker aborts it; the client is told when it comes back to it."""
    connection.broker.turns.run(_undoing(connection, transaction))
    if len(connection.timed_out) >= connection.options.max_transactions:
        del connection.timed_out[next(iter(connection.timed_out))]
    connection.timed_out = connection.timed_out or {}
    connection.timed_out[transaction.name] = None


def _undoing(connection: Speaker, transaction: Transaction) -> Iterator[None]:
    _end(connection, transaction)
    yield from _letting_go(connection, transaction)


def _letting_go(connection: Speaker, transaction: Transaction) -> Iterator[None]:
    yield from transactions.aborting(connection.broker.engine, transaction, is_failure=False)
    _give_back(connection)


def _end(connection: Speaker, transaction: Transaction) -> None:
    """Forgets a transaction, which is open no longer, whatever becomes of it."""
    del connection.transactions[transaction.name]
    connection.broker.timeouts.ended(transaction)
    _pause(connection)


# Transacted subscriptions


def _resume(connection: Speaker) -> None:
    """Lets messages go out to transacted subscriptions: at BEGIN."""
    for consumer in _of(connection):
        start(consumer)


def _pause(connection: Speaker) -> None:
    """Holds back what transacted subscriptions would get: at COMMIT or ABORT, before anything else."""
    for consumer in _of(connection):
        consumer.is_started = False


def _consume(connection: Speaker, transaction: Transaction) -> None:
    """COMMIT: what was sent without being acknowledged one by one belongs to it."""
    for consumer in _of(connection):
        if connection.transacted[consumer]:
            sent = connection.broker.engine.take_written(consumer)
            if sent:
                transaction.acked.append((consumer, sent))


def _give_back(connection: Speaker) -> None:
    """After COMMIT or ABORT: what is not consumed goes back, until the next BEGIN."""
    for consumer in _of(connection):
        connection.broker.engine.take_back(consumer)


def _of(connection: Speaker) -> list[Consumer]:
    for consumer in [consumer for consumer in connection.transacted if consumer.is_closed]:
        del connection.transacted[consumer]
    return list(connection.transacted)


# Transactions that are open for too long


log = logging.getLogger("stompbox.connection")


class Timeouts:
    """The open transactions of all connections, the oldest first. `timeout` in ms; -1: none."""

    def __init__(self, broker: FramesCore, timeout: int) -> None:
        self.engine = broker.engine
        self.timeout = timeout
        self._open: dict[Transaction, tuple[Speaker, int]] = {}
        self._alarm = Alarm(broker.engine.timers, self._look)

    def begun(self, connection: Speaker, transaction: Transaction) -> None:
        if self.timeout >= 0:
            until = self.engine.now + self.timeout
            self._open[transaction] = connection, until
            self._alarm.by(until)

    def change(self, timeout: int) -> None:
        """Transactions that begin from now on have this timeout."""
        self.timeout = timeout

    def ended(self, transaction: Transaction) -> None:
        self._open.pop(transaction, None)

    def _look(self) -> None:
        """What is due ends; then it is the turn of the oldest that is left."""
        while self._open:
            transaction, (connection, until) = next(iter(self._open.items()))
            if until > self.engine.now:
                self._alarm.by(until)
                return
            text = "%s: transaction %r was open for %d ms and is aborted (transaction-timeout)"
            log.warning(
                text,
                connection.name,
                transaction.name,
                self.timeout,
                extra={"code": "transaction-timeout", **connection.marks},
            )
            time_out(connection, transaction)

    def __repr__(self) -> str:
        return f"<Timeouts {len(self._open)} open, {self.timeout} ms>"
