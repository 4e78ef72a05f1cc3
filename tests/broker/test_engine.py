"""Publishing, and what is left for the server to do."""

from __future__ import annotations

from itertools import chain

import pytest

from stompbox.broker.addresses.contracts import Divert
from stompbox.broker.addresses.course import NOWHERE
from stompbox.broker.engine import COUNTED, TOGETHER
from stompbox.broker.logs.segments import cost_of
from stompbox.broker.queues.consumer import AckMode
from stompbox.config.settings import AddressFullPolicy, AddressSetting
from stompbox.errors import IllegalFrame
from stompbox.message import ANYCAST, MULTICAST, Run
from stompbox.selectors import compile_selector
from tests.broker.world import World, run_of

CLOSED = AddressSetting(match="closed.#", auto_create_queues=False)


def topic_run(name: str) -> Run:
    run = run_of(name, b"x")
    run.routing = MULTICAST
    return run


def test_what_needs_the_disk() -> None:
    """True: the receipt must wait for the next commit."""
    world = World()
    engine = world.engine
    assert engine.publish(world.address("q"), run_of("q", b"x"))
    assert not engine.publish(world.address("q"), run_of("q", b"x", persistent=False))
    assert not engine.publish(world.address("t"), topic_run("t")), "nobody keeps it"
    world.on_durable(world.consumer(), "d", "t")
    assert engine.publish(world.address("t"), topic_run("t"))


def test_without_a_disk_nothing_waits() -> None:
    world = World(is_durable=False)
    assert not world.engine.publish(world.address("q"), run_of("q", b"x"))
    assert world.commit().runs == {}


def test_a_refused_send_has_no_effect() -> None:
    """No offset is used up, so no cursor waits for it."""
    world = World(CLOSED)
    world.on_durable(world.consumer(), "d", "closed.x")
    with pytest.raises(IllegalFrame) as caught:
        world.send("closed.x", b"a", routing=ANYCAST)
    assert caught.value.code == "no-such-queue"
    assert world.engine.addresses["closed.x"].log.next == 0
    assert world.engine.counters["received"] == 0


def test_an_address_that_frames_may_not_make() -> None:
    world = World(AddressSetting(match="#", auto_create_addresses=False))
    with pytest.raises(IllegalFrame) as caught:
        world.engine.address("x")
    assert caught.value.code == "no-such-address"
    assert not world.engine.addresses


def test_a_topic_without_subscribers_costs_nothing() -> None:
    world = World()
    for _ in range(10):
        world.send_to_topic("t", b"x")
    assert world.engine.counters["unrouted"] == 10
    assert not world.engine.is_dirty


def test_a_message_is_stored_once_however_many_read_it() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.on_durable(world.consumer(name), name, "t")
    world.send_to_topic("t", b"x")
    commit = world.commit()
    assert [len(runs) for runs in commit.runs.values()] == [1]
    assert len(world.out()) == 3


def test_what_is_consumed_before_the_commit_is_not_written() -> None:
    world = World()
    consumer = world.on_queue(world.consumer(), "q")
    world.commit()
    world.send("q", b"x")
    world.ack(consumer, world.out()[0])
    commit = world.commit()
    assert (commit.runs, commit.acknowledged) == ({}, {})


@pytest.mark.parametrize("first", [0, 1], ids=["from-the-first", "apart"])
def test_acknowledged_in_one_go_is_acknowledged_one_by_one(first: int) -> None:
    """Messages of two queues in turns: of a limited one, and of one that keeps the last value of each key."""
    counts = []
    for together in (False, True):
        world = World(
            AddressSetting(
                match="limited", max_size_messages=100, address_full_policy=AddressFullPolicy.FAIL
            ),
            AddressSetting(match="values", default_last_value_key="key"),
        )
        consumer = world.on_queue(world.on_queue(world.consumer(), "limited"), "values")
        for number in range(20):
            world.send("limited", b"%d" % number)
            world.send("values", b"%d" % number, headers={"key": str(number)})
        taken = [
            consumer.take(got.queue.id, got.offset, got.offset + 1)[0] for got in world.out()[2 * first :: 3]
        ]
        for sent in [list(chain.from_iterable(taken))] if together else taken:
            world.engine.acknowledge(consumer, sent)
        limited, values = world.queue("limited"), world.queue("values")
        assert limited.tally is not None
        acknowledged = sorted((key, sorted(told)) for key, told in world.commit().acknowledged.items())
        counts.append(
            [world.engine.counters["acknowledged"], limited.tally.count, limited.tally.size, acknowledged]
        )
        for queue in (limited, values):
            done = consumer.bindings[queue.id].done
            counts[-1] += [
                queue.delivering,
                queue.settled,
                done,
                list(queue.cursor.ahead),
                queue.cursor.position,
            ]
        for number in range(20):
            world.send("values", b"again", headers={"key": str(number)})
        counts[-1].append(world.engine.counters["replaced"])
        assert world.engine.counters["acknowledged"] == len(taken) > TOGETHER
    assert counts[0] == counts[1]


