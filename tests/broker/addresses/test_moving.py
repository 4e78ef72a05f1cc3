"""Messages of a queue to another address."""

from __future__ import annotations

from stompbox.broker.addresses.moving import Move
from stompbox.config import RoutingType
from stompbox.config.settings import AddressSetting
from tests.broker.world import World


def test_oldest_first_with_their_headers_and_as_new_messages() -> None:
    world = World()
    world.send("q", b"a", b"b", headers={"colour": "red"})
    world.send("q", b"c", holes={"id": [b"7"]})
    ended: list[int] = []
    assert Move(world.engine, world.queue("q"), "p", on_done=ended.append).is_done
    assert ended == [3]
    assert world.queue("q").backlog.count == 0
    assert world.engine.counters["moved"] == 3
    world.on_queue(world.consumer(), "p")
    assert [(got.body, got.offset, got.is_redelivered, got.headers) for got in world.settle()] == [
        (b"a", 0, False, {"destination": "q", "colour": "red"}),
        (b"b", 1, False, {"destination": "q", "colour": "red"}),
        (b"c", 2, False, {"destination": "q", "id": "7"}),
    ]


def test_what_may_have_been_moved_before_a_crash_is_marked() -> None:
    world = World()
    world.send("q", b"a")
    world.commit()
    world = world.restart()
    world.send("q", b"b")
    Move(world.engine, world.queue("q"), "p")
    world.settle()
    world.on_queue(world.consumer(), "p")
    found = world.settle()
    assert {got.body: got.is_redelivered for got in found} == {b"a": True, b"b": False}


def test_no_more_than_was_said_and_not_what_is_being_delivered() -> None:
    world = World()
    world.send("q", b"a", b"b", b"c", b"d")
    consumer = world.on_queue(world.consumer(prefetch=1), "q")
    [got] = world.settle()
    assert Move(world.engine, world.queue("q"), "p", most=2).count == 2
    world.ack(consumer, got)
    assert [got.body for got in world.settle()] == [b"d"]
    assert [segment.run.bodies for segment in world.queue("p").backlog.segments()] == [[b"b", b"c"]]


def test_what_is_in_the_log_alone_comes_too() -> None:
    world = World(page_size=1000)
    bodies = [b"%d" % number + bytes(300) for number in range(20)]
    for body in bodies:
        world.send("q", body)
    world.commit()
    assert world.queue("q").is_paged
    move = Move(world.engine, world.queue("q"), "p")
    assert not move.is_done
    while world.serve(max_bytes=1):
        world.commit()
    assert move.is_done
    assert move.count == 20
    world.on_queue(world.consumer(), "p")
    found = world.settle()
    while len(found) < 20:
        world.commit()
        found += world.settle()
    assert [got.body for got in found] == bodies


def test_both_sides_are_in_one_commit_and_survive_a_restart() -> None:
    world = World()
    world.send("q", b"a", b"b")
    world.commit()
    Move(world.engine, world.queue("q"), "p", most=1)
    world.commit()
    world = world.restart()
    for name, left in (("q", b"b"), ("p", b"a")):
        world.on_queue(world.consumer(name), name)
        assert [got.body for got in world.settle()] == [left]


def test_to_a_topic_reaches_its_subscriptions() -> None:
    world = World(AddressSetting(match="t", default_address_routing_type=RoutingType.MULTICAST))
    subscriber = world.on_topic(world.consumer("s"), "t")
    world.send("q", b"a")
    Move(world.engine, world.queue("q"), "t")
    assert [(got.consumer, got.body) for got in world.settle()] == [(subscriber.name, b"a")]
