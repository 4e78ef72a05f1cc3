"""Subscriptions and transactions that end, in steps: what one of them had may be a hundred thousand messages.

Between two steps others have their turn. So what is to end is cut off in the first: it gets nothing more. And a queue to which many
messages come back hands out nothing before all of them are there, so that they keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses import lifetimes
from stompbox.broker.addresses.attempts import Outcome, giving_back
from stompbox.broker.logs.cursor import FAR
from stompbox.broker.queues.queue import Kind, Queue
from stompbox.broker.work import COPY

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.engine import Engine
    from stompbox.broker.queues.consumer import Consumer, Sent
    from stompbox.broker.transaction import Transaction

STEP: Final = 64  # queues, or subscriptions, of one step: each may be dropped with all that belongs to it
PART: Final = 200  # segments that are taken from a subscription, or given to it again, in one step


def closing(engine: Engine, consumer: Consumer, *, is_failure: bool) -> Iterator[None]:
    """Ends a subscription: what it had and did not acknowledge goes back; queues of its own go with it. `is_failure`: its connection
    was lost, which is an attempt of the oldest message that it had."""
    consumer.is_closed, consumer.is_started = True, False
    written = consumer.written
    consumer.outbox.clear()
    consumer.allowance.subscribed -= consumer.cost
    while consumer.on_close:  # what is left of it refers to nobody
        consumer.on_close.pop()()
    sent: list[Sent] = []
    taken = 0
    for part in consumer.taking_all(PART):
        sent += part
        taken += 1 + len(part)
        if taken >= PART:
            taken = 0
            yield
    left: list[Queue] = []
    for number, binding in enumerate(list(consumer.bindings.values()), 1):
        queue = binding.queue
        if consumer.bindings.get(queue.id) is not binding:
            continue  # the queue has gone meanwhile
        queue.unbind(binding)
        if queue.kind in (Kind.TOPIC, Kind.STREAM, Kind.BROWSER):
            engine.drop_queue(queue)
        left.append(queue)
        if number % STEP == 0:
            yield
    yield from giving_back(engine, sent, Outcome.LOST if is_failure else Outcome.RETURNED, written)
    for number, queue in enumerate(left, 1):
        lifetimes.queue_left(engine, queue)
        if number % STEP == 0:
            yield
    engine.unacknowledged.denied.pop(consumer, None)
    engine.unacknowledged.feed()
    yield


def dropping(engine: Engine, address: Address, on_done: Callable[[], None]) -> Iterator[None]:
    """An address goes, with all of its queues; `on_done` is called then. It takes nothing meanwhile."""
    address.is_blocked = True
    while engine.addresses.get(address.name) is address and (queues := list(islice(address.queues(), STEP))):
        for queue in queues:
            engine.drop_queue(queue)
        engine.work.spend(COPY * len(queues))
        yield
    if engine.addresses.get(address.name) is address:
        engine.drop_address(address)
    on_done()


def aborting(engine: Engine, transaction: Transaction, *, is_failure: bool) -> Iterator[None]:
    """What it had acknowledged is unacknowledged again (and back in its queue when the subscription is gone)."""
    held: dict[Consumer, list[Sent]] = {}
    for number, (consumer, sent) in enumerate(transaction.answered, 1):
        held.setdefault(consumer, []).extend(sent)
        if number % PART == 0:
            yield
    for consumer, sent in held.items():
        yield from unholding(engine, consumer, sent, is_failure=is_failure)
        yield


def unholding(engine: Engine, consumer: Consumer, sent: list[Sent], *, is_failure: bool = False) -> Iterator[None]:
    """What a transaction had acknowledged of one subscription is not."""
    left = sent if consumer.is_closed else (yield from consumer.holding_again(sent, PART))
    if left:
        yield from giving_back(engine, left, Outcome.LOST if is_failure else Outcome.RETURNED, FAR)
