"""Durable subscriptions: named cursors on the addresses that a destination covers, with or without a subscriber.

Who returns with another destination, selector or no-local makes a new subscription, as JMS says: the old backlog goes.
An identity is its user's who made it; who may do what with it is asked in server/frames/subscribing.py.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from stompbox.broker import transactions
from stompbox.broker.addresses import retained
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.lifetimes import making
from stompbox.broker.addresses.makers import Maker, entry
from stompbox.broker.addresses.watching import Watcher
from stompbox.broker.engine import Engine
from stompbox.broker.kinds import Kind
from stompbox.broker.queues.consumer import Consumer, taken_off
from stompbox.broker.queues.matching import selector_entry
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions.subscribers import JOINED, LOOKED, MayReach, everything, is_there, reached
from stompbox.config.patterns import Patterns
from stompbox.config.spaces import joined, space_of
from stompbox.errors import IllegalFrame, Refused
from stompbox.message import MULTICAST
from stompbox.selectors import Selector

USER: Final = "\0"  # before the name of a user; no header of STOMP can hold it


@dataclass(slots=True, eq=False)
class DurableSubscription:
    """A named cursor per address that its destination covers; identity is (client-id, name), or (user, name) as RabbitMQ has it.
    `owner`: the user who made it; empty: nobody's, the first who takes it up makes it his. `maker`: the user for whom it counts.

    `pattern`: addresses and wildcards, with commas between them. A user in place of a client-id begins with USER.
    `may_reach` says which addresses its owner may consume from; after a restart it is not known until the owner comes back.
    """

    client_id: str
    name: str
    pattern: str
    selector: Selector | None
    no_local: bool
    owner: str = ""
    queues: list[Queue] = field(default_factory=list)
    watchers: list[Watcher] = field(default_factory=list)  # wait for addresses that its wildcards cover
    consumer: Consumer | None = None
    may_reach: MayReach = everything
    maker: str | None = None
    counts: bool = False  # for its maker (makers.py)
    leavings: int = 0  # how often a subscriber has left
    is_ending: bool = False  # its queues go just now

    def count_for(self, maker: Maker | None) -> None:
        self.maker = None if maker is None else maker.user

    def count(self, *, is_there: bool) -> None:
        """Says whether the subscription counts for its maker."""
        self.counts = is_there

    def belong_to(self, owner: str) -> None:
        self.owner = owner

    def take_up(self, consumer: Consumer, may_reach: MayReach) -> None:
        """A consumer has taken up the subscription."""
        self.consumer, self.may_reach = consumer, may_reach

    def give_up(self) -> None:
        """The consumer that was to take up the subscription was refused."""
        self.consumer = None

    def leave(self) -> None:
        """The consumer of the subscription has gone."""
        self.consumer = None
        self.leavings += 1

    def end(self) -> None:
        """The subscription ends: its queues go from now on."""
        self.is_ending = True

    @property
    def patterns(self) -> list[str]:
        return self.pattern.split(",")

    @property
    def identity(self) -> tuple[str, str]:
        return self.client_id, self.name

    @property
    def key(self) -> str:
        return json.dumps([self.client_id, self.name])

    @property
    def queue_name(self) -> str:
        """As Artemis calls the queue of a durable subscription; no two have the same. A user's begins with a dot."""
        space = space_of(shown(self.client_id))
        client_id = shown(self.client_id).removeprefix(space)
        return space + (
            joined("", client_id, self.name)
            if self.client_id.startswith(USER)
            else joined(client_id, self.name)
        )

    @property
    def plain_name(self) -> str:
        """The name with nothing escaped, as a configuration may call a queue that waits for the subscription."""
        return f"{shown(self.client_id)}.{self.name}"

    def is_same(self, other: DurableSubscription) -> bool:
        mine, others = selector_entry(self.selector), selector_entry(other.selector)
        return (self.pattern, mine, self.no_local) == (other.pattern, others, other.no_local)

    def __repr__(self) -> str:
        state = "active" if self.consumer is not None else "offline"
        return (
            f"<DurableSubscription {self.name} of {shown(self.client_id)} {state} queues={len(self.queues)}>"
        )


def to_durable(engine: Engine, consumer: Consumer, wish: DurableSubscription) -> bool:
    """A durable subscription, new or taken up again. True when it is new (or was changed, which JMS calls a new one)."""
    steps = joining(engine, consumer, wish)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


