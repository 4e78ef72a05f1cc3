"""Named readers of a log: their position is stored, moves on with what they acknowledge, and waits for them when they are away.

A name belongs to a client-id, to one address, and to the user who made it (`owner`, server/owners.py). It holds the log back like a
durable subscription, but begins where its first SUBSCRIBE says, and sees all that is in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from stompbox.broker.addresses.address import Address
from stompbox.broker.engine import Engine
from stompbox.broker.logs.cursor import FAR
from stompbox.broker.queues import emptying, paging
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.queue import Kind, Queue
from stompbox.config.spaces import joined, space_of
from stompbox.errors import Refused


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
        found = address.positions.get(self.queue_name)
        if found is None:
            found = address.positions.get(self.old_name)
            if found is not None and found.owner:
                return None
        return found


def owner_entry(user: str) -> str:
    """A named reader's owner as its queue has it; empty only where an older version has made it."""
    return f"user:{user}"


def user_of(queue: Queue) -> str:
    """The user whose reader it is; empty: nobody's."""
    return queue.owner.removeprefix("user:")


def to_position(engine: Engine, consumer: Consumer, address: Address, reader: Reader, start: int, *, owner: str = "") -> bool:
    """Reads on from where this reader has come, or from `start` when it is new. True when it is. `owner`: the user whose it becomes."""
    consumer.allowance.require_bindings(consumer)
    queue = reader.at(address)
    is_new = queue is None
    if queue is None:
        maker = consumer.allowance.maker
        engine.makers.require(maker, queues=1)
        queue = engine.new_queue(address, reader.queue_name, Kind.READER, position=start, owner=owner_entry(owner), maker=maker)
    elif queue.bindings:
        raise Refused("durable-in-use", f"reader {reader.name!r} of address {address.name!r} has a subscriber already")
    elif not user_of(queue):
        address.take_reader(queue, reader.queue_name, owner_entry(owner))
    _come(queue, consumer)
    consumer.on_close.append(partial(_leave, queue))
    return is_new


def _come(queue: Queue, consumer: Consumer) -> None:
    address, cursor = queue.address, queue.cursor
    queue.selector = consumer.selector
    address.add_reader(queue)
    if cursor.position < queue.log_end:
        paging.leave_in_log(queue, cursor.position)
    queue.bind(consumer)


def _leave(queue: Queue) -> None:
    """What is in memory goes; the log has it, from the position on."""
    queue.address.remove_reader(queue)
    emptying.let_go(queue)
    queue.paged_from = -1
    queue.is_loading = False
    queue.cursor.reach = FAR


def found_of(engine: Engine, reader: Reader) -> list[Queue]:
    """What the reader has, on every address of its virtual host."""
    named = engine.named_readers
    there = named.get(reader.queue_name, {}) | named.get(reader.old_name, {})
    queues = [reader.at(address) for address in there if space_of(address.name) == reader.space]
    return [queue for queue in queues if queue is not None]
