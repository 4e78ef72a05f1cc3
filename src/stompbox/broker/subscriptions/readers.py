"""Positions in a log that are stored by name: those of reader groups, and of named readers.

A reader group is a set of positions that hold retention back. Spark reads by offset; a group says how far it has come.

Named readers of a log: their position is stored, moves on with what they acknowledge, and waits for them when they are away.

A name belongs to a client-id, to one address, and to the user who made it (`owner`, server/owners.py). It holds the log back like a
durable subscription, but begins where its first SUBSCRIBE says, and sees all that is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from stompbox.broker.addresses import lifetimes
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.contracts import address_of
from stompbox.broker.addresses.makers import Maker, entry
from stompbox.broker.engine import Engine
from stompbox.broker.kinds import Kind
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.queue import Queue
from stompbox.config.patterns import Patterns
from stompbox.config.spaces import joined, space_of
from stompbox.errors import Refused
from stompbox.incarnations import Position
from stompbox.selectors.steps import Steps, result

STEP: Final = 100  # names that are looked at in one step

Starting = Callable[[Address], int]
"""The offset that is meant in the log of an address."""


def open_group(
    engine: Engine, name: str, patterns: Sequence[str], starting: Starting, *, owner: str = ""
) -> dict[str, int]:
    """Creates the group, or gets it: the position per address. `starting` says where a new one begins on an address that is there."""
    make_group(engine, name, patterns, owner=owner)
    read = Patterns(engine.wildcards, patterns)
    for address in list(engine.addresses.values()):
        if read.reach(address.name):
            join(engine, name, address, starting)
    return positions(engine, name)


def make_group(
    engine: Engine, name: str, patterns: Sequence[str], *, owner: str = "", maker: Maker | None = None
) -> None:
    """The group is there, without a position on any address that is there already; who comes later joins it.

    `owner`: the user whose it is from now on, if it is nobody's yet. `maker`: for whom it counts, and addresses that are made for it.
    """
    for pattern in patterns:
        if not engine.wildcards.is_wild(pattern):
            engine.address(pattern, maker=maker)  # what can be refused comes first
    note_group(engine, name, patterns, owner=owner, maker=maker)


def note_group(
    engine: Engine, name: str, patterns: Sequence[str], *, owner: str = "", maker: Maker | None = None
) -> None:
    """As `make_group`, when the addresses that it names are there."""
    known = engine.group_patterns.get(name, [])
    merged = list(dict.fromkeys([*known, *patterns]))
    whose = engine.group_owners.get(name, "")
    if merged != known or (owner and not whose):
        engine.group_patterns[name] = merged
        lifetimes.await_names(engine, name, merged[len(known) :])
        engine.group_owners[name] = whose or owner
        engine.makers.made_group(name, maker, len(merged))
        user = engine.makers.groups.get(name)
        engine.put("group", name, {"patterns": merged, "owner": whose or owner, **entry(user and user[0])})


def require(
    engine: Engine, name: str, patterns: Collection[str], maker: Maker | None, joining: Iterable[Address] = ()
) -> None:
    """Raises Refused where destinations that the group is to name more, and its positions on them and on these, would be too many for the
    user who asks."""
    result(requiring(engine, name, patterns, maker, joining))


def requiring(
    engine: Engine, name: str, patterns: Collection[str], maker: Maker | None, joining: Iterable[Address] = ()
) -> Steps[None]:
    """Looks at what `require` does, in steps."""
    known = set(engine.group_patterns.get(name, ()))
    named: dict[
        str, bool
    ] = {}  # addresses, and whether the group is to have a position there that it has not
    more: set[str] = set()
    for at, pattern in enumerate(patterns, 1):
        if pattern not in known:
            more.add(pattern)
        if not engine.wildcards.is_wild(pattern):
            named[pattern] = _is_new(engine, name, pattern)
        if at % STEP == 0:
            yield
    for at, address in enumerate(joining, 1):
        named[address.name] = _is_new(engine, name, address.name)
        if at % STEP == 0:
            yield
    count = len(more) + sum(named.values())
    if count:
        engine.makers.require(maker, queues=not known, positions=count)


def _is_new(engine: Engine, name: str, address_name: str) -> bool:
    address = engine.addresses.get(address_name)
    return address is None or name not in address.groups


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
        text = (
            f"offset {offset} is outside the log of {address.name!r}, which holds {log.oldest} to {log.next}"
        )
        raise Refused("offset-out-of-range", text)


def positions(engine: Engine, name: str) -> dict[str, int]:
    return {
        address.name: address.groups[name].cursor.position
        for address in engine.addresses.values()
        if name in address.groups
    }


def lag(address: Address, name: str) -> dict[str, int | str]:
    """Where the group is, where the log ends, and how many messages may lie between."""
    log, position = address.log, address.groups[name].cursor.position
    behind = log.count([(max(position, log.oldest), log.committed)])
    return {
        "position": position,
        "next": log.committed,
        "lag": behind,
        "incarnation": log.incarnations.of(position),
    }


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
            address.groups[name].move_on(position.offset)
    return refused


def reset(engine: Engine, name: str, address: Address, starting: Starting) -> int:
    """Puts the position on an address elsewhere, also back; what is gone from the log does not come again. Returns it."""
    queue = address.groups[name]
    queue.put(max(address.log.oldest, _within(address, starting)))
    engine.commits.put_cursor(queue)
    engine.note_settled(queue)
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
    lifetimes.await_no_names(engine, name, engine.group_patterns.pop(name))
    engine.group_owners.pop(name, None)
    engine.makers.made_group(name, None, 0)
    engine.put("group", name, None)
    for address in list(engine.addresses.values()):
        leave(engine, name, address)


@dataclass(frozen=True, slots=True)
class Reader:
    """Who a named reader is. `space` is its virtual host's, `client_id` without it, perhaps empty."""

    space: str
    client_id: str
    name: str

    @property
    def queue_name(self) -> str:
        """As the queue is called: no two readers have the same name."""
        return self.space + joined(*([self.client_id] if self.client_id else []), self.name)

    @property
    def old_name(self) -> str:
        """As versions called it that did not tell all of them apart."""
        client_id = f"{self.space}{self.client_id}" if self.client_id else self.space
        return f"{client_id}.{self.name}" if client_id else self.name

    def at(self, address: Address) -> Queue | None:
        """Its queue at an address. One with the old name is nobody's yet."""
        found = address.named_readers.get(self.queue_name)
        if found is None:
            found = address.named_readers.get(self.old_name)
            if found is not None and found.owner:
                return None
        return found


