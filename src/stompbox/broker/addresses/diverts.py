"""Diverts: copies of an address's messages, or the messages themselves, go to another address.

What an exclusive divert takes goes nowhere else; the others get copies of what is left, and so do the address's own queues.
A run that comes round in a circle is not diverted again, nor one that has gone along too many (course.py). What a transformer does not
take stays at its address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stompbox.broker.addresses.contracts import PASS, Divert
from stompbox.broker.kinds import Kind
from stompbox.broker.queues.matching import Range, missing, wanted
from stompbox.errors import StompboxError
from stompbox.message import ANYCAST, KINDS, Run
from stompbox.ranges import add_range

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Engine


def publish(engine: Engine, address: Address, run: Run) -> bool:
    """Copies along the address's diverts, and the rest to the address itself. True when the receipt must wait for the next commit."""
    before = engine.course.path
    if not engine.course.divert(address.name, len(address.diverts), len(run)):
        return engine.append(address, run)
    try:
        rest, is_stored = _send_copies(engine, address, run)
    finally:
        engine.course.go_back(before)
    parts = [run] if rest == [(run.first, run.stop)] else [copy(run, first, stop) for first, stop in rest]
    for part in parts:
        is_stored |= engine.append(address, part)
    return is_stored


def _send_copies(engine: Engine, address: Address, run: Run) -> tuple[list[Range], bool]:
    """What stays at the address itself, and whether the receipt must wait for the next commit."""
    run.first, run.arrived = address.log.next, engine.now  # for selectors that look at messages
    rest: list[Range] = [(run.first, run.stop)]
    is_stored = False
    for divert in sorted(address.diverts, key=lambda divert: not divert.exclusive):
        taken = [part for first, stop in rest for part in _matching(divert, address, run, first, stop)]
        done, stored = _send(engine, divert, run, taken)
        is_stored |= stored
        if divert.exclusive:
            rest = [part for first, stop in rest for part in missing(done, first, stop)]
    return rest, is_stored


def _matching(divert: Divert, address: Address, run: Run, first: int, stop: int) -> list[Range]:
    return [(first, stop)] if divert.selector is None else wanted(divert.selector, run, first, stop, address)


def _send(engine: Engine, divert: Divert, run: Run, ranges: list[Range]) -> tuple[list[Range], bool]:
    """The ranges of which copies went, and whether they must be durable."""
    routing = run.routing & KINDS if divert.routing == PASS else divert.routing
    course, done, is_stored = engine.course, list[Range](), False
    before = most = course.ways
    for first, stop, copied in _copies(engine, divert, run, ranges):
        course.take(before)
        is_stored |= engine.forward(divert.forwarding_address, copied, routing)
        most = max(most, course.ways)
        add_range(done, first, stop)
    course.take(most)
    return done, is_stored


def _copies(engine: Engine, divert: Divert, run: Run, ranges: list[Range]) -> Iterator[tuple[int, int, Run]]:
    """What of a run goes along a divert, and where it was in it: in as few runs as the ranges are, or message by message as it changes."""
    for first, stop in ranges:
        if divert.transform is None:
            yield first, stop, copy(run, first, stop)
            continue
        for offset in range(first, stop):
            try:
                changed = divert.transform(run, offset - run.first)
            except StompboxError:
                engine.counters["not-diverted"] += 1
            else:
                yield offset, offset + 1, changed


def forward(engine: Engine, name: str, run: Run, routing: int) -> bool:
    """What the configuration sends on (`Engine.forward`). Nobody asked for it who could be refused it: the messages that it came of may
    have taken effect already, so that an error here is a fault of ours."""
    try:
        address = engine.addresses.get(name) or engine.create_address(name, is_auto=True)
        run.routing = routing or address.kinds or engine.default_routing(name)
        address.add_kind(run.routing)
        if run.routing & ANYCAST and not address.anycast:
            engine.new_queue(address, name, Kind.ANYCAST, is_auto=True)
        kept = run if address.limits is None else address.limits.kept(run)
        return kept is not None and engine.route(address, kept)
    except StompboxError as error:
        raise RuntimeError(f"messages cannot be sent on to {name[:200]!r}") from error


def copy(run: Run, first: int, stop: int) -> Run:
    """A run of its own with the messages first .. stop-1."""
    return run.part(first - run.first, stop - run.first, routing=run.routing & KINDS)
