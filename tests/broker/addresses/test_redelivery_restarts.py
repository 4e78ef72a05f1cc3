"""Counts of deliveries and failures across restarts and crashes."""

from __future__ import annotations

import pytest

from stompbox.broker.addresses.routing import ADMITTED
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.queue import Queue
from stompbox.broker.recovery import note_end
from stompbox.config.settings import AddressSetting
from stompbox.message import Run, Shape
from stompbox.stomp.encode import Head, messages
from stompbox.stomp.versions import V12
from stompbox.store.base import Commit
from tests.broker.addresses.test_redelivery import consuming
from tests.broker.world import World

# Across restarts


def test_counts_outlive_the_broker() -> None:
    world, consumer = consuming(
        AddressSetting(match="q", max_delivery_attempts=3, dead_letter_address="dead")
    )
    world.send("q", *[b"%d" % number for number in range(6)])
    while waiting := world.settle():
        for got in waiting:
            if got.deliveries < got.offset % 3:
                world.nack(consumer, got)
    world.commit()
    world = world.restart()
    world.on_queue(world.consumer(), "q")
    found = {got.body: (got.deliveries, got.is_redelivered) for got in world.settle()}
    assert found == {b"%d" % number: (number % 3, True) for number in range(6)}


def test_attempts_before_a_restart_are_attempts() -> None:
    rule = AddressSetting(match="q", max_delivery_attempts=3, dead_letter_address="dead")
    world, consumer = consuming(rule)
    for life in range(3):
        if life == 0:
            world.send("q", b"poison")
        (got,) = world.settle()
        assert got.deliveries == life
        world.nack(consumer, got)
        world.commit()
        world = world.restart()
        consumer = world.on_queue(world.consumer(), "q")
    assert world.settle() == []
    world.on_queue(world.consumer("d"), "dead")
    assert [got.body for got in world.settle()] == [b"poison"]


def test_what_was_spent_before_a_restart_is_not_delivered_once_more() -> None:
    """The broker went after the last attempt and before the dead letter was stored."""
    rule = AddressSetting(match="q", max_delivery_attempts=2, dead_letter_address="dead")
    world, _ = consuming(rule)
    world.send("q", b"poison", b"fine")
    world.settle()
    world.commit()
    world.store.apply(Commit(delivered={world.queue("q").id: [(0, 1, 2, 2)]}))
    world = world.restart()
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"fine"]
    world.on_queue(world.consumer("d"), "dead")
    assert [got.body for got in world.settle()] == [b"poison"]


def test_what_was_spent_before_a_restart_dies_in_portions_and_in_order() -> None:
    """Where dead letters go a last-value queue asks for the key of each."""
    rule = AddressSetting(match="q", max_delivery_attempts=2, dead_letter_address="dead")
    world = World(rule, AddressSetting(match="dead", default_last_value_key="k"))
    numbers = [b"%d" % number for number in range(3 * ADMITTED + 10)]
    world.send("dead", b"first", headers={"k": "first"})
    world.send("q", *numbers, holes={"k": numbers})
    world.send("q", b"more", headers={"k": "more"})
    world.commit()
    count = len(numbers) + 1
    world.store.apply(Commit(delivered={world.queue("q").id: [(0, count, 2, 2)]}))
    world = world.restart()
    parts: list[int] = []
    dead_letter = world.engine.dead_letter

    def noted(queue: Queue, segment: Segment, reason: str) -> None:
        parts.append(len(segment))
        dead_letter(queue, segment, reason)

    world.engine.dead_letter = noted  # type: ignore[method-assign]
    world.on_queue(world.consumer(), "q")
    while sum(parts) < count:
        assert world.settle() == []
        world.engine.tick(world.engine.now + 1)
    assert max(parts) <= ADMITTED
    assert [got.body for got in world.waiting_in("dead")] == [b"first", *numbers, b"more"]
    assert world.queue("q").count == 0


