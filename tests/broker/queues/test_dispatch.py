"""Consumers of one queue come and go without a look at the others: what it costs does not grow with their number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.lanes import LANES
from stompbox.broker.work import ASKED
from stompbox.config.settings import AddressSetting
from tests.broker.world import World

FEW, MANY = 50, 200
MARGIN = 1.3  # logarithms, and whatever is done now and then


@contextmanager
def counted() -> Iterator[list[int]]:
    """Counts the calls of Python functions, those of properties and comparisons among them."""
    calls = [0]

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        calls[0] += event == "call"

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


Join = Callable[[World, int], Consumer]


def nothing(_world: World, _number: int) -> None:
    """Between two that join."""


def plain(world: World, number: int) -> Consumer:
    return world.consumer(f"c{number}", prefetch=1)


def with_selector(world: World, number: int) -> Consumer:
    return world.consumer(f"c{number}", prefetch=1, selector=f"n = {number}")


def with_priority(world: World, number: int) -> Consumer:
    consumer = plain(world, number)
    consumer.priority = number * 7 % 5
    return consumer


def exclusive(world: World, number: int) -> Consumer:
    consumer = with_priority(world, number)
    consumer.is_exclusive = True
    return consumer


def warm(world: World, join: Join) -> None:
    """What is made once is made: classes are loaded, selectors compiled."""
    world.close(world.on_queue(join(world, 0), "q"))


def joined(
    join: Join, count: int, between: Callable[[World, int], None] = nothing
) -> tuple[World, list[Consumer], int]:
    """So many consumers on one queue, and the calls that it took; `between` is done after each."""
    world = World()
    warm(world, join)
    coming = [join(world, number) for number in range(count)]
    with counted() as calls:
        for number, consumer in enumerate(coming):
            world.on_queue(consumer, "q")
            between(world, number)
    return world, coming, calls[0]


def per_consumer(cost: Callable[[int], int]) -> tuple[float, float]:
    return cost(FEW) / FEW, cost(MANY) / MANY


@pytest.mark.parametrize("join", [plain, with_selector, with_priority, exclusive])
def test_joining_costs_the_same_whoever_is_there(join: Join) -> None:
    few, many = per_consumer(lambda count: joined(join, count)[2])
    assert many <= MARGIN * few


@pytest.mark.parametrize("join", [plain, with_selector, with_priority, exclusive])
def test_leaving_costs_the_same_whoever_is_there(join: Join) -> None:
    def cost(count: int) -> int:
        world, consumers, _ = joined(join, count)
        with counted() as calls:
            for consumer in consumers:
                world.close(consumer)
        assert not world.queue("q").bindings
        return calls[0]

    few, many = per_consumer(cost)
    assert many <= MARGIN * few


def test_a_message_between_two_that_join_makes_nobody_look_at_all() -> None:
    """The queue has priorities, so it is more than first come, first served; each message goes to the next consumer."""

    def send(world: World, number: int) -> None:
        world.send("q", b"%d" % number)

    few, many = per_consumer(lambda count: joined(with_priority, count, send)[2])
    assert many <= MARGIN * few


def test_waiting_messages_make_nobody_look_at_all() -> None:
    """Nobody of those that are there has credit; who comes gets one message."""

    def cost(count: int) -> int:
        world = World()
        warm(world, plain)
        world.send("q", *[b"x"] * (2 * count))
        with counted() as calls:
            for number in range(count):
                world.on_queue(plain(world, number), "q")
        assert world.queue("q").delivering == count
        return calls[0]

    few, many = per_consumer(cost)
    assert many <= MARGIN * few


def test_what_comes_back_from_those_that_leave_makes_nobody_look_at_all() -> None:
    """Each that leaves gives its message back, and nobody of the others has credit for it."""

    def cost(count: int) -> int:
        world, consumers, _ = joined(plain, count)
        world.send("q", *[b"x"] * (2 * count))
        with counted() as calls:
            for consumer in consumers:
                world.close(consumer)
        return calls[0]

    few, many = per_consumer(cost)
    assert many <= MARGIN * few


def test_groups_that_are_given_out_anew_at_each_join() -> None:
    rule = AddressSetting(match="q", default_group_rebalance=True)

    def cost(count: int) -> int:
        world = World(rule)
        warm(world, plain)
        world.send("q", b"first", headers={"JMSXGroupID": "first"})
        coming = [plain(world, number) for number in range(count)]
        with counted() as calls:
            for number, consumer in enumerate(coming):
                world.on_queue(consumer, "q")
                world.send("q", b"x", headers={"JMSXGroupID": f"g{number}"})
        return calls[0]

    few, many = per_consumer(cost)
    assert many <= MARGIN * few


def test_waiting_messages_for_selectors_make_nobody_look_at_all() -> None:
    """Each consumer has a selector of its own and its message; those who come and go have nothing to do with the others."""

    def cost(count: int) -> int:
        world, consumers, _ = joined(with_selector, count)
        world.send("q", *[b"x"] * count, holes={"n": [b"none"] * count})
        with counted() as calls:
            for consumer in consumers:
                world.close(consumer)
                world.on_queue(consumer_like(world, consumer), "q")
        return calls[0]

    few, many = per_consumer(cost)
    assert many <= MARGIN * few


def consumer_like(world: World, consumer: Consumer) -> Consumer:
    found = world.consumer(consumer.name, prefetch=1)
    found.selector = consumer.selector
    return found


def test_who_is_fed_has_its_turns_again() -> None:
    """Those without credit are not asked; each that acknowledges gets the next, whatever else a queue looks at."""
    for selector in ("", "a IS NULL"):
        world = World()
        consumers = {name: world.consumer(name, prefetch=1, selector=selector) for name in "abc"}
        for consumer in consumers.values():
            world.on_queue(consumer, "q")
        for number in range(30):
            world.send("q", b"%d" % number)
        found = []
        got = world.settle()
        while got:
            found += got
            for one in got:
                world.ack(consumers[one.consumer], one)
            got = world.settle()
        assert [one.body for one in found] == [b"%d" % number for number in range(30)]
        assert {name: [one.consumer for one in found].count(name) for name in "abc"} == {
            "a": 10,
            "b": 10,
            "c": 10,
        }


def test_a_slow_consumer_of_very_many_lanes_keeps_no_lists_of_them() -> None:
    """Lanes come and go; one that never acknowledges is missing in those alone that are there."""
    world = World()
    quick = {f"c{bit}": world.consumer(f"c{bit}", prefetch=1, selector=f"b{bit} = '1'") for bit in range(9)}
    slow = world.consumer("slow", prefetch=1)
    for consumer in (quick["c0"], slow, *list(quick.values())[1:]):
        # its turn comes first where c0 may have the message
        world.on_queue(consumer, "q")
    for number in range(1500):
        bits = {f"b{bit}": str(number >> bit & 1) for bit in range(9)}
        world.send("q", b"x", headers=bits)
        for one in world.settle():
            if one.consumer != "slow":
                world.ack(quick[one.consumer], one)
    missing = next(iter(slow.bindings.values())).missing or []
    assert 1 < len(missing) <= LANES


def test_who_loses_a_queue_has_its_credit_for_the_others() -> None:
    world = World()
    both = world.on_queue(world.consumer("both", prefetch=1), "a")
    world.on_queue(world.consumer("other", prefetch=1, session=2), "b")
    world.on_queue(both, "b")
    world.send("a", b"1")
    world.send("b", b"2", b"3")
    assert {(got.consumer, got.body) for got in world.settle()} == {("both", b"1"), ("other", b"2")}
    world.engine.drop_queue(world.queue("a"))
    assert [(got.consumer, got.body) for got in world.settle()] == [("both", b"3")]


def test_a_reader_of_a_queue_that_keeps_its_messages_leaves_without_a_look_at_the_others() -> None:
    """Each is a browser that goes on. Instructions are counted here: a search through a list calls nothing."""

    def cost(count: int) -> int:
        world = World(AddressSetting(match="q", default_non_destructive=True))
        consumers = [world.on_queue(plain(world, number), "q") for number in range(count)]
        instructions = [0]

        def trace(frame: FrameType, event: str, _arg: object) -> object:
            frame.f_trace_opcodes = True
            instructions[0] += event == "opcode"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            world.close(consumers[-1])
        finally:
            sys.settrace(before)
        assert world.queue("q").consumer_count == count - 1
        return instructions[0]

    assert cost(MANY) <= MARGIN * cost(FEW)


VERY_MANY = 600  # more than are asked in one go


def prioritized(world: World, number: int) -> Consumer:
    consumer = plain(world, number)
    consumer.priority = number % 3
    return consumer


def same_selector(world: World, number: int) -> Consumer:
    return world.consumer(f"c{number}", prefetch=1, selector="a = '1'")


@pytest.mark.parametrize("join", [plain, prioritized, same_selector])
@pytest.mark.parametrize("group", ["", "g"])
def test_very_many_consumers_have_their_turn_in_portions(join: Join, group: str) -> None:
    """Of a run each of them gets one message; then nobody has credit for the next, who had credit until then."""
    world = World(portion=5_000)
    consumers = {f"c{number}": world.on_queue(join(world, number), "q") for number in range(VERY_MANY)}
    headers = {"a": "1"}
    holes = {"JMSXGroupID": [b"%d" % number for number in range(VERY_MANY)]} if group else {}
    world.send("q", *[b"%d" % number for number in range(VERY_MANY)], headers=headers, holes=holes)
    found = world.out()
    assert len(found) <= ASKED
    found += world.settle()
    assert sorted(int(one.body) for one in found) == list(range(VERY_MANY))
    assert {one.consumer for one in found} == set(consumers)
    with counted() as calls:
        world.send("q", b"next", headers={**headers, **({"JMSXGroupID": "next"} if group else {})})
    assert calls[0] < 20 * ASKED
    assert not world.settle()
    world.ack(consumers["c7"], next(one for one in found if one.consumer == "c7"))
    assert [(one.consumer, one.body) for one in world.settle()] == [("c7", b"next")]


@pytest.mark.parametrize("join", [plain, prioritized, same_selector])
def test_very_many_consumers_get_what_waits_in_portions(join: Join) -> None:
    """Runs wait, each for fifty of those who have credit for one message."""
    world = World(portion=5_000)
    for number in range(VERY_MANY):
        world.on_queue(join(world, number), "q")
    world.queue("q").pause()
    for number in range(0, VERY_MANY, 50):
        world.send("q", *[b"%d" % one for one in range(number, number + 50)], headers={"a": "1"})
    assert not world.settle()
    world.engine.work.begin()
    world.queue("q").resume()
    found = world.out()
    assert 0 < len(found) <= 2 * ASKED
    found += world.settle()
    assert sorted(int(one.body) for one in found) == list(range(VERY_MANY))
    assert len({one.consumer for one in found}) == VERY_MANY
