"""Readers of logs and browsers move from an engine to another one, which shows a later state of the same store.

A node that follows makes such an engine as often as there is more (server/cluster/view.py). Nothing comes twice and nothing is left out:
what was read and not handed out goes with the reader, and the rest it finds in the log. What it was handed is done with where it was.
"""

from __future__ import annotations

from operator import attrgetter
from typing import cast

from stompbox.broker.addresses.address import Address
from stompbox.broker.engine import Engine
from stompbox.broker.kinds import Kind
from stompbox.broker.queues.browsing import Browser, browse_on
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.queue import Queue
from stompbox.config.spaces import local
from stompbox.errors import Refused

_FIRST = attrgetter("first")


def move(engine: Engine, consumer: Consumer) -> None:
    """Takes a consumer whose queues are its own to this engine. Raises Refused where what it reads is not there, or is another log: it is
    bound to nothing then."""
    for binding in list(consumer.bindings.values()):
        before = cast("Queue", binding.queue)
        before.part_with(binding)
        after = _again(engine, before, consumer)
        if before.count:
            for segment in sorted(before.backlog.segments(), key=_FIRST):
                after.backlog.push(segment.part(segment.first, segment.stop))
        after.bind(consumer)
        engine.dispatch_later(after)


def _again(engine: Engine, before: Queue, consumer: Consumer) -> Queue:
    address = _same(engine, before)
    if isinstance(before, Browser):
        shown = engine.queues.get(before.shown.id)
        if shown is None:
            raise Refused("no-such-queue", _gone(before, "queue", before.shown.name), closes=True)
        return browse_on(engine, shown, consumer, before)
    position = before.paged_from if before.is_paged else before.log_end
    return engine.new_queue(address, before.name, Kind.STREAM, before.selector, position=position)


def _same(engine: Engine, before: Queue) -> Address:
    """The address whose log it reads."""
    name, log = before.address.name, before.address.log
    found = engine.addresses.get(name)
    if found is None or found.log.id != log.id or found.log.incarnations != log.incarnations:
        raise Refused("no-such-address", _gone(before, "address", name), closes=True)
    return found


def _gone(before: Queue, what: str, name: str) -> str:
    return f"{what} {local(name)!r}, which was read up to offset {before.log_end}, is gone, or is another one"
