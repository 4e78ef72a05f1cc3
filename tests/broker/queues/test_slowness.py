"""Slow consumers, by injected time."""

from __future__ import annotations

from stompbox.broker.queues.consumer import Consumer
from stompbox.config.settings import AddressSetting, SlowConsumerPolicy, SlowConsumerUnit
from tests.broker.world import World

PER_MINUTE = AddressSetting(
    match="q", slow_consumer_threshold=120, slow_consumer_threshold_measurement_unit=SlowConsumerUnit.MESSAGES_PER_MINUTE,
    slow_consumer_check_period=10,
)  # fmt: skip


def consuming(rule: AddressSetting = PER_MINUTE, prefetch: int = 1) -> tuple[World, Consumer]:
    world = World(rule)
    return world, world.on_queue(world.consumer(prefetch=prefetch), "q")


def take(world: World, consumer: Consumer, count: int) -> None:
    for _ in range(count):
        (got,) = world.settle()
        world.ack(consumer, got)


def test_below_the_threshold_while_more_waits() -> None:
    world, consumer = consuming()
    world.send("q", *[b"x"] * 100)
    take(world, consumer, 19)
    world.tick(10_000)
    assert world.engine.slow == [], "it is looked at from its first whole period on"
    take(world, consumer, 20)
    world.tick(10_000)
    assert world.engine.slow == [], "20 in 10 seconds are 120 in a minute"
    take(world, consumer, 19)
    world.tick(10_000)
    (slow,) = world.engine.slow
    assert slow.consumer is consumer
    assert (slow.rate, slow.threshold, slow.is_to_end) == (1.9, 2.0, False)
    assert "took 1.9 messages per second" in slow.text
    assert world.engine.counters["slow-consumers"] == 1


def test_who_has_nothing_to_do_is_not_slow() -> None:
    world, consumer = consuming()
    for _ in range(5):
        world.tick(10_000)
    world.send("q", b"x")
    take(world, consumer, 1)
    world.tick(10_000)
    assert world.engine.slow == []


def test_policy_kill() -> None:
    world, _ = consuming(
        AddressSetting(match="q", slow_consumer_threshold=1, slow_consumer_policy=SlowConsumerPolicy.KILL, slow_consumer_check_period=1)
    )
    world.send("q", *[b"x"] * 10)
    world.tick(1000)
    world.tick(1000)
    assert [slow.is_to_end for slow in world.engine.slow] == [True]


def test_nobody_is_looked_at_without_a_threshold_or_a_consumer() -> None:
    world, consumer = consuming(AddressSetting(match="p"))
    assert world.engine.next_deadline() is None
    world, consumer = consuming()
    world.close(consumer)
    world.tick(10_000)
    assert world.engine.next_deadline() is None
    world.on_queue(world.consumer(), "q")
    assert world.engine.next_deadline() == world.engine.now + 10_000
