"""What an operator turns on and off, over STOMP: pause and resume, block and unblock, disable and enable. Each needs the right `manage`.

As requests (docs/protocol.md) they are about an address; with a header `queue` pause, resume, disable and enable are about that one queue
of it. Questions to `management-address` (management.py) do the same. All of it is forgotten at a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.address import Address
from stompbox.broker.queues.queue import Queue
from stompbox.errors import IllegalFrame, Refused
from stompbox.security import Right
from stompbox.server.requests.replies import Handler, Reply, json_reply, qualified
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker

log = logging.getLogger("stompbox.operators")


def _enable(queue: Queue) -> None:
    queue.obey(replace(queue.rules, is_enabled=True))


def _disable(queue: Queue) -> None:
    """Nothing is routed to it; what it has goes on."""
    queue.obey(replace(queue.rules, is_enabled=False))


ON_QUEUE: Final[Mapping[str, Callable[[Queue], None]]] = MappingProxyType(
    {"pause": Queue.pause, "resume": Queue.resume, "enable": _enable, "disable": _disable}
)
ON_ADDRESS: Final[Mapping[str, Callable[[Address], None]]] = MappingProxyType(
    {"pause": Address.pause, "resume": Address.resume, "block": Address.block, "unblock": Address.unblock}
)


def queues_of(address: Address) -> list[Queue]:
    """Lists the queues that stay when their consumers go."""
    return [*address.anycast.values(), *address.named.values()]


def handler(name: str) -> Handler:
    """The handler of the request of this name: what is not done to an address as a whole is done to each of its queues."""

    async def operate(connection: Asker, frame: Frame) -> Reply:
        address = _address(connection, frame)
        if name in ON_ADDRESS and not (name in ON_QUEUE and "queue" in frame.headers):
            ON_ADDRESS[name](address)
        else:
            for queue in _queues(connection, frame, address):
                ON_QUEUE[name](queue)
        return json_reply({})

    return operate


def _address(connection: Asker, frame: Frame) -> Address:
    """The address that an operator's request names. Raises Refused where it may not be managed; the log tells of the request."""
    name = qualified(connection, frame, "address")
    connection.broker.permissions.require(connection.user, Right.MANAGE, name)
    address = connection.broker.engine.addresses.get(name)
    if address is None:
        raise Refused("no-such-address", f"address {name!r} does not exist")
    asked = " ".join(
        [f"{key}={frame.headers[key][:200]}" for key in ("address", "queue") if key in frame.headers]
    )
    said = connection.user.name, connection.name, frame.headers["request"], asked
    log.info("operator %r, %s: %s %s", *said, extra=connection.marks)
    return address


def _queues(connection: Asker, frame: Frame, address: Address) -> list[Queue]:
    """The one that the request names, or all."""
    wanted = qualified(connection, frame, "queue") if "queue" in frame.headers else None
    queues = [queue for queue in queues_of(address) if wanted in (None, queue.name)]
    if wanted is not None and not queues:
        raise IllegalFrame("no-such-queue", f"address {address.name!r} has no queue {wanted!r}")
    return queues
