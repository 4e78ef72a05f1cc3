"""Requests of sinks: messages staged by many, published by one, each batch once.

What is staged is checked as a SEND is (incoming.py), seen by the listener's transformer, given the headers that the broker adds to a
SEND, and routed by the listener's names; only `expires` is a date everywhere. Staging needs the right `send` on each destination,
publishing all the rights that SENDs would need. How a batch is published is in publishing.py, what is remembered of it in
broker/subscriptions/staging.py.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker.queues import expiry
from stompbox.broker.subscriptions.staging import (
    MOST_NAMED,
    Attempt,
    PartitionAttempt,
    Publication,
    Published,
    digest_of,
)
from stompbox.errors import IllegalFrame, Refused, StoreError
from stompbox.message import Run, Shape
from stompbox.server.addressing.routing import answered, require_all
from stompbox.server.addressing.transforming import Transform, inward
from stompbox.server.owners import owner_of
from stompbox.server.requests.incoming import Alike, Looked, kinds_of, runs_of
from stompbox.server.requests.publishing import Inspection, checked, keep, reading_of, summary_of
from stompbox.server.requests.replies import (
    Reply,
    durable,
    each,
    json_object,
    json_reply,
    kept,
    number,
    qualified,
)
from stompbox.stomp.frames import Frame
from stompbox.stomp.shapes import shape_of
from stompbox.store.chunks import encode, shape_bytes

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker

# shapes, or messages with a transformer, that are looked at before others get their turn
OF_A_TURN: Final = 500
Parts = dict[PartitionAttempt, None]
"""Attempts at partitions, in their order."""

ONCE_PER: Final = ("batch", "destination")
# octets of a chunk that may become a log's as it lies: smaller ones are joined, and larger ones cut, when they are published
LEAST_READY: Final = 64 << 10
MOST_READY: Final = 4 << 20
MOST_MESSAGES: Final = 1 << 16  # of such a chunk, which is decoded whole by whoever reads one of them
MOST_KEPT: Final = 1 << 10  # octets of a shape that memory keeps for it


def _sink(connection: Asker, frame: Frame) -> str:
    """The sink's name, which is its user's own: nobody publishes, discards or forgets what another one's sink has staged."""
    name, user = qualified(connection, frame, "sink"), connection.user.name
    if "@" in name:  # so that no other two give the same
        return json.dumps([name, user])
    return f"{name}@{user}" if user else name


def _is_by_destination(frame: Frame) -> bool:
    """Whether a batch may be several writes, each to destinations of its own."""
    given = frame.headers.get("once-per", ONCE_PER[0])
    if given not in ONCE_PER:
        raise IllegalFrame(
            "bad-once-per", f"header once-per is {given[:80]!r}; allowed are {' and '.join(ONCE_PER)}"
        )
    return given == ONCE_PER[1]


async def stage(connection: Asker, frame: Frame) -> Reply:
    broker, sinks = connection.broker, connection.broker.sinks
    sink, batch, part = (
        _sink(connection, frame),
        number(frame, "batch"),
        (number(frame, "partition"), number(frame, "attempt")),
    )
    run, is_by_destination = frame.headers.get("run", ""), _is_by_destination(frame)
    if sinks.is_published(sink, batch, by_destination=is_by_destination):
        return json_reply({"staged": 0})
    sinks.begin_run(sink, run)
    chunk, (kinds, is_chunk) = await _looked_at(connection, frame)
    body = broker.engine.bodies.new()
    body.size = len(chunk)
    count, is_given = sum([kind.messages for kind in kinds]), chunk is frame.body
    ready = _ready(kinds, len(chunk)) if is_chunk else b""
    attempt = Attempt(sink, batch, part, run, owner_of(connection), body, count, is_given, ready)
    sinks.reserve(attempt)
    try:
        _require_disk(connection)
        await keep(broker, body, summary_of(kinds), chunk)
    except BaseException:
        sinks.release(attempt)
        raise
    broker.set_time()
    if sinks.is_published(sink, batch, by_destination=is_by_destination):
        sinks.release(attempt)
        return json_reply({"staged": 0})
    sinks.stage(attempt)
    try:
        await durable(connection)
    except StoreError:
        sinks.take_back(attempt)
        raise
    return json_reply({"staged": count})


