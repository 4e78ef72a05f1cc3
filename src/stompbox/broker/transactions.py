"""Transactions, and subscriptions that end: what happens to very many messages at once.

A transaction holds sends, acknowledgements and refusals that happen together at COMMIT, or not at all: all of it is in one commit of the
store, or nothing of it.

What a subscription or a transaction that ends has had may be a hundred thousand messages, so it ends in steps; between two of them others
have their turn. So what is to end is cut off in the first: it gets nothing more. And a queue to which many messages come back hands out
nothing before all of them are there, so that they keep their order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from stompbox.broker import commits
from stompbox.broker.addresses import lifetimes, limits, retained
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.fanout import finishing
from stompbox.broker.addresses.makers import Maker, Wanted, require_all, require_sends
from stompbox.broker.addresses.redelivery import Outcome, Refusal, giving_back, is_much
from stompbox.broker.addresses.routing import asking_ahead, at_once, in_parts
from stompbox.broker.addresses.unitofwork import UnitOfWork
from stompbox.broker.commits import letting_acked_go
from stompbox.broker.kinds import Kind
from stompbox.broker.logs.cursor import FAR
from stompbox.broker.logs.segments import cost_of
from stompbox.broker.queues.consumer import Consumer, Sent, ordering, taken_off
from stompbox.broker.queues.queue import Queue
from stompbox.broker.undelivered import NO_ROUTE, Fate
from stompbox.broker.work import COPY
from stompbox.errors import StompboxError
from stompbox.message import ANYCAST, Run, room_of

if TYPE_CHECKING:
    from stompbox.broker.addresses.repeating import Schedules
    from stompbox.broker.queues.memory import Unacknowledged

EMPTY: Final = 512  # octets of memory that one takes which holds nothing


class Engine(commits.Engine, Protocol):
    """What transactions ask of the engine above them."""

    @property
    def commits(self) -> commits.Commits: ...
    @property
    def schedules(self) -> Schedules: ...
    @property
    def unacknowledged(self) -> Unacknowledged: ...

    def acknowledge(self, consumer: Consumer, sent: list[Sent]) -> None: ...
    def refuse(self, consumer: Consumer, sent: list[Sent], refusal: Refusal) -> None: ...
    def refusing(self, consumer: Consumer, sent: list[Sent], refusal: Refusal) -> Iterator[None]: ...
    def feed_denied(self) -> None: ...
    def abort(self, transaction: Transaction, *, is_failure: bool = False) -> None: ...


class Transaction:
    """Nothing of it is visible before COMMIT; what its ACKs and NACKs name stays held until then, or until ABORT."""

    __slots__ = ("acked", "maker", "name", "refused", "rights", "sends", "size", "unit", "written")

    def __init__(self, name: str, maker: Maker | None = None, rights: int = 0) -> None:
        self.name = name
        self.rights = rights  # the number of those under which it was begun; 0: they are asked for again
        self.maker = maker  # for whom what it makes counts
        self.sends: list[tuple[Address, Run]] = []
        self.acked: list[tuple[Consumer, list[Sent]]] = []
        self.refused: list[tuple[Consumer, list[Sent], Refusal]] = []
        self.unit: UnitOfWork | None = None  # after COMMIT, where a receipt waits for the disk
        self.written = 0  # octets of bodies that it holds in memory
        self.size = EMPTY + room_of(name)  # octets of memory, about

    def replace_sends(self, sends: list[tuple[Address, Run]]) -> None:
        """Replaces what the transaction sends: the addresses may have gone and come again."""
        self.sends = sends

    def doubt(self) -> None:
        """Somebody else's rights count for it now."""
        self.rights = 0

    def wait_for(self, unit: UnitOfWork | None) -> None:
        """The receipt of its COMMIT waits until this is stored."""
        self.unit = unit

    @property
    def is_refusable(self) -> bool:
        """Whether its sender gets an ERROR when it cannot be stored."""
        return self.unit is not None and self.unit.is_refusable

    @property
    def answered(self) -> list[tuple[Consumer, list[Sent]]]:
        """Everything of subscriptions that the transaction acknowledges or refuses."""
        return self.acked + [(consumer, sent) for consumer, sent, _ in self.refused]

    def __repr__(self) -> str:
        parts = f"sends={len(self.sends)} acks={len(self.acked)} nacks={len(self.refused)}"
        return f"<Transaction {self.name} {parts} bytes={self.size}>"


