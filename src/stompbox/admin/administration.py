"""What an operator can do to reader groups, sinks, connections, the log of frames, and the configuration. Each is an
endpoint (endpoints.py), whose description is its docstring."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from stompbox.admin.apirequest import ANSWER_WITHIN, ApiRequest
from stompbox.admin.endpoints import ON_BROKER, Nothing, changing, naming
from stompbox.errors import IllegalFrame, Refused, StompboxError
from stompbox.security import Right
from stompbox.server import reloading
from stompbox.server.requests import grouping
from stompbox.server.session.framelog import By, Wish

if TYPE_CHECKING:
    from stompbox.server.broker import Broker

ON_DESTINATIONS: Final = "Needs `manage` on its destinations as they are written."

GroupName = Annotated[str, Meta(description="Name of the reader group.")]


class OfGroup(Struct, forbid_unknown_fields=True):
    """An order about a reader group."""

    group: GroupName


class Seeking(Struct, forbid_unknown_fields=True):
    """An order where a reader group goes on."""

    group: GroupName
    to: Annotated[str, Meta(description="`earliest`, `latest`, an offset, or `time:MS`.")] = ""
    address: Annotated[str, Meta(description="On this address alone.")] = ""


class OfSink(Struct, forbid_unknown_fields=True):
    """An order about a sink."""

    sink: Annotated[str, Meta(description="Name of the sink.")]


class OfConnection(Struct, forbid_unknown_fields=True):
    """An order about a connection."""

    connection: Annotated[int, Meta(description="Its `id`.")]


class OfFrames(Struct, forbid_unknown_fields=True):
    """Whose frames. To stop: none is all."""

    by: Annotated[By | None, Meta(description="What `value` is of.")] = None
    value: Annotated[
        str,
        Meta(
            description="Id of a connection, name of a user, IP address of a peer, or name or pattern of an address."
        ),
    ] = ""


# Answers


class GroupDeleted(Struct):
    group: str
    is_deleted: bool


class GroupMoved(Struct):
    """On how many addresses the group has moved."""

    group: str
    moved: int


class SinkDeleted(Struct):
    sink: str
    is_deleted: bool


class ConnectionClosed(Struct):
    connection: int
    is_closed: bool


class FrameWishes(Struct):
    """Whose frames are logged because an operator asked for it."""

    frames: list[dict[str, str]]


class Done(Struct):
    """Whether all is done; false while it goes on."""

    is_done: bool


def _group(asked: ApiRequest) -> None:
    """Raises Refused where the order's is not there, or the user may not manage it."""
    name: str = asked.order.group
    patterns = asked.broker.engine.group_patterns.get(name)
    if patterns is None:
        asked.require()
        raise Refused("no-such-group", f"reader group {name[:200]!r} does not exist")
    for pattern in patterns:
        asked.require(Right.MANAGE, pattern)


# Reader groups


@changing("groups/delete", OfGroup, GroupDeleted, ON_DESTINATIONS)
async def delete_group(asked: ApiRequest) -> object:
    """The group and its positions are gone; what was kept for it alone may go."""
    order: OfGroup = asked.order
    _group(asked)
    asked.begin()
    await grouping.delete(asked.broker, order.group)
    await asked.durable()
    return {"group": order.group, "is_deleted": True}


@changing("groups/reset", Seeking, GroupMoved, ON_DESTINATIONS)
async def reset_group(asked: ApiRequest) -> object:
    """The group goes on elsewhere, also back, as far as messages are still there."""
    order: Seeking = asked.order
    _group(asked)
    asked.begin()
    moved = await grouping.reset(asked.broker, order.group, order.to, order.address, named="to")
    await asked.durable()
    return {"group": order.group, "moved": moved}


# Sinks