def _require_disk(connection: Asker) -> None:
    trouble = connection.broker.engine.trouble
    if trouble is not None and connection.broker.engine.is_durable:
        raise Refused(trouble.code, trouble.text)


def _ready(kinds: Sequence[Alike], size: int) -> bytes:
    """The first of these shapes as bytes, when a chunk of them may be a log's as it lies: it is not too small or large for one, and all of
    its messages go the same way, and ask for nothing when they arrive."""
    messages = sum([kind.messages for kind in kinds])
    if not (kinds and LEAST_READY <= size <= MOST_READY and messages <= MOST_MESSAGES):
        return b""
    first = kinds[0].shape
    to, persistent = _way(first), first.persistent
    for shape, *_ in kinds:
        if shape.special is not None or shape.retain or shape.expires:
            return b""
        if _way(shape) != to or shape.persistent is not persistent:
            return b""
    key = shape_bytes(first)
    return key if len(key) <= MOST_KEPT else b""


def _way(shape: Shape) -> tuple[str, str | None]:
    return shape.destination, shape.headers.get("destination-type")


async def _looked_at(connection: Asker, frame: Frame) -> tuple[bytes, Looked]:
    """The chunk that is kept, which is the client's own where its messages stay as they are, and what is in it."""
    beside = partial(asyncio.get_running_loop().run_in_executor, None)
    if connection.transform is None and connection.added_headers is None:
        looked = await beside(kinds_of, frame.body, connection.options)
        with connection.changing_nothing("what a client stages was looked at"):
            if not await _has_replies(connection, [kind.shape for kind in looked.kinds]):
                return frame.body, looked
    runs = await beside(runs_of, frame.body, connection.options)
    if connection.transform is not None:
        runs = [run for given in runs async for run in _transformed(connection, connection.transform, given)]
    with connection.changing_nothing("what a client stages was looked at"):
        await _add_headers(connection, runs)
    return await beside(_packed, runs)


def _packed(runs: Sequence[Run]) -> tuple[bytes, Looked]:
    first = 0
    runs = [run for run in runs if run.bodies]
    for run in runs:
        run.first, first = first, first + len(run)
    kinds = [Alike(run.shape, len(run), run.size, len(run.bodies[-1])) for run in runs]
    return encode(runs, 0), Looked(kinds, is_chunk=True)


async def _has_replies(connection: Asker, shapes: Sequence[Shape]) -> bool:
    """Whether answers to one of these are to come to a temporary destination. Raises for what the user may not send."""
    has_replies = False
    for at, shape in enumerate(shapes):
        if at % OF_A_TURN == 0:
            await asyncio.sleep(0)
        _check(connection, shape)
        has_replies |= connection.names.route(shape).reply is not None
    return has_replies


async def _transformed(connection: Asker, transform: Transform, run: Run) -> AsyncIterator[Run]:
    """Each message as the listener's transformer wants it, some of them in each turn of the loop."""
    checks_names, length = (
        connection.options.check_property_names,
        {"content-length": ""} if run.shape.has_length else {},
    )
    for index in range(len(run)):
        if index % OF_A_TURN == 0:
            await asyncio.sleep(0)
        frame = Frame("SEND", {**run.headers(index), **length}, run.octets(index))
        changed = inward(transform, frame, connection.user.name, checks_names=checks_names)
        yield Run(shape_of(changed.headers), [changed.body])


