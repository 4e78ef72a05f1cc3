"""Requests about reader groups: named positions in logs that hold retention back.

A group is its user's who made it (owners.py). Making one needs `create-durable-queue` on each destination as it is written, and
`consume`; of a wildcard it is asked which of the addresses that match the user may read, and only those are named in answers. A group
may have positions on any number of addresses: what is done to all of them is done in turns, and what is said of them is asked for in
parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompbox.broker.addresses.address import Address
from stompbox.broker.subscriptions import readers
from stompbox.broker.subscriptions.readers import Starting
from stompbox.config.patterns import Patterns
from stompbox.config.spaces import local, space_of
from stompbox.errors import IllegalFrame, Refused
from stompbox.incarnations import Position
from stompbox.numerals import digits
from stompbox.security import Right
from stompbox.server.owners import owner_of, require
from stompbox.server.requests.fetching import confirmed, continued, make, offset_at_time, readable
from stompbox.server.requests.replies import (
    Reply,
    destinations_of,
    durable,
    each,
    header,
    in_turns,
    json_object,
    json_reply,
    kept,
    long_reply,
    offsets_in,
    patterns_of,
    qualified,
    wish_in,
)
from stompbox.stomp.frames import Frame, quoted

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker, RequestsCore

EACH = "json:"  # before offsets by address, in the header `starting`


async def group_open(connection: Asker, frame: Frame) -> Reply:
    """`more:true`: others of the addresses in `starting` follow, and until then only those that it names join."""
    name = qualified(connection, frame, "group")
    engine, permissions = connection.broker.engine, connection.broker.permissions
    if name not in engine.group_patterns:
        _require_one_line(header(frame, "group"))
    wish = await wish_in(connection, frame)
    destinations = await destinations_of(connection, frame, wish)
    known = set(engine.group_patterns.get(name, []))
    _require_own(connection, name)
    async for destination in each(connection, destinations):
        if not destination.is_wild:
            permissions.require(connection.user, Right.CONSUME, destination.address)
        if destination.address not in known:
            permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, destination.address)
    patterns, maker = [destination.address for destination in destinations], connection.allowance.maker
    turns = connection.broker.turns
    await turns.taken(readers.requiring(engine, name, patterns, maker))
    async for destination in in_turns(connection.broker.turns, destinations):
        if not destination.is_wild:
            await make(connection, destination)
    asked = await patterns_of(connection, destinations)
    joining = await _joining(connection, frame, wish, asked)
    starting = await _starting(connection, frame, wish, joining)
    if frame.headers.get("strict") == "true":
        async for address in in_turns(connection.broker.turns, joining):
            readers.require_within(name, address, starting(address))
    await turns.taken(readers.requiring(engine, name, patterns, maker, joining))
    async for pattern in in_turns(turns, asked.exact):
        engine.address(pattern, maker=maker)  # one of them may have gone meanwhile
    _require_own(connection, name)  # somebody else may have made it meanwhile
    readers.note_group(engine, name, patterns, owner=owner_of(connection), maker=maker)
    async for address in in_turns(connection.broker.turns, joining):
        readers.require_group(engine, name)  # somebody may have deleted it meanwhile
        readers.join(engine, name, address, starting, maker and maker.counted)
    await durable(connection)
    shown, following = await readable(connection, frame, asked)
    at, ids = kept(connection, {}), kept(connection, {})
    async for address in in_turns(connection.broker.turns, shown):
        if name in address.groups:
            lag, shown_as = readers.lag(address, name), local(address.name)
            at[shown_as], ids[shown_as] = lag["position"], lag["incarnation"]
    return await long_reply(connection, {"positions": at, "incarnations": ids, **continued(following)})


async def _joining(connection: Asker, frame: Frame, wish: dict[str, Any], asked: Patterns) -> list[Address]:
    """The addresses on which the group is to have a position, as far as this request says."""
    addresses = connection.broker.engine.addresses
    among = list(addresses.values())
    if "continue" in frame.headers:
        among = []  # the request before it has seen to them
    elif frame.headers.get("more") == "true":
        among = []
        named = await offsets_in(connection, frame, wish.get("starting"), "starting in the body")
        async for name in each(connection, named):
            full = connection.names.qualified(name)
            if full in addresses:
                among.append(addresses[full])
    return [address async for address in each(connection, among) if asked.reach(address.name)]


def _require_one_line(name: str) -> None:
    """A new group has a name that lists, logs and command lines can show. One that is there from before keeps its own."""
    if not name.isprintable():
        raise IllegalFrame(
            "bad-name", f"reader group {quoted(name)} has control characters; its name is one line of text"
        )


def _require_own(connection: Asker, name: str) -> None:
    """Only whose the group is opens, moves or deletes it, or who may manage what it reads."""
    engine = connection.broker.engine
    require(
        connection,
        engine.group_owners.get(name, ""),
        f"reader group {local(name)!r}",
        engine.group_patterns.get(name, []),
    )


def _may_read(connection: Asker, address: str) -> bool:
    return connection.broker.permissions.may(connection.user, Right.CONSUME, address)


async def _starting(
    connection: Asker, frame: Frame, wish: dict[str, Any], joining: list[Address]
) -> Starting:
    """Where a group begins. Offsets by address stand in the body where they may be many, or in the header."""
    if "starting" in wish:
        return _each(await offsets_in(connection, frame, wish["starting"], "starting in the body"))
    text = header(frame, "starting")
    if text.startswith(EACH):
        where = "header starting"
        given = await json_object(connection, frame, text.removeprefix(EACH), where)
        return _each(await offsets_in(connection, frame, given, where))
    return await starting_at(connection.broker, text, joining)


def _each(offsets: dict[str, Position]) -> Starting:
    """A log that is another one than the offset was of begins where both have the same messages, or with what it has."""

    def starting(address: Address) -> int:
        log, position = address.log, offsets.get(local(address.name))
        if position is None:
            return log.oldest
        offset, id = position
        return (
            offset if log.incarnations.holds(id, offset) else log.incarnations.resumed(id, offset, log.oldest)
        )

    return starting


async def starting_at(
    broker: RequestsCore, text: str, addresses: list[Address], *, named: str = "starting"
) -> Starting:
    """The one word for all of them, which whoever asks knows by this name. Raises IllegalFrame `bad-starting`."""
    if text == "earliest":
        return lambda address: address.log.oldest
    if text == "latest":
        return lambda address: address.log.next
    kind, _, number = text.rpartition(":")
    found = digits(number)
    if found is None or kind not in ("", "time"):
        allowed = "earliest, latest, a number and time:<ms>"
        allowed = f"{allowed}, also json:<object> for a new group" if named == "starting" else allowed
        raise IllegalFrame("bad-starting", f"{named} is {text[:80]!r}; allowed are {allowed}")
    if kind == "":
        return lambda address: found
    at = {address: await offset_at_time(broker, address, found) for address in addresses}
    return lambda address: at.get(address, address.log.next)


async def group_commit(connection: Asker, frame: Frame) -> Reply:
    """What cannot be moved is named with a code; the rest is."""
    engine, turns = connection.broker.engine, connection.broker.turns
    given = await json_object(connection, frame, frame.body, "the body")
    offsets: dict[str, Position] = kept(connection, {})
    async for address, position in each(
        connection, (await offsets_in(connection, frame, given, "the body")).items()
    ):
        offsets[connection.names.qualified(address)] = position
    async for address in each(connection, offsets):
        connection.broker.permissions.require(connection.user, Right.CONSUME, address)
    name = qualified(connection, frame, "group")
    _require_own(connection, name)
    readers.require_group(engine, name)
    owner = engine.group_owners.get(name)
    refused: dict[str, str] = kept(connection, {})
    async for address, position in in_turns(turns, offsets.items()):
        if engine.group_owners.get(name) != owner:
            _require_own(connection, name)  # somebody may have deleted it meanwhile, and another one made it
        for moved, code in readers.commit_group(engine, name, {address: position}).items():
            refused[local(moved)] = code
    await durable(connection)
    return await long_reply(connection, {"refused": refused}) if refused else json_reply({})


async def group_delete(connection: Asker, frame: Frame) -> Reply:
    name = qualified(connection, frame, "group")
    await _require_all(connection, name)
    await delete(connection.broker, name)
    await durable(connection)
    return json_reply({})


async def group_reset(connection: Asker, frame: Frame) -> Reply:
    """Puts the group elsewhere, on all of its addresses or on one."""
    name = qualified(connection, frame, "group")
    await _require_all(connection, name)
    only = qualified(connection, frame, "address") if "address" in frame.headers else ""
    moved = await reset(connection.broker, name, header(frame, "starting"), only)
    await durable(connection)
    return json_reply({"moved": moved})


async def _require_all(connection: Asker, name: str) -> None:
    """Who takes a group's position away has it, may read all that it reads, and delete it."""
    _require_own(connection, name)
    permissions = connection.broker.permissions
    async for address in in_turns(connection.broker.turns, read_by(connection.broker, name)):
        permissions.require(connection.user, Right.CONSUME, address.name)
    patterns = connection.broker.engine.group_patterns.get(name, [])
    async for pattern in in_turns(connection.broker.turns, patterns):
        permissions.require(connection.user, Right.DELETE_DURABLE_QUEUE, pattern)