def joining(engine: Engine, consumer: Consumer, wish: DurableSubscription) -> Generator[None, None, bool]:
    """Joins a durable subscription in steps. Nobody else gets it meanwhile. What a crash has left of one that was being made, or dropped,
    is made whole."""
    known = _known(engine, wish)
    maker = consumer.allowance.maker
    wish.count_for(maker)
    _require_made(engine, wish, maker, is_new=known is None)
    yield from _making_addresses(engine, wish, maker)  # what can be refused comes first
    known = _known(engine, wish)
    _make_addresses(engine, wish, maker)  # one may have gone meanwhile
    durable = engine.durables.setdefault(wish.identity, wish)
    durable.take_up(consumer, wish.may_reach)
    try:
        covered = yield from _covered(engine, wish)
        consumer.allowance.require_bindings(consumer, len(covered))
        missing = yield from _missing(covered, durable)
        engine.makers.require(maker, queues=missing + (known is None))
    except Refused:
        durable.give_up()
        if known is None and engine.durables.get(wish.identity) is wish:
            del engine.durables[wish.identity]
        raise
    if known is not None and not known.is_same(wish) and not consumer.is_closed:
        wish.belong_to(known.owner or wish.owner)  # who may manage it does not take it
        yield from _dropping(engine, known)
        known, durable = None, wish
    _require_open(durable, consumer)
    if known is None:
        _begin(engine, durable, maker)
    elif wish.owner and not known.owner:
        known.belong_to(wish.owner)
        engine.put("durable", known.key, entry_of(known))
    durable.take_up(consumer, durable.may_reach)
    consumer.on_close.append(partial(_leave, engine, durable))
    yield from _binding(engine, durable)
    _require_open(durable, consumer)
    return known is None


def _known(engine: Engine, wish: DurableSubscription) -> DurableSubscription | None:
    """The subscription of this name, if it is there. Raises Refused where somebody has it."""
    known: DurableSubscription | None = engine.durables.get(wish.identity)
    if known is not None and (known.consumer is not None or known.is_ending):
        raise Refused(
            "durable-in-use",
            f"durable subscription {wish.name!r} of {shown(wish.client_id)!r} has a subscriber already",
        )
    return known


def _require_open(durable: DurableSubscription, consumer: Consumer) -> None:
    if consumer.is_closed:
        raise IllegalFrame(
            "no-such-subscription", f"durable subscription {durable.name!r} was ended while it was taken up"
        )


def _begin(engine: Engine, durable: DurableSubscription, maker: Maker | None) -> None:
    """Makes a durable subscription that joins addresses as they are made."""
    engine.durables[durable.identity] = durable
    engine.makers.made_durable(durable, is_there=True)
    engine.put("durable", durable.key, entry_of(durable))
    # one may just have gone with the subscription that this one replaces
    _make_addresses(engine, durable, maker and maker.counted)
    watch_durable(engine, durable)


def _require_made(engine: Engine, wish: DurableSubscription, maker: Maker | None, *, is_new: bool) -> None:
    """Raises Refused where the addresses that it names are more than its user may make; a wildcard makes none."""
    names = [
        name
        for name in dict.fromkeys(wish.patterns)
        if not engine.wildcards.is_wild(name) and name not in engine.addresses
    ]
    engine.makers.require(maker, addresses=len(names), queues=len(names) + is_new)


def _make_addresses(engine: Engine, durable: DurableSubscription, maker: Maker | None) -> None:
    for pattern in durable.patterns:
        if not engine.wildcards.is_wild(pattern):
            engine.address(pattern, MULTICAST, maker)


def _making_addresses(engine: Engine, durable: DurableSubscription, maker: Maker | None) -> Iterator[None]:
    for number, pattern in enumerate(durable.patterns):
        if not engine.wildcards.is_wild(pattern):
            if number:
                yield
            yield from making(engine, pattern, MULTICAST, maker)


def _binding(engine: Engine, durable: DurableSubscription) -> Iterator[None]:
    """Its subscriber gets the queues that it has; of what it covers beside them it gets queues now."""
    for number, queue in enumerate(list(durable.queues), 1):
        if queue.id in engine.queues:
            _bind(durable, queue)
        if number % JOINED == 0:
            yield
    covered = yield from _covered(engine, durable)
    for number, address in enumerate(covered, 1):
        if is_there(engine, address) and not durable.is_ending:
            _join(engine, durable, address, is_asked=True)
        if number % JOINED == 0:
            yield


def _covered(engine: Engine, durable: DurableSubscription) -> Generator[None, None, list[Address]]:
    """The addresses that it has a queue of, or would have, found in steps."""
    if not any(map(engine.wildcards.is_wild, durable.patterns)):
        exact = [
            engine.addresses[name] for name in dict.fromkeys(durable.patterns) if name in engine.addresses
        ]
        return [address for address in exact if not address.owner and durable.may_reach(address.name)]
    named = Patterns(engine.wildcards, durable.patterns)
    return (
        yield from reached(
            engine,
            lambda address: (
                named.reach(address.name) and not address.owner and durable.may_reach(address.name)
            ),
        )
    )


def _missing(covered: list[Address], durable: DurableSubscription) -> Generator[None, None, int]:
    """How many addresses there are of which the subscription has no queue, counted in steps."""
    missing = 0
    for number, address in enumerate(covered, 1):
        missing += not _is_joined(address, durable)
        if number % LOOKED == 0:
            yield
    return missing


def _bind(durable: DurableSubscription, queue: Queue) -> None:
    consumer = durable.consumer
    if consumer is not None and queue.id not in consumer.bindings and durable.may_reach(queue.address.name):
        queue.leave_out(consumer.session if durable.no_local else 0)
        queue.bind(consumer)