async def _add_headers(connection: Asker, runs: Sequence[Run]) -> None:
    """Gives each run the shape that it is routed by. Raises for what the user may not send."""
    added, shapes = connection.added_headers, dict[Shape, Shape]()
    for run in runs:
        shape = shapes.get(run.shape)
        if shape is None:
            if len(shapes) % OF_A_TURN == 0:
                await asyncio.sleep(0)
            shape = run.shape if added is None else added.on(run.shape, 0, is_date=True)
            _check(connection, shape)
            reply = connection.names.route(shape).reply
            shape = shapes[run.shape] = shape if reply is None else answered(connection, shape, reply)
        run.shape = shape
        if added is not None:
            run.shape, run.columns = added.with_ids(shape, run.columns, len(run))


def _check(connection: Asker, shape: Shape) -> None:
    """What is refused of a SEND, before anything is made for it."""
    expiry.check(shape, connection.broker.now())
    require_all(connection, connection.names.route(shape))


async def publish(connection: Asker, frame: Frame) -> Reply:
    parts = await _parts_in(connection, frame)
    sink, batch, is_by_destination = (
        _sink(connection, frame),
        number(frame, "batch"),
        _is_by_destination(frame),
    )
    publications = connection.broker.publications
    await publications.enter(sink)
    is_left = False
    try:
        publication, look = await _wanted(connection, sink, batch, parts, is_by_destination=is_by_destination)
        if publication is None:
            connection.broker.sinks.discard_parts(sink, batch, parts)
            return json_reply({"published": 0, "already": True})
        if frame.headers.get("single") == "true":
            publication.after = replace(
                publication.after, until=connection.broker.now() + connection.broker.sinks.timeout
            )
        is_left = True
        sent = await publications.publish(connection, publication, look)
    finally:
        if not is_left:
            publications.leave(sink)
    return json_reply({"published": sent, "already": False})


async def _wanted(
    connection: Asker, sink: str, batch: int, parts: Parts, *, is_by_destination: bool
) -> tuple[Publication | None, Inspection]:
    """What is to be published; None when it was. Raises for what may not be."""
    sinks, user = connection.broker.sinks, owner_of(connection)
    if sinks.is_published(sink, batch, by_destination=is_by_destination):
        return None, Inspection(connection)
    sinks.require_known(sink, user)
    last = sinks.published.get(sink)
    is_again = last is not None and last.batch == batch
    if is_again and not parts:
        return None, Inspection(connection)
    attempts = await connection.broker.turns.taken(sinks.choosing(sink, batch, parts))
    look = await checked(connection, attempts)
    addresses = frozenset(look.addresses) if is_by_destination else None
    after = _after(user, batch, addresses)
    if last is not None and is_again and addresses is not None:
        if last.has(addresses):
            return None, look
        after = last.with_more(addresses)
    return Publication(sink, batch, user, deque(attempts), reading_of(connection), after), look


def _after(user: str, batch: int, addresses: frozenset[str] | None) -> Published:
    if addresses is not None and len(addresses) > MOST_NAMED:
        return Published(batch, user, frozenset(), digest_of(addresses))
    return Published(batch, user, addresses)


async def _parts_in(connection: Asker, frame: Frame) -> Parts:
    """The attempts that are to be published, each once."""
    wish = (await json_object(connection, frame, frame.body, "the body")).get("attempts")
    parts: Parts = kept(connection, {})
    refusal = IllegalFrame("bad-json", "request publish needs attempts: a list of [partition, attempt]")
    if not isinstance(wish, list):
        raise refusal
    async for part in each(connection, wish):
        if not _is_part(part):
            raise refusal
        parts[part[0], part[1]] = None
    return parts


def _is_part(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value)


async def discard(connection: Asker, frame: Frame) -> Reply:
    connection.broker.sinks.discard(_sink(connection, frame), number(frame, "batch"))
    return json_reply({})


async def sink_delete(connection: Asker, frame: Frame) -> Reply:
    """A sink that will write no more: which batch it published last need not be remembered."""
    sink, publications = _sink(connection, frame), connection.broker.publications
    await publications.enter(sink)
    try:
        connection.broker.sinks.forget(sink)
    finally:
        publications.leave(sink)
    await durable(connection)
    return json_reply({})
