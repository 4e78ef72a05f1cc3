"""BEGIN, COMMIT and ABORT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stompbox.broker import transactions
from stompbox.broker.addresses.fanout import finishing
from stompbox.broker.transactions import Transaction, committing, is_long
from stompbox.errors import IllegalFrame, Refused
from stompbox.server.frames import transacted
from stompbox.server.revoking import require_still
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import Speaker


def transaction_of(connection: Speaker, name: str) -> Transaction:
    found = connection.transactions.get(name)
    if found is None and name in connection.timed_out:
        del connection.timed_out[name]
        timeout = connection.broker.timeouts.timeout
        raise Refused("transaction-timeout", f"transaction {name[:80]!r} was open for more than {timeout} ms and has been aborted")
    if found is None:
        raise IllegalFrame("no-such-transaction", f"this connection has no open transaction {name[:80]!r}")
    return found


def begin(connection: Speaker, frame: Frame) -> None:
    name = frame.headers["transaction"]
    if name in connection.transactions:
        raise IllegalFrame("transaction-exists", f"transaction {name[:80]!r} is open already")
    if connection.options.single_transaction and connection.transactions:
        open_one = next(iter(connection.transactions))
        raise IllegalFrame("transaction-exists", f"transaction {open_one[:80]!r} is open, and this listener takes one at a time")
    if len(connection.transactions) >= connection.options.max_transactions:
        raise Refused("too-many-transactions", f"a connection has no more than {connection.options.max_transactions} open transactions")
    transaction = connection.transactions[name] = Transaction(name, connection.allowance.maker)
    connection.timed_out.pop(name, None)
    connection.broker.timeouts.begun(connection, transaction)
    connection.answer(frame, waits=False)
    transacted.resume(connection)


def commit(connection: Speaker, frame: Frame) -> Iterator[None]:
    transaction = transaction_of(connection, frame.headers["transaction"])
    try:
        require_still(connection, transaction)
    except Refused:
        yield from _undoing(connection, transaction)
        raise
    engine = connection.broker.engine
    _end(connection, transaction)
    transacted.consume(connection, transaction)
    try:
        if is_long(transaction):
            waits = yield from committing(engine, transaction, is_answered="receipt" in frame.headers)
        else:
            waits = engine.commit(transaction, is_answered="receipt" in frame.headers)
    finally:
        transacted.give_back(connection)
    connection.reading.has_sent = bool(transaction.sends)
    is_in_trouble = engine.trouble is not None
    for address, run in transaction.sends:
        if is_in_trouble or address.limits is not None:
            connection.broker.pressure.sent(connection, address, run)
    connection.answer(frame, waits=waits and "receipt" in frame.headers, unit=transaction.unit)
    yield from finishing(transaction.sends)


def abort(connection: Speaker, frame: Frame) -> Iterator[None]:
    yield from _undoing(connection, transaction_of(connection, frame.headers["transaction"]))
    connection.answer(frame, waits=False)


def time_out(connection: Speaker, transaction: Transaction) -> None:
    """The broker aborts it; the client is told when it comes back to it."""
    connection.broker.turns.run(_undoing(connection, transaction), lambda: None)
    if len(connection.timed_out) >= connection.options.max_transactions:
        del connection.timed_out[next(iter(connection.timed_out))]
    connection.timed_out[transaction.name] = None


def _undoing(connection: Speaker, transaction: Transaction) -> Iterator[None]:
    _end(connection, transaction)
    yield from transactions.aborting(connection.broker.engine, transaction, is_failure=False)
    transacted.give_back(connection)


def _end(connection: Speaker, transaction: Transaction) -> None:
    """It is open no longer, whatever becomes of it."""
    del connection.transactions[transaction.name]
    connection.doubtful.discard(transaction)
    connection.broker.timeouts.ended(transaction)
    transacted.pause(connection)
