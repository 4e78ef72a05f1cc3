"""New address settings while the broker runs: what each address and its queues obey from now on, one address after the other.

There may be very many, so it goes in steps, between which others have their turn: an address obeys the old settings or the new ones,
whole, and one that is made meanwhile the new ones. What an address does not obey yet is not decided by the new settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses import limits
from stompbox.broker.logs import retention
from stompbox.config.matching import is_match

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.diverts import Divert
    from stompbox.broker.engine import Engine
    from stompbox.broker.kinds import Rules
    from stompbox.broker.queues.queue import Queue

STEP: Final = 32  # queues of one step

Sizes = Callable[[Iterable[int]], Mapping[int, tuple[int, int]]]
"""What the store has of logs (`Store.sizes`)."""


def resettling(engine: Engine, rules_for: Callable[[Queue], Rules], sizes: Sizes) -> Iterator[None]:
    """The engine has new settings: what is there stays, and what comes, and the next look at what is there, goes by them.
    `rules_for`: those of a queue, which may have some of its own."""
    for address in list(engine.addresses.values()):
        if engine.addresses.get(address.name) is address and engine.settings.resolve(address.name) != address.settings:
            yield from _obeying(address, rules_for, sizes)
        yield


def _obeying(address: Address, rules_for: Callable[[Queue], Rules], sizes: Sizes) -> Iterator[None]:
    engine, log = address.engine, address.log
    address.obey(engine.settings.resolve(address.name))
    retention.apply(address)
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
    """From now on messages go along these diverts, each of the addresses that its match covers, in this order; no others are there."""
    engine.diverts[:] = [(engine.wildcards.match_words(match), divert) for match, divert in diverts]
    yield
    for address in list(engine.addresses.values()):
        words = engine.wildcards.split(address.name)
        found = [divert for match, divert in engine.diverts if is_match(match, words)]
        if found or address.diverts:
            address.divert(found)
        yield