def read_by(broker: RequestsCore, name: str) -> list[Address]:
    """The addresses on which a group has a position."""
    return [address for address in broker.engine.addresses.values() if name in address.groups]


async def delete(broker: RequestsCore, name: str) -> None:
    """The positions go in turns, the group last: who is interrupted finds it again. Raises Refused `no-such-group`."""
    engine = broker.engine
    readers.require_group(engine, name)
    patterns = engine.group_patterns[name]
    async for address in in_turns(broker.turns, read_by(broker, name)):
        if engine.group_patterns.get(name) is not patterns:
            return  # somebody else has deleted it meanwhile; what has its name now is another one
        readers.leave(engine, name, address)
    if engine.group_patterns.get(name) is patterns:
        readers.drop_group(engine, name)


async def reset(
    broker: RequestsCore, name: str, text: str, only: str = "", *, named: str = "starting"
) -> int:
    """Resets a group, and returns on how many addresses. Raises Refused `no-such-group`, `no-such-address`, IllegalFrame `bad-starting`."""
    readers.require_group(broker.engine, name)
    found = [address for address in read_by(broker, name) if only in ("", address.name)]
    if only and not found:
        raise Refused(
            "no-such-address", f"reader group {local(name)!r} does not read address {local(only)!r}"
        )
    starting = await starting_at(broker, text, found, named=named)
    broker.set_time()
    moved = 0
    async for address in in_turns(broker.turns, found):
        if name in address.groups:
            readers.reset(broker.engine, name, address, starting)
            moved += 1
    return moved


async def group_list(connection: Asker, frame: Frame) -> Reply:
    """Each group, or the one that is named: where it is and how far behind."""
    wanted = qualified(connection, frame, "group") if "group" in frame.headers else None
    engine = connection.broker.engine
    turns, user, space = connection.broker.turns, connection.user, connection.names.space
    found: dict[str, dict[str, Any]] = kept(connection, {})
    async for name, patterns in in_turns(turns, list(engine.group_patterns.items())):
        if wanted in (None, name) and space_of(name) == space:
            destinations = [local(pattern) async for pattern in in_turns(turns, patterns)]
            found[name] = {"destinations": destinations, "addresses": {}}
    addresses = [
        address async for address in in_turns(turns, list(engine.addresses.values())) if address.groups
    ]
    await confirmed(connection, addresses)
    async for address in in_turns(turns, addresses):
        if _may_read(connection, address.name):
            here = address.groups
            async for name in in_turns(turns, list(here if len(here) < len(found) else found)):
                if name in here and name in found:
                    found[name]["addresses"][local(address.name)] = readers.lag(address, name)
    shown = {local(name): group for name, group in found.items() if group["addresses"] or not user.name}
    return await long_reply(connection, {"groups": shown})
