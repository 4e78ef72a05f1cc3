"""COMMIT and ABORT: all that a transaction holds, at once and in one commit of the store, or nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbox.broker.undelivered import NO_ROUTE, Fate
from stompbox.errors import StompboxError

if TYPE_CHECKING:
    from stompbox.broker.address import Address
    from stompbox.broker.engine import Engine
    from stompbox.broker.transaction import Transaction
    from stompbox.message import Run


def commit(engine: Engine, transaction: Transaction, *, is_answered: bool) -> bool:
    """True when its receipt must wait for the next commit. When it raises it was aborted. `is_answered`: somebody waits for a receipt."""
    transaction.sends = _still_there(engine, transaction.sends)
    try:
        engine.prepare(transaction.sends)
    except StompboxError:
        engine.abort(transaction)
        raise
    is_durable = any(binding.queue.is_durable for _, sent in transaction.answered for binding, _ in sent)
    is_durable |= _publish(engine, transaction, is_answered=is_answered)
    for consumer, sent in transaction.acked:
        engine.acknowledge(consumer, sent)
    for consumer, sent in transaction.nacked:
        engine.refuse(consumer, sent)
    for consumer, sent in transaction.rejected:
        engine.refuse(consumer, sent, is_final=True)
    return is_durable and engine.is_durable


def _publish(engine: Engine, transaction: Transaction, *, is_answered: bool) -> bool:
    """What it sends, as one unit with its acknowledgements."""
    unit = engine.commits.begin()
    unit.acked = transaction.acked
    is_stored = False
    try:
        for address, run in transaction.sends:
            is_stored |= engine.publish(address, run)
        transaction.is_refusable = is_stored and unit.is_refusable
    finally:
        engine.commits.end(is_stored=is_stored and is_answered)
    return is_stored


def _still_there(engine: Engine, sends: list[tuple[Address, Run]]) -> list[tuple[Address, Run]]:
    """Addresses that went meanwhile come again, but for temporary ones: those had only one who would have read it."""
    found = []
    for address, run in sends:
        if engine.addresses.get(address.name) is address:
            found.append((address, run))
        elif address.owner:
            engine.counters["dropped"] += len(run)
            engine.undelivered.note(address.name, NO_ROUTE, Fate.DROPPED, len(run))
        else:
            again = engine.addresses.get(address.name) or engine.create_address(address.name, is_auto=True)
            again.add_kind(run.routing)
            found.append((again, run))
    return found
