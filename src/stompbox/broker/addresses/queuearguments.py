"""What a frame has asked of a queue that it made: keys of address settings that are this queue's alone, as long as it is there.

They are stored with the queue. Address settings that are stricter win: nobody makes a message live longer than they say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from stompbox.broker.kinds import rules_of
from stompbox.broker.queues.queue import Kind, Queue
from stompbox.errors import Refused, StompboxError
from stompbox.message import ANYCAST

if TYPE_CHECKING:
    from stompbox.broker.addresses.makers import Maker
    from stompbox.broker.engine import Engine
    from stompbox.config.settings import AddressSettings

Arguments = Mapping[str, Any]  # by attribute name of config.AddressSettings
_LIFE: Final = "max_expiry_delay"


def applied(settings: AddressSettings, arguments: Arguments) -> AddressSettings:
    """The settings of an address as they are for a queue with these arguments."""
    changes = dict(arguments)
    if _LIFE in changes:
        changes |= _no_longer(settings, changes[_LIFE])
    return replace(settings, **changes)


def _no_longer(settings: AddressSettings, most: int) -> dict[str, int]:
    """Times to live of at most so many ms."""
    highest = min(most, settings.max_expiry_delay) if settings.max_expiry_delay >= 0 else most
    given = min(highest, settings.expiry_delay) if settings.expiry_delay >= 0 else -1
    return {_LIFE: highest, "expiry_delay": given, "min_expiry_delay": min(settings.min_expiry_delay, highest)}


def settings_of(queue: Queue) -> AddressSettings:
    """By which settings a queue lives."""
    return queue.address.settings_of(queue.name) if queue.kind is Kind.ANYCAST else queue.address.settings


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
    if not differ and rules.ring_size == rules_of(found).ring_size and rules.is_exclusive == rules_of(found).is_exclusive:
        return
    said = ", ".join([f"{name.replace('_', '-')} {getattr(found, name)!r}, not {arguments[name]!r}" for name in differ or arguments])
    raise Refused("queue-arguments-differ", f"queue {queue!r} is there with other arguments: {said}")


def require_possible(engine: Engine, address: str, arguments: Arguments) -> None:
    """Raises where the settings of the address make an argument mean nothing."""
    if _LIFE in arguments and engine.settings.resolve(address).no_expiry:
        raise Refused("argument-not-allowed", f"messages of {address!r} never expire (no-expiry); x-message-ttl cannot change that")


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
