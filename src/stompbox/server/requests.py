"""Requests over STOMP: what Spark and the command line ask of logs, groups and sinks, beside plain messages.

A request is a SEND to `stompbox.requests` with headers `request` and `request-id`; the answer is a MESSAGE on the same connection.
docs/protocol.md describes each. Rights are those of any client: reading a log needs `consume`, publishing needs `send`.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from stompbox.broker import groups, subscriptions
from stompbox.broker.address import Address
from stompbox.broker.destinations import Destination, parse
from stompbox.broker.watching import is_named
from stompbox.errors import IllegalFrame, Refused, StompboxError
from stompbox.message import MULTICAST, Run
from stompbox.security import Right
from stompbox.stomp.codec import encode
from stompbox.stomp.frames import Frame
from stompbox.store.chunks import decode

if TYPE_CHECKING:
    from stompbox.server.connection import Connection

DESTINATION: Final = "stompbox.requests"
_RECORD: Final = struct.Struct("<QII")  # before each blob: first offset, count, length
_MOST_BYTES: Final = 16 << 20

Answer = tuple[dict[str, str], bytes]
Handler = Callable[["Connection", Frame], Awaitable[Answer]]


def receive(connection: Connection, frame: Frame) -> None:
    """Takes a request up; its answer comes when it is ready."""
    name = frame.headers.get("request", "")
    if "request-id" not in frame.headers:
        raise IllegalFrame("missing-request-id", "a request needs a request-id header")
    task = connection.broker.loop.create_task(_serve(connection, name, frame))
    connection.broker.tasks.add(task)
    task.add_done_callback(connection.broker.tasks.discard)


async def _serve(connection: Connection, name: str, frame: Frame) -> None:
    broker = connection.broker
    broker.engine.now = broker.now()
    try:
        handler = REQUESTS.get(name)
        if handler is None:
            raise IllegalFrame("unknown-request", f"request {name[:80]!r} is unknown; there are {', '.join(sorted(REQUESTS))}")
        headers, body = await handler(connection, frame)
        headers["status"] = "ok"
    except StompboxError as error:
        broker.errors[error.code] += 1
        headers, body = {"status": "error", "code": error.code, "message": error.message}, b""
    _answer(connection, frame, headers, body)


def _answer(connection: Connection, frame: Frame, headers: dict[str, str], body: bytes) -> None:
    if connection.is_lost or connection.is_ended:
        return
    given = frame.headers["request-id"]
    head = {"subscription": DESTINATION, "destination": DESTINATION, "message-id": f"request-{given}", "request-id": given}
    answer = Frame("MESSAGE", head | headers | {"content-length": str(len(body))}, body)
    connection.out.append(encode(answer, connection.session.version))
    connection.write_out()
    connection.broker.flush()


def _json(value: object) -> Answer:
    return {"content-type": "application/json"}, json.dumps(value, separators=(",", ":")).encode()


def _header(frame: Frame, name: str) -> str:
    given = frame.headers.get(name)
    if not given:
        raise IllegalFrame("missing-header", f"request {frame.headers['request']} needs a header {name}")
    return given


def _number(frame: Frame, name: str, default: int | None = None) -> int:
    given = frame.headers.get(name)
    if given is None and default is not None:
        return default
    text = _header(frame, name)
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise IllegalFrame("bad-number", f"header {name} is {text[:80]!r}; allowed is a number from 0 on")
    return int(text)


def _body(frame: Frame) -> dict[str, Any]:
    try:
        value = json.loads(frame.body)
    except ValueError as error:
        raise IllegalFrame("bad-json", f"the body of request {frame.headers['request']} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise IllegalFrame("bad-json", f"the body of request {frame.headers['request']} must be a JSON object")
    return value


def _destinations(connection: Connection, frame: Frame) -> list[Destination]:
    options = connection.options
    texts = [text.strip() for text in _header(frame, "destinations").split(",")]
    return [parse(text, options.anycast_prefix, options.multicast_prefix) for text in texts if text]


def _known_address(connection: Connection, frame: Frame) -> Address:
    name = _header(frame, "address")
    connection.broker.permissions.require(connection.user, Right.CONSUME, name)
    address = connection.broker.engine.addresses.get(name)
    if address is None:
        raise Refused("no-such-address", f"address {name!r} does not exist")
    return address


# Logs


async def describe(connection: Connection, frame: Frame) -> Answer:
    """Addresses that match, with the lowest stored offset and the one after the last that is on disk."""
    broker = connection.broker
    found: dict[str, Address] = {}
    for destination in _destinations(connection, frame):
        if not destination.is_wild:
            broker.permissions.require(connection.user, Right.CONSUME, destination.address)
            if frame.headers.get("create") == "true":
                _make(connection, destination)
        for name, address in broker.engine.addresses.items():
            if is_named(destination.address, name) and broker.permissions.may(connection.user, Right.CONSUME, name):
                found[name] = address
    return _json({"addresses": {name: {"first": address.log.oldest, "next": address.log.committed} for name, address in found.items()}})


def _make(connection: Connection, destination: Destination) -> None:
    """As a SUBSCRIBE would."""
    engine = connection.broker.engine
    if destination.address not in engine.addresses:
        connection.broker.permissions.require(connection.user, Right.CREATE_ADDRESS, destination.address)
    address = engine.address(destination.address)
    if subscriptions.routing_of(engine, destination) & MULTICAST:
        address.kinds |= MULTICAST
    else:
        engine.anycast_queue(address, destination.queue)


async def fetch(connection: Connection, frame: Frame) -> Answer:
    """Chunks as they are stored, from `start` on."""
    address = _known_address(connection, frame)
    start = _number(frame, "start")
    stop = min(_number(frame, "stop"), address.log.committed)
    most = max(1, min(_number(frame, "max-bytes", _MOST_BYTES), _MOST_BYTES))
    chunks = await connection.broker.committer.read(address.log.id, start, stop, most) if start < stop else []
    parts = []
    for chunk in chunks:
        parts += [_RECORD.pack(chunk.first, chunk.count, len(chunk.blob)), chunk.blob]
    next_offset = min(chunks[-1].stop, stop) if chunks else max(start, stop)
    return {"next": str(next_offset), "first": str(address.log.oldest)}, b"".join(parts)


async def offset_at(connection: Connection, frame: Frame) -> Answer:
    address = _known_address(connection, frame)
    return _json({"offset": await offset_at_time(connection, address, _number(frame, "timestamp"))})


async def offset_at_time(connection: Connection, address: Address, timestamp: int) -> int:
    """The first message that arrived at or after a time, to the message."""
    committer, log = connection.broker.committer, address.log
    start = await committer.find_time(log.id, timestamp)
    if start >= log.committed:
        return log.committed
    for chunk in await committer.read(log.id, start, log.committed, 1):
        runs = await asyncio.get_running_loop().run_in_executor(None, decode, chunk.blob, chunk.first)
        for run in runs:
            if run.arrived >= timestamp:
                return run.first
    return start


# Groups


async def group_open(connection: Connection, frame: Frame) -> Answer:
    name = _header(frame, "group")
    engine = connection.broker.engine
    destinations = _destinations(connection, frame)
    for destination in destinations:
        connection.broker.permissions.require(connection.user, Right.CONSUME, destination.address)
        if not destination.is_wild:
            _make(connection, destination)
    starting = await _starting(connection, _header(frame, "starting"), destinations)
    found = groups.open_group(engine, name, [destination.address for destination in destinations], starting)
    await _durable(connection)
    return _json({"positions": found})


async def _starting(connection: Connection, text: str, destinations: list[Destination]) -> Callable[[Address], int]:
    if text == "earliest":
        return lambda address: address.log.oldest
    if text == "latest":
        return lambda address: address.log.next
    if text.startswith("json:"):
        offsets = json.loads(text[5:])
        return lambda address: int(offsets.get(address.name, address.log.oldest))
    kind, _, digits = text.rpartition(":")
    if not (digits.isascii() and digits.isdigit() and kind in ("", "time")):
        allowed = "earliest, latest, a number, time:<ms> and json:<object>"
        raise IllegalFrame("bad-starting", f"header starting is {text[:80]!r}; allowed are {allowed}")
    if kind == "":
        return lambda address: int(digits)
    names = [a for a in connection.broker.engine.addresses.values() if any(is_named(d.address, a.name) for d in destinations)]
    at = {address.name: await offset_at_time(connection, address, int(digits)) for address in names}
    return lambda address: at.get(address.name, address.log.next)


async def group_commit(connection: Connection, frame: Frame) -> Answer:
    offsets = _body(frame)
    if not all(isinstance(offset, int) for offset in offsets.values()):
        raise IllegalFrame("bad-json", "request group-commit needs numbers by address")
    for name in offsets:
        connection.broker.permissions.require(connection.user, Right.CONSUME, name)
    groups.commit_group(connection.broker.engine, _header(frame, "group"), offsets)
    await _durable(connection)
    return _json({})


async def group_delete(connection: Connection, frame: Frame) -> Answer:
    name = _header(frame, "group")
    for address in groups.positions(connection.broker.engine, name):
        connection.broker.permissions.require(connection.user, Right.CONSUME, address)
    groups.drop_group(connection.broker.engine, name)
    await _durable(connection)
    return _json({})


# Sinks


async def stage(connection: Connection, frame: Frame) -> Answer:
    runs = await asyncio.get_running_loop().run_in_executor(None, decode, frame.body, 0)
    for name in {run.shape.destination for run in runs}:
        _sink_target(connection, name)
    part = (_number(frame, "partition"), _number(frame, "attempt"))
    count = connection.broker.stagings.stage(_header(frame, "sink"), _number(frame, "batch"), part, runs)
    return _json({"staged": count})


def _sink_target(connection: Connection, text: str) -> Destination:
    destination = parse(text, connection.options.anycast_prefix, connection.options.multicast_prefix)
    if destination.is_wild or destination.is_stream:
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r} can be subscribed to, not sent to")
    connection.broker.permissions.require(connection.user, Right.SEND, destination.address)
    return destination


async def publish(connection: Connection, frame: Frame) -> Answer:
    attempts = _body(frame).get("attempts")
    if not isinstance(attempts, list) or not all(isinstance(part, list) and len(part) == 2 for part in attempts):
        raise IllegalFrame("bad-json", "request publish needs attempts: a list of [partition, attempt]")
    parts = [(int(partition), int(attempt)) for partition, attempt in attempts]
    route = partial(_route, connection)
    count = connection.broker.stagings.publish(_header(frame, "sink"), _number(frame, "batch"), parts, route)
    await _durable(connection)
    return _json({"published": count or 0, "already": count is None})


def _route(connection: Connection, run: Run) -> Address:
    engine = connection.broker.engine
    destination = _sink_target(connection, run.shape.destination)
    address = engine.address(destination.address)
    run.routing = destination.routing or address.kinds or subscriptions.routing_of(engine, destination)
    if run.routing & MULTICAST:
        address.kinds |= MULTICAST
    run.sender = connection.session_id
    return address


async def discard(connection: Connection, frame: Frame) -> Answer:
    connection.broker.stagings.discard(_header(frame, "sink"), _number(frame, "batch"))
    return _json({})


async def _durable(connection: Connection) -> None:
    """Until what was done up to now is on disk. Raises StoreError when it could not be stored."""
    broker = connection.broker
    if not broker.engine.is_dirty and not broker.committer.is_busy:
        return
    waiter: asyncio.Future[None] = broker.loop.create_future()
    broker.when_durable(waiter)
    broker.flush()
    await waiter


REQUESTS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "describe": describe, "fetch": fetch, "offset-at": offset_at, "group-open": group_open, "group-commit": group_commit,
        "group-delete": group_delete, "stage": stage, "publish": publish, "discard": discard,
    }
)  # fmt: skip
