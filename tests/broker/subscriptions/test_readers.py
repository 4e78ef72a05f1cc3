"""Named readers of a log."""

from __future__ import annotations

import pytest

from stompbox.broker.kinds import Kind
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.subscriptions.readers import Reader, found_of, to_named_reader, user_of
from stompbox.broker.subscriptions.subscribers import start
from stompbox.errors import Refused
from stompbox.message import MULTICAST
from tests.broker.world import World

READER = Reader("", "", "n")


def read(world: World, at: int = 0, ack: AckMode = AckMode.INDIVIDUAL, prefetch: int = -1) -> Consumer:
    consumer = world.consumer("r", ack, prefetch=prefetch)
    to_named_reader(world.engine, consumer, world.address("s"), READER, at)
    start(consumer)
    return consumer


def send(world: World, *bodies: bytes) -> None:
    for body in bodies:
        world.send("s", body, routing=MULTICAST)


def test_position_moves_with_acknowledgements_and_waits() -> None:
    world = World()
    reader = read(world)
    send(world, b"0", b"1", b"2")
    found = world.settle()
    world.ack(reader, found[0])
    world.ack(reader, found[2])
    world.close(reader)
    send(world, b"3")
    reader = read(world, at=99)
    found = world.settle()
    assert [got.body for got in found] == [b"1", b"3"]
    for got in found:
        world.ack(reader, got)
    world.close(reader)
    world.commit()
    assert world.store.sizes([1])[1][0] == 0, "nobody needs them any more"


def test_over_a_restart() -> None:
    world = World()
    reader = read(world)
    send(world, b"0", b"1")
    world.ack(reader, world.settle()[0])
    world.commit()
    world = world.restart()
    send(world, b"2")
    read(world)
    assert [got.body for got in world.settle()] == [b"1", b"2"]


def test_while_it_is_away_nothing_is_in_memory_and_all_is_kept() -> None:
    world = World()
    world.close(read(world))
    send(world, *[b"%d" % i for i in range(10)])
    world.commit()
    queue = world.engine.addresses["s"].named_readers["n"]
    assert queue.backlog.count == 0
    assert world.store.sizes([1])[1][0] == 10
    read(world)
    assert len(world.settle()) == 10


def test_lost_with_messages_out_they_come_again() -> None:
    world = World()
    reader = read(world, prefetch=2)
    send(world, b"0", b"1", b"2")
    assert len(world.settle()) == 2
    world.close(reader, is_failure=True)
    assert world.engine.addresses["s"].named_readers["n"].backlog.count == 0
    read(world)
    assert [got.body for got in world.settle()] == [b"0", b"1", b"2"]


def test_one_subscriber() -> None:
    world = World()
    read(world)
    with pytest.raises(Refused, match="'n' of address 's' has a subscriber"):
        read(world)


def test_auto_moves_when_the_system_has_it() -> None:
    world = World()
    reader = read(world, ack=AckMode.AUTO)
    send(world, b"0")
    world.settle()
    world.engine.flushed(reader)
    world.close(reader)
    read(world)
    assert world.settle() == []


def test_dropped() -> None:
    world = World()
    world.close(read(world))
    send(world, b"0")
    for queue in found_of(world.engine, READER):
        world.engine.drop_queue(queue)
    assert not found_of(world.engine, READER)
    world.commit()
    assert (
        world.restart().engine.addresses.get("s") is None
        or not world.restart().engine.addresses["s"].named_readers
    )


def test_names() -> None:
    assert Reader("", "client", "n").queue_name == "client.n"
    assert Reader("", "", "n").queue_name == "n"
    assert Reader("vhost/green.", "client", "n").queue_name == "vhost/green.client.n"


def test_no_two_readers_have_the_same_name() -> None:
    parts = ("", "a", "a.b", "a\\", "\\", ".", "b", "b.c", "c", "a\\.b")
    readers = [
        Reader(space, client, name)
        for space in ("", "vhost/x.")
        for client in parts
        for name in parts
        if name
    ]
    assert len({reader.queue_name for reader in readers}) == len(readers)


@pytest.mark.parametrize(
    "reader",
    [Reader("", "a.b", "c"), Reader("", "a", "b.c"), Reader("", "", "a.b.c"), Reader("", "client", "n")],
)
def test_one_with_the_name_that_older_versions_gave_it_is_found_again(reader: Reader) -> None:
    world = World()
    world.engine.new_queue(world.address("s"), reader.old_name, Kind.READER)  # it noted no owner
    send(world, b"0", b"1")
    consumer = world.consumer("r", AckMode.INDIVIDUAL)
    assert not to_named_reader(world.engine, consumer, world.address("s"), reader, 99, owner="alice")
    start(consumer)
    assert [got.body for got in world.settle()] == [b"0", b"1"]
    world.close(consumer)
    other = Reader("", "", reader.old_name) if reader.client_id else Reader("", "a.b", "c")
    assert other.at(world.address("s")) is None  # what is somebody's now is nobody else's
    world.commit()
    found = world.restart().engine.addresses["s"].named_readers
    assert [(name, user_of(queue)) for name, queue in found.items()] == [(reader.queue_name, "alice")]


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("is_live", [False, True])
def test_the_log_is_read_in_its_order_whatever_the_priorities(*, is_named: bool, is_live: bool) -> None:
    """Who goes on from the last offset that he saw would miss what a higher one had overtaken."""
    world = World()
    if not is_live:
        world.address("s").log.is_retained = True
    consumer = (
        None
        if not is_live
        else read(world, prefetch=1)
        if is_named
        else world.on_stream(world.consumer("r", AckMode.INDIVIDUAL, prefetch=1), "s", 0)
    )
    for number, priority in enumerate((4, 0, 9, 3, 9)):
        world.send("s", b"%d" % number, routing=MULTICAST, priority=priority)
    world.commit()
    if consumer is None:
        consumer = (
            read(world, prefetch=1)
            if is_named
            else world.on_stream(world.consumer("r", AckMode.INDIVIDUAL, prefetch=1), "s", 0)
        )
    seen = []
    while found := world.settle():
        seen += [got.body for got in found]
        for got in found:
            world.ack(consumer, got)
    assert seen == [b"0", b"1", b"2", b"3", b"4"]
