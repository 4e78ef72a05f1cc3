"""Queues and addresses that go by themselves; offsets that never come again."""

from __future__ import annotations

import pytest

from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.transaction import Transaction
from stompbox.config.settings import AddressSetting
from tests.broker.world import World

GOING = AddressSetting(match="#", auto_delete_queues=True, auto_delete_addresses=True)


def consume(world: World, name: str = "q") -> None:
    """All that waits, then the consumer leaves."""
    consumer = world.on_queue(world.consumer("once", AckMode.AUTO), name)
    world.settle()
    world.engine.flushed(consumer)
    world.close(consumer)


def used_up(world: World, *, is_stored: bool = True) -> World:
    """Address q has had three messages and is gone again."""
    world.send("q", b"0", b"1", b"2")
    if is_stored:
        world.commit()
    consume(world)
    world.commit()
    assert "q" not in world.engine.addresses
    return world


def test_a_queue_goes_with_its_last_message_and_consumer() -> None:
    world = World(GOING)
    world.send("q", b"a")
    world.commit()
    assert "q" in world.engine.addresses, "it has a message"
    consumer = world.on_queue(world.consumer(), "q")
    world.ack(consumer, world.out()[0])
    world.commit()
    assert "q" in world.engine.addresses, "it has a consumer"
    world.close(consumer)
    world.commit()
    assert not world.engine.addresses
    assert not world.engine.queues
    recovered = world.store.recover()
    assert not recovered.logs
    assert not recovered.cursors


def test_a_queue_waits_for_what_a_transaction_holds() -> None:
    world = World(GOING)
    world.send("q", b"a")
    consumer = world.on_queue(world.consumer(), "q")
    transaction = Transaction("x")
    world.hold(transaction, consumer, world.out()[0])
    world.close(consumer)
    world.commit()
    assert "q" in world.engine.addresses
    world.engine.abort(transaction)
    world.on_queue(world.consumer("later"), "q")
    assert [(got.body, got.is_redelivered) for got in world.out()] == [(b"a", True)]


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_offsets_go_on_where_they_ended(is_stored: bool, is_restarted: bool) -> None:
    """One offset never means two messages, though the address was gone in between."""
    world = used_up(World(GOING), is_stored=is_stored)
    if is_restarted:
        world = world.restart()
    assert world.send("q", b"3").first >= 3
    consumer = world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"3"]
    assert consumer.messages_out == 1


def test_an_address_that_came_again_is_kept_over_a_restart() -> None:
    """Its cursor must not be beyond the end of its log."""
    world = used_up(World(GOING))
    consumer = world.on_queue(world.consumer(), "q")
    world.commit()
    world = world.restart()
    assert consumer.bindings, "the first life's consumer is not the second's"
    run = world.send("q", b"3")
    assert run.first >= 3
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"3"]


def test_offsets_are_remembered_until_the_store_knows_the_new_log() -> None:
    """The address came again in memory alone, and the process was killed."""
    world = used_up(World(GOING))
    world.on_topic(world.consumer(), "q")
    world.commit()
    world = world.restart()
    assert world.send("q", b"3").first >= 3


def test_offsets_are_told_again_after_a_commit_that_failed() -> None:
    world = used_up(World(GOING))
    world.on_queue(world.consumer(), "q")
    world.engine.commit_failed(world.engine.take_commit())
    world.commit()
    world = world.restart()
    assert world.send("q", b"3").first >= 3
