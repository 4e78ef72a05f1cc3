"""How much an address may hold, and what becomes of what is too much."""

from __future__ import annotations

from typing import Any, cast

import pytest

from stompbox.broker.addresses import duplicates, limits
from stompbox.broker.addresses.address import Address
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.queues.reclaim import purge
from stompbox.broker.transactions import Transaction
from stompbox.config.settings import AddressFullPolicy, AddressSetting, PageFullPolicy
from stompbox.errors import Refused
from stompbox.handles import Large
from stompbox.message import ANYCAST, MULTICAST, Run, Shape
from tests.broker.world import World, run_of

BODY = b"x" * 100
EACH = 100 + Shape({"destination": "q"}).octets  # bytes of one such message, as they count
FAIL, DROP, BLOCK = AddressFullPolicy.FAIL, AddressFullPolicy.DROP, AddressFullPolicy.BLOCK


def world(policy: AddressFullPolicy, *, match: str = "q", **settings: Any) -> World:
    return World(AddressSetting(match=match, address_full_policy=policy, **settings))


def limits_of(world: World, name: str = "q") -> limits.AddressLimits:
    found = world.address(name).limits
    assert found is not None
    return found


def fits(world: World, count: int, name: str = "q") -> int:
    """How many of so many messages would be taken now."""
    run = run_of(name, *[BODY] * count)
    return limits_of(world, name).fitting(run.shape, run.bodies, limits_of(world, name).room())


def events(world: World) -> list[tuple[str, bool, int]]:
    """What became full, and what did not stay so."""
    found = [(limit.address.name, is_full, dropped) for limit, is_full, dropped in world.engine.full]
    world.engine.full.clear()
    return found


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({"max_size_messages": 3}, 3),
        ({"max_size_bytes": 3 * EACH}, 3),
        ({"max_size_bytes": 3 * EACH + 1}, 4),  # the last one may go beyond
        ({"max_size_bytes": 5 * EACH, "max_size_messages": 2}, 2),
        ({"max_size_bytes": 1}, 1),
        ({"max_size_bytes": 0}, 0),
        ({}, 9),
    ],
)
@pytest.mark.parametrize("policy", [FAIL, DROP, BLOCK])
def test_messages_fit_as_long_as_there_is_any_room(
    policy: AddressFullPolicy, settings: dict[str, int], taken: int
) -> None:
    assert fits(world(policy, **settings), 9) == taken


def test_what_is_not_acknowledged_is_not_consumed() -> None:
    played = world(FAIL, max_size_messages=3)
    consumer = played.on_queue(played.consumer(), "q")
    played.send("q", BODY, BODY, BODY)
    got = played.out()
    assert len(got) == 3
    assert fits(played, 2) == 0
    played.ack(consumer, got[1])
    assert fits(played, 2) == 1
    played.nack(consumer, got[0])
    assert fits(played, 2) == 1, "it comes again"


def test_size_does_not_depend_on_where_messages_are() -> None:
    """In memory, with a consumer, in the log alone: it is one size."""
    played = World(
        AddressSetting(match="q", address_full_policy=FAIL, max_size_bytes=100 * EACH), page_size=4000
    )
    for _ in range(20):
        played.send("q", BODY, BODY, BODY)
    assert played.queue("q").is_paged
    assert limits_of(played).size() == (60 * EACH, 60)
    played.commit()
    consumer = played.on_queue(played.consumer(), "q")
    got = played.settle()
    assert (len(got), limits_of(played).size()) == (60, (60 * EACH, 60))
    for one in got:
        played.ack(consumer, one)
    assert limits_of(played).size() == (0, 0)


def test_a_transaction_is_taken_whole_or_not_at_all() -> None:
    played = world(FAIL, max_size_messages=3)
    played.send("q", BODY)
    other = played.address("other")
    transaction = Transaction("t")
    transaction.sends += [(other, run_of("other", BODY))]
    transaction.sends += [
        (played.address("q"), run_of("q", BODY, BODY)),
        (played.address("q"), run_of("q", BODY)),
    ]
    with pytest.raises(Refused, match="max-size-messages 3") as refusal:
        played.engine.commit(transaction)
    assert refusal.value.code == "address-full"
    assert (other.log.next, played.address("q").log.next) == (0, 1)
    again = Transaction("t")
    again.sends += [(other, run_of("other", BODY)), (played.address("q"), run_of("q", BODY, BODY))]
    played.engine.commit(again)
    assert (other.log.next, played.address("q").log.next) == (1, 3)


