"""Which messages of a run a selector takes, and what asking has cost.

Decides: that a shape is asked once where it decides, and that each question counts as work of the turn (work.py). What is not asked
it would be too much for one turn, `wanted` says: who asks puts those off who can wait (address.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import facts
from stompbox.broker.undelivered import TOO_EXPENSIVE, Fate
from stompbox.message import Run
from stompbox.selectors import Budget, Selector

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address

Range = tuple[int, int]

VERDICTS: Final = 4096  # that a shape remembers; selectors come and go, a shape may stay


def wanted(selector: Selector, run: Run, first: int, stop: int, address: Address, *, queue: int = 0) -> list[Range]:
    """As `wanted_within`, whatever it costs."""
    ranges = wanted_within(selector, run, first, stop, address, queue=queue, limit=None)
    assert ranges is not None
    return ranges


def wanted_within(
    selector: Selector, run: Run, first: int, stop: int, address: Address, *, queue: int = 0, limit: int | None
) -> list[Range] | None:
    """The ranges within first .. stop-1 of a run that a selector takes; asked once per shape where the shape decides. `queue` is the id
    of the queue in which they are, or would be: the ids of messages begin with it. 0: none, and the messages have no ids (diverts).
    None: the turn's work went beyond `limit` before all were asked about; beyond its portion, where one question may take most of it."""
    shape = run.shape
    if limit is not None and selector.is_costly:
        limit = min(limit, address.engine.work.portion)
    if not facts.is_of_shape(selector, shape):
        return one_by_one(selector, run, first, stop, address, queue=queue, limit=limit)
    is_durable = not address.is_volatile(run)
    key = (selector.number, address.name if "address" in selector.facts else "", is_durable)
    verdict = shape.verdicts.get(key)
    if verdict is None:
        if len(shape.verdicts) >= VERDICTS:
            shape.verdicts.clear()
        known = facts.of_shape(shape, address.name, is_durable=is_durable)
        verdict = shape.verdicts[key] = asked(address, selector, shape.headers, known)
    return [(first, stop)] if verdict else []


def asked(
    address: Address,
    selector: Selector,
    headers: Mapping[str, str],
    known: facts.Facts,
    body: Callable[[], bytes] | None = None,
) -> bool:
    """Whether a selector takes a message of the address. What it costs is work of this turn; that it was too expensive is told."""
    engine = address.engine
    engine.work.spend(selector.steps)
    if not selector.is_costly:
        return selector.matches(headers, known)
    budget = Budget()
    is_taken = selector.matches(headers, known, body, budget)
    engine.work.spend(budget.spent)
    if budget.is_used_up and not is_taken:
        engine.undelivered.note(address.name, TOO_EXPENSIVE, Fate.NOT_MATCHED, 1)
    return is_taken


def one_by_one(
    selector: Selector,
    run: Run,
    first: int,
    stop: int,
    address: Address,
    *,
    segment: Segment | None = None,
    queue: int = 0,
    limit: int | None = None,
) -> list[Range] | None:
    """The same where each message is asked about; `segment`: what has become of them in the queue."""
    found: list[Range] = []
    work = address.engine.work
    shared = facts.of_shape(run.shape, address.name, is_durable=not address.is_volatile(run))
    for offset in range(first, stop):
        if limit is not None and work.done > limit:
            return None
        index = offset - run.first
        headers: Mapping[str, str] = run.headers(index) if run.columns else run.shape.headers
        known = facts.of_message(run, index, shared, segment, queue) if selector.is_per_message else shared
        body = None if run.is_large else partial(run.bodies.__getitem__, index)
        if asked(address, selector, headers, known, body):
            add_offset(found, offset)
    return found


def add_offset(ranges: list[Range], offset: int) -> None:
    """Adds the next offset to ranges in order."""
    if ranges and ranges[-1][1] == offset:
        ranges[-1] = (ranges[-1][0], offset + 1)
    else:
        ranges.append((offset, offset + 1))
