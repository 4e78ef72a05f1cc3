"""An operator's requests over STOMP: pause and resume, block and unblock, disable and enable. Each needs the right `manage`.

With a header `queue` pause, resume, disable and enable are about that one queue. All of it is forgotten at a restart.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from stompbox.broker.addresses.address import Address
from stompbox.broker.queues.queue import Queue
from stompbox.errors import IllegalFrame, Refused
from stompbox.security import Right
from stompbox.server.requests.replies import Reply, json_reply, qualified
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker

log = logging.getLogger("stompbox.operators")


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
    log.info("operator %r, %s: %s %s", connection.user.name, connection.name, frame.headers["request"], asked)
    return address


def _queues(connection: Asker, frame: Frame, address: Address) -> list[Queue]:
    """The one that the request names, or all."""
    wanted = qualified(connection, frame, "queue") if "queue" in frame.headers else None
    queues = [
        queue
        for queue in (*address.anycast.values(), *address.named.values())
        if wanted in (None, queue.name)
    ]
    if wanted is not None and not queues:
        raise IllegalFrame("no-such-queue", f"address {address.name!r} has no queue {wanted!r}")
    return queues


async def pause(connection: Asker, frame: Frame) -> Reply:
    """Nothing goes out; what is sent is kept."""
    address = _address(connection, frame)
    if "queue" not in frame.headers:
        address.pause()
    for queue in _queues(connection, frame, address):
        queue.pause()
    return json_reply({})


async def resume(connection: Asker, frame: Frame) -> Reply:
    address = _address(connection, frame)
    if "queue" not in frame.headers:
        address.resume()
    for queue in _queues(connection, frame, address):
        queue.resume()
    return json_reply({})


async def block(connection: Asker, frame: Frame) -> Reply:
    """A SEND gets an ERROR; consumers go on."""
    _address(connection, frame).block()
    return json_reply({})


async def unblock(connection: Asker, frame: Frame) -> Reply:
    _address(connection, frame).unblock()
    return json_reply({})


async def disable(connection: Asker, frame: Frame) -> Reply:
    """Nothing is routed to it; what it has goes on."""
    for queue in _queues(connection, frame, _address(connection, frame)):
        queue.obey(replace(queue.rules, is_enabled=False))
    return json_reply({})


async def enable(connection: Asker, frame: Frame) -> Reply:
    for queue in _queues(connection, frame, _address(connection, frame)):
        queue.obey(replace(queue.rules, is_enabled=True))
    return json_reply({})
