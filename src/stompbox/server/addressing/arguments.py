"""What headers of other brokers ask of the queue that a SEND or SUBSCRIBE makes, as RabbitMQ declares queues; and headers that ask for
what there is not here.

| header                                                    | becomes (keys of the address settings, for this queue alone)              |
|-----------------------------------------------------------|---------------------------------------------------------------------------|
| `x-max-length` (with `x-overflow:drop-head`)              | `default-ring-size`; of a plain topic subscription as its pending limit   |
| `x-message-ttl`                                           | `max-expiry-delay`: no message lives longer, whatever its sender says     |
| `x-expires`                                               | `auto-delete-queues-delay`: unused for so long it goes, with its messages |
| `auto-delete:true`                                        | `auto-delete-queues`: it goes with its last consumer, with its messages   |
| `x-dead-letter-exchange`, `x-dead-letter-routing-key`     | `dead-letter-address` and `expiry-address`                                |
| `x-delivery-limit`                                        | `max-delivery-attempts`: that many redeliveries                           |
| `x-single-active-consumer:true`                           | `default-exclusive-queue`                                                 |
| `x-max-priority` up to 10, `x-queue-mode`, `x-queue-type` | nothing: each queue has ten priorities, pages, and is durable             |
| `x-queue-name` on a SUBSCRIBE to a topic                  | `address::queue`; a SEND can say it of the queue that it goes to alone    |

Such a queue stays until it is to go, empty or not. Who makes it says what it is, with the rights of making it; who comes later may say
the same, or nothing, and gets an ERROR `queue-arguments-differ` for anything else. What is on the list FOREIGN has no equal here: an ERROR
names it, unless the configuration says `unknown-header-policy = "LOG"`. All other headers are a sender's own, and pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from stompbox.broker.addresses import configuration, lifetimes
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.subscriptions import subscribers
from stompbox.config import UnknownHeaderPolicy
from stompbox.config.matching import Wildcards
from stompbox.errors import IllegalFrame, Refused
from stompbox.message import ANYCAST, MULTICAST
from stompbox.numerals import digits
from stompbox.security import Right

if TYPE_CHECKING:
    from stompbox.server.addressing.sender import Sender

log = logging.getLogger("stompbox.connection")

Keys = dict[str, Any]  # of config.AddressSettings, by attribute name
LENGTH: Final = "x-max-length"
EXCHANGE: Final = "x-dead-letter-exchange"
ROUTING_KEY: Final = "x-dead-letter-routing-key"
QUEUE_NAME: Final = "x-queue-name"
QUEUE_TYPE: Final = "x-queue-type"
AUTO_DELETE: Final = "auto-delete"
EXCHANGES: Final = ("", "amq.direct", "amq.topic")
_TYPES: Final = ("classic", "quorum", "stream")  # the first two are the one kind of queue there is
_LARGEST: Final = 1 << 53
_FOREVER: Final = -1

# Headers of four brokers that ask for something that no setting of a queue here can be: what to do instead
FOREIGN: Final = MappingProxyType(
    {
        "x-max-length-bytes": "`max-size-bytes` of the address settings, for a log `retention-bytes`",
        "x-max-age": "`retention-ms` of the address settings",
        "x-stream-max-segment-size-bytes": "nothing: a log has no segments",
        "x-stream-filter-size-bytes": "nothing: a selector filters exactly",
        "x-stream-filter": "a destination /stream/…, or a selector: hyphenated_props:x-stream-filter-value = 'eu'",
        "x-stream-match-unfiltered": "a destination /stream/…, or a selector: hyphenated_props:x-stream-filter-value IS NULL",
        "x-queue-version": "nothing: there is one kind of queue",
        "x-queue-leader-locator": "nothing: there is one broker",
        "x-queue-master-locator": "nothing: there is one broker",
        "x-initial-cluster-size": "nothing: there is one broker",
        "x-quorum-initial-group-size": "nothing: there is one broker",
        "x-quorum-target-group-size": "nothing: there is one broker",
        "x-cancel-on-ha-failover": "nothing: there is one broker",
        "x-ha-policy": "nothing: there is one broker",
        "x-dead-letter-strategy": "nothing: dead letters are stored in the commit that ends the failed delivery",
        "x-max-in-memory-length": "`max-size-messages` of the address settings, beyond which queues page",
        "x-max-in-memory-bytes": "`max-size-bytes` of the address settings, beyond which queues page",
        "x-consumer-timeout": "`slow-consumer-threshold` of the address settings",
        "x-delay": "the header AMQ_SCHEDULED_DELAY, in ms",
        "x-deduplication-header": "the header _AMQ_DUPL_ID",
        "x-message-deduplication": "the header _AMQ_DUPL_ID",
        "_AMQ_GROUP_ID": "the header JMSXGroupID",
        "_AMQ_GROUP_SEQUENCE": "the header JMSXGroupSeq",
        "_AMQ_SCHED_DELIVERY": "the header AMQ_SCHEDULED_TIME, in ms since 1970",
        "AMQ_SCHEDULER_ACTION": "the requests `schedules` and `unschedule`",
        "activemq.retroactive": "`retroactive-message-count` of the address settings",
    }
)


def require_known(headers: Mapping[str, str], policy: UnknownHeaderPolicy, told: set[str]) -> None:
    """Raises for a header that asks for what there is not, or logs it once: `told` are those that were."""
    for name in FOREIGN.keys() & headers.keys():
        if name == "activemq.retroactive" and headers[name].lower() == "false":
            # Apache.NMS.STOMP says so with every SUBSCRIBE
            continue
        text = f"header {name} asks for what there is not here; instead: {FOREIGN[name]}"
        if policy is UnknownHeaderPolicy.ERROR:
            raise IllegalFrame("unknown-header", f"{text} (unknown-header-policy)")
        if name not in told:
            told.add(name)
            log.warning("%s", text)


def keys_of(headers: Mapping[str, str], wildcards: Wildcards) -> Keys:
    """What the headers of a frame ask of the queue that it makes. Raises IllegalFrame for a value that is none."""
    found: Keys = {}
    for name, of in _ARGUMENTS.items():
        if name in headers:
            found |= of(name, headers[name])
    if EXCHANGE in headers or ROUTING_KEY in headers:
        found |= _dead_letters(headers, wildcards)
    if headers.get(QUEUE_TYPE, _TYPES[0]) not in _TYPES:
        raise IllegalFrame(
            "bad-queue-type",
            f"header {QUEUE_TYPE} is {headers[QUEUE_TYPE][:80]!r}; allowed are {', '.join(_TYPES)}",
        )
    goes = headers.get(AUTO_DELETE, "false").lower()
    if goes not in ("true", "false"):
        raise IllegalFrame(
            "bad-queue-argument",
            f"header {AUTO_DELETE} is {headers[AUTO_DELETE][:80]!r}; allowed are true and false",
        )
    if goes == "true":
        if "x-expires" in headers:
            raise IllegalFrame(
                "bad-queue-argument",
                "headers x-expires and auto-delete say two different things; give one of the two",
            )
        found |= {
            "auto_delete_queues": True,
            "auto_delete_queues_delay": 0,
            "auto_delete_queues_message_count": _FOREVER,
        }
    return found


def _count(low: int, high: int, of: Callable[[int], Keys]) -> Callable[[str, str], Keys]:
    def read(name: str, text: str) -> Keys:
        found = digits(text)
        if found is None or not low <= found <= high:
            raise IllegalFrame(
                "bad-queue-argument",
                f"header {name} is {text[:80]!r}; allowed is a number from {low} to {high}",
            )
        return of(found)

    return read


def _word(meanings: Mapping[str, Keys]) -> Callable[[str, str], Keys]:
    def read(name: str, text: str) -> Keys:
        if text.lower() not in meanings:
            allowed = " and ".join(meanings)
            raise IllegalFrame(
                "bad-queue-argument", f"header {name} is {text[:80]!r}; allowed here: {allowed}"
            )
        return meanings[text.lower()]

    return read


def _unused_for(time: int) -> Keys:
    return {
        "auto_delete_queues": True,
        "auto_delete_queues_delay": time,
        "auto_delete_queues_message_count": _FOREVER,
        "auto_delete_queues_skip_usage_check": True,
    }


_ARGUMENTS: Final[Mapping[str, Callable[[str, str], Keys]]] = MappingProxyType(
    {
        LENGTH: _count(0, _LARGEST, lambda count: {"default_ring_size": count}),
        "x-overflow": _word({"drop-head": {}}),
        "x-message-ttl": _count(0, _LARGEST, lambda time: {"max_expiry_delay": time}),
        "x-expires": _count(1, _LARGEST, _unused_for),
        "x-delivery-limit": _count(0, _LARGEST, lambda count: {"max_delivery_attempts": count + 1}),
        "x-single-active-consumer": _word({"true": {"default_exclusive_queue": True}, "false": {}}),
        "x-max-priority": _count(0, 10, lambda _: {}),
        "x-queue-mode": _word({"default": {}, "lazy": {}}),
    }
)
_OF_PLAIN: Final = frozenset((*_unused_for(0), "default_ring_size", "default_exclusive_queue"))
LOOKED_AT: Final = frozenset((*_ARGUMENTS, EXCHANGE, ROUTING_KEY, QUEUE_TYPE, AUTO_DELETE, *FOREIGN))
# By which header a key came
_HEADERS: Final = MappingProxyType(
    {
        "default_ring_size": LENGTH, "max_expiry_delay": "x-message-ttl", "max_delivery_attempts": "x-delivery-limit",
        "default_exclusive_queue": "x-single-active-consumer", "dead_letter_address": EXCHANGE,
    }
)  # fmt: skip


def headers_of(keys: Keys) -> str:
    """The headers that have asked for these keys, for error texts."""
    names = [name for key, name in _HEADERS.items() if key in keys]
    if "auto_delete_queues" in keys:
        names.append("x-expires" if "auto_delete_queues_skip_usage_check" in keys else AUTO_DELETE)
    return f"{'headers' if len(names) > 1 else 'header'} {', '.join(names)}"


def _dead_letters(headers: Mapping[str, str], wildcards: Wildcards) -> Keys:
    """The default exchange leads to the queue of the routing key's name, the two others to the address of that name."""
    exchange, key = headers.get(EXCHANGE), headers.get(ROUTING_KEY, "")
    if exchange not in EXCHANGES:
        said = "is missing" if exchange is None else f"is {exchange[:80]!r}"
        raise IllegalFrame(
            "bad-queue-argument",
            f"header {EXCHANGE} {said}; allowed are amq.direct, amq.topic and nothing at all",
        )
    if not key or wildcards.is_wild(key) or "::" in key:
        raise IllegalFrame(
            "bad-queue-argument",
            f"header {ROUTING_KEY} is {key[:80]!r}; it names the address of the dead letters",
        )
    return {"dead_letter_address": key, "expiry_address": key}