def test_messages_that_are_not_persistent_are_not_written() -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    world.send("q", b"x", persistent=False)
    assert world.commit().runs == {}
    assert world.restart().queue("q").backlog.count == 0


def test_the_store_gets_no_gaps_where_there_are_none() -> None:
    """Persistent messages and others in turn, all of them acknowledged: the stored cursor is one position."""
    world = World()
    consumer = world.on_queue(world.consumer(), "q")
    world.send("q", b"never answered")
    (stuck,) = world.out()
    for number in range(40):
        world.send("q", b"%d" % number, persistent=number % 2 == 0)
        world.ack(consumer, world.out()[0])
        world.commit()
    (cursor,) = world.store.recover().cursors
    assert (cursor.position, len(cursor.ahead)) == (0, 1)
    world.ack(consumer, stuck)
    world.commit()
    (cursor,) = world.store.recover().cursors
    assert (cursor.position >= 40, len(cursor.ahead)) == (True, 0)


def test_offsets_below_a_new_subscription_are_not_given_out_again() -> None:
    """What was sent before it came is stored nowhere, and a message in its place would be one that the subscription has seen."""
    world = World()
    world.send_to_topic("t", b"nobody wants it")
    world.on_durable(world.consumer("early"), "d", "t")
    world.commit()
    world = world.restart()
    world.send_to_topic("t", b"after the restart")
    world.on_durable(world.consumer("again"), "d", "t")
    assert [(got.body, got.offset > 0) for got in world.settle()] == [(b"after the restart", True)]


def test_a_failed_commit_goes_in_again() -> None:
    world = World()
    consumer = world.on_queue(world.consumer(), "q")
    world.send("q", b"0", b"1")
    world.ack(consumer, world.out()[0])
    first = world.engine.take_commit()
    world.send("q", b"2")
    world.engine.commit_failed(first)
    assert world.engine.is_dirty
    world.commit()
    assert not world.engine.is_dirty
    world = world.restart()
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"1", b"2"]


def test_unsaved_is_what_waits_for_the_disk() -> None:
    world = World()
    world.send("q", b"")
    entries = world.engine.unsaved_runs - 1
    assert entries == len(world.commit().entries) > 0, "of the catalogue: the queue is new"
    assert (world.engine.unsaved_runs, world.engine.logged) == (0, entries + 1)
    world.engine.logged = 0
    world.send("q", b"x" * 1000)
    assert world.engine.unsaved > 1000
    assert world.engine.unsaved_runs == world.engine.logged == 1
    commit = world.engine.take_commit()
    world.send("q", b"x" * 10_000)
    world.store.apply(commit)
    world.engine.committed()
    assert 10_000 < world.engine.unsaved < 11_000
    assert (world.engine.unsaved_runs, world.engine.logged) == (1, 2)
    world.commit()
    assert world.engine.unsaved == world.engine.unsaved_runs == 0


def test_one_consumer_of_many_queues_gets_from_each_in_turn() -> None:
    """An answer costs no look at all the queues that wait for credit."""
    world = World()
    for number in range(50):
        world.send(f"w.{number}", b"first", b"second")
    consumer = world.on_queue(world.consumer(prefetch=1), "w.*")
    (got,) = world.out()
    names = []
    for _ in range(99):
        names.append(got.queue.name)
        world.ack(consumer, got)
        (got,) = world.out()
    assert len(set(names[1:51])) == 50  # the first one's queue had its turn before the others were there


# Diverts


def divert(world: World, pattern: str, to: str, text: str = "", *, is_exclusive: bool = False) -> None:
    selector = compile_selector(text) if text else None
    world.engine.add_divert(pattern, Divert(f"{pattern}-{to}", to, selector, exclusive=is_exclusive))


