"""ACK and NACK: which messages a client means, and what becomes of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from stompbox.broker import transactions
from stompbox.broker.addresses.redelivery import FAILED, STEP, Outcome, Refusal, is_much
from stompbox.broker.queues.consumer import AckMode, Consumer, Sent, taken_off
from stompbox.broker.transactions import PART, Transaction
from stompbox.errors import IllegalFrame, StompboxError
from stompbox.server import readonly
from stompbox.server.addressing.values import number, truth
from stompbox.server.frames.transactions import transaction_of
from stompbox.stomp.frames import Frame
from stompbox.stomp.runs import MESSAGE_ID, Acks

HELD: Final = 256  # octets that messages in a transaction take beside their bodies, at a guess
TOGETHER: Final = 100  # segments that a run of ACKs acknowledges in one step: two milliseconds,
FEW: Final = 4  # subscriptions that are looked at sooner than who consumes from a queue
LOOKED: Final = 16  # and half as many for each of so many subscriptions that are looked at for each
_DONE: Final = object()
_CLIENT: Final = AckMode.CLIENT

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import Speaker

REDELIVERY_DELAY: Final = "redelivery-delay"  # a header of NACK
_PLAIN_NACK: Final = {  # what a NACK means that says no more, by the listener's nackPolicy
    "attempt": FAILED,
    "requeue": Refusal(Outcome.RETURNED),
    "dead-letter": Refusal(Outcome.REJECTED),
}
OPENMQ_ID: Final = "/subscription-to/"  # how the id begins that a SUBSCRIBE without one gets (OpenMQ)


def acks(connection: Speaker, event: Acks) -> Iterator[None] | None:
    """A run of ACKs for one queue's messages, without receipts: as if each came by itself. In steps where they are many, or one of them may
    speak for very many messages."""
    if connection.options.read_only:
        readonly.require_command("ACK")
    offsets = event.offsets
    first, count = offsets[0], len(offsets)
    if count == 1:
        consumers = _subscribed(connection, event.queue)
        if _most_at_once(connection, consumers):
            _acknowledge(connection, consumers, event.queue, first, first + 1)
            return None
    if count > 1 and offsets[-1] - first + 1 == count and offsets == list(range(first, first + count)):
        stretches: Iterable[tuple[int, int]] = [(first, first + count)]
    else:
        stretches = [(offset, offset + 1) for offset in offsets]
    steps = _acknowledging(connection, event.queue, stretches)
    return steps if next(steps, _DONE) is None else None


def _acknowledging(connection: Speaker, queue: int, stretches: Iterable[tuple[int, int]]) -> Iterator[None]:
    """What is wrong with one of them is said of that one, and the others are obeyed where the connection stays."""
    consumers = _subscribed(connection, queue)
    most, done = _most_at_once(connection, consumers), 0
    for start, stop in stretches:
        at = start
        while at < stop and not connection.is_ended:  # STOMP 1.2, ERROR: nothing behind it is obeyed
            try:
                if most:
                    count, at = _acknowledge(connection, consumers, queue, at, stop)
                    done += count
                else:
                    yield from ack(connection, _frame_of(connection, queue, at)) or ()
                    done, at = done + 1, at + 1
            except StompboxError as error:
                if not connection.is_ended:
                    connection.refuse(error)
                done, at = done + 1, at + 1
            if done >= (most or TOGETHER):
                yield
                consumers = _subscribed(connection, queue)
                most, done = _most_at_once(connection, consumers), 0


def _most_at_once(connection: Speaker, consumers: Collection[Consumer]) -> int:
    """Messages of a run of ACKs, for one of these, that are acknowledged in one step; 0: each ACK goes by itself, as it may belong to the
    transaction that is open, or speak for more than a step's worth."""
    if connection.options.single_transaction:
        return 0
    for consumer in consumers:
        if consumer.ack is _CLIENT and len(consumer.ledger) > STEP:
            return 0
    return max(1, TOGETHER // (1 + len(consumers) // LOOKED))


def _subscribed(connection: Speaker, queue: int) -> Collection[Consumer]:
    """The subscriptions of the connection that may have messages of this queue: all, or those of the queue's consumers that are its own,
    whichever are looked at sooner."""
    consumers = connection.consumers
    if len(consumers) <= FEW:
        return consumers.values()
    known = connection.broker.engine.queues.get(queue)
    if known is None:
        return ()
    if len(known.bindings) >= len(consumers):
        return consumers.values()
    found = [binding.consumer for binding in known.bindings]
    return [consumer for consumer in found if consumers.get(consumer.name) is consumer]


def _frame_of(connection: Speaker, queue: int, offset: int) -> Frame:
    return Frame("ACK", {connection.session.version.ack_header: f"{queue}-{offset}"})


def _acknowledge(
    connection: Speaker, consumers: Collection[Consumer], queue: int, first: int, stop: int
) -> tuple[int, int]:
    """As many of these as the first subscription has that has one: how many segments that were, and the offset that comes next. `client`:
    each of them must be good, so they go one by one."""
    for consumer in consumers:
        if not consumer.may_have(queue, first):
            continue
        end = first + 1 if consumer.ack is _CLIENT else stop
        sent, reached = consumer.take(queue, first, end, TOGETHER)
        if reached > first:
            connection.broker.engine.acknowledge(consumer, sent)
            return len(sent), reached
    raise _unknown_message(f"{queue}-{first}")


def _unknown_message(name: str) -> IllegalFrame:
    return IllegalFrame("unknown-message", f"no message {name[:80]!r} waits for an acknowledgement here")


def ack(connection: Speaker, frame: Frame) -> Iterator[None] | None:
    return _answer(connection, frame, None)


def nack(connection: Speaker, frame: Frame) -> Iterator[None] | None:
    """A failed delivery: redelivered, or dead after too many, or at once where the client wants it so (RabbitMQ's header requeue).

    `redelivery-delay` says for this one delivery what the setting of that name says for all of an address: ms until the next one.
    """
    if "requeue" in frame.headers and not truth(frame, "requeue"):
        return _answer(connection, frame, Refusal(Outcome.REJECTED))
    if REDELIVERY_DELAY not in frame.headers:
        return _answer(connection, frame, _PLAIN_NACK[connection.options.nack_policy.value])
    delay = number(frame, REDELIVERY_DELAY)
    if delay < 0:
        raise IllegalFrame(
            "bad-number", f"header {REDELIVERY_DELAY} is {delay}; allowed is a number of ms from 0 on"
        )
    return _answer(connection, frame, Refusal(Outcome.FAILED, delay))


def _answer(connection: Speaker, frame: Frame, refusal: Refusal | None) -> Iterator[None] | None:
    """Obeys an ACK, or a NACK: `refusal` says what becomes of what it refuses, and is None for an ACK."""
    name = frame.headers.get("transaction")
    if connection.options.ack_in_transaction.value == "ignore":
        name = None
    transaction = transaction_of(connection, name) if name is not None else None
    much = _speaks_for_many(connection, frame)
    if much is not None:
        return _taking(connection, frame, much, transaction, refusal)
    consumer, sent = _take(connection, frame)
    return _answer_for(connection, frame, consumer, sent, transaction, refusal=refusal)


class Many(NamedTuple):
    """What a cumulative ACK or NACK speaks for: what the subscription was sent up to this message, which is more than a step's worth."""

    consumer: Consumer
    queue: int
    offset: int


def _speaks_for_many(connection: Speaker, frame: Frame) -> Many | None:
    known = MESSAGE_ID.fullmatch(frame.headers[connection.session.version.ack_header])
    if known is None:
        return None
    queue, offset = int(known[1]), int(known[2])
    for consumer in _candidates(connection, frame, queue):
        binding = consumer.bindings.get(queue)
        if (
            consumer.ack is _CLIENT
            and len(consumer.ledger) > STEP
            and binding is not None
            and offset in binding.unacked
        ):
            return Many(consumer, queue, offset)
    return None


def _taking(
    connection: Speaker,
    frame: Frame,
    many: Many,
    transaction: Transaction | None,
    refusal: Refusal | None,
) -> Iterator[None]:
    """Who goes before all is taken, has acknowledged nothing of it."""
    consumer, queue, offset = many
    sent, octets = list[Sent](), 0
    while part := consumer.take_before(queue, offset, PART):
        sent += part
        octets += _octets_of(part)
        yield
    part = consumer.take(queue, offset, offset + 1)[0]
    sent += part
    octets += _octets_of(part)
    if not sent:  # a transaction that is being aborted gives it back just now
        raise _unknown_message(f"{queue}-{offset}")
    is_over = transaction is not None and connection.transactions.get(transaction.name) is not transaction
    if consumer.is_closed or connection.is_ended or is_over:
        yield from transactions.unholding(connection.broker.engine, consumer, sent)
        if transaction is not None:
            transaction_of(connection, transaction.name)  # it was too slow
        return
    yield from (
        _answer_for(connection, frame, consumer, sent, transaction, refusal=refusal, octets=octets) or ()
    )


def _octets_of(sent: list[Sent]) -> int:
    """Octets that these take in a transaction: they stay in memory until COMMIT or ABORT."""
    return sum([HELD + segment.octets for _, segment in sent])


def _answer_for(
    connection: Speaker, frame: Frame, consumer: Consumer, sent: list[Sent], transaction: Transaction | None,
    *, refusal: Refusal | None, octets: int = 0,
) -> Iterator[None] | None:  # fmt: skip
    """Answers for the messages that an ACK or a NACK names. `octets`: those of `sent`, where they have been added up."""
    engine = connection.broker.engine
    if connection.options.single_transaction:
        try:
            transaction = _current(connection, consumer, transaction)
        except IllegalFrame:
            consumer.hold_again(sent)
            raise
    if consumer.is_browser and refusal is not None:
        consumer.hold_again(sent)
        raise IllegalFrame("nack-on-browser", "a browser takes nothing that it could give back")
    if transaction is not None:
        transaction.size += octets or _octets_of(sent)
        if refusal is None:
            transaction.acked.append((consumer, sent))
        else:
            transaction.refused.append((consumer, sent, refusal))
        engine.feed(consumer)  # an ACK in a transaction frees credit when it arrives
        connection.answer(frame, waits=False)
        return None
    steps = _settling(connection, frame, consumer, sent, refusal)
    if len(sent) > STEP or (refusal is not None and is_much(sent, refusal.outcome)):
        return steps
    for _ in steps:
        pass
    return None


def _settling(
    connection: Speaker, frame: Frame, consumer: Consumer, sent: list[Sent], refusal: Refusal | None
) -> Iterator[None]:
    engine = connection.broker.engine
    is_durable = False
    for part in taken_off(sent, STEP) if refusal is None else _parts(sent):
        is_durable = is_durable or any(binding.queue.is_durable for binding, _ in part)
        if refusal is None:
            engine.acknowledge(consumer, part)
        yield
    if refusal is not None:
        yield from engine.refusing(consumer, sent, refusal)
    connection.answer(frame, waits=is_durable and engine.is_durable and "receipt" in frame.headers)


def _parts(sent: list[Sent]) -> Iterator[list[Sent]]:
    for at in range(0, len(sent), STEP):
        yield sent[at : at + STEP]


def _current(connection: Speaker, consumer: Consumer, named: Transaction | None) -> Transaction | None:
    """OpenMQ: ACKs of a transacted subscription belong to the transaction that is open, those of others to none."""
    if consumer not in connection.transacted:
        if named is not None:
            raise IllegalFrame(
                "transaction-not-allowed",
                f"subscription {consumer.name[:80]!r} is not transacted: leave transaction out",
            )
        return None
    if named is not None:
        return named
    if not connection.transactions:
        raise IllegalFrame(
            "no-such-transaction",
            f"subscription {consumer.name[:80]!r} is transacted, and no transaction is open",
        )
    return next(iter(connection.transactions.values()))


def _take(connection: Speaker, frame: Frame) -> tuple[Consumer, list[Sent]]:
    name = frame.headers[connection.session.version.ack_header]
    known = MESSAGE_ID.fullmatch(name)
    if known is None:
        raise _unknown_message(name)
    queue, offset = int(known[1]), int(known[2])
    for consumer in _candidates(connection, frame, queue):
        if consumer.may_have(queue, offset):
            sent, reached = consumer.take(queue, offset, offset + 1)
            if reached > offset:
                return consumer, sent
    raise _unknown_message(name)


def _candidates(connection: Speaker, frame: Frame, queue: int) -> Iterable[Consumer]:
    """The subscriptions whose message it may be: the one that the frame names, or all where the id is enough (STOMP 1.2, 1.0)."""
    version, consumers, options = connection.session.version, connection.consumers, connection.options
    names_it = version.ack_needs_subscription or (
        options.openmq_subscription_ids and not version.sends_ack_id
    )
    if not names_it:
        return _subscribed(connection, queue)
    wanted = frame.headers.get("subscription")
    if not options.require_ids and not options.openmq_subscription_ids and wanted not in consumers:
        return _subscribed(connection, queue)  # RabbitMQ: the message's id is enough
    if wanted is None:  # OpenMQ: the first one that has no id of its client's
        wanted = next((id for id in consumers if id.startswith(OPENMQ_ID)), None)
        if wanted is None:
            text = f"{frame.command} has no header subscription, and no subscription here has an id that begins with {OPENMQ_ID}"
            raise IllegalFrame("missing-subscription", text)
    if wanted not in consumers:
        raise IllegalFrame("no-such-subscription", f"this connection has no subscription {wanted[:80]!r}")
    return (consumers[wanted],)