def test_an_aborted_acknowledgement_makes_no_room() -> None:
    played = world(FAIL, max_size_messages=1)
    consumer = played.on_queue(played.consumer(), "q")
    played.send("q", BODY)
    (got,) = played.out()
    transaction = Transaction("t")
    played.hold(transaction, consumer, got)
    assert fits(played, 1) == 0
    played.engine.abort(transaction)
    assert fits(played, 1) == 0
    played.ack(consumer, got)
    assert fits(played, 1) == 1


def test_dropped_messages_are_counted_and_told_once() -> None:
    played = world(DROP, max_size_messages=2)
    played.send("q", BODY, BODY, BODY)
    played.send("q", BODY)
    assert (played.engine.counters["address-full"], played.engine.counters["received"]) == (2, 2)
    assert events(played) == [("q", True, 0)]
    consumer = played.on_queue(played.consumer(), "q")
    for got in played.out():
        played.ack(consumer, got)
    played.send("q", BODY)
    assert events(played) == [("q", False, 2)]
    assert len(played.out()) == 1


def test_a_transaction_drops_what_does_not_fit() -> None:
    played = world(DROP, max_size_messages=2)
    transaction = Transaction("t")
    transaction.sends += [(played.address("q"), run_of("q", BODY)) for _ in range(5)]
    assert played.engine.commit(transaction)
    assert (played.address("q").log.next, played.engine.counters["address-full"]) == (2, 3)


def test_a_duplicate_of_a_dropped_message_is_none() -> None:
    played = world(DROP, max_size_messages=1)
    played.send("q", BODY)
    played.send("q", b"dropped", headers={"_AMQ_DUPL_ID": "7"})
    consumer = played.on_queue(played.consumer(), "q")
    played.ack(consumer, played.out()[0])
    played.send("q", b"again", headers={"_AMQ_DUPL_ID": "7"})
    assert played.bodies() == [b"again"]


@pytest.mark.parametrize("policy", [FAIL, DROP])
def test_a_duplicate_needs_no_room(policy: AddressFullPolicy) -> None:
    full = world(policy, max_size_messages=3)
    address = full.address("q")

    def numbered(*values: str) -> Run:
        shape = Shape({"destination": "q"}, holes=("_AMQ_DUPL_ID",))
        return Run(shape, [BODY] * len(values), ([value.encode() for value in values],))

    full.engine.publish(address, numbered("1"))
    full.engine.publish(address, numbered("1", "2", "1"))
    assert duplicates.refused(address, numbered("1", "3", "2", "4", "3", "4", "1")) == [3, 5]
    full.engine.publish(address, numbered("1", "3", "4"))  # who refuses would have been asked before
    assert full.engine.counters["received"] == (3 if policy is DROP else 4)
    assert full.engine.counters["duplicates"] == 3
    assert full.engine.counters["address-full"] == (policy is DROP)
    if policy is FAIL:
        full.engine.prepare([(address, numbered("1", "2")), (address, numbered("3"))])
        with pytest.raises(Refused):
            full.engine.prepare([(address, numbered("1")), (address, numbered("5"))])


def test_of_subscriptions_the_slowest_counts() -> None:
    played = world(FAIL, match="t", max_size_messages=4)
    fast, slow = (
        played.on_topic(played.consumer("fast"), "t"),
        played.on_durable(played.consumer("slow"), "slow", "t"),
    )
    played.send_to_topic("t", BODY, BODY, BODY)
    got = played.out()
    assert len(got) == 6
    for one in got:
        if one.consumer == "fast":
            played.ack(fast, one)
    assert limits_of(played, "t").size()[1] == 3
    for one in got:
        if one.consumer == "slow":
            played.ack(slow, one)
    assert limits_of(played, "t").size() == (0, 0)


