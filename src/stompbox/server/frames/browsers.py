"""SUBSCRIBE with browser:true: copies of what a queue or a durable subscription holds, then MESSAGE with browser:end.

    browser-end:false    no end: it goes on with what arrives            from-seq:N    from this offset on; -1 only what arrives

Who looks makes nothing: a queue that is not there is an ERROR `no-such-queue`. One without an end waits for what will be there, and makes
its queue as a plain SUBSCRIBE does; so does each one on a listener with `browsersMakeQueues`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.addresses.makers import require_all
from stompbox.broker.queues.browsing import browse
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions import subscribers
from stompbox.errors import IllegalFrame
from stompbox.message import ANYCAST
from stompbox.server.addressing.values import number, truth
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.broker.subscriptions.durables import DurableSubscription
    from stompbox.server.frames.speaker import Speaker


def is_browser(frame: Frame) -> bool:
    return truth(frame, "browser")


def only_looks(frame: Frame) -> bool:
    """Whether the SUBSCRIBE wants what is there now, and nothing that comes."""
    return is_browser(frame) and (frame.headers.get("browser-end") is None or truth(frame, "browser-end"))


def require_one(connection: Speaker, frame: Frame, destination: Destination) -> None:
    """Raises where there is no such queue to look at; what is no name of one queue is `_queue`'s to refuse."""
    engine = connection.broker.engine
    is_several = "," in frame.headers["destination"]
    if is_several or destination.is_wild or destination.is_stream or destination.is_temporary:
        return
    kind = subscribers.routing_of(engine, destination)
    if kind != ANYCAST and not destination.queue:
        return
    known = engine.addresses.get(destination.address)
    there = {} if known is None else known.anycast if kind == ANYCAST else known.named
    if (destination.queue or destination.address) not in there:
        raise IllegalFrame(
            "no-such-queue",
            f"queue {destination.text[:200]!r} does not exist; a browser looks, and makes none",
        )


def to_browser(
    connection: Speaker,
    frame: Frame,
    consumer: Consumer,
    destinations: tuple[Destination, ...],
    durable: DurableSubscription | None,
) -> None:
    goes_on = not only_looks(frame)
    engine = connection.broker.engine
    first = number(frame, "from-seq") if "from-seq" in frame.headers else 0
    queue = _queue(connection, destinations) if durable is None else _queue_of(durable)
    consumer.is_browser = True
    browse(engine, queue, consumer, goes_on=goes_on, first=first if first >= 0 else queue.address.log.next)


def _queue(connection: Speaker, destinations: tuple[Destination, ...]) -> Queue:
    engine = connection.broker.engine
    destination = destinations[0]
    if len(destinations) > 1 or destination.is_wild or destination.is_stream or destination.is_temporary:
        raise _no_queue(destination.text)
    kind = subscribers.routing_of(engine, destination)
    if kind != ANYCAST and not destination.queue:
        raise _no_queue(destination.text)
    maker = connection.allowance.maker
    require_all(engine, maker, [(destination.address, destination.queue, kind)])
    return engine.exact_queue(
        engine.address(destination.address, kind, maker), destination.queue, kind, maker
    )


def _queue_of(durable: DurableSubscription) -> Queue:
    if len(durable.queues) != 1:
        raise _no_queue(durable.pattern)
    return durable.queues[0]


def _no_queue(text: str) -> IllegalFrame:
    return IllegalFrame(
        "bad-browser",
        f"a browser needs one queue, or one durable subscription to one topic; {text[:200]!r} is not that",
    )