def owner_entry(user: str) -> str:
    """A named reader's owner as its queue has it; empty only where an older version has made it."""
    return f"user:{user}"


def user_of(queue: Queue) -> str:
    """The user whose reader it is; empty: nobody's."""
    return queue.owner.removeprefix("user:")


def to_named_reader(
    engine: Engine, consumer: Consumer, address: Address, reader: Reader, start: int, *, owner: str = ""
) -> bool:
    """Reads on from where this reader has come, or from `start` when it is new. True when it is. `owner`: the user whose it becomes."""
    consumer.allowance.require_bindings(consumer)
    queue = reader.at(address)
    is_new = queue is None
    if queue is None:
        maker = consumer.allowance.maker
        engine.makers.require(maker, queues=1)
        queue = engine.new_queue(
            address, reader.queue_name, Kind.READER, position=start, owner=owner_entry(owner), maker=maker
        )
    elif queue.bindings:
        raise Refused(
            "durable-in-use", f"reader {reader.name!r} of address {address.name!r} has a subscriber already"
        )
    elif not user_of(queue):
        address.take_reader(queue, reader.queue_name, owner_entry(owner))
    _come(queue, consumer)
    consumer.on_close.append(partial(_leave, queue))
    return is_new


def _come(queue: Queue, consumer: Consumer) -> None:
    address, cursor = address_of(queue), queue.cursor
    queue.come_back(consumer.selector)
    address.add_reader(queue)
    if cursor.position < queue.log_end:
        queue.leave_in_log(cursor.position)
    queue.bind(consumer)


def _leave(queue: Queue) -> None:
    """What is in memory goes; the log has it, from the position on."""
    address_of(queue).remove_reader(queue)
    reclaim.let_go(queue)
    queue.go_away()


def found_of(engine: Engine, reader: Reader) -> list[Queue]:
    """What the reader has, on every address of its virtual host."""
    named = engine.named_readers
    there = named.get(reader.queue_name, {}) | named.get(reader.old_name, {})
    queues = [reader.at(address) for address in there if space_of(address.name) == reader.space]
    return [queue for queue in queues if queue is not None]
