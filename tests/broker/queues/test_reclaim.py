"""Windows that nobody looks through go when all memory is full, the idlest first; what was in them comes all the same, in order."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from stompbox.broker.queues import reclaim
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.queues.depth import depth_of
from stompbox.broker.queues.state import QueueState
from stompbox.config.settings import AddressFullPolicy, AddressSetting
from stompbox.message import ANYCAST, MULTICAST
from tests.broker.test_schedule import drained
from tests.broker.test_very_many import lines
from tests.broker.world import NOW, Got, World
from tests.server.world import uncollected

SIZE = 1000
LIMIT = 100 * SIZE


def filled(*rules: AddressSetting, persistent: bool = True, count: int = 4) -> World:
    """Queues a, b, c … with twenty messages each that nobody takes, one after the other by ten seconds; memory is nearly full then."""
    world = World(*rules, chunk_bytes=5 * SIZE)
    world.engine.memory.limit(LIMIT, -1)
    for name in "abcdefgh"[:count]:
        world.send(
            name,
            *[b"%s %02d" % (name.encode(), number) + bytes(SIZE) for number in range(20)],
            persistent=persistent,
        )
        world.commit()
        world.tick(10_000)
    return world


def press(world: World) -> None:
    """A message more than there is room for; and the server looks."""
    world.send("last", bytes(2 * LIMIT))
    assert world.engine.memory.is_pressed
    reclaim.relieve(world.engine)


def in_memory(world: World) -> dict[str, int]:
    return {queue.name: queue.backlog.count for queue in world.engine.queues.values()}


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("is_stored", [True, False])
def test_the_idlest_go_first_until_a_quarter_is_free(*, persistent: bool, is_stored: bool) -> None:
    """`is_stored`: what is given back is in the store when it is asked for; else it is on its way."""
    world = filled(persistent=persistent)
    world.on_queue(world.consumer(prefetch=1), "a")  # which was the idlest
    world.send("e", bytes(30 * SIZE))
    assert world.engine.memory.is_pressed
    reclaim.relieve(world.engine)
    assert in_memory(world) == {"a": 19, "b": 0, "c": 0, "d": 20, "e": 1}
    assert world.engine.memory.size <= LIMIT * 3 // 4
    assert world.engine.counters["given-back"] == 40
    if is_stored:
        world.commit()
    for name in "bcd":
        world.on_queue(world.consumer(name), name)
    got = [one.body[:4] for one in drained(world)]
    for name in "abcd":
        assert [body for body in got if body.startswith(name.encode())] == [
            b"%s %02d" % (name.encode(), number) for number in range(20)
        ]


def test_who_was_used_a_moment_ago_keeps_its_window() -> None:
    world = filled()
    for name in "abcd":
        world.on_queue(world.consumer(name, prefetch=1), name)
    press(world)
    assert in_memory(world) == dict.fromkeys("abcd", 19) | {"last": 1}
    world.tick(reclaim.IDLE)  # the engine looks again by itself
    assert world.engine.memory.size <= LIMIT * 3 // 4 or in_memory(world) == dict.fromkeys("abcd", 0) | {
        "last": 1
    }
    assert in_memory(world)["a"] == 0


def test_it_is_not_looked_all_the_time() -> None:
    world = filled()
    for name in "abcd":
        world.on_queue(world.consumer(name, prefetch=1), name)
    press(world)
    looked = world.engine.memory.looked
    world.engine.now += reclaim.AGAIN - 1
    reclaim.relieve(world.engine)
    assert world.engine.memory.looked == looked
    world.engine.now += 1
    reclaim.relieve(world.engine)
    assert world.engine.memory.looked == looked + reclaim.AGAIN


def test_senders_of_other_addresses_go_on() -> None:
    world = filled(AddressSetting(match="fast", address_full_policy=AddressFullPolicy.FAIL))
    consumer = world.on_queue(world.consumer(), "fast")
    world.send("e", bytes(30 * SIZE))
    limits = world.address("fast").limits
    assert limits is not None
    assert limits.look(), "nothing is taken there while memory is full"
    reclaim.relieve(world.engine)
    assert not limits.look()
    world.send("fast", b"goes")
    assert [got.body for got in world.out()] == [b"goes"]
    world.close(consumer)


def test_what_a_consumer_has_stays_with_it_and_nothing_comes_twice() -> None:
    world = filled(count=1)
    consumer = world.on_queue(world.consumer(prefetch=3), "a")
    held = world.out()
    world.nack(consumer, held.pop(1))  # it comes again at once
    held += world.out()
    world.tick(reclaim.IDLE)
    press(world)
    assert in_memory(world)["a"] == 0
    assert depth_of(world.queue("a")).total == 20
    got: list[Got] = []
    while held:
        got += held
        for one in held:
            world.ack(consumer, one)
        held = world.settle()
    assert sorted(one.offset for one in got) == list(range(20))
    assert [one.offset for one in got if one.is_redelivered] == [1]


def test_what_a_transaction_has_keeps_the_window() -> None:
    """It may be given back, and then the log must not give it, too."""
    world = filled(count=1)
    consumer = world.on_queue(world.consumer(prefetch=1), "a")
    (got,) = world.out()
    sent, _ = consumer.take(got.queue.id, got.offset, got.offset + 1)
    world.tick(reclaim.IDLE)
    press(world)
    assert in_memory(world)["a"] == 19
    world.engine.unhold(consumer, sent)
    world.ack(consumer, got)
    assert [one.offset for one in drained(world)] == list(range(1, 20))


@pytest.mark.parametrize("is_durable", [True, False])
def test_subscriptions_give_back_too(*, is_durable: bool) -> None:
    world = World(chunk_bytes=5 * SIZE)
    world.engine.memory.limit(LIMIT, -1)
    consumer = world.consumer(prefetch=1)
    world.on_durable(consumer, "name", "t") if is_durable else world.on_topic(consumer, "t")
    for number in range(60):
        world.send("t", b"%02d" % number + bytes(SIZE), routing=MULTICAST)
        world.commit()
    world.tick(reclaim.IDLE)
    press(world)
    (queue,) = world.engine.addresses["t"].queues()
    assert queue.backlog.count == 0
    world.commit()
    found = [int(got.body[:2]) for got in world.out()]
    consumer.prefetch = -1
    world.engine.feed(consumer)
    queue.dispatch()
    found += [int(got.body[:2]) for got in world.settle()]
    assert found == list(range(60))


def test_what_is_for_later_goes_too() -> None:
    world = World(chunk_bytes=5 * SIZE)
    world.engine.memory.limit(LIMIT, -1)
    for number in range(60):
        headers = {"AMQ_SCHEDULED_DELAY": "5000"} if number < 30 else {}
        world.send("q", b"%02d" % number + bytes(SIZE), headers=headers, persistent=number % 2 == 0)
    world.tick(reclaim.IDLE)
    press(world)
    queue = world.queue("q")
    assert (queue.backlog.count, queue.waits.count, depth_of(queue).delayed) == (0, 0, 30)
    world.commit()
    world.on_queue(world.consumer(), "q")
    assert [int(got.body[:2]) for got in drained(world)] == list(range(30, 60))
    world.tick(5000)
    assert [int(got.body[:2]) for got in drained(world)] == list(range(30))
    assert world.engine.addresses["q"].log.low_water() == 60


def test_they_come_with_the_next_start_as_if_nothing_had_been() -> None:
    world = filled()
    press(world)
    world.commit()
    world = world.restart()
    for name in "abcd":
        world.on_queue(world.consumer(name), name)
    assert sorted(got.body[:4] for got in drained(world)) == sorted(
        b"%c %02d" % (name, n) for name in b"abcd" for n in range(20)
    )


@pytest.mark.parametrize("is_stored", [True, False])
def test_what_a_consumer_took_out_of_the_log_and_gave_back_comes_again(*, is_stored: bool) -> None:
    """It was sought beyond what is in memory; back in the log alone, it is found there like the rest."""
    world = World(page_size=1300)
    consumer = world.on_queue(world.consumer(selector="word = '2'", prefetch=1), "q")
    for word in "111112":
        world.send("q", word.encode() + bytes(300), headers={"word": word})
    if is_stored:
        world.commit()
    while world.engine.dispatch_rest() or world.serve():  # it has the message, which has not left
        pass
    assert 5 in world.queue("q").taken_ahead
    world.close(consumer)
    reclaim.give_back(world.queue("q"))
    assert world.queue("q").count == 0
    world.on_queue(world.consumer("other"), "q")
    assert [got.offset for got in world.settle()] == list(range(6))


@pytest.mark.parametrize("is_durable", [True, False])
def test_what_the_log_alone_has_stays_the_queues_when_what_lies_behind_it_goes_back(
    *, is_durable: bool
) -> None:
    """Memory has nothing but a message that a consumer took out of the log and gave back; the log has one before it."""
    world = World(page_size=1300, portion=1, is_durable=is_durable)
    world.send("q", b"first", headers={"word": "1"})
    reclaim.give_back(world.queue("q"))
    consumer = world.on_queue(world.consumer(selector="word = '2'"), "q")
    world.send("q", b"second", headers={"word": "2"})
    world.send("q", b"third", headers={"word": "1"})
    assert 1 in world.queue("q").taken_ahead  # the consumer has it, and it has not left
    world.close(consumer)
    reclaim.give_back(world.queue("q"))
    assert world.queue("q").count == 0
    world.on_queue(world.consumer("other"), "q")
    assert [got.offset for got in world.settle()] == [0, 1, 2]


def test_what_was_never_for_a_queue_is_not_kept_for_it() -> None:
    """Its window holds what was delivered before, which stays, and the log goes on behind it with a message for topics alone."""
    world = World()
    world.send("w", b"0", routing=ANYCAST)
    world.send("w", b"1", routing=MULTICAST)
    consumer = world.on_queue(world.consumer("c", AckMode.AUTO), "w")
    assert [got.offset for got in world.settle()] == [0]
    world.close(consumer)
    reclaim.give_back(world.queue("w"))
    world.send("w", b"2", routing=ANYCAST)
    consumer = world.on_queue(world.consumer("d", AckMode.AUTO), "w")
    assert [got.offset for got in world.settle()] == [0, 2]
    world.engine.flushed(consumer)
    world.commit()
    log = world.queue("w").address.log
    assert world.queue("w").cursor.settle(log.next) == 3
    assert world.store.sizes([log.id])[log.id][0] == 0, "nothing is left in the store"


def longest_step(count: int, taken: int) -> int:
    """Lines of the longest step in which a queue gives back so many messages, of which each is a run, beside those that a consumer has."""
    world = World()
    world.on_queue(world.consumer(prefetch=taken), "q")
    for number in range(taken + count):
        world.send("q", b"x", headers={f"h-{number % 2}": "1"})
    assert len(world.settle()) == taken
    world.commit()
    world.tick(10_000)
    steps, ended = reclaim.giving_back(world.queue("q")), object()
    found: list[object] = []
    longest = 0
    while ended not in found:
        longest = max(longest, lines(lambda: found.append(next(steps, ended))))
    assert in_memory(world) == {"q": 0}
    assert world.engine.counters["given-back"] == count
    return longest


def test_no_step_is_longer_the_more_is_given_back_and_the_more_a_consumer_has() -> None:
    """Each of those that wait was held against all that the consumer has, in one step: seconds for 10,000 and 100,000."""
    few, many = longest_step(1000, 50), longest_step(4000, 200)
    assert many <= few + 500, (few, many)


def queues() -> int:
    return sum(isinstance(found, QueueState) for found in gc.get_objects())


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"redelivery_delay": 1000},
        {"default_last_value_key": "k"},
        {"default_ring_size": 5},
        {"max_size_messages": 4},
    ],
    ids=lambda rule: next(iter(rule), "plain"),
)
@pytest.mark.parametrize("selector", ["", "a = 1", "XPATH '//b'"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"AMQ_SCHEDULED_DELAY": "1000"}, {"JMSXGroupID": "g"}, {"k": "v"}],
    ids=lambda headers: next(iter(headers), "none"),
)
@pytest.mark.parametrize("lives", [0, 60_000])
def test_a_queue_that_is_gone_leaves_memory_at_once(
    rule: dict[str, Any], selector: str, headers: dict[str, str], lives: int
) -> None:
    """With all that waited in it; and not when the collector comes, which it may not do for an hour."""

    def come_and_go() -> None:
        consumer = world.on_topic(world.consumer(selector=selector, prefetch=2), "t")
        expires = NOW + lives if lives else 0
        for number in range(8):
            body = b"<b>%d</b>" % number
            world.send("t", body, routing=MULTICAST, headers={"a": "1", **headers}, expires=expires)
            world.engine.dispatch_rest()
        for got in world.settle()[:1]:
            world.nack(consumer, got)
        assert queues() > before
        world.close(consumer)
        world.settle()

    world = World(AddressSetting(match="#", **rule))
    with uncollected():
        before = queues()
        come_and_go()
        assert not world.engine.queues
        assert queues() == before
