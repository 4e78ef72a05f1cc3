"""Requests about reader groups: named positions in logs that hold retention back.

A group is its user's who made it (owners.py). Making one needs `create-durable-queue` on each destination as it is written, and
`consume`; of a wildcard it is asked which of the addresses that match the user may read, and only those are named in answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stompbox.broker import groups
from stompbox.broker.address import Address
from stompbox.broker.destinations import Destination
from stompbox.config.spaces import local, space_of
from stompbox.errors import IllegalFrame
from stompbox.security import Right
from stompbox.server.answers import Answer, destinations_of, durable, header, json_answer, offsets_in, placed
from stompbox.server.logs import make, offset_at_time, reached
from stompbox.server.owners import owner_of, require
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.connection import Connection


async def group_open(connection: Connection, frame: Frame) -> Answer:
    name = placed(connection, frame, "group")
    engine, permissions = connection.broker.engine, connection.broker.permissions
    destinations = destinations_of(connection, frame)
    known = engine.group_patterns.get(name, [])
    _require_own(connection, name)
    for destination in destinations:
        if not destination.is_wild:
            permissions.require(connection.user, Right.CONSUME, destination.address)
        if destination.address not in known:
            permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, destination.address)
    for destination in destinations:
        if not destination.is_wild:
            make(connection, destination)
    starting = await _starting(connection, frame, destinations)
    _require_own(connection, name)  # somebody else may have made it meanwhile
    found = groups.open_group(engine, name, [destination.address for destination in destinations], starting, owner=owner_of(connection))
    await durable(connection)
    return json_answer({"positions": {local(address): position for address, position in found.items() if _may_read(connection, address)}})


def _require_own(connection: Connection, name: str) -> None:
    """Only whose the group is opens, moves or deletes it, or who may manage what it reads."""
    engine = connection.broker.engine
    require(connection, engine.group_owners.get(name, ""), f"reader group {local(name)!r}", engine.group_patterns.get(name, []))


def _may_read(connection: Connection, address: str) -> bool:
    return connection.broker.permissions.may(connection.user, Right.CONSUME, address)


async def _starting(connection: Connection, frame: Frame, destinations: list[Destination]) -> Callable[[Address], int]:
    text = header(frame, "starting")
    if text == "earliest":
        return lambda address: address.log.oldest
    if text == "latest":
        return lambda address: address.log.next
    if text.startswith("json:"):
        offsets = offsets_in(frame, text[5:], "header starting")
        return lambda address: offsets.get(local(address.name), address.log.oldest)
    kind, _, digits = text.rpartition(":")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18 and kind in ("", "time")):
        allowed = "earliest, latest, a number, time:<ms> and json:<object>"
        raise IllegalFrame("bad-starting", f"header starting is {text[:80]!r}; allowed are {allowed}")
    if kind == "":
        return lambda address: int(digits)
    named = {name: address for destination in destinations for name, address in reached(connection, destination).items()}
    at = {name: await offset_at_time(connection, address, int(digits)) for name, address in named.items()}
    return lambda address: at.get(address.name, address.log.next)


async def group_commit(connection: Connection, frame: Frame) -> Answer:
    offsets = {connection.names.placed(name): offset for name, offset in offsets_in(frame, frame.body, "the body").items()}
    for name in offsets:
        connection.broker.permissions.require(connection.user, Right.CONSUME, name)
    name = placed(connection, frame, "group")
    _require_own(connection, name)
    groups.commit_group(connection.broker.engine, name, offsets)
    await durable(connection)
    return json_answer({})


async def group_delete(connection: Connection, frame: Frame) -> Answer:
    name = placed(connection, frame, "group")
    _require_own(connection, name)
    for address in groups.positions(connection.broker.engine, name):
        connection.broker.permissions.require(connection.user, Right.CONSUME, address)
    for pattern in connection.broker.engine.group_patterns.get(name, []):
        connection.broker.permissions.require(connection.user, Right.DELETE_DURABLE_QUEUE, pattern)
    groups.drop_group(connection.broker.engine, name)
    await durable(connection)
    return json_answer({})


async def group_list(connection: Connection, frame: Frame) -> Answer:
    """Each group, or the one that is named: where it is and how far behind."""
    wanted = placed(connection, frame, "group") if "group" in frame.headers else None
    engine = connection.broker.engine
    found = {
        local(name): {
            "destinations": [local(pattern) for pattern in patterns],
            "addresses": {local(address): lag for address, lag in groups.lags(engine, name).items() if _may_read(connection, address)},
        }
        for name, patterns in engine.group_patterns.items()
        if wanted in (None, name) and space_of(name) == connection.names.space
    }
    return json_answer({"groups": {name: group for name, group in found.items() if group["addresses"] or not connection.user.name}})
