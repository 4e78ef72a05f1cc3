"""Reader groups: named positions that hold retention back. Spark reads by offset; a group says how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stompbox.broker.address import Address
from stompbox.broker.engine import Engine
from stompbox.broker.queue import Kind, Queue
from stompbox.broker.watching import is_named
from stompbox.config.matching import is_wild
from stompbox.errors import Refused


def open_group(
    engine: Engine, name: str, patterns: Sequence[str], starting: Callable[[Address], int], *, owner: str = ""
) -> dict[str, int]:
    """Creates the group, or gets it: the position per address. `starting` says where a new one begins on an address that is there.

    `owner`: the user whose it is from now on, if it is nobody's yet.
    """
    named = [engine.address(pattern) for pattern in patterns if not is_wild(pattern)]  # what can be refused comes first
    known = engine.group_patterns.get(name, [])
    merged = [*known, *[pattern for pattern in patterns if pattern not in known]]
    whose = engine.group_owners.get(name, "")
    if merged != known or (owner and not whose):
        engine.group_patterns[name] = merged
        engine.group_owners[name] = whose or owner
        engine.put("group", name, {"patterns": merged, "owner": whose or owner})
    matching = [address for address in engine.addresses.values() if any(is_named(pattern, address.name) for pattern in patterns)]
    for address in (*named, *matching):
        _join(engine, name, address, starting)
    return positions(engine, name)


def _join(engine: Engine, name: str, address: Address, starting: Callable[[Address], int]) -> None:
    if name not in address.groups:
        position = max(0, min(starting(address), address.log.next))
        engine.new_queue(address, name, Kind.GROUP, position=position)


def positions(engine: Engine, name: str) -> dict[str, int]:
    return {address.name: address.groups[name].cursor.position for address in engine.addresses.values() if name in address.groups}


def lags(engine: Engine, name: str) -> dict[str, dict[str, int]]:
    """Per address: where the group is, where the log ends, and how many offsets lie between."""
    found = {}
    for address, position in positions(engine, name).items():
        log = engine.addresses[address].log
        found[address] = {"position": position, "next": log.committed, "lag": max(0, log.committed - max(position, log.oldest))}
    return found


def commit_group(engine: Engine, name: str, offsets: Mapping[str, int]) -> None:
    """Moves positions on; they never go back."""
    if name not in engine.group_patterns:
        raise Refused("no-such-group", f"there is no reader group {name!r}")
    queues: list[tuple[Queue, int]] = []
    for address_name, offset in offsets.items():
        address = engine.addresses.get(address_name)
        if address is None or name not in address.groups:
            raise Refused("no-such-address", f"reader group {name!r} does not read address {address_name!r}")
        queues.append((address.groups[name], offset))
    for queue, offset in queues:
        if offset > queue.cursor.position:
            queue.moved = engine.now
            queue.skip(queue.cursor.position, min(offset, queue.address.log.next))


def drop_group(engine: Engine, name: str) -> None:
    if engine.group_patterns.pop(name, None) is None:
        raise Refused("no-such-group", f"there is no reader group {name!r}")
    engine.group_owners.pop(name, None)
    engine.put("group", name, None)
    for address in list(engine.addresses.values()):
        queue = address.groups.get(name)
        if queue is not None:
            engine.drop_queue(queue)
