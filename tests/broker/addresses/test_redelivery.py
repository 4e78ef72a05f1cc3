"""Failed deliveries: back-off, attempts, dead letters."""

from __future__ import annotations

from random import Random

import pytest

from stompbox.broker.addresses import redelivery
from stompbox.broker.addresses.redelivery import Outcome, Refusal
from stompbox.broker.addresses.routing import ADMITTED
from stompbox.broker.kinds import Kind
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.recovery import note_end
from stompbox.broker.transactions import Transaction
from stompbox.broker.undelivered import MOST, OTHERS, REJECTED, TOO_OFTEN, Fate, Loss, Undelivered
from stompbox.config.settings import AddressFullPolicy, AddressSetting
from stompbox.config.spaces import space_of_host
from stompbox.message import ANYCAST, MULTICAST
from stompbox.selectors import compile_selector
from stompbox.store.base import Commit
from tests.broker.world import World


def consuming(*rules: AddressSetting, prefetch: int = -1) -> tuple[World, Consumer]:
    world = World(*rules)
    return world, world.on_queue(world.consumer(prefetch=prefetch), "q")


def delays(*rules: AddressSetting, attempts: int) -> list[int]:
    """How long one message waits before each redelivery, to the ms."""
    world, consumer = consuming(*rules)
    world.send("q", b"a")
    found = []
    for _ in range(attempts):
        (got,) = world.settle()
        world.nack(consumer, got)
        assert world.settle() == []
        deadline = world.engine.next_deadline()
        assert deadline is not None
        found.append(deadline - world.engine.now)
        world.tick(found[-1] - 1)
        assert world.settle() == [], "too early"
        world.tick(1)
    return found


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (AddressSetting(match="q", redelivery_delay=200), [200, 200, 200]),
        (
            AddressSetting(match="q", redelivery_delay=100, redelivery_delay_multiplier=2.0),
            [100, 200, 400, 800, 1000, 1000],
        ),
        (
            AddressSetting(
                match="q", redelivery_delay=100, redelivery_delay_multiplier=3.0, max_redelivery_delay=500
            ),
            [100, 300, 500],
        ),
        (AddressSetting(match="q", redelivery_delay=100, redelivery_delay_multiplier=0.5), [100, 50, 25]),
    ],
)
def test_back_off(rule: AddressSetting, expected: list[int]) -> None:
    """Without max-redelivery-delay the longest wait is ten times the first."""
    assert delays(rule, attempts=len(expected)) == expected


def test_delay_does_not_overflow() -> None:
    rule = AddressSetting(
        match="q",
        redelivery_delay=1,
        redelivery_delay_multiplier=1e300,
        max_redelivery_delay=7,
        max_delivery_attempts=-1,
    )
    assert delays(rule, attempts=5) == [1, 7, 7, 7, 7]


def test_collision_avoidance_spreads_delays() -> None:
    rule = AddressSetting(match="q", redelivery_delay=1000, redelivery_collision_avoidance_factor=0.15)
    world, consumer = consuming(rule)
    world.engine.chance = Random(7).random
    world.send("q", *[b"%d" % i for i in range(200)])
    got = world.settle()
    sent, _ = consumer.take(got[0].queue.id, 0, 200)
    world.engine.refuse(consumer, sent)  # all at once: they must not come back all at once
    came: dict[int, int] = {}
    start = world.engine.now
    while (deadline := world.engine.next_deadline()) is not None:
        world.tick(deadline - world.engine.now)
        came[world.engine.now - start] = len(world.settle())
    assert sum(came.values()) == 200
    assert all(850 <= delay <= 1150 for delay in came)
    assert min(came) < 900
    assert max(came) > 1100
    assert len(came) > 100


def test_no_spread_goes_beyond_the_longest_wait() -> None:
    rule = AddressSetting(
        match="q", redelivery_delay=100, max_redelivery_delay=100, redelivery_collision_avoidance_factor=1.0
    )
    world, consumer = consuming(rule)
    world.engine.chance = lambda: 1.0
    world.send("q", b"a")
    world.nack(consumer, world.settle()[0])
    assert world.engine.next_deadline() == world.engine.now + 100


