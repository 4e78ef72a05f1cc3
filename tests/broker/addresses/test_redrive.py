"""Dead letters back to where they came from.

Messages of a queue to another address.
"""

from __future__ import annotations

import pytest

from stompbox.broker.addresses.redrive import STEP, Move, Redrive
from stompbox.broker.addresses.routing import ADMITTED
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.work import MESSAGE
from stompbox.config import RoutingType
from stompbox.config.settings import AddressFullPolicy, AddressSetting, PageFullPolicy
from stompbox.message import MULTICAST
from stompbox.ranges import Ranges
from tests.broker.world import World

RULES = AddressSetting(match="#", max_delivery_attempts=1, dead_letter_address="dead")


def dying(world: World, name: str, *bodies: bytes, **headers: str) -> None:
    consumer = world.on_queue(world.consumer(name), name)
    world.send(name, *bodies, headers=headers)
    for got in world.settle():
        world.nack(consumer, got)
    world.close(consumer)


def test_back_as_it_was_sent() -> None:
    world = World(RULES)
    dying(world, "q", b"a", colour="red", _AMQ_DUPL_ID="7")
    dying(world, "q", b"b")
    dying(world, "p", b"c")
    ended: list[int] = []
    redrive = Redrive(world.engine, world.queue("dead"), on_done=ended.append)
    assert redrive.is_done
    assert ended == [3] == [redrive.count]
    assert world.queue("dead").backlog.count == 0
    world.on_queue(world.consumer("x"), "q")
    assert [(got.body, got.is_redelivered, got.headers) for got in world.settle()] == [
        (b"a", False, {"destination": "q", "colour": "red", "_AMQ_DUPL_ID": "7"}),
        (b"b", False, {"destination": "q"}),
    ]


def test_to_the_queue_that_could_not_deliver_it() -> None:
    world = World(RULES)
    durable = world.on_durable(world.consumer("d"), "d", "t")
    plain = world.on_topic(world.consumer("p", AckMode.AUTO), "t")
    world.send("t", b"a", routing=MULTICAST)
    for got in world.settle():
        if got.consumer == "d":
            world.nack(durable, got)
    world.engine.flushed(plain)
    assert world.queue("dead").backlog.count == 1
    Redrive(world.engine, world.queue("dead"))
    assert [(got.consumer, got.body) for got in world.settle()] == [("d", b"a")], "and to nobody else"


def test_queue_that_is_gone_is_made_again() -> None:
    world = World(RULES)
    dying(world, "q", b"a")
    world.engine.drop_queue(world.queue("q"))
    Redrive(world.engine, world.queue("dead"))
    assert world.queue("q").backlog.count == 1


def test_so_many_and_no_more() -> None:
    world = World(RULES)
    dying(world, "q", *[b"%d" % i for i in range(10)])
    redrive = Redrive(world.engine, world.queue("dead"), most=4)
    assert redrive.count == 4
    assert (world.queue("dead").backlog.count, world.queue("q").backlog.count) == (6, 4)
    world.on_queue(world.consumer("x"), "dead")
    assert [got.body for got in world.settle()] == [b"%d" % i for i in range(4, 10)]


def test_what_does_not_say_where_it_came_from_stays() -> None:
    world = World(RULES)
    world.send("dead", b"by hand")
    dying(world, "q", b"a")
    assert Redrive(world.engine, world.queue("dead")).count == 1
    world.on_queue(world.consumer("x"), "dead")
    assert world.bodies() == [b"by hand"]


def test_paged_dead_letters_in_several_turns() -> None:
    world = World(RULES, page_size=3000)
    for i in range(60):
        dying(world, "q", b"%02d" % i)
        world.commit()
    dead = world.queue("dead")
    assert dead.is_paged
    redrive = Redrive(world.engine, dead)
    assert not redrive.is_done
    world.settle()
    assert redrive.is_done
    assert redrive.count == 60
    world.commit()
    world = world.restart()
    consumer = world.on_queue(world.consumer("x", AckMode.AUTO), "q")
    found = []
    while got := world.settle():
        found += got
        world.engine.flushed(consumer)
    assert [each.body for each in found] == [b"%02d" % i for i in range(60)], (
        "once each, in order, over a restart"
    )


def test_what_dies_meanwhile_is_not_touched() -> None:
    """A consumer that refuses again must not make a circle."""
    world = World(RULES)
    dying(world, "q", b"a")
    consumer = world.on_queue(world.consumer("again"), "q")
    redrive = Redrive(world.engine, world.queue("dead"))
    for got in world.settle():
        world.nack(consumer, got)
    assert redrive.is_done
    assert redrive.count == 1
    assert world.queue("dead").backlog.count == 1


FULL = {
    **{
        policy.value: {"address_full_policy": policy, "max_size_messages": 5}
        for policy in AddressFullPolicy
        if policy.value != "PAGE"
    },
    **{
        f"pages, {policy.value}": {"page_limit_messages": 5, "page_full_policy": policy}
        for policy in PageFullPolicy
    },
}