def drained(world: World, *names: str) -> dict[str, list[bytes]]:
    found = {}
    for name in names:
        consumer = world.on_queue(world.consumer(f"drain {name}", AckMode.AUTO), name)
        found[name] = [got.body for got in world.settle() if got.consumer == consumer.name]
    return found


def test_a_divert_copies() -> None:
    world = World()
    divert(world, "q", "copies", "word = 'a'")
    world.send("q", b"0", b"1", b"2", holes={"word": [b"a", b"b", b"a"]})
    assert drained(world, "q", "copies") == {"q": [b"0", b"1", b"2"], "copies": [b"0", b"2"]}


def test_a_divert_that_raises_is_not_a_circle_for_the_next_message() -> None:
    world = World()
    raised: list[Run] = []

    def broken(run: Run, _: int) -> Run:
        raised.append(run)
        raise RuntimeError("a fault of ours")

    world.engine.add_divert("q", Divert("broken", "copies", None, exclusive=False, transform=broken))
    for _ in range(2):
        with pytest.raises(RuntimeError):
            world.send("q", b"a")
    assert len(raised) == 2
    assert world.engine.course.path == NOWHERE


def test_an_exclusive_divert_takes_what_it_selects_and_nothing_else() -> None:
    world = World()
    divert(world, "q", "taken", "word = 'a'", is_exclusive=True)
    world.send("q", b"0", b"1", b"2", b"3", holes={"word": [b"a", b"b", b"a", b"b"]})
    assert drained(world, "q", "taken") == {"q": [b"1", b"3"], "taken": [b"0", b"2"]}


def test_a_receipt_waits_for_the_copy() -> None:
    """Nobody keeps the message itself, but its copy is to be stored."""
    world = World()
    divert(world, "t", "kept")
    assert world.engine.publish(world.address("t"), topic_run("t"))
    world.commit()
    assert drained(world.restart(), "kept") == {"kept": [b"x"]}


def test_what_was_diverted_leaves_no_trace_in_a_paged_queue() -> None:
    world = World(page_size=1500)
    divert(world, "q", "taken", "word = 'a'", is_exclusive=True)
    for number in range(20):
        world.send("q", b"%d" % number, headers={"word": "ab"[number % 2]})
    world.commit()
    consumer = world.on_queue(world.consumer(ack=AckMode.AUTO), "q")
    got = []
    while part := world.settle():
        got += [int(one.body) for one in part]
        world.engine.flushed(consumer)
    assert got == list(range(1, 20, 2))


def test_diverts_in_a_circle_end() -> None:
    world = World()
    divert(world, "a", "b")
    divert(world, "b", "a")
    divert(world, "c", "c", is_exclusive=True)
    world.send("a", b"x")
    world.send("c", b"y")
    assert drained(world, "b", "c") == {"b": [b"x"], "c": [b"y"]}
    assert set(drained(world, "a")["a"]) == {b"x"}


def test_configured_addresses_are_made_whatever_frames_may_make() -> None:
    world = World(AddressSetting(match="#", auto_create_addresses=False, auto_create_queues=False))
    world.engine.create_address("q").add_kind(MULTICAST)
    divert(world, "q", "copies")
    world.engine.publish(world.engine.addresses["q"], topic_run("q"))
    assert world.queue("copies").backlog.count == 1


def test_what_is_unsaved_is_known_without_counting_very_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come while the disk works on the commit before."""
    world = World()
    consumer = world.on_queue(world.consumer(ack=AckMode.CLIENT), "q")
    for number in range(5):
        world.send("q", b"%d" % number)
    commit = world.engine.take_commit()
    for number in range(COUNTED + 1):
        world.send("q", b"%d" % number)
    looked: list[object] = []
    monkeypatch.setattr("stompbox.broker.engine.cost_of", lambda run: looked.append(run) or cost_of(run))
    world.store.apply(commit)
    world.engine.committed()
    assert not looked
    assert world.engine.unsaved == sum(cost_of(run) for run in world.address("q").log.pending)
    assert world.engine.unsaved_runs == len(world.address("q").log.pending)
    world.commit()
    assert world.engine.unsaved == world.engine.unsaved_runs == 0
    assert len(world.out()) == COUNTED + 6 == consumer.messages_out