def test_waiting_message_does_not_hold_up_the_rest() -> None:
    world, consumer = consuming(AddressSetting(match="q", redelivery_delay=100), prefetch=1)
    world.send("q", b"a", b"b")
    (first,) = world.settle()
    world.nack(consumer, first)
    (second,) = world.settle()
    assert second.body == b"b"
    world.ack(consumer, second)
    world.tick(100)
    (again,) = world.settle()
    assert (again.body, again.is_redelivered, again.deliveries) == (b"a", True, 1)


def test_refused_together_they_come_again_in_order_before_new_ones() -> None:
    world, consumer = consuming(prefetch=3)
    world.send("q", b"a", b"b", b"c", b"d", b"e")
    first = world.settle()[0]
    sent, _ = consumer.take(first.queue.id, first.offset, first.offset + 3)
    world.engine.refuse(consumer, sent)
    again = world.settle()
    assert [(got.body, got.deliveries) for got in again] == [(b"a", 1), (b"b", 1), (b"c", 1)]
    for got in again:
        world.ack(consumer, got)
    assert [got.body for got in world.settle()] == [b"d", b"e"]


def test_returned_at_close_come_in_original_order() -> None:
    world, consumer = consuming(prefetch=3)
    world.send("q", b"a", b"b", b"c", b"d", b"e")
    assert len(world.settle()) == 3
    world.close(consumer)
    other = world.on_queue(world.consumer("d"), "q")
    assert [(got.body, got.is_redelivered) for got in world.settle()] == [
        (b"a", True), (b"b", True), (b"c", True), (b"d", False), (b"e", False),
    ]  # fmt: skip
    assert other.messages_out == 5


DYING = AddressSetting(match="q", max_delivery_attempts=3, dead_letter_address="dead")


def kill(world: World, consumer: Consumer, attempts: int) -> None:
    for _ in range(attempts):
        for got in world.settle():
            world.nack(consumer, got)


def test_dead_letter_after_so_many_attempts_with_its_headers() -> None:
    world, consumer = consuming(DYING)
    world.send("q", b"a", headers={"colour": "red", "expiration": "100000"})
    kill(world, consumer, 2)
    assert "dead" not in world.engine.addresses
    kill(world, consumer, 1)
    queue = world.queue("q")
    reader = world.on_queue(world.consumer("r"), "dead")
    (got,) = world.settle()
    assert got.body == b"a"
    assert got.headers == {
        "destination": "q", "colour": "red", "original-destination": "q", "_AMQ_ORIG_ADDRESS": "q", "_AMQ_ORIG_QUEUE": "q",
        "_AMQ_ORIG_MESSAGE_ID": f"{queue.id}-0", "dead-letter-reason": "max-delivery-attempts",
    }  # fmt: skip
    assert world.engine.counters["dead"] == 1
    assert reader.messages_out == 1
    assert world.settle() == []
    assert queue.backlog.count == queue.delivering == 0


def test_messages_that_die_one_by_one_have_one_shape() -> None:
    """What was made of the headers of the first is there for the others."""
    world, consumer = consuming(
        AddressSetting(match="q", max_delivery_attempts=1, dead_letter_address="dead")
    )
    for body in (b"a", b"b", b"c"):
        world.send("q", body, headers={"colour": "red"})
        kill(world, consumer, 1)
    runs = [segment.run for segment in world.queue("dead").backlog.segments()]
    assert [run.bodies[0] for run in runs] == [b"a", b"b", b"c"]
    assert len({id(run.shape) for run in runs}) == 1


def test_without_dead_letter_address_it_is_dropped_and_counted() -> None:
    world, consumer = consuming(AddressSetting(match="q", max_delivery_attempts=1, dead_letter_address=None))
    world.send("q", b"a", b"b")
    kill(world, consumer, 1)
    assert world.settle() == []
    assert world.engine.counters["dropped"] == 2
    assert world.engine.undelivered.take() == [(Loss("q", TOO_OFTEN, Fate.DROPPED), 2)]


def test_any_number_of_attempts() -> None:
    world, consumer = consuming(AddressSetting(match="q", max_delivery_attempts=-1))
    world.send("q", b"a")
    kill(world, consumer, 50)
    (got,) = world.settle()
    assert got.deliveries == 50


def test_orderly_end_does_not_count_a_lost_connection_does() -> None:
    world, consumer = consuming(DYING)
    world.send("q", b"a")
    for is_failure in (False, False, False, True, True):
        assert len(world.settle()) == 1
        world.close(consumer, is_failure=is_failure)
        consumer = world.on_queue(world.consumer(), "q")
    (got,) = world.settle()
    assert got.deliveries == 5
    world.close(consumer, is_failure=True)
    assert world.engine.counters["dead"] == 1