def _leave(engine: Engine, durable: DurableSubscription) -> None:
    durable.leave()
    watch_absence(engine, durable)


def watch_absence(engine: Engine, durable: DurableSubscription) -> None:
    """Without a subscriber it goes after `offline-durable-subscription-timeout` of its (first) destination."""
    timeout = engine.settings.resolve(durable.patterns[0]).offline_durable_subscription_timeout
    if timeout >= 0:
        engine.timers.at(engine.now + timeout, partial(_absent, engine, durable, durable.leavings))


def _absent(engine: Engine, durable: DurableSubscription, leavings: int) -> None:
    if engine.durables.get(durable.identity) is not durable or durable.is_ending:
        return
    if durable.consumer is None and durable.leavings == leavings:
        engine.counters["durable-subscriptions-timed-out"] += 1
        engine.later.take(durable, ending(engine, durable))


def watch_durable(engine: Engine, durable: DurableSubscription) -> None:
    """A durable wildcard subscription joins addresses that come later, with or without a subscriber."""
    for pattern in durable.patterns:
        if engine.wildcards.is_wild(pattern):
            watcher = Watcher(pattern, on_address=partial(_join, engine, durable))
            engine.watchers.add(watcher)
            durable.watchers.append(watcher)


def _join(engine: Engine, durable: DurableSubscription, address: Address, *, is_asked: bool = False) -> None:
    """Joins an address that the subscription covers. `is_asked`: its SUBSCRIBE is being obeyed. What comes later counts for its user where
    that has made the address, too."""
    if address.owner or not durable.may_reach(address.name) or _is_joined(address, durable):
        return
    queue = _preconfigured(address, durable)
    if queue is None:
        position = address.replay_from()
        maker = (
            Maker(durable.maker)
            if durable.maker is not None and (is_asked or address.maker == durable.maker)
            else None
        )
        queue = engine.new_queue(
            address,
            durable.queue_name,
            Kind.DURABLE,
            durable.selector,
            owner=durable.key,
            position=position,
            maker=maker,
        )
        retained.give(address, queue)
    durable.queues.append(queue)
    _bind(durable, queue)


def _is_joined(address: Address, durable: DurableSubscription) -> bool:
    there = [address.named.get(name) for name in (durable.queue_name, durable.plain_name)]
    return any(queue is not None and queue.owner == durable.key for queue in there)


def _preconfigured(address: Address, durable: DurableSubscription) -> Queue | None:
    """A queue of the name that the subscription's would have, which waits for it."""
    for name in (durable.queue_name, durable.plain_name):
        found = address.named.get(name)
        if found is not None and not found.owner and not found.bindings:
            found.belong_to(durable.key)
            address.engine.note_queue(found)
            return found
    return None


def drop_durable(engine: Engine, client_id: str, name: str) -> None:
    """Ends a durable subscription; its backlog goes, and so does its subscriber."""
    for _ in ending(engine, find_durable(engine, client_id, name)):
        pass


def ending(engine: Engine, durable: DurableSubscription) -> Iterator[None]:
    """Ends a durable subscription in steps. Nobody gets it meanwhile."""
    durable.end()
    if durable.consumer is not None:
        yield from transactions.closing(engine, durable.consumer, is_failure=False)
    yield from _dropping(engine, durable)


def _dropping(engine: Engine, durable: DurableSubscription) -> Iterator[None]:
    """Its entry in the catalogue goes last: none of its queues is ever nobody's."""
    durable.end()
    while durable.watchers:
        engine.watchers.remove(durable.watchers.pop())
    for part in taken_off(durable.queues, JOINED):
        for queue in part:
            if queue.id in engine.queues:
                engine.drop_queue(queue)
        yield
    del engine.durables[durable.identity]
    engine.makers.made_durable(durable, is_there=False)
    engine.put("durable", durable.key, None)


def find_durable(engine: Engine, client_id: str, name: str) -> DurableSubscription:
    found: DurableSubscription | None = engine.durables.get((client_id, name))
    if found is None or found.is_ending:
        whose = "user" if client_id.startswith(USER) else "client-id"
        raise IllegalFrame(
            "no-such-subscription", f"{whose} {shown(client_id)!r} has no durable subscription {name!r}"
        )
    return found


def shown(client_id: str) -> str:
    """The client-id, or the user in its place."""
    return client_id.removeprefix(USER)


# The catalogue


def entry_of(durable: DurableSubscription) -> dict[str, object]:
    return {
        "client_id": durable.client_id,
        "name": durable.name,
        "pattern": durable.pattern,
        "no_local": durable.no_local,
        "owner": durable.owner,
        **entry(durable.maker),
        **selector_entry(durable.selector),
    }


def recall(known: dict[str, Any], selector: Selector | None) -> DurableSubscription:
    client_id, name, pattern, no_local = (
        known["client_id"],
        known["name"],
        known["pattern"],
        known["no_local"],
    )
    return DurableSubscription(
        client_id, name, pattern, selector, no_local, known.get("owner", ""), maker=known.get("maker")
    )
