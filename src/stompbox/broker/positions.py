"""Named readers of a log: their position is stored, moves on with what they acknowledge, and waits for them when they are away.

A name belongs to a client-id, and to one address. It holds the log back like a durable subscription, but begins where its first
SUBSCRIBE says, and sees all that is in the log.
"""

from __future__ import annotations

from functools import partial

from stompbox.broker import paging, scheduling
from stompbox.broker.address import Address
from stompbox.broker.consumer import Consumer
from stompbox.broker.cursor import FAR
from stompbox.broker.engine import Engine
from stompbox.broker.queue import Kind, Queue
from stompbox.errors import Refused


def name_of(client_id: str, name: str) -> str:
    """As the queue is called."""
    return f"{client_id}.{name}" if client_id else name


def to_position(engine: Engine, consumer: Consumer, address: Address, name: str, start: int) -> bool:
    """Reads on from where this name has come, or from `start` when it is new. True when it is."""
    queue = address.positions.get(name)
    is_new = queue is None
    if queue is None:
        queue = engine.new_queue(address, name, Kind.READER, position=start)
    elif queue.bindings:
        raise Refused("durable-in-use", f"reader {name!r} of address {address.name!r} has a subscriber already")
    _come(queue, consumer)
    consumer.on_close.append(partial(_leave, queue))
    return is_new


def _come(queue: Queue, consumer: Consumer) -> None:
    address, cursor = queue.address, queue.cursor
    queue.selector = consumer.selector
    address.streams[queue.id] = queue
    address.look_again()
    if cursor.position < address.log.next:
        paging.leave_in_log(queue, cursor.position)
    queue.bind(consumer)


def _leave(queue: Queue) -> None:
    """What is in memory goes; the log has it, from the position on."""
    queue.address.streams.pop(queue.id, None)
    queue.address.look_again()
    queue.backlog.clear()
    queue.waits.clear()
    scheduling.forget(queue)
    queue.paged_from = -1
    queue.is_loading = False
    queue.cursor.reach = FAR


def drop_positions(engine: Engine, name: str) -> bool:
    """Ends a named reader on every address. False when there is none. An active subscriber must have been closed."""
    found = [address.positions[name] for address in engine.addresses.values() if name in address.positions]
    for queue in found:
        engine.drop_queue(queue)
    return bool(found)