# A lost connection


def lose(world: World, consumer: Consumer, name: str = "q") -> Consumer:
    """The consumer's connection goes, and it comes back as somebody new."""
    world.close(consumer, is_failure=True)
    return world.on_queue(world.consumer(ack=consumer.ack), name)


@pytest.mark.parametrize("ack", [AckMode.INDIVIDUAL, AckMode.CLIENT])
def test_a_consumer_that_dies_again_and_again_does_not_empty_its_queue(ack: AckMode) -> None:
    world = World(DYING)
    world.send("q", *[b"%d" % number for number in range(20)])
    world.send("q", b"one by one")
    consumer = world.on_queue(world.consumer(ack=ack), "q")
    for life in range(3):
        got = world.settle()
        assert len(got) == 21
        assert [one.is_redelivered for one in got] == [life > 0] * 21
        assert [one.deliveries for one in got] == [life, *[0] * 20], "only the oldest is counted"
        consumer = lose(world, consumer)
    assert [one.body for one in world.settle()] == [
        *[b"%d" % number for number in range(1, 20)],
        b"one by one",
    ]
    assert [got.body for got in world.waiting_in("dead")] == [b"0"]


def test_the_oldest_is_the_one_that_was_sent_first() -> None:
    """A message that comes back comes after what its consumer has already, though its offset is lower."""
    world, consumer = consuming(DYING, prefetch=2)
    world.send("q", b"a", b"b", b"c")
    first, _ = world.settle()
    world.nack(consumer, first)
    assert [got.body for got in world.settle()] == [b"a"]
    lose(world, consumer)
    assert {got.body: got.deliveries for got in world.settle()} == {b"a": 1, b"b": 1, b"c": 0}


def test_each_subscription_has_its_oldest() -> None:
    world, one = consuming(DYING, prefetch=2)
    other = world.on_queue(world.consumer("d", prefetch=2), "q")
    world.send("q", *[b"%d" % number for number in range(4)])
    assert len(world.settle()) == 4
    world.close(one, is_failure=True)
    world.close(other, is_failure=True)
    world.on_queue(world.consumer(), "q")
    assert sum(got.deliveries for got in world.settle()) == 2


def test_one_subscription_to_many_queues_has_one_oldest() -> None:
    world = World()
    for name in ("w.a", "w.b"):
        world.send(name, b"1", b"2")
    consumer = world.on_queue(world.consumer(), "w.*")
    assert len(world.settle()) == 4
    world.close(consumer, is_failure=True)
    world.on_queue(world.consumer(), "w.*")
    assert sorted(got.deliveries for got in world.settle()) == [0, 0, 0, 1]


def test_what_an_open_transaction_had_acknowledged_is_unacknowledged_when_the_oldest_is_looked_for() -> None:
    world, consumer = consuming(DYING)
    world.send("q", b"a", b"b", b"c")
    got = world.settle()
    transaction = Transaction("t")
    world.hold(transaction, consumer, got[0])
    world.hold(transaction, consumer, got[1])
    world.engine.abort(transaction, is_failure=True)
    lose(world, consumer)
    assert [(one.body, one.deliveries) for one in world.settle()] == [(b"a", 1), (b"b", 0), (b"c", 0)]


def test_what_a_transaction_holds_of_a_closed_subscription_counts_when_the_connection_is_lost() -> None:
    """Else a message that brings its client down between UNSUBSCRIBE and COMMIT would do so for ever."""
    world, consumer = consuming(DYING)
    world.send("q", b"a", b"b")
    for life in range(3):
        got = world.settle()
        assert [(one.body, one.deliveries) for one in got] == [(b"a", life), (b"b", 0)]
        transaction = Transaction("t")
        for one in got:
            world.hold(transaction, consumer, one)
        world.close(consumer)
        world.engine.abort(transaction, is_failure=True)
        consumer = world.on_queue(world.consumer(), "q")
    assert [one.body for one in world.settle()] == [b"b"]


def test_only_the_oldest_waits_for_its_redelivery() -> None:
    world, consumer = consuming(AddressSetting(match="q", redelivery_delay=500))
    world.send("q", b"a", b"b", b"c")
    world.settle()
    lose(world, consumer)
    assert [one.body for one in world.settle()] == [b"b", b"c"]
    world.tick(500)
    assert [one.body for one in world.settle()] == [b"a"]


