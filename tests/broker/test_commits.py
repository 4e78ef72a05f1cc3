"""When the disk refuses a commit: what was answered for is undone, what nobody asked about goes in with the next one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stompbox.broker.addresses.unitofwork import LARGE
from stompbox.broker.commits import PART, Trouble
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.transactions import Transaction
from stompbox.config.settings import AddressSetting, DiskFullPolicy
from stompbox.errors import Refused
from stompbox.message import ANYCAST, MULTICAST, Run
from stompbox.store.base import Commit
from tests.broker.world import NOW, World, run_of

TROUBLE = Trouble("disk-full", "the disk is full")


def answered(world: World, name: str, *bodies: bytes, routing: int = ANYCAST, **headers: str) -> Run:
    """A SEND with a receipt."""
    run = run_of(name, *bodies)
    run.shape = type(run.shape)({"destination": name, **headers})
    run.routing = routing
    assert world.engine.publish(world.address(name, routing), run, is_answered=True) is True
    return run


def refuse(world: World) -> Commit:
    """The disk does not take the next commit."""
    commit = world.engine.take_commit()
    world.engine.commit_failed(commit)
    return commit


def drained(world: World, name: str) -> list[bytes]:
    """What the next broker's consumers get: all that is stored."""
    again = world.restart()
    again.on_queue(again.consumer(), name)
    return [got.body for got in again.settle()]


def test_what_waits_and_was_refused_is_gone() -> None:
    world = World()
    answered(world, "q", b"stored")
    world.commit()
    answered(world, "q", b"refused", b"too")
    refuse(world)
    assert world.engine.counters["not-stored"] == 2
    answered(world, "q", b"later")
    world.on_queue(world.consumer(), "q")
    assert world.bodies() == [b"stored", b"later"]
    world.commit()
    assert drained(world, "q") == [b"stored", b"later"]


def test_what_a_large_unit_held_goes_in_parts_when_it_is_stored() -> None:
    world = World(portion=PART)
    unit = world.engine.commits.begin()
    for number in range(4 * LARGE):
        world.engine.publish_prepared(world.address("q"), run_of("q", b"%d" % number))
    world.engine.commits.end(is_stored=True)
    world.commit()
    left = [len(unit.sends)]
    while world.engine.dispatch_rest(lambda: False):
        left.append(len(unit.sends))
    assert left[0] > 3 * LARGE
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 2 * PART


def test_what_nobody_asked_about_goes_in_with_the_next_commit() -> None:
    world = World()
    world.send("q", b"kept")
    refuse(world)
    world.on_queue(world.consumer(), "q")
    assert world.bodies() == [b"kept"]
    world.commit()
    assert drained(world, "q") == [b"kept"]


def test_what_is_out_stays_out_and_does_not_come_again() -> None:
    world = World()
    consumer = world.on_queue(world.consumer(), "q")
    answered(world, "q", b"a", b"b", b"c")
    out = world.out()
    refuse(world)
    world.ack(consumer, out[0])
    world.nack(consumer, out[1])
    world.close(consumer)
    world.on_queue(world.consumer(), "q")
    assert world.bodies() == []
    world.commit()
    assert drained(world, "q") == []


def test_it_is_gone_from_every_subscription() -> None:
    world = World()
    world.close(world.on_durable(world.consumer(), "d", "t"))
    slow = world.on_topic(world.consumer("slow", prefetch=1), "t")
    world.on_topic(world.consumer("fast"), "t")
    answered(world, "t", b"a", b"b", routing=MULTICAST)
    out = world.out()
    assert [(got.consumer, got.body) for got in out] == [("slow", b"a"), ("fast", b"a"), ("fast", b"b")]
    refuse(world)
    world.ack(slow, out[0])
    answered(world, "t", b"c", routing=MULTICAST)
    world.on_durable(world.consumer("durable"), "d", "t")
    assert [(got.consumer, got.body) for got in world.settle()] == [
        ("slow", b"c"),
        ("fast", b"c"),
        ("durable", b"c"),
    ]


def test_scheduled_and_paged_messages_are_withdrawn_too() -> None:
    world = World(page_size=1)
    answered(world, "q", b"later", AMQ_SCHEDULED_DELAY="100")
    answered(world, "q", b"paged")
    refuse(world)
    world.tick(200)
    answered(world, "q", b"after")
    world.commit()
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"after"]


