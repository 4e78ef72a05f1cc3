"""How much a queue holds, against what was done with it.

Slow consumers, by injected time.
"""

from __future__ import annotations

from stompbox.admin.lag import behind
from stompbox.broker.addresses import limits
from stompbox.broker.kinds import Kind
from stompbox.broker.logs.log import RESERVE
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.depth import Depth, depth_of, waiting
from stompbox.broker.subscriptions.readers import open_group
from stompbox.config.settings import AddressFullPolicy, AddressSetting, SlowConsumerPolicy, SlowConsumerUnit
from tests.broker.world import World


def test_what_waits_and_what_is_being_delivered() -> None:
    world = World()
    world.send("q", b"a", b"b", b"c")
    queue = world.queue("q")
    assert depth_of(queue) == Depth(3, 0, 0)
    consumer = world.on_queue(world.consumer(prefetch=2), "q")
    got = world.settle()
    assert depth_of(queue) == Depth(1, 0, 2)
    world.ack(consumer, got[0])
    assert depth_of(queue).total == 2


def test_what_is_done_with_is_counted_while_one_message_is_held() -> None:
    world = World()
    world.send("q", b"a", b"b", b"c", b"d")
    consumer = world.on_queue(world.consumer(ack=AckMode.INDIVIDUAL), "q")
    held, *rest = world.settle()
    for got in (rest[0], rest[2]):
        world.ack(consumer, got)
    queue = world.queue("q")
    assert (queue.cursor.position, queue.settled) == (0, 2)
    for got in (held, rest[1]):
        world.ack(consumer, got)
    assert queue.settled == 4


def test_what_waits_for_its_next_delivery() -> None:
    world = World(AddressSetting(match="#", redelivery_delay=1000))
    world.send("q", b"a", b"b")
    consumer = world.on_queue(world.consumer(), "q")
    world.nack(consumer, world.settle()[0])
    assert depth_of(world.queue("q")) == Depth(0, 1, 1)


def test_what_is_in_the_log_alone() -> None:
    world = World(page_size=1000)
    for _ in range(10):
        world.send("q", bytes(400))
    world.commit()
    queue = world.queue("q")
    depth = depth_of(queue)
    assert queue.is_paged
    assert depth.ready == 10
    assert 0 < depth.paged < 10
    assert depth.is_estimate


def test_a_readers_position() -> None:
    world = World()
    world.send("q", b"a", b"b", b"c")
    open_group(world.engine, "lake", ["q"], lambda _: 1)
    [group] = [queue for queue in world.engine.queues.values() if queue.kind is Kind.GROUP]
    assert depth_of(group) == Depth(2, 0, 0, 2, is_estimate=True)
    group.skip(1, 3)
    assert depth_of(group).total == 0


def test_offsets_that_were_reserved_before_a_restart_are_no_messages() -> None:
    """Of each restart, as long as there is something before; for queues that wait to be read, and for positions."""
    world = World()
    for life in range(3):
        world.send("q", b"kept")
        world.send_to_topic("q", b"for nobody")
        world.commit()  # offsets are reserved
        world = world.restart()
        log = world.engine.addresses["q"].log
        assert log.next > (life + 1) * RESERVE
        assert (depth_of(world.queue("q")).total, waiting(world.queue("q"))) == (1 + life, 1 + life)
    open_group(world.engine, "lake", ["q"], lambda _: log.next)
    [group] = [queue for queue in world.engine.queues.values() if queue.kind is Kind.GROUP]
    group.cursor.put(0)
    assert depth_of(group).total == behind(group) == 3
    world.commit()
    consumer = world.on_queue(world.consumer(), "q")
    for got in world.settle():
        world.ack(consumer, got)
    group.cursor.put(log.next)
    world.engine.note(group)
    world.commit()
    world.commit()
    world = world.restart()
    assert depth_of(world.queue("q")).total == 0


def test_an_address_is_not_full_of_what_was_reserved() -> None:
    rule = AddressSetting(match="q", address_full_policy=AddressFullPolicy.FAIL, max_size_messages=3)
    world = World(rule)
    world.send("q", b"kept")
    world.send("q", b"not kept", persistent=False)
    world.commit()
    world = world.restart()
    limits.measure(world.engine, world.store.sizes)
    found = world.address("q").limits
    assert found is not None
    assert found.size()[1] == 1


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
        AddressSetting(
            match="q",
            slow_consumer_threshold=1,
            slow_consumer_policy=SlowConsumerPolicy.KILL,
            slow_consumer_check_period=1,
        )
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
