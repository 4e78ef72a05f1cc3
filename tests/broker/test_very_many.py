"""What one message costs does not grow with the subscriptions, queues or consumers that are there: counted in lines of ours that run."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from stompbox.broker.addresses import fanout, routing
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.queues import browsing, paging, reclaim
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.matching import Plan
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions import readers, subscribers
from stompbox.broker.transactions import Transaction
from stompbox.broker.work import MESSAGE
from stompbox.config.settings import AddressSetting
from stompbox.message import ANYCAST, MULTICAST, Run, Shape
from tests.broker.world import World

FEW, MANY = 400, 4000


def lines(act: Callable[[], object]) -> int:
    """Lines that run, each round of a loop for itself."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if "stompbox" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def sent(
    world: World, destination: str, routing: int, queue: str = "", *, sender: int = 0, body: bytes = b"x"
) -> Run:
    run = Run(Shape({"destination": destination}), [body], routing=routing, queue=queue, sender=sender)
    world.engine.publish(world.engine.addresses[destination], run)
    return run


# A topic


def plain(world: World, count: int) -> None:
    for number in range(count):
        world.on_topic(world.consumer(str(number), AckMode.AUTO), "t")


def durable(world: World, count: int) -> None:
    for number in range(count):
        world.on_durable(world.consumer(str(number), AckMode.AUTO), f"d{number}", "t")


def with_a_selector(world: World, count: int) -> None:
    for number in range(count):
        world.on_topic(world.consumer(str(number), AckMode.AUTO, selector="k = 'v' OR k IS NULL"), "t")


def own(world: World, count: int) -> None:
    """Of the session that sends, and wants nothing of its own."""
    for number in range(count):
        world.on_topic(world.consumer(str(number), AckMode.AUTO, session=7), "t", no_local=number > 0)


@pytest.mark.parametrize("subscribe", [plain, durable, with_a_selector])
def test_a_send_does_not_walk_through_the_subscriptions_of_its_topic(
    subscribe: Callable[[World, int], None],
) -> None:
    found = {}
    for count in (FEW, MANY):
        world = World()
        subscribe(world, count)
        world.settle()
        sent(world, "t", MULTICAST)
        assert len(world.settle()) == count
        found[count] = lines(lambda world=world: sent(world, "t", MULTICAST))  # type: ignore[misc]
        assert [got.body for got in world.settle()] == [b"x"] * count
    assert found[MANY] < found[FEW] + 100, found


def test_those_that_want_nothing_of_their_own_are_left_out_in_their_turn() -> None:
    world = World()
    own(world, FEW)
    sent(world, "t", MULTICAST, sender=7)
    assert [got.consumer for got in world.settle()] == ["0"]
    sent(world, "t", MULTICAST, sender=8)
    assert len(world.settle()) == FEW


def test_what_costs_too_much_to_ask_at_once_is_put_off_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    put_off: list[Queue] = []
    monkeypatch.setattr(
        fanout.paging, "put_off", lambda queue, run: (put_off.append(queue), paging_put_off(queue, run))[1]
    )
    world = World(portion=1000)
    for number in range(MANY):
        world.on_topic(world.consumer(str(number), AckMode.AUTO, selector=f"k = {number} OR k IS NULL"), "t")
    sent(world, "t", MULTICAST)
    assert put_off == []
    most, before = 0, 0
    while world.engine.dispatch_rest(lambda: False):
        most, before = max(most, len(put_off) - before), len(put_off)
    assert len(put_off) == MANY
    assert most <= fanout.AT_ONCE
    assert len(world.settle()) == MANY