def test_offsets_are_not_used_again() -> None:
    world = World()
    first = answered(world, "q", b"refused")
    refuse(world)
    world.commit()
    assert answered(world.restart(), "q", b"x").first > first.first


def test_acknowledgements_go_in_with_the_next_commit() -> None:
    world = World()
    answered(world, "q", b"a", b"b")
    world.commit()
    consumer = world.on_queue(world.consumer(), "q")
    world.ack(consumer, world.out()[0])
    refuse(world)
    world.commit()
    assert drained(world, "q") == [b"b"]


def test_a_transaction_that_was_refused_has_not_happened() -> None:
    world = World()
    answered(world, "q", b"a", b"b", b"c")
    world.commit()
    consumer = world.on_queue(world.consumer(), "q")
    out = world.out()
    world.ack(consumer, out[2])  # acknowledged outside, after what the transaction has
    transaction = Transaction("t")
    for got in out[:2]:
        world.hold(transaction, consumer, got)
    sent = run_of("r", b"result")
    transaction.sends.append((world.address("r"), sent))
    assert world.engine.commit(transaction, is_answered=True) is True
    assert transaction.is_refusable
    refuse(world)
    world.on_queue(world.consumer("of r"), "r")
    assert world.bodies() == []
    world.ack(consumer, out[0])  # it is the consumer's again
    world.close(consumer, is_failure=True)
    world.on_queue(world.consumer("next"), "q")
    assert [(got.body, got.is_redelivered) for got in world.settle()] == [(b"b", True)]
    world.commit()
    assert drained(world, "q") == [b"b"]
    assert drained(world, "r") == []


def test_a_transaction_that_was_refused_gives_back_where_its_consumer_is_gone() -> None:
    world = World()
    answered(world, "q", b"a")
    world.commit()
    consumer = world.on_queue(world.consumer(), "q")
    transaction = Transaction("t")
    world.hold(transaction, consumer, world.out()[0])
    transaction.sends.append((world.address("r"), run_of("r", b"result")))
    world.engine.commit(transaction, is_answered=True)
    world.close(consumer)
    refuse(world)
    world.on_queue(world.consumer("next"), "q")
    assert world.bodies() == [b"a"]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_transaction_that_only_acknowledges_is_not_refused(*, is_answered: bool) -> None:
    world = World()
    answered(world, "q", b"a")
    world.commit()
    consumer = world.on_queue(world.consumer(), "q")
    transaction = Transaction("t")
    world.hold(transaction, consumer, world.out()[0])
    assert world.engine.commit(transaction, is_answered=is_answered) is True
    assert not transaction.is_refusable
    refuse(world)
    world.commit()
    assert drained(world, "q") == []


def test_dead_letters_are_not_withdrawn_with_what_caused_them() -> None:
    world = World(AddressSetting(match="q", dead_letter_address="dead", max_delivery_attempts=1))
    answered(world, "q", b"bad")
    world.commit()
    consumer = world.on_queue(world.consumer(), "q")
    transaction = Transaction("t")
    world.hold(transaction, consumer, world.out()[0], is_good=False)
    transaction.sends.append((world.address("r"), run_of("r", b"result")))
    world.engine.commit(transaction, is_answered=True)
    refuse(world)
    world.commit()
    assert drained(world, "dead") == [b"bad"]
    assert drained(world, "r") == []


def test_a_duplicate_of_what_was_refused_is_none() -> None:
    world = World()
    answered(world, "q", b"first", _AMQ_DUPL_ID="7")
    refuse(world)
    answered(world, "q", b"again", _AMQ_DUPL_ID="7")
    world.commit()
    assert drained(world, "q") == [b"again"]
    after = world.restart()
    after.send("q", b"third", headers={"_AMQ_DUPL_ID": "7"})
    assert after.engine.counters["duplicates"] == 1


def test_the_id_of_what_was_refused_is_not_stored() -> None:
    world = World()
    answered(world, "q", b"first", _AMQ_DUPL_ID="7")
    refuse(world)
    world.commit()
    after = world.restart()
    answered(after, "q", b"again", _AMQ_DUPL_ID="7")
    assert after.engine.counters["duplicates"] == 0


def test_what_was_retained_before_is_again() -> None:
    world = World()
    answered_before = world.send("t", b"before", routing=MULTICAST, headers={"retain": "set"})
    world.commit()
    world.close(world.on_durable(world.consumer(), "d", "t"))  # so that it is stored
    answered(world, "t", b"refused", routing=MULTICAST, retain="set")
    refuse(world)
    world.commit()
    for now in (world, world.restart()):
        retained = now.engine.addresses["t"].retained
        assert retained is not None
        assert retained.bodies == answered_before.bodies


