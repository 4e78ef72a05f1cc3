"""What an address and its queues obey beside the settings of their names: arguments of frames, and new settings while the broker runs.

Arguments are what a frame has asked of a queue that it made: keys of address settings that are this queue's alone, as long as it is there.

They are stored with the queue. Address settings that are stricter win: nobody makes a message live longer than they say.

There may be very many addresses, so new settings are put into force in steps, between which others have their turn: an address obeys the
old settings or the new ones, whole, and one that is made meanwhile the new ones. What an address does not obey yet is not decided by the
new settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses import limits
from stompbox.broker.kinds import LIFE, Arguments, applied, rules_of
from stompbox.broker.logs.retention import Retention, retention_rules
from stompbox.broker.timers import Alarm
from stompbox.config.matching import is_match
from stompbox.errors import Refused, StompboxError
from stompbox.message import ANYCAST
from stompbox.store.base import Part

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Divert, Engine
    from stompbox.broker.addresses.makers import Maker
    from stompbox.broker.kinds import Rules
    from stompbox.broker.queues.queue import Queue


def is_there(engine: Engine, address: str, queue: str) -> bool:
    known = engine.addresses.get(address)
    return known is not None and queue in known.anycast


def require_same(engine: Engine, address: str, queue: str, arguments: Arguments) -> None:
    """Raises where the queue is there, and is not as these arguments say."""
    if not is_there(engine, address, queue):
        return
    known = engine.addresses[address]
    found, rules = known.settings_of(queue), known.anycast[queue].rules
    wanted = applied(known.settings, arguments)
    differ = [name for name in arguments if getattr(found, name) != getattr(wanted, name)]
    if (
        not differ
        and rules.ring_size == rules_of(found).ring_size
        and rules.is_exclusive == rules_of(found).is_exclusive
    ):
        return
    said = ", ".join(
        [
            f"{name.replace('_', '-')} {getattr(found, name)!r}, not {arguments[name]!r}"
            for name in differ or arguments
        ]
    )
    raise Refused("queue-arguments-differ", f"queue {queue!r} is there with other arguments: {said}")


def require_possible(engine: Engine, address: str, arguments: Arguments) -> None:
    """Raises where the settings of the address make an argument mean nothing."""
    if LIFE in arguments and engine.settings.resolve(address).no_expiry:
        raise Refused(
            "argument-not-allowed",
            f"messages of {address!r} never expire (no-expiry); x-message-ttl cannot change that",
        )


def make(engine: Engine, address: str, queue: str, arguments: Arguments, maker: Maker | None = None) -> None:
    """The queue, where it is not there yet: it stays, so that its arguments do, unless they say when it goes. Raises for what may not be
    made; nothing is left of the arguments then."""
    if is_there(engine, address, queue):
        return
    found = engine.address(address, ANYCAST, maker)
    found.ask(queue, {"auto_delete_queues": False, **arguments})
    try:
        engine.anycast_queue(found, queue, maker)
    except StompboxError:
        found.ask(queue, {})
        raise


STEP: Final = 32  # queues of one step

Sizes = Callable[[Iterable[int]], Mapping[int, tuple[int, int]]]
"""What the store has of logs (`Store.sizes`)."""


def obeying(engine: Engine, rules_for: Callable[[Queue], Rules], sizes: Sizes) -> Iterator[None]:
    """The engine has new settings: what is there stays, and what comes, and the next look at what is there, goes by them.
    `rules_for`: those of a queue, which may have some of its own."""
    for address in list(engine.addresses.values()):
        if (
            engine.addresses.get(address.name) is address
            and engine.settings.resolve(address.name) != address.settings
        ):
            yield from _obeying_one(address, rules_for, sizes)
        yield


def _obeying_one(address: Address, rules_for: Callable[[Queue], Rules], sizes: Sizes) -> Iterator[None]:
    engine, log = address.engine, address.log
    address.obey(engine.settings.resolve(address.name))
    apply_retention(address)
    limits.change(address)
    stored: tuple[int, int] | None = None
    for number, queue in enumerate(list(address.queues()), 1):
        if queue.id not in engine.queues:
            continue
        limits.meter(queue)
        if (count := limits.unmeasured(queue)) > 0:
            stored = stored or sizes([log.id]).get(log.id, (0, 0))
            limits.estimate(queue, count, stored)
        if queue.kind in limits.METERED:
            queue.obey(rules_for(queue))
        engine.dispatch_later(queue)
        if number % STEP == 0:
            yield


def diverting(engine: Engine, diverts: Sequence[tuple[str, Divert]]) -> Iterator[None]:
    """Makes messages go along these diverts, each of the addresses that its match covers, in this order; no others are there."""
    engine.diverts[:] = [(engine.wildcards.match_words(match), divert) for match, divert in diverts]
    yield
    for address in list(engine.addresses.values()):
        words = engine.wildcards.split(address.name)
        found = [divert for match, divert in engine.diverts if is_match(match, words)]
        if found or address.diverts:
            address.divert(found)
        yield


def apply_retention(address: Address) -> None:
    """The address's settings are new: what stays in its log."""
    rules, log, engine = retention_rules(address.settings), address.log, address.engine
    retention = log.retention
    if address.owner or rules == (-1, -1, -1):
        retention = None
    elif retention is None:
        retention = Retention(rules, Alarm(engine.timers, lambda: _retention_due(address)))
    else:
        retention.obey(rules)
    log.keep(address.settings.retroactive_message_count, retention)
    if log.retention is not None and log.oldest < log.next:
        engine.commits.dirty[address] = None
    address.look_again()


def _retention_due(address: Address) -> None:
    """Some of it is too old now: the next commit says so."""
    engine = address.engine
    if engine.logs.get(address.log.id) is address:
        engine.commits.dirty[address] = None


def outline_retention(engine: Engine, stored: Callable[[int], Iterable[Part]]) -> None:
    """After a start: what the store has of each log that keeps something (`Store.outline`)."""
    for address in engine.addresses.values():
        retention, log = address.log.retention, address.log
        if retention is None or not log.is_known:
            continue
        for part in stored(log.id):
            retention.add(part)
        engine.commits.dirty[address] = None
