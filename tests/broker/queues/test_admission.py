"""Rings and last-value queues of which the log alone has some: what a newer message replaces or pushes out goes there, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import arrivals, paging, reclaim
from stompbox.broker.queues.admission import Admission
from stompbox.broker.queues.consumer import AckMode
from stompbox.config.settings import AddressFullPolicy, AddressSetting
from tests.broker.queues.test_browsing import look
from tests.broker.test_schedule import drained
from tests.broker.world import Got, World

LAST = AddressSetting(match="q", default_last_value_key="key")
RING = AddressSetting(match="q", default_ring_size=5)
SIZE = 1000


def put(world: World, key: str, body: bytes, **headers: str) -> None:
    world.send("q", body, headers={"key": key, **headers})


def seen(world: World) -> list[bytes]:
    """What a browser of the queue is shown."""
    look(world)
    return [got.body for got in world.settle() if "browser" not in got.headers]


def all_of(world: World) -> list[bytes]:
    world.on_queue(world.consumer("all"), "q")
    return [got.body for got in drained(world)]


def paged(*rules: AddressSetting, restarts: bool = False) -> World:
    """A last-value queue with two keys in memory and three in the log alone, of which one was replaced."""
    world = World(*(rules or (LAST,)), page_size=2500)
    for key, body in (("a", b"a1"), ("b", b"b1"), ("c", b"c1"), ("d", b"d1"), ("e", b"e1"), ("c", b"c2")):
        put(world, key, body.ljust(SIZE, b"."))
        world.commit()
    assert world.queue("q").is_paged
    return world.restart() if restarts else world


def names(bodies: Iterable[bytes]) -> list[str]:
    return [body[:2].decode() for body in bodies]


@pytest.mark.parametrize("restarts", [True, False])
def test_a_paged_last_value_queue_shows_browsers_the_newest(*, restarts: bool) -> None:
    world = paged(restarts=restarts)
    put(world, "a", b"a2")  # in place of one in memory
    put(world, "d", b"d2")  # of one that the log alone has
    world.settle()
    assert names(seen(world)) == ["b1", "e1", "c2", "a2", "d2"]
    assert names(all_of(world)) == ["b1", "e1", "c2", "a2", "d2"]
    assert world.queue("q").cursor.position == world.engine.addresses["q"].log.next, (
        "what was replaced holds nothing"
    )


def test_what_is_out_is_not_delivered_again_when_the_log_has_a_newer_one() -> None:
    world = paged()
    consumer = world.on_queue(world.consumer(prefetch=1), "q")
    [got] = world.settle()
    put(world, got.body[:1].decode(), b"newer")
    world.nack(consumer, got)
    assert got.body not in [one.body for one in world.settle()]


def test_a_message_for_later_replaces_nothing_before_its_time() -> None:
    world = paged()
    put(world, "b", b"b2", AMQ_SCHEDULED_DELAY="1000")
    assert names(seen(world)) == ["a1", "b1", "d1", "e1", "c2"]
    assert names(all_of(world)) == ["a1", "b1", "d1", "e1", "c2"]
    world.tick(1000)
    assert names(got.body for got in world.settle()) == ["b2"]


def test_a_large_message_that_has_no_room_does_not_let_a_small_one_come_twice() -> None:
    world = World(LAST, page_size=2500)
    world.send("q", bytes(5000), b"small", holes={"key": [b"a", b"b"]})
    assert [len(body) for body in all_of(world)] == [5000, 5]


def test_the_tally_of_what_the_log_alone_has() -> None:
    """`page-limit-messages` counts what is there, once."""
    world = paged(AddressSetting(match="q", default_last_value_key="key", page_limit_messages=100))
    for number in range(20):
        put(world, "d", b"d%d" % number)
    tally = world.queue("q").tally
    assert tally is not None
    assert tally.count == 5
    all_of(world)
    assert (tally.size, tally.count) == (0, 0)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_ring_gives_its_window_back_and_stays_a_ring(*, restarts: bool) -> None:
    world = World(RING)
    for number in range(7):
        world.send("q", b"%d" % number)
    world.commit()
    reclaim.give_back(world.queue("q"))
    assert (world.queue("q").backlog.count, world.queue("q").is_paged) == (0, True)
    if restarts:
        world = world.restart()
    world.send("q", b"7")
    world.settle()
    assert all_of(world) == [b"3", b"4", b"5", b"6", b"7"]


@pytest.mark.parametrize("restarts", [True, False])
def test_a_last_value_queue_gives_its_window_back(*, restarts: bool) -> None:
    world = World(LAST)
    for key in "abc":
        put(world, key, key.encode() + b"1")
    world.commit()
    reclaim.give_back(world.queue("q"))
    assert world.queue("q").backlog.count == 0
    assert world.engine.memory.size == 0
    if restarts:
        world = world.restart()
    put(world, "b", b"b2")
    world.settle()
    assert names(seen(world)) == ["a1", "c1", "b2"]
    assert names(all_of(world)) == ["a1", "c1", "b2"]


def test_a_grouped_queue_gives_its_window_back_and_keeps_its_owners() -> None:
    world = World()
    one, two = (
        world.on_queue(world.consumer("one", prefetch=1), "q"),
        world.on_queue(world.consumer("two", prefetch=1), "q"),
    )
    for number in range(10):
        world.send("q", b"%d" % number, headers={"JMSXGroupID": f"g{number % 2}"})
    world.commit()
    first = world.out()
    reclaim.give_back(world.queue("q"))
    assert (world.queue("q").backlog.count, world.queue("q").is_paged) == (0, True)
    by_consumer: dict[str, list[bytes]] = {"one": [], "two": []}
    while first:
        for got in first:
            by_consumer[got.consumer].append(got.body)
            world.ack(one if got.consumer == "one" else two, got)
        first = world.settle()
    assert sorted(by_consumer.values()) == [
        [b"%d" % n for n in range(0, 10, 2)],
        [b"%d" % n for n in range(1, 10, 2)],
    ]


def test_groups_whose_first_message_is_marked_keep_their_window() -> None:
    """The mark is on what a consumer was given, and not in the log."""
    world = World(AddressSetting(match="q", default_group_first_key="first"))
    world.on_queue(world.consumer(prefetch=1), "q")
    for number in range(3):
        world.send("q", b"%d" % number, headers={"JMSXGroupID": "g"})
    reclaim.give_back(world.queue("q"))
    assert world.queue("q").backlog.count == 2


def test_a_full_address_takes_no_more_of_a_key_than_of_others() -> None:
    world = World(
        AddressSetting(
            match="q",
            default_last_value_key="key",
            address_full_policy=AddressFullPolicy.DROP,
            max_size_messages=3,
        )
    )
    for key in "abc":
        put(world, key, key.encode())
    reclaim.give_back(world.queue("q"))
    put(world, "a", b"x")
    assert sorted(all_of(world)) == [b"a", b"b", b"c"]


def test_a_ring_drops_nothing_for_messages_that_a_restart_has_ended() -> None:
    """What is not persistent is gone; the log does not say so before it is read."""
    world = World(RING, page_size=1000)
    for number in range(5):
        world.send("q", b"old %d" % number + bytes(SIZE), persistent=False)
        world.commit()
    assert world.queue("q").is_paged
    world = world.restart()
    for number in range(4):
        world.send("q", b"%d" % number)
    world.settle()
    assert all_of(world) == [b"0", b"1", b"2", b"3"]


def test_a_long_last_value_key_is_remembered_by_its_digest() -> None:
    world = World(LAST, page_size=2500)
    long = "k" * 50_000
    for key, body in (("a", b"a1"), ("b", b"b1"), ("a", b"a2"), ("c", b"c1"), ("b", b"b2")):
        put(world, long + key, body)
        world.commit()
    assert names(seen(world)) == ["a2", "c1", "b2"]
    admission = world.queue("q").admission
    assert admission is not None
    assert len(admission._latest) == 3
    assert max(map(len, admission._latest)) <= 64
    assert names(all_of(world)) == ["a2", "c1", "b2"]


def test_a_long_run_in_the_log_is_looked_through_in_portions_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For its keys, and when it is loaded. Only the newest of each is delivered."""
    count, keys, looked = 2000, 700, 0
    learn, take = Admission._learn, arrivals.take

    def learns(admission: Admission, queue: Any, segment: Segment) -> None:
        nonlocal looked
        looked += len(segment)
        learn(admission, queue, segment)

    def takes(queue: Any, segment: Segment) -> None:
        nonlocal looked
        looked += len(segment)
        take(queue, segment)

    world = World(LAST, page_size=2500, portion=1000)
    bodies = [b"%d" % number for number in range(count)]
    world.send("q", *bodies, holes={"key": [b"%d" % (number % keys) for number in range(count)]})
    world.commit()
    world = world.restart()
    monkeypatch.setattr(Admission, "_learn", learns)
    monkeypatch.setattr(arrivals, "take", takes)
    world.on_queue(world.consumer("c", AckMode.AUTO), "q")
    got: list[Got] = []
    most = 0
    while world.serve() or world.engine.dispatch_rest(lambda: False):
        most, looked = max(most, looked), 0
        got += world.out()
    assert 0 < most <= 2 * paging.KEYED
    assert [one.body for one in got + world.settle()] == bodies[-keys:]
