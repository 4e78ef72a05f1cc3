"""Consumers with selectors whose messages lie behind more than memory holds of what others take, or nobody."""

from __future__ import annotations

import pytest

from stompbox.broker.queues import paging, reclaim
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.queues.queue import Queue
from stompbox.broker.queues.reclaim import purge
from stompbox.broker.work import HANDED
from stompbox.config.settings import AddressSetting
from stompbox.message import ANYCAST, Run, Shape
from tests.broker.test_very_many import FEW, MANY, lines
from tests.broker.world import Got, World

SMALL = 6000  # octets: about ten messages


def send(world: World, words: str, start: int = 0, *, name: str = "q") -> None:
    for number, word in enumerate(words, start):
        world.send(name, b"%d" % number, headers={"word": word})


def numbers(got: list[Got], consumer: str) -> list[int]:
    return [int(one.body) for one in got if one.consumer == consumer]


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("is_stored", [True, False])
def test_what_nobody_takes_does_not_keep_others_away(is_durable: bool, is_stored: bool) -> None:
    """Whether it is on the disk, on its way there or in memory alone."""
    world = World(page_size=SMALL, is_durable=is_durable)
    send(world, "a" * 40 + "b" + "a" * 40 + "b")
    if is_stored:
        world.commit()
    world.on_queue(world.consumer("b", AckMode.AUTO, selector="word = 'b'"), "q")
    assert numbers(world.settle(), "b") == [40, 81]
    assert world.queue("q").backlog.size <= SMALL


def test_what_a_slow_consumer_is_to_take_does_not_keep_others_away() -> None:
    world = World(page_size=SMALL)
    slow = world.on_queue(world.consumer("slow", prefetch=1, selector="word = 'a'"), "q")
    fast = world.on_queue(world.consumer("fast", AckMode.AUTO, selector="word = 'b'"), "q")
    send(world, "ab" * 100)
    world.commit()
    got = world.settle()
    assert numbers(got, "fast") == list(range(1, 200, 2))
    world.engine.flushed(fast)
    taken = numbers(got, "slow")
    while got:
        for one in got:
            if one.consumer == "slow":
                world.ack(slow, one)
        got = world.settle()
        taken += numbers(got, "slow")
    assert taken == list(range(0, 200, 2)), "in order, each once"
    assert world.queue("q").cursor.settle(200) == 200
    assert not world.queue("q").taken_ahead


def test_what_comes_later_is_found_at_once() -> None:
    world = World(page_size=SMALL)
    world.on_queue(world.consumer("b", AckMode.AUTO, selector="word = 'b'"), "q")
    send(world, "a" * 40)
    assert world.settle() == []
    world.commit()
    send(world, "aab", 40)
    assert numbers(world.settle(), "b") == [42]


def test_what_stands_behind_the_part_that_finds_no_room_is_found_at_once() -> None:
    """One run, of which the first messages are for nobody and have no room beside what waits."""
    world = World(page_size=SMALL)
    world.on_queue(world.consumer("b", AckMode.AUTO, selector="word = 'b'"), "q")
    send(world, "a" * 8)
    world.send("q", *[b"%d" % number for number in range(8, 49)], holes={"word": [b"a"] * 40 + [b"b"]})
    assert numbers(world.settle(), "b") == [48]


def test_a_search_is_not_repeated() -> None:
    """Who looked through a million messages for nothing does not look through them again for the next one."""
    world = World(page_size=SMALL)
    consumer = world.on_queue(world.consumer("b", prefetch=1, selector="word = 'b'"), "q")
    send(world, "a" * 300 + "bbbbb")
    world.commit()
    got = world.settle()
    (alike,) = world.queue("q").alikes
    for number in range(300, 305):
        assert numbers(got, "b") == [number]
        assert alike.searched >= 300
        world.ack(consumer, got[0])
        assert all(load.start >= 300 for load in world.engine.loads)
        got = world.settle()
    assert got == []


