"""What looks into bodies is asked in portions, wherever it is asked: no turn takes much more, and each consumer gets what it would."""

from __future__ import annotations

import pytest

from stompbox.broker.queues import questions
from stompbox.config.settings import AddressSetting
from stompbox.message import MULTICAST
from tests.broker.world import World

ELEMENTS = 1500
NODES = 2 * ELEMENTS + 3
PORTION = 1000
MOST = PORTION + 3 * NODES  # one look at all nodes is not divided


def body(number: int) -> bytes:
    return b"<a>" + b"<b>x</b>" * ELEMENTS + b"<c>%d</c></a>" % number


def path(number: int) -> str:
    return f"XPATH '//c[. = {number}] and not(//b[. = {number}])'"


def longest_turn(world: World) -> int:
    """Steps of the longest of the turns that follow until nothing is left to do."""
    work, most = world.engine.work, 0
    work.begin()
    for _ in range(100_000):
        before = work.total + work.done
        if not (world.engine.dispatch_rest(lambda: False) or world.serve(max_bytes=1)):
            return most
        most = max(most, work.total + work.done - before)
    raise AssertionError("it does not end")


def sent(world: World, name: str, count: int, **more: object) -> int:
    """Steps of the longest send; each is a turn of its own."""
    most = 0
    for number in range(count):
        world.engine.work.begin()
        world.send(name, body(number), **more)  # type: ignore[arg-type]
        most = max(most, world.engine.work.done)
    return most


@pytest.mark.parametrize("consumers", [1, 3])
def test_of_a_queue(consumers: int) -> None:
    world = World(portion=PORTION)
    for number in range(consumers):
        world.on_queue(world.consumer(str(number), selector=path(number)), "q")
    assert sent(world, "q", 4) <= MOST
    assert longest_turn(world) <= MOST
    assert {(got.consumer, got.body) for got in world.settle()} == {
        (str(number), body(number)) for number in range(consumers)
    }
    assert world.queue("q").backlog.count == 4 - consumers


def test_of_a_queue_that_has_messages_already_and_is_paged() -> None:
    world = World(AddressSetting(match="q", max_size_bytes=1), portion=PORTION)
    sent(world, "q", 4)
    for number in (3, 1):
        world.on_queue(world.consumer(str(number), selector=path(number)), "q")
    assert longest_turn(world) <= MOST
    assert {(got.consumer, got.body) for got in world.settle()} == {("3", body(3)), ("1", body(1))}


def test_of_a_topic() -> None:
    world = World(portion=PORTION)
    for number in range(6):
        world.on_topic(world.consumer(str(number), selector=path(number)), "t")
    assert sent(world, "t", 3, routing=MULTICAST) <= MOST
    assert longest_turn(world) <= MOST
    assert [(got.consumer, got.body) for got in world.settle()] == [
        (str(number), body(number)) for number in range(3)
    ]


def abandoned(world: World, session: int) -> None:
    """A client has as many questions open as it may, and goes."""
    gone = [world.consumer(str(n), selector=path(n), session=session) for n in range(questions.OF_ONE)]
    for number, consumer in enumerate(gone):
        world.on_queue(consumer, f"q{number}")
        world.send(f"q{number}", body(0))
    world.engine.work.begin()
    for _ in range(2 * questions.OF_ONE):
        world.engine.dispatch_rest(lambda: False)
    for consumer in gone:
        world.close(consumer)


def test_questions_that_nobody_comes_back_to_hold_up_nobody_else() -> None:
    world = World(portion=PORTION)
    abandoned(world, session=1)
    world.on_queue(world.consumer("other", selector=path(1), session=2), "next")
    world.send("next", body(1))
    assert [got.body for got in world.settle()] == [body(1)]


def test_and_go_after_a_while() -> None:
    world = World(portion=PORTION)
    abandoned(world, session=1)
    world.on_queue(world.consumer("next", selector=path(1), session=1), "next")
    world.send("next", body(1))
    for _ in range(10):
        world.engine.dispatch_rest(lambda: False)
    assert not world.out(), "the others may come back"
    world.engine.tick(world.engine.now + questions.FORGOTTEN)
    assert [got.body for got in world.settle()] == [body(1)]


def test_where_very_many_clients_ask_each_gets_its_answer() -> None:
    world = World(portion=PORTION)
    for number in range(questions.OPEN + 4):
        world.on_queue(world.consumer(str(number), selector=path(1), session=number), f"q{number}")
        world.send(f"q{number}", body(1))
    assert len(world.settle()) == questions.OPEN + 4
