"""When queues and addresses go by themselves: those that frames have made, when nobody needs them any more.

A queue goes when it has no consumer and few enough messages, an address when it has no queue, each after its delay
(`auto-delete-queues`, `auto-delete-addresses` and their companions). Nothing is ever looked through: whoever takes the last
consumer, message or queue away says so here.

The offsets of an address go on where they ended when it comes again, so that one offset never means two messages; it is the same log
then, of the same incarnation. So many of the latest names are remembered; new addresses begin beyond all that was forgotten, as logs
of their own.

Wildcard subscriptions wait for addresses and queues that are not there yet (`Watcher`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stompbox.broker.addresses.contracts import Ended, address_of
from stompbox.broker.addresses.notifications import Event
from stompbox.broker.kinds import Kind
from stompbox.broker.logs.log import Log
from stompbox.broker.queues.depth import has_more
from stompbox.broker.queues.queue import Queue
from stompbox.config.matching import Wildcards, Words, is_match
from stompbox.errors import TooManyBindings
from stompbox.incarnations import Incarnations, incarnations_of

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Engine

REMEMBERED: Final = 10_000  # names of addresses that are gone


def queue_made(engine: Engine, queue: Queue) -> None:
    engine.notifications.of_queue(Event.BINDING_ADDED, queue)
    settings = queue.settings
    if queue.is_auto and settings.auto_delete_queues_skip_usage_check:
        engine.timers.at(
            engine.now + settings.auto_delete_queues_delay, partial(_queue_due, engine, queue, queue.uses)
        )


def queue_left(engine: Engine, queue: Queue) -> None:
    """Its last consumer or message may have gone."""
    if not _may_go(engine, queue):
        return
    delay = queue.settings.auto_delete_queues_delay
    if delay > 0:
        engine.timers.at(engine.now + delay, partial(_queue_due, engine, queue, queue.uses))
    else:
        engine.drop_queue(queue)


def queue_gone(engine: Engine, queue: Queue) -> None:
    engine.notifications.of_queue(Event.BINDING_REMOVED, queue)
    address_left(engine, address_of(queue))


def _queue_due(engine: Engine, queue: Queue, uses: int) -> None:
    if queue.uses == uses and _may_go(engine, queue):
        engine.drop_queue(queue)


def _may_go(engine: Engine, queue: Queue) -> bool:
    settings = queue.settings
    if queue in engine.returning or engine.is_view:
        return False
    if (
        queue.bindings
        or queue.readers
        or queue.owner
        or queue.kind not in (Kind.ANYCAST, Kind.DURABLE)
        or queue.is_paused  # an operator wants it so, and whoever came next would have another one, which is not
        or queue.id not in engine.queues
    ):
        return False
    if not (settings.auto_delete_queues if queue.is_auto else settings.auto_delete_created_queues):
        return False
    is_asked = queue.kind is Kind.ANYCAST and queue.name in address_of(queue).arguments
    if is_asked and not queue.uses and not settings.auto_delete_queues_skip_usage_check:
        return False  # it goes with its last consumer, and a restart is none
    most = settings.auto_delete_queues_message_count
    fanout = address_of(queue).fanout if most >= 0 and queue.kind is Kind.DURABLE else None
    if fanout is not None:  # what waits there may be for it
        fanout.leaving[queue] = None
        return False
    return most < 0 or not has_more(queue, most)


def address_made(engine: Engine, address: Address) -> None:
    engine.notifications.of_address(Event.ADDRESS_ADDED, address)
    settings = address.settings
    if address.is_auto and settings.auto_delete_addresses_skip_usage_check:
        engine.timers.at(
            engine.now + settings.auto_delete_addresses_delay,
            partial(_address_due, engine, address, address.uses),
        )


def address_left(engine: Engine, address: Address) -> None:
    """Its last queue, or the last that its log keeps, may have gone."""
    if not _may_end(engine, address):
        return
    delay = address.settings.auto_delete_addresses_delay
    if delay > 0:
        engine.timers.at(engine.now + delay, partial(_address_due, engine, address, address.uses))
    else:
        engine.drop_address(address)


def _address_due(engine: Engine, address: Address, uses: int) -> None:
    if address.uses == uses and _may_end(engine, address):
        engine.drop_address(address)


def _may_end(engine: Engine, address: Address) -> bool:
    if (
        not (address.is_auto and address.settings.auto_delete_addresses)
        or engine.is_view
        or address.is_paused
        or address.is_blocked
        or engine.addresses.get(address.name) is not address
    ):
        return False
    return not address.is_in_use


# Offsets


def ended_of(wire: Any) -> Ended:
    """Stores of older brokers have the offset alone."""
    return (
        Ended(wire, Incarnations())
        if isinstance(wire, int)
        else Ended(int(wire["next"]), incarnations_of(wire["incarnations"]))
    )


def new_log(engine: Engine, id: int, name: str, *, is_temporary: bool) -> Log:
    """The log of a new address. It begins at 0, but for one that was there before."""
    # what the store knows of it goes when it knows the new log
    ended = None if is_temporary else engine.ended.pop(name, None)
    first = 0 if is_temporary else engine.beyond if ended is None else ended.next
    known = Incarnations() if ended is None else ended.incarnations
    return Log(id, name, known if known.entries else known.followed_by(engine.new_id(), first), first=first)


def remember(engine: Engine, address: Address) -> None:
    """An address is gone: its offsets are not to come again."""
    engine.notifications.of_address(Event.ADDRESS_REMOVED, address)
    log = address.log
    if log.next <= engine.beyond:
        return
    ended = engine.ended[address.name] = Ended(log.next, log.incarnations)
    if log.is_known:
        engine.put("ended", address.name, ended.wire())
    while len(engine.ended) > REMEMBERED:
        oldest = next(iter(engine.ended))
        engine.forget_ended(oldest)
        engine.put("ended", oldest, None)
        engine.put("beyond", "", engine.beyond)


T = TypeVar("T")


def is_reached(words: Words, address: Address) -> bool:
    """Whether a wildcard reaches an address. Temporary ones it does not."""
    return not address.owner and is_match(words, address.engine.wildcards.split(address.name))


def matcher(wildcards: Wildcards, patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether one of the patterns names an address. However many names there are among them."""
    exact = {pattern for pattern in patterns if not wildcards.is_wild(pattern)}
    wild = [wildcards.words(pattern) for pattern in patterns if wildcards.is_wild(pattern)]
    return lambda name: name in exact or any(is_match(words, wildcards.split(name)) for words in wild)


def join_made(engine: Engine, on_made: Callable[[T], None], made: T) -> None:
    """Whoever waits for it joins it. That one of them must not have it is not the fault of who has made it."""
    try:
        on_made(made)
    except TooManyBindings as error:
        engine.overbound.append(error)


def tell_of(engine: Engine, address: Address) -> None:
    """Whoever waits for addresses of such a name joins it."""
    for watcher in list(engine.watchers):
        if is_match(watcher.words, engine.wildcards.split(address.name)):
            join_made(engine, watcher.on_address, address)
    for group, patterns in engine.group_patterns.items():
        if any(engine.wildcards.is_named(pattern, address.name) for pattern in patterns):
            maker = engine.makers.of_group(group, address)
            engine.new_queue(address, group, Kind.GROUP, position=address.log.oldest, maker=maker)