def test_who_of_very_many_gets_what_is_found_in_the_log_is_found_out_in_portions() -> None:
    """One run, of which each message is for others than the one before."""
    world, many = World(page_size=SMALL, portion=5_000), 200
    for number in range(many):
        world.on_queue(world.consumer(f"c{number}", prefetch=1, selector=f"word = '{'ab'[number % 2]}'"), "q")
    send(world, "n" * 20)
    assert world.settle() == []
    world.engine.work.begin()
    world.send("q", *[b"%d" % number for number in range(many)], holes={"word": [b"a", b"b"] * (many // 2)})
    found = world.out()
    assert 0 < len(found) <= 5_000 // HANDED
    found += world.settle()
    assert sorted(int(one.body) for one in found) == list(range(many)), "each once"
    assert all((int(one.body) - int(one.consumer[1:])) % 2 == 0 for one in found)
    assert len({one.consumer for one in found}) == many


def test_those_of_one_selector_get_what_is_found_in_the_log_in_turn() -> None:
    world = World(page_size=SMALL)
    send(world, "n" * 20)
    for number in range(4):
        world.on_queue(world.consumer(f"c{number}", prefetch=3, selector="word = 'a'"), "q")
    found: list[Got] = []
    for _ in range(8):
        send(world, "na")
        found += world.settle()
    assert [len([one for one in found if one.consumer == f"c{number}"]) for number in range(4)] == [2] * 4
    send(world, "aaaaaa")
    found += world.settle()
    assert [len([one for one in found if one.consumer == f"c{number}"]) for number in range(4)] == [3] * 4
    offsets = [one.offset for one in found]
    assert offsets == sorted(offsets)


def test_who_comes_with_a_selector_that_others_have_is_not_looked_for_from_the_beginning() -> None:
    world = World(page_size=SMALL)
    first = world.on_queue(world.consumer("first", prefetch=1, selector="word = 'a'"), "q")
    send(world, "n" * 100 + "aaa")
    world.commit()
    got = world.settle()
    assert numbers(got, "first") == [100]
    world.on_queue(world.consumer("second", prefetch=1, selector="word = 'a'"), "q")
    assert all(load.start >= 100 for load in world.engine.loads)
    assert numbers(world.settle(), "second") == [101]
    world.ack(first, got[0])
    assert numbers(world.settle(), "first") == [102]


def test_what_comes_back_is_delivered_again_once() -> None:
    world = World(page_size=SMALL)
    consumer = world.on_queue(world.consumer("b", selector="word = 'b'"), "q")
    send(world, "a" * 40 + "bb")
    world.commit()
    got = world.settle()
    assert numbers(got, "b") == [40, 41]
    world.ack(consumer, got[1])
    world.close(consumer)
    everything = world.on_queue(world.consumer("all", AckMode.AUTO), "q")
    came: list[Got] = []
    while got := world.settle():
        came += got
        world.engine.flushed(everything)
    assert sorted(numbers(came, "all")) == list(range(41)), "41 was acknowledged"
    assert [one.is_redelivered for one in came if one.body == b"40"] == [True]


def test_a_consumer_of_everything_gets_the_rest_in_order() -> None:
    world = World(page_size=SMALL)
    seeker = world.on_queue(world.consumer("b", AckMode.AUTO, selector="word = 'b'"), "q")
    send(world, "aaaaab" * 30)
    world.commit()
    assert len(world.settle()) == 30
    world.engine.flushed(seeker)
    everything = world.on_queue(world.consumer("all", AckMode.AUTO), "q")
    rest: list[int] = []
    while got := world.settle():
        rest += numbers(got, "all")
        world.engine.flushed(everything)
    assert rest == [number for number in range(180) if number % 6 != 5]
    assert not queue_of(world).is_paged


def queue_of(world: World) -> Queue:
    return world.queue("q")


def test_after_a_restart_what_was_found_and_not_answered_comes_again() -> None:
    world = World(page_size=SMALL)
    consumer = world.on_queue(world.consumer("b", selector="word = 'b'"), "q")
    send(world, "a" * 40 + "bbb")
    got = world.settle()
    world.ack(consumer, got[1])
    world.commit()
    world = world.restart()
    world.on_queue(world.consumer("b", selector="word = 'b'"), "q")
    assert [(int(one.body), one.is_redelivered) for one in world.settle()] == [(40, True), (42, True)]


def test_purging_leaves_what_was_found_to_its_consumer() -> None:
    world = World(page_size=SMALL)
    consumer = world.on_queue(world.consumer("b", selector="word = 'b'"), "q")
    send(world, "a" * 40 + "ba")
    (got,) = world.settle()
    purge(world.queue("q"))
    assert not world.queue("q").cursor.settle(42) > 40, "40 is not answered"
    world.ack(consumer, got)
    assert world.queue("q").cursor.settle(42) == 42


def send_run(world: World, words: str, start: int) -> None:
    bodies, columns = (
        [b"%d" % number for number in range(start, start + len(words))],
        ([word.encode() for word in words],),
    )
    shape = (
        Shape({"destination": "q"}, holes=("word",))
        if len(words) > 1
        else Shape({"destination": "q", "word": words})
    )
    world.engine.publish(
        world.address("q", ANYCAST), Run(shape, bodies, columns if len(words) > 1 else (), routing=ANYCAST)
    )


def test_who_has_credit_again_gets_what_is_in_memory_before_what_is_further_back() -> None:
    """Its refused message waits for its next attempt, and the queue looks for more before the consumer is fed."""
    world = World(AddressSetting(match="q", redelivery_delay=1000), page_size=1300, portion=1)
    send_run(world, "112", 0)
    send_run(world, "1", 3)
    reclaim.give_back(world.queue("q"))
    send_run(world, "12", 4)
    send_run(world, "2", 6)
    world.on_queue(world.consumer("auto", AckMode.AUTO, selector="word = '1'"), "q")
    world.on_queue(world.consumer("other", AckMode.CLIENT, selector="word = '1'"), "q")
    all_of_it = world.on_queue(world.consumer("all", AckMode.CLIENT, window=0), "q")
    got = [one for one in world.settle() if one.consumer == "all"]
    assert world.queue("q").paged_from == 6
    assert len(got) == 1
    world.nack(all_of_it, got[0])
    taken = numbers(got, "all")
    while got := [one for one in world.settle() if one.consumer == "all"]:
        taken += numbers(got, "all")
        world.ack(all_of_it, got[0])
    assert taken == sorted(taken)
    assert taken[-1] == 6


def test_who_has_credit_again_while_the_log_is_read_for_others_gets_what_is_further_forward_first() -> None:
    """The disk has been asked what is next for who has a selector; who takes everything acknowledges before it answers."""
    world = World(page_size=SMALL, chunk_bytes=500)
    for number in range(60):
        send(world, "a", number)
        world.commit()
    send_run(world, "bbbb", 60)
    world.commit()
    world = world.restart()
    every = world.on_queue(world.consumer("every", prefetch=20), "q")
    ones = world.on_queue(world.consumer("ones", prefetch=1, selector="word = 'b'"), "q")
    got: list[Got] = []
    while not any(load.start == 60 for load in world.loads + world.engine.loads):
        assert world.engine.dispatch_rest() or world.serve(max_bytes=1)
        got += world.out()
    for one in got:
        world.ack(every, one)
    taken: list[int] = []
    while got := world.settle():
        taken += numbers(got, "every")
        for one in got:
            world.ack(every if one.consumer == "every" else ones, one)
    assert taken == sorted(taken)


def test_a_queue_that_goes_before_it_has_read_on_takes_no_memory() -> None:
    """Another subscription keeps in the log's memory what it would have read."""
    world = World(page_size=2000)
    world.on_topic(world.consumer("stays", window=0), "t")
    goes = world.on_topic(world.consumer("goes", window=0), "t")
    for _ in range(10):
        world.send_to_topic("t", b"x" * 500)
    world.engine.work.spend(world.engine.work.portion)
    while got := [one for one in world.out() if one.consumer == "goes"]:
        world.ack(goes, got[0])
    assert len(world.engine.later) == 1, "what it would read waits for another turn"
    world.close(goes)
    world.settle()
    assert world.engine.memory.count == 1, "what waits for the one that stays"


def test_who_has_no_credit_is_not_asked_again_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is paged has very many consumers, all of which have what they want; who is fed is asked again."""
    world = World(page_size=4000)
    many = [
        world.on_queue(world.consumer(f"c{number}", selector="k = 'a'", prefetch=1), "q")
        for number in range(100)
    ]
    queue = world.queue("q")
    world.send("q", *[b"first"] * len(many), headers={"k": "a"})
    got = world.settle()
    while not queue.is_paged:
        world.send("q", b"next", headers={"k": "a"})
    world.settle()
    asked: list[object] = []
    ask = paging._is_fed
    monkeypatch.setattr(paging, "_is_fed", lambda *of: asked.append(of) or ask(*of))
    for number in range(20):
        world.send("q", b"last %d" % number, headers={"k": "a"})
    assert len(asked) <= len(many), "once, and not for each message"
    bodies: list[bytes] = []
    while got:
        bodies += [one.body for one in got]
        for one in got:
            world.ack(next(consumer for consumer in many if consumer.name == one.consumer), one)
        got = world.settle()
    assert bodies[-20:] == [b"last %d" % number for number in range(20)]


@pytest.mark.parametrize("word", ["x", "3"])
def test_a_message_in_the_log_alone_costs_a_look_at_each_selector_and_not_at_each_consumer(word: str) -> None:
    """For nobody, or for those of one of ten selectors; memory is full of what nobody takes."""
    found = {}
    for count in (FEW, MANY):
        world = World(AddressSetting(match="q", max_size_bytes=1000, page_size_bytes=1000))
        for _ in range(20):
            world.send("q", b"x" * 100, headers={"k": "nobody's"})
        for number in range(count):
            world.on_queue(world.consumer(str(number), prefetch=5, selector=f"k = '{number % 10}'"), "q")
        for _ in range(3):  # who takes a lane is found out once
            world.send("q", b"before", headers={"k": word})
            world.settle()
        before = world.engine.work.total + world.engine.work.done

        def more(world: World = world) -> None:
            world.send("q", b"found", headers={"k": word})
            assert len(world.settle()) == (word == "3")

        found[count] = lines(more)
        assert world.engine.work.total + world.engine.work.done - before < 5000
    assert found[MANY] < found[FEW] + 50, found