def test_what_was_merely_sent_ahead_comes_back_marked_after_an_orderly_restart() -> None:
    world, consumer = consuming()
    world.send("q", b"a", b"b")
    world.commit()
    world.settle()
    world.close(consumer, is_failure=True)
    note_end(world.engine)
    world.commit()
    world = world.restart()
    world.on_queue(world.consumer(), "q")
    assert [(got.deliveries, got.is_redelivered) for got in world.settle()] == [(1, True), (0, True)]


def test_what_was_merely_sent_ahead_keeps_its_mark_when_memory_is_given_back() -> None:
    world, consumer = consuming()
    world.send("q", b"a", b"b")
    world.commit()
    world.settle()
    world.close(consumer, is_failure=True)
    reclaim.give_back(world.queue("q"))
    world.on_queue(world.consumer(), "q")
    assert [got.is_redelivered for got in world.settle()] == [True, True]


def test_a_reader_of_the_log_makes_no_dead_letters() -> None:
    """It takes nothing from anybody: what it refuses too often is passed over."""
    world = World(AddressSetting(match="s", retention_messages=100, max_delivery_attempts=2))
    world.send_to_topic("s", b"a", b"b")
    reader = world.on_stream(world.consumer(), "s", 0)
    kill(world, reader, 2)
    assert world.settle() == []
    assert "DLQ" not in world.engine.addresses
    assert world.engine.undelivered.take() == [(Loss("1.c", TOO_OFTEN, Fate.PASSED_OVER), 2)]


# Where dead letters go


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.FAILED])
def test_long_runs_die_in_portions_and_in_order(outcome: Outcome) -> None:
    """What is done for each message is so for a portion of them in one step, however many a segment has."""
    world, consumer = consuming(AddressSetting(match="q", max_delivery_attempts=1))
    count = 3 * redelivery.PIECE + 10
    for first in (0, count):
        world.send("q", *[b"%d" % number for number in range(first, first + count)])
    consumer.outbox.clear()
    before, most = 0, 0
    for _ in world.engine.refusing(consumer, consumer.take_all(), Refusal(outcome)):
        dead = world.engine.counters["dead"]
        before, most = dead, max(most, dead - before)
    assert 0 < most <= redelivery.PIECE
    assert [got.body for got in world.waiting_in("DLQ")] == [b"%d" % number for number in range(2 * count)]
    assert world.engine.counters["dead"] == 2 * count


def test_fewer_die_in_one_step_where_something_is_done_for_each_of_the_dead() -> None:
    """A last-value queue asks for the key of each."""
    world, consumer = consuming(AddressSetting(match="DLQ", default_last_value_key="k"))
    world.send("DLQ", b"first", headers={"k": "first"})
    count, numbers = 3 * ADMITTED + 10, [b"%d" % number for number in range(3 * ADMITTED + 10)]
    world.send("q", *numbers, holes={"k": numbers})
    consumer.outbox.clear()
    before, most = 0, 0
    for _ in world.engine.refusing(consumer, consumer.take_all(), Refusal(Outcome.REJECTED)):
        dead = world.engine.counters["dead"]
        before, most = dead, max(most, dead - before)
    assert 0 < most <= ADMITTED
    assert [got.body for got in world.waiting_in("DLQ")] == [b"first", *numbers]
    assert world.engine.counters["dead"] == count


def test_long_runs_that_fail_stay_whole() -> None:
    """Nothing is done for each of their messages: they come back as they were."""
    world, consumer = consuming()
    world.send("q", *[b"x"] * (3 * redelivery.PIECE))
    consumer.outbox.clear()
    world.queue("q").pause()
    world.engine.refuse(consumer, consumer.take_all())
    assert len(world.queue("q").backlog.segments()) == 1


def test_dead_letters_go_to_the_queue_DLQ_when_nothing_else_is_said() -> None:
    world, consumer = consuming(AddressSetting(match="q", max_delivery_attempts=1))
    world.send("q", b"a")
    kill(world, consumer, 1)
    assert [got.body for got in world.waiting_in("DLQ")] == [b"a"]
    assert world.engine.counters["dropped"] == 0
    assert world.engine.undelivered.take() == [(Loss("q", TOO_OFTEN, Fate.DEAD_LETTER), 1)]


