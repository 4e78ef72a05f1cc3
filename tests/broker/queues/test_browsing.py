"""Browsers and non-destructive queues."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from stompbox.broker.queues.browsing import NO_END, SENT, STEP, Browser, Out, browse
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.delayed import AGAIN
from stompbox.broker.queues.reclaim import give_back
from stompbox.broker.subscriptions.subscribers import start
from stompbox.config.settings import AddressSetting
from tests.broker.world import NOW, Got, World


def look(
    world: World,
    name: str = "b",
    *,
    goes_on: bool = False,
    first: int = 0,
    prefetch: int = -1,
    selector: str = "",
) -> Consumer:
    consumer = world.consumer(name, prefetch=prefetch, selector=selector)
    browse(
        world.engine, world.engine.anycast_queue(world.address("q")), consumer, goes_on=goes_on, first=first
    )
    start(consumer)
    return consumer


def shown(found: list[Got], name: str = "b") -> list[str]:
    return [got.headers.get("browser", got.body.decode()) for got in found if got.consumer == name]


def test_waiting_and_delivered_by_offset_then_the_end() -> None:
    world = World()
    world.on_queue(world.consumer("c", prefetch=2), "q")
    world.send("q", b"0", b"1", b"2", priority=3)
    world.send("q", b"3", priority=7)
    world.settle()
    look(world)
    assert shown(world.settle()) == ["3", "0", "1", "2", "end"]
    assert world.queue("q").backlog.count == 2


def test_paged_and_not_yet_stored() -> None:
    world = World(page_size=3000)
    for i in range(40):
        world.send("q", b"%02d" % i)
        if i < 30:
            world.commit()
    assert world.queue("q").is_paged
    look(world)
    assert shown(world.settle()) == [*[f"{i:02d}" for i in range(40)], "end"]
    consumer = world.on_queue(world.consumer("c"), "q")
    assert len(world.settle()) == 40
    assert consumer.messages_out == 40


def test_paged_leaves_out_what_was_acknowledged_meanwhile() -> None:
    world = World(page_size=3000)
    for i in range(40):
        world.send("q", b"%02d" % i)
        world.commit()
    browser = look(world, prefetch=1)
    (first,) = world.settle()
    consumer = world.on_queue(world.consumer("c", AckMode.AUTO), "q")
    while got := world.settle():
        assert len(got) > 0
        world.engine.flushed(consumer)
    world.commit()
    world.ack(browser, first)
    found = world.settle()
    while found[-1].headers.get("browser") != "end":
        world.ack(browser, found[-1])
        found += world.settle()
    seen = shown(found)
    assert len(seen) < 40
    assert seen == sorted(seen)


def test_what_comes_later_is_not_shown() -> None:
    world = World(page_size=3000)
    for i in range(40):
        world.send("q", b"%02d" % i)
        world.commit()
    browser = look(world, prefetch=1)
    found = world.settle()
    world.send("q", b"late")
    world.commit()
    while found[-1].headers.get("browser") != "end":
        world.ack(browser, found[-1])
        found += world.settle()
    assert shown(found)[-3:] == ["38", "39", "end"]


def test_scheduled_and_expired_are_not_shown() -> None:
    world = World()
    world.send("q", b"later", headers={"AMQ_SCHEDULED_DELAY": "100"})
    world.send("q", b"brief", expires=NOW + 10)
    world.send("q", b"now")
    look(world)
    assert shown(world.settle()) == ["brief", "now", "end"]
    going = look(world, "g", goes_on=True)
    world.settle()
    world.tick(100)
    assert shown(world.settle(), "g") == ["later"]
    assert going.messages_out == 3


def test_slow_browser_is_paged_without_the_queue() -> None:
    """It holds up nobody, and what it has not seen is in the log even if the queue would not need it there."""
    world = World(page_size=3000)
    browser = look(world, goes_on=True, prefetch=1)
    consumer = world.on_queue(world.consumer("c", AckMode.AUTO), "q")
    found = []
    for i in range(40):
        world.send("q", b"%02d" % i, persistent=False)
        got = world.settle()
        found += [each for each in got if each.consumer == "b"]
        assert any(each.consumer == "c" for each in got)
    for binding in browser.bindings.values():
        assert binding.queue.is_paged
    assert shown(found) == ["00"]
    world.engine.flushed(consumer)


def test_goes_when_its_consumer_goes() -> None:
    world = World()
    consumer = look(world, goes_on=True)
    queue = world.queue("q")
    assert len(queue.readers) == 1
    world.close(consumer)
    assert not queue.readers
    assert queue.is_simple
    assert not any(isinstance(known, Browser) for known in world.engine.queues.values())


def test_non_destructive_queue() -> None:
    world = World(AddressSetting(match="q", default_non_destructive=True, default_max_consumers=2))
    world.send("q", b"0")
    a = world.on_queue(world.consumer("a"), "q")
    world.on_queue(world.consumer("b", AckMode.AUTO), "q")
    assert world.queue("q").is_full
    world.send("q", b"1")
    found = world.settle()
    assert shown(found, "a") == shown(found, "b") == ["0", "1"]
    for got in [got for got in found if got.consumer == "a"]:
        world.ack(a, got)
    world.close(a)
    world.commit()
    world = world.restart()
    world.on_queue(world.consumer("c"), "q")
    assert shown(world.settle(), "c") == ["0", "1"]


def test_non_destructive_expires() -> None:
    world = World(AddressSetting(match="q", default_non_destructive=True))
    world.send("q", b"0", expires=NOW + 10)
    world.send("q", b"1")
    world.tick(10)
    world.on_queue(world.consumer("a"), "q")
    assert shown(world.settle(), "a") == ["1"]


def test_end_is_no_offset_of_those_that_go_on() -> None:
    world = World()
    consumer = look(world, goes_on=True)
    (binding,) = consumer.bindings.values()
    assert isinstance(binding.queue, Browser)
    assert binding.queue.end == NO_END


def test_what_is_not_persistent_is_not_shown_after_a_restart() -> None:
    world = World(page_size=300)
    for i in range(10):
        world.send("q", b"%d" % i, persistent=bool(i % 2))
        world.commit()
    assert world.queue("q").is_paged
    world = world.restart()
    look(world)
    assert shown(world.settle()) == ["1", "3", "5", "7", "9", "end"]


def test_a_non_destructive_queue_has_what_is_persistent_after_a_restart() -> None:
    world = World(AddressSetting(match="q", default_non_destructive=True), page_size=300)
    for i in range(10):
        world.send("q", b"%d" % i, persistent=bool(i % 2))
        world.commit()
    world = world.restart()
    world.on_queue(world.consumer("c"), "q")
    assert shown(world.settle(), "c") == ["1", "3", "5", "7", "9"]


def test_non_destructive_and_last_value_after_a_restart() -> None:
    rules = AddressSetting(match="q", default_non_destructive=True, default_last_value_key="k")
    world = World(rules)
    world.send("q", b"0", headers={"k": "a"})
    world.send("q", b"1", headers={"k": "b"})
    world.commit()
    world = world.restart()
    world.settle()
    world.send("q", b"2", headers={"k": "a"})
    world.commit()
    world.on_queue(world.consumer("c"), "q")
    assert shown(world.settle(), "c") == ["1", "2"]


def test_non_destructive_expires_after_a_restart() -> None:
    world = World(AddressSetting(match="q", default_non_destructive=True, expiry_address="x"))
    world.send("q", b"0", expires=NOW + 10)
    world.send("q", b"1")
    world.commit()
    world = world.restart()
    world.settle()
    world.tick(10)
    world.commit()
    consumer = world.on_queue(world.consumer("a"), "x")
    assert shown(world.settle(), "a") == ["0"]
    assert consumer.messages_out == 1


def test_a_non_destructive_queue_gives_its_window_back_whatever_it_holds() -> None:
    """Nobody makes room there: what it keeps in memory would be in everybody's way for ever."""
    world = World(AddressSetting(match="q", default_non_destructive=True))
    world.send("q", b"0", headers={"JMSXGroupID": "g"})
    world.send("q", b"1")
    world.commit()
    give_back(world.queue("q"))
    assert world.queue("q").backlog.count == 0
    assert world.queue("q").is_paged
    world.on_queue(world.consumer("c"), "q")
    assert shown(world.settle(), "c") == ["0", "1"]


