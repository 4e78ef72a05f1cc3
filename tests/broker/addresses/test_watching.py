"""Very many queues of an address, and very many wildcards: each comes and goes without a look at the others. The looks are counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from unittest.mock import Mock

import pytest

from stompbox.broker.addresses import queuearguments
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.addresses.watching import Watcher
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions import durables, subscribers
from stompbox.message import ANYCAST, MULTICAST
from tests.broker.world import World

COUNT = 300
WIDE = Destination("x.#", "x.#", MULTICAST)


class Looks(dict[str, Queue]):
    """The queues of an address; counts how many of them are looked at one after the other."""

    def __init__(self, known: Mapping[str, Queue]) -> None:
        super().__init__(known)
        self.count = 0

    def values(self) -> Iterator[Queue]:  # type: ignore[override]
        for queue in super().values():
            self.count += 1
            yield queue


@pytest.mark.parametrize("has_arguments", [False, True])
def test_one_more_queue_of_an_address_makes_nobody_look_at_the_others(monkeypatch: pytest.MonkeyPatch, *, has_arguments: bool) -> None:
    applied = Mock(side_effect=queuearguments.applied)
    monkeypatch.setattr("stompbox.broker.addresses.address.applied", applied)
    world = World()
    address = world.address("a", ANYCAST)
    address.anycast = looks = Looks(address.anycast)
    for number in range(COUNT):
        if has_arguments:
            queuearguments.make(world.engine, "a", f"q{number}", {"expiry_delay": 1000})
        else:
            world.engine.exact_queue(address, f"q{number}", ANYCAST)
    for queue in [address.anycast[f"q{number}"] for number in range(1, COUNT)]:
        world.engine.drop_queue(queue)
    assert looks.count <= 4 * COUNT
    assert applied.call_count <= 2 * COUNT * has_arguments
    assert address.is_timed is has_arguments


def test_a_disabled_queue_is_known_without_a_look_at_the_others() -> None:
    world = World()
    address = world.address("a", ANYCAST)
    first, second = [world.engine.exact_queue(address, name, ANYCAST) for name in ("a", "b")]
    first.obey(replace(first.rules, is_enabled=False))
    for number in range(4):
        world.send("a", b"%d" % number)
    assert (first.count, second.count) == (0, 4)
    first.obey(replace(first.rules, is_enabled=True))
    for number in range(4):
        world.send("a", b"%d" % number)
    assert (first.count, second.count) == (2, 6)


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_wildcard_that_goes_is_found_without_a_look_at_the_others(monkeypatch: pytest.MonkeyPatch, *, is_durable: bool) -> None:
    world, compared = World(), []
    consumers = [world.consumer(str(number)) for number in range(COUNT)]
    for number, consumer in enumerate(consumers):
        if is_durable:
            world.on_durable(consumer, f"d{number}", "x.#")
        else:
            subscribers.to_topic(world.engine, consumer, WIDE, subscribers.Plain())
    monkeypatch.setattr(Watcher, "__eq__", lambda self, other: (compared.append(other), self is other)[1])
    for number, consumer in reversed(list(enumerate(consumers))):
        world.close(consumer)
        if is_durable:
            durables.drop_durable(world.engine, "client", f"d{number}")
    assert not world.engine.watchers
    assert not compared
