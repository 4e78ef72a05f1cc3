"""Sharing, order, paging, redelivery: what a queue does with its messages."""

from __future__ import annotations

import pytest

from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.config.settings import AddressSetting
from stompbox.message import ANYCAST, MULTICAST
from tests.broker.world import Got, World

SMALL = 6000  # octets: about ten messages


def send(
    world: World,
    start: int,
    stop: int,
    *,
    name: str = "q",
    routing: int = ANYCAST,
    persistent: bool | None = None,
) -> None:
    for number in range(start, stop):
        world.send(name, b"%d" % number, routing=routing, persistent=persistent)


def numbers(got: list[Got]) -> list[int]:
    return [int(one.body) for one in got]


def eat(world: World, consumer: Consumer) -> list[int]:
    """Everything that there is for an auto consumer."""
    found: list[int] = []
    while got := world.settle():
        found += numbers(got)
        world.engine.flushed(consumer)
    return found


# Fairness


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_equally_fast_consumers_get_even_shares(size: int, count: int) -> None:
    """None gets less than half of its even share, whether messages come alone or in large runs."""
    world = World()
    for number in range(count):
        world.on_queue(world.consumer(f"c{number}"), "q")
    for _ in range(3000 // size):
        world.send("q", *[b"x"] * size)
    got = [one.consumer for one in world.settle()]
    assert min(got.count(f"c{number}") for number in range(count)) >= 3000 // count // 2


def test_a_slow_consumer_leaves_its_share_to_others() -> None:
    world = World()
    world.on_queue(world.consumer("slow", prefetch=1), "q")
    world.on_queue(world.consumer("fast", AckMode.AUTO), "q")
    world.send("q", *[b"x"] * 100)
    got = [one.consumer for one in world.settle()]
    assert (got.count("slow"), got.count("fast")) == (1, 99)


def test_no_message_is_with_two() -> None:
    world = World()
    for number in range(4):
        world.on_queue(world.consumer(f"c{number}", prefetch=number), "q")
    send(world, 0, 50)
    got = world.settle()
    assert len({one.offset for one in got}) == len(got)


# Order


def test_what_comes_back_goes_before_what_did_not_go() -> None:
    world = World()
    send(world, 0, 6)
    first = world.on_queue(world.consumer("first", prefetch=3), "q")
    assert numbers(world.out()) == [0, 1, 2]
    world.close(first)
    world.on_queue(world.consumer("second"), "q")
    assert [(int(one.body), one.is_redelivered, one.deliveries) for one in world.out()] == [
        (0, True, 1), (1, True, 1), (2, True, 1), (3, False, 0), (4, False, 0), (5, False, 0),
    ]  # fmt: skip


def test_refused_messages_keep_their_place() -> None:
    world = World()
    send(world, 0, 4)
    consumer = world.on_queue(world.consumer(prefetch=2), "q")
    got = world.out()
    world.nack(consumer, got[1])
    world.nack(consumer, got[0])
    assert numbers(world.out()) == [1, 0], "as they were refused; both before 2"
    assert numbers(world.out()) == []


def test_what_was_never_written_was_not_delivered() -> None:
    """Handed out in the same turn in which the connection went: neither redelivered nor an attempt."""
    world = World()
    send(world, 0, 2)
    consumer = world.on_queue(world.consumer(), "q")
    world.close(consumer, is_failure=True)
    world.on_queue(world.consumer("next"), "q")
    assert [(int(one.body), one.is_redelivered, one.deliveries) for one in world.out()] == [
        (0, False, 0),
        (1, False, 0),
    ]


def test_of_what_is_lost_only_what_was_written_was_delivered() -> None:
    world = World()
    consumer = world.on_queue(world.consumer(), "q")
    send(world, 0, 2)
    world.out()
    send(world, 2, 4)
    world.close(consumer, is_failure=True)
    world.on_queue(world.consumer("next"), "q")
    assert [(int(one.body), one.is_redelivered) for one in world.out()] == [
        (0, True),
        (1, True),
        (2, False),
        (3, False),
    ]


# Attempts


def test_attempts_that_count() -> None:
    """NACK and a lost connection count; an orderly end of the subscription does not. Each delivery is counted."""
    world = World(AddressSetting(match="q", max_delivery_attempts=2))
    send(world, 0, 1)
    for deliveries, way in enumerate(["orderly", "lost", "orderly", "nack"]):
        consumer = world.on_queue(world.consumer(), "q")
        (got,) = world.out()
        assert (got.is_redelivered, got.deliveries) == (deliveries > 0, deliveries)
        if way == "nack":
            world.nack(consumer, got)
        world.close(consumer, is_failure=way == "lost")
    world.on_queue(world.consumer(), "q")
    assert world.settle() == [], "the second failure was the last"
    assert world.engine.counters["dead"] == 1
    assert world.queue("q").cursor.position == 1


# Paging


@pytest.mark.parametrize("kind", ["queue", "durable", "topic"])
@pytest.mark.parametrize("is_durable", [True, False])
def test_a_backlog_larger_than_memory_comes_in_order(kind: str, is_durable: bool) -> None:
    world = World(page_size=SMALL, is_durable=is_durable, chunk_bytes=1000)
    routing = ANYCAST if kind == "queue" else MULTICAST
    consumer = world.consumer(prefetch=1)
    if kind == "durable":
        world.on_durable(consumer, "d", "x")
    elif kind == "topic":
        world.on_topic(consumer, "x")
    else:
        world.on_queue(consumer, "x")
    found: list[int] = []
    sent = 0
    for _ in range(400):
        if sent < 200:
            send(world, sent, sent + 20, name="x", routing=routing)
            sent += 20
        if sent % 60 == 0:
            world.commit()
        for got in world.settle():
            found.append(int(got.body))
            world.ack(consumer, got)
    assert found == list(range(200))
    queue = next(iter(world.engine.queues.values()))
    assert not queue.is_paged
    world.commit()
    world.commit()
    assert world.store.sizes([1])[1][0] == 0, "what was consumed is not kept"


def test_memory_is_bounded() -> None:
    """Whatever a message weighs: body, headers, or next to nothing."""
    for body, note in ((b"x" * 1000, ""), (b"", "x" * 1000), (b"", "")):
        world = World(page_size=100_000)
        for _ in range(2000):
            world.send("q", body, headers={"note": note} if note else {})
            world.commit()
        queue = world.queue("q")
        assert queue.is_paged
        assert queue.backlog.size <= 100_000
        assert world.engine.unsaved == 0


def test_messages_that_are_not_persistent_are_paged_too() -> None:
    world = World(page_size=SMALL)
    send(world, 0, 40, persistent=False)
    assert world.queue("q").is_paged
    world.commit()
    consumer = world.on_queue(world.consumer(ack=AckMode.AUTO), "q")
    assert eat(world, consumer) == list(range(40))


def test_gaps_in_the_log_do_not_hold_up_the_cursor() -> None:
    """A paged durable subscription with a selector: nobody stores what it does not want."""
    world = World(page_size=SMALL)
    consumer = world.on_durable(world.consumer(selector="word = 'a'"), "d", "t")
    world.close(consumer)
    for number in range(90):
        world.send_to_topic("t", b"%d" % number, headers={"word": "abc"[number % 3]})
    world.commit()
    consumer = world.on_durable(world.consumer(ack=AckMode.AUTO, selector="word = 'a'"), "d", "t")
    assert eat(world, consumer) == list(range(0, 90, 3))
    cursor = next(iter(world.engine.queues.values())).cursor
    assert (cursor.settle(90), list(cursor.ahead)) == (90, [])


def test_acknowledged_gaps_while_it_is_loaded() -> None:
    """Ranges that a load takes in change while it goes through the gaps between them."""
    world = World(page_size=1 << 20)
    consumer = world.on_durable(world.consumer(selector="word = 'a'"), "d", "t")
    words = b"babab"
    world.send(
        "t",
        *[b"%d" % number for number in range(5)],
        routing=MULTICAST,
        holes={"word": [bytes([word]) for word in words]},
    )
    got = world.out()
    assert numbers(got) == [1, 3]
    world.ack(consumer, got[0])
    world.commit()
    world = world.restart()
    world.on_durable(world.consumer(selector="word = 'a'"), "d", "t")
    assert numbers(world.settle()) == [3]


def test_a_late_answer_from_the_disk_loses_nothing() -> None:
    world = World(page_size=SMALL)
    send(world, 0, 60)
    world.commit()
    consumer = world.on_queue(world.consumer(ack=AckMode.AUTO), "q")
    world.out()
    world.engine.flushed(consumer)
    (load,) = world.engine.loads
    send(world, 60, 80)
    world.commit()
    send(world, 80, 90)
    found = eat(world, consumer)
    assert found == list(range(len(numbers(world.out())) + load.start, 90))


def test_answers_for_a_queue_that_is_gone_are_ignored() -> None:
    world = World(page_size=SMALL)
    send(world, 0, 60, name="t", routing=MULTICAST)
    consumer = world.on_topic(world.consumer(prefetch=1), "t")
    send(world, 60, 120, name="t", routing=MULTICAST)
    world.commit()
    (got,) = world.out()
    assert not world.engine.loads
    world.close(consumer)
    assert not world.serve()
    assert got.body == b"60"
    world.commit()
    assert world.engine.addresses["t"].log.low_water() == 120, "its mark is gone with it"


def test_a_plain_subscription_with_a_selector_costs_no_memory_for_what_it_skips() -> None:
    world = World()
    consumer = world.on_topic(world.consumer(ack=AckMode.AUTO, selector="word = 'a'"), "t")
    for number in range(200):
        world.send_to_topic("t", b"%d" % number, headers={"word": "ab"[number % 2]})
        world.out()
        world.engine.flushed(consumer)
    queue = next(iter(world.engine.queues.values()))
    assert len(queue.cursor.ahead) == 0


def test_a_queue_stopped_halfway_goes_on() -> None:
    """Many segments are handed out in portions, so that others get their turn; order holds meanwhile."""
    world = World()
    send(world, 0, 2500)
    world.on_queue(world.consumer(), "q")
    first = numbers(world.out())
    assert 0 < len(first) < 2500
    send(world, 2500, 2510)
    assert first + numbers(world.settle()) == list(range(2510))


def test_expired_messages_are_not_delivered() -> None:
    world = World()
    world.send("q", b"0", expires=world.engine.now + 100)
    world.send("q", b"1")
    world.tick(100)
    world.on_queue(world.consumer(), "q")
    assert numbers(world.settle()) == [1]
    assert world.engine.counters["expired"] == 1


def test_a_reader_of_the_past_takes_nothing_from_the_expiry_address() -> None:
    world = World(AddressSetting(match="s", retention_messages=100, expiry_address="gone"))
    world.send("s", b"0", b"1", routing=MULTICAST, expires=world.engine.now + 100)
    world.tick(100)
    for name in ("one", "two"):
        world.on_stream(world.consumer(name), "s", 0)
    assert world.settle() == []
    assert "gone" not in world.engine.addresses
