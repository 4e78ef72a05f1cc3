"""Failed deliveries: back-off, attempts, dead letters."""

from __future__ import annotations

import pytest

from stompbox.broker.consumer import Consumer
from stompbox.config.settings import AddressSetting
from stompbox.message import MULTICAST
from stompbox.store.base import Commit
from tests.broker.world import World


def consuming(*rules: AddressSetting, prefetch: int = -1) -> tuple[World, Consumer]:
    world = World(*rules)
    return world, world.on_queue(world.consumer(prefetch=prefetch), "q")


def delays(*rules: AddressSetting, attempts: int) -> list[int]:
    """How long one message waits before each redelivery, to the ms."""
    world, consumer = consuming(*rules)
    world.send("q", b"a")
    found = []
    for _ in range(attempts):
        (got,) = world.settle()
        world.nack(consumer, got)
        assert world.settle() == []
        deadline = world.engine.next_deadline()
        assert deadline is not None
        found.append(deadline - world.engine.now)
        world.tick(found[-1] - 1)
        assert world.settle() == [], "too early"
        world.tick(1)
    return found


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (AddressSetting(match="q", redelivery_delay=200), [200, 200, 200]),
        (AddressSetting(match="q", redelivery_delay=100, redelivery_delay_multiplier=2.0), [100, 200, 400, 800, 1000, 1000]),
        (AddressSetting(match="q", redelivery_delay=100, redelivery_delay_multiplier=3.0, max_redelivery_delay=500), [100, 300, 500]),
        (AddressSetting(match="q", redelivery_delay=100, redelivery_delay_multiplier=0.5), [100, 50, 25]),
    ],
)
def test_back_off(rule: AddressSetting, expected: list[int]) -> None:
    """Without max-redelivery-delay the longest wait is ten times the first."""
    assert delays(rule, attempts=len(expected)) == expected


def test_delay_does_not_overflow() -> None:
    rule = AddressSetting(
        match="q", redelivery_delay=1, redelivery_delay_multiplier=1e300, max_redelivery_delay=7, max_delivery_attempts=-1
    )
    assert delays(rule, attempts=5) == [1, 7, 7, 7, 7]


def test_collision_avoidance_spreads_delays() -> None:
    rule = AddressSetting(match="q", redelivery_delay=1000, redelivery_collision_avoidance_factor=0.15)
    world, consumer = consuming(rule)
    world.send("q", *[b"%d" % i for i in range(200)])
    for got in world.settle():
        world.nack(consumer, got)
    came: dict[int, int] = {}
    start = world.engine.now
    while (deadline := world.engine.next_deadline()) is not None:
        world.tick(deadline - world.engine.now)
        came[world.engine.now - start] = len(world.settle())
    assert sum(came.values()) == 200
    assert all(850 <= delay <= 1150 for delay in came)
    assert min(came) < 900
    assert max(came) > 1100
    assert len(came) > 100


def test_waiting_message_does_not_hold_up_the_rest() -> None:
    world, consumer = consuming(AddressSetting(match="q", redelivery_delay=100), prefetch=1)
    world.send("q", b"a", b"b")
    (first,) = world.settle()
    world.nack(consumer, first)
    (second,) = world.settle()
    assert second.body == b"b"
    world.ack(consumer, second)
    world.tick(100)
    (again,) = world.settle()
    assert (again.body, again.is_redelivered, again.deliveries) == (b"a", True, 1)


def test_refused_together_they_come_again_in_order_before_new_ones() -> None:
    world, consumer = consuming(prefetch=3)
    world.send("q", b"a", b"b", b"c", b"d", b"e")
    first = world.settle()[0]
    sent, _ = consumer.take(first.queue.id, first.offset, first.offset + 3)
    world.engine.refuse(consumer, sent)
    again = world.settle()
    assert [(got.body, got.deliveries) for got in again] == [(b"a", 1), (b"b", 1), (b"c", 1)]
    for got in again:
        world.ack(consumer, got)
    assert [got.body for got in world.settle()] == [b"d", b"e"]


def test_returned_at_close_come_in_original_order() -> None:
    world, consumer = consuming(prefetch=3)
    world.send("q", b"a", b"b", b"c", b"d", b"e")
    assert len(world.settle()) == 3
    world.close(consumer)
    other = world.on_queue(world.consumer("d"), "q")
    assert [(got.body, got.is_redelivered) for got in world.settle()] == [
        (b"a", True), (b"b", True), (b"c", True), (b"d", False), (b"e", False),
    ]  # fmt: skip
    assert other.messages_out == 5


DYING = AddressSetting(match="q", max_delivery_attempts=3, dead_letter_address="dead")


