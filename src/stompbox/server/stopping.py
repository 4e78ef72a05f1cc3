"""A broker that stops gracefully: nothing new goes out, and what its clients have in flight may be finished.

In flight are messages that a consumer has and has not acknowledged, open transactions, receipts that wait for the disk, and large bodies
that come or go. A connection without any of it is told at once, with an ERROR `shutting-down`, and closed, and so is whoever has not logged
in; the others as soon as they have none, or after `graceful-shutdown-timeout`. A second signal ends the wait. What was not acknowledged
comes again after the start, and that it was delivered is no attempt.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from stompbox.errors import Refused
from stompbox.stomp.codec import encode
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.seam import ClientConnection, Core

log = logging.getLogger("stompbox")

LOOK: Final = 0.02  # s between two looks at who is done
SOME: Final = 50  # connections that are looked at, or told, in one turn of the loop: to end one takes 80 us


async def drain(broker: Core, hurry: asyncio.Event) -> None:
    """Waits until all clients have finished, the time is up, or somebody is in a hurry. Those who have not are left to `Broker.stop`."""
    broker.drain()
    for acceptor in broker.acceptors:
        for stranger in list(acceptor.admission.strangers):
            stranger.dismiss(refusal())
    timeout = broker.configuration.graceful_shutdown_timeout / 1000
    deadline = broker.loop.time() + timeout
    is_said = False
    while (busy := await _say_goodbye(broker)) and broker.loop.time() < deadline and not hurry.is_set():
        if not is_said:
            is_said = True
            log.info(
                "stopping: up to %.1f s for what is in flight; connections that have some: %d",
                timeout,
                len(busy),
            )
        try:
            await asyncio.wait_for(hurry.wait(), min(LOOK, max(0.0, deadline - broker.loop.time())))
        except TimeoutError:
            continue
    if busy:
        log.warning("stopping with work in flight; connections that have some: %d", len(busy))


async def _say_goodbye(broker: Core) -> list[ClientConnection]:
    """Ends the connections that have nothing in flight, SOME in each turn: who has goes on meanwhile. The others."""
    busy = []
    for at, connection in enumerate(list(broker.connections)):
        if at % SOME == SOME - 1:
            await asyncio.sleep(0)
        if connection.is_ended:
            continue
        for consumer in connection.consumers.values():
            consumer.is_started = False
        if has_work(connection):
            busy.append(connection)
        else:
            connection.shut()
    return busy


def has_work(connection: ClientConnection) -> bool:
    """Something in flight that the client would lose, or do again, if it were closed now."""
    is_moving = (
        connection.upload is not None
        or connection.outgoing is not None
        or connection.reading.holding is not None
    )
    is_waiting = bool(
        connection.pending.size
        or connection.transactions
        or connection.reading.is_held
        or connection.reading.has_left
    )
    return is_moving or is_waiting or any(consumer.messages_out for consumer in connection.consumers.values())


def refusal() -> Refused:
    """The error for whatever would begin something new, and for all clients in the end."""
    return Refused("shutting-down", "the broker stops")


def last_word(connection: ClientConnection) -> bytes:
    """The ERROR that a connection ends with when its broker stops."""
    error = refusal()
    connection.broker.errors[error.code] += 1
    headers = {
        "message": error.message,
        "code": error.code,
        "content-type": "text/plain",
        "content-length": "0",
    }
    return encode(Frame("ERROR", headers, b""), connection.session.version)