# What is made


def of_queues(
    connection: Sender, keys: Keys, destinations: tuple[Destination, ...], *, is_durable: bool
) -> Keys:
    """What of a SUBSCRIBE's arguments is for queues that it may make. A plain topic subscription is one consumer's and goes with it, which
    is all that some ask for, and its length is limited in flow.py."""
    if is_durable or any(map(partial(_is_other, connection), destinations)):
        return keys
    return {name: value for name, value in keys.items() if name not in _OF_PLAIN}


def _is_other(connection: Sender, destination: Destination) -> bool:
    """Whether the destination is something else than a plain topic subscription."""
    is_topic = subscribers.routing_of(connection.broker.engine, destination) == MULTICAST
    return destination.is_stream or destination.is_temporary or bool(destination.queue) or not is_topic


def require(connection: Sender, keys: Keys, destinations: tuple[Destination, ...]) -> None:
    """Raises where the queues of these destinations are not, and cannot be made, as a frame asks; or its user has not the rights."""
    for destination in destinations if keys else ():
        _require(connection, destination, keys)


def make(connection: Sender, keys: Keys, destinations: tuple[Destination, ...]) -> None:
    """The queues, as the frame asks, where they are not there. `require` must have found nothing."""
    for destination in destinations if keys else ():
        queue, maker = destination.queue or destination.address, connection.allowance.maker
        configuration.make(connection.broker.engine, destination.address, queue, keys, maker)


