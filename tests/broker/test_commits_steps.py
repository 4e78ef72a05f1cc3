"""What a commit has very much of is gathered, and lands, in steps: others have their turn between two of them."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from stompbox.broker import transactions
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.unitofwork import LARGE
from stompbox.broker.commits import MANY, PART, PASSES, RANGES
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.transactions import Transaction, committing
from stompbox.message import Shape
from stompbox.ranges import Ranges
from tests.broker.test_commits import answered, drained, refuse
from tests.broker.world import Got, World, run_of


def many(world: World, count: int = MANY + 1) -> None:
    for number in range(count):
        world.send(f"q{number}", b"x")


def taken(world: World, count: int) -> tuple[Consumer, list[Got]]:
    """Who has all of so many messages of a queue, and what: it is stored, and not acknowledged."""
    world.send("q", *[b"%d" % number for number in range(count)])
    consumer = world.on_queue(world.consumer(ack=AckMode.INDIVIDUAL), "q")
    out = world.settle()
    world.commit()
    return consumer, out


def unsaved_in_steps(world: World) -> list[int]:
    """How many ranges that were acknowledged of the queue are not gathered, at first and after each step."""
    cursor = world.queue("q").cursor
    left = [len(cursor.unsaved or ())]
    for _ in world.engine.commits.preparing():
        left.append(len(cursor.unsaved or ()))
    return left


def test_very_many_addresses_are_gathered_ahead_a_part_in_each_step() -> None:
    world = World()
    commits = world.engine.commits
    many(world, MANY)
    assert not commits.is_large
    world.send("one more", b"x")
    assert commits.is_large
    left = [len(commits.dirty)]
    for _ in commits.preparing():
        left.append(len(commits.dirty))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= PART
    assert commits, "and all of it is still to be taken"
    assert len(world.commit().runs) == MANY + 1
    assert not commits


def test_what_happens_between_two_steps_is_in_the_commit_whole() -> None:
    """A message goes from an address that is gathered already to one that is not, and another the other way."""
    world = World()
    many(world)
    consumer = world.consumer()
    for name in ("q0", f"q{MANY}"):
        world.on_queue(consumer, name)
    first, last = world.out()
    steps = world.engine.commits.preparing()
    while world.queue("q0").address in world.engine.commits.dirty:
        next(steps)
    world.ack(consumer, first)
    world.send(f"q{MANY}", b"moved")
    world.ack(consumer, last)
    world.send("q0", b"moved back")
    for _ in steps:
        pass
    commit = world.commit()
    assert [run.bodies for run in commit.runs[first.queue.address.log.id]] == [[b"x"], [b"moved back"]]
    assert drained(world, "q0") == [b"moved back"]
    assert drained(world, f"q{MANY}") == [b"moved"]


def test_what_was_gathered_ahead_and_is_refused_goes_in_with_the_next_commit() -> None:
    world = World()
    many(world)
    answered(world, "q0", b"refused")
    for _ in world.engine.commits.preparing():
        world.send("q0", b"more")
    refuse(world)
    world.commit()
    kept = drained(world, "q0")
    assert kept[0] == b"x"
    assert set(kept[1:]) == {b"more"}
    assert drained(world, f"q{MANY}") == [b"x"]


def test_addresses_that_go_after_they_were_gathered_are_in_no_commit() -> None:
    world = World()
    many(world)
    for _ in world.engine.commits.preparing():
        pass
    world.engine.drop_queue(world.queue("q0"))
    world.engine.drop_address(world.address("q0"))
    commit = world.commit()
    assert len(commit.runs) == len(commit.logs) == MANY
    assert not commit.dropped_logs


def test_acknowledgements_are_gathered_ahead_once_the_messages_are() -> None:
    world = World()
    many(world)
    world.commit()
    for number in range(MANY + 1):
        consumer = world.on_queue(world.consumer(), f"q{number}")
        for got in world.out():
            world.ack(consumer, got)
    left = [len(world.engine.commits.acked)]
    for _ in world.engine.commits.preparing():
        left.append(len(world.engine.commits.acked))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= PART
    assert len(world.commit().acknowledged) == MANY + 1
    assert drained(world, "q0") == []


def test_acknowledgements_of_one_queue_that_lie_apart_are_gathered_a_part_in_each_step() -> None:
    world = World()
    count = 4 * RANGES
    consumer, out = taken(world, count)
    queue, commits = world.queue("q"), world.engine.commits
    for got in out[1 : 2 * RANGES : 2]:
        world.ack(consumer, got)
    assert not commits.is_large
    for got in out[2 * RANGES + 1 :: 2]:
        world.ack(consumer, got)
    assert commits.is_large
    left = unsaved_in_steps(world)
    assert (left[0], left[-1]) == (count // 2, 0)
    assert max(before - after for before, after in pairwise(left)) <= PART
    assert not commits.is_large
    assert world.commit().acknowledged[queue.id] == [(at, at + 1) for at in range(1, count, 2)]
    assert drained(world, "q") == [b"%d" % number for number in range(0, count, 2)]


def test_acknowledgements_that_say_nothing_any_more_are_gathered_a_part_in_each_step_too() -> None:
    """What lay apart is one by the last of them."""
    world = World()
    count = 4 * RANGES
    consumer, out = taken(world, count)
    for got in [*out[1::2], *out[::2]]:
        world.ack(consumer, got)
    queue = world.queue("q")
    left = unsaved_in_steps(world)
    assert (left[0], left[-1]) == (count, 0)
    assert max(before - after for before, after in pairwise(left)) <= 2 * PART
    assert world.commit().acknowledged[queue.id] == [(0, count)]


@pytest.mark.parametrize("is_put", [False, True], ids=["acknowledged", "put elsewhere"])
def test_acknowledgements_that_come_while_others_are_gathered_are_in_the_same_commit(*, is_put: bool) -> None:
    world = World()
    count = 2 * RANGES + 8
    consumer, out = taken(world, count)
    for got in out[1 : count - 4 : 2]:
        world.ack(consumer, got)
    queue = world.queue("q")
    for number, _ in enumerate(world.engine.commits.preparing()):
        if number == 1:
            world.ack(consumer, out[-1])
            if is_put:
                queue.cursor.put(3)
                world.engine.commits.put_cursor(queue)
    commit = world.commit()
    expected = [*range(1, count - 4, 2), count - 1]
    told = sorted(first for first, _ in commit.acknowledged.get(queue.id, []))
    assert told == ([] if is_put else expected)
    left = range(3, count) if is_put else sorted(set(range(count)) - set(expected))
    assert drained(world, "q") == [b"%d" % number for number in left]


def test_very_many_acknowledgements_that_a_large_unit_held_go_in_parts() -> None:
    world = World(portion=PART)
    count = 2 * LARGE
    consumer, out = taken(world, count)
    transaction = Transaction("t")
    for got in out:
        world.hold(transaction, consumer, got)
    transaction.sends += [(world.address("r"), run_of("r", b"answered"))]
    assert world.engine.commit(transaction, is_answered=True)
    unit = transaction.unit
    assert unit is not None and unit.is_large
    world.commit()
    left = [len(unit.acked)]
    while world.engine.dispatch_rest(lambda: False):
        left.append(len(unit.acked))
    assert left[0] > LARGE and left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 2 * PART


def test_acknowledgements_apart_in_any_order_hold_others_up_for_a_few_steps() -> None:
    """Each was marked by itself, in the order of the ACKs, and everybody's commit waited for that."""
    world = World()
    count = 4000
    consumer, out = taken(world, count)
    transaction = Transaction("t")
    apart = out[1::2]
    Random(1).shuffle(apart)
    for got in apart:
        world.hold(transaction, consumer, got)
    commits = world.engine.commits
    held = sum(commits.is_held for _ in committing(world.engine, transaction, is_answered=True))
    assert not commits.is_held
    assert held <= len(apart) / transactions.PART
    commit = world.commit()
    queue = world.queue("q")
    assert commit.acknowledged == {queue.id: [(at, at + 1) for at in range(1, count, 2)]}
    assert queue.settled == consumer.bindings[queue.id].done == len(apart)
    again = world.restart()
    assert drained(again, "q") == [b"%d" % number for number in range(0, count, 2)]


