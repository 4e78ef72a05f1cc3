"""Readers of a log by offset see what is stored, and no offset that they were told of means another message later."""

from __future__ import annotations

import pytest

from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.subscriptions.namedreaders import Reader, to_position
from stompbox.broker.subscriptions.subscribers import start
from stompbox.config.settings import AddressSetting
from tests.broker.world import Got, World

KEPT = AddressSetting(match="#", retention_messages=1000)
WAYS = ("stream", "named")


def reading(world: World, way: str, position: int = 0, *, selector: str = "", prefetch: int = -1) -> Consumer:
    consumer = world.consumer("r", AckMode.INDIVIDUAL, selector=selector, prefetch=prefetch)
    if way == "stream":
        return world.on_stream(consumer, "s", position)
    to_position(world.engine, consumer, world.address("s"), Reader("", "", "n"), position)
    start(consumer)
    return consumer


def send(world: World, *bodies: bytes, persistent: bool | None = None) -> None:
    for body in bodies:
        world.send("s", body, routing=2, persistent=persistent, headers={"word": body.decode()})


def moved(world: World) -> list[Got]:
    """What goes out while the disk has no turn."""
    found = world.out()
    while world.engine.dispatch_rest() or world.serve() or world.engine.touched:
        found += world.out()
    return found


@pytest.fixture(params=[True, False], ids=["kept", "not kept"])
def world(request: pytest.FixtureRequest) -> World:
    return World(*([KEPT] if request.param else []))


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_they_wait_for_the_commit_and_nobody_else_does(world: World, way: str, persistent: bool) -> None:
    reading(world, way)
    world.on_topic(world.consumer("t"), "s")
    send(world, b"a", b"b", persistent=persistent)
    assert [(got.consumer, got.body) for got in moved(world)] == [("t", b"a"), ("t", b"b")]
    assert world.engine.commits.is_awaited, "the commit does not wait for its timer"
    commit = world.engine.take_commit()
    send(world, b"c", persistent=persistent)
    assert [got.body for got in moved(world) if got.consumer == "r"] == []
    world.store.apply(commit)
    world.engine.committed()
    assert [(got.offset, got.body) for got in moved(world) if got.consumer == "r"] == [(0, b"a"), (1, b"b")]
    world.commit()
    assert [(got.offset, got.body) for got in moved(world)] == [(2, b"c")]


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_taken", [True, False])
def test_no_offset_that_was_told_means_another_message_after_a_crash(way: str, persistent: bool, is_taken: bool) -> None:
    world, told = World(KEPT), dict[int, bytes]()
    for life in range(4):
        reading(world, way)
        for number in range(3):
            send(world, b"%d.%d" % (life, number), persistent=persistent)
            for got in moved(world):
                assert told.setdefault(got.offset, got.body) == got.body
            if number == 1:
                world.commit()
        for got in moved(world):
            assert told.setdefault(got.offset, got.body) == got.body
        if is_taken:
            world.engine.take_commit()
        incarnations = world.engine.addresses["s"].log.incarnations
        world = world.restart()
        assert world.engine.addresses["s"].log.incarnations == incarnations
    assert {b"0.0", b"3.1"} <= set(told.values())


@pytest.mark.parametrize("way", WAYS)
def test_what_the_disk_refuses_is_shown_when_it_is_stored_or_never(way: str) -> None:
    world = World(KEPT)
    reading(world, way)
    send(world, b"a")
    world.engine.commits.begin()
    send(world, b"refused")
    world.engine.commits.end(is_stored=True)
    world.engine.commit_failed(world.engine.take_commit())
    send(world, b"b")
    assert moved(world) == []
    world.commit()
    assert [(got.offset, got.body) for got in moved(world)] == [(0, b"a"), (2, b"b")]


@pytest.mark.parametrize("position", [0, 1, 2, 3])
@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_one_who_comes_while_the_disk_is_at_work_misses_nothing(way: str, position: int, is_taken: bool) -> None:
    world = World(KEPT)
    send(world, b"0")
    world.commit()
    send(world, b"1")
    commit = world.engine.take_commit() if is_taken else None
    send(world, b"2")
    reading(world, way, position)
    found = moved(world)
    assert [got.body for got in found] == [b"0"][position:]
    if commit is not None:
        world.store.apply(commit)
        world.engine.committed()
        found += moved(world)
        assert [got.body for got in found] == [b"0", b"1"][position:]
    send(world, b"3")
    world.commit()
    found += moved(world)
    assert [got.body for got in found] == [b"0", b"1", b"2", b"3"][position:]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("page_size", [1, 3000, 1 << 20])
@pytest.mark.parametrize("portion", [1, 40, 20_000])
def test_all_comes_once_and_in_order_however_little_there_is_room_for(world: World, way: str, page_size: int, portion: int) -> None:
    world.engine.page_size, world.engine.work.portion = page_size, portion
    consumer = reading(world, way, prefetch=3)
    found = []
    for number in range(60):
        world.engine.work.begin()
        send(world, b"%02d" % number, persistent=number % 3 != 0)
        if number % 7 == 0:
            world.commit()
        if number % 5 == 0:
            for got in moved(world):
                found.append(got)
                world.ack(consumer, got)
    world.commit()
    while batch := world.settle():
        for got in batch:
            found.append(got)
            world.ack(consumer, got)
    assert [got.body for got in found] == [b"%02d" % number for number in range(60)]
    if not world.engine.addresses["s"].log.is_kept:
        world.commit()
        world.commit()
        assert world.store.sizes([1])[1][0] == 0, "nobody needs them any more"


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_named_reader_keeps_what_it_was_not_shown(is_closed: bool) -> None:
    """Who has answered all needs what is on its way to the disk all the same."""
    world = World()
    consumer = reading(world, "named", selector="word <> 'x'")
    send(world, b"a", b"x")
    for got in world.settle():
        world.ack(consumer, got)
    send(world, b"x", b"b")
    if is_closed:
        world.close(consumer)
    world.commit()
    world = world.restart()
    reading(world, "named", selector="word <> 'x'")
    assert [got.body for got in world.settle()] == [b"b"]


def test_a_reader_of_a_log_is_somebody_to_whom_a_message_goes() -> None:
    world = World(AddressSetting(match="#", send_to_dla_on_no_route=True))
    reading(world, "stream")
    send(world, b"a")
    assert [got.body for got in world.settle()] == [b"a"]
    assert world.engine.counters["unrouted"] == 0
