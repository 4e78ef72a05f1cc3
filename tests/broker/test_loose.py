"""Commits in which nothing need outlive a loss of power: what is in the log for want of memory alone, and pieces of bodies."""

from __future__ import annotations

import pytest

from stompbox.broker.kinds import Kind
from stompbox.config.settings import AddressSetting
from stompbox.message import MULTICAST
from tests.broker.logs.test_bodies import sent
from tests.broker.world import World


def paged(*rules: AddressSetting) -> World:
    """Queue q, of which everything is in the log alone; the log is known to the store."""
    world = World(*rules, page_size=100)
    world.send("q", b"first", persistent=False)
    world.commit()
    assert world.queue("q").is_paged
    return world


def test_a_backlog_that_is_not_persistent_is_loose_and_so_is_what_consumes_it() -> None:
    world = paged()
    for number in range(50):
        world.send("q", b"%d" % number, persistent=False)
        commit = world.commit()
        assert [run.bodies for runs in commit.runs.values() for run in runs] == [[b"%d" % number]]
        assert commit.is_loose
    consumer = world.on_queue(world.consumer(), "q")
    acknowledged = 0
    while got := world.settle():
        for one in got:
            world.ack(consumer, one)
        commit = world.commit()
        assert commit.is_loose
        acknowledged += len(commit.acknowledged)
    assert acknowledged
    assert world.queue("q").cursor.position == 51


def test_a_persistent_message_among_them_is_not() -> None:
    world = paged()
    world.send("q", b"firm", persistent=True)
    world.send("q", b"loose", persistent=False)
    assert not world.commit().is_loose
    world.send("q", b"loose", persistent=False)
    assert world.commit().is_loose
    consumer = world.on_queue(world.consumer(), "q")
    got = []
    while found := world.settle():
        got += found
    for one in got[:2]:  # the second is the persistent one
        world.ack(consumer, one)
    assert not world.commit().is_loose
    for one in got[2:]:
        world.ack(consumer, one)
    assert world.commit().is_loose


def test_what_a_topic_subscriber_alone_waits_for_is_loose_although_it_is_persistent() -> None:
    world = World(page_size=100)
    consumer = world.on_topic(world.consumer(prefetch=1), "t")
    for number in range(5):
        world.send_to_topic("t", b"%d" % number)
    assert not world.commit().is_loose, "its log is new"
    world.send_to_topic("t", b"more")
    commit = world.commit()
    assert commit.runs
    assert commit.is_loose
    world.on_durable(world.consumer("durable"), "name", "t")
    assert not world.commit().is_loose
    world.send_to_topic("t", b"for the durable one too")
    assert not world.commit().is_loose
    world.close(consumer)


@pytest.mark.parametrize("reader", ["retention", "group"])
def test_what_is_kept_is_not_loose(reader: str) -> None:
    world = paged(AddressSetting(match="q", retention_messages=100 if reader == "retention" else -1))
    if reader == "group":
        world.engine.new_queue(world.engine.addresses["q"], "g", Kind.GROUP)
        world.commit()
    world.send("q", b"kept", persistent=False)
    commit = world.commit()
    assert commit.runs
    assert not commit.is_loose


def test_pieces_of_a_body_are_loose_and_its_message_is_not() -> None:
    world = World()
    world.send("q", b"first")
    world.commit()
    bodies = world.engine.bodies
    large = bodies.new()
    bodies.put(large, 0, b"piece")
    commit = world.commit()
    assert commit.parts
    assert commit.is_loose
    sent(world, "q", b"piece", persistent=True)
    assert not world.commit().is_loose


def test_what_is_lost_with_the_power_leaves_no_hole_for_others() -> None:
    """The broker that comes after gives other offsets to other messages, and finds nothing of what is gone."""
    world = paged()
    world.send("q", b"firm", persistent=True)
    world.commit()
    used = world.engine.addresses["q"].log.next
    world.send("q", b"lost", persistent=False)
    lost = world.engine.take_commit()  # which never reaches the disk
    assert lost.is_loose
    again = world.restart()
    assert again.engine.addresses["q"].log.next > used
    again.on_queue(again.consumer(), "q")
    again.send("q", b"new", persistent=True)
    assert [got.body for got in again.settle()] == [b"firm", b"new"]


def test_a_plain_subscription_to_a_topic_without_a_backlog_writes_nothing() -> None:
    world = World()
    world.on_topic(world.consumer(), "t")
    world.send("t", b"message", routing=MULTICAST)
    assert not world.commit().runs
