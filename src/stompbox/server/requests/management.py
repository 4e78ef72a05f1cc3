"""Management by messages, in the words of Artemis: a SEND to `management-address` asks the broker for something, and is stored nowhere.

    _AMQ_ResourceName      of what: `broker`, `address.NAME` or `queue.NAME`
    _AMQ_Attribute         what is to be told of it; or
    _AMQ_OperationName     what is to be done with it
    reply-to               where the answer goes, with the `correlation-id` of the question
    receipt                is said when it is done, and on the disk

The answer has `_AMQ_OperationSucceeded`, `true` or `false`, and as its body a JSON array of one value: what was asked for, or why there is
nothing. An operation that has nothing to tell has an empty body. Who names no `reply-to` gets an ERROR where it fails.

It needs the right `manage` on the management address, and on the address that it is about. Addresses and queues are made, ended and set
up by the API (docs/admin.md), which knows limits and owners; here is what monitoring reads, and what an operator turns on and off.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stompbox import __version__
from stompbox.broker.addresses import destinations
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.kinds import Kind
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.depth import depth_of, sums_of
from stompbox.broker.queues.queue import Queue
from stompbox.config.spaces import local, space_of
from stompbox.errors import IllegalFrame, Refused, StompboxError
from stompbox.message import ANYCAST, MULTICAST, Run, Shape
from stompbox.security import Right
from stompbox.server.addressing.routing import reach
from stompbox.server.requests.dispatch import take
from stompbox.server.requests.pausing import ON_ADDRESS, ON_QUEUE, queues_of
from stompbox.server.requests.replies import durable, in_turns
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker

log = logging.getLogger("stompbox.operators")

RESOURCE: Final = "_AMQ_ResourceName"
ATTRIBUTE: Final = "_AMQ_Attribute"
OPERATION: Final = "_AMQ_OperationName"
SUCCEEDED: Final = "_AMQ_OperationSucceeded"
LARGEST: Final = 4096  # octets of a body: none of the operations has a parameter
SHOWN: Final = 200  # characters of a name in an error
_TYPES: Final = ((ANYCAST, "ANYCAST"), (MULTICAST, "MULTICAST"))


Attributes = Mapping[str, Callable[[], object]]


def _count(address: Address) -> int:
    sums = sums_of(address)
    return sums.ready + sums.delayed + sums.delivering


def _of_queue(queue: Queue) -> Attributes:
    return {
        "ID": lambda: queue.id,
        "name": lambda: local(queue.name),
        "address": lambda: local(queue.address.name),
        "routingType": lambda: "ANYCAST" if queue.kind is Kind.ANYCAST else "MULTICAST",
        "filter": lambda: queue.selector.text if queue.selector is not None else None,
        "durable": lambda: queue.is_durable,
        "autoCreated": lambda: queue.is_auto,
        "paused": lambda: queue.is_paused,
        "enabled": lambda: queue.rules.is_enabled,
        "maxConsumers": lambda: queue.rules.max_consumers,
        "consumerCount": lambda: queue.consumer_count,
        # as there: with those that are scheduled, or with consumers
        "messageCount": lambda: depth_of(queue).total,
        "scheduledCount": lambda: depth_of(queue).delayed,
        "deliveringCount": lambda: queue.delivering,
        "messagesAcknowledged": lambda: queue.settled,
        "messagesAdded": lambda: queue.settled + depth_of(queue).total,
    }


def _of_address(address: Address) -> Attributes:
    return {
        "address": lambda: local(address.name),
        "routingTypes": lambda: [name for kind, name in _TYPES if address.kinds & kind],
        "queueNames": lambda: [local(queue.name) for queue in queues_of(address)],
        "queueCount": lambda: len(queues_of(address)),
        "messageCount": lambda: _count(address),
        "addressSize": lambda: address.memory.size,
        "paging": lambda: any(queue.paged_from >= 0 for queue in address.queues()),
        "paused": lambda: address.is_paused,
        "autoCreated": lambda: address.is_auto,
    }


async def _purge(connection: Asker, queue: Queue) -> object:
    """Drops what waits, and says how much that was."""
    if queue.redrive is not None:
        raise Refused("queue-busy", f"messages of queue {queue.name!r} are being moved already")
    depth, waiter = depth_of(queue), connection.broker.loop.create_future()
    # nobody waits for it any more when the broker stops meanwhile
    reclaim.purge(queue, lambda: None if waiter.done() else waiter.set_result(None))
    connection.broker.flush_soon()
    await waiter
    return depth.ready + depth.delayed


_PURGE: Final = "removeAllMessages"


@dataclass(frozen=True, slots=True)
class Question:
    """A SEND to the management address. `reply`: where its answer goes; `confirm` is called when it is done. Raises IllegalFrame where it
    names no resource, or not one thing that is asked of it."""

    frame: Frame
    reply: Destination | None
    confirm: Callable[[], None]

    def __post_init__(self) -> None:
        headers, size = self.headers, len(self.frame.body)
        if size > LARGEST:
            problem = f"has a body of {size} octets; allowed are {LARGEST}"
        elif not headers.get(RESOURCE) or bool(headers.get(ATTRIBUTE)) == bool(headers.get(OPERATION)):
            problem = f"needs the headers {RESOURCE} and either {ATTRIBUTE} or {OPERATION}"
        else:
            return
        raise IllegalFrame("bad-management", f"a message to the management address {problem}")

    @property
    def headers(self) -> Mapping[str, str]:
        return self.frame.headers

    @property
    def verb(self) -> str:
        """The attribute or the operation. An attribute may be spelled as JMX does: `MessageCount` is `messageCount`, `ID` stays."""
        attribute = self.headers.get(ATTRIBUTE)
        if not attribute:
            return self.headers[OPERATION]
        return attribute if attribute[:2].isupper() else attribute[:1].lower() + attribute[1:]


def receive(connection: Asker, frame: Frame, confirm: Callable[[], None]) -> None:
    """Takes a question up; its answer comes when it is ready. Raises IllegalFrame for one that is none."""
    asked = Question(frame, _reply_of(connection, frame.headers), confirm)
    take(connection, frame, partial(_answer, asked))


def _reply_of(connection: Asker, headers: Mapping[str, str]) -> Destination | None:
    """Where an answer is to go. Raises IllegalFrame where nothing can be sent to that."""
    text = headers.get("reply-to")
    if not text:
        return None
    found = connection.names.parse_one(text)
    if found.is_wild or found.is_stream:
        problem = f"reply-to {text[:SHOWN]!r} can be subscribed to, not sent to"
        raise IllegalFrame("bad-destination", problem)
    return found


async def _answer(asked: Question, connection: Asker, frame: Frame) -> None:
    """Does what is asked by this frame, and answers. What cannot be done is said in the answer, or in an ERROR where none is wanted."""
    broker = connection.broker
    broker.set_time()
    try:
        value, fault = await _value_of(connection, asked), None
        if OPERATION in asked.headers:
            await durable(connection)
    except StompboxError as error:
        value, fault = None, error
    if connection.is_lost or connection.is_ended:
        return
    try:
        if asked.reply is not None:
            _tell(connection, asked, asked.reply, value, fault)
        elif fault is not None:
            raise fault
        asked.confirm()
    except StompboxError as error:
        connection.refuse(error, frame)
    connection.write_out()
    broker.flush()


def _tell(
    connection: Asker, asked: Question, reply: Destination, value: object, fault: StompboxError | None
) -> None:
    """Sends the answer as the client itself would send it: with its rights, to what it may reach."""
    headers = {"destination": reply.text, SUCCEEDED: "true", "content-type": "application/json"}
    if "correlation-id" in asked.headers:
        headers["correlation-id"] = asked.headers["correlation-id"]
    if fault is not None:
        connection.broker.errors[fault.code] += 1
        headers[SUCCEEDED], value = "false", connection.names.without_space(fault.message)
    is_empty = value is None and OPERATION in asked.headers
    body = b"" if is_empty else json.dumps([value], separators=(",", ":")).encode()
    known = destinations.find(connection.broker.engine, reply) if reply.is_temporary else None
    if reply.is_temporary and (known is None or known.owner == connection.session_id):
        connection.make_temporary(reply)  # as a `reply-to` does
    address, routing, queue = reach(connection, reply)
    connection.broker.engine.publish(
        address, Run(Shape(headers, persistent=False), [body], routing=routing, queue=queue)
    )


async def _value_of(connection: Asker, asked: Question) -> object:
    resource = asked.headers[RESOURCE]
    kind, _, name = resource.partition(".")
    _require(connection, connection.names.management)
    if resource == "broker":
        return await _of_broker(connection, asked)
    if not name or kind not in ("address", "queue"):
        problem = f"there is no resource {resource[:SHOWN]!r}; there are broker, address.NAME and queue.NAME"
        raise IllegalFrame("no-such-resource", problem)
    qualified = connection.names.qualified(name)
    if kind == "address":
        address = _address(connection, qualified)
        return _of(connection, asked, address, _of_address(address), ON_ADDRESS)
    queue = await _queue(connection, qualified)
    if asked.headers.get(OPERATION) == _PURGE:
        _note(connection, asked)
        return await _purge(connection, queue)
    return _of(connection, asked, queue, _of_queue(queue), ON_QUEUE, _PURGE)


T = TypeVar("T")


def _of(
    connection: Asker,
    asked: Question,
    what: T,
    attributes: Attributes,
    operations: Mapping[str, Callable[[T], None]],
    *others: str,
) -> object:
    """An attribute, or what an operation comes to."""
    if ATTRIBUTE in asked.headers:
        attribute = attributes.get(asked.verb)
        if attribute is None:
            raise _unknown(asked, attributes)
        return attribute()
    operation = operations.get(asked.verb)
    if operation is None:
        raise _unknown(asked, (*operations, *others))
    _note(connection, asked)
    operation(what)
    return None


def _unknown(asked: Question, known: Iterable[str]) -> IllegalFrame:
    what = "attribute" if ATTRIBUTE in asked.headers else "operation"
    resource = asked.headers[RESOURCE][:SHOWN]
    there = f"there are {', '.join(sorted(known))}" if known else "there are none; the API has more"
    return IllegalFrame(f"no-such-{what}", f"{resource!r} has no {what} {asked.verb[:SHOWN]!r}; {there}")


def _note(connection: Asker, asked: Question) -> None:
    """The log tells of what an operator changes."""
    resource = asked.headers[RESOURCE][:SHOWN]
    said = connection.user.name, connection.name, asked.verb[:SHOWN], resource
    log.info("operator %r, %s: %s %s", *said, extra=connection.marks)


def _require(connection: Asker, name: str) -> None:
    connection.broker.permissions.require(connection.user, Right.MANAGE, name)


def _address(connection: Asker, name: str) -> Address:
    _require(connection, name)
    found = connection.broker.engine.addresses.get(name)
    if found is None:
        raise Refused("no-such-address", f"address {name[:SHOWN]!r} does not exist")
    return found


async def _queue(connection: Asker, name: str) -> Queue:
    """The queue of this name, on the address of this name or on another one. Raises Refused where there is none, or several."""
    addresses = connection.broker.engine.addresses
    own = addresses.get(name)
    among = [own] if own is not None and name in own.anycast else list(addresses.values())
    found = []
    async for address in in_turns(connection.broker.turns, among):
        found += [queue for queue in queues_of(address) if queue.name == name]
    mine = [queue for queue in found if queue.id in connection.broker.engine.queues]
    if len(mine) != 1:
        there = "there are several of that name" if mine else "does not exist"
        raise Refused("no-such-queue", f"queue {name[:SHOWN]!r} {there}")
    _require(connection, mine[0].address.name)
    return mine[0]


async def _of_broker(connection: Asker, asked: Question) -> object:
    """What the broker has, and what this virtual host has in it."""
    broker = connection.broker
    if OPERATION in asked.headers:
        raise _unknown(asked, ())
    space = connection.names.space
    simple: Attributes = {
        "version": lambda: __version__,
        "started": lambda: True,
        "uptimeMillis": lambda: broker.now() - broker.started,
        "connectionCount": lambda: sum([one.names.space == space for one in broker.connections]),
    }
    if asked.verb in simple:
        return simple[asked.verb]()
    if asked.verb not in _SUMS:
        raise _unknown(asked, (*simple, *_SUMS))
    tell, add = _SUMS[asked.verb]
    found: list[object] = []
    async for address in in_turns(broker.turns, list(broker.engine.addresses.values())):
        if space_of(address.name) == space and not address.owner:
            found += tell(address)
    return add(found)


_SUMS: Final[Mapping[str, tuple[Callable[[Address], list[Any]], Callable[[list[Any]], object]]]] = (
    MappingProxyType(
        {
            "addressNames": (lambda address: [local(address.name)], sorted),
            "addressCount": (lambda _: [1], sum),
            "queueNames": (lambda address: [local(queue.name) for queue in queues_of(address)], sorted),
            "queueCount": (lambda address: [len(queues_of(address))], sum),
            "totalConsumerCount": (lambda address: [sums_of(address).consumers], sum),
            "totalMessageCount": (lambda address: [_count(address)], sum),
        }
    )
)
