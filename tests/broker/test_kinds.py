"""Kinds of queues: ring, last value, purged, disabled, exclusive, priorities, dispatch that waits; what settings make of them."""

from __future__ import annotations

import pytest

from stompbox.broker.kinds import PLAIN, Rules, rules_of
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.reclaim import purge
from stompbox.config import QueueTable
from stompbox.config.settings import AddressSetting, AddressSettings
from stompbox.errors import Refused
from stompbox.message import MULTICAST
from tests.broker.world import Got, World


def bodies(found: list[Got]) -> str:
    return b"".join(got.body for got in found).decode()


def ready(
    world: World, name: str, *, priority: int = 0, is_exclusive: bool = False, prefetch: int = -1
) -> Consumer:
    consumer = Consumer(
        name, AckMode.INDIVIDUAL, session=1, prefetch=prefetch, priority=priority, is_exclusive=is_exclusive
    )
    return world.on_queue(consumer, "q")


def send(world: World, text: str, **headers: str) -> None:
    for letter in text:
        world.send("q", letter.encode(), headers=headers)


def by_consumer(found: list[Got]) -> dict[str, str]:
    return {
        name: bodies([got for got in found if got.consumer == name])
        for name in {got.consumer for got in found}
    }


@pytest.mark.parametrize(
    ("settings", "table", "expected"),
    [
        ({}, None, PLAIN),
        ({"default_ring_size": 5}, None, Rules(ring_size=5)),
        ({"default_ring_size": 5}, QueueTable(name="q", ring_size=7), Rules(ring_size=7)),
        ({"default_last_value_queue": True}, None, Rules(last_value_key="_AMQ_LVQ_NAME")),
        ({"default_last_value_key": "id"}, None, Rules(last_value_key="id")),
        ({"default_last_value_key": "id"}, QueueTable(name="q", last_value=False), PLAIN),
        ({}, QueueTable(name="q", last_value=True, last_value_key="id"), Rules(last_value_key="id")),
        ({"default_exclusive_queue": True}, QueueTable(name="q", exclusive=False), PLAIN),
        ({"default_exclusive_queue": True}, QueueTable(name="q"), Rules(is_exclusive=True)),
        ({"default_purge_on_no_consumers": True}, None, Rules(is_purged=True)),
        ({"default_non_destructive": True}, None, Rules(is_non_destructive=True)),
        (
            {"default_group_first_key": "first", "default_group_buckets": 4},
            None,
            Rules(group_first_key="first", group_buckets=4),
        ),
        (
            {"default_max_consumers": 3},
            QueueTable(name="q", enabled=False),
            Rules(is_enabled=False, max_consumers=3),
        ),
    ],
)
def test_rules(settings: dict[str, object], table: QueueTable | None, expected: Rules) -> None:
    assert rules_of(AddressSettings(**settings), table) == expected  # type: ignore[arg-type]


# Ring


def test_ring_keeps_the_newest() -> None:
    world = World(AddressSetting(match="q", default_ring_size=3))
    world.send("q", b"a", b"b")
    world.send("q", b"c", b"d", b"e")
    assert world.engine.counters["overwritten"] == 2
    ready(world, "c")
    assert bodies(world.settle()) == "cde"
    world.commit()
    world = world.restart()
    ready(world, "c")
    assert bodies(world.settle()) == "cde", "what was dropped does not come again"


def test_ring_counts_what_came_before_a_restart() -> None:
    world = World(AddressSetting(match="q", default_ring_size=2))
    world.send("q", b"0")
    world.commit()
    world = world.restart()
    for body in (b"1", b"2", b"3"):
        world.send("q", body)
        world.commit()
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"2", b"3"]


def test_ring_leaves_what_is_being_delivered() -> None:
    world = World(AddressSetting(match="q", default_ring_size=2))
    consumer = ready(world, "c", prefetch=2)
    send(world, "abcdef")
    found = world.settle()
    assert bodies(found) == "ab"
    assert world.queue("q").backlog.count == 2
    world.nack(consumer, found[0])
    assert world.queue("q").backlog.count <= 2
    assert consumer.messages_out == 2


def test_ring_of_what_does_not_fit_in_memory() -> None:
    world = World(AddressSetting(match="q", default_ring_size=5), page_size=3000)
    for i in range(200):
        world.send("q", b"%03d" % i)
        world.settle()
        world.commit()
    ready(world, "c")
    assert [got.body for got in world.settle()] == [b"%03d" % i for i in range(195, 200)]


# Last value


