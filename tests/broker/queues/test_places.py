"""What lanes take in memory beside their messages counts, and is bounded."""

from __future__ import annotations

from random import Random

import pytest

from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.memory import Memory
from stompbox.broker.queues.places import CROWDED, EMPTY, LANE, PLACE, Places
from tests.broker.world import World

SELECTORS = 40
PAGE = 1 << 20


def crowd(world: World, *, prefetch: int = 1) -> list[Consumer]:
    """Consumers each of which takes nearly all messages, so that nearly each message is for others than the one before."""
    selectors = [f"k <> '{number}' AND l <> '{number}'" for number in range(SELECTORS)]
    return [
        world.on_queue(world.consumer(f"c{number}", selector=selector, prefetch=prefetch), "q")
        for number, selector in enumerate(selectors)
    ]


def send(world: World, count: int, *, is_played: bool = True) -> None:
    random = Random(1)
    for number in range(count):
        columns = {name: [b"%d" % random.randrange(SELECTORS)] for name in ("k", "l")}
        world.send("q", b"%d" % number, holes=columns)
        if is_played:
            world.settle()


def lane_octets(world: World) -> int:
    lanes = world.queue("q").backlog
    return sum([LANE + PLACE * len(lane) for lane in lanes.by_lane if lane])


def test_lanes_count_as_memory_of_the_queue_and_of_all() -> None:
    world = World()
    crowd(world)
    send(world, 200)
    queue, memory = world.queue("q"), world.engine.memory
    octets = lane_octets(world)
    assert octets > 100 * (LANE + PLACE * (SELECTORS - 2)), "nearly each message has a lane"
    assert queue.backlog.places.size == octets
    assert queue.size == memory.size - EMPTY
    assert memory.size > octets


@pytest.mark.parametrize("portion", [100, 20_000])
def test_lanes_take_no_more_than_the_queue_may_have(portion: int) -> None:
    """Sorted as they come, and later: what else there is stays in the log, and who has credit finds it there."""
    world = World(page_size=PAGE, portion=portion)
    crowd(world)
    most = 0
    random = Random(1)
    for number in range(600):
        columns = {name: [b"%d" % random.randrange(SELECTORS)] for name in ("k", "l")}
        world.send("q", b"%d" % number, holes=columns)
        if number % 50 == 0:
            world.settle()
        most = max(most, world.queue("q").size)
    world.settle()
    assert max(most, world.queue("q").size) < PAGE + 100 * (LANE + PLACE * SELECTORS)
    assert world.queue("q").is_paged


@pytest.mark.parametrize("portion", [100, 20_000])
def test_all_messages_come_once_and_what_lanes_took_is_given_back(portion: int) -> None:
    world = World(page_size=PAGE, portion=portion)
    consumers = {consumer.name: consumer for consumer in crowd(world)}
    random = Random(1)
    for number in range(500):
        columns = {name: [b"%d" % random.randrange(SELECTORS)] for name in ("k", "l")}
        world.send("q", b"%d" % number, holes=columns)
    bodies: list[bytes] = []
    by_consumer: dict[str, list[int]] = {}
    while got := world.settle():
        for one in got:
            bodies.append(one.body)
            by_consumer.setdefault(one.consumer, []).append(int(one.body))
            world.ack(consumers[one.consumer], one)
        world.tick(100)
    assert sorted(map(int, bodies)) == list(range(500))
    assert all(numbers == sorted(numbers) for numbers in by_consumer.values()), "in order for each"
    assert world.queue("q").backlog.places.size <= EMPTY + (LANE + PLACE * SELECTORS)


def test_what_is_to_be_sorted_goes_to_the_log_where_lanes_are_too_many() -> None:
    """All consumers but one have all that they want, and do not acknowledge: the other one finds its messages in the log."""
    world = World(page_size=PAGE, portion=100)
    crowd(world)
    send(world, SELECTORS, is_played=True)
    send(world, 600, is_played=False)
    world.send("q", b"x", headers={"k": "x", "l": "x", "only": "yes"})
    other = world.on_queue(world.consumer("other", selector="only = 'yes'", session=2), "q")
    found = []
    for _ in range(20):
        found += [one.body for one in world.settle() if one.consumer == other.name]
        world.tick(100)
    assert found == [b"x"]
    assert world.queue("q").backlog.places.size < PAGE


def test_a_queue_that_goes_takes_its_lanes_along() -> None:
    world = World()
    consumers = crowd(world)
    send(world, 200)
    assert world.queue("q").backlog.places.size > EMPTY
    for consumer in consumers[1:]:
        world.close(consumer)
    world.engine.drop_queue(world.queue("q"))
    world.settle()
    assert world.engine.memory.size == 0


def test_what_has_ended_counts_for_nobody() -> None:
    memory = Memory()
    places = Places(memory, PAGE)
    places.take("ab")
    places.take("c")
    places.forget("c")
    assert memory.size == places.size == LANE + 2 * PLACE
    places.retire().take("abc")
    places.give_back(["ab"])
    assert memory.size == places.size == LANE + 3 * PLACE
    places.end()
    places.give_back(["abc"])
    assert memory.size == 0


def test_lanes_are_too_many_by_themselves_or_where_all_memory_is_full() -> None:
    memory = Memory()
    places = Places(memory, 4 * CROWDED)
    places.take(range(2 * CROWDED // PLACE))
    assert not places.is_crowded
    memory.limit(CROWDED, -1)
    assert places.is_crowded
    memory.limit(-1, -1)
    places.take(range(CROWDED // PLACE))
    assert places.is_crowded
    places.retire()
    assert not places.is_crowded, "those of before go as they are sorted"
