"""Retained messages: the last one of a topic that was sent with `retain:set`, which each new subscription gets first.

`retain:remove` forgets it. A persistent one is in the catalogue, so it is there after a restart; its place in the log it keeps.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stompbox.broker.logs.segments import Segment, cost_of
from stompbox.broker.queues import dispatch
from stompbox.broker.queues.matching import is_answered, is_long, wanted
from stompbox.errors import Refused
from stompbox.message import KINDS, MULTICAST, Run
from stompbox.store.chunks import decode, encode

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Engine
    from stompbox.broker.queues.queue import Queue

MOST_BYTES: Final = 1 << 20  # of a body: all of them are in memory, and the persistent ones in the catalogue


class Retained:
    """Octets of memory that all retained messages take."""

    __slots__ = ("most", "size")

    def __init__(self) -> None:
        self.size = 0
        self.most = 1 << 62

    def limit(self, size: int) -> None:
        """Sets the most octets that are retained; -1: no limit. What is retained stays."""
        self.most = size if size >= 0 else 1 << 62

    def replace(self, before: Run | None, after: Run | None) -> None:
        self.size += _cost(after) - _cost(before)

    def takes(self, before: Run | None, after: Run, more: int = 0) -> bool:
        """Whether there is room, `more` octets being spoken for."""
        return self.size + more - _cost(before) + _cost(after) <= self.most

    def __repr__(self) -> str:
        return f"<Retained {self.size} octets>"


def _cost(run: Run | None) -> int:
    return cost_of(run) if run is not None else 0


def check(sends: Iterable[tuple[Address, Run]]) -> None:
    """Raises Refused where a message cannot be retained: it is too large by itself, or all of them are."""
    gained = 0
    for address, run in sends:
        if run.shape.retain != "set" or not run.routing & MULTICAST:
            continue
        size, retained = len(run.bodies[-1]), address.engine.retained
        if size > MOST_BYTES:
            raise Refused(
                "retained-too-large",
                f"a retained message has no more than {MOST_BYTES} bytes; this one has {size}",
            )
        last = _last_of(run)
        if not retained.takes(address.retained, last, gained):
            text = f"retained messages would take {retained.size + gained + cost_of(last)} octets of memory; the limit is {retained.most}"
            raise Refused("retained-full", f"{text} (max-retained-memory)")
        gained += cost_of(last) - _cost(address.retained)


def note(engine: Engine, address: Address, run: Run) -> bool:
    """A run was published: its last message is the one to remember, or nothing is. True when that is for the next commit."""
    if not run.routing & MULTICAST:
        return False
    before = address.retained
    last = _last_of(run)
    is_set = (
        run.shape.retain == "set"
        and len(run.bodies[-1]) <= MOST_BYTES
        and engine.retained.takes(address.retained, last)
    )
    if engine.commits.unit is not None:
        engine.commits.unit.consequences.undo.append(partial(_keep, engine, address, before))
    return _keep(engine, address, last if is_set else None)


def _keep(engine: Engine, address: Address, run: Run | None) -> bool:
    """Retains this run from now on. True when that is for the next commit."""
    was_stored = address.retained is not None and not address.is_volatile(address.retained)
    keep(address, run)
    if run is not None and not address.is_volatile(run):
        engine.commits.add_log(address.log)
        blob = encode([run], run.first)
        engine.put(
            "retained", str(address.log.id), {"first": run.first, "chunk": base64.b64encode(blob).decode()}
        )
        return engine.is_durable
    if was_stored:
        engine.put("retained", str(address.log.id), None)
    return was_stored and engine.is_durable


def keep(address: Address, run: Run | None) -> None:
    address.engine.retained.replace(address.retained, run)
    address.retain(run)


def _last_of(run: Run) -> Run:
    columns = tuple([column[-1:] for column in run.columns])
    routing = run.routing & KINDS
    return Run(
        run.shape,
        run.bodies[-1:],
        columns,
        first=run.stop - 1,
        arrived=run.arrived,
        routing=routing,
        sender=run.sender,
    )


def recall(value: dict[str, Any]) -> Run:
    """The message that an entry of the catalogue holds."""
    return decode(base64.b64decode(value["chunk"]), value["first"])[0]


def give(address: Address, queue: Queue) -> None:
    """A new subscription of the address: the retained message comes first, if it is one for it."""
    run = address.retained
    if run is None or (queue.no_local and queue.no_local == run.sender):
        return
    if queue.paged_from >= 0 and queue.paged_from <= run.first:
        # it begins before and finds the message in the log
        return
    engine = queue.engine
    if queue.selector is not None and is_long(queue.selector, run, run.first, run.stop):
        dispatch.withhold(engine, [queue])
        engine.later.add((give, queue), partial(_give_later, queue, run))
    elif queue.selector is None or wanted(queue.selector, run, run.first, run.stop, address, queue=queue.id):
        queue.backlog.push(Segment(run, run.first, run.stop))


def _give_later(queue: Queue, run: Run) -> None:
    """What a selector asks about it may take more than a turn; meanwhile nothing else goes out."""
    queue.engine.later.take((give, queue), _giving(queue, run), by=queue.client)


def _giving(queue: Queue, run: Run) -> Iterator[None]:
    engine, address, selector = queue.engine, queue.address, queue.selector
    assert selector is not None
    while queue.id in engine.queues and not is_answered(
        selector, run, run.first, run.stop, address, queue=queue.id
    ):
        yield
    if queue.id in engine.queues and wanted(selector, run, run.first, run.stop, address, queue=queue.id):
        queue.backlog.common.insert(Segment(run, run.first, run.stop))
    dispatch.release(engine, [queue])
    if queue.id in engine.queues:
        queue.dispatch()
