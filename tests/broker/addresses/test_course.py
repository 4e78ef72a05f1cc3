"""How far a message goes that the configuration sends on: circles end, and so does what has gone along too many diverts."""

from __future__ import annotations

import pytest

from stompbox.broker.addresses import course
from stompbox.broker.addresses.contracts import Divert
from stompbox.broker.addresses.course import DEEP, NOWHERE, WAYS
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.undelivered import TOO_MANY_WAYS, Fate
from stompbox.config.settings import AddressSetting
from stompbox.message import MULTICAST
from stompbox.selectors import compile_selector
from tests.broker.world import World


def dead_to(name: str, dead: str) -> AddressSetting:
    return AddressSetting(match=name, send_to_dla_on_no_route=True, dead_letter_address=dead)


def received(world: World, name: str) -> int:
    """How many messages have come to an address."""
    found = world.engine.addresses.get(name)
    return found.log.next if found is not None else 0


def divert(world: World, source: str, target: str, selector: str = "") -> None:
    compiled = compile_selector(selector) if selector else None
    world.engine.add_divert(source, Divert(f"{source}-{target}", target, compiled, exclusive=False))


@pytest.mark.parametrize("names", ["ab", "abcd"])
@pytest.mark.parametrize("is_crowded", [False, True])
def test_each_of_a_circle_of_dead_letter_addresses_sends_on_once_what_nobody_takes(
    names: str, is_crowded: bool
) -> None:
    """Also where very many are there who might take it, and are asked in steps."""
    world = World(*[dead_to(name, names[(at + 1) % len(names)]) for at, name in enumerate(names)])
    for name in names:
        world.engine.create_address(name).add_kind(MULTICAST)
        for number in range(200 if is_crowded else 0):
            consumer = world.consumer(f"c{number}", AckMode.AUTO, selector=f"word = {number}")
            world.on_topic(consumer, name)
    before = [received(world, name) for name in names]
    for _ in range(3):
        world.send_to_topic(names[0], b"one")
        assert world.settle() == []
    came = [received(world, name) - before[at] for at, name in enumerate(names)]
    assert came == [6, *[3] * (len(names) - 1)], "and to the first once more, where it ends"


def test_a_circle_of_a_divert_and_a_dead_letter_address_ends() -> None:
    world = World(dead_to("a", "b"), dead_to("b", "a"))
    for name in "ab":
        world.engine.create_address(name).add_kind(MULTICAST)
        divert(world, name, "ab".replace(name, ""))
    world.send_to_topic("a", b"one")
    assert world.settle() == []
    assert received(world, "a") + received(world, "b") < 2**4
    assert world.engine.course.path == NOWHERE


def test_a_message_goes_along_a_long_row_of_diverts_as_far_as_it_may_and_stays_there() -> None:
    world = World()
    for number in range(10 * DEEP):
        divert(world, f"a{number}", f"a{number + 1}")
    for _ in range(2):
        world.send("a0", b"one", b"two")
    assert received(world, f"a{DEEP}") == 4
    assert world.engine.addresses.get(f"a{DEEP + 1}") is None
    assert world.engine.undelivered.totals[TOO_MANY_WAYS, Fate.STAYED] == 4
    assert len(world.waiting_in(f"a{DEEP}")) == 4


@pytest.mark.parametrize("selector", ["", "word = 'a'"])
def test_one_message_goes_along_so_many_ways_and_the_next_one_too(selector: str) -> None:
    """Each of ten addresses diverts to each other, which are ten million ways; what is cut to pieces goes along as many for each."""
    world, names = World(), "abcdefghij"
    for source in names:
        for target in names.replace(source, ""):
            divert(world, source, target, selector)
    counts = []
    for _ in range(3):
        before = world.engine.counters["received"]
        world.send("a", b"1", b"2", b"3", b"4", holes={"word": [b"a", b"b", b"a", b"a"]} if selector else {})
        counts.append(world.engine.counters["received"] - before)
    taken = 3 if selector else 4
    assert counts[0] == counts[1] == counts[2]
    assert taken * WAYS // 2 < counts[0] < taken * WAYS * 2
    assert world.engine.undelivered.totals[TOO_MANY_WAYS, Fate.STAYED] > 0


def test_an_address_has_as_many_diverts_as_its_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "WAYS", 10)
    world, many = World(), 20
    for number in range(many):
        divert(world, "a", f"b{number}")
    world.send("a", b"one")
    assert all(received(world, f"b{number}") == 1 for number in range(many))
