"""What an operator can do: POST /api/v1/…, a JSON object in, a JSON object out. Each needs the right `manage` on the address, but for
those that delete, which need the rights to delete.

    queues/purge, redrive, move, pause, resume         {"queue": NAME or ADDRESS::NAME, …}
    queues/delete                                      {"queue": …, "is_forced": false}       needs delete-durable-queue, or -non-durable-
    addresses/pause, resume, block, unblock            {"address": NAME}
    addresses/delete                                   {"address": NAME, "is_forced": false}  needs delete-address, and that for its queues
    groups/delete, reset                               {"group": NAME, …}          `manage` on its destinations as they are written
    sinks/delete                                       {"sink": NAME}              its owner's, or `manage` on the broker as a whole
    connections/close                                  {"connection": ID}          needs `manage` on the broker as a whole
    frames/log, stop                                   {"by": WHAT, "value": …}    the same: the log shows bodies
    reload                                             {}                          the same; as SIGHUP

An answer comes when all of it is on disk. What takes longer than ANSWER_WITHIN goes on; its answer says so with "is_done": false
(or "is_deleted": false).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from stompbox.admin.access import require, user_of
from stompbox.admin.responses import json
from stompbox.broker import transactions
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.redrive import Move, Redrive
from stompbox.broker.kinds import Kind
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.depth import depth_of
from stompbox.broker.queues.queue import Queue
from stompbox.errors import ConfigError, FrameError, IllegalFrame, Refused
from stompbox.security import Right
from stompbox.server import reloading
from stompbox.server.requests import grouping
from stompbox.server.session.framelog import By, Wish

if TYPE_CHECKING:
    from stompbox.server.broker import Broker

log = logging.getLogger("stompbox.operators")

TOLD: Final = 500  # octets of a request in the log
BODY: Final = 64 << 10  # bytes of a request
BODY_WITHIN: Final = 10.0  # seconds
ANSWER_WITHIN: Final = 30.0  # seconds

_HOLDS: Final = frozenset((Kind.ANYCAST, Kind.DURABLE))  # kinds of queues whose messages are theirs


class OfQueue(Struct, forbid_unknown_fields=True):
    """The arguments of an operation on a queue. `count`: messages at most, -1 all; `to`: the address that they are moved to."""

    queue: str
    count: int = -1
    to: str = ""


class OfAddress(Struct, forbid_unknown_fields=True):
    address: str


class Deletion(Struct, forbid_unknown_fields=True):
    """An order to delete a queue or an address. `is_forced`: also with what it holds, and from under its consumers."""

    queue: str = ""
    address: str = ""
    is_forced: bool = False


class OfGroup(Struct, forbid_unknown_fields=True):
    """The arguments of the operation that resets a reader group. `to`: earliest, latest, an offset or time:MS; `address`: on that one
    alone."""

    group: str
    to: str = ""
    address: str = ""


class OfSink(Struct, forbid_unknown_fields=True):
    sink: str


class OfConnection(Struct, forbid_unknown_fields=True):
    connection: int


class OfFrames(Struct, forbid_unknown_fields=True):
    """The arguments of an operation on the frames that are logged. `by`: connection, user, peer or address; `value`: its id, its name, its
    IP address, or its name or pattern. To stop: none is all."""

    by: By | None = None
    value: str = ""


class Nothing(Struct, forbid_unknown_fields=True):
    """The arguments of an operation that has none."""


class Going:
    """An operation that is being obeyed for one request."""

    def __init__(self, broker: Broker, request: Request) -> None:
        self.broker = broker
        self.request = request
        self.asked = b""

    def tell(self) -> None:
        """Tells the log who has done what."""
        who, peer = user_of(self.request).name, self.request.client
        path, asked = self.request.scope["path"], self.asked[:TOLD].decode("utf-8", "replace")
        log.info("operator %r from %s: %s %s", who, peer.host if peer else "?", path, asked)

    async def order(self, form: type[Any]) -> Any:
        """The body as a value of this form."""
        body = b""
        try:
            async with asyncio.timeout(BODY_WITHIN):
                async for part in self.request.stream():
                    body += part
                    if len(body) > BODY:
                        raise FrameError("body-too-large", f"the body is longer than {BODY} bytes")
            self.asked = body
            return msgspec.json.decode(body, type=form)
        except (msgspec.DecodeError, RecursionError) as error:  # a wrong type, or nested too deep
            raise IllegalFrame(
                "bad-json", f"the body is not what {self.request.scope['path']} needs: {error}"
            ) from None
        except TimeoutError:
            raise IllegalFrame("bad-json", f"the body did not come within {BODY_WITHIN:.0f} s") from None

    async def queue(self) -> tuple[Queue, OfQueue]:
        order: OfQueue = await self.order(OfQueue)
        queue = find_queue(self.broker, order.queue)
        require(self.broker, self.request, Right.MANAGE, queue.address.name)
        return queue, order

    async def address(self) -> Address:
        order: OfAddress = await self.order(OfAddress)
        require(self.broker, self.request, Right.MANAGE, order.address)
        found = self.broker.engine.addresses.get(order.address)
        if found is None:
            raise Refused("no-such-address", f"address {order.address[:200]!r} does not exist")
        return found

    async def group(self) -> OfGroup:
        order: OfGroup = await self.order(OfGroup)
        patterns = self.broker.engine.group_patterns.get(order.group)
        if patterns is None:
            require(self.broker, self.request)
            raise Refused("no-such-group", f"reader group {order.group[:200]!r} does not exist")
        for pattern in patterns:
            require(self.broker, self.request, Right.MANAGE, pattern)
        return order

    def begin(self) -> None:
        """Tells the engine the time, before what follows changes something."""
        self.broker.set_time()

    async def done(self, begin: Callable[[Callable[[], None]], None]) -> bool:
        """Begins what goes on in portions, and calls what it was given at the end. False when that takes longer than ANSWER_WITHIN."""
        done: asyncio.Future[None] = self.broker.loop.create_future()
        begin(lambda: None if done.done() else done.set_result(None))
        self.broker.flush()
        await asyncio.wait([done], timeout=ANSWER_WITHIN)
        await self.durable()
        return done.done()

    async def durable(self) -> None:
        """Waits until what was done is on disk."""
        broker = self.broker
        if broker.engine.is_dirty or broker.committer.is_busy:
            waiter: asyncio.Future[None] = broker.loop.create_future()
            broker.when_durable(waiter)
            broker.flush()
            await waiter


Operation = Callable[[Going], Awaitable[object]]


class Operate:
    """The endpoint of one operation."""

    def __init__(self, broker: Broker, operation: Operation) -> None:
        self.broker = broker
        self.operation = operation

    async def post(self, request: Request) -> Response:
        going = Going(self.broker, request)
        try:
            answer = json(await self.operation(going))
            going.tell()
            return answer
        finally:
            self.broker.flush()


def find_queue(broker: Broker, text: str) -> Queue:
    """The queue of this name: `name`, where there is one, or `address::name`. Raises Refused."""
    address, colons, name = text.rpartition("::")
    addresses = broker.engine.addresses
    if colons:
        among = [addresses[address]] if address in addresses else []
    else:
        among = (
            [addresses[name]]
            if name in addresses and name in addresses[name].anycast
            else list(addresses.values())
        )
    held = (
        queue
        for one in among
        for queue in (*one.anycast.values(), *one.topics.values())
        if queue.kind in _HOLDS
    )
    found = [queue for queue in held if queue.name == name]
    if not found:
        raise Refused("no-such-queue", f"queue {text[:200]!r} does not exist")
    if len(found) > 1:
        names = ", ".join([f"{queue.address.name}::{queue.name}" for queue in found[:5]])
        raise Refused("ambiguous-queue", f"there are several queues {text[:200]!r}: {names}; say which one")
    return found[0]


# Queues


async def purge(going: Going) -> object:
    queue, _ = await going.queue()
    if queue.redrive is not None:
        raise _busy(queue)
    depth = depth_of(queue)
    going.begin()
    is_done = await going.done(lambda on_done: reclaim.purge(queue, on_done))
    removed = {"removed": depth.ready + depth.delayed, "is_estimate": depth.is_estimate}
    return {"queue": queue.name, **removed} | ({} if is_done else {"is_done": False})


async def redrive(going: Going) -> object:
    """Where the operator may not send, and not make the address that is gone, nothing goes: those messages stay."""
    queue, order = await going.queue()
    engine, permissions, user = going.broker.engine, going.broker.permissions, user_of(going.request)

    def may_send(address: str) -> bool:
        is_there = address in engine.addresses or permissions.may(user, Right.CREATE_ADDRESS, address)
        return is_there and permissions.may(user, Right.SEND, address)

    return await _carry(
        going,
        queue,
        lambda on_done: Redrive(engine, queue, most=order.count, on_done=on_done, may_send=may_send),
    )


async def move(going: Going) -> object:
    queue, order = await going.queue()
    to, engine = order.to, going.broker.engine
    if not to or engine.wildcards.is_wild(to) or "::" in to or to == queue.address.name:
        raise IllegalFrame("bad-destination", f"`to` is {to[:200]!r}; allowed is the name of another address")
    require(going.broker, going.request, Right.SEND, to)
    if to not in engine.addresses:
        require(going.broker, going.request, Right.CREATE_ADDRESS, to)
        going.begin()
        engine.address(to)  # as a SEND would make it
    elif engine.addresses[to].is_blocked:
        raise Refused("address-blocked", f"address {to!r} is blocked by an operator")
    return await _carry(
        going, queue, lambda on_done: Move(engine, queue, to, most=order.count, on_done=on_done)
    )


async def _carry(going: Going, queue: Queue, start: Callable[[Callable[[int], None]], Redrive]) -> object:
    """Messages out of a queue, some at a time. What could not be stored where they go is not begun."""
    engine = going.broker.engine
    if engine.trouble is not None and engine.is_durable:
        raise Refused(engine.trouble.code, engine.trouble.text)
    if queue.redrive is not None:
        raise _busy(queue)
    done: asyncio.Future[int] = going.broker.loop.create_future()
    going.begin()
    carrying = start(lambda count: None if done.done() else done.set_result(count))
    going.broker.flush()
    await asyncio.wait([done], timeout=ANSWER_WITHIN)
    await going.durable()
    if carrying.stayed and not carrying.count:
        raise _refusal(carrying, user_of(going.request).name)
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
    return Refused(
        "not-permitted", f"{text} came from an address where user {user!r} has the right 'send'; they stay"
    )


async def pause_queue(going: Going) -> object:
    queue, _ = await going.queue()
    queue.pause()
    return {"queue": queue.name, "is_paused": True}


async def resume_queue(going: Going) -> object:
    queue, _ = await going.queue()
    going.begin()
    queue.resume()
    return {"queue": queue.name, "is_paused": False}


async def delete_queue(going: Going) -> object:
    order: Deletion = await going.order(Deletion)
    queue = find_queue(going.broker, order.queue)
    _require_deletion(going, queue, is_forced=order.is_forced)
    going.begin()
    going.broker.engine.drop_queue(queue)
    await going.durable()
    return {"queue": queue.name, "is_deleted": True}


def _require_deletion(going: Going, queue: Queue, *, is_forced: bool) -> None:
    """Raises Refused without the right, and for a queue that is in use."""
    right = Right.DELETE_DURABLE_QUEUE if queue.is_durable else Right.DELETE_NON_DURABLE_QUEUE
    require(going.broker, going.request, right, queue.address.name)
    if queue.owner:
        raise Refused(
            "queue-in-use", f"queue {queue.name!r} is a durable subscription's; UNSUBSCRIBE ends that"
        )
    depth = depth_of(queue)
    held = depth.ready + depth.delayed + depth.delivering
    if not is_forced and (held or queue.consumer_count):
        text = f"queue {queue.name!r} has {held} messages and {queue.consumer_count} consumers; with is_forced it goes none the less"
        raise Refused("queue-in-use", text)


# Addresses


async def delete_address(going: Going) -> object:
    order: Deletion = await going.order(Deletion)
    require(going.broker, going.request, Right.DELETE_ADDRESS, order.address)
    address = going.broker.engine.addresses.get(order.address)
    if address is None:
        raise Refused("no-such-address", f"address {order.address[:200]!r} does not exist")
    for queue in list(address.queues()):
        _require_deletion(going, queue, is_forced=order.is_forced)
    going.begin()
    engine = going.broker.engine
    is_done = await going.done(
        lambda on_done: engine.later.take(object(), transactions.dropping(engine, address, on_done))
    )
    return {"address": address.name, "is_deleted": is_done}


async def pause_address(going: Going) -> object:
    return await _of_address(going, Address.pause)


async def resume_address(going: Going) -> object:
    return await _of_address(going, Address.resume)


async def block_address(going: Going) -> object:
    return await _of_address(going, Address.block)


async def unblock_address(going: Going) -> object:
    return await _of_address(going, Address.unblock)


async def _of_address(going: Going, change: Callable[[Address], None]) -> object:
    address = await going.address()
    going.begin()
    change(address)
    return {"address": address.name, "is_paused": address.is_paused, "is_blocked": address.is_blocked}


# Reader groups


async def delete_group(going: Going) -> object:
    order = await going.group()
    going.begin()
    await grouping.delete(going.broker, order.group)
    await going.durable()
    return {"group": order.group, "is_deleted": True}


async def reset_group(going: Going) -> object:
    order = await going.group()
    going.begin()
    moved = await grouping.reset(going.broker, order.group, order.to, order.address)
    await going.durable()
    return {"group": order.group, "moved": moved}


# Sinks


async def delete_sink(going: Going) -> object:
    """Which batch it published last, and what it has staged, is known no longer: a writer that goes on may publish a batch again."""
    order: OfSink = await going.order(OfSink)
    sinks, publications = going.broker.sinks, going.broker.publications
    found = sinks.known_sinks().get(order.sink)
    if found is None or user_of(going.request).name not in found.users:
        require(going.broker, going.request)
    if found is None:
        raise Refused("no-such-sink", f"sink {order.sink[:200]!r} is not remembered")
    await publications.enter(order.sink)
    try:
        going.begin()
        sinks.forget(order.sink)
    finally:
        publications.leave(order.sink)
    await going.durable()
    return {"sink": order.sink, "is_deleted": True}


# Connections


async def close_connection(going: Going) -> object:
    """An ERROR that says so, then the end: what it had and did not acknowledge goes back."""
    order: OfConnection = await going.order(OfConnection)
    require(going.broker, going.request)
    found = next(
        (one for one in going.broker.connections if one.session_id == order.connection and not one.is_ended),
        None,
    )
    if found is None:
        raise Refused("no-such-connection", f"connection {order.connection} is not there, or not any more")
    going.begin()
    found.refuse(Refused("closed-by-operator", "an operator has closed this connection"))
    if not found.is_ended:  # STOMP 1.0 and 1.1 could go on after an ERROR
        found.end(is_failure=True)
    found.write_out()
    return {"connection": order.connection, "is_closed": True}


# Frames in the log


async def log_frames(going: Going) -> object:
    order: OfFrames = await going.order(OfFrames)
    require(going.broker, going.request)
    if order.by is None or not order.value:
        raise IllegalFrame(
            "bad-json", f"`by` is one of {', '.join([by.value for by in By])}, and `value` says which"
        )
    going.begin()
    going.broker.frames.add(Wish(order.by, order.value))
    return {"frames": going.broker.frames.listed()}


async def stop_frames(going: Going) -> object:
    order: OfFrames = await going.order(OfFrames)
    require(going.broker, going.request)
    if (order.by is None) is not (order.value == ""):
        raise IllegalFrame(
            "bad-json", "`by` and `value` go together; without both of them no frames are logged any more"
        )
    going.begin()
    going.broker.frames.remove(Wish(order.by, order.value) if order.by is not None else None)
    return {"frames": going.broker.frames.listed()}


# The configuration


async def reload(going: Going) -> object:
    """As SIGHUP: all of it, or nothing and why."""
    await going.order(Nothing)
    broker = going.broker
    require(broker, going.request)
    if broker.read_configuration is None:
        raise Refused("no-configuration", "this broker was started with a configuration that no file has")
    ended: asyncio.Future[ConfigError | None] = broker.loop.create_future()

    def tell(error: ConfigError | None) -> None:
        if not ended.done():
            ended.set_result(error)

    reloading.reload(broker, broker.read_configuration, tell)
    await asyncio.wait([ended], timeout=ANSWER_WITHIN)
    if ended.done() and (error := ended.result()) is not None:
        raise Refused("not-reloaded", f"{error.message}. Everything stays as it was")
    return {"is_done": ended.done()}


OPERATIONS: Final[Mapping[str, Operation]] = MappingProxyType(
    {
        "queues/purge": purge, "queues/redrive": redrive, "queues/move": move,
        "queues/delete": delete_queue, "addresses/delete": delete_address,
        "queues/pause": pause_queue, "queues/resume": resume_queue,
        "addresses/pause": pause_address, "addresses/resume": resume_address,
        "addresses/block": block_address, "addresses/unblock": unblock_address, "connections/close": close_connection,
        "groups/delete": delete_group, "groups/reset": reset_group, "sinks/delete": delete_sink,
        "frames/log": log_frames, "frames/stop": stop_frames, "reload": reload,
    }
)  # fmt: skip