def making(connection: Sender, keys: Keys, destinations: tuple[Destination, ...]) -> Iterator[None]:
    """Makes them as `make` does, one in each step."""
    for destination in destinations if keys else ():
        yield from lifetimes.looking(connection.broker.engine, destination.address)
        make(connection, keys, (destination,))
        yield


def _require(connection: Sender, destination: Destination, keys: Keys) -> None:
    engine, permissions = connection.broker.engine, connection.broker.permissions
    if not _is_queue(connection, destination):
        which = ", ".join(sorted(keys)).replace("_", "-")
        what = f"destination {destination.text[:200]!r} is no queue of its own"
        raise IllegalFrame(
            "argument-not-allowed", f"{headers_of(keys)}: {what}; {which} is for the address settings to say"
        )
    name, queue = destination.address, destination.queue or destination.address
    try:
        configuration.require_same(engine, name, queue, keys)
    except Refused as refusal:
        raise Refused(refusal.code, f"{headers_of(keys)}: {refusal.message}") from None
    if configuration.is_there(engine, name, queue):
        return
    configuration.require_possible(engine, name, keys)
    known = engine.addresses.get(name)
    if known is None or not known.kinds & ANYCAST:  # it is made, or gets another kind
        permissions.require(connection.user, Right.CREATE_ADDRESS, name)
    permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, name)
    if "auto_delete_queues" in keys:
        permissions.require(connection.user, Right.DELETE_DURABLE_QUEUE, name)
    if "dead_letter_address" in keys:
        _require_dead_letters(connection, name, keys["dead_letter_address"])