@changing("sinks/delete", OfSink, SinkDeleted, "For its user, and for who has `manage` on `stompbox.admin`.")
async def delete_sink(asked: ApiRequest) -> object:
    """Which batch it published last, and what it has staged, is known no longer: for writers that do not come back. One that goes on may
    publish a batch again."""
    order: OfSink = asked.order
    sinks, publications = asked.broker.sinks, asked.broker.publications
    found = sinks.known_sinks().get(order.sink)
    if found is None or asked.user.name not in found.users:
        asked.require()
    if found is None:
        raise Refused("no-such-sink", f"sink {order.sink[:200]!r} is not remembered")
    await publications.enter(order.sink)
    try:
        asked.begin()
        sinks.forget(order.sink)
    finally:
        publications.leave(order.sink)
    await asked.durable()
    return {"sink": order.sink, "is_deleted": True}


# Connections


@changing("connections/close", OfConnection, ConnectionClosed, ON_BROKER)
async def close_connection(asked: ApiRequest) -> object:
    """The client gets an ERROR that says so, then the end: what it had and did not acknowledge goes back."""
    order: OfConnection = asked.order
    asked.require()
    found = next(
        (one for one in asked.broker.connections if one.session_id == order.connection and not one.is_ended),
        None,
    )
    if found is None:
        raise Refused("no-such-connection", f"connection {order.connection} is not there, or not any more")
    asked.begin()
    found.refuse(Refused("closed-by-operator", "an operator has closed this connection"))
    if not found.is_ended:  # STOMP 1.0 and 1.1 could go on after an ERROR
        found.end(is_failure=True)
    found.write_out()
    return {"connection": order.connection, "is_closed": True}


# Frames in the log


@changing("frames/log", OfFrames, FrameWishes, ON_BROKER)
async def log_frames(asked: ApiRequest) -> object:
    """Frames go to the log from now on; it shows bodies then."""
    order: OfFrames = asked.order
    asked.require()
    if order.by is None or not order.value:
        with naming("by" if order.by is None else "value"):
            raise IllegalFrame(
                "bad-json", f"`by` is one of {', '.join([by.value for by in By])}, and `value` says which"
            )
    with naming("value"):
        wish = Wish(order.by, _one_of(asked.broker, order.by, order.value))
    asked.begin()
    asked.broker.frames.add(wish)
    return {"frames": asked.broker.frames.listed()}


def _one_of(broker: Broker, by: By, value: str) -> str:
    """What is followed, in its usual spelling. Raises for what no frame can come from: a user or an address may come later."""
    if by is By.CONNECTION and not any(str(one.session_id) == value for one in broker.connections):
        raise Refused("no-such-connection", f"connection {value[:80]!r} is not there, or not any more")
    if by is By.PEER and value != "local":  # a file of this machine
        try:
            return str(ip_address(value))
        except ValueError:
            raise IllegalFrame("bad-json", f"peer {value[:80]!r} is no IP address, and not `local`") from None
    return value


@changing("frames/stop", OfFrames, FrameWishes, ON_BROKER)
async def stop_frames(asked: ApiRequest) -> object:
    """Frames do not go to the log any more; without fields none do."""
    order: OfFrames = asked.order
    asked.require()
    if (order.by is None) is not (order.value == ""):
        with naming("by" if order.by is None else "value"):
            raise IllegalFrame(
                "bad-json", "`by` and `value` go together; without both of them no frames are logged any more"
            )
    asked.begin()
    asked.broker.frames.remove(Wish(order.by, order.value) if order.by is not None else None)
    return {"frames": asked.broker.frames.listed()}


# The configuration


@changing("reload", Nothing, Done, ON_BROKER)
async def reload(asked: ApiRequest) -> object:
    """The configuration is read again, as on SIGHUP: all of it counts then, or nothing has changed and the error says why."""
    broker = asked.broker
    asked.require()
    if broker.readings is None:
        raise Refused("no-configuration", "this broker was started with a configuration that no file has")
    ended: asyncio.Future[StompboxError | None] = broker.loop.create_future()

    def tell(error: StompboxError | None) -> None:
        if not ended.done():
            ended.set_result(error)

    asked.begin()
    reloading.reload(broker, broker.readings.beside, tell)
    await asyncio.wait([ended], timeout=ANSWER_WITHIN)
    if ended.done() and (error := ended.result()) is not None:
        raise Refused("not-reloaded", f"{error.message}. Everything stays as it was")
    return {"is_done": ended.done()}