@pytest.mark.parametrize("how", ["purge", "expire", "drop queue", "dead letter"])
def test_whatever_ends_a_message_makes_room(how: str) -> None:
    played = world(FAIL, max_size_messages=2, max_delivery_attempts=1)
    played.send("q", BODY, BODY, expires=played.engine.now + 10)
    assert fits(played, 1) == 0
    if how == "purge":
        purge(played.queue("q"))
    elif how == "expire":
        played.tick(11)
    elif how == "drop queue":
        played.engine.drop_queue(played.queue("q"))
    else:
        consumer = played.on_queue(played.consumer(), "q")
        for got in played.out():
            played.nack(consumer, got)
    assert fits(played, 3) == 2


def test_dead_letters_are_not_refused_but_dropped() -> None:
    """Nobody could be told."""
    for policy, kept in ((FAIL, 3), (BLOCK, 3), (DROP, 1)):
        played = World(
            AddressSetting(match="q", max_delivery_attempts=1, dead_letter_address="dead"),
            AddressSetting(match="dead", address_full_policy=policy, max_size_messages=1),
        )
        consumer = played.on_queue(played.consumer(), "q")
        played.send("q", BODY, BODY, BODY)
        for got in played.out():
            played.nack(consumer, got)
        assert played.address("dead").log.next == kept, policy


def test_after_a_restart_it_is_as_full_as_before() -> None:
    played = world(FAIL, max_size_messages=3, max_size_bytes=1 << 30)
    played.send("q", BODY, BODY, BODY)
    played.commit()
    again = played.restart()
    limits.measure(again.engine, again.store.sizes)
    size, count = limits_of(again).size()
    assert (fits(again, 1), count) == (0, 3)
    assert size >= 300
    consumer = again.on_queue(again.consumer(), "q")
    for got in again.settle():
        again.ack(consumer, got)
    assert limits_of(again).size() == (0, 0)


@pytest.mark.parametrize("policy", list(PageFullPolicy))
def test_paging_has_a_limit_too(policy: PageFullPolicy) -> None:
    played = World(AddressSetting(match="q", page_limit_messages=4, page_full_policy=policy))
    limit = limits_of(played)
    assert fits(played, 9) == 4
    assert limit.policy is (FAIL if policy is PageFullPolicy.FAIL else DROP)
    played.send("q", *[BODY] * 4)
    assert not limit.fitting(Shape({"destination": "q"}), [BODY], limit.room())
    assert limit.refusal().message == "address 'q' is full (page-limit-messages 4)"


def test_new_settings_count_from_now_on() -> None:
    played = world(FAIL, max_size_messages=1)
    address: Address = played.address("q")
    played.send("q", BODY)
    assert fits(played, 1) == 0
    address.settings = (
        World(AddressSetting(match="q", address_full_policy=FAIL, max_size_messages=3)).address("q").settings
    )
    limits.apply(address)
    assert fits(played, 9) == 2
    address.settings = World().address("q").settings
    limits.apply(address)
    assert (address.limits, played.queue("q").tally) == (None, None)
    assert address.only is played.queue("q")


# Memory


def test_an_address_pages_beyond_its_size() -> None:
    played = World(AddressSetting(match="q", max_size_messages=5))
    played.send("q", *[BODY] * 4)
    played.send("q", *[BODY] * 4)
    queue = played.queue("q")
    assert (queue.backlog.count, queue.paged_from) == (4, 4)
    played.commit()
    consumer = played.on_queue(played.consumer(prefetch=1), "q")
    found = []
    while got := played.settle():
        found += got
        for one in got:
            played.ack(consumer, one)
    assert [one.offset for one in found] == list(range(8))
    assert (played.engine.memory.size, played.engine.memory.count) == (0, 0)


def test_all_addresses_together_have_a_size() -> None:
    played = World()
    played.engine.memory.limit(-1, 6)
    for name in ("a", "b", "c"):
        played.send(name, *[BODY] * 3)
    paged = {name: played.queue(name).is_paged for name in "abc"}
    assert paged == {"a": False, "b": False, "c": True}
    assert played.engine.memory.is_full