@pytest.mark.parametrize("is_late", [True, False])
def test_a_reader_is_shown_a_scheduled_message_once_wherever_it_lay(*, is_late: bool) -> None:
    """It is due when a reader finds it in the log, and the queue itself has not read it yet; or the other way round."""
    world = World(AddressSetting(match="q", default_non_destructive=True), page_size=1500, chunk_bytes=100)
    for number in range(6):
        headers = {"AMQ_SCHEDULED_DELAY": "1000"} if number in (1, 4) else {}
        world.send("q", b"%d" % number + bytes(1000), headers=headers)
    world.commit()
    world = world.restart()
    if is_late:
        world.engine.now += 2000
    consumer = world.on_queue(world.consumer("c"), "q")
    found = [got.body[:1] for got in world.settle()]
    world.tick(2000)
    found += [got.body[:1] for got in world.settle()]
    world.tick(2000)
    found += [got.body[:1] for got in world.settle()]
    assert sorted(found) == [b"%d" % number for number in range(6)]
    world.close(consumer)


def test_what_a_consumer_has_out_of_the_log_is_shown_once() -> None:
    """It was sought beyond what is in memory, and is there and in the log."""
    world = World(page_size=1300)
    world.on_queue(world.consumer(selector="word = '2'", prefetch=1), "q")
    for word in "111112":
        world.send("q", word.encode() + bytes(300), headers={"word": word})
    world.commit()
    assert [got.offset for got in world.settle()] == [5]
    browser = world.consumer("browser")
    browser.is_started = True
    world.engine.dispatch_later(browse(world.engine, world.queue("q"), browser, goes_on=False))
    assert sorted(got.offset for got in world.settle() if "browser" not in got.headers) == list(range(6))


