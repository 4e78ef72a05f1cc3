"""Who waits for addresses and queues that are not there yet, and which names a pattern covers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from stompbox.broker.queues.allowance import TooManyBindings
from stompbox.broker.queues.queue import Kind, Queue
from stompbox.config.matching import Wildcards, Words, is_match

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.engine import Engine

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Watcher:
    """A wildcard subscription waits for addresses (topics) and anycast queues that match."""

    words: Words
    on_address: Callable[[Address], None]
    on_queue: Callable[[Queue], None]


def is_reached(words: Words, address: Address) -> bool:
    """Whether a wildcard reaches an address. Temporary ones it does not."""
    return not address.owner and is_match(words, address.engine.wildcards.split(address.name))


def matcher(wildcards: Wildcards, patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether one of the patterns names an address. However many names there are among them."""
    exact = {pattern for pattern in patterns if not wildcards.is_wild(pattern)}
    wild = [wildcards.words(pattern) for pattern in patterns if wildcards.is_wild(pattern)]
    return lambda name: name in exact or any(is_match(words, wildcards.split(name)) for words in wild)


def join(engine: Engine, on_made: Callable[[T], None], made: T) -> None:
    """Whoever waits for it joins it. That one of them must not have it is not the fault of who has made it."""
    try:
        on_made(made)
    except TooManyBindings as error:
        engine.overbound.append(error)


def tell_of(engine: Engine, address: Address) -> None:
    """Whoever waits for addresses of such a name joins it."""
    for watcher in list(engine.watchers):
        if is_match(watcher.words, engine.wildcards.split(address.name)):
            join(engine, watcher.on_address, address)
    for group, patterns in engine.group_patterns.items():
        if any(engine.wildcards.is_named(pattern, address.name) for pattern in patterns):
            maker = engine.makers.of_group(group, address)
            engine.new_queue(address, group, Kind.GROUP, position=address.log.oldest, maker=maker)