STEP: Final = 50  # runs of messages, or acknowledgements, of one step: about half a millisecond

T = TypeVar("T")


def commit(engine: Engine, transaction: Transaction, *, is_answered: bool) -> bool:
    """True when its receipt must wait for the next commit. When it raises it was aborted. `is_answered`: somebody waits for a receipt."""
    maker = transaction.maker
    try:
        require_sends(engine, maker, transaction.sends)
        transaction.replace_sends(_still_there(engine, transaction.sends, maker))
        engine.prepare(transaction.sends, maker)
    except StompboxError:
        engine.abort(transaction)
        raise
    is_durable = any(binding.queue.is_durable for _, sent in transaction.answered for binding, _ in sent)
    is_durable |= _publish(engine, transaction, is_answered=is_answered)
    for consumer, sent in transaction.acked:
        engine.acknowledge(consumer, sent)
    for consumer, sent, refusal in transaction.refused:
        engine.refuse(consumer, sent, refusal)
    return is_durable and engine.is_durable


def committing(engine: Engine, transaction: Transaction, *, is_answered: bool) -> Generator[None, None, bool]:
    """Commits a transaction that has very much, in steps between which others have their turn. No commit of the store is taken from the
    first message to the last acknowledgement; so after a crash all of it is there, or nothing. Others wait for a commit meanwhile, and one
    comes between two such transactions."""
    try:
        yield from _preparing(engine, transaction)
    except StompboxError:
        engine.abort(transaction)
        raise
    of_each = yield from _at_once_of_each(transaction.sends)
    answered = yield from _in_order(transaction.acked)
    commits = engine.commits
    while not commits.may_be_held():
        yield
    unit = UnitOfWork(acked=transaction.acked)
    is_durable, is_stored, acknowledged = False, False, 0
    commits.hold()
    try:
        for part in _pieces(transaction.sends, of_each):
            commits.resume(unit)
            is_stored |= _publish_part(engine, part, transaction.maker)
            unit.look()
            commits.suspend()
            yield
            yield from finishing(part)
        for consumer, sent in answered:
            for held in taken_off(sent, PART):
                is_durable = is_durable or _is_durable(held)
                engine.acknowledge(consumer, held)
                acknowledged += len(held)
                if acknowledged >= PART:
                    acknowledged = 0
                    yield
        for consumer, sent, refusal in transaction.refused:
            for held in _parts(sent):
                is_durable = is_durable or _is_durable(held)
                yield
            yield from engine.refusing(consumer, sent, refusal)
            yield
    finally:
        commits.resume(unit)
        commits.end(is_stored=is_stored and is_answered)
        transaction.wait_for(commits.last)
        commits.let_go()
    if transaction.unit is None:  # nobody waits for the disk, and nothing takes it back
        yield from letting_go(unit.sends)
        yield from letting_acked_go(engine, transaction.acked)
    for _ in taken_off(transaction.refused, PART):
        yield
    return (is_durable or is_stored) and engine.is_durable


def _in_order(
    acked: list[tuple[Consumer, list[Sent]]],
) -> Generator[None, None, list[tuple[Consumer, list[Sent]]]]:
    """What each consumer acknowledges, in the order in which it was sent, whatever the order of its ACKs: together and in order it takes a
    fraction of the time, in which nobody's commit is taken."""
    by_consumer: dict[Consumer, list[Sent]] = {}
    for part in _parts(acked):
        for consumer, sent in part:
            by_consumer.setdefault(consumer, []).extend(sent)
        yield
    found: list[tuple[Consumer, list[Sent]]] = []
    for consumer, sent in by_consumer.items():
        found.append((consumer, (yield from ordering(sent, PART))))
    return found


