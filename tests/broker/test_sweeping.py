"""What is empty goes a portion at a time, and what stays keeps its order; no step costs more the more there is."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop
from types import FrameType
from typing import Any

import pytest

from stompbox.broker import sweeping
from stompbox.broker.logs.segments import Held, Segment, Spans
from stompbox.broker.queues.backlog import Backlog
from stompbox.broker.queues.expiry import Expiring
from stompbox.broker.timers import Timers
from tests.broker.world import run_of


def longest(steps: Iterable[Callable[[], object]]) -> int:
    """Lines of Python that the longest of these runs."""
    lines, most = 0, 0

    def trace(_: FrameType, event: str, __: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    for step in steps:
        lines = 0
        sys.settrace(trace)
        try:
            step()
        finally:
            sys.settrace(before)
        most = max(most, lines)
    return most


@pytest.mark.parametrize("count", [0, 1, 7, 255, 256, 257, 2000])
def test_what_is_empty_goes_and_the_rest_keeps_its_order(count: int) -> None:
    seeded = random.Random(count)
    values = [seeded.randrange(1000) for _ in range(count)]
    waiting, heap = deque(values), list(values)
    heapify(heap)
    at = below = 0
    for _ in range(2 + count // sweeping.OF_HEAP):
        at = sweeping.sweep(waiting, at, lambda value: value % 3 == 0)
        below = sweeping.sweep_heap(heap, below, lambda value: value % 3 == 0)
    kept = [value for value in values if value % 3]
    assert list(waiting) == kept
    assert at == len(waiting)
    assert below == len(heap)
    found = []
    while heap:
        found.append(heappop(heap))
    # an entry that went up to fill a gap may have been passed over: it is looked at the next time
    assert [value for value in found if value % 3] == sorted(kept)
    assert found == sorted(found)


def test_a_place_that_is_not_there_any_more_is_the_end() -> None:
    waiting, heap = deque([1, 2, 3]), [1, 2, 3]
    assert sweeping.sweep(waiting, 5, lambda _: True) == 5
    assert sweeping.sweep_heap(heap, 5, lambda _: True) == 5
    assert list(waiting) == heap == [1, 2, 3]


MANY = 8_000
ORDERS = {
    "first to last": lambda count: list(range(count)),
    "last to first": lambda count: list(range(count))[::-1],
    "at random": lambda count: random.Random(7).sample(range(count), count),
    "but for the first": lambda count: [*range(1, count), 0],
}  # fmt: skip


def segment(first: int, *, expires: int = 0, deliveries: int = 0) -> Segment:
    run = run_of("q", b"x", expires=expires)
    run.first = first
    return Segment(run, first, first + 1, deliveries)


def most_lines(count: int) -> int:
    """What one step may take: a portion, and what may stand there empty."""
    return 12 * (4 * sweeping.PORTION + sweeping.LEAST + count // sweeping.PART)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("deliveries", [0, 1], ids=["new", "came back"])
def test_no_segment_that_leaves_a_backlog_costs_what_it_holds(name: str, deliveries: int) -> None:
    backlog = Backlog()
    segments = [segment(first, deliveries=deliveries) for first in range(MANY)]
    for one in segments:
        backlog.insert(one)
    gone = ORDERS[name](MANY)[: MANY - 100]
    lines = longest([lambda at=at: backlog.remove(segments[at]) for at in gone])  # type: ignore[misc]
    assert lines < most_lines(MANY)
    assert longest([backlog.pop]) < most_lines(MANY)
    left = [backlog.pop().first for _ in range(backlog.count)]
    assert left == sorted(set(range(MANY)) - set(gone))[1:]


def test_what_is_emptied_among_what_came_back_goes_while_more_comes() -> None:
    seeded = random.Random(2)
    backlog, there = Backlog(), dict[int, Segment]()
    for first in range(5000):
        there[first] = segment(first, deliveries=seeded.randrange(2))
        backlog.insert(there[first])
        if first % 2:
            gone = seeded.choice(list(there))
            backlog.remove(there.pop(gone))
        assert backlog.count == len(there)
        assert backlog._standing - len(there) <= sweeping.LEAST + len(there) // 8 + 64
    assert [backlog.pop().first for _ in range(backlog.count)] == sorted(there)


@pytest.mark.parametrize("name", ORDERS)
def test_no_time_that_is_over_costs_what_there_are(name: str) -> None:
    expiring = Expiring(Timers(), lambda: None)
    segments = [segment(first, expires=1000 + first) for first in range(MANY)]
    for one in segments:
        expiring.add(one)
    gone = ORDERS[name](MANY)[: MANY - 100]
    lines = longest([lambda at=at: expiring.discard(segments[at]) for at in gone])  # type: ignore[misc]
    assert lines < most_lines(MANY)
    due: list[Segment] = []
    assert longest([lambda: due.extend(expiring.due(10 * MANY, 10))]) < most_lines(MANY)
    assert [one.first for one in due] == sorted(set(range(MANY)) - set(gone))[:1]
    assert len(expiring) == 100


def test_a_time_that_comes_again_is_there_once() -> None:
    expiring = Expiring(Timers(), lambda: None)
    expiring.add(segment(0, expires=1))
    for first in range(1, 1000):
        again = segment(first, expires=2 + first % 2)
        expiring.add(again)
        expiring.discard(again)
    assert len(expiring._times) <= 3
    assert [one.first for one in expiring.due(5, 9)] == [0]


@pytest.mark.parametrize("name", ORDERS)
def test_no_acknowledgement_costs_what_is_not_acknowledged(name: str) -> None:
    held, spans = Held(), Spans()
    for first in range(MANY):
        held.add(segment(first))
        spans.add(first, first + 1)
    gone = ORDERS[name](MANY)[: MANY - 100]
    lines = longest(
        [lambda at=at: (held.take(at, at + 1), spans.remove(at)) for at in gone]  # type: ignore[misc]
    )
    assert lines < 2 * most_lines(MANY)
    left = sorted(set(range(MANY)) - set(gone))
    looks = [lambda: held.oldest() == spans.oldest() == left[0], lambda: gone[0] in spans]
    assert longest(looks) < 2 * most_lines(MANY)
    assert [look() for look in looks] == [True, False]
    assert [one.first for one in held.take_lowest(MANY)] == left