def test_what_was_scheduled_is_shown_once_although_its_queue_gives_its_memory_back_and_reads_it_again() -> (
    None
):
    world = World(AddressSetting(match="q", default_non_destructive=True))
    before = world.on_queue(world.consumer("before"), "q")
    world.send("q", b"later", headers={"AMQ_SCHEDULED_DELAY": "100"})
    world.commit()
    world.tick(200)
    after = world.on_queue(world.consumer("after"), "q")
    assert [(got.consumer, got.body) for got in world.settle()] == [
        (before.name, b"later"),
        (after.name, b"later"),
    ]
    give_back(world.queue("q"))
    assert world.queue("q").is_paged
    world.queue("q").dispatch()
    assert world.settle() == []
    assert not world.queue("q").is_paged


@pytest.mark.parametrize("is_full", [True, False])
def test_readers_get_what_was_scheduled_although_its_queue_has_no_room_when_it_is_due(
    *, is_full: bool
) -> None:
    """The queue has it in the log alone, where it came because there was no room, or went when the queue gave its memory back."""
    world = World(AddressSetting(match="q", default_non_destructive=True))
    reader = world.on_queue(world.consumer(), "q")
    if not is_full:
        world.send("q", b"later", headers={"AMQ_SCHEDULED_DELAY": "100"})
    world.engine.memory.limit(2000, -1)
    for number in range(30):
        world.send("q", b"%03d" % number + b"." * 200)
    if is_full:
        world.send("q", b"later", headers={"AMQ_SCHEDULED_DELAY": "100"})
    else:
        give_back(world.queue("q"))
    world.commit()
    while found := world.settle():
        for got in found:
            world.ack(reader, got)
    assert world.queue("q").is_paged
    world.tick(200)
    assert [got.body for got in world.settle()] == [b"later"]
    world.engine.memory.limit(-1, -1)
    world.queue("q").dispatch()
    assert world.settle() == []


# A long queue, in steps


