"""Messages that could not be delivered: copies with the reason in their headers, to a dead letter or expiry address.

    original-destination, _AMQ_ORIG_ADDRESS, _AMQ_ORIG_QUEUE, _AMQ_ORIG_MESSAGE_ID   where they came from, the first time: what the
                           broker says, never what their sender says
    dead-letter-reason     expired, max-delivery-attempts, rejected (NACK with requeue:false), no-route
    _AMQ_ACTUAL_EXPIRY     expired ones: when, ms since the epoch

With auto-create-dead-letter-resources (or -expiry-) each address has a queue of its own there, DLQ.<address> (EXP.<address>).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.queuearguments import settings_of
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import paging
from stompbox.broker.queues.queue import Kind
from stompbox.broker.undelivered import EXPIRED, NO_ROUTE, Fate, Loss
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
    from stompbox.broker.engine import Engine
    from stompbox.broker.queues.queue import Queue
    from stompbox.config.settings import AddressSettings

ORIGINAL_DESTINATION: Final = "original-destination"
ADDED: Final = frozenset((ORIGINAL_ID, ORIGINAL_ADDRESS, ORIGINAL_QUEUE, ORIGINAL_DESTINATION, REASON, ACTUAL_EXPIRY))
_TIMES: Final = frozenset(("expires", EXPIRATION, *SCHEDULED))  # asked for once; a copy neither expires nor waits


def is_last_stop(queue: Queue) -> bool:
    """Its dead letters would come to its own address."""
    return queue.address.name == _placed(queue.address, settings_of(queue).dead_letter_address)


def expired(engine: Engine, queue: Queue, segment: Segment) -> None:
    settings = settings_of(queue)
    why = {REASON: EXPIRED, ACTUAL_EXPIRY: str(engine.now)}
    own = _own_queue(settings, "expiry", queue.address)
    gone, _ = _send(engine, queue.address, segment, why, to=(settings.expiry_address, own), queue=queue)
    _note(engine, Loss(queue.name, EXPIRED, Fate.EXPIRED), len(segment) - gone, gone)


def dead(engine: Engine, queue: Queue, segment: Segment, reason: str) -> None:
    settings = settings_of(queue)
    own = _own_queue(settings, "dead_letter", queue.address)
    gone, _ = _send(engine, queue.address, segment, {REASON: reason}, to=(settings.dead_letter_address, own), queue=queue)
    _note(engine, Loss(queue.name, reason, Fate.DEAD_LETTER), len(segment) - gone, gone)


def unrouted(engine: Engine, address: Address, run: Run) -> bool:
    """send-to-dla-on-no-route. True when its receipt must wait for the next commit."""
    settings = address.settings
    own = _own_queue(settings, "dead_letter", address)
    segment = Segment(run, run.first, run.stop)
    gone, is_stored = _send(engine, address, segment, {REASON: NO_ROUTE}, to=(settings.dead_letter_address, own))
    _note(engine, Loss(address.name, NO_ROUTE, Fate.DEAD_LETTER), len(segment) - gone, gone)
    return is_stored


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


def _own_queue(settings: AddressSettings, what: str, address: Address) -> str:
    """The name of the queue that an address has for itself among the dead; empty without one."""
    if not getattr(settings, f"auto_create_{what}_resources"):
        return ""
    name, space = local(address.name), space_of(address.name)
    return f"{space}{getattr(settings, f'{what}_queue_prefix')}{name}{getattr(settings, f'{what}_queue_suffix')}"


def _send(
    engine: Engine, address: Address, segment: Segment, why: dict[str, str], *, to: tuple[str | None, str], queue: Queue | None = None
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
        columns.setdefault(ORIGINAL_ID, [b"%d-%d" % (queue.id, offset) for offset in range(segment.first, segment.stop)])
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
    is_stored = _forward_to(engine, name, own, address, copy) if own else engine.forward(name, copy, _routing(engine, name))
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
    return engine.route(target, run)


def _shape(address: Address, queue: Queue | None, shape: Shape, holes: tuple[str, ...], why: dict[str, str]) -> Shape:
    """The sender's headers; where the message came from, the first time if it dies again; and why."""
    headers = {name: value for name, value in shape.headers.items() if name not in _TIMES and name != ACTUAL_EXPIRY}
    came = {ORIGINAL_DESTINATION: shape.destination, ORIGINAL_ADDRESS: local(address.name)}
    if queue is not None:
        came[ORIGINAL_QUEUE] = local(queue.name)
    if ORIGINAL_ADDRESS not in shape.headers and ORIGINAL_ADDRESS not in holes:
        headers |= came
    return Shape(headers | why, holes=holes, persistent=shape.persistent, priority=shape.priority, has_length=shape.has_length)