def restored(world: World) -> list[bytes]:
    """What comes of the dead letters when there is room again."""
    world.on_queue(consumer := world.consumer("all", AckMode.AUTO), "q")
    world.engine.flushed(consumer)
    world.settle()
    world.engine.flushed(consumer)
    Redrive(world.engine, world.queue("dead"))
    return world.bodies()


@pytest.mark.parametrize("how", FULL)
def test_an_address_that_is_full_takes_what_fits_and_the_rest_stays(how: str) -> None:
    world = World(RULES, AddressSetting(match="q", **FULL[how]))  # type: ignore[arg-type]
    for start in (0, 3):
        dying(world, "q", *[b"%d" % i for i in range(start, start + 3)])
    world.send("q", b"new")
    redrive = Redrive(world.engine, world.queue("dead"))
    assert redrive.is_done
    assert (redrive.count, dict(redrive.stayed)) == (4, {"address-full": 2})
    assert (world.queue("dead").backlog.count, world.queue("q").backlog.count) == (2, 5)
    assert world.engine.counters["address-full"] == 0, "nothing was dropped"
    assert restored(world) == [b"4", b"5"]


def test_a_blocked_address_gets_nothing_and_others_do() -> None:
    world = World(RULES)
    dying(world, "q", b"a")
    dying(world, "p", b"b")
    dying(world, "q", b"c")
    world.engine.addresses["q"].block()
    redrive = Redrive(world.engine, world.queue("dead"))
    assert (redrive.count, dict(redrive.stayed)) == (1, {"address-blocked": 2})
    assert world.queue("q").backlog.count == 0
    world.engine.addresses["q"].unblock()
    assert restored(world) == [b"a", b"c"]


def test_what_is_moved_stays_where_there_is_no_room() -> None:
    world = World(
        AddressSetting(match="full", address_full_policy=AddressFullPolicy.DROP, max_size_messages=2)
    )
    world.send("q", *[b"%d" % i for i in range(5)])
    move = Move(world.engine, world.queue("q"), "full")
    assert (move.count, dict(move.stayed)) == (2, {"address-full": 3})
    assert world.queue("q").backlog.count == 3
    world.engine.addresses["full"].block()
    assert dict(Move(world.engine, world.queue("q"), "full").stayed) == {"address-blocked": 3}


def test_oldest_first_with_their_headers_and_as_new_messages() -> None:
    world = World()
    world.send("q", b"a", b"b", headers={"colour": "red"})
    world.send("q", b"c", holes={"id": [b"7"]})
    ended: list[int] = []
    assert Move(world.engine, world.queue("q"), "p", on_done=ended.append).is_done
    assert ended == [3]
    assert world.queue("q").backlog.count == 0
    assert world.engine.counters["moved"] == 3
    world.on_queue(world.consumer(), "p")
    assert [(got.body, got.offset, got.is_redelivered, got.headers) for got in world.settle()] == [
        (b"a", 0, False, {"destination": "q", "colour": "red"}),
        (b"b", 1, False, {"destination": "q", "colour": "red"}),
        (b"c", 2, False, {"destination": "q", "id": "7"}),
    ]


def test_what_may_have_been_moved_before_a_crash_is_marked() -> None:
    world = World()
    world.send("q", b"a")
    world.commit()
    world = world.restart()
    world.send("q", b"b")
    Move(world.engine, world.queue("q"), "p")
    world.settle()
    world.on_queue(world.consumer(), "p")
    found = world.settle()
    assert {got.body: got.is_redelivered for got in found} == {b"a": True, b"b": False}


def test_no_more_than_was_said_and_not_what_is_being_delivered() -> None:
    world = World()
    world.send("q", b"a", b"b", b"c", b"d")
    consumer = world.on_queue(world.consumer(prefetch=1), "q")
    [got] = world.settle()
    assert Move(world.engine, world.queue("q"), "p", most=2).count == 2
    world.ack(consumer, got)
    assert [got.body for got in world.settle()] == [b"d"]
    assert [got.body for got in world.waiting_in("p")] == [b"b", b"c"]


def test_what_is_in_the_log_alone_comes_too() -> None:
    world = World(page_size=1000)
    bodies = [b"%d" % number + bytes(300) for number in range(20)]
    for body in bodies:
        world.send("q", body)
    world.commit()
    assert world.queue("q").is_paged
    move = Move(world.engine, world.queue("q"), "p")
    assert not move.is_done
    while world.serve(max_bytes=1):
        world.commit()
    assert move.is_done
    assert move.count == 20
    world.on_queue(world.consumer(), "p")
    found = world.settle()
    while len(found) < 20:
        world.commit()
        found += world.settle()
    assert [got.body for got in found] == bodies


def test_both_sides_are_in_one_commit_and_survive_a_restart() -> None:
    world = World()
    world.send("q", b"a", b"b")
    world.commit()
    Move(world.engine, world.queue("q"), "p", most=1)
    world.commit()
    world = world.restart()
    for name, left in (("q", b"b"), ("p", b"a")):
        world.on_queue(world.consumer(name), name)
        assert [got.body for got in world.settle()] == [left]


