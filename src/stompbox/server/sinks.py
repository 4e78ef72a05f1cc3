"""Requests of sinks: messages staged by many, published by one, each batch once.

What is staged is checked as a SEND is (incoming.py), seen by the listener's transformer, stamped as a SEND's headers are and routed by
the listener's names; only `expires` is a date everywhere. Staging needs the right `send` on each destination, publishing all the rights
that SENDs would need.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker import expiry, retained
from stompbox.broker.address import Address
from stompbox.broker.stagings import Gathered
from stompbox.errors import IllegalFrame
from stompbox.message import Run, Shape
from stompbox.server.answers import DESTINATION, Answer, durable, json_answer, json_object, number, placed
from stompbox.server.incoming import runs_of
from stompbox.server.routing import addressed, require_all
from stompbox.server.transforming import Transform, inward
from stompbox.stomp.frames import Frame
from stompbox.stomp.shapes import shape_of
from stompbox.store.chunks import EACH, joined, shape_bytes

if TYPE_CHECKING:
    from stompbox.server.connection import Connection

OF_A_TURN: Final = 500  # shapes, or messages with a transformer, that are looked at before others get their turn
MOST_GATHERED: Final = 1 << 20  # bytes of small runs that become one


def _sink(connection: Connection, frame: Frame) -> str:
    """The sink's name, which is its user's own: nobody publishes, discards or forgets what another one's sink has staged."""
    name, user = placed(connection, frame, "sink"), connection.user.name
    if "@" in name:  # so that no other two give the same
        return json.dumps([name, user])
    return f"{name}@{user}" if user else name


async def stage(connection: Connection, frame: Frame) -> Answer:
    sink, batch, part = _sink(connection, frame), number(frame, "batch"), (number(frame, "partition"), number(frame, "attempt"))
    runs = await asyncio.get_running_loop().run_in_executor(None, runs_of, frame.body, connection.options)
    if connection.transform is not None:
        runs = [run for given in runs async for run in _transformed(connection, connection.transform, given)]
    with connection.looking("what a client stages was looked at"):
        await _stamp(connection, runs)
    connection.broker.engine.now = connection.broker.now()
    count = connection.broker.stagings.stage(sink, batch, part, runs, run=frame.headers.get("run", ""))
    return json_answer({"staged": count})


async def _transformed(connection: Connection, transform: Transform, run: Run) -> AsyncIterator[Run]:
    """Each message as the listener's transformer wants it, some of them in each turn of the loop."""
    checks_names, length = connection.options.check_property_names, {"content-length": ""} if run.shape.has_length else {}
    for index, body in enumerate(run.bodies):
        if index % OF_A_TURN == 0:
            await asyncio.sleep(0)
        frame = Frame("SEND", {**run.headers(index), **length}, body)
        changed = inward(transform, frame, connection.user.name, checks_names=checks_names)
        yield Run(shape_of(changed.headers), [changed.body])


async def _stamp(connection: Connection, runs: Sequence[Run]) -> None:
    """Gives each run the shape that it is routed by. Raises for what the user may not send."""
    stamps, stamped = connection.stamps, dict[Shape, Shape]()
    for run in runs:
        shape = stamped.get(run.shape)
        if shape is None:
            if len(stamped) % OF_A_TURN == 0:
                await asyncio.sleep(0)
            shape = run.shape if stamps is None else stamps.on(run.shape, 0, is_date=True)
            _check(connection, shape)
            stamped[run.shape] = shape
        run.shape = shape


def _check(connection: Connection, shape: Shape) -> None:
    """What is refused of a SEND, before anything is made for it."""
    expiry.check(shape, connection.broker.now())
    if shape.destination == DESTINATION:
        raise IllegalFrame("bad-destination", f"a request to {DESTINATION} cannot be staged")
    require_all(connection, connection.names.route(shape))


async def publish(connection: Connection, frame: Frame) -> Answer:
    attempts = json_object(frame, frame.body, "the body").get("attempts")
    if not isinstance(attempts, list) or not all(_is_part(part) for part in attempts):
        raise IllegalFrame("bad-json", "request publish needs attempts: a list of [partition, attempt]")
    parts = [(partition, attempt) for partition, attempt in attempts]
    route = partial(_routed, connection)
    stagings, sink, batch = connection.broker.stagings, _sink(connection, frame), number(frame, "batch")
    chosen = stagings.chosen(sink, batch, parts)
    gathered = None
    if chosen is not None:  # one by one, thousands of small runs would take the loop's time
        runs = await asyncio.get_running_loop().run_in_executor(None, gather, [run for part in chosen for run in part])
        gathered = Gathered(chosen, runs)
        connection.broker.engine.now = connection.broker.now()
    sent = stagings.publish(sink, batch, parts, route, gathered)
    for address, run in sent or ():
        if connection.broker.engine.trouble is not None or address.limits is not None:
            connection.broker.pressure.sent(connection, address, run)
    await durable(connection)
    return json_answer({"published": sum([len(run) for _, run in sent or ()]), "already": sent is None})


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


def _routed(connection: Connection, run: Run) -> list[tuple[Address, Run]]:
    """Where its messages go, as a SEND's would."""
    shape = run.shape
    route = connection.names.route(shape)
    require_all(connection, route)
    found = addressed(connection, shape, route, run.bodies, run.columns)
    retained.check(found)
    return found


async def discard(connection: Connection, frame: Frame) -> Answer:
    connection.broker.stagings.discard(_sink(connection, frame), number(frame, "batch"))
    return json_answer({})


async def sink_delete(connection: Connection, frame: Frame) -> Answer:
    """A sink that will write no more: which batch it published last need not be remembered."""
    connection.broker.stagings.forget(_sink(connection, frame))
    await durable(connection)
    return json_answer({})
