"""A message for very many subscriptions goes to some of them at a time: the work of each turn is counted, and nobody misses anything.

Readers of a log by offset see what is stored, and no offset that they were told of means another message later.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from stompbox.broker.addresses import fanout
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions import subscribers
from stompbox.broker.subscriptions.readers import Reader, to_named_reader
from stompbox.broker.subscriptions.subscribers import start
from stompbox.broker.work import MESSAGE
from stompbox.config.settings import AddressSetting
from stompbox.message import MULTICAST, Run
from tests.broker.test_model import EXAMPLES, Life
from tests.broker.world import Got, World

COUNT = 1000
FEW = 4


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than four queues are many, and two have their turn in one step."""
    monkeypatch.setattr(fanout, "MANY", FEW)
    monkeypatch.setattr(fanout, "SHOWN", FEW)
    monkeypatch.setattr(fanout, "AT_ONCE", 2)


def subscribed(world: World, count: int = COUNT, name: str = "t") -> list[Consumer]:
    return [world.on_topic(world.consumer(str(number), AckMode.AUTO), name) for number in range(count)]


def bodies(got: list[Got]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for one in got:
        found.setdefault(one.consumer, []).append(one.body)
    return found


def offers(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts, as "all", the messages that queues are offered from now on, each of them for each queue."""
    offered: Counter[str] = Counter()
    offer = Queue.offer

    def counted(self: Queue, run: Run, first: int, stop: int) -> None:
        offered.update(all=stop - first)
        offer(self, run, first, stop)

    monkeypatch.setattr(Queue, "offer", counted)
    return offered


def test_a_send_offers_it_to_nobody_at_once_and_to_some_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = offers(monkeypatch)
    world = World(portion=10 * MESSAGE)
    subscribed(world)
    world.settle()
    world.send_to_topic("t", b"1")
    world.send_to_topic("t", b"2")
    assert not offered
    most, before = 0, 0
    while world.engine.dispatch_rest(lambda: False):
        most, before = max(most, offered["all"] - before), offered["all"]
    assert 0 < most <= fanout.AT_ONCE
    got = bodies(world.settle())
    assert len(got) == COUNT
    assert all(found == [b"1", b"2"] for found in got.values())
    address = world.engine.addresses["t"]
    assert address.fanout is None
    assert not address.log.cursors


def test_up_to_a_limit_all_get_it_at_once() -> None:
    world = World()
    subscribed(world, fanout.MANY)
    world.send_to_topic("t", b"1")
    assert world.engine.addresses["t"].fanout is None
    assert len(world.out()) == fanout.MANY


@pytest.mark.usefixtures("small")
def test_who_comes_meanwhile_gets_what_is_sent_later_and_who_leaves_is_left_out() -> None:
    world = World()
    consumers = subscribed(world, 8)
    world.send_to_topic("t", b"1")
    fan = world.engine.addresses["t"].fanout
    assert fan is not None
    fan.step()
    world.close(consumers[1])
    world.close(consumers[6])
    world.on_topic(world.consumer("late", AckMode.AUTO), "t")
    world.send_to_topic("t", b"2")
    got = bodies(world.settle())
    assert got.pop("late") == [b"2"]
    assert sorted(got) == ["0", "2", "3", "4", "5", "7"]
    assert all(found == [b"1", b"2"] for found in got.values())


@pytest.mark.usefixtures("small")
def test_durable_subscriptions_have_it_after_a_crash_half_way() -> None:
    world = World()
    for number in range(8):
        world.close(world.on_durable(world.consumer("c"), f"d{number}", "t"))
    world.send_to_topic("t", b"1")
    fan = world.engine.addresses["t"].fanout
    assert fan is not None
    fan.step()
    world.commit()
    world.send_to_topic("t", b"2")
    world.commit()
    world = world.restart()
    for number in range(8):
        reader = world.on_durable(world.consumer("c"), f"d{number}", "t")
        assert [got.body for got in world.settle()] == [b"1", b"2"], number
        world.close(reader)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("is_durable", [False, True])
def test_a_queue_without_room_finds_in_the_log_what_waited_for_it(is_durable: bool) -> None:
    world = World(page_size=300)
    consumers = [world.consumer(str(number), prefetch=1) for number in range(8)]
    for number, consumer in enumerate(consumers):
        _ = world.on_durable(consumer, f"d{number}", "t") if is_durable else world.on_topic(consumer, "t")
    expected = [b"%d" % number * 100 for number in range(12)]
    for body in expected:
        world.send_to_topic("t", body, sender=5)
        world.engine.dispatch_rest(lambda: False)
    assert any(queue.is_paged for queue in world.engine.queues.values())
    found: dict[str, list[bytes]] = {}
    for _ in range(100):
        for got in world.settle():
            found.setdefault(got.consumer, []).append(got.body)
            world.ack(consumers[int(got.consumer)], got)
        world.commit()
    assert found == {str(number): expected for number in range(8)}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("steps", [0, 2, 4])
def test_a_queue_that_gives_its_memory_back_meanwhile_has_all_of_it_in_the_log(steps: int) -> None:
    world = World()
    consumers = [world.on_topic(world.consumer(str(number), prefetch=1), "t") for number in range(8)]
    expected = [b"%d" % number for number in range(6)]
    for body in expected[:3]:
        world.send_to_topic("t", body)
    found = bodies(world.settle())
    for body in expected[3:]:
        world.send_to_topic("t", body)
    fan = world.engine.addresses["t"].fanout
    assert fan is not None
    for _ in range(steps):
        fan.step()
    for queue in list(world.engine.queues.values()):
        reclaim.give_back(queue)
    assert all(queue.is_paged for queue in world.engine.queues.values())
    for consumer in consumers:
        consumer.prefetch = 100
        world.engine.feed(consumer)
    for _ in range(10):
        world.commit()
        for name, more in bodies(world.settle()).items():
            found[name] += more
    assert found == {str(number): expected for number in range(8)}


@pytest.mark.usefixtures("small")
def test_a_sender_that_wants_none_of_its_own_does_not_find_it_in_the_log() -> None:
    world = World(page_size=300)
    consumers = [world.consumer(str(number), prefetch=1, session=number) for number in range(8)]
    for consumer in consumers:
        world.on_topic(consumer, "t", no_local=True)
    for number in range(12):
        world.send("t", b"%d" % (number % 2) * 100, routing=MULTICAST, sender=6 + number % 2)
        world.engine.dispatch_rest(lambda: False)
    found: dict[str, set[bytes]] = {}
    counts: Counter[str] = Counter()
    for _ in range(100):
        for got in world.settle():
            found.setdefault(got.consumer, set()).add(got.body[:1])
            counts[got.consumer] += 1
            world.ack(consumers[int(got.consumer)], got)
        world.commit()
    assert found.pop("6") == {b"1"}
    assert found.pop("7") == {b"0"}
    assert set(map(frozenset, found.values())) == {frozenset((b"0", b"1"))}
    assert counts == {str(number): 6 if number in (6, 7) else 12 for number in range(8)}


@pytest.mark.usefixtures("small")
def test_what_the_disk_refuses_meanwhile_goes_to_nobody_more() -> None:
    world = World()
    for number in range(8):
        world.on_durable(world.consumer(f"{number}"), f"d{number}", "t")
    run = world.send_to_topic("t", b"1")
    fan = world.engine.addresses["t"].fanout
    assert fan is not None
    fan.step()
    run.is_withdrawn = True
    world.engine.addresses["t"].log.forget_withdrawn()
    assert [got.consumer for got in world.settle()] == ["0", "1"]
    assert all(queue.cursor.position == 1 for queue in list(world.engine.queues.values())[2:]), (
        "nobody waits for it"
    )


@pytest.mark.usefixtures("small")
def test_more_than_may_wait_is_offered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "MOST", 20)
    world = World()
    subscribed(world, 8)
    for number in range(10):
        world.send_to_topic("t", b"%d" % number)
        fan = world.engine.addresses["t"].fanout
        assert fan is None or fan.size <= 20
    assert all(len(found) == 10 for found in bodies(world.settle()).values())


def test_a_broker_in_which_everything_goes_in_steps_of_one_queue_is_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lives of test_model.py."""

    monkeypatch.setattr(fanout, "MANY", 0)
    monkeypatch.setattr(fanout, "SHOWN", 1)
    monkeypatch.setattr(fanout, "AT_ONCE", 1)
    run_state_machine_as_test(
        Life,
        settings=settings(max_examples=EXAMPLES // 2, stateful_step_count=60, report_multiple_bugs=False),
    )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("has_had_it", [False, True])
def test_a_queue_whose_last_consumer_leaves_meanwhile_goes_when_nothing_is_left_for_it(
    *, has_had_it: bool
) -> None:
    world = World(AddressSetting(match="t", auto_delete_queues=True))
    consumer = world.consumer("named", AckMode.AUTO)
    subscribers.to_queue(world.engine, consumer, Destination("t", "t", MULTICAST, "q"))
    subscribers.start(consumer)
    subscribed(world, 8, "t")
    address = world.engine.addresses["t"]
    world.send_to_topic("t", b"1")
    assert address.fanout is not None
    if has_had_it:
        address.fanout.step()
        assert [got.consumer for got in world.out()] == ["named", "0"]
        world.engine.acknowledge(consumer, consumer.take_flushed())
    world.close(consumer)
    assert address.fanout is not None
    assert "q" in address.named, "what waits may be for it"
    world.settle()
    assert address.fanout is None
    assert ("q" in address.named) is not has_had_it


KEPT = AddressSetting(match="#", retention_messages=1000)
WAYS = ("stream", "named")


def reading(
    streamed: World, way: str, position: int = 0, *, selector: str = "", prefetch: int = -1
) -> Consumer:
    consumer = streamed.consumer("r", AckMode.INDIVIDUAL, selector=selector, prefetch=prefetch)
    if way == "stream":
        return streamed.on_stream(consumer, "s", position)
    to_named_reader(streamed.engine, consumer, streamed.address("s"), Reader("", "", "n"), position)
    start(consumer)
    return consumer


def send_to_readers(streamed: World, *bodies: bytes, persistent: bool | None = None) -> None:
    for body in bodies:
        streamed.send("s", body, routing=2, persistent=persistent, headers={"word": body.decode()})


def moved(streamed: World) -> list[Got]:
    """What goes out while the disk has no turn."""
    found = streamed.out()
    while streamed.engine.dispatch_rest() or streamed.serve() or streamed.engine.touched:
        found += streamed.out()
    return found


@pytest.fixture(params=[True, False], ids=["kept", "not kept"])
def streamed(request: pytest.FixtureRequest) -> World:
    return World(*([KEPT] if request.param else []))


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_they_wait_for_the_commit_and_nobody_else_does(streamed: World, way: str, persistent: bool) -> None:
    reading(streamed, way)
    streamed.on_topic(streamed.consumer("t"), "s")
    send_to_readers(streamed, b"a", b"b", persistent=persistent)
    assert [(got.consumer, got.body) for got in moved(streamed)] == [("t", b"a"), ("t", b"b")]
    assert streamed.engine.commits.is_awaited, "the commit does not wait for its timer"
    commit = streamed.engine.take_commit()
    send_to_readers(streamed, b"c", persistent=persistent)
    assert [got.body for got in moved(streamed) if got.consumer == "r"] == []
    streamed.store.apply(commit)
    streamed.engine.committed()
    assert [(got.offset, got.body) for got in moved(streamed) if got.consumer == "r"] == [
        (0, b"a"),
        (1, b"b"),
    ]
    streamed.commit()
    assert [(got.offset, got.body) for got in moved(streamed)] == [(2, b"c")]


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_taken", [True, False])
def test_no_offset_that_was_told_means_another_message_after_a_crash(
    way: str, persistent: bool, is_taken: bool
) -> None:
    streamed, told = World(KEPT), dict[int, bytes]()
    for life in range(4):
        reading(streamed, way)
        for number in range(3):
            send_to_readers(streamed, b"%d.%d" % (life, number), persistent=persistent)
            for got in moved(streamed):
                assert told.setdefault(got.offset, got.body) == got.body
            if number == 1:
                streamed.commit()
        for got in moved(streamed):
            assert told.setdefault(got.offset, got.body) == got.body
        if is_taken:
            streamed.engine.take_commit()
        incarnations = streamed.engine.addresses["s"].log.incarnations
        streamed = streamed.restart()
        assert streamed.engine.addresses["s"].log.incarnations == incarnations
    assert {b"0.0", b"3.1"} <= set(told.values())


@pytest.mark.parametrize("is_much", [False, True], ids=["all of it", "too much"])
@pytest.mark.parametrize("kept", [True, False])
def test_very_many_readers_are_shown_what_is_stored_in_steps_and_miss_nothing(
    small: None, monkeypatch: pytest.MonkeyPatch, *, kept: bool, is_much: bool
) -> None:
    """Meanwhile some come and go, and others leave in the log what they have not been shown, and what they have; or all find it there."""
    streamed, count = World(*([KEPT] if kept else []), portion=1), 5 * FEW
    shown: list[Queue] = []
    show_to = fanout._show_to

    def noted(queue: Queue, *others: Any) -> None:
        shown.append(queue)
        show_to(queue, *others)

    monkeypatch.setattr(fanout, "_show_to", noted)

    def joined(name: str, position: int) -> Consumer:
        return streamed.on_stream(streamed.consumer(name, AckMode.INDIVIDUAL), "s", position)

    readers = [joined(str(number), 0) for number in range(count)]
    send_to_readers(streamed, b"a", b"b")
    streamed.store.apply(streamed.engine.take_commit())
    streamed.engine.committed()
    assert 0 < len(shown) <= FEW
    found, queues = streamed.out(), [next(iter(reader.bindings.values())).queue for reader in readers]
    joined("early", 0)
    joined("next", 2)
    for queue in (shown[0], queues[-1]):
        queue.leave_in_log(queue.log_end)
        streamed.engine.dispatch_later(queue)
    streamed.close(readers[-2])
    if is_much:
        fanout._leave_in_log(streamed.address("s"))
    going = True
    while going:
        before = len(shown)
        going = streamed.engine.dispatch_rest(lambda: False) or bool(streamed.serve())
        assert len(shown) - before <= FEW
        found += streamed.out()
    found += moved(streamed)
    names = {*map(str, range(count)), "early"} - {readers[-2].name}
    assert sorted((got.consumer, got.offset) for got in found) == sorted(
        (name, offset) for name in names for offset in (0, 1)
    )
    send_to_readers(streamed, b"c")
    streamed.commit()
    assert sorted(got.consumer for got in streamed.settle()) == sorted({*names, "next"})


@pytest.mark.parametrize("way", WAYS)
def test_what_the_disk_refuses_is_shown_when_it_is_stored_or_never(way: str) -> None:
    streamed = World(KEPT)
    reading(streamed, way)
    send_to_readers(streamed, b"a")
    streamed.engine.commits.begin()
    send_to_readers(streamed, b"refused")
    streamed.engine.commits.end(is_stored=True)
    streamed.engine.commit_failed(streamed.engine.take_commit())
    send_to_readers(streamed, b"b")
    assert moved(streamed) == []
    streamed.commit()
    assert [(got.offset, got.body) for got in moved(streamed)] == [(0, b"a"), (2, b"b")]


@pytest.mark.parametrize("position", [0, 1, 2, 3])
@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_one_who_comes_while_the_disk_is_at_work_misses_nothing(
    way: str, position: int, is_taken: bool
) -> None:
    streamed = World(KEPT)
    send_to_readers(streamed, b"0")
    streamed.commit()
    send_to_readers(streamed, b"1")
    commit = streamed.engine.take_commit() if is_taken else None
    send_to_readers(streamed, b"2")
    reading(streamed, way, position)
    found = moved(streamed)
    assert [got.body for got in found] == [b"0"][position:]
    if commit is not None:
        streamed.store.apply(commit)
        streamed.engine.committed()
        found += moved(streamed)
        assert [got.body for got in found] == [b"0", b"1"][position:]
    send_to_readers(streamed, b"3")
    streamed.commit()
    found += moved(streamed)
    assert [got.body for got in found] == [b"0", b"1", b"2", b"3"][position:]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("page_size", [1, 3000, 1 << 20])
@pytest.mark.parametrize("portion", [1, 40, 20_000])
def test_all_comes_once_and_in_order_however_little_there_is_room_for(
    streamed: World, way: str, page_size: int, portion: int
) -> None:
    streamed.engine.page_size, streamed.engine.work.portion = page_size, portion
    consumer = reading(streamed, way, prefetch=3)
    found = []
    for number in range(60):
        streamed.engine.work.begin()
        send_to_readers(streamed, b"%02d" % number, persistent=number % 3 != 0)
        if number % 7 == 0:
            streamed.commit()
        if number % 5 == 0:
            for got in moved(streamed):
                found.append(got)
                streamed.ack(consumer, got)
    streamed.commit()
    while batch := streamed.settle():
        for got in batch:
            found.append(got)
            streamed.ack(consumer, got)
    assert [got.body for got in found] == [b"%02d" % number for number in range(60)]
    if not streamed.engine.addresses["s"].log.is_kept:
        streamed.commit()
        streamed.commit()
        assert streamed.store.sizes([1])[1][0] == 0, "nobody needs them any more"


def test_a_run_is_shown_to_many_readers_some_messages_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = offers(monkeypatch)
    world = World(portion=MESSAGE)
    world.send_to_topic("s", b"first")
    for number in range(100):
        world.on_stream(world.consumer(str(number), AckMode.AUTO), "s", 1)
    world.settle()
    offered.clear()
    said = [b"%d" % number for number in range(20)]
    world.send_to_topic("s", *said)
    world.commit()
    most = before = offered["all"]
    while world.engine.dispatch_rest(lambda: False):
        most, before = max(most, offered["all"] - before), offered["all"]
    assert 0 < most <= fanout.SHOWN
    got = bodies(world.settle())
    assert len(got) == 100
    assert all(found == said for found in got.values())


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_named_reader_keeps_what_it_was_not_shown(is_closed: bool) -> None:
    """Who has answered all needs what is on its way to the disk all the same."""
    streamed = World()
    consumer = reading(streamed, "named", selector="word <> 'x'")
    send_to_readers(streamed, b"a", b"x")
    for got in streamed.settle():
        streamed.ack(consumer, got)
    send_to_readers(streamed, b"x", b"b")
    if is_closed:
        streamed.close(consumer)
    streamed.commit()
    streamed = streamed.restart()
    reading(streamed, "named", selector="word <> 'x'")
    assert [got.body for got in streamed.settle()] == [b"b"]


def test_a_reader_of_a_log_is_somebody_to_whom_a_message_goes() -> None:
    streamed = World(AddressSetting(match="#", send_to_dla_on_no_route=True))
    reading(streamed, "stream")
    send_to_readers(streamed, b"a")
    assert [got.body for got in streamed.settle()] == [b"a"]
    assert streamed.engine.counters["unrouted"] == 0


def many_selectors(*selectors: str) -> World:
    """A topic at which all selectors together are too much for one turn, and whose messages must not vanish."""
    rule = AddressSetting(match="t", send_to_dla_on_no_route=True, dead_letter_address="dead")
    world = World(rule, portion=50)
    for number, selector in enumerate(selectors):
        world.on_topic(world.consumer(f"c{number}", selector=selector), "t")
    world.on_queue(world.consumer("dead"), "dead")
    return world


@pytest.mark.parametrize("other", ["= 'y'", "LIKE '%y'", "= 'y' AND JMSMessageID <> 'z'"])
def test_what_selectors_do_not_take_that_are_asked_later_goes_to_the_dead(other: str) -> None:
    world = many_selectors(*[f"k = 'x{number}' OR k {other}" for number in range(200)])
    for body in (b"a", b"x7"):
        world.send_to_topic("t", body, headers={"k": body.decode()})
    values = [b"x9", b"b", b"c"]
    world.send("t", *values, routing=MULTICAST, holes={"k": values})
    got = world.settle()
    assert {(one.consumer, one.body) for one in got} == {
        ("c7", b"x7"),
        ("c9", b"x9"),
        ("dead", b"a"),
        ("dead", b"b"),
        ("dead", b"c"),
    }
    assert len(got) == 5
    assert world.engine.counters["unrouted"] == 3


def test_a_selector_that_would_take_long_counts_as_if_it_took_the_message() -> None:
    """It is asked in turns of its own, when all others have been."""
    world = many_selectors(
        *[f"k = 'x{number}'" for number in range(200)], " OR ".join([f"k = 'z{n}'" for n in range(300)])
    )
    world.send_to_topic("t", b"a", headers={"k": "a"})
    assert world.settle() == []
    assert world.engine.counters["unrouted"] == 0
