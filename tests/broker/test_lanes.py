"""Backlogs side by side, one for each combination of selectors that takes what waits in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompbox.broker.lanes import swept
from tests.broker.world import World


@given(st.lists(st.sets(st.integers(0, 19)), max_size=4))
def test_sweeping_finds_who_takes_what(takers: list[set[int]]) -> None:
    ranges = {name: [(offset, offset + 1) for offset in sorted(offsets)] for name, offsets in enumerate(takers)}
    for entries in ranges.values():
        for at in range(len(entries) - 1, 0, -1):  # ranges of one taker are apart
            if entries[at - 1][1] == entries[at][0]:
                entries[at - 1 : at + 1] = [(entries[at - 1][0], entries[at][1])]
    parts = list(swept(0, 20, ranges))
    assert [first for first, _, _ in parts] == [0, *[stop for _, stop, _ in parts[:-1]]], "no gap"
    assert parts[-1][1] == 20
    for first, stop, names in parts:
        for offset in range(first, stop):
            assert names == {name for name, offsets in enumerate(takers) if offset in offsets}


def test_each_consumer_gets_what_its_selector_takes() -> None:
    world = World()
    world.on_queue(world.consumer("red", selector="colour = 'red'"), "q")
    world.on_queue(world.consumer("small", selector="size < 3"), "q")
    for number, (colour, size) in enumerate([("red", "9"), ("blue", "1"), ("blue", "9"), ("red", "9")]):
        world.send("q", b"%d" % number, headers={"colour": colour, "size": size})
    assert {(got.consumer, got.body) for got in world.settle()} == {("red", b"0"), ("small", b"1"), ("red", b"3")}
    assert world.queue("q").backlog.count == 1, "what nobody takes waits"


def test_one_run_is_sorted_by_its_values() -> None:
    world = World()
    world.on_queue(world.consumer("red", selector="colour = 'red'"), "q")
    world.on_queue(world.consumer("blue", selector="colour = 'blue'"), "q")
    world.send("q", *[b"%d" % number for number in range(6)], holes={"colour": [b"red", b"red", b"blue", b"green", b"blue", b"red"]})
    got = world.settle()
    assert {one.consumer: [g.body for g in got if g.consumer == one.consumer] for one in got} == {
        "red": [b"0", b"1", b"5"],
        "blue": [b"2", b"4"],
    }


def test_what_nobody_took_goes_to_who_comes() -> None:
    world = World()
    red = world.on_queue(world.consumer("red", selector="colour = 'red'"), "q")
    for number in range(4):
        world.send("q", b"%d" % number, headers={"colour": "red" if number % 2 else "blue"})
    assert [got.body for got in world.settle()] == [b"1", b"3"]
    world.on_queue(world.consumer("all"), "q")
    assert [(got.consumer, got.body) for got in world.settle()] == [("all", b"0"), ("all", b"2")]
    world.close(red)
    assert [(got.body, got.is_redelivered) for got in world.settle()] == [(b"1", True), (b"3", True)]


def test_alternating_lanes_favour_nobody() -> None:
    """Messages for one pair of consumers and for another come in turn: each of the four gets its half of its pair's."""
    world = World()
    for name in ("a1", "a2", "b1", "b2"):
        world.on_queue(world.consumer(name, selector=f"word = '{name[0]}'"), "q")
    for number in range(100):
        world.send("q", b"", headers={"word": "ab"[number % 2]})
    got = [one.consumer for one in world.settle()]
    assert {name: got.count(name) for name in ("a1", "a2", "b1", "b2")} == {"a1": 25, "a2": 25, "b1": 25, "b2": 25}


def test_order_holds_across_lanes() -> None:
    """A consumer of everything beside one with a selector: what it gets is in order, whatever lane it waited in."""
    world = World()
    world.on_queue(world.consumer("red", prefetch=1, selector="colour = 'red'"), "q")
    one = world.on_queue(world.consumer("all", prefetch=1), "q")
    for number in range(20):
        world.send("q", b"%d" % number, headers={"colour": "red" if number % 3 else "blue"})
    bodies = []
    got = world.settle()
    while got:
        mine = [entry for entry in got if entry.consumer == "all"]
        bodies += [int(entry.body) for entry in mine]
        for entry in mine:
            world.ack(one, entry)
        got = world.settle()
    assert bodies == sorted(bodies)
    assert len(bodies) == 19, "the other one holds one message"