def test_an_address_that_blocks_keeps_everything() -> None:
    world = World(AddressSetting(match="q", disk_full_policy=DiskFullPolicy.BLOCK))
    answered(world, "q", b"a")
    refuse(world)
    world.on_queue(world.consumer(), "q")
    assert world.bodies() == [b"a"]
    world.commit()
    assert drained(world, "q") == [b"a"]


def test_a_transaction_goes_whole_when_one_of_its_addresses_fails() -> None:
    world = World(AddressSetting(match="q", disk_full_policy=DiskFullPolicy.BLOCK))
    transaction = Transaction("t")
    transaction.sends += [(world.address("q"), run_of("q", b"a")), (world.address("r"), run_of("r", b"b"))]
    world.engine.commit(transaction, is_answered=True)
    refuse(world)
    world.commit()
    assert drained(world, "q") == drained(world, "r") == []


# What had to make room


def test_a_ring_has_again_what_was_dropped_for_what_was_refused() -> None:
    world = World(AddressSetting(match="q", default_ring_size=3))
    answered(world, "q", b"a", b"b", b"c")
    world.commit()
    answered(world, "q", b"d", b"e")
    refuse(world)
    assert world.engine.counters["overwritten"] == 0
    world.commit()
    assert drained(world, "q") == [b"a", b"b", b"c"]
    answered(world, "q", b"f")
    world.on_queue(world.consumer(), "q")
    assert world.bodies() == [b"b", b"c", b"f"]


@pytest.mark.parametrize("page_size", [1, 1 << 20])
def test_a_ring_does_not_count_what_was_refused(page_size: int) -> None:
    world = World(AddressSetting(match="q", default_ring_size=5), page_size=page_size)
    for number in range(3):
        answered(world, "q", b"refused %d" % number)
    refuse(world)
    for number in range(5):
        answered(world, "q", b"%d" % number)
    world.commit()
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("page_size", [1, 1 << 20])
def test_the_last_value_before_what_was_refused_is_the_last_again(page_size: int) -> None:
    world = World(AddressSetting(match="q", default_last_value_key="key"), page_size=page_size)
    answered(world, "q", b"a1", key="a")
    answered(world, "q", b"b1", key="b")
    world.commit()
    answered(world, "q", b"a2", key="a")
    answered(world, "q", b"a3", key="a")
    refuse(world)
    world.commit()
    assert sorted(drained(world, "q")) == [b"a1", b"b1"]
    answered(world, "q", b"a4", key="a")
    world.on_queue(world.consumer(), "q")
    assert sorted(got.body for got in world.settle()) == [b"a4", b"b1"]


def test_a_last_value_that_was_out_and_came_back_when_a_newer_one_was_refused_is_the_last_again() -> None:
    world = World(AddressSetting(match="q", default_last_value_key="key"))
    answered(world, "q", b"a1", key="a")
    world.commit()
    consumer = world.on_queue(world.consumer(prefetch=1), "q")
    out = world.out()
    answered(world, "q", b"a2", key="a")
    commit = world.engine.take_commit()
    world.nack(consumer, out[0])
    world.close(consumer)
    world.engine.commit_failed(commit)
    world.commit()
    assert drained(world, "q") == [b"a1"]


def test_a_value_that_is_newer_than_what_was_refused_stays_the_last() -> None:
    world = World(AddressSetting(match="q", default_last_value_key="key"))
    answered(world, "q", b"a1", key="a")
    world.commit()
    answered(world, "q", b"a2", key="a")
    world.send("q", b"a3", headers={"key": "a"})  # nobody waits for an answer to this one
    refuse(world)
    world.commit()
    assert drained(world, "q") == [b"a3"]


def test_what_was_refused_does_not_count_where_an_address_is_limited() -> None:
    world = World(AddressSetting(match="q", page_limit_messages=10), page_size=1)
    for number in range(5):
        answered(world, "q", b"refused %d" % number)
    refuse(world)
    limits = world.address("q").limits
    assert limits is not None
    assert limits.size() == (0, 0)
    for number in range(10):
        answered(world, "q", b"%d" % number)
    with pytest.raises(Refused):
        limits.address.engine.prepare([(world.address("q"), run_of("q", b"too much"))])