def test_to_a_topic_reaches_its_subscriptions() -> None:
    world = World(AddressSetting(match="t", default_address_routing_type=RoutingType.MULTICAST))
    subscriber = world.on_topic(world.consumer("s"), "t")
    world.send("q", b"a")
    Move(world.engine, world.queue("q"), "t")
    assert [(got.consumer, got.body) for got in world.settle()] == [(subscriber.name, b"a")]


# What stays


def many_of_a_blocked_address(world: World, count: int = 200) -> None:
    """Dead letters that have to stay."""
    world.engine.address("q").block()
    for number in range(count):
        world.send("dead", b"%d" % number, headers={"_AMQ_ORIG_ADDRESS": "q"})
        world.commit()


def test_what_stays_counts_as_memory_until_the_end() -> None:
    world = World(RULES, portion=4000)
    many_of_a_blocked_address(world)
    before = world.engine.memory.size
    redrive = Redrive(world.engine, world.queue("dead"))
    while not redrive.is_done:
        assert world.engine.memory.size == before
        world.engine.dispatch_rest(lambda: False)
    assert world.engine.memory.size == before
    assert world.queue("dead").backlog.count == 200


def test_what_stays_goes_back_in_steps_and_in_order() -> None:
    world = World(RULES, portion=1000)
    many_of_a_blocked_address(world)
    world.send("dead", b"first", priority=9, headers={"_AMQ_ORIG_ADDRESS": "q"})
    queue = world.queue("dead")
    redrive = Redrive(world.engine, queue)
    most, count = 0, queue.backlog.count
    while not redrive.is_done:
        world.engine.dispatch_rest(lambda: False)
        most, count = max(most, queue.backlog.count - count), queue.backlog.count
    assert 0 < most <= 1000 // MESSAGE + 2 * STEP
    world.on_queue(world.consumer("x"), "dead")
    assert [got.body for got in world.settle()] == [b"first", *[b"%d" % number for number in range(200)]]


@pytest.mark.parametrize("is_paged", [False, True])
def test_when_what_stays_takes_a_quarter_of_all_memory_the_rest_is_not_looked_at(*, is_paged: bool) -> None:
    world = World(RULES, page_size=3000 if is_paged else 1 << 20)
    world.engine.memory.limit(40_000, -1)
    many_of_a_blocked_address(world, 45)
    assert world.queue("dead").is_paged is is_paged
    ended: list[int] = []
    redrive = Redrive(world.engine, world.queue("dead"), on_done=ended.append)
    world.settle()
    assert (ended, redrive.is_done, world.queue("dead").redrive) == ([0], True, None)
    assert 0 < redrive.stayed["address-blocked"] < 45
    assert redrive.stayed["address-blocked"] + redrive.stayed["too-much-stays"] == 45
    consumer = world.on_queue(world.consumer("x", AckMode.AUTO), "dead")
    found = []
    while got := world.settle():
        found += got
        world.engine.flushed(consumer)
    assert [got.body for got in found] == [b"%d" % number for number in range(45)]


def test_a_queue_that_goes_while_messages_go_back_leaves_no_memory_behind() -> None:
    for turns in range(30):
        world = World(RULES, portion=2000)
        many_of_a_blocked_address(world, 60)
        redrive = Redrive(world.engine, world.queue("dead"))
        for _ in range(turns):
            world.engine.dispatch_rest(lambda: False)
        world.engine.drop_queue(world.queue("dead"))
        world.settle()
        assert redrive.is_done
        assert world.engine.memory.size == 0
        assert not world.engine.returning


def test_a_queue_that_goes_between_parts_of_one_run_leaves_no_memory_behind() -> None:
    world = World(portion=1)
    world.send("dead", *[b"x"] * (4 * STEP))
    among = Ranges()
    for offset in range(0, 4 * STEP, 2):
        among.add(offset, offset + 1)
    redrive = Redrive(world.engine, world.queue("dead"), among=among)
    assert not redrive.is_done
    world.engine.drop_queue(world.queue("dead"))
    world.settle()
    assert world.engine.memory.size == 0


@pytest.mark.parametrize("is_moved", [False, True])
def test_what_goes_to_where_something_is_done_for_each_goes_in_smaller_steps(*, is_moved: bool) -> None:
    """A last-value queue asks for the key of each; it is made with the first of them."""
    world = World(AddressSetting(match="keys", default_last_value_key="k"), portion=1)
    count = 4 * ADMITTED + 10
    numbers = [b"%d" % number for number in range(count)]
    world.send("dead", *numbers, headers={"_AMQ_ORIG_ADDRESS": "keys"}, holes={"k": numbers})
    dead = world.queue("dead")
    work = Move(world.engine, dead, "keys") if is_moved else Redrive(world.engine, dead)
    before, most = 0, 0
    while not work.is_done:
        before, most = work.count, max(most, work.count - before)
        world.engine.dispatch_rest(lambda: False)
    assert 0 < max(most, work.count - before) <= ADMITTED
    assert work.count == count
    assert [got.body for got in world.waiting_in("keys")] == numbers
    assert (dead.backlog.count, world.engine.counters["replaced"]) == (0, 0)