def _is_durable(sent: list[Sent]) -> bool:
    return any(binding.queue.is_durable for binding, _ in sent)


def _preparing(engine: Engine, transaction: Transaction) -> Iterator[None]:
    """Raises where something of it may not be sent, and nothing has been then."""
    found: list[tuple[Address, Run]] = []
    maker = transaction.maker
    wanted: dict[Wanted, None] = {}
    for part in _parts(transaction.sends):
        wanted |= dict.fromkeys(
            [(address.name, run.queue, run.routing) for address, run in part if not address.owner]
        )
        yield
    require_all(engine, maker, wanted)
    for part in _parts(transaction.sends):
        found += _still_there(engine, part, maker)
        yield
    before = transaction.sends
    transaction.replace_sends(found)
    for _ in taken_off(before, PART):
        yield
    yield from limits.requiring(found)
    for part in _parts(found):
        for address, run in part:  # which may take long: others' commits are taken meanwhile
            yield from asking_ahead(address, run)
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
    """Whether the COMMIT of a transaction is long, and so one for `committing`."""
    return (
        len(transaction.sends) > STEP
        or len(transaction.answered) > STEP
        or any(len(sent) > STEP for _, sent in transaction.answered)
        or any(is_much(sent, refusal.outcome) for _, sent, refusal in transaction.refused)
        or any(at_once(address, run.shape) < max(2, len(run)) for address, run in transaction.sends)
    )


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


def _at_once_of_each(sends: list[tuple[Address, Run]]) -> Generator[None, None, list[int]]:
    """How many messages of each may go in one step: found while nobody waits for the end of it."""
    found: list[int] = []
    for part in _parts(sends):
        found += [at_once(address, run.shape) for address, run in part]
        yield
    return found


def _pieces(sends: list[tuple[Address, Run]], most: list[int]) -> Iterator[list[tuple[Address, Run]]]:
    """What is sent in one step: STEP runs, but no more messages than are sent at once where something is done for each of them."""
    for part, of_each in zip(_parts(sends), _parts(most), strict=True):
        if min(of_each) >= sum([len(run) for _, run in part]):
            yield part
            continue
        for (address, run), some in zip(part, of_each, strict=True):
            for piece in in_parts(run, some):
                yield [(address, piece)]


def _publish(engine: Engine, transaction: Transaction, *, is_answered: bool) -> bool:
    """What it sends, as one unit with its acknowledgements."""
    unit = engine.commits.begin()
    unit.acknowledge(transaction.acked)
    is_stored = False
    try:
        for address, run in transaction.sends:
            is_stored |= engine.publish(address, run)
    finally:
        engine.commits.end(is_stored=is_stored and is_answered)
        transaction.wait_for(engine.commits.last)
    return is_stored


def _still_there(
    engine: Engine, sends: list[tuple[Address, Run]], maker: Maker | None
) -> list[tuple[Address, Run]]:
    """Addresses that went meanwhile come again, but for temporary ones: those had only one who would have read it."""
    found = []
    for address, run in sends:
        if engine.addresses.get(address.name) is address:
            found.append((address, run))
        elif address.owner:
            engine.counters["dropped"] += len(run)
            engine.undelivered.note(address.name, NO_ROUTE, Fate.DROPPED, len(run))
        else:
            again = engine.addresses.get(address.name) or engine.create_address(
                address.name, is_auto=True, maker=maker
            )
            again.add_kind(run.routing)
            found.append((again, run))
    return found


ENDED: Final = 64  # queues, or subscriptions, of one step: each may be dropped with all that belongs to it
# octets of messages that are let go in one step: the system takes them back, a third of a millisecond
LET_GO: Final = 4 << 20
PART: Final = 200  # segments that are taken from a subscription, or given to it again, in one step