# What others sent


def test_what_expired_while_another_message_was_published_is_not_withdrawn_with_it() -> None:
    world = World(AddressSetting(match="q", expiry_address="expired"))
    world.send("q", b"old", expires=NOW + 10)
    world.commit()
    unit = world.engine.commits.begin()
    world.engine.now = NOW + 20
    world.send("other", b"new")
    world.on_queue(world.consumer(), "q")  # as a queue that finds it in the middle of something
    world.engine.commits.end(is_stored=True)
    assert [address.name for address, _ in unit.sends] == ["other"]
    refuse(world)
    world.commit()
    assert drained(world, "expired") == [b"old"]
    assert drained(world, "other") == []


def test_what_expires_as_it_comes_is_withdrawn_where_it_went() -> None:
    world = World(AddressSetting(match="q", expiry_address="expired"))
    world.on_queue(world.consumer(), "q")
    run = run_of("q", b"late", expires=NOW - 1)
    run.routing = ANYCAST
    world.engine.publish(world.address("q"), run, is_answered=True)
    assert world.engine.counters["expired"] == 1
    refuse(world)
    world.commit()
    assert drained(world, "expired") == []


# Refused before anything is changed


def test_in_trouble_only_what_needs_the_disk_is_refused() -> None:
    world = World(AddressSetting(match="block", disk_full_policy=DiskFullPolicy.BLOCK))
    world.engine.trouble = TROUBLE
    with pytest.raises(Refused) as caught:
        answered(world, "q", b"a")
    assert caught.value.code == "disk-full"
    assert world.address("q").log.next == 0
    world.send("q", b"volatile", persistent=False)
    world.send("block", b"waits")
    plain = world.on_topic(world.consumer("plain", AckMode.AUTO), "t")
    world.send_to_topic("t", b"nobody stores it")
    assert [(got.consumer, got.body) for got in world.out()] == [(plain.name, b"nobody stores it")]


def test_in_trouble_a_duplicate_of_what_is_stored_is_confirmed() -> None:
    """What it stands for is there, and nothing of it needs the disk; one of what is still on its way waits as that does."""
    world = World(AddressSetting(match="block", disk_full_policy=DiskFullPolicy.BLOCK))
    first = answered(world, "q", b"a", _AMQ_DUPL_ID="7")
    answered(world, "block", b"on its way", _AMQ_DUPL_ID="8")
    assert world.engine.publish(
        world.address("q"), Run(first.shape, [b"a"], routing=ANYCAST), is_answered=True
    ), "not stored yet"
    world.commit()
    answered(world, "block", b"on its way, too", _AMQ_DUPL_ID="9")
    refuse(world)
    world.engine.trouble = TROUBLE
    assert (
        world.engine.publish(world.address("q"), Run(first.shape, [b"a"], routing=ANYCAST), is_answered=True)
        is False
    )
    transaction = Transaction("t")
    transaction.sends.append((world.address("q"), Run(first.shape, [b"a"], routing=ANYCAST)))
    assert world.engine.commit(transaction, is_answered=True) is False
    with pytest.raises(Refused):
        answered(world, "q", b"b", _AMQ_DUPL_ID="10")
    answered(world, "block", b"on its way, too", _AMQ_DUPL_ID="9")
    world.commit()
    assert drained(world, "q") == [b"a"]
    assert drained(world, "block") == [b"on its way", b"on its way, too"]
    after = world.restart()
    after.engine.trouble = TROUBLE
    assert (
        after.engine.publish(after.address("q"), Run(first.shape, [b"a"], routing=ANYCAST), is_answered=True)
        is False
    )


def test_in_trouble_a_transaction_is_aborted_whole() -> None:
    world = World()
    answered(world, "q", b"a")
    world.commit()
    consumer = world.on_queue(world.consumer(), "q")
    out = world.out()
    world.engine.trouble = TROUBLE
    transaction = Transaction("t")
    world.hold(transaction, consumer, out[0])
    transaction.sends += [
        (world.address("q"), run_of("q", b"b")),
        (world.address("r"), run_of("r", b"c", persistent=False)),
    ]
    with pytest.raises(Refused):
        world.engine.commit(transaction, is_answered=True)
    assert world.bodies() == []
    world.ack(consumer, out[0])  # it is the consumer's again
    world.engine.trouble = None
    world.commit()
    assert drained(world, "q") == []
