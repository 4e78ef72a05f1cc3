"""What is done to very many messages at once goes on in portions: the work of each turn is counted, and others have theirs in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stompbox.broker.arrivals import STEP
from stompbox.broker.consumer import AckMode
from stompbox.broker.work import COPY, MESSAGE
from stompbox.config.settings import AddressSetting
from tests.broker.world import NOW, World

MANY = 600
PORTION = 40 * MESSAGE  # steps of one turn


def filled(world: World, name: str = "q", *, count: int = MANY, expires: int = 0, headers: dict[str, str] | None = None) -> None:
    """A queue with so many messages, each of them a run of its own."""
    for number in range(count):
        world.send(name, b"%d" % number, expires=expires, headers=headers)


def most_of_a_turn(world: World, count: Callable[[], int], *, meanwhile: Callable[[], object] = lambda: None) -> int:
    """The most by which a figure changes in one of the turns that follow, until nothing is left to do."""
    before, most = count(), 0
    while world.engine.dispatch_rest(lambda: False):
        now = count()
        before, most = now, max(most, abs(now - before))
        meanwhile()
    return most


def turned(world: World, ms: int) -> None:
    """Time goes by, in a turn in which nothing else is done."""
    world.engine.work.begin()
    world.engine.tick(world.engine.now + ms, lambda: False)


# Times that come together


def test_messages_that_expire_together_go_in_portions_and_in_order() -> None:
    world = World(AddressSetting(match="q", expiry_address="gone"), portion=PORTION)
    filled(world, expires=NOW + 10)
    counters = world.engine.counters
    turned(world, 10)
    assert 0 < counters["expired"] <= STEP
    most = most_of_a_turn(world, lambda: counters["expired"])
    assert 0 < most <= PORTION // COPY + STEP
    assert counters["expired"] == MANY
    assert [got.body for got in world.waiting_in("gone")] == [b"%d" % number for number in range(MANY)]


def test_what_is_expired_and_waits_for_its_turn_goes_to_nobody_and_what_comes_meanwhile_does() -> None:
    world = World(portion=PORTION)
    filled(world, expires=NOW + 10)
    turned(world, 10)
    assert world.engine.counters["expired"] < MANY
    world.on_queue(world.consumer(), "q")
    world.send("q", b"new", expires=NOW + 20)
    assert [got.body for got in world.settle()] == [b"new"]
    assert world.engine.counters["expired"] == MANY
    turned(world, 20)
    world.send("q", b"newer", expires=NOW + 100)
    assert [got.body for got in world.settle()] == [b"newer"]


def test_what_expires_later_while_others_do_is_not_forgotten() -> None:
    world = World(portion=PORTION)
    filled(world, expires=NOW + 10)
    world.send("q", b"later", expires=NOW + 15)
    world.send("q", b"last", expires=NOW + 50)
    turned(world, 10)
    turned(world, 5)
    world.settle()
    assert world.engine.counters["expired"] == MANY + 1
    turned(world, 35)
    assert world.engine.counters["expired"] == MANY + 2


def test_two_queues_whose_messages_expire_together_take_turns() -> None:
    world = World(portion=PORTION)
    for name in ("p", "q"):
        filled(world, name, expires=NOW + 10)
    world.engine.work.begin()
    world.engine.tick(NOW + 10)
    while world.engine.dispatch_rest(lambda: False):
        left = [world.queue(name).backlog.count for name in ("p", "q")]
        assert abs(left[0] - left[1]) <= 2 * (PORTION // COPY + STEP)
    assert world.engine.counters["expired"] == 2 * MANY


@pytest.mark.parametrize("wait", ["scheduled", "redelivery"])
def test_messages_that_are_due_together_come_in_portions_and_in_order(wait: str) -> None:
    """Nothing is handed out before all of them are there: those of a higher priority, which came last, go first."""
    world = World(AddressSetting(match="q", redelivery_delay=1000, max_delivery_attempts=-1), portion=PORTION)
    if wait == "scheduled":
        filled(world, headers={"AMQ_SCHEDULED_DELAY": "1000"})
        world.send("q", b"first", priority=9, headers={"AMQ_SCHEDULED_DELAY": "1000"})
    else:
        filled(world)
        world.send("q", b"first", priority=9)
        refusing = world.on_queue(world.consumer("refusing"), "q")
        for got in sorted(world.settle(), key=lambda got: got.offset):
            world.nack(refusing, got)
        world.close(refusing)
    queue = world.queue("q")
    assert queue.waits.count == MANY + 1
    world.on_queue(world.consumer(), "q")
    turned(world, 1000)
    world.send("q", b"new")
    assert world.bodies() == []
    most = most_of_a_turn(world, lambda: queue.waits.count)
    assert 0 < most <= PORTION // MESSAGE + STEP
    assert [got.body for got in world.settle()] == [b"first", *[b"%d" % number for number in range(MANY)], b"new"]


def test_a_queue_that_goes_while_its_messages_come_due_leaves_nothing_behind() -> None:
    for header in ({"AMQ_SCHEDULED_DELAY": "1000"}, None):
        world = World(portion=PORTION)
        filled(world, headers=header, expires=0 if header else NOW + 1000)
        turned(world, 1000)
        assert len(world.engine.later)
        world.engine.drop_queue(world.queue("q"))
        world.settle()
        assert world.engine.memory.size == 0
        assert not world.engine.returning
        assert world.engine.next_deadline() is None


def test_messages_that_come_due_outlive_a_restart_half_way() -> None:
    world = World(portion=PORTION)
    filled(world, headers={"AMQ_SCHEDULED_DELAY": "1000"})
    world.commit()
    turned(world, 1000)
    world.commit()
    world = world.restart()
    world.on_queue(world.consumer("c", AckMode.AUTO), "q")
    assert [got.body for got in world.settle()] == [b"%d" % number for number in range(MANY)]
