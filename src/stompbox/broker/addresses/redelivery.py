"""Messages that come back unacknowledged: what counts as an attempt, how long they wait, and when it is enough.

| they come back by             | JMSXDeliveryCount | an attempt                                   | and then                          |
|-------------------------------|-------------------|----------------------------------------------|-----------------------------------|
| NACK                          | +1                | yes, each of them                            | wait, as it or the settings say   |
| the loss of their connection  | of the oldest +1  | of the oldest of each subscription           | the oldest waits, the rest at once |
| UNSUBSCRIBE, DISCONNECT, stop | +1                | no                                           | at once                           |

The oldest one is taken for the message that its client was at when it went: what was sent ahead has done nothing, and is not to die of
it. Where a client works on several at a time, the one that brings it down becomes the oldest in its turn.

After `max-delivery-attempts` a message is a dead letter. Where dead letters go already it stays: there is nowhere to go from there. It
is then delivered again at most once in PAUSE, so that two who cannot agree do not keep the broker busy.

A dead letter, or an expired message, is a copy with the reason in its headers, sent to a dead letter or expiry address:

    original-destination, _AMQ_ORIG_ADDRESS, _AMQ_ORIG_QUEUE, _AMQ_ORIG_MESSAGE_ID   where they came from, the first time: what the
                           broker says, never what their sender says
    dead-letter-reason     expired, max-delivery-attempts, rejected (NACK with requeue:false), no-route
    _AMQ_ACTUAL_EXPIRY     expired ones: when, ms since the epoch

With auto-create-dead-letter-resources (or -expiry-) each address has a queue of its own there, DLQ.<address> (EXP.<address>).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from stompbox.broker.addresses import routing
from stompbox.broker.addresses.contracts import address_of
from stompbox.broker.kinds import Kind
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import dispatch, paging
from stompbox.broker.queues.consumer import Sent, order
from stompbox.broker.undelivered import EXPIRED, NO_ROUTE, REJECTED, TOO_OFTEN, Fate, Loss
from stompbox.config.spaces import local, space_of
from stompbox.errors import SelectorError
from stompbox.message import (
    ACTUAL_EXPIRY,
    ANYCAST,
    EXPIRATION,
    ORIGINAL_ADDRESS,
    ORIGINAL_ID,
    ORIGINAL_QUEUE,
    REASON,
    SCHEDULED,
    Run,
    Shape,
)
from stompbox.selectors import compile_selector

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Engine
    from stompbox.broker.queues.state import QueueState
    from stompbox.config.settings import AddressSettings

PAUSE: Final = 1000  # ms
STEP: Final = 100  # segments that come back in one step: less than a millisecond,
PIECE: Final = 500  # and messages, where something is done for each of them


class Outcome(Enum):
    """Why messages that a consumer had come back unacknowledged, and what each of them is counted for it."""

    RETURNED = "returned"  # an orderly end, ABORT: a delivery, but no attempt
    # the connection was lost: an attempt of the oldest; the others were waiting for their turn, and nothing is counted
    LOST = "lost"
    FAILED = "failed"  # NACK: an attempt
    REJECTED = "rejected"  # NACK with requeue:false: a dead letter at once


class Refusal(NamedTuple):
    """What a NACK wants. `delay`: ms until the next delivery; None: as long as the settings say."""

    outcome: Outcome = Outcome.FAILED
    delay: int | None = None


FAILED: Final = Refusal()


def redelivery_delay(settings: AddressSettings, failures: int, chance: Callable[[], float]) -> int:
    """How long a message waits that has failed so often, in ms (Artemis: redelivery-delay and its companions). `chance`: Engine.chance."""
    first = settings.redelivery_delay
    most = settings.max_redelivery_delay if settings.max_redelivery_delay >= 0 else 10 * first
    try:
        delay = min(float(most), first * settings.redelivery_delay_multiplier ** (failures - 1))
    except OverflowError:
        delay = float(most)
    spread = settings.redelivery_collision_avoidance_factor
    if spread:
        delay += delay * spread * (2 * chance() - 1)
    return max(0, int(min(delay, most)))


def give_back(engine: Engine, sent: Sequence[Sent], outcome: Outcome, written: int) -> None:
    """Gives messages back at once, as `giving_back` does in steps."""
    for _ in giving_back(engine, sent, outcome, written):
        pass


def giving_back(
    engine: Engine, sent: Sequence[Sent], outcome: Outcome, written: int, delay: int | None = None
) -> Iterator[None]:
    """What one subscription had and did not acknowledge, in steps; what was handed out after `written` never left. Dispatch follows
    when all are back. `delay`: ms that a NACK wants them to wait, instead of what the settings say."""
    if not is_much(sent, outcome):
        queues: Iterable[QueueState] = _give_back(
            engine, sent, outcome, written, _oldest(sent, outcome), delay=delay
        )
        for queue in queues:
            queue.dispatch()
        return
    found: dict[QueueState, None] = {}
    eldest = []
    for part in _parts(sent):
        found.update(dict.fromkeys([binding.queue for binding, _ in part]))
        first = _oldest(part, outcome)
        eldest += [one for one in part if one[1] is first]
        yield
    queues = [queue for queue in found if queue.id in engine.queues]
    dispatch.withhold(engine, queues)
    oldest = _oldest(eldest, outcome)
    for part in _pieces(sent, outcome):
        _give_back(engine, part, outcome, written, oldest, delay=delay)
        yield
    dispatch.release(engine, queues)
    for queue in queues:
        if queue.id in engine.queues:
            queue.dispatch()
            yield


def _parts(sent: Sequence[Sent]) -> Iterator[Sequence[Sent]]:
    for at in range(0, len(sent), STEP):
        yield sent[at : at + STEP]


def is_much(sent: Sequence[Sent], outcome: Outcome) -> bool:
    """Whether it is more than one step to give so much back."""
    return len(sent) > STEP or sum([_each(one, outcome) for one in sent]) > PIECE


def _each(one: Sent, outcome: Outcome) -> int:
    """For how many messages of a segment something is done for each: they become dead letters, or wait, each for itself. A dead letter
    counts for several where it takes as long to send it."""
    binding, segment = one
    if outcome is Outcome.FAILED:
        settings = binding.queue.settings
        is_last = 0 <= settings.max_delivery_attempts <= segment.failures + 1
        if not is_last:
            return len(segment) if settings.redelivery_collision_avoidance_factor else 0
    elif outcome is not Outcome.REJECTED:
        return 0
    return len(segment) * _weight(binding.queue, segment)


def _weight(queue: QueueState, segment: Segment) -> int:
    return max(1, PIECE // dead_at_once(queue, segment))


def _at_once(queue: QueueState, name: str | None, segment: Segment) -> int:
    """Messages of a segment that may be sent to this address in one step."""
    address = address_of(queue)
    target = address.engine.addresses.get(_placed(address, name) or "")
    return routing.ALL if target is None else routing.sent_on_at_once(target, segment.run.shape)


def dead_at_once(queue: QueueState, segment: Segment) -> int:
    """Messages of a segment that may become dead letters in one step."""
    return _at_once(queue, queue.settings.dead_letter_address, segment)


def expired_at_once(queue: QueueState, segment: Segment) -> int:
    """Messages of a segment that may expire in one step."""
    return len(segment) if queue.reads_the_log else _at_once(queue, queue.settings.expiry_address, segment)


def _pieces(sent: Sequence[Sent], outcome: Outcome) -> Iterator[list[Sent]]:
    """What is given back in a step each. A segment is as long as its sender made it: it is cut where something is done for each
    message."""
    part: list[Sent] = []
    left = PIECE
    for one in sent:
        binding, segment = one
        while (each := _each(one, outcome)) > left:
            weight = each // len(segment)
            if left >= weight:
                part.append((binding, segment.cut(segment.first + left // weight)))
            yield part
            part, left = [], PIECE
        left -= each
        part.append(one)
        if len(part) == STEP:
            yield part
            part, left = [], PIECE
    if part:
        yield part


def _oldest(sent: Sequence[Sent], outcome: Outcome) -> Segment | None:
    return min(sent, key=order)[1] if sent and outcome is Outcome.LOST else None


def _give_back(
    engine: Engine,
    sent: Sequence[Sent],
    outcome: Outcome,
    written: int,
    oldest: Segment | None,
    *,
    delay: int | None,
) -> dict[QueueState, None]:
    """Gives segments back and returns the queues that have them now."""
    queues: dict[QueueState, None] = {}
    for binding, segment in sent:
        queue = binding.queue
        if queue.id not in engine.queues:
            continue
        queues[queue] = None
        if segment.turn > written:
            if engine.counts_first:
                segment.suspect()
            queue.take_back(segment)
        elif segment is oldest and len(segment) > 1:
            _come_back(queue, segment.cut(segment.first + 1), Outcome.FAILED)
            _come_back(queue, segment, outcome)
        else:
            _come_back(queue, segment, Outcome.FAILED if segment is oldest else outcome, delay)
    return queues


def _come_back(queue: QueueState, segment: Segment, outcome: Outcome, delay: int | None = None) -> None:
    segment.come_back(outcome is not Outcome.LOST, outcome is Outcome.FAILED)
    queue.tell_counts(segment)
    if segment.run.is_withdrawn or (queue.reads_the_log and not queue.bindings):
        queue.take_back(segment)
    elif outcome is Outcome.REJECTED:
        queue.die(segment, REJECTED)
    elif outcome is not Outcome.FAILED:
        queue.take_back(segment)
    elif _has_failed_enough(queue, segment):
        _fail_for_good(queue, segment)
    elif delay:
        queue.set_aside(segment, delay)
    elif delay is None and queue.settings.redelivery_delay > 0:
        _delay(queue, segment)
    else:
        queue.take_back(segment)


def _has_failed_enough(queue: QueueState, segment: Segment) -> bool:
    return segment.failures > 0 and 0 <= queue.settings.max_delivery_attempts <= segment.failures


def is_spent(queue: QueueState, segment: Segment) -> bool:
    """Messages that were found in the log had all their attempts before a restart."""
    return _has_failed_enough(queue, segment) and not is_last_stop(queue)


def _fail_for_good(queue: QueueState, segment: Segment) -> None:
    engine, settings = address_of(queue).engine, queue.settings
    if not is_last_stop(queue):
        queue.die(segment, TOO_OFTEN)
        return
    if segment.failures == settings.max_delivery_attempts:
        engine.undelivered.note(queue.name, TOO_OFTEN, Fate.KEPT, len(segment))
    queue.set_aside(segment, max(PAUSE, redelivery_delay(settings, segment.failures, engine.chance)))


def _delay(queue: QueueState, segment: Segment) -> None:
    """Each message for itself where they are to be spread: those that failed together would come together again."""
    settings, chance = queue.settings, address_of(queue).engine.chance
    each = 1 if settings.redelivery_collision_avoidance_factor else len(segment)
    while len(segment) > each:
        queue.set_aside(
            segment.cut(segment.first + each), redelivery_delay(settings, segment.failures, chance)
        )
    queue.set_aside(segment, redelivery_delay(settings, segment.failures, chance))


ORIGINAL_DESTINATION: Final = "original-destination"
ADDED: Final = frozenset(
    (ORIGINAL_ID, ORIGINAL_ADDRESS, ORIGINAL_QUEUE, ORIGINAL_DESTINATION, REASON, ACTUAL_EXPIRY)
)
# asked for once; a copy neither expires nor waits
_TIMES: Final = frozenset(("expires", EXPIRATION, *SCHEDULED))


def is_last_stop(queue: QueueState) -> bool:
    """Its dead letters would come to its own address."""
    return queue.address.name == _placed(address_of(queue), queue.settings.dead_letter_address)


def expired(engine: Engine, queue: QueueState, segment: Segment) -> None:
    settings = queue.settings
    why = {REASON: EXPIRED, ACTUAL_EXPIRY: str(engine.now)}
    own = _own_queue(
        address_of(queue),
        settings.expiry_queue_prefix,
        settings.expiry_queue_suffix,
        is_made=settings.auto_create_expiry_resources,
    )
    gone, _ = _send(engine, address_of(queue), segment, why, to=(settings.expiry_address, own), queue=queue)
    _note(engine, Loss(queue.name, EXPIRED, Fate.EXPIRED), len(segment) - gone, gone)


def dead(engine: Engine, queue: QueueState, segment: Segment, reason: str) -> None:
    settings = queue.settings
    own = _own_dead_letters(settings, address_of(queue))
    gone, _ = _send(
        engine,
        address_of(queue),
        segment,
        {REASON: reason},
        to=(settings.dead_letter_address, own),
        queue=queue,
    )
    _note(engine, Loss(queue.name, reason, Fate.DEAD_LETTER), len(segment) - gone, gone)


def unrouted(engine: Engine, address: Address, run: Run, ranges: Sequence[tuple[int, int]]) -> bool:
    """Sends messages of a run that nobody gets, all together, to the dead letter address, where the settings say so
    (send-to-dla-on-no-route). True when its receipt must wait for the next commit. What comes round in a circle ends here."""
    settings = address.settings
    before = engine.course.path
    count = sum([stop - first for first, stop in ranges])
    if not engine.course.strand(address.name, count):
        _note(engine, Loss(address.name, NO_ROUTE, Fate.DEAD_LETTER), 0, count)
        return False
    own = _own_dead_letters(settings, address)
    if len(ranges) > 1:
        run = _gathered(run, ranges)
        ranges = [(run.first, run.stop)]
    segment = Segment(run, *ranges[0])
    try:
        gone, is_stored = _send(
            engine, address, segment, {REASON: NO_ROUTE}, to=(settings.dead_letter_address, own)
        )
    finally:
        engine.course.go_back(before)
    _note(engine, Loss(address.name, NO_ROUTE, Fate.DEAD_LETTER), len(segment) - gone, gone)
    return is_stored


def _gathered(run: Run, ranges: Sequence[tuple[int, int]]) -> Run:
    """The messages of several ranges of a run, as a run of their own that is nowhere yet."""
    indexes = [offset - run.first for first, stop in ranges for offset in range(first, stop)]
    columns = tuple([[column[index] for index in indexes] for column in run.columns])
    bodies = [run.bodies[index] for index in indexes]
    return Run(run.shape, bodies, columns, first=0, arrived=run.arrived, sender=run.sender)


def _note(engine: Engine, loss: Loss, sent: int, gone: int) -> None:
    """`sent` messages went their way, and `gone` found nobody to take them."""
    if sent:
        engine.undelivered.note(*loss, sent)
    if gone:
        engine.counters["dropped"] += gone
        engine.undelivered.note(loss.queue, loss.reason, Fate.DROPPED, gone)


def _placed(address: Address, name: str | None) -> str | None:
    """What dies in a virtual host stays there."""
    return name and space_of(address.name) + name


def _own_dead_letters(settings: AddressSettings, address: Address) -> str:
    return _own_queue(
        address,
        settings.dead_letter_queue_prefix,
        settings.dead_letter_queue_suffix,
        is_made=settings.auto_create_dead_letter_resources,
    )


def _own_queue(address: Address, prefix: str, suffix: str, *, is_made: bool) -> str:
    """The name of the queue that an address has for itself among the dead; empty without one."""
    name, space = local(address.name), space_of(address.name)
    return f"{space}{prefix}{name}{suffix}" if is_made else ""


def _send(
    engine: Engine,
    address: Address,
    segment: Segment,
    why: dict[str, str],
    *,
    to: tuple[str | None, str],
    queue: QueueState | None = None,
) -> tuple[int, bool]:
    """A copy of each message: how many of them found nobody, and whether they must be stored. Without an address to send them to, or
    when that is their own, none is sent."""
    name, own = _placed(address, to[0]), to[1]
    if not name or name == address.name:
        return len(segment), False
    run = segment.run
    part = slice(segment.first - run.first, segment.stop - run.first)
    columns = {hole: column[part] for hole, column in zip(run.shape.holes, run.columns, strict=True)}
    if ORIGINAL_ID not in run.shape.headers and queue is not None:
        columns.setdefault(
            ORIGINAL_ID, [b"%d-%d" % (queue.id, offset) for offset in range(segment.first, segment.stop)]
        )
    for header in why:
        columns.pop(header, None)
    if ORIGINAL_ADDRESS not in run.shape.headers:  # its first time: this one is the sender's
        columns.pop(ORIGINAL_DESTINATION, None)
    shape = _shape(address, queue, run.shape, tuple(columns), why)
    if queue is not None and paging.is_doubtful(queue, segment):
        shape = shape.marked()
    copy = Run(shape, run.bodies[part], tuple(columns.values()), sender=run.sender)
    before, unit = engine.counters["unrouted"], engine.commits.unit
    sent = len(unit.sends) if unit is not None else 0
    is_stored = (
        _forward_to(engine, name, own, address, copy)
        if own
        else engine.forward(name, copy, _routing(engine, name))
    )
    if unit is not None and queue is not None:
        unit.set_apart(sent, run)
    return min(len(segment), engine.counters["unrouted"] - before), is_stored


def _routing(engine: Engine, name: str) -> int:
    """Where dead letters go there is a queue that keeps them, unless the configuration has made the address for subscriptions alone: who
    subscribes to it as to a topic must not be able to make them vanish."""
    target = engine.addresses.get(name)
    if target is None:
        return ANYCAST
    return target.kinds | ANYCAST if target.is_auto else 0


def _forward_to(engine: Engine, name: str, own: str, origin: Address, run: Run) -> bool:
    """To one queue, which takes only messages of `origin`; to all of the address where a selector cannot hold a name so long."""
    literal = local(origin.name).replace("'", "''")
    try:
        only_those = compile_selector(f"{ORIGINAL_ADDRESS} = '{literal}'")
    except SelectorError:
        return engine.forward(name, run)
    target = engine.addresses.get(name) or engine.create_address(name)
    if own not in target.anycast:
        engine.new_queue(target, own, Kind.ANYCAST, only_those, is_auto=True)
    run.routing, run.queue = ANYCAST, own
    kept = run if target.limits is None else target.limits.kept(run)
    return kept is not None and engine.route(target, kept)


def _shape(
    address: Address, queue: QueueState | None, shape: Shape, holes: tuple[str, ...], why: dict[str, str]
) -> Shape:
    """The sender's headers; where the message came from, the first time if it dies again; and why."""
    headers = {
        name: value for name, value in shape.headers.items() if name not in _TIMES and name != ACTUAL_EXPIRY
    }
    came = {ORIGINAL_DESTINATION: shape.destination, ORIGINAL_ADDRESS: local(address.name)}
    if queue is not None:
        came[ORIGINAL_QUEUE] = local(queue.name)
    if ORIGINAL_ADDRESS not in shape.headers and ORIGINAL_ADDRESS not in holes:
        headers |= came
    return shape.with_headers(headers | why, holes=holes, expires=0)
