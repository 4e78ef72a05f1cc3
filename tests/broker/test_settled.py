"""How many messages a queue is done with: a count of its own messages, wherever in its log it began, over restarts and resets."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from stompbox.broker.kinds import Kind
from stompbox.broker.logs.log import RESERVE
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.depth import sums_of
from stompbox.broker.queues.queue import Queue
from stompbox.broker.recovery import note_end
from stompbox.broker.subscriptions.readers import commit_group, open_group, reset
from stompbox.config.settings import AddressSetting
from stompbox.incarnations import Position
from stompbox.message import ANYCAST, MULTICAST, Run, Shape
from stompbox.store.base import Commit
from tests.broker.world import World

KEEP = AddressSetting(match="#", retention_ms=10**9)


def late(world: World, selector: str = "", *, before: int = 10) -> Queue:
    """A durable subscription of its own on a topic that has got messages before it came."""
    world.send("t", *[b"old"] * before, routing=MULTICAST)
    world.on_durable(world.consumer("late", selector=selector), "late", "t")
    return next(queue for queue in world.engine.queues.values() if queue.kind is Kind.DURABLE)


def after_a_crash(world: World) -> World:
    world.commit()
    return world.restart()


def after_a_good_end(world: World) -> World:
    world.commit()
    note_end(world.engine)
    return after_a_crash(world)


def group_of(world: World) -> Queue:
    return next(queue for queue in world.engine.queues.values() if queue.kind is Kind.GROUP)


def test_a_queue_that_was_made_later_has_done_nothing_before() -> None:
    world = World(KEEP)
    queue = late(world)
    assert (queue.cursor.began, queue.cursor.position, queue.settled) == (10, 10, 0)
    world.send("t", b"a", b"b", b"c", routing=MULTICAST)
    for got in world.settle()[:2]:
        world.ack(queue.bindings[0].consumer, got)
    assert (queue.cursor.position, queue.settled) == (12, 2)
    assert sums_of(queue.address).settled == 2


@pytest.mark.parametrize("again", [after_a_crash, after_a_good_end])
def test_it_is_known_after_a_restart(again: Callable[[World], World]) -> None:
    world = World(KEEP)
    queue = late(world)
    world.send("t", b"a", b"b", b"c", routing=MULTICAST)
    _, second, third = world.settle()
    for got in (second, third):  # ahead of the first, which is held
        world.ack(queue.bindings[0].consumer, got)
    for _ in range(2):
        world = again(world)
        [queue] = world.engine.queues.values()
        assert (queue.settled, queue.cursor.began) == (2, 10)
    world.on_durable(world.consumer("late"), "late", "t")
    world.ack(queue.bindings[0].consumer, world.settle()[0])
    assert queue.settled == 3


def test_messages_that_its_selector_leaves_to_others_are_not_its_own() -> None:
    world = World(KEEP)
    queue = late(world, "wanted = 'yes'")
    for wanted in ("no", "yes", "no", "no", "yes"):
        world.send("t", b"x", routing=MULTICAST, headers={"wanted": wanted})
    for got in world.settle():
        world.ack(queue.bindings[0].consumer, got)
    assert (queue.cursor.position, queue.settled) == (15, 2)
    world = after_a_good_end(world)
    [queue] = world.engine.queues.values()
    assert (queue.cursor.position, queue.settled) == (15, 2)
    world = after_a_crash(world)
    [queue] = world.engine.queues.values()
    assert queue.settled == 2


def test_what_was_not_persistent_stays_counted_after_a_good_end() -> None:
    world = World()
    world.send("q", b"a", b"b", persistent=False)
    consumer = world.on_queue(world.consumer(), "q")
    for got in world.settle():
        world.ack(consumer, got)
    world = after_a_good_end(world)
    assert world.queue("q").settled == 2
    world.send("q", b"c")  # behind offsets that were reserved, and are nobody's
    consumer = world.on_queue(world.consumer(), "q")
    [got] = world.settle()
    assert got.offset >= RESERVE
    world.ack(consumer, got)
    assert world.queue("q").settled == 3


def test_what_is_purged_is_done_with_and_is_counted_where_the_log_alone_had_it() -> None:
    world = World(page_size=1000)
    for _ in range(10):
        world.send("q", bytes(400))
    world.commit()
    queue = world.queue("q")
    assert queue.is_paged
    reclaim.purge(queue)
    world.settle()
    assert (queue.settled, world.engine.counters["purged"], queue.cursor.position) == (10, 10, 10)


def test_what_was_dropped_for_what_the_disk_refuses_is_not_done_with() -> None:
    world = World(AddressSetting(match="#", default_last_value_key="key"))
    world.send("q", b"old", headers={"key": "1"})
    world.commit()
    queue = world.queue("q")
    newer = Run(Shape({"destination": "q", "key": "1"}), [b"new"], routing=ANYCAST)
    world.engine.publish(world.address("q"), newer, is_answered=True)
    assert queue.settled == 1
    world.engine.commit_failed(world.engine.take_commit())
    world.on_queue(world.consumer(), "q")
    assert world.bodies() == [b"old"]
    assert queue.settled == 1, "the new one, which came and could not be stored"


def test_a_group_counts_what_it_has_read_however_often_it_is_put_elsewhere() -> None:
    world = World(KEEP)
    world.send("q", *[b"x"] * 100)
    world.commit()
    open_group(world.engine, "lake", ["q"], lambda _: 40)
    group, address = group_of(world), world.address("q")

    def read_to(offset: int) -> None:
        position = Position(offset, address.log.incarnations.of(offset))
        assert not commit_group(world.engine, "lake", {"q": position})

    read_to(60)
    assert group.settled == 20
    reset(world.engine, "lake", address, lambda _: 10)
    assert (group.cursor.position, group.settled) == (10, 20)
    read_to(15)
    assert group.settled == 25
    reset(world.engine, "lake", address, lambda _: 90)
    assert (group.cursor.position, group.settled) == (90, 25)
    world = after_a_crash(world)
    group = group_of(world)
    assert (group.cursor.position, group.settled) == (90, 25)


def test_one_of_an_older_version_counts_from_the_first_start_on() -> None:
    world = World(KEEP)
    queue = late(world)
    world.send("t", b"a", b"b", routing=MULTICAST)
    for got in world.settle():
        world.ack(queue.bindings[0].consumer, got)
    world.commit()
    key = ("queue", str(queue.id))
    entry = json.loads(world.store.recover().entries[key])
    del entry["began"]
    world.store.apply(Commit(entries={key: json.dumps(entry).encode()}))
    world = world.restart()
    [queue] = world.engine.queues.values()
    assert queue.settled == 0
    world.on_durable(world.consumer("late"), "late", "t")
    world.send("t", b"c", routing=MULTICAST)
    world.ack(queue.bindings[0].consumer, world.settle()[0])
    assert queue.settled == 1
    world = after_a_crash(world)
    assert [queue.settled for queue in world.engine.queues.values()] == [1], "it is known from then on"


def test_nothing_is_left_of_a_queue_that_is_gone() -> None:
    world = World(KEEP)
    world.send("q", b"x")
    open_group(world.engine, "lake", ["q"], lambda _: 0)
    reset(world.engine, "lake", world.address("q"), lambda _: 1)
    world.commit()
    assert [key for kind, key in world.store.recover().entries if kind == "settled"]
    world.engine.drop_queue(group_of(world))
    world.commit()
    assert not [key for kind, key in world.store.recover().entries if kind == "settled"]
