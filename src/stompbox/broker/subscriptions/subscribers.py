"""SUBSCRIBE and UNSUBSCRIBE: which queues a consumer is bound to, now and as addresses come.

The consumer is bound but gets nothing before `start`: the RECEIPT of its SUBSCRIBE goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from stompbox.broker.addresses import retained
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.addresses.lifetimes import is_reached, joining, making
from stompbox.broker.addresses.makers import require_all
from stompbox.broker.addresses.watching import Watcher
from stompbox.broker.engine import Engine
from stompbox.broker.kinds import Kind
from stompbox.broker.queues.browsing import browse
from stompbox.broker.queues.consumer import Binding, Consumer
from stompbox.broker.queues.queue import Queue
from stompbox.broker.work import MESSAGE
from stompbox.errors import IllegalFrame, Refused
from stompbox.message import ANYCAST, MULTICAST
from stompbox.selectors import Selector

MayReach = Callable[[str], bool]

JOINED: Final = 16  # queues that are made and bound in one step: about a millisecond
LOOKED: Final = 100  # addresses of which one step asks whether they are meant


@dataclass(frozen=True, slots=True)
class Plain:
    """What a plain topic subscription wants. `most_waiting`: so many messages wait for it at most, the oldest go; -1 any number."""

    selector: Selector | None = None
    no_local: bool = False
    most_waiting: int = -1


def everything(_: str) -> bool:
    """What a wildcard may reach when nobody says otherwise."""
    return True


def start(consumer: Consumer) -> None:
    """Lets messages go out to a consumer from now on; what waits already, as retained messages do, of some queues after the other."""
    consumer.start()
    bindings = list(consumer.bindings.values())
    if bindings:
        bindings[0].queue.engine.later.take(
            (start, consumer), _starting(consumer, bindings), by=consumer.session
        )


def _starting(consumer: Consumer, bindings: list[Binding]) -> Iterator[None]:
    for number, binding in enumerate(bindings, 1):
        queue = binding.queue
        if queue.id in consumer.bindings:
            consumer.bindings[queue.id].readmit()
            queue.dispatch()
        if number % JOINED == 0:
            queue.engine.work.spend(MESSAGE * JOINED)
            yield


def kind_of_queue(address: Address, destination: Destination) -> int:
    """The kind of the one queue that `address::queue` names, which is the one that is there, whatever kind is asked for: that decides
    between two of the same name alone. 0 where there is none."""
    queues = (ANYCAST, address.anycast), (MULTICAST, address.named)
    kinds = [kind for kind, there in queues if destination.queue in there]
    if destination.routing in kinds:
        return destination.routing
    return kinds[0] if kinds else 0


def routing_of(engine: Engine, destination: Destination) -> int:
    """What a destination means: the kind of the queue that it names, if that is there, else the kind that is asked for; of one that says
    nothing the kinds that its address has, else its settings."""
    known = engine.addresses.get(destination.address)
    if known is not None and destination.queue and (kind := kind_of_queue(known, destination)):
        return kind
    if destination.routing:
        return destination.routing
    if known is not None and known.kinds:
        return ANYCAST if known.kinds & ANYCAST else MULTICAST
    return engine.default_routing(destination.address, of_queue=bool(destination.queue))


def require_queue(engine: Engine, destination: Destination) -> None:
    """Raises where a destination that must be there is not."""
    known = engine.addresses.get(destination.address)
    if known is None or (destination.queue or destination.address) not in known.anycast:
        raise IllegalFrame(
            "no-such-queue",
            f"queue {destination.text[:200]!r} does not exist, and this name of it makes none",
        )


def reached(engine: Engine, is_wanted: Callable[[Address], bool]) -> Generator[None, None, list[Address]]:
    """The addresses that are there when it begins and are wanted, found in steps. Whoever asks waits for those that come later, and looks
    whether the others are still there."""
    found = []
    for number, address in enumerate(list(engine.addresses.values()), 1):
        if is_wanted(address):
            found.append(address)
        if number % LOOKED == 0:
            yield
    return found


def is_there(engine: Engine, address: Address) -> bool:
    return engine.addresses.get(address.name) is address


def to_queue(
    engine: Engine, consumer: Consumer, destination: Destination, may_reach: MayReach = everything
) -> None:
    """Competing consumer on an anycast queue, on one that `address::queue` names, or on all that a wildcard reaches."""
    for _ in joining_queues(engine, consumer, destination, may_reach):
        pass


def joining_queues(
    engine: Engine, consumer: Consumer, destination: Destination, may_reach: MayReach = everything
) -> Iterator[None]:
    """Joins the queues of a destination for a consumer, in steps."""

    if not destination.is_wild:
        kind = routing_of(engine, destination)
        maker = consumer.allowance.maker
        require_all(engine, maker, [(destination.address, destination.queue, kind)])
        address = yield from making(engine, destination.address, kind, maker)
        queue = engine.exact_queue(address, destination.queue, kind, maker)
        yield from joining(address)
        bind(queue, consumer)
        return
    may_join = partial(_may_join, consumer, may_reach)
    _watch(
        engine, consumer, Watcher(destination.address, on_queue=partial(_join_allowed, consumer, may_reach))
    )
    matching = yield from reached(engine, partial(is_reached, destination.words))
    queues = [queue for address in matching for queue in address.anycast.values() if may_join(queue)]
    consumer.allowance.require_bindings(consumer, len(queues))
    for number, queue in enumerate(queues, 1):
        if queue.id in engine.queues and may_join(queue):
            _join(queue, consumer)
        if number % JOINED == 0:
            yield


def _may_join(consumer: Consumer, may_reach: MayReach, queue: Queue) -> bool:
    """One queue that takes nobody more must not keep others away, nor fail whoever makes it."""
    return not queue.is_full and may_reach(queue.address.name) and queue.id not in consumer.bindings


def _join_allowed(consumer: Consumer, may_reach: MayReach, queue: Queue) -> None:
    if _may_join(consumer, may_reach, queue):
        _join(queue, consumer)


def bind(queue: Queue, consumer: Consumer) -> None:
    if queue.id in consumer.bindings:  # named twice in one destination
        return
    if queue.is_full:
        raise Refused(
            "too-many-consumers",
            f"queue {queue.name!r} takes no more than {queue.rules.max_consumers} consumers",
        )
    _join(queue, consumer)


def _join(queue: Queue, consumer: Consumer) -> None:
    if queue.rules.is_non_destructive:
        browse(queue.engine, queue, consumer, goes_on=True)
    else:
        queue.bind(consumer)


def _watch(engine: Engine, consumer: Consumer, watcher: Watcher) -> None:
    engine.watchers.add(watcher)
    consumer.watch(watcher.pattern, len(engine.wildcards.split(watcher.pattern)))
    consumer.on_close.append(partial(engine.watchers.remove, watcher))


class Joined:
    """The topics that a subscription to several destinations has joined: what two of them cover comes once."""

    __slots__ = ("_most", "_queues")

    def __init__(self) -> None:
        self._queues: dict[str, int] = {}  # its queue there, by the name of the address
        self._most = JOINED

    def has(self, engine: Engine, address: Address) -> bool:
        return self._queues.get(address.name, -1) in engine.queues

    def note(self, engine: Engine, queue: Queue) -> None:
        if len(self._queues) >= self._most:  # addresses come and go
            self._queues = {name: id for name, id in self._queues.items() if id in engine.queues}
            self._most = 2 * len(self._queues) + JOINED
        self._queues[queue.address.name] = queue.id


def to_topic(
    engine: Engine,
    consumer: Consumer,
    destination: Destination,
    wish: Plain,
    *,
    may_reach: MayReach = everything,
    joined: Joined | None = None,
) -> None:
    """A plain subscription: from the next message on (or what the address keeps for newcomers), gone with its connection. `joined`: what
    other destinations of it have joined."""
    for _ in joining_topics(engine, consumer, destination, wish, may_reach=may_reach, joined=joined):
        pass


def joining_topics(
    engine: Engine,
    consumer: Consumer,
    destination: Destination,
    wish: Plain,
    *,
    may_reach: MayReach = everything,
    joined: Joined | None = None,
) -> Iterator[None]:
    """Joins topics in steps: each address from the next message on after it was joined."""
    topics = _Topics(engine, consumer, wish, may_reach, joined)
    if not destination.is_wild:
        address = yield from making(engine, destination.address, MULTICAST, consumer.allowance.maker)
        if topics.is_new(address):
            join_topic(engine, consumer, address, wish, joined)
        return
    _watch(engine, consumer, Watcher(destination.address, on_address=topics.join))
    words = destination.words
    found = yield from reached(
        engine,
        lambda address: is_reached(words, address) and may_reach(address.name) and topics.is_new(address),
    )
    consumer.allowance.require_bindings(consumer, len(found))
    for number, address in enumerate(found, 1):
        if is_there(engine, address):
            topics.join(address)
        if number % JOINED == 0:
            yield


@dataclass(frozen=True, slots=True, eq=False)
class _Topics:
    """How one wildcard of a plain subscription joins topics."""

    engine: Engine
    consumer: Consumer
    wish: Plain
    may_reach: MayReach
    joined: Joined | None

    def is_new(self, address: Address) -> bool:
        return self.joined is None or not self.joined.has(self.engine, address)

    def join(self, address: Address) -> None:
        if self.may_reach(address.name) and self.is_new(address):
            join_topic(self.engine, self.consumer, address, self.wish, self.joined)


def join_topic(
    engine: Engine, consumer: Consumer, address: Address, wish: Plain, joined: Joined | None = None
) -> None:
    consumer.allowance.require_bindings(consumer)
    position = address.replay_from()
    queue = engine.new_queue(address, consumer.queue_name, Kind.TOPIC, wish.selector, position=position)
    queue.leave_out(consumer.session if wish.no_local else 0)
    if wish.most_waiting >= 0:
        queue.obey(replace(queue.rules, ring_size=wish.most_waiting))
    retained.give(address, queue)
    queue.bind(consumer)
    if joined is not None:
        joined.note(engine, queue)


def to_stream(engine: Engine, consumer: Consumer, destination: Destination, position: int) -> None:
    """A reader of an address's log from an offset on; it takes nothing from anybody."""
    consumer.allowance.require_bindings(consumer)
    address = engine.address(destination.address, maker=consumer.allowance.maker)
    engine.new_queue(address, consumer.queue_name, Kind.STREAM, consumer.selector, position=position).bind(
        consumer
    )