def test_how_much_is_sent_in_one_step_is_asked_before_others_are_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    transaction = Transaction("t")
    transaction.sends += [(world.address("q"), run_of("q", b"%d" % number)) for number in range(200)]
    commits, asked = world.engine.commits, []
    ask = transactions.at_once

    def noted(address: Address, shape: Shape) -> int:
        asked.append(commits.is_held)
        return ask(address, shape)

    monkeypatch.setattr(transactions, "at_once", noted)
    held = sum(commits.is_held for _ in committing(world.engine, transaction, is_answered=True))
    assert asked == [False] * 200
    assert held == 200 / transactions.STEP
    world.commit()
    assert drained(world, "q") == [b"%d" % number for number in range(200)]


def test_what_a_refused_transaction_had_acknowledged_is_looked_for_among_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of thousands was looked for among all that the next commit would say of its queue."""
    world = World()
    count = 1000
    consumer, out = taken(world, count)
    transaction = Transaction("t")
    for got in out[1::2]:
        world.hold(transaction, consumer, got)
    transaction.sends += [(world.address("r"), run_of("r", b"refused"))]
    assert world.engine.commit(transaction, is_answered=True)
    added = [0]
    add = Ranges.add

    def counted(ranges: Ranges, start: int, stop: int) -> None:
        added[0] += 1
        add(ranges, start, stop)

    monkeypatch.setattr(Ranges, "add", counted)
    refuse(world)
    assert added[0] <= 2 * count
    world.commit()
    assert drained(world, "q") == [b"%d" % number for number in range(count)]
    assert drained(world, "r") == []


def test_those_who_always_have_news_do_not_put_the_commit_off_for_ever() -> None:
    world = World()
    many(world)
    for count, _ in enumerate(world.engine.commits.preparing()):
        many(world)
        assert count < PASSES * (MANY // PART + 2)
    assert len(world.commit().runs) == MANY + 1


def test_a_commit_of_very_many_addresses_lands_in_steps() -> None:
    world = World()
    many(world)
    commits = world.engine.commits
    world.store.apply(world.engine.take_commit())
    assert commits.is_landing_long
    addresses = [world.address(f"q{number}") for number in range(MANY + 1)]
    left = [len(addresses)]
    for _ in commits.landing():
        left.append(sum(not address.log.committed for address in addresses))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= PART
    world.engine.committed()
    assert not commits.is_landing_long
    assert world.engine.unsaved == 0