@pytest.mark.parametrize(("policy", "taken"), [(FAIL, 0), (DROP, 0), (BLOCK, 0)])
def test_when_memory_is_full_policies_act_everywhere(policy: AddressFullPolicy, taken: int) -> None:
    played = world(policy)
    played.engine.memory.limit(-1, 2)
    assert fits(played, 3) == 3
    played.send("paging", BODY, BODY)
    assert fits(played, 3) == taken
    consumer = played.on_queue(played.consumer(), "paging")
    assert len(played.out()) == 2
    assert consumer.messages_out == 2
    assert fits(played, 3) == 3


def test_a_run_counts_once_however_many_wait_for_it() -> None:
    played = World()
    for number in range(5):
        played.on_topic(played.consumer(str(number), prefetch=0), "t")
    played.send_to_topic("t", BODY)
    played.send_to_topic("t", BODY)
    assert played.engine.memory.count == 1
    assert played.address("t").memory.count == 1


@pytest.mark.parametrize("routing", [ANYCAST, MULTICAST])
def test_a_backlog_goes_out_in_order_although_memory_is_full(routing: int) -> None:
    """Somebody else has all of it, and keeps it."""
    played = World(chunk_bytes=2000)
    played.engine.memory.limit(1000, -1)
    played.send("other", *[BODY] * 100)
    assert played.engine.memory.is_full
    consumer = played.consumer(prefetch=3)
    if routing == ANYCAST:
        played.on_queue(consumer, "q")
    else:
        played.on_durable(consumer, "name", "q")
    for number in range(200):
        played.send("q", b"%03d" % number * 30, routing=routing)
    played.commit()
    before = played.engine.memory.size
    found, most = [], 0
    while got := played.settle():
        found += got
        most = max(most, played.engine.memory.size - before)
        for one in got:
            played.ack(consumer, one)
    assert [one.body[:3] for one in found] == [b"%03d" % number for number in range(200)]
    assert most < 20_000


def test_paged_messages_are_not_read_while_too_many_are_unacknowledged() -> None:
    played = World(
        AddressSetting(match="q", max_size_messages=0, page_size_bytes=1000, max_read_page_bytes=1000),
        chunk_bytes=500,
    )
    for _ in range(100):
        played.send("q", BODY)
    played.commit()
    consumer = played.on_queue(played.consumer(ack=AckMode.INDIVIDUAL), "q")
    found = played.settle()
    assert 10 <= len(found) < 30
    seen = len(found)
    while found:
        for one in found:
            played.ack(consumer, one)
        found = played.settle()
        seen += len(found)
    assert seen == 100


def fill(played: World, kind: str) -> int:
    """A backlog of 2,000 messages of 1 KB for one reader that takes nothing yet, while the disk works; the most that was in memory."""
    routing = ANYCAST if kind in ("anycast", "stream") else MULTICAST
    most = 0
    for number in range(200):
        played.send(
            "q", *[b"%06d" % (10 * number + each) + b"x" * 1000 for each in range(10)], routing=routing
        )
        most = max(most, played.engine.memory.size)
        if number % 10 == 9:
            played.commit()
    return most


@pytest.mark.parametrize("kind", ["anycast", "durable", "topic", "stream"])
@pytest.mark.parametrize("is_durable", [True, False])
def test_memory_is_bounded_for_every_kind_of_backlog(kind: str, is_durable: bool) -> None:
    bound = 100_000
    kept = 10_000 if kind == "stream" else -1
    setting = AddressSetting(
        match="q", page_size_bytes=20_000, max_size_bytes=50_000, retention_messages=kept
    )
    played = World(setting, chunk_bytes=10_000, is_durable=is_durable)
    played.engine.memory.limit(bound, -1)
    consumer = played.consumer(prefetch=1)
    if kind == "anycast":
        played.on_queue(consumer, "q")
    elif kind == "durable":
        played.on_durable(consumer, "name", "q")
    elif kind == "topic":
        played.on_topic(consumer, "q")
    else:
        played.on_stream(consumer, "q", 0)
    assert fill(played, kind) <= bound
    consumer.prefetch = 7
    seen, most, widest = [], 0, 0
    got = played.settle()
    while got:
        for one in got:
            seen.append(int(one.body[:6]))
            played.ack(consumer, one)
        most = max(most, played.engine.memory.size)
        widest = max(widest, *[queue.backlog.size for queue in played.engine.queues.values()])
        if len(seen) % 70 == 0:
            played.commit()
        got = played.settle()
    assert seen == list(range(2000))
    assert most <= bound
    assert widest <= bound
    played.commit()
    assert (played.engine.memory.size, played.engine.memory.count) == (0, 0) or kind == "stream"