def test_a_dead_letter_whose_message_may_have_died_before_a_crash_is_marked_and_stays_so() -> None:
    """The first broker's dead letter was delivered, and went with it: the second one's may come a second time."""
    world, consumer = consuming(
        AddressSetting(match="q", max_delivery_attempts=1, dead_letter_address="dead")
    )
    world.send("q", b"poison")
    world.commit()
    found = []
    for _ in range(2):
        world.nack(consumer, *world.settle())
        world.on_queue(world.consumer("d"), "dead")
        found += world.settle()
        world = world.restart()
        consumer = world.on_queue(world.consumer(), "q")
    assert [(got.queue.name, got.body, got.is_redelivered) for got in found] == [
        ("dead", b"poison", False),
        ("dead", b"poison", True),
    ]
    world.nack(consumer, *world.settle())
    world.commit()
    note_end(world.engine)
    world.commit()
    world = world.restart()  # after an orderly end: what was never delivered is not marked otherwise
    world.on_queue(world.consumer("d"), "dead")
    [got] = world.settle()
    assert (got.queue.name, got.is_redelivered, got.deliveries) == ("dead", True, 0)


def test_a_marked_copy_says_it_once_on_the_wire() -> None:
    run = Run(Shape({"destination": "/queue/q", "colour": "red"}).marked(), [b"a", b"b"], first=7)
    wire = messages(Head(V12, "s", 1, acks=True), run, 0, 2, redelivered=True)
    assert wire.count(b"\nredelivered:true\n") == wire.count(b"redelivered") == wire.count(b"colour:red") == 2


def test_an_expired_message_that_may_have_expired_before_a_crash_is_marked() -> None:
    world = World(AddressSetting(match="q", expiry_address="late"))
    world.send("q", b"old", expires=world.engine.now + 10)
    world.commit()
    world = world.restart()
    world.send("q", b"new", expires=world.engine.now + 10)
    world.tick(20)
    world.on_queue(world.consumer(), "q")
    world.on_queue(world.consumer("d"), "late")
    assert {got.body: got.is_redelivered for got in world.settle()} == {b"old": True, b"new": False}


def test_counts_of_a_commit_that_failed_go_with_the_next() -> None:
    world, consumer = consuming()
    world.send("q", b"a")
    world.commit()
    (got,) = world.settle()
    world.nack(consumer, got)
    world.engine.commit_failed(world.engine.take_commit())
    (got,) = world.settle()
    world.nack(consumer, got)
    world.commit()
    world = world.restart()
    world.on_queue(world.consumer(), "q")
    assert [got.deliveries for got in world.settle()] == [2]


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "from the last on"])
def test_counts_of_messages_that_are_next_to_each_other_are_stored_as_one(order: int) -> None:
    world, consumer = consuming()
    world.send("q", *[b"%d" % number for number in range(10)])
    world.commit()
    for got in world.settle()[::order]:
        if got.offset != 4:
            world.nack(consumer, got)
    commit = world.engine.take_commit()
    [told] = commit.delivered.values()
    assert sorted(told) == [(0, 4, 1, 1), (5, 10, 1, 1)]
    world.store.apply(commit)
    world.engine.committed()
    again = world.restart()
    again.on_queue(again.consumer(), "q")
    assert [got.deliveries for got in again.settle()] == [1] * 4 + [0] + [1] * 5


def test_what_is_not_stored_is_not_counted() -> None:
    world, consumer = consuming()
    world.send("q", b"a", persistent=False)
    (got,) = world.settle()
    world.nack(consumer, got)
    assert world.engine.take_commit().delivered == {}


def test_what_was_counted_and_never_left_comes_back_marked() -> None:
    """persist-delivery-count-before-delivery: nobody could tell after a crash that it never left."""
    world, consumer = consuming()
    world.engine.counts_first = True
    world.send("q", b"a")
    world.close(consumer)
    world.on_queue(world.consumer(), "q")
    assert [got.is_redelivered for got in world.settle()] == [True]