def test_last_value_replaces_what_waits() -> None:
    world = World(AddressSetting(match="q", default_last_value_key="id"))
    for key, body in ("1", b"a"), ("2", b"b"), ("1", b"c"), ("", b"d"), ("", b"e"):
        world.send("q", body, headers={"id": key} if key else {})
    assert world.engine.counters["replaced"] == 1
    ready(world, "c")
    assert bodies(world.settle()) == "bcde"


def test_last_value_within_a_run() -> None:
    world = World(AddressSetting(match="q", default_last_value_queue=True))
    world.send("q", b"a", b"b", b"c", holes={"_AMQ_LVQ_NAME": [b"1", b"2", b"1"]})
    ready(world, "c")
    assert bodies(world.settle()) == "bc"


def test_last_value_in_delivery_is_left_alone_and_not_delivered_again() -> None:
    world = World(AddressSetting(match="q", default_last_value_key="id"))
    consumer = ready(world, "c", prefetch=1)
    send(world, "a", id="1")
    (first,) = world.settle()
    send(world, "bc", id="1")
    world.nack(consumer, first)
    (second,) = world.settle()
    assert second.body == b"c"
    assert world.engine.counters["replaced"] == 2
    world.ack(consumer, second)
    send(world, "d", id="1")
    assert bodies(world.settle()) == "d"


def test_last_value_forgets_keys_of_what_is_gone() -> None:
    world = World(AddressSetting(match="q", default_last_value_key="id"))
    consumer = ready(world, "c")
    for i in range(100):
        world.send("q", b"x", headers={"id": str(i)})
    for got in world.settle():
        world.ack(consumer, got)
    admission = world.queue("q").admission
    assert admission is not None
    assert admission._latest == {}


def test_last_value_over_a_restart() -> None:
    rule = AddressSetting(match="q", default_last_value_key="id")
    world = World(rule)
    for i in range(6):
        world.send("q", b"%d" % i, headers={"id": str(i % 2)})
        world.commit()
    world = world.restart()
    ready(world, "c")
    assert bodies(world.settle()) == "45"


# Purged, disabled


def test_purged_when_the_last_consumer_leaves() -> None:
    world = World(AddressSetting(match="q", default_purge_on_no_consumers=True))
    consumer, other = ready(world, "c", prefetch=1), ready(world, "d", prefetch=1)
    send(world, "abcd")
    world.settle()
    world.close(other)
    assert world.queue("q").backlog.count > 0
    world.close(consumer)
    queue = world.queue("q")
    assert queue.backlog.count == queue.waits.count == 0
    send(world, "e")
    assert queue.backlog.count == 0, "nothing comes in while nobody consumes"
    ready(world, "c")
    send(world, "f")
    assert bodies(world.settle()) == "f"
    assert world.engine.counters["purged"] == 5


def test_purge_takes_what_is_in_the_log_alone() -> None:
    world = World(page_size=2000)
    for _ in range(20):
        world.send("q", b"x" * 100)
        world.commit()
    queue = world.queue("q")
    assert queue.is_paged
    purge(queue)
    world.commit()
    assert not queue.is_paged
    assert world.store.sizes([1])[1][0] == 0
    ready(world, "c")
    send(world, "z")
    assert bodies(world.settle()) == "z"


def test_nothing_is_routed_to_a_disabled_queue() -> None:
    world = World()
    world.send("q", b"a")
    queue = world.queue("q")
    queue.obey(Rules(is_enabled=False))
    world.send("q", b"b")
    other = world.engine.anycast_queue(world.engine.addresses["q"], "other")
    world.send("q", b"c")
    assert (queue.backlog.count, other.backlog.count) == (1, 1)
    queue.obey(PLAIN)
    ready(world, "r")
    assert bodies(world.settle()) == "a"


def test_disabled_queue_of_a_topic() -> None:
    world = World()
    world.on_durable(world.consumer("d"), "d", "t")
    queue = next(iter(world.engine.addresses["t"].topics.values()))
    queue.obey(Rules(is_enabled=False))
    world.send("t", b"a", routing=MULTICAST)
    assert world.settle() == []
    assert world.engine.counters["disabled"] == 1


# Who gets messages


def test_exclusive_queue_has_one_taker_and_the_next_takes_over() -> None:
    world = World(AddressSetting(match="q", default_exclusive_queue=True))
    first = ready(world, "a", prefetch=2)
    ready(world, "b")
    send(world, "1234")
    assert by_consumer(world.settle()) == {"a": "12"}
    world.close(first)
    assert by_consumer(world.settle()) == {"b": "1234"}