def closing(engine: Engine, consumer: Consumer, *, is_failure: bool) -> Iterator[None]:
    """Ends a subscription: what it had and did not acknowledge goes back; queues of its own go with it. `is_failure`: its connection
    was lost, which is an attempt of the oldest message that it had."""
    consumer.close()
    written, outbox = consumer.written, consumer.take_outbox()
    _tell(consumer)  # what is left of it refers to nobody
    sent: list[Sent] = []
    for part in consumer.taking_all(PART):
        sent += part
        yield
    left: list[Queue] = []
    for bindings in taken_off(list(consumer.bindings.values()), ENDED):
        for binding in bindings:
            queue = cast("Queue", binding.queue)
            if consumer.bindings.get(queue.id) is not binding:
                continue  # the queue has gone meanwhile
            queue.unbind(binding)
            if queue.kind in (Kind.TOPIC, Kind.STREAM, Kind.BROWSER):
                engine.drop_queue(queue)
            left.append(queue)
        yield
    _tell(consumer)  # who has found it bound meanwhile, and waits for its end
    yield from giving_back(engine, sent, Outcome.LOST if is_failure else Outcome.RETURNED, written)
    for queues in taken_off(left, ENDED):  # a queue that has gone is let go here, with all that it had
        for queue in queues:
            lifetimes.queue_left(engine, queue)
        yield
    for _ in taken_off(sent, PART):
        yield
    for _ in taken_off(outbox, PART):
        yield
    engine.unacknowledged.denied.pop(consumer, None)
    engine.feed_denied()
    yield


def _tell(consumer: Consumer) -> None:
    while consumer.on_close:
        consumer.on_close.pop()()


def dropping(engine: Engine, address: Address) -> Generator[None, None, dict[Consumer, None]]:
    """An address goes, with all of its queues; who had consumed from these. It takes nothing meanwhile."""
    parted: dict[Consumer, None] = {}
    address.block()
    while engine.addresses.get(address.name) is address and (queues := list(islice(address.queues(), ENDED))):
        for queue in queues:
            parted |= yield from dropping_queue(engine, queue)
        engine.work.spend(COPY * len(queues))
        yield
    if engine.addresses.get(address.name) is address:
        engine.drop_address(address)
    return parted


def dropping_queue(engine: Engine, queue: Queue) -> Generator[None, None, dict[Consumer, None]]:
    """A queue goes, whatever it has; who had consumed from it. It hands out nothing meanwhile."""
    parted: dict[Consumer, None] = {}
    queue.pause()
    while queue.bindings:
        bindings = list(islice(queue.bindings, ENDED))
        for binding in bindings:
            parted[binding.consumer] = None
            queue.unbind(binding)
        engine.work.spend(COPY * len(bindings))
        yield
    if engine.queues.get(queue.id) is queue:
        engine.drop_queue(queue)
    return parted


def aborting(engine: Engine, transaction: Transaction, *, is_failure: bool) -> Iterator[None]:
    """What it had acknowledged is unacknowledged again (and back in its queue when the subscription is gone)."""
    held: dict[Consumer, list[Sent]] = {}
    for acked in taken_off(transaction.acked, PART):
        for consumer, sent in acked:
            held.setdefault(consumer, []).extend(sent)
        yield
    for refused in taken_off(transaction.refused, PART):
        for consumer, sent, _ in refused:
            held.setdefault(consumer, []).extend(sent)
        yield
    for consumer, sent in held.items():
        yield from unholding(engine, consumer, sent, is_failure=is_failure)
        for _ in taken_off(sent, PART):
            yield
    yield from letting_go(transaction.sends)


def letting_go(sends: list[tuple[Address, Run]]) -> Iterator[None]:
    """Nobody needs these messages any more. The list is empty then."""
    while sends:
        size = 0
        for _ in range(min(PART, len(sends))):
            _, run = sends.pop()
            size += cost_of(run)
            if size > LET_GO:
                break
        yield


def unholding(
    engine: Engine, consumer: Consumer, sent: list[Sent], *, is_failure: bool = False
) -> Iterator[None]:
    """What a transaction had acknowledged of one subscription is not."""
    left = sent if consumer.is_closed else (yield from consumer.holding_again(sent, PART))
    if left:
        yield from giving_back(engine, left, Outcome.LOST if is_failure else Outcome.RETURNED, FAR)
