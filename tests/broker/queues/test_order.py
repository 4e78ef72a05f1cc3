"""Which of many backlogs gives the oldest message, and what is kept of those that are gone."""

from __future__ import annotations

from random import Random

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.backlog import Backlog
from stompbox.broker.queues.order import GIVEN_UP, Order, Unsorted, noted
from tests.broker.world import run_of


def backlog(*offsets: int) -> Backlog:
    found = Backlog()
    run = run_of("q", *[b""] * 1000)
    for offset in offsets:
        found.push(Segment(run, offset, offset + 1))
    return found


def test_the_first_is_that_of_all_places() -> None:
    random, order = Random(7), Order()
    places = {place: backlog() for place in range(20)}
    run = run_of("q", *[b""] * 1000)
    for _ in range(2000):
        place = random.randrange(20)
        if random.random() < 0.6:
            offset = random.randrange(1000)
            places.setdefault(place, backlog()).put_back(Segment(run, offset, offset + 1))
            order.note(place, places[place].head)
        elif random.random() < 0.1:
            places.pop(place, None)
            order.forget(place)
        elif (first := order.first(places)) is not None:
            places[first[1]].pop()
        heads = [waiting.head for waiting in places.values() if waiting.count]
        found = order.first(places)
        assert (None if found is None else found[0]) == min(heads, default=None)


def test_what_is_gone_does_not_stay_behind_what_comes_first() -> None:
    order = Order()
    order.note(0, (0, 0))
    for place in range(1, 5000):
        order.note(place, (0, place))
        order.forget(place)
    assert len(order) < 200


def test_who_is_noted_again_and_again_is_noted_once() -> None:
    order = Order()
    for head in range(5000, 0, -1):
        order.note(head % 10, (0, head))
    assert len(order) < 200


def test_what_is_not_needed_any_more_goes_in_portions() -> None:
    lanes = {lane: backlog() for lane in range(10 * GIVEN_UP)}
    lanes[5] = backlog(5)
    past = noted({lane: backlog(lane) for lane in range(10 * GIVEN_UP)})
    left = Unsorted(lanes, noted({5: lanes[5]}), past=[past])
    before = len(past)
    assert left.give_up()
    assert len(past) == before - GIVEN_UP
    while len(past):
        assert left.give_up()
    for _ in range(20):
        assert left.give_up()
    assert len(lanes) == 10 * GIVEN_UP, "something waits still"
    assert left.first == 5
    lanes[5].pop()
    left.took(5)
    steps = 1
    while left.give_up():
        steps += 1
    assert steps >= 9
    assert not lanes