def test_large_bodies_take_no_memory() -> None:
    played = World()
    played.engine.memory.limit(10_000, -1)
    played.address("q")
    large = Run(Shape({"destination": "q"}), cast(list[bytes], [Large(1, 1 << 30)]), routing=ANYCAST)
    played.engine.publish(played.address("q"), large)
    assert not played.engine.memory.is_full
    assert not played.queue("q").is_paged


def test_of_very_many_subscriptions_none_is_asked_whether_it_is_empty_where_its_count_is_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = world(FAIL, match="t", max_size_messages=3)
    for number in range(100):
        played.on_topic(played.consumer(str(number)), "t")
    asked: list[object] = []
    monkeypatch.setattr(limits, "is_empty", asked.append)
    assert fits(played, 9, "t") == 3
    played.send_to_topic("t", BODY)
    assert fits(played, 9, "t") == 2
    assert asked == []


def test_queues_of_an_address_are_added_up_as_they_change_and_not_gone_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = world(FAIL, max_size_messages=300)
    for number in range(200):
        played.engine.anycast_queue(played.address("q"), f"q{number}")
    played.send("q", *[BODY] * 200)
    asked: list[object] = []
    monkeypatch.setattr(limits, "is_empty", asked.append)
    assert fits(played, 999) == 100
    played.engine.drop_queue(played.queue("q7", "q"))
    assert limits_of(played).size() == (199 * EACH, 199)
    consumer = played.on_queue(played.consumer(), "q", "q8")
    (got,) = played.out()
    played.ack(consumer, got)
    assert limits_of(played).size() == (198 * EACH, 198)
    assert asked == []


def test_what_many_queues_had_before_there_was_a_limit_is_looked_at_in_portions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = World()
    for number in range(50):
        played.engine.anycast_queue(played.address("q"), f"q{number}")
    played.send("q", *[BODY] * 50)
    address = played.address("q")
    address.settings = world(FAIL, max_size_messages=300).address("q").settings
    limits.apply(address)
    for number in range(50):  # acknowledged, though nothing was counted when they came
        consumer = played.on_queue(played.consumer(str(number)), "q", f"q{number}")
        for one in played.out():
            played.ack(consumer, one)
    monkeypatch.setattr(limits, "DOUBTED", 20)
    asked: list[object] = []
    is_empty = limits.is_empty

    def asked_too(queue: Any) -> bool:
        asked.append(queue)
        return is_empty(queue)

    monkeypatch.setattr(limits, "is_empty", asked_too)
    for left in (30, 10, 0, 0):
        asked.clear()
        assert limits_of(played).size() == (0, 0)
        assert len(limits_of(played).together.unsure) == left
        assert len(asked) <= 20
    played.send("q", *[BODY] * 50)
    assert limits_of(played).size() == (50 * EACH, 50)


def test_what_was_out_when_a_queue_was_purged_makes_no_room_that_others_have_taken() -> None:
    played = world(FAIL, max_size_messages=9)
    consumer = played.on_queue(played.consumer(), "q", "q1")
    played.engine.anycast_queue(played.address("q"), "q2")
    played.send("q", *[BODY] * 4)
    purge(played.queue("q1", "q"))
    for got in played.out():
        played.ack(consumer, got)
    assert limits_of(played).size() == (2 * EACH, 2)  # of the other queue
    played.send("q", BODY, BODY)
    assert limits_of(played).size() == (4 * EACH, 4)


def test_what_a_subscription_had_before_there_was_a_limit_is_right_when_it_is_empty() -> None:
    played = World()
    consumer = played.on_topic(played.consumer("c"), "t")
    played.send_to_topic("t", BODY, BODY)
    address = played.address("t")
    address.settings = world(FAIL, match="t", max_size_messages=3).address("t").settings
    limits.apply(address)
    for one in played.out():
        played.ack(consumer, one)
    assert fits(played, 9, "t") == 3
    played.send_to_topic("t", BODY)
    assert fits(played, 9, "t") == 2
