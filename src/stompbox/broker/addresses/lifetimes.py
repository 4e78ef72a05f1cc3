"""When queues and addresses go by themselves: those that frames have made, when nobody needs them any more.

A queue goes when it has no consumer and few enough messages, an address when it has no queue, each after its delay
(`auto-delete-queues`, `auto-delete-addresses` and their companions). Nothing is ever looked through: whoever takes the last
consumer, message or queue away says so here.

The offsets of an address go on where they ended when it comes again, so that one offset never means two messages; it is the same log
then, of the same incarnation. So many of the latest names are remembered; new addresses begin beyond all that was forgotten, as logs
of their own.

Wildcard subscriptions and reader groups wait for addresses and queues that are not there yet (watching.py). Where very many wait for one
they join it in steps; until the last has, whatever is published there waits for it, or has them join first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stompbox.broker.addresses.contracts import Ended, address_of
from stompbox.broker.addresses.notifications import Event
from stompbox.broker.addresses.watching import Watcher
from stompbox.broker.kinds import Kind
from stompbox.broker.logs.log import Log
from stompbox.broker.queues.depth import has_more
from stompbox.broker.queues.queue import Queue
from stompbox.broker.work import MESSAGE
from stompbox.config.matching import Words, is_match
from stompbox.errors import TooManyBindings
from stompbox.incarnations import Incarnations, incarnations_of

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Engine
    from stompbox.broker.addresses.makers import Maker

REMEMBERED: Final = 10_000  # names of addresses that are gone
AT_ONCE: Final = (
    16  # who waits for an address joins it at once where there are no more of them: a millisecond
)


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


# Who waits for what is made


def is_reached(words: Words, address: Address) -> bool:
    """Whether a wildcard reaches an address. Temporary ones it does not."""
    return not address.owner and is_match(words, address.engine.wildcards.split(address.name))


def tell_of(engine: Engine, address: Address) -> None:
    """Whoever waits for addresses of such a name joins it."""
    found = [watcher for watcher in engine.watchers.of(address.name) if watcher.on_address is not None]
    _let_join(engine, address, [partial(_join, engine, address, watcher, None) for watcher in found])


def tell_of_queue(engine: Engine, queue: Queue) -> None:
    """Whoever waits for anycast queues of such addresses joins it."""
    address = address_of(queue)
    found = [watcher for watcher in engine.watchers.of(address.name) if watcher.on_queue is not None]
    _let_join(engine, address, [partial(_join, engine, address, watcher, queue) for watcher in found])


def _let_join(engine: Engine, address: Address, joining: Sequence[Callable[[], None]]) -> None:
    """Few join at once; very many some at a time, before anything is published there."""
    if len(joining) <= AT_ONCE and address.unjoined is None:
        for join in joining:
            join()
    elif joining:
        address.await_joins(joining)
        engine.later.add((tell_of, address), partial(_go_on_joining, engine, address))


def _go_on_joining(engine: Engine, address: Address) -> None:
    engine.later.take((tell_of, address), joining(address))


def _join(engine: Engine, address: Address, watcher: Watcher, queue: Queue | None) -> None:
    """Whoever has made it is not at fault where somebody must not have it."""
    if not watcher.is_waiting or engine.addresses.get(address.name) is not address:
        return  # one of the two has gone meanwhile
    try:
        if queue is None:
            if watcher.on_address is not None:
                watcher.on_address(address)
        elif watcher.on_queue is not None and queue.id in engine.queues:
            watcher.on_queue(queue)
    except TooManyBindings as error:
        engine.overbound.append(error)


def joining(address: Address) -> Iterator[None]:
    """Whoever waits for what was made joins it, one in each step. Several may be at it: each takes who comes next."""
    while (left := address.unjoined) is not None:
        if left:
            left.popleft()()
            address.engine.work.spend(MESSAGE)
            yield
        else:
            address.all_joined()


def join_all(address: Address) -> None:
    """Something is published there: who waits for it joins before."""
    for _ in joining(address):
        pass


def looking(engine: Engine, name: str) -> Iterator[None]:
    """Looks in steps for those who wait for an address of this name, if it is not there. It is to be made in the last of them."""
    if name not in engine.addresses and engine.watchers.are_there:
        yield from engine.watchers.looking(name)


def making(
    engine: Engine, name: str, kind: int = 0, maker: Maker | None = None
) -> Generator[None, None, Address]:
    """The address as `Engine.address` has it, in steps: very many may wait for one of such a name."""
    yield from looking(engine, name)
    address = engine.address(name, kind, maker)
    yield from joining(address)
    return address


def await_names(engine: Engine, group: str, patterns: Iterable[str]) -> None:
    """A reader group waits for addresses of these names."""
    engine.watchers.add_group(group, patterns, partial(_join_group, engine, group))
    engine.later.take(engine.watchers, engine.watchers.filing(engine.work))


def await_no_names(engine: Engine, group: str, patterns: Iterable[str]) -> None:
    """A reader group that is gone waits for nothing; `patterns`: all that it named."""
    engine.watchers.remove_group(group, patterns)
    engine.later.take(engine.watchers, engine.watchers.filing(engine.work))


def _join_group(engine: Engine, group: str, address: Address) -> None:
    if group not in address.groups:
        maker = engine.makers.of_group(group, address)
        engine.new_queue(address, group, Kind.GROUP, position=address.log.oldest, maker=maker)
