"""Reader groups: named positions that hold retention back. Spark reads by offset; a group says how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.makers import Maker, entry
from stompbox.broker.addresses.watching import matcher
from stompbox.broker.engine import Engine
from stompbox.broker.queues.queue import Kind, Queue
from stompbox.errors import Refused
from stompbox.incarnations import Position

Starting = Callable[[Address], int]
"""The offset that is meant in the log of an address."""


def open_group(engine: Engine, name: str, patterns: Sequence[str], starting: Starting, *, owner: str = "") -> dict[str, int]:
    """Creates the group, or gets it: the position per address. `starting` says where a new one begins on an address that is there."""
    make_group(engine, name, patterns, owner=owner)
    is_read = matcher(engine.wildcards, patterns)
    for address in list(engine.addresses.values()):
        if is_read(address.name):
            join(engine, name, address, starting)
    return positions(engine, name)


def make_group(engine: Engine, name: str, patterns: Sequence[str], *, owner: str = "", maker: Maker | None = None) -> None:
    """The group is there, without a position on any address that is there already; who comes later joins it.

    `owner`: the user whose it is from now on, if it is nobody's yet. `maker`: for whom it counts, and addresses that are made for it.
    """
    for pattern in patterns:
        if not engine.wildcards.is_wild(pattern):
            engine.address(pattern, maker=maker)  # what can be refused comes first
    known = engine.group_patterns.get(name, [])
    merged = list(dict.fromkeys([*known, *patterns]))
    whose = engine.group_owners.get(name, "")
    if merged != known or (owner and not whose):
        engine.group_patterns[name] = merged
        engine.group_owners[name] = whose or owner
        engine.makers.made_group(name, maker, len(merged))
        user = engine.makers.groups.get(name)
        engine.put("group", name, {"patterns": merged, "owner": whose or owner, **entry(user and user[0])})


def require(engine: Engine, name: str, patterns: Collection[str], maker: Maker | None, joining: Iterable[Address] = ()) -> None:
    """Raises Refused where destinations that the group is to name more, and its positions on them and on these, would be too many for the
    user who asks."""
    known = engine.group_patterns.get(name, ())
    places = {pattern for pattern in patterns if not engine.wildcards.is_wild(pattern)} | {address.name for address in joining}
    new = [place for place in places if (address := engine.addresses.get(place)) is None or name not in address.groups]
    count = len(set(patterns).difference(known)) + len(new)
    if count:
        engine.makers.require(maker, queues=not known, positions=count)


def join(engine: Engine, name: str, address: Address, starting: Starting, maker: Maker | None = None) -> None:
    """The group has a position on the address, which counts for this user where it is new."""
    if name not in address.groups and engine.addresses.get(address.name) is address:
        engine.new_queue(address, name, Kind.GROUP, position=_within(address, starting), maker=maker)


def _within(address: Address, starting: Starting) -> int:
    return max(0, min(starting(address), address.log.next))


def require_within(name: str, address: Address, offset: int) -> None:
    """Raises Refused `offset-out-of-range` where a group that is new on an address would begin outside its log."""
    log = address.log
    if name not in address.groups and not log.oldest <= offset <= log.next:
        text = f"offset {offset} is outside the log of {address.name!r}, which holds {log.oldest} to {log.next}"
        raise Refused("offset-out-of-range", text)


def positions(engine: Engine, name: str) -> dict[str, int]:
    return {address.name: address.groups[name].cursor.position for address in engine.addresses.values() if name in address.groups}


def lag(address: Address, name: str) -> dict[str, int | str]:
    """Where the group is, where the log ends, and how many offsets lie between."""
    log, position = address.log, address.groups[name].cursor.position
    behind = max(0, log.committed - max(position, log.oldest))
    return {"position": position, "next": log.committed, "lag": behind, "incarnation": log.incarnations.of(position)}


def commit_group(engine: Engine, name: str, offsets: Mapping[str, Position]) -> dict[str, str]:
    """Moves positions on; they never go back. Returns why some did not: by address, a code.

    What was read is acknowledged in the log that it was read from, and in no other that has come to its name since.
    """
    require_group(engine, name)
    refused = {}
    for address_name, position in offsets.items():
        address = engine.addresses.get(address_name)
        if address is None or name not in address.groups:
            refused[address_name] = "no-such-address"
        elif not address.log.incarnations.holds(position.incarnation, position.offset):
            refused[address_name] = "other-incarnation"
        else:
            _go_on(address.groups[name], position.offset)
    return refused


def _go_on(queue: Queue, offset: int) -> None:
    if offset > queue.cursor.position:
        queue.moved = queue.engine.now
        queue.skip(queue.cursor.position, min(offset, queue.address.log.next))


def reset(engine: Engine, name: str, address: Address, starting: Starting) -> int:
    """Puts the position on an address elsewhere, also back; what is gone from the log does not come again. Returns it."""
    queue = address.groups[name]
    queue.cursor.put(max(address.log.oldest, _within(address, starting)))
    queue.moved = engine.now
    engine.commits.put_cursor(queue)
    return queue.cursor.position


def leave(engine: Engine, name: str, address: Address) -> None:
    """The group has no position on the address any more."""
    queue = address.groups.get(name)
    if queue is not None:
        engine.drop_queue(queue)


def require_group(engine: Engine, name: str) -> None:
    if name not in engine.group_patterns:
        raise Refused("no-such-group", f"there is no reader group {name!r}")


def drop_group(engine: Engine, name: str) -> None:
    require_group(engine, name)
    del engine.group_patterns[name]
    engine.group_owners.pop(name, None)
    engine.makers.made_group(name, None, 0)
    engine.put("group", name, None)
    for address in list(engine.addresses.values()):
        leave(engine, name, address)