def lines_of(work: Callable[[], object]) -> int:
    """The lines of Python that it takes."""
    count = 0

    def trace(_: FrameType, event: str, __: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_a_browser_of_a_long_queue_begins_as_fast_as_one_of_a_short_queue() -> None:
    counted = []
    for length in (400, 4000):
        world = World(portion=640)
        for number in range(length):
            world.send("q", b"%d" % number)
        counted.append(lines_of(partial(look, world)))
        assert shown(world.settle()) == [*[str(number) for number in range(length)], "end"]
    assert counted[1] <= counted[0] + 10


@pytest.mark.parametrize("selector", ["", "colour = 'red'"])
def test_a_browser_shows_what_was_there_when_it_began_whatever_becomes_of_it_meanwhile(selector: str) -> None:
    """Consumers take, acknowledge and give back between the steps, an operator drops, and new messages come."""
    world, length = World(portion=640), 600
    for number in range(length):
        world.send("q", b"%d" % number, headers={"colour": "red"}, priority=4 + number % 2)
    consumer = world.on_queue(world.consumer("c", prefetch=5, selector=selector), "q")
    out = world.out()
    look(world)
    queue, found = world.queue("q"), list[Got]()
    for turn in range(10_000):
        is_more = world.engine.dispatch_rest(lambda: False)
        for number, got in enumerate(out):
            if got.consumer == "b":
                found.append(got)
            elif (number + turn) % 3:
                world.ack(consumer, got)
            else:
                world.nack(consumer, got)
        if turn < 20:
            queue.drop(queue.backlog.pop_oldest(1), "purged")
            world.send("q", b"new", headers={"colour": "red"})
        out = world.out()
        if not (is_more or out):
            break
    bodies = shown(found)
    assert bodies[-1] == "end"
    assert sorted(bodies[:-1], key=int) == [str(number) for number in range(length)]
    assert bodies[:-1] == sorted(bodies[:-1], key=lambda body: (-(int(body) % 2), int(body)))


def test_nobody_watches_a_backlog_any_more_when_the_browser_has_all_or_is_gone() -> None:
    for is_gone in (False, True):
        world = World(portion=640)
        for number in range(400):
            world.send("q", b"%d" % number)
        consumer = look(world)
        assert world.queue("q").backlog.common._watching
        if is_gone:
            world.close(consumer)
        world.settle()
        assert world.queue("q").backlog.common._watching is None


@pytest.mark.parametrize("ack", [AckMode.INDIVIDUAL, AckMode.CLIENT, AckMode.AUTO])
def test_what_consumers_have_is_looked_at_in_steps_too(ack: AckMode) -> None:
    counted = []
    for length in (400, 4000):
        world = World()
        world.on_queue(world.consumer("c", ack), "q")
        for number in range(length):
            world.send("q", b"%d" % number, headers={"n": str(number)})
        world.settle()
        held: list[Out] = []
        counted.append(lines_of(lambda world=world, held=held: held.append(Out(world.queue("q")))))  # type: ignore[misc]
        parts = list(held[0].parts())
        assert max(map(len, parts)) <= (STEP if ack is AckMode.INDIVIDUAL else SENT)
        offsets = [offset for part in parts for first, stop, _ in part for offset in range(first, stop)]
        assert sorted(offsets) == list(range(length))
    assert counted[1] <= counted[0] + 10


@pytest.mark.parametrize("ack", [AckMode.INDIVIDUAL, AckMode.CLIENT])
def test_what_consumers_had_is_told_once_whatever_becomes_of_it(ack: AckMode) -> None:
    world, length = World(), 200
    first, second = world.consumer("c", ack, prefetch=length), world.consumer("d", ack)
    world.on_queue(first, "q")
    world.send("q", *[b"%d" % number for number in range(length)])  # one segment
    got = world.settle()
    out = Out(world.queue("q"))
    told = out.parts()
    if ack is AckMode.INDIVIDUAL:  # from the middle, so that it is cut
        world.nack(first, got[50])
        world.ack(first, got[20])
    world.on_queue(second, "q")
    world.ack(first, got[10])
    world.close(first)
    world.settle()  # the other one has them now
    world.send("q", b"later")
    world.settle()
    offsets = [offset for part in told for low, high, _ in part for offset in range(low, high)]
    assert sorted(offsets) == list(range(length))
    assert world.queue("q").lookers
    out.end()
    assert not world.queue("q").lookers


def test_the_oldest_of_what_a_consumer_has_is_found_without_a_look_at_all() -> None:
    for ack in (AckMode.INDIVIDUAL, AckMode.CLIENT):
        world = World()
        consumer = world.on_queue(world.consumer("c", ack), "q")
        for number in range(1000):
            world.send("q", b"%d" % number, headers={"n": str(number)})
        got = world.settle()
        (binding,) = world.queue("q").bindings
        assert binding.oldest == 0
        for one in got[:900] if ack is AckMode.INDIVIDUAL else [got[899]]:
            world.ack(consumer, one)
        assert binding.oldest == 900
        assert lines_of(partial(getattr, binding, "oldest")) < 20
        for one in got[900:] if ack is AckMode.INDIVIDUAL else [got[999]]:
            world.ack(consumer, one)
        assert binding.oldest is None


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_is_due_and_waits_in_the_log_for_room_is_shown_where_it_stands(*, goes_on: bool) -> None:
    """The queue has no room to read it, and what was to wait longer lies behind it, where the browser finds it in the log."""
    world = World(AddressSetting(match="q", default_non_destructive=True), chunk_bytes=100)
    _leave_due_in_log(world)
    world.tick(200)
    look(world, goes_on=goes_on)
    assert shown(world.settle()) == ["0", "1", "2", "3"] + ["end"] * (not goes_on)
    world.engine.memory.limit(-1, -1)
    world.tick(20000)
    assert shown(world.settle()) == ["4"] * goes_on


def test_what_is_due_is_read_when_there_is_room_although_nothing_happens_to_its_queue() -> None:
    world = World(AddressSetting(match="q", default_non_destructive=True), chunk_bytes=100)
    _leave_due_in_log(world)
    look(world, goes_on=True)
    world.tick(5000)
    assert "1" not in shown(world.settle())
    world.engine.memory.limit(-1, -1)
    world.tick(AGAIN)
    assert shown(world.settle()) == ["1"]
    assert world.queue("q").later is None


def _leave_due_in_log(world: World) -> None:
    """Of the queue's messages the log alone has all but the first; of the second one memory has the time."""
    world.send("q", b"0")
    world.engine.memory.limit(1, -1)
    world.send("q", b"1", headers={"AMQ_SCHEDULED_DELAY": "100"})
    world.send("q", b"2")
    world.send("q", b"3", headers={"AMQ_SCHEDULED_DELAY": "150"})
    world.send("q", b"4", headers={"AMQ_SCHEDULED_DELAY": "10000"})
    world.commit()
    assert world.queue("q").later is not None and world.queue("q").paged_from == 2
