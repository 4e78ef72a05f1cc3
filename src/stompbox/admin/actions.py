"""What an operator can do to queues and addresses. Each is an endpoint (endpoints.py), whose description is its docstring.

An answer comes when all of it is on disk. What takes longer than ANSWER_WITHIN goes on; its answer says so with "is_done": false
(or "is_deleted": false).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from typing import Annotated, Final

from msgspec import Meta, Struct

from stompbox.admin.access import may_see
from stompbox.admin.apirequest import ANSWER_WITHIN, ApiRequest
from stompbox.admin.endpoints import ON_ADDRESS, changing, naming
from stompbox.broker import transactions
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.redrive import TOO_MANY, TOO_MUCH, Copy, Discard, Move, Redrive
from stompbox.broker.kinds import Kind
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.depth import depth_of
from stompbox.broker.queues.queue import Queue
from stompbox.errors import IllegalFrame, Refused
from stompbox.ranges import Ranges
from stompbox.security import Right
from stompbox.selectors.steps import Steps
from stompbox.server.requests.replies import in_turns
from stompbox.server.revoking import orphaned

DELETES: Final = "Needs `delete-durable-queue`, or `delete-non-durable-queue`, for each queue."
_HOLDS: Final = frozenset((Kind.ANYCAST, Kind.DURABLE))  # kinds of queues whose messages are theirs

ASKED: Final = 50  # queues of one name that the user may see, perhaps,
NAMED: Final = 5  # and that are named to it
COPIED: Final = 10_000  # messages of one order: they wait in memory until it is done
CHOSEN: Final = 1000  # messages of one order
REACH: Final = 100_000  # messages from the queue's oldest to the last chosen one: those before it wait in memory until it is done
FARTHEST: Final = 2**63 - 1

QueueName = Annotated[str, Meta(description="`NAME`, or `ADDRESS::NAME` where several queues have the name.")]
AddressName = Annotated[str, Meta(description="Name of the address.")]
Count = Annotated[int, Meta(description="Messages at most, the oldest first; -1: all.", ge=-1)]
IsForced = Annotated[bool, Meta(description="Also with messages, and from under consumers.")]


class OfQueue(Struct, forbid_unknown_fields=True):
    """An order about a queue."""

    queue: QueueName


class SomeOfQueue(Struct, forbid_unknown_fields=True):
    """An order about the oldest messages of a queue."""

    queue: QueueName
    count: Count = -1


class Moving(Struct, forbid_unknown_fields=True):
    """An order to move the oldest messages of a queue."""

    queue: QueueName
    to: Annotated[str, Meta(description="The address that they come to; it is made if need be.")]
    count: Count = -1


class Copying(Struct, forbid_unknown_fields=True):
    """An order to copy the oldest messages of a queue."""

    queue: QueueName
    to: Annotated[str, Meta(description="The address that the copies come to; it is made if need be.")]
    count: Annotated[int, Meta(description="Messages at most, the oldest first.", ge=1, le=COPIED)]


class Chosen(Struct, forbid_unknown_fields=True):
    """An order about some messages of a queue."""

    queue: QueueName
    offsets: Annotated[
        list[Annotated[int, Meta(ge=0, le=FARTHEST)]],
        Meta(description="Which ones.", min_length=1, max_length=CHOSEN),
    ]


class OfAddress(Struct, forbid_unknown_fields=True):
    """An order about an address."""

    address: AddressName


class QueueDeletion(Struct, forbid_unknown_fields=True):
    """An order to delete a queue."""

    queue: QueueName
    is_forced: IsForced = False


class AddressDeletion(Struct, forbid_unknown_fields=True):
    """An order to delete an address with its queues."""

    address: AddressName
    is_forced: IsForced = False


# Answers


class Purged(Struct):
    """What was dropped. `is_estimate`: some of what was on disk alone may not have been for this queue; `is_done`: false
    while it goes on."""

    queue: str
    removed: int
    is_estimate: bool
    is_done: bool = True


class Moved(Struct):
    """How many messages went. Those that had to stay are counted by why."""

    queue: str
    moved: int
    is_done: bool
    not_permitted: int = 0
    address_blocked: int = 0
    address_full: int = 0
    too_much_stays: int = 0
    too_many_addresses: int = 0


class QueueState(Struct):
    queue: str
    is_paused: bool


class AddressState(Struct):
    address: str
    is_paused: bool
    is_blocked: bool


class QueueDeleted(Struct):
    queue: str
    is_deleted: bool


class AddressDeleted(Struct):
    """The address that goes. `is_deleted`: false while it goes on."""

    address: str
    is_deleted: bool


async def find_queue(asked: ApiRequest, text: str) -> Queue:
    """The queue of this name: `name`, where there is one, or `address::name`. It is looked for in turns. Raises Refused."""
    engine, broker = asked.broker.engine, asked.broker
    addresses = engine.addresses
    address, _, name = text.partition(
        "::"
    )  # which no address has in its name, but that of a durable subscription may
    if name and address in addresses:
        among = [addresses[address]]
    else:
        name = text
        among = (
            [addresses[name]]
            if name in addresses and name in addresses[name].anycast
            else list(addresses.values())
        )
    held = await broker.turns.taken(_held(among, name))
    found = [queue for queue in held if engine.queues.get(queue.id) is queue]
    if not found:
        raise Refused("no-such-queue", f"queue {text[:200]!r} does not exist")
    if len(found) > 1:
        seen = [one for one in found[:ASKED] if may_see(broker, asked.user, one.address.name)]
        names = ", ".join([f"{queue.address.name}::{queue.name}" for queue in seen[:NAMED]])
        there = f": {names}" if seen else ""
        raise Refused("ambiguous-queue", f"there are several queues {text[:200]!r}{there}; say which one")
    return found[0]


def _held(among: list[Address], name: str) -> Steps[list[Queue]]:
    """Queues of this name whose messages are theirs."""
    found = []
    for address in among:
        for queue in (address.anycast.get(name), address.named.get(name)):
            if queue is not None and queue.kind in _HOLDS:
                found.append(queue)
        yield
    return found


async def _queue(asked: ApiRequest) -> Queue:
    """The one that the order names, which the user may manage."""
    queue = await find_queue(asked, asked.order.queue)
    asked.require(Right.MANAGE, queue.address.name)
    return queue


def _address(asked: ApiRequest) -> Address:
    """The address that the order names, which the user may manage."""
    name: str = asked.order.address
    asked.require(Right.MANAGE, name)
    found = asked.broker.engine.addresses.get(name)
    if found is None:
        raise Refused("no-such-address", f"address {name[:200]!r} does not exist")
    return found


# Queues


@changing("queues/purge", OfQueue, Purged, ON_ADDRESS)
async def purge(asked: ApiRequest) -> object:
    """Drops what waits; what is being delivered stays."""
    queue = await _queue(asked)
    if queue.redrive is not None:
        raise _busy(queue)
    depth = depth_of(queue)
    asked.begin()
    is_done = await asked.done(lambda on_done: reclaim.purge(queue, on_done))
    removed = {"removed": depth.ready + depth.delayed, "is_estimate": depth.is_estimate}
    return {"queue": queue.name, **removed} | ({} if is_done else {"is_done": False})


@changing("queues/redrive", SomeOfQueue, Moved, ON_ADDRESS)
async def redrive(asked: ApiRequest) -> object:
    """Dead letters go back to the queues that they came from. What came from where the user may not `send`, or make the address that is
    gone, stays."""
    queue, order = await _queue(asked), asked.order
    engine, may_send, maker = asked.broker.engine, _may_send(asked), asked.maker
    return await _carry(
        asked,
        queue,
        lambda on_done: Redrive(
            engine, queue, most=order.count, on_done=on_done, may_send=may_send, maker=maker
        ),
    )


@changing("messages/redrive", Chosen, Moved, ON_ADDRESS)
async def redrive_chosen(asked: ApiRequest) -> object:
    """Some dead letters go back to the queues that they came from, as with `queues/redrive`."""
    queue = await _queue(asked)
    among, may_send = _among(asked, queue), _may_send(asked)
    engine, maker = asked.broker.engine, asked.maker
    return await _carry(
        asked,
        queue,
        lambda on_done: Redrive(engine, queue, on_done=on_done, may_send=may_send, among=among, maker=maker),
    )


@changing("messages/delete", Chosen, Moved, ON_ADDRESS)
async def delete_chosen(asked: ApiRequest) -> object:
    """Some messages that wait in a queue are dropped; what is being delivered stays. `moved`: so many were."""
    queue = await _queue(asked)
    among = _among(asked, queue)
    engine = asked.broker.engine
    return await _carry(asked, queue, lambda on_done: Discard(engine, queue, on_done=on_done, among=among))


def _may_send(asked: ApiRequest) -> Callable[[str], bool]:
    """Whether the user may send to an address, and make it, where it is gone."""
    addresses = asked.broker.engine.addresses

    def may_send(address: str) -> bool:
        is_there = address in addresses or asked.may(Right.CREATE_ADDRESS, address)
        return is_there and asked.may(Right.SEND, address)

    return may_send


def _among(asked: ApiRequest, queue: Queue) -> Ranges:
    """The chosen offsets. Raises IllegalFrame for those that are too far from the oldest message."""
    order: Chosen = asked.order
    oldest = queue.cursor.position
    if max(order.offsets) > oldest + REACH:
        with naming("offsets"):
            problem = f"offset {max(order.offsets)} is too far: chosen messages are among the first {REACH} from {oldest} on"
            raise IllegalFrame("bad-number", problem)
    return Ranges([(offset, offset + 1) for offset in sorted(order.offsets)])


@changing("queues/move", Moving, Moved, f"{ON_ADDRESS} And `send` where the messages go.")
async def move(asked: ApiRequest) -> object:
    """What waits goes to another address, the oldest first."""
    queue, order, engine = await _queue(asked), asked.order, asked.broker.engine
    _target(asked, queue)
    return await _carry(
        asked, queue, lambda on_done: Move(engine, queue, order.to, most=order.count, on_done=on_done)
    )


@changing("queues/copy", Copying, Moved, f"{ON_ADDRESS} And `send` where the copies go.")
async def copy(asked: ApiRequest) -> object:
    """Copies of what waits go to another address, the oldest first; the messages stay. `moved`: so many were copied."""
    queue, order, engine = await _queue(asked), asked.order, asked.broker.engine
    _target(asked, queue)
    return await _carry(
        asked, queue, lambda on_done: Copy(engine, queue, order.to, most=order.count, on_done=on_done)
    )


def _target(asked: ApiRequest, queue: Queue) -> None:
    """Makes the address that messages are to come to, where it is not there. Raises Refused where they may not."""
    to, engine = asked.order.to, asked.broker.engine
    if not to or engine.wildcards.is_wild(to) or "::" in to or to == queue.address.name:
        raise IllegalFrame("bad-destination", f"`to` is {to[:200]!r}; allowed is the name of another address")
    asked.require(Right.SEND, to)
    if to not in engine.addresses:
        asked.require(Right.CREATE_ADDRESS, to)
        asked.begin()
        engine.address(to, maker=asked.maker)  # as a SEND would make it
    elif engine.addresses[to].is_blocked:
        raise Refused("address-blocked", f"address {to!r} is blocked by an operator")


async def _carry(
    asked: ApiRequest, queue: Queue, start: Callable[[Callable[[int], None]], Redrive]
) -> object:
    """Messages out of a queue, some at a time. What could not be stored where they go is not begun."""
    engine = asked.broker.engine
    if engine.trouble is not None and engine.is_durable:
        raise Refused(engine.trouble.code, engine.trouble.text)
    if queue.redrive is not None:
        raise _busy(queue)
    done: asyncio.Future[int] = asked.broker.loop.create_future()
    asked.begin()
    carrying = start(lambda count: None if done.done() else done.set_result(count))
    asked.broker.flush()
    await asyncio.wait([done], timeout=ANSWER_WITHIN)
    await asked.durable()
    if carrying.stayed and not carrying.count:
        raise _refusal(carrying, asked.user.name)
    stay = {code.replace("-", "_"): count for code, count in carrying.stayed.items()}
    return {"queue": queue.name, "moved": carrying.count, **stay, "is_done": carrying.is_done}


def _busy(queue: Queue) -> Refused:
    return Refused("queue-busy", f"messages of queue {queue.name!r} are being moved already")


def _refusal(carrying: Redrive, user: str) -> Refused:
    """Why nothing went: what most of the messages had to stay for."""
    [(code, count)] = carrying.stayed.most_common(1)
    text = f"not one of {count} messages of queue {carrying.queue.name!r}"
    if code == "address-blocked":
        return Refused(
            "address-blocked", f"{text} goes to an address that an operator has not blocked; they stay"
        )
    if code == "address-full":
        return Refused("address-full", f"{text} goes to an address that has room; they stay")
    if code == TOO_MANY:
        return Refused(TOO_MANY, f"{text} came from an address that user {user!r} may make: it has too many")
    if code == TOO_MUCH:
        return Refused(
            TOO_MUCH, f"{text} was looked at: those before them stay, and take a quarter of global-max-size"
        )
    return Refused(
        "not-permitted", f"{text} came from an address where user {user!r} has the right 'send'; they stay"
    )


@changing("queues/pause", OfQueue, QueueState, ON_ADDRESS)
async def pause_queue(asked: ApiRequest) -> object:
    """The queue hands out nothing; what is sent to it is kept."""
    queue = await _queue(asked)
    asked.begin()
    queue.pause()
    return {"queue": queue.name, "is_paused": True}


@changing("queues/resume", OfQueue, QueueState, ON_ADDRESS)
async def resume_queue(asked: ApiRequest) -> object:
    """The queue hands out messages again."""
    queue = await _queue(asked)
    asked.begin()
    queue.resume()
    return {"queue": queue.name, "is_paused": False}


@changing("queues/delete", QueueDeletion, QueueDeleted, DELETES)
async def delete_queue(asked: ApiRequest) -> object:
    """The queue goes; without `is_forced` only one without messages and consumers."""
    order: QueueDeletion = asked.order
    queue = await find_queue(asked, order.queue)
    _require_deletion(asked, queue, is_forced=order.is_forced)
    asked.begin()
    is_done = await _dropped(asked, transactions.dropping_queue(asked.broker.engine, queue))
    return {"queue": queue.name, "is_deleted": is_done}


def _require_deletion(asked: ApiRequest, queue: Queue, *, is_forced: bool) -> None:
    """Raises Refused without the right, and for a queue that is in use."""
    right = Right.DELETE_DURABLE_QUEUE if queue.is_durable else Right.DELETE_NON_DURABLE_QUEUE
    asked.require(right, queue.address.name)
    if queue.owner:
        raise Refused(
            "queue-in-use", f"queue {queue.name!r} is a durable subscription's; UNSUBSCRIBE ends that"
        )
    depth = depth_of(queue)
    held = depth.ready + depth.delayed + depth.delivering
    if not is_forced and (held or queue.consumer_count):
        consumers = f"{queue.consumer_count} consumer{'s' * (queue.consumer_count != 1)}"
        text = f"queue {queue.name!r} has {held} message{'s' * (held != 1)} and {consumers}; with is_forced it goes none the less"
        raise Refused("queue-in-use", text)


# Addresses


@changing("addresses/delete", AddressDeletion, AddressDeleted, f"Needs `delete-address`. {DELETES}")
async def delete_address(asked: ApiRequest) -> object:
    """The address goes with its queues."""
    order: AddressDeletion = asked.order
    asked.require(Right.DELETE_ADDRESS, order.address)
    address = asked.broker.engine.addresses.get(order.address)
    if address is None:
        raise Refused("no-such-address", f"address {order.address[:200]!r} does not exist")
    await _require_deletions(asked, address, is_forced=order.is_forced)
    was_blocked = address.is_blocked
    address.block()  # what comes while they are asked once more is refused, and not lost with it
    try:
        await _require_deletions(asked, address, is_forced=order.is_forced)
    except BaseException:
        if not was_blocked:
            address.unblock()
        raise
    asked.begin()
    is_done = await _dropped(asked, transactions.dropping(asked.broker.engine, address))
    return {"address": address.name, "is_deleted": is_done}


async def _require_deletions(asked: ApiRequest, address: Address, *, is_forced: bool) -> None:
    """Raises Refused where one of its queues must not go; they are asked in turns."""
    async for queue in in_turns(asked.broker.turns, list(address.queues())):
        if queue.id in asked.broker.engine.queues:
            _require_deletion(asked, queue, is_forced=is_forced)


async def _dropped(asked: ApiRequest, steps: Generator[None, None, dict[Consumer, None]]) -> bool:
    """Whether it has gone within ANSWER_WITHIN; else it goes on. Who has consumed from it is told."""

    def dropping(on_done: Callable[[], None]) -> Iterator[None]:
        parted = yield from steps
        on_done()
        yield from orphaned(parted)

    return await asked.done(lambda on_done: asked.broker.engine.later.take(object(), dropping(on_done)))


@changing("addresses/pause", OfAddress, AddressState, ON_ADDRESS)
async def pause_address(asked: ApiRequest) -> object:
    """The queues of the address hand out nothing, those to come too."""
    return await _of_address(asked, Address.pause)


@changing("addresses/resume", OfAddress, AddressState, ON_ADDRESS)
async def resume_address(asked: ApiRequest) -> object:
    """The queues of the address hand out messages again."""
    return await _of_address(asked, Address.resume)


@changing("addresses/block", OfAddress, AddressState, ON_ADDRESS)
async def block_address(asked: ApiRequest) -> object:
    """A SEND to it gets an ERROR; consumers go on."""
    return await _of_address(asked, Address.block)


@changing("addresses/unblock", OfAddress, AddressState, ON_ADDRESS)
async def unblock_address(asked: ApiRequest) -> object:
    """The address takes messages again."""
    return await _of_address(asked, Address.unblock)


async def _of_address(asked: ApiRequest, change: Callable[[Address], None]) -> object:
    address = _address(asked)
    asked.begin()
    change(address)
    return {"address": address.name, "is_paused": address.is_paused, "is_blocked": address.is_blocked}