def test_each_virtual_host_has_dead_letters_of_its_own() -> None:
    space = space_of_host("blue")
    name = f"{space}q"
    world = World(AddressSetting(match=f"{space}#", max_delivery_attempts=1))
    consumer = world.on_queue(world.consumer(), name)
    world.send(name, b"a")
    kill(world, consumer, 1)
    assert "DLQ" not in world.engine.addresses
    assert [got.body for got in world.waiting_in(f"{space}DLQ")] == [b"a"]


def test_a_dead_letter_that_fails_stays_and_is_delivered_in_no_haste() -> None:
    world = World(AddressSetting(match="#", max_delivery_attempts=2))
    world.send("DLQ", b"a", b"b")
    consumer = world.on_queue(world.consumer(prefetch=1), "DLQ")
    kill(world, consumer, 2)
    assert [got.body for got in world.settle()] == [b"b"], "it holds up nobody"
    assert world.engine.undelivered.take() == [(Loss("DLQ", TOO_OFTEN, Fate.KEPT), 1)]
    for _ in range(5):
        world.close(consumer)
        consumer = world.on_queue(world.consumer(prefetch=1), "DLQ")
        world.settle()
        world.tick(redelivery.PAUSE - 1)
        assert [got.body for got in world.settle()] == []
        world.tick(1)
        world.close(consumer)
        consumer = world.on_queue(world.consumer(), "DLQ")
        got = {one.body: one for one in world.settle()}
        world.nack(consumer, got[b"a"])
    assert world.engine.undelivered.take() == [], "that is said once"
    assert (
        world.queue("DLQ").backlog.count + world.queue("DLQ").waits.count + world.queue("DLQ").delivering == 2
    )


def test_a_dead_letter_that_is_rejected_goes_and_the_log_says_so() -> None:
    world = World()
    world.send("DLQ", b"a")
    consumer = world.on_queue(world.consumer(), "DLQ")
    (got,) = world.settle()
    sent, _ = consumer.take(got.queue.id, got.offset, got.offset + 1)
    world.engine.refuse(consumer, sent, Refusal(Outcome.REJECTED))
    assert world.settle() == []
    assert world.engine.undelivered.take() == [(Loss("DLQ", REJECTED, Fate.DROPPED), 1)]


def test_a_spent_dead_letter_is_there_after_a_restart() -> None:
    world = World()
    world.send("DLQ", b"a")
    world.commit()
    world.store.apply(Commit(delivered={world.queue("DLQ").id: [(0, 1, 10, 10)]}))
    world = world.restart()
    world.on_queue(world.consumer(), "DLQ")
    assert [got.body for got in world.settle()] == [b"a"]


def test_who_subscribes_to_the_dead_letters_as_to_a_topic_does_not_make_them_vanish() -> None:
    world, consumer = consuming(AddressSetting(match="q", max_delivery_attempts=1))
    world.on_topic(world.consumer("spy"), "DLQ")
    world.send("q", b"a")
    kill(world, consumer, 1)
    assert [got.body for got in world.waiting_in("DLQ")] == [b"a"]


def test_dead_letters_that_no_queue_takes_are_dropped_and_the_log_says_so() -> None:
    """The configuration has made the address for subscriptions alone, and there are none."""
    world, consumer = consuming(AddressSetting(match="q", max_delivery_attempts=1))
    world.engine.create_address("DLQ").add_kind(MULTICAST)
    world.send("q", b"a", b"b")
    kill(world, consumer, 1)
    assert world.engine.undelivered.take() == [(Loss("q", TOO_OFTEN, Fate.DROPPED), 2)]


def test_what_is_told_is_bounded() -> None:
    undelivered = Undelivered()
    for number in range(5000):
        undelivered.note(f"q{number}", TOO_OFTEN, Fate.DROPPED, 1)
    found = undelivered.take()
    assert found[0] == (Loss(OTHERS, TOO_OFTEN, Fate.DROPPED), 5000 - MOST)
    assert len(found) == MOST + 1
    assert undelivered.totals[TOO_OFTEN, Fate.DROPPED] == 5000
    assert undelivered.take() == []