paging_put_off = paging.put_off


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_queue_that_reads_the_log_finds_all_of_it_once(
    is_durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some have no room, and go on reading while later messages wait for their turn."""
    monkeypatch.setattr(fanout, "MANY", 2)
    monkeypatch.setattr(fanout, "AT_ONCE", 1)
    world = World(page_size=400)
    consumers = [world.consumer(str(number), prefetch=1) for number in range(4)]
    for number, consumer in enumerate(consumers):
        _ = world.on_durable(consumer, f"d{number}", "t") if is_durable else world.on_topic(consumer, "t")
    bodies = [b"%02d" % number * 50 for number in range(30)]
    found: dict[str, list[bytes]] = {}

    def take() -> None:
        for got in world.out():
            found.setdefault(got.consumer, []).append(got.body)
            world.ack(consumers[int(got.consumer)], got)

    for number, body in enumerate(bodies):
        sent(world, "t", MULTICAST, body=body)
        world.engine.dispatch_rest(lambda: False)
        world.serve()
        if number % 3 == 0:
            take()
        if number % 5 == 0:
            world.commit()
    for _ in range(400):
        take()
        world.engine.dispatch_rest(lambda: False)
        world.serve()
        world.commit()
    assert {name: len(got) for name, got in found.items()} == {str(number): 30 for number in range(4)}
    assert all(got == bodies for got in found.values())


# Queues of one address


def queues(world: World, count: int, kind: int = ANYCAST) -> None:
    address = world.address("a", kind)
    for number in range(count):
        world.engine.exact_queue(address, f"q{number}", kind)


@pytest.mark.parametrize("kind", [ANYCAST, MULTICAST])
def test_a_send_to_one_of_very_many_queues_does_not_tell_the_others(kind: int) -> None:
    found = {}
    for count in (FEW, MANY):
        world = World()
        queues(world, count, kind)
        sent(world, "a", kind, "q7")
        found[count] = lines(lambda world=world: sent(world, "a", kind, "q7"))  # type: ignore[misc]
        world.settle()
        assert all(
            queue.cursor.position == 2 for queue in world.engine.queues.values() if queue.name != "q7"
        ), "they are told in steps"
    assert found[MANY] < found[FEW] + 50, found


@pytest.mark.parametrize("count", [3, FEW])
@pytest.mark.parametrize("kind", [ANYCAST, MULTICAST])
def test_it_is_found_by_no_other_queue_in_the_log_and_after_a_restart_neither(kind: int, count: int) -> None:
    world = World()
    queues(world, count, kind)
    sent(world, "a", kind, "q1", body=b"1")
    sent(world, "a", kind, "q2", body=b"2")
    world.settle()
    world.commit()
    world = world.restart()
    world.settle()
    for name, bodies in (("q0", []), ("q2", [b"2"]), ("q1", [b"1"])):
        consumer = world.consumer(name)
        if kind == ANYCAST:
            world.on_queue(consumer, "a", name)
        else:
            subscribers.to_queue(world.engine, consumer, Destination("a", "a", MULTICAST, name))
            subscribers.start(consumer)
        got = world.settle()
        assert [one.body for one in got] == bodies, name
        for one in got:
            world.ack(consumer, one)
    world.commit()
    assert world.engine.addresses["a"].log.low_water() >= 2, "nobody keeps them"


@pytest.mark.parametrize("size", [1, 5])
def test_each_message_goes_to_the_next_of_very_many_anycast_queues(size: int) -> None:
    found = {}
    for count in (FEW, MANY):
        world = World()
        queues(world, count)
        address = world.engine.addresses["a"]
        runs = [
            Run(Shape({"destination": "a"}), [b"%d" % number for number in range(size)]) for _ in range(3)
        ]
        world.engine.publish(address, runs[0])
        found[count] = lines(
            lambda world=world, runs=runs: world.engine.publish(world.engine.addresses["a"], runs[1])
        )  # type: ignore[misc]
        world.engine.publish(address, runs[2])
        waiting = [queue for queue in world.engine.queues.values() if queue.count]
        assert len(waiting) == 3 * size
        assert all(queue.count == 1 for queue in waiting)
        assert address.log.next == 3 * size
    assert found[MANY] < found[FEW] + 50, found


def test_very_many_queues_get_each_message_once_over_a_restart() -> None:
    world = World()
    queues(world, routing.FEW + 6)
    for number in range(3):
        world.engine.publish(
            world.engine.addresses["a"],
            Run(Shape({"destination": "a"}), [b"%d.%d" % (number, at) for at in range(50)]),
        )
    world.commit()
    world = world.restart()
    found = []
    for queue in list(world.engine.addresses["a"].anycast):
        world.on_queue(world.consumer(queue, AckMode.AUTO), "a", queue)
        found += [got.body for got in world.settle()]
    assert sorted(found) == sorted(b"%d.%d" % (number, at) for number in range(3) for at in range(50))


# Consumers of a paged queue


def crowded(count: int) -> tuple[World, list[Consumer]]:
    """A queue that reads the log, each of whose consumers has a message and credit for another."""
    world = World(
        AddressSetting(match="q", max_read_page_messages=count, max_size_bytes=1000, page_size_bytes=1000)
    )
    consumers = [world.on_queue(world.consumer(str(number), prefetch=2), "q") for number in range(count)]
    for _ in range(3 * count + 20):
        sent(world, "q", ANYCAST, body=b"x" * 20)
    world.commit()
    return world, consumers


def test_a_paged_queue_does_not_walk_through_its_consumers() -> None:
    found = {}
    for count in (50, 1000):
        world, consumers = crowded(count)
        got = [one for _ in range(20) for one in world.settle()]
        assert len(got) >= count
        world.ack(consumers[int(got[0].consumer)], got[0])
        got += world.settle()
        before = len(got)

        def turn(world: World = world, consumers: list[Consumer] = consumers, got: list[Any] = got) -> None:
            for one in got[1:21]:
                world.ack(consumers[int(one.consumer)], one)
                got.extend(world.settle())

        found[count] = lines(turn)
        assert len(got) > before, "it goes on reading"
    assert found[1000] < 2 * found[50], found


def test_a_paged_queue_gives_to_who_has_nothing_although_others_have_too_much() -> None:
    world = World(
        AddressSetting(match="q", max_read_page_messages=10, max_size_bytes=200, page_size_bytes=200),
        chunk_bytes=100,
    )
    world.engine.anycast_queue(world.address("q", ANYCAST))
    for number in range(40):
        sent(world, "q", ANYCAST, body=b"%02d" % number * 10)
        world.commit()
    greedy = world.on_queue(world.consumer("greedy"), "q")
    had = [got for _ in range(10) for got in world.settle()]
    assert 10 <= len(had) < 40
    world.on_queue(world.consumer("late", prefetch=1), "q")
    assert [got.consumer for got in world.settle()][:1] == ["late"]
    for got in had:
        world.ack(greedy, got)
    assert "greedy" in [got.consumer for _ in range(10) for got in world.settle()]


def test_a_queue_goes_on_when_a_transaction_has_acknowledged_what_its_consumer_had() -> None:
    """Who holds messages in a transaction has room for others."""
    world = World(
        AddressSetting(match="q", max_size_bytes=200, page_size_bytes=100, max_read_page_bytes=100),
        chunk_bytes=100,
    )
    world.engine.anycast_queue(world.address("q", ANYCAST))
    for number in range(40):
        sent(world, "q", ANYCAST, body=b"%02d" % number * 10)
        world.commit()
    consumer = world.on_queue(world.consumer("c"), "q")
    held = Transaction("t")
    bodies: list[bytes] = []
    for _ in range(60):
        for got in world.settle():
            bodies.append(got.body)
            world.hold(held, consumer, got)
    assert bodies == [b"%02d" % number * 10 for number in range(40)]


# Lanes of a queue


def laned(selectors: int) -> tuple[World, list[Consumer], list[Any]]:
    """A queue that has a lane for each set of selectors, and whose consumers have a message each and no credit for another."""
    world = World(portion=1_000_000)
    names = [f"k{number}" for number in range(selectors)]
    for number in range(1, 1 << selectors):
        headers = {name: "1" for at, name in enumerate(names) if number >> at & 1}
        world.send("q", b"%d" % number, headers=headers)
    consumers = [
        world.on_queue(world.consumer(name, prefetch=1, selector=f"{name} = '1'"), "q") for name in names
    ]
    got = world.settle()
    assert len(got) == selectors
    assert len(world.queue("q").backlog.by_lane) > (1 << selectors) - selectors - 2
    return world, consumers, got


def test_an_acknowledgement_does_not_walk_through_the_lanes_of_selectors() -> None:
    found = {}
    for selectors in (5, 10):
        world, consumers, got = laned(selectors)
        count = 1 << selectors

        def turn(world: World = world, consumers: list[Consumer] = consumers, got: list[Any] = got) -> None:
            for _ in range(20):
                one = got.pop(0)
                world.ack(consumers[int(one.consumer[1:])], one)
                got.extend(world.settle())

        found[count] = lines(turn)
        assert len(got) == selectors, "each has had another one"
    assert found[1024] < 3 * found[32], found


def test_each_consumer_gets_what_its_selector_takes_in_order_from_very_many_lanes() -> None:
    world, consumers, got = laned(6)
    found: dict[str, list[int]] = {}
    while got:
        one = got.pop(0)
        found.setdefault(one.consumer, []).append(one.offset)
        world.ack(consumers[int(one.consumer[1:])], one)
        got.extend(world.settle())
    assert sorted(offset for offsets in found.values() for offset in offsets) == list(range(63))
    for name, offsets in found.items():
        assert offsets == sorted(offsets)
        assert all((offset + 1) >> int(name[1:]) & 1 for offset in offsets)
    assert world.queue("q").count == 0


# What is walked through goes in steps


def stepped(world: World, count: Callable[[], int]) -> int:
    """The most by which a figure changes in one turn."""
    before, most = count(), 0
    while world.engine.dispatch_rest(lambda: False):
        now = count()
        before, most = now, max(most, abs(now - before))
    return most


def filled(world: World, count: int) -> None:
    world.engine.anycast_queue(world.address("q", ANYCAST))
    for number in range(count):
        sent(world, "q", ANYCAST, body=b"%d" % number)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_browser_is_filled_in_steps_and_what_comes_meanwhile_is_behind(*, goes_on: bool) -> None:
    world = World(portion=100 * MESSAGE)
    filled(world, 2000)
    world.engine.work.begin()
    consumer = world.consumer("b", AckMode.AUTO)
    browser = browsing.browse(world.engine, world.queue("q"), consumer, goes_on=goes_on)
    subscribers.start(consumer)
    assert browser.count <= 100 + browsing.STEP
    sent(world, "q", ANYCAST, body=b"2000")
    assert stepped(world, lambda: browser.count) <= 300
    got = [one.body for one in world.settle() if "browser" not in one.headers]
    assert got == [b"%d" % number for number in range(2001 if goes_on else 2000)]
    assert world.queue("q").count == 2001
    assert not world.engine.returning


def test_a_browser_that_leaves_while_it_is_filled_leaves_nothing() -> None:
    world = World(portion=100 * MESSAGE)
    filled(world, 2000)
    world.engine.work.begin()
    consumer = world.consumer("b", AckMode.AUTO)
    browsing.browse(world.engine, world.queue("q"), consumer, goes_on=True)
    world.close(consumer)
    world.settle()
    assert [queue.name for queue in world.engine.queues.values()] == ["q"]
    assert not world.engine.returning
    assert not world.queue("q").readers


def test_a_window_is_given_back_in_steps_and_nothing_is_lost_or_doubled() -> None:
    world = World(portion=100 * MESSAGE)
    filled(world, 2000)
    queue = world.queue("q")
    world.engine.work.begin()
    world.engine.later.take("given back", reclaim.giving_back(queue))
    before = world.engine.counters["given-back"]
    assert before <= 200
    sent(world, "q", ANYCAST, body=b"2000")
    assert stepped(world, lambda: world.engine.counters["given-back"]) <= 200
    assert world.engine.counters["given-back"] == 2000
    assert queue.count == 0
    world.commit()
    world.on_queue(world.consumer("c", AckMode.AUTO), "q")
    assert [got.body for _ in range(30) for got in world.settle()] == [
        b"%d" % number for number in range(2001)
    ]


@pytest.mark.parametrize("turns", [1, 3, 8])
def test_a_queue_that_is_used_while_its_window_is_given_back_loses_and_doubles_nothing(turns: int) -> None:
    world = World(portion=100 * MESSAGE)
    filled(world, 2000)
    world.engine.now += 5
    world.engine.work.begin()
    world.engine.later.take("given back", reclaim.giving_back(world.queue("q")))
    for _ in range(turns):
        world.engine.dispatch_rest(lambda: False)
    consumer = world.on_queue(world.consumer("c", prefetch=7), "q")
    found = []
    for number in range(2000, 2400):
        sent(world, "q", ANYCAST, body=b"%d" % number)
        for got in world.settle():
            found.append(got.body)
            world.ack(consumer, got)
    for _ in range(400):
        world.commit()
        for got in world.settle():
            found.append(got.body)
            world.ack(consumer, got)
    assert found == [b"%d" % number for number in range(2400)]


def test_a_purge_passes_over_the_log_in_steps() -> None:
    """Every second message of it was taken by a consumer that looked for it there."""
    world = World(portion=100 * MESSAGE)
    filled(world, 3000)
    queue = world.queue("q")
    reclaim.give_back(queue)
    for offset in range(0, 3000, 2):
        queue.skip(offset, offset + 1)
    world.engine.work.begin()
    reclaim.purge(queue)
    assert 0 < queue.paged_from < 3000
    sent(world, "q", ANYCAST, body=b"later")
    assert stepped(world, lambda: queue.cursor.position) <= 600
    world.commit()
    world.on_queue(world.consumer("c", AckMode.AUTO), "q")
    assert [got.body for _ in range(5) for got in world.settle()] == [b"later"]


def test_what_a_named_reader_had_in_memory_goes_in_steps() -> None:
    world = World(portion=100 * MESSAGE)
    filled(world, 3000)
    world.commit()
    consumer = world.consumer("r", prefetch=1)
    readers.to_named_reader(
        world.engine, consumer, world.engine.addresses["q"], readers.Reader("", "", "r"), 0
    )
    subscribers.start(consumer)
    world.settle()
    memory = world.engine.memory
    before = memory.count
    world.engine.work.begin()
    world.close(consumer)
    assert stepped(world, lambda: memory.count) <= 500
    assert memory.count <= before


def test_whose_reader_it_is_that_goes_is_found_without_a_look_at_all_addresses() -> None:
    found = {}
    for count in (FEW, MANY):
        world = World()
        for number in range(count):
            world.address(f"a.{number}")
        reader = readers.Reader("", "c", "n")
        for name in ("a.3", "a.7"):
            readers.to_named_reader(
                world.engine, world.consumer(name, AckMode.INDIVIDUAL), world.address(name), reader, 0
            )
        found[count] = lines(lambda world=world, reader=reader: readers.found_of(world.engine, reader))  # type: ignore[misc]
        there = readers.found_of(world.engine, reader)
        assert [queue.address.name for queue in there] == ["a.3", "a.7"]
        for queue in there:
            world.engine.drop_queue(queue)
        assert not world.engine.named_readers, "who has none takes no memory"
    assert found[MANY] == found[FEW]


def test_selectors_of_rings_that_cost_too_much_to_ask_at_once_are_asked_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    wanted = fanout.wanted
    monkeypatch.setattr(
        fanout, "wanted", lambda *given, queue: (asked.append(queue), wanted(*given, queue=queue))[1]
    )
    world = World(AddressSetting(match="t", default_ring_size=3), portion=1000)
    count = fanout.MANY // 2
    terms = " OR ".join([f"k * {number} > 1000" for number in range(1, 60)])
    for number in range(count):
        world.on_topic(
            world.consumer(str(number), AckMode.AUTO, selector=f"{terms} OR k = {number} OR k IS NULL"), "t"
        )
    sent(world, "t", MULTICAST)
    assert len(asked) == 0
    most, before = 0, 0
    while world.engine.dispatch_rest(lambda: False):
        most, before = max(most, len(asked) - before), len(asked)
    assert len(asked) == count
    assert most <= 1000 // 60 + 1
    assert len(world.settle()) == count


def test_an_address_with_one_durable_subscription_takes_little() -> None:
    """A wildcard has a queue on each: what Python has for both, the message and what the store of the test has of it."""
    world = World()
    world.on_durable(world.consumer("d"), "d", "few.#")
    for number in range(100):
        world.send_to_topic(f"few.first-{number}", b"x")
    world.settle()
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(FEW):
            world.send_to_topic(f"few.{number}", b"x")
        world.settle()
        world.commit()
        gc.collect()
        each = tracemalloc.get_traced_memory()[0] / FEW
    finally:
        tracemalloc.stop()
    assert each <= 9_000, f"{each:.0f} octets"


def test_an_address_keeps_little_of_the_plans_that_are_gone_with_their_shapes() -> None:
    address = World().address("t")
    staying = [Plan(address.version, address.settings) for _ in range(FEW)]
    for plan in staying:
        address.keep(plan)
        for _ in range(10):
            address.keep(Plan(address.version, address.settings))
    assert FEW < len(address._plans) <= 4 * FEW
