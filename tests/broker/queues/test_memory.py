"""Who has all that clients may keep in memory, or that one may, is fed again in portions when room comes back."""

from __future__ import annotations

from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.queues.memory import SHARE, Allowance
from stompbox.broker.work import HANDED
from tests.broker.test_portions import MANY, PORTION, most_of_a_turn
from tests.broker.world import World


def test_a_consumer_that_has_credit_for_very_many_queues_is_fed_in_portions() -> None:
    world = World()
    consumer = world.consumer(ack=AckMode.CLIENT, prefetch=MANY)
    for number in range(2 * MANY):
        world.on_queue(consumer, f"q{number}")
        world.send(f"q{number}", b"x")
    assert len(world.out()) == MANY
    world.engine.work.begin()
    world.engine.work.portion = PORTION
    world.engine.acknowledge(consumer, consumer.take_all())
    at_once, given = consumer.messages_out, lambda: consumer.messages_out
    most = most_of_a_turn(world, given)
    assert consumer.messages_out == MANY
    assert 0 < max(at_once, most) <= PORTION // HANDED + 1


def test_those_who_were_denied_more_are_fed_in_portions() -> None:
    """What one client acknowledges may be room for very many others."""
    world, body = World(), b"x" * (SHARE + 1)
    whole = world.engine.unacknowledged
    whole.limit(1)
    consumers = [world.consumer(ack=AckMode.CLIENT, allowance=Allowance(whole)) for _ in range(MANY // 10)]
    for number, consumer in enumerate(consumers):
        world.on_queue(consumer, f"q{number}")
        for _ in range(3):
            world.send(f"q{number}", body)
    assert len(world.out()) == len(consumers), "one each, which always flows"
    whole.limit(1 << 40)
    world.engine.work.begin()
    world.engine.work.portion = PORTION

    def given() -> int:
        return sum(consumer.messages_out for consumer in consumers)

    before = given()
    world.engine.acknowledge(consumers[0], consumers[0].take_all())
    at_once = given() - before + 1
    most = most_of_a_turn(world, given)
    assert given() == 3 * len(consumers) - 1
    assert 0 < max(at_once, most) <= PORTION // HANDED + 3
