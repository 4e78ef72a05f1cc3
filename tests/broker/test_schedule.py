"""Scheduled messages: they wait, hold up nobody, and outlive a restart."""

from __future__ import annotations

import pytest

from stompbox.config.settings import AddressSetting
from tests.broker.world import NOW, World

DAY = 86_400_000
LATER = {"AMQ_SCHEDULED_DELAY": "1000"}


def test_delay_holds_up_nobody() -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    world.send("q", b"a", b"b", headers=LATER)
    world.send("q", b"c")
    assert world.bodies() == [b"c"]
    world.tick(999)
    assert world.bodies() == []
    world.tick(1)
    found = world.settle()
    assert [(got.body, got.is_redelivered) for got in found] == [(b"a", False), (b"b", False)]


def test_time() -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    world.send("q", b"a", headers={"AMQ_SCHEDULED_TIME": str(NOW + 5 * DAY)})
    assert world.engine.next_deadline() == NOW + 5 * DAY
    world.tick(5 * DAY)
    assert world.bodies() == [b"a"]


@pytest.mark.parametrize("header", ["AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME"])
@pytest.mark.parametrize("value", ["0", "-5"])
def test_not_above_zero_is_now(header: str, value: str) -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    world.send("q", b"a", headers={header: value})
    assert world.bodies() == [b"a"]


def test_past_time_is_now() -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    world.send("q", b"a", headers={"AMQ_SCHEDULED_TIME": str(NOW - 1)})
    assert world.bodies() == [b"a"]


def test_due_goes_before_what_is_newer() -> None:
    world = World()
    world.send("q", b"a", headers=LATER)
    world.send("q", b"b")
    world.tick(1000)
    world.on_queue(world.consumer(), "q")
    assert world.bodies() == [b"a", b"b"]


def test_survives_a_restart() -> None:
    world = World()
    world.send("q", b"early", headers=LATER)
    world.send("q", b"late", headers={"AMQ_SCHEDULED_DELAY": str(DAY)})
    world.send("q", b"now")
    world.commit()
    world = world.restart()
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"now"]
    world.tick(1000)
    assert [got.body for got in world.settle()] == [b"early"]
    world.commit()
    world = world.restart()
    world.tick(DAY)
    world.on_queue(world.consumer(), "q")
    assert b"late" in [got.body for got in world.settle()]


def test_expires_while_it_waits() -> None:
    world = World(AddressSetting(match="q", expiry_address="expired"))
    world.send("q", b"a", headers=LATER, expires=NOW + 500)
    world.tick(500)
    assert world.engine.counters["expired"] == 1
    assert world.queue("expired").backlog.count == 1


def test_dead_letters_do_not_wait_again() -> None:
    world = World(AddressSetting(match="q", max_delivery_attempts=1, dead_letter_address="dead"))
    consumer = world.on_queue(world.consumer(), "q")
    world.send("q", b"a", headers=LATER)
    world.tick(1000)
    (got,) = world.settle()
    world.nack(consumer, got)
    assert world.queue("dead").backlog.count == 1


def test_gone_with_its_queue() -> None:
    world = World()
    world.send("q", b"a", headers=LATER)
    queue = world.queue("q")
    world.engine.drop_queue(queue)
    world.tick(1000)
    assert queue.waits.count == queue.backlog.count == 0


def test_hundred_thousand_wait_and_the_rest_flows() -> None:
    world = World(page_size=1 << 40)
    for i in range(100_000):
        world.send("q", b"x", headers={"AMQ_SCHEDULED_TIME": str(NOW + DAY + i % 1000)})
    world.on_queue(world.consumer(), "q")
    world.send("q", b"now")
    assert world.bodies() == [b"now"]
    assert len(world.engine.timers) <= 2, "one timer for all of a queue"
    world.tick(DAY)
    assert len(world.settle()) == 100