def kill(world: World, consumer: Consumer, attempts: int) -> None:
    for _ in range(attempts):
        for got in world.settle():
            world.nack(consumer, got)


def test_dead_letter_after_so_many_attempts_with_its_headers() -> None:
    world, consumer = consuming(DYING)
    world.send("q", b"a", headers={"colour": "red", "expiration": "100000"})
    kill(world, consumer, 2)
    assert "dead" not in world.engine.addresses
    kill(world, consumer, 1)
    queue = world.queue("q")
    reader = world.on_queue(world.consumer("r"), "dead")
    (got,) = world.settle()
    assert got.body == b"a"
    assert got.headers == {
        "destination": "q", "colour": "red", "original-destination": "q", "_AMQ_ORIG_ADDRESS": "q", "_AMQ_ORIG_QUEUE": "q",
        "_AMQ_ORIG_MESSAGE_ID": f"{queue.id}-0", "dead-letter-reason": "max-delivery-attempts",
    }  # fmt: skip
    assert world.engine.counters["dead"] == 1
    assert reader.messages_out == 1
    assert world.settle() == []
    assert queue.backlog.count == queue.delivering == 0


def test_without_dead_letter_address_it_is_dropped_and_counted() -> None:
    world, consumer = consuming(AddressSetting(match="q", max_delivery_attempts=1))
    world.send("q", b"a", b"b")
    kill(world, consumer, 1)
    assert world.settle() == []
    assert world.engine.counters["dropped"] == 2


def test_any_number_of_attempts() -> None:
    world, consumer = consuming(AddressSetting(match="q", max_delivery_attempts=-1))
    world.send("q", b"a")
    kill(world, consumer, 50)
    (got,) = world.settle()
    assert got.deliveries == 50


def test_orderly_end_does_not_count_a_lost_connection_does() -> None:
    world, consumer = consuming(DYING)
    world.send("q", b"a")
    for is_failure in (False, False, False, True, True):
        assert len(world.settle()) == 1
        world.close(consumer, is_failure=is_failure)
        consumer = world.on_queue(world.consumer(), "q")
    (got,) = world.settle()
    assert got.deliveries == 5
    world.close(consumer, is_failure=True)
    assert world.engine.counters["dead"] == 1


def test_dead_letter_of_a_dead_letter_keeps_where_it_came_from() -> None:
    world, consumer = consuming(DYING, AddressSetting(match="dead", max_delivery_attempts=1, dead_letter_address="deader"))
    world.send("q", b"a")
    kill(world, consumer, 3)
    kill(world, world.on_queue(world.consumer("r"), "dead"), 1)
    world.on_queue(world.consumer("s"), "deader")
    (got,) = world.settle()
    assert got.headers["_AMQ_ORIG_QUEUE"] == "q"
    assert got.headers["_AMQ_ORIG_MESSAGE_ID"] == f"{world.queue('q').id}-0"


def test_each_address_gets_a_queue_of_its_own_among_the_dead() -> None:
    rule = AddressSetting(
        match="#", max_delivery_attempts=1, dead_letter_address="dead", auto_create_dead_letter_resources=True,
        dead_letter_queue_suffix=".box",
    )  # fmt: skip
    world = World(rule)
    for name in ("a.b", "it's"):
        consumer = world.on_queue(world.consumer(name), name)
        world.send(name, name.encode())
        kill(world, consumer, 1)
    queues = world.engine.addresses["dead"].anycast
    assert set(queues) == {"DLQ.a.b.box", "DLQ.it's.box"}
    for name in ("a.b", "it's"):
        reader = world.on_queue(world.consumer(f"r {name}"), "dead", f"DLQ.{name}.box")
        assert [got.body for got in world.settle()] == [name.encode()]
        world.close(reader)


def test_no_route_goes_to_the_dead_where_settings_say_so() -> None:
    world = World(AddressSetting(match="t", send_to_dla_on_no_route=True, dead_letter_address="dead"))
    run = world.send("t", b"a", routing=MULTICAST)
    world.on_queue(world.consumer(), "dead")
    (got,) = world.settle()
    assert got.body == b"a"
    assert got.headers["dead-letter-reason"] == "no-route"
    assert got.headers["_AMQ_ORIG_ADDRESS"] == "t"
    assert "_AMQ_ORIG_QUEUE" not in got.headers
    assert world.engine.counters["unrouted"] == len(run)


# Across restarts


def test_counts_outlive_the_broker() -> None:
    world, consumer = consuming(AddressSetting(match="q", max_delivery_attempts=3, dead_letter_address="dead"))
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
