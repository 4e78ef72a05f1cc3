"""COMMIT and ABORT: all that a transaction holds, at once and in one commit of the store, or nothing of it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from stompbox.broker.addresses import limits, retained
from stompbox.broker.addresses.attempts import Outcome
from stompbox.broker.addresses.fanout import finishing
from stompbox.broker.addresses.makers import require_sends
from stompbox.broker.queues.consumer import taken_off
from stompbox.broker.undelivered import NO_ROUTE, Fate
from stompbox.broker.units import Unit
from stompbox.errors import StompboxError
from stompbox.message import ANYCAST

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.makers import Maker
    from stompbox.broker.engine import Engine
    from stompbox.broker.queues.consumer import Sent
    from stompbox.broker.transaction import Transaction
    from stompbox.message import Run

STEP: Final = 50  # runs of messages, or acknowledgements, of one step: about half a millisecond

T = TypeVar("T")


def commit(engine: Engine, transaction: Transaction, *, is_answered: bool) -> bool:
    """True when its receipt must wait for the next commit. When it raises it was aborted. `is_answered`: somebody waits for a receipt."""
    maker = transaction.maker
    try:
        require_sends(engine, maker, transaction.sends)
        transaction.sends = _still_there(engine, transaction.sends, maker)
        engine.prepare(transaction.sends, maker)
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


def committing(engine: Engine, transaction: Transaction, *, is_answered: bool) -> Generator[None, None, bool]:
    """The same for one that has very much, in steps between which others have their turn. No commit of the store is taken from the first
    message to the last acknowledgement; so after a crash all of it is there, or nothing. Others wait for a commit meanwhile, and one
    comes between two such transactions."""
    try:
        yield from _preparing(engine, transaction)
    except StompboxError:
        engine.abort(transaction)
        raise
    commits = engine.commits
    while not commits.may_be_held():
        yield
    unit = Unit(acked=transaction.acked)
    is_durable, is_stored, acknowledged = False, False, 0
    commits.hold()
    try:
        for part in _parts(transaction.sends):
            commits.resume(unit)
            is_stored |= _publish_part(engine, part, transaction.maker)
            commits.suspend()
            yield
            yield from finishing(part)
        for consumer, sent in transaction.acked:
            for held in _parts(sent) if is_stored and is_answered else taken_off(sent, STEP):  # a unit that may be refused keeps them
                is_durable = is_durable or _is_durable(held)
                engine.acknowledge(consumer, held)
                acknowledged += len(held)
                if acknowledged >= STEP:
                    acknowledged = 0
                    yield
        for outcome, refused in ((Outcome.FAILED, transaction.nacked), (Outcome.REJECTED, transaction.rejected)):
            for consumer, sent in refused:
                for held in _parts(sent):
                    is_durable = is_durable or _is_durable(held)
                    yield
                yield from engine.refusing(consumer, sent, outcome)
                yield
    finally:
        commits.resume(unit)
        commits.end(is_stored=is_stored and is_answered)
        transaction.unit = commits.last
        commits.let_go()
    return (is_durable or is_stored) and engine.is_durable


def _is_durable(sent: list[Sent]) -> bool:
    return any(binding.queue.is_durable for binding, _ in sent)


def _preparing(engine: Engine, transaction: Transaction) -> Iterator[None]:
    """Raises where something of it may not be sent, and nothing has been then."""
    found: list[tuple[Address, Run]] = []
    maker = transaction.maker
    require_sends(engine, maker, transaction.sends)
    for part in _parts(transaction.sends):
        found += _still_there(engine, part, maker)
        yield
    transaction.sends = found
    limits.require(found)
    for part in _parts(found):
        engine.prepare(part, maker)
        yield


def _publish_part(engine: Engine, part: list[tuple[Address, Run]], maker: Maker | None) -> bool:
    """What has lost its queue since it was prepared, and may not make it again, has no route."""
    is_stored = False
    for address, run in _still_there(engine, part, maker and maker.counted):
        try:
            is_stored |= engine.publish_prepared(address, run)
        except StompboxError:
            engine.counters["dropped"] += len(run)
            engine.undelivered.note(address.name, NO_ROUTE, Fate.DROPPED, len(run))
    return is_stored


def is_long(transaction: Transaction) -> bool:
    """Whether its COMMIT is one for `committing`."""
    return len(transaction.sends) > STEP or len(transaction.answered) > STEP or any(len(sent) > STEP for _, sent in transaction.answered)


def prepare(engine: Engine, sends: list[tuple[Address, Run]], maker: Maker | None) -> None:
    """Makes the queues that several sends need. Raises for what may not be made, or not be sent now."""
    require_sends(engine, maker, sends)
    limits.require(sends)
    engine.schedules.require(sends)
    retained.check(sends)
    for address, run in sends:
        engine.require_disk(address, run)
        if run.queue:
            engine.exact_queue(address, run.queue, run.routing, maker)
        elif run.routing & ANYCAST and not address.anycast:
            engine.anycast_queue(address, maker=maker)


def _parts(items: list[T]) -> Iterator[list[T]]:
    for at in range(0, len(items), STEP):
        yield items[at : at + STEP]


def _publish(engine: Engine, transaction: Transaction, *, is_answered: bool) -> bool:
    """What it sends, as one unit with its acknowledgements."""
    unit = engine.commits.begin()
    unit.acked = transaction.acked
    is_stored = False
    try:
        for address, run in transaction.sends:
            is_stored |= engine.publish(address, run)
    finally:
        engine.commits.end(is_stored=is_stored and is_answered)
        transaction.unit = engine.commits.last
    return is_stored


def _still_there(engine: Engine, sends: list[tuple[Address, Run]], maker: Maker | None) -> list[tuple[Address, Run]]:
    """Addresses that went meanwhile come again, but for temporary ones: those had only one who would have read it."""
    found = []
    for address, run in sends:
        if engine.addresses.get(address.name) is address:
            found.append((address, run))
        elif address.owner:
            engine.counters["dropped"] += len(run)
            engine.undelivered.note(address.name, NO_ROUTE, Fate.DROPPED, len(run))
        else:
            again = engine.addresses.get(address.name) or engine.create_address(address.name, is_auto=True, maker=maker)
            again.add_kind(run.routing)
            found.append((again, run))
    return found
