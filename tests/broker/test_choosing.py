"""Consumers of one queue come and go without a look at the others: what it costs does not grow with their number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from stompbox.broker.consumer import Consumer
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


def joined(join: Join, count: int, between: Callable[[World, int], None] = nothing) -> tuple[World, list[Consumer], int]:
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