def _require_dead_letters(connection: Sender, address: str, name: str) -> None:
    """Who says where dead letters go sends them there."""
    permissions, qualified = connection.broker.permissions, connection.names.qualified(name)
    if qualified == address:
        raise IllegalFrame(
            "bad-queue-argument",
            f"header {ROUTING_KEY} is {name[:80]!r}: dead letters cannot go to where they come from",
        )
    permissions.require(connection.user, Right.SEND, qualified)
    if qualified not in connection.broker.engine.addresses:
        permissions.require(connection.user, Right.CREATE_ADDRESS, qualified)
        permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, qualified)


def _is_queue(connection: Sender, destination: Destination) -> bool:
    if destination.is_wild or destination.is_temporary or destination.is_stream:
        return False
    return subscribers.routing_of(connection.broker.engine, destination) == ANYCAST


def named(
    connection: Sender, headers: Mapping[str, str], destinations: tuple[Destination, ...]
) -> tuple[Destination, ...]:
    """x-queue-name: the destinations of a SUBSCRIBE with the queue of a topic that is meant."""
    given = headers.get(QUEUE_NAME)
    if given is None:
        return destinations
    alone = destinations[0]
    is_one = len(destinations) == 1 and not (
        alone.is_wild or alone.is_temporary or alone.is_stream or alone.queue
    )
    if not given or not is_one or connection.names.wildcards.is_wild(given) or "::" in given or "," in given:
        raise IllegalFrame(
            "bad-queue-argument", f"header {QUEUE_NAME} is {given[:80]!r}; it names a queue of one topic"
        )
    if _is_queue(connection, alone):
        if connection.names.qualified(given) != alone.address:
            raise IllegalFrame(
                "bad-queue-argument",
                f"header {QUEUE_NAME} is {given[:80]!r}, and the destination is another queue",
            )
        return destinations
    return (replace(alone, queue=connection.names.qualified(given), routing=MULTICAST),)


def require_its_own(headers: Mapping[str, str], destinations: tuple[Destination, ...], space: str) -> None:
    """x-queue-name on a SEND, which makes no queue of a topic: it may say what the destination says."""
    given = headers.get(QUEUE_NAME)
    if given is not None and [space + given] != [
        destination.address for destination in destinations if destination.routing == ANYCAST
    ]:
        text = f"header {QUEUE_NAME} is {given[:80]!r}; a SEND names its queue as its destination, address::queue that of a topic"
        raise IllegalFrame("bad-queue-argument", text)