def test_dead_letter_of_a_dead_letter_keeps_where_it_came_from() -> None:
    world, consumer = consuming(
        DYING, AddressSetting(match="dead", max_delivery_attempts=1, dead_letter_address="deader")
    )
    world.send("q", b"a")
    kill(world, consumer, 3)
    kill(world, world.on_queue(world.consumer("r"), "dead"), 1)
    world.on_queue(world.consumer("s"), "deader")
    (got,) = world.settle()
    assert got.headers["_AMQ_ORIG_QUEUE"] == "q"
    assert got.headers["_AMQ_ORIG_MESSAGE_ID"] == f"{world.queue('q').id}-0"


def test_each_address_gets_a_queue_of_its_own_among_the_dead() -> None:
    rule = AddressSetting(
        match="#", max_delivery_attempts=1, dead_letter_address="dead", auto_create_dead_letter_resources=True,
        dead_letter_queue_suffix=".box",
    )  # fmt: skip
    world = World(rule)
    for name in ("a.b", "it's"):
        consumer = world.on_queue(world.consumer(name), name)
        world.send(name, name.encode())
        kill(world, consumer, 1)
    queues = world.engine.addresses["dead"].anycast
    assert set(queues) == {"DLQ.a.b.box", "DLQ.it's.box"}
    for name in ("a.b", "it's"):
        reader = world.on_queue(world.consumer(f"r {name}"), "dead", f"DLQ.{name}.box")
        assert [got.body for got in world.settle()] == [name.encode()]
        world.close(reader)


@pytest.mark.parametrize("has_own", [False, True])
def test_where_the_dead_go_drops_what_is_too_much_also_from_queues_of_their_own(*, has_own: bool) -> None:
    full = AddressSetting(match="dead", address_full_policy=AddressFullPolicy.DROP, max_size_messages=2)
    dying = AddressSetting(
        match="q", send_to_dla_on_no_route=True, dead_letter_address="dead",
        auto_create_dead_letter_resources=has_own,
    )  # fmt: skip
    world = World(full, dying)
    world.address("q", MULTICAST)
    for number in range(5):
        world.send("q", b"%d" % number, routing=MULTICAST)
    (queue,) = world.engine.addresses["dead"].anycast.values()
    assert queue.count == 2
    assert world.engine.counters["address-full"] == 3


def test_no_route_goes_to_the_dead_where_settings_say_so() -> None:
    world = World(AddressSetting(match="t", send_to_dla_on_no_route=True, dead_letter_address="dead"))
    run = world.send("t", b"a", routing=MULTICAST)
    world.on_queue(world.consumer(), "dead")
    (got,) = world.settle()
    assert got.body == b"a"
    assert got.headers["dead-letter-reason"] == "no-route"
    assert got.headers["_AMQ_ORIG_ADDRESS"] == "t"
    assert "_AMQ_ORIG_QUEUE" not in got.headers
    assert world.engine.counters["unrouted"] == len(run)


def test_each_message_of_a_run_that_nobody_takes_goes_to_the_dead() -> None:
    """Whether it comes alone or beside others that somebody takes; all of a run go together."""
    world = World(AddressSetting(match="t", send_to_dla_on_no_route=True, dead_letter_address="dead"))
    world.on_topic(world.consumer("x", selector="k = 'x'"), "t")
    world.on_queue(world.consumer("dead"), "dead")
    values = [b"a", b"x", b"b", b"c", b"x"]
    world.send("t", *values, routing=MULTICAST, holes={"k": values})
    got = world.settle()
    assert [one.body for one in got if one.consumer == "x"] == [b"x", b"x"]
    dead = [one for one in got if one.consumer == "dead"]
    assert [(one.body, one.headers["k"]) for one in dead] == [(b"a", "a"), (b"b", "b"), (b"c", "c")]
    assert {one.headers["dead-letter-reason"] for one in dead} == {"no-route"}
    assert world.engine.counters["unrouted"] == 3
    assert world.engine.counters["received"] == len(values) + 3


def test_a_queue_with_a_filter_leaves_the_others_to_the_dead() -> None:
    world = World(AddressSetting(match="q", send_to_dla_on_no_route=True, dead_letter_address="dead"))
    address = world.address("q", ANYCAST)
    world.engine.new_queue(address, "q", Kind.ANYCAST, compile_selector("k = 'x'"))
    world.on_queue(world.consumer("q"), "q")
    world.on_queue(world.consumer("dead"), "dead")
    world.send("q", b"x", b"a", holes={"k": [b"x", b"a"]})
    assert {(one.consumer, one.body) for one in world.settle()} == {("q", b"x"), ("dead", b"a")}
