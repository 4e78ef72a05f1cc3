"""Requests about logs: which there are, ranges of them, where a time is. Reading needs the right `consume` on each address."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, Final

from stompbox.broker import subscriptions
from stompbox.broker.address import Address
from stompbox.broker.destinations import Destination
from stompbox.broker.watching import is_named
from stompbox.config.spaces import local
from stompbox.errors import Refused
from stompbox.message import MULTICAST
from stompbox.security import Right
from stompbox.server.answers import Answer, destinations_of, json_answer, number, offsets_in, placed
from stompbox.server.picking import Picking
from stompbox.server.selecting import selector_of
from stompbox.stomp.frames import Frame
from stompbox.store.chunks import decode

if TYPE_CHECKING:
    from stompbox.server.connection import Connection

MOST_BYTES: Final = 4 << 20  # of one answer: other clients wait while it is handed to the system
MOST_WHOLE: Final = 256 << 20  # of large bodies in one answer, when its first chunk has so many
_RECORD: Final = struct.Struct("<QII")  # before each blob: first offset, count, length


async def describe(connection: Connection, frame: Frame) -> Answer:
    """Addresses that match, with the lowest stored offset and the one after the last that is on disk."""
    broker = connection.broker
    found: dict[str, Address] = {}
    missing = []
    for destination in destinations_of(connection, frame):
        if not destination.is_wild:
            broker.permissions.require(connection.user, Right.CONSUME, destination.address)
            if frame.headers.get("create") == "true":
                make(connection, destination)
            elif destination.address not in broker.engine.addresses:
                missing.append(destination.text)
        readable = reached(connection, destination)
        if not readable and destination.is_wild:
            _require_one(connection, destination)
        found |= {local(name): address for name, address in readable.items()}
    logs = {name: {"first": address.log.oldest, "next": address.log.committed} for name, address in found.items()}
    if "sizes-from" in frame.headers:
        since = offsets_in(frame, frame.headers["sizes-from"], "header sizes-from")
        await _add_sizes(connection, found, logs, since)
    return json_answer({"addresses": logs, "missing": missing})


async def _add_sizes(connection: Connection, found: dict[str, Address], logs: dict[str, Any], since: dict[str, int]) -> None:
    """How many messages are stored from these offsets on, and their bytes."""
    starts = {address.log.id: since.get(name, 0) for name, address in found.items()}
    sizes = await connection.broker.committer.sizes(starts)
    for name, address in found.items():
        logs[name]["messages"], logs[name]["bytes"] = sizes[address.log.id]


def reached(connection: Connection, destination: Destination) -> dict[str, Address]:
    """The addresses there are under this name that the user may read."""
    broker = connection.broker
    return {
        name: address
        for name, address in broker.engine.addresses.items()
        if is_named(destination.address, name) and broker.permissions.may(connection.user, Right.CONSUME, name)
    }


def _require_one(connection: Connection, destination: Destination) -> None:
    """Of addresses that a wildcard names some must be readable: who may read none would take them for empty."""
    if any(is_named(destination.address, name) for name in connection.broker.engine.addresses):
        who = f"user {connection.user.name!r}" if connection.user.name else "a nameless client"
        text = f"{who} has the right {Right.CONSUME.value!r} on none of the addresses that {destination.text!r} names"
        raise Refused("not-permitted", text)


def make(connection: Connection, destination: Destination) -> None:
    """As a SUBSCRIBE would."""
    engine = connection.broker.engine
    if destination.address not in engine.addresses:
        connection.broker.permissions.require(connection.user, Right.CREATE_ADDRESS, destination.address)
    address = engine.address(destination.address)
    if subscriptions.routing_of(engine, destination) & MULTICAST:
        address.kinds |= MULTICAST
        return
    if (destination.queue or address.name) not in address.anycast:
        connection.broker.permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, destination.address)
    engine.anycast_queue(address, destination.queue)


def _known_address(connection: Connection, frame: Frame) -> Address:
    name = placed(connection, frame, "address")
    connection.broker.permissions.require(connection.user, Right.CONSUME, name)
    address = connection.broker.engine.addresses.get(name)
    if address is None:
        raise Refused("no-such-address", f"address {name!r} does not exist")
    return address


async def fetch(connection: Connection, frame: Frame) -> Answer:
    """Chunks as they are stored, from `start` on; with a selector, the messages in them that it takes."""
    address = _known_address(connection, frame)
    end = address.log.committed
    start, stop = number(frame, "start"), min(number(frame, "stop"), end)
    most = max(1, min(number(frame, "max-bytes", MOST_BYTES), MOST_BYTES))
    selector = selector_of(connection, frame)
    pick = Picking(selector, address).of if selector is not None else None
    committer = connection.broker.committer
    chunks = await committer.fetch(address.log.id, start, stop, most, MOST_WHOLE, pick=pick) if start < stop else []
    parts = []
    for chunk in [chunk for chunk in chunks if chunk.blob]:
        parts += [_RECORD.pack(chunk.first, chunk.count, len(chunk.blob)), chunk.blob]
    next_offset = min(chunks[-1].stop, stop) if chunks else max(start, stop)
    headers = {"next": str(next_offset), "first": str(address.log.oldest), "end": str(end)}
    return headers if selector is None else {**headers, "selected": "true"}, parts


async def offset_at(connection: Connection, frame: Frame) -> Answer:
    address = _known_address(connection, frame)
    return json_answer({"offset": await offset_at_time(connection, address, number(frame, "timestamp"))})


async def offset_at_time(connection: Connection, address: Address, timestamp: int) -> int:
    """The first message that arrived at or after a time, to the message; where the log on disk ends when there is none."""
    committer, log = connection.broker.committer, address.log
    at = await committer.find_time(log.id, timestamp)
    while at < log.committed:  # some of it may have come to the disk since: that is looked at, too
        chunks = await committer.read(log.id, at, log.committed, 1)
        if not chunks:
            break
        for chunk in chunks:
            runs = await asyncio.get_running_loop().run_in_executor(None, decode, chunk.blob, chunk.first)
            for run in runs:
                if run.arrived >= timestamp:
                    return run.first
            at = chunk.stop
    return log.committed
