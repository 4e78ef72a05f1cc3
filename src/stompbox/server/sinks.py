"""Requests of sinks: messages staged by many, published by one, each batch once. Staging and publishing need the right `send`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker import subscriptions
from stompbox.broker.address import Address
from stompbox.broker.destinations import Destination
from stompbox.broker.stagings import Gathered
from stompbox.errors import IllegalFrame
from stompbox.message import MULTICAST, Run
from stompbox.security import Right
from stompbox.server.answers import Answer, durable, json_answer, json_object, number, placed
from stompbox.stomp.frames import Frame
from stompbox.store.chunks import EACH, decode, joined, shape_bytes

if TYPE_CHECKING:
    from stompbox.server.connection import Connection

MOST_GATHERED: Final = 1 << 20  # bytes of small runs that become one


def _sink(connection: Connection, frame: Frame) -> str:
    """The sink's name, which is its user's own: nobody publishes, discards or forgets what another one's sink has staged."""
    name, user = placed(connection, frame, "sink"), connection.user.name
    return f"{name}@{user}" if user else name


async def stage(connection: Connection, frame: Frame) -> Answer:
    sink, batch, part = _sink(connection, frame), number(frame, "batch"), (number(frame, "partition"), number(frame, "attempt"))
    runs = await asyncio.get_running_loop().run_in_executor(None, decode, frame.body, 0)
    for name in {run.shape.destination for run in runs}:
        _target(connection, name)
    connection.broker.engine.now = connection.broker.now()
    count = connection.broker.stagings.stage(sink, batch, part, runs, run=frame.headers.get("run", ""))
    return json_answer({"staged": count})


def _target(connection: Connection, text: str) -> Destination:
    destination = connection.names.parse_one(text)
    if destination.is_wild or destination.is_stream:
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r} can be subscribed to, not sent to")
    connection.broker.permissions.require(connection.user, Right.SEND, destination.address)
    return destination


async def publish(connection: Connection, frame: Frame) -> Answer:
    attempts = json_object(frame, frame.body, "the body").get("attempts")
    if not isinstance(attempts, list) or not all(_is_part(part) for part in attempts):
        raise IllegalFrame("bad-json", "request publish needs attempts: a list of [partition, attempt]")
    parts = [(partition, attempt) for partition, attempt in attempts]
    route = partial(_route, connection)
    stagings, sink, batch = connection.broker.stagings, _sink(connection, frame), number(frame, "batch")
    chosen = stagings.chosen(sink, batch, parts)
    gathered = None
    if chosen is not None:  # one by one, thousands of small runs would take the loop's time
        runs = await asyncio.get_running_loop().run_in_executor(None, gather, [run for part in chosen for run in part])
        gathered = Gathered(chosen, runs)
        connection.broker.engine.now = connection.broker.now()
    count = stagings.publish(sink, batch, parts, route, gathered)
    await durable(connection)
    return json_answer({"published": count or 0, "already": count is None})


def _is_part(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value)


def gather(runs: Sequence[Run]) -> list[Run]:
    """The same messages in fewer runs: those of a destination keep their order, and neighbours of one shape become one."""
    groups: dict[str, list[list[Run]]] = {}
    sizes: dict[str, int] = {}
    for run in runs:
        destination = run.shape.destination
        found = groups.setdefault(destination, [])
        size = sizes.get(destination, 0) + run.size + EACH * len(run.bodies)
        if found and size <= MOST_GATHERED and _is_alike(found[-1][0], run):
            found[-1].append(run)
            sizes[destination] = size
        else:
            found.append([run])
            sizes[destination] = run.size + EACH * len(run.bodies)
    return [_one(group) for found in groups.values() for group in found]


def _is_alike(one: Run, other: Run) -> bool:
    return one.shape is other.shape or shape_bytes(one.shape) == shape_bytes(other.shape)


def _one(group: Sequence[Run]) -> Run:
    if len(group) == 1:
        return group[0]
    bodies, columns = joined(group)
    return Run(group[0].shape, bodies, columns)


def _route(connection: Connection, run: Run) -> Address:
    engine = connection.broker.engine
    destination = _target(connection, run.shape.destination)
    address = engine.address(destination.address)
    run.routing = destination.routing or address.kinds or subscriptions.routing_of(engine, destination)
    if run.routing & MULTICAST:
        address.kinds |= MULTICAST
    run.sender = connection.session_id
    return address


async def discard(connection: Connection, frame: Frame) -> Answer:
    connection.broker.stagings.discard(_sink(connection, frame), number(frame, "batch"))
    return json_answer({})


async def sink_delete(connection: Connection, frame: Frame) -> Answer:
    """A sink that will write no more: which batch it published last need not be remembered."""
    connection.broker.stagings.forget(_sink(connection, frame))
    await durable(connection)
    return json_answer({})