def test_exclusive_consumer_comes_before_others() -> None:
    world = World()
    ready(world, "a")
    send(world, "1")
    assert by_consumer(world.settle()) == {"a": "1"}
    boss = ready(world, "b", is_exclusive=True)
    ready(world, "c", is_exclusive=True)
    send(world, "23")
    assert by_consumer(world.settle()) == {"b": "23"}
    world.close(boss)
    assert by_consumer(world.settle()) == {"c": "23"}


def test_takeover_without_anything_in_flight() -> None:
    world = World(AddressSetting(match="q", default_exclusive_queue=True))
    first = ready(world, "a", prefetch=1)
    ready(world, "b")
    send(world, "12")
    (got,) = world.settle()
    world.ack(first, got)
    (got,) = world.settle()
    send(world, "3")
    world.close(first)
    assert by_consumer(world.settle()) == {"b": "23"}


def test_higher_priority_first_as_long_as_it_has_credit() -> None:
    world = World()
    ready(world, "low", priority=-1)
    high = ready(world, "high", priority=5, prefetch=2)
    ready(world, "mid", prefetch=1)
    send(world, "12345")
    found = world.settle()
    assert by_consumer(found) == {"high": "12", "mid": "3", "low": "45"}
    world.ack(high, next(got for got in found if got.consumer == "high"))
    send(world, "67")
    assert by_consumer(world.settle()) == {"high": "6", "low": "7"}


def test_priority_among_consumers_with_selectors() -> None:
    world = World()
    for name, priority in (("low", 0), ("high", 1)):
        consumer = world.consumer(name, selector="id = '1'")
        consumer.priority = priority
        world.on_queue(consumer, "q")
    send(world, "ab", id="1")
    assert by_consumer(world.settle()) == {"high": "ab"}


def test_dispatch_waits_for_consumers() -> None:
    world = World(AddressSetting(match="q", default_consumers_before_dispatch=2))
    send(world, "12")
    first = ready(world, "a")
    assert world.settle() == []
    second = ready(world, "b")
    assert set(by_consumer(world.settle())) == {"a", "b"}
    world.close(second)
    world.settle()
    assert first.messages_out == 2, "one that is left goes on"
    world.close(first)
    ready(world, "c")
    assert world.settle() == [], "and it begins anew when all have left"


def test_dispatch_waits_no_longer_than_the_delay() -> None:
    world = World(
        AddressSetting(match="q", default_consumers_before_dispatch=2, default_delay_before_dispatch=500)
    )
    send(world, "1")
    first = ready(world, "a")
    world.tick(400)
    world.close(first)
    ready(world, "b")
    world.tick(499)
    assert world.settle() == [], "counted from the consumer that is there"
    world.tick(1)
    assert bodies(world.settle()) == "1"


def test_max_consumers() -> None:
    world = World(AddressSetting(match="q", default_max_consumers=1))
    first = ready(world, "a")
    with pytest.raises(Refused, match="takes no more than 1"):
        ready(world, "b")
    world.close(first)
    ready(world, "c")


def test_pause_and_resume() -> None:
    world = World()
    ready(world, "a")
    queue = world.queue("q")
    queue.pause()
    send(world, "1")
    assert world.settle() == []
    queue.resume()
    assert bodies(world.settle()) == "1"


@pytest.mark.parametrize("ack", list(AckMode))
@pytest.mark.parametrize("portion", [1, 7, 1000])
def test_fair_shares(ack: AckMode, portion: int) -> None:
    """Of equally fast consumers none gets less than half of its even share, whatever the sizes of runs."""
    world = World()
    consumers = [world.on_queue(world.consumer(f"c{i}", ack, prefetch=10), "q") for i in range(4)]
    got = dict.fromkeys([consumer.name for consumer in consumers], 0)
    for start in range(0, 6000, portion):
        world.send("q", *[b"x"] * min(portion, 6000 - start), persistent=False)
        for _ in range(3):
            found = world.settle()
            for each in found:
                got[each.consumer] += 1
            for consumer in consumers:
                if ack is AckMode.AUTO:
                    world.engine.flushed(consumer)
                else:
                    mine = [each for each in found if each.consumer == consumer.name]
                    if mine and ack is AckMode.CLIENT:
                        world.ack(consumer, mine[-1])
                    for each in mine if ack is AckMode.INDIVIDUAL else []:
                        world.ack(consumer, each)
    total = sum(got.values())
    assert total > 500
    assert min(got.values()) * 8 >= total


def test_fair_shares_with_selectors() -> None:
    world = World()
    for i in range(3):
        world.on_queue(world.consumer(f"c{i}", AckMode.AUTO, selector="id = '1'" if i else ""), "q")
    for _ in range(300):
        world.send("q", b"x", headers={"id": "1"}, persistent=False)
    counts = by_consumer(world.settle())
    assert min(map(len, counts.values())) >= 50
