"""What is done to very many messages at once goes on in portions: the work of each turn is counted, and others have theirs in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stompbox.broker import transactions
from stompbox.broker.addresses import redrive
from stompbox.broker.addresses.redrive import Move, Redrive
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.arrivals import GATHERED, PLACE, STEP
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.queues.depth import depth_of
from stompbox.broker.work import COPY, MESSAGE
from stompbox.config.settings import AddressSetting
from stompbox.message import ANYCAST
from tests.broker.world import NOW, World, run_of

MANY = 600
PORTION = 40 * MESSAGE  # steps of one turn


def filled(
    world: World,
    name: str = "q",
    *,
    count: int = MANY,
    expires: int = 0,
    headers: dict[str, str] | None = None,
) -> None:
    """A queue with so many messages, each of them a run of its own."""
    for number in range(count):
        world.send(name, b"%d" % number, expires=expires, headers=headers)


def most_of_a_turn(
    world: World, count: Callable[[], int], *, meanwhile: Callable[[], object] = lambda: None
) -> int:
    """The most by which a figure changes in one of the turns that follow, until nothing is left to do."""
    before, most = count(), 0
    while world.engine.dispatch_rest(lambda: False):
        now = count()
        before, most = now, max(most, abs(now - before))
        meanwhile()
    return most


def turned(world: World, ms: int) -> None:
    """Time goes by, in a turn in which nothing else is done."""
    world.engine.work.begin()
    world.engine.tick(world.engine.now + ms, lambda: False)


# Times that come together


def test_messages_that_expire_together_go_in_portions_and_in_order() -> None:
    world = World(AddressSetting(match="q", expiry_address="gone"), portion=PORTION)
    filled(world, expires=NOW + 10)
    counters = world.engine.counters
    turned(world, 10)
    assert 0 < counters["expired"] <= STEP
    most = most_of_a_turn(world, lambda: counters["expired"])
    assert 0 < most <= PORTION // COPY + STEP
    assert counters["expired"] == MANY
    assert [got.body for got in world.waiting_in("gone")] == [b"%d" % number for number in range(MANY)]


def test_what_is_expired_and_waits_for_its_turn_goes_to_nobody_and_what_comes_meanwhile_does() -> None:
    world = World(portion=PORTION)
    filled(world, expires=NOW + 10)
    turned(world, 10)
    assert world.engine.counters["expired"] < MANY
    world.on_queue(world.consumer(), "q")
    world.send("q", b"new", expires=NOW + 20)
    assert [got.body for got in world.settle()] == [b"new"]
    assert world.engine.counters["expired"] == MANY
    turned(world, 20)
    world.send("q", b"newer", expires=NOW + 100)
    assert [got.body for got in world.settle()] == [b"newer"]


def test_what_expires_later_while_others_do_is_not_forgotten() -> None:
    world = World(portion=PORTION)
    filled(world, expires=NOW + 10)
    world.send("q", b"later", expires=NOW + 15)
    world.send("q", b"last", expires=NOW + 50)
    turned(world, 10)
    turned(world, 5)
    world.settle()
    assert world.engine.counters["expired"] == MANY + 1
    turned(world, 35)
    assert world.engine.counters["expired"] == MANY + 2


def test_two_queues_whose_messages_expire_together_take_turns() -> None:
    world = World(portion=PORTION)
    for name in ("p", "q"):
        filled(world, name, expires=NOW + 10)
    world.engine.work.begin()
    world.engine.tick(NOW + 10)
    while world.engine.dispatch_rest(lambda: False):
        left = [world.queue(name).backlog.count for name in ("p", "q")]
        assert abs(left[0] - left[1]) <= 2 * (PORTION // COPY + STEP)
    assert world.engine.counters["expired"] == 2 * MANY


@pytest.mark.parametrize("wait", ["scheduled", "redelivery"])
def test_messages_that_are_due_together_come_in_portions_and_in_order(wait: str) -> None:
    """Nothing is handed out before all of them are there: those of a higher priority, which came last, go first."""
    world = World(AddressSetting(match="q", redelivery_delay=1000, max_delivery_attempts=-1), portion=PORTION)
    if wait == "scheduled":
        filled(world, headers={"AMQ_SCHEDULED_DELAY": "1000"})
        world.send("q", b"first", priority=9, headers={"AMQ_SCHEDULED_DELAY": "1000"})
    else:
        filled(world)
        world.send("q", b"first", priority=9)
        refusing = world.on_queue(world.consumer("refusing"), "q")
        for got in sorted(world.settle(), key=lambda got: got.offset):
            world.nack(refusing, got)
        world.close(refusing)
    queue = world.queue("q")
    assert queue.waits.count == MANY + 1
    world.on_queue(world.consumer(), "q")
    turned(world, 1000)
    world.send("q", b"new")
    assert world.bodies() == []
    most = most_of_a_turn(world, lambda: queue.waits.count)
    assert 0 < most <= PORTION // MESSAGE + STEP
    assert [got.body for got in world.settle()] == [
        b"first",
        *[b"%d" % number for number in range(MANY)],
        b"new",
    ]


def test_messages_that_have_expired_when_they_come_due_go_in_portions() -> None:
    """To go to another address takes longer than to be woken."""
    world = World(AddressSetting(match="q", expiry_address="gone"), portion=PORTION)
    filled(world, headers={"AMQ_SCHEDULED_DELAY": "1000"}, expires=NOW + 1000)
    counters = world.engine.counters
    turned(world, 1000)
    assert 0 < counters["expired"] <= STEP
    most = most_of_a_turn(world, lambda: counters["expired"])
    assert 0 < most <= PORTION // COPY + STEP
    assert counters["expired"] == MANY
    assert [got.body for got in world.waiting_in("gone")] == [b"%d" % number for number in range(MANY)]


def test_where_in_the_log_those_are_that_are_due_is_found_in_portions() -> None:
    """They come in the order of the log, although their times are in another one."""
    world = World(page_size=1, portion=PORTION)
    for number in range(MANY):
        world.send("q", b"%d" % number, headers={"AMQ_SCHEDULED_DELAY": str(2000 - number)})
    world.commit()
    queue = world.queue("q")
    later = queue.later
    assert later is not None and len(later.times) == MANY
    turned(world, 2000)
    assert 0 < MANY - len(later.times) <= PORTION // PLACE + GATHERED
    most = most_of_a_turn(world, lambda: len(later.times))
    assert 0 < most <= PORTION // PLACE + GATHERED
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"%d" % number for number in range(MANY)]
    assert queue.later is None


def test_a_queue_that_goes_while_it_is_found_what_is_due_leaves_nothing_behind() -> None:
    for way in ("goes", "purged"):
        world = World(page_size=1, portion=PORTION)
        filled(world, headers={"AMQ_SCHEDULED_DELAY": "1000"})
        world.commit()
        turned(world, 1000)
        assert len(world.engine.later)
        if way == "goes":
            world.engine.drop_queue(world.queue("q"))
        else:
            reclaim.purge(world.queue("q"))
        world.settle()
        assert world.engine.memory.size == 0
        assert not world.loads and world.engine.next_deadline() is None
        if way == "purged":
            assert world.engine.counters["purged"] == MANY
            world.send("q", b"new", headers={"AMQ_SCHEDULED_DELAY": "1000"})
            world.commit()
            world.tick(1000)
            assert [got.body for got in world.waiting_in("q")] == [b"new"]


def test_a_ring_drops_in_portions_what_comes_due_together() -> None:
    world = World(AddressSetting(match="q", default_ring_size=10), portion=PORTION)
    filled(world, headers={"AMQ_SCHEDULED_DELAY": "1000"})
    queue, counters = world.queue("q"), world.engine.counters
    turned(world, 1000)
    most = most_of_a_turn(world, lambda: counters["overwritten"])
    assert 0 < most <= PORTION // MESSAGE + STEP
    assert counters["overwritten"] == MANY - 10
    assert queue.backlog.count == 10 and queue.waits.count == 0
    assert [got.body for got in world.waiting_in("q")] == [b"%d" % n for n in range(MANY - 10, MANY)]


def test_a_queue_that_goes_while_its_messages_come_due_leaves_nothing_behind() -> None:
    for header in ({"AMQ_SCHEDULED_DELAY": "1000"}, None):
        world = World(portion=PORTION)
        filled(world, headers=header, expires=0 if header else NOW + 1000)
        turned(world, 1000)
        assert len(world.engine.later)
        world.engine.drop_queue(world.queue("q"))
        world.settle()
        assert world.engine.memory.size == 0
        assert not world.engine.returning
        assert world.engine.next_deadline() is None


def test_messages_that_come_due_outlive_a_restart_half_way() -> None:
    world = World(portion=PORTION)
    filled(world, headers={"AMQ_SCHEDULED_DELAY": "1000"})
    world.commit()
    turned(world, 1000)
    world.commit()
    world = world.restart()
    world.on_queue(world.consumer("c", AckMode.AUTO), "q")
    assert [got.body for got in world.settle()] == [b"%d" % number for number in range(MANY)]


def test_what_a_subscription_had_that_ends_is_taken_from_it_in_portions() -> None:
    world = World(portion=PORTION)
    consumer = world.consumer(ack=AckMode.INDIVIDUAL)
    binding = world.on_queue(consumer, "q").bindings[world.queue("q").id]
    filled(world)
    world.settle()
    assert len(binding.held) == MANY
    before, steps = MANY, 0
    for _ in transactions.closing(world.engine, consumer, is_failure=True):
        assert before - len(binding.held) <= transactions.PART
        before, steps = len(binding.held), steps + 1
    assert steps > 2 * MANY / transactions.PART
    assert world.queue("q").count == MANY and world.engine.unacknowledged.size == 0


def test_what_has_not_left_for_a_subscription_that_ends_goes_in_portions() -> None:
    world = World(portion=PORTION)
    consumer = world.on_queue(world.consumer(), "q")
    filled(world)
    while world.engine.dispatch_rest():
        pass
    outbox = consumer.outbox
    before = len(outbox)
    assert before == MANY
    for _ in transactions.closing(world.engine, consumer, is_failure=True):
        assert before - len(outbox) <= transactions.PART
        assert consumer.outbox == []
        before = len(outbox)
    assert before == 0 and world.queue("q").count == MANY


# Queues that are emptied


def test_a_purge_goes_in_portions_and_what_comes_meanwhile_stays() -> None:
    world = World(portion=PORTION)
    filled(world)
    world.send("q", b"later", headers={"AMQ_SCHEDULED_DELAY": "1000"})
    queue, ended = world.queue("q"), list[str]()
    queue.pause()
    world.on_queue(world.consumer(), "q")
    world.engine.work.begin()
    reclaim.purge(queue, lambda: ended.append("done"))
    assert queue.backlog.count > MANY // 2
    assert not ended
    world.send("q", b"new", priority=9)
    queue.resume()
    assert world.bodies() == [], "what is to be purged goes to nobody, and what is new waits behind it"
    most = most_of_a_turn(world, lambda: queue.backlog.count)
    assert 0 < most <= PORTION // MESSAGE + reclaim.EMPTIED
    assert ended == ["done"]
    assert world.engine.counters["purged"] == MANY + 1
    assert world.bodies() == [b"new"]
    turned(world, 1000)
    assert world.settle() == []


def test_what_is_being_delivered_outlives_a_purge() -> None:
    world = World(portion=PORTION)
    holder = world.on_queue(world.consumer(prefetch=3), "q")
    filled(world)
    held = world.out()
    reclaim.purge(world.queue("q"))
    world.settle()
    assert world.engine.counters["purged"] == MANY - 3
    world.nack(holder, held[0])
    assert [got.body for got in world.settle()] == [b"0"]


def test_two_purges_at_once_take_what_was_there_when_each_began() -> None:
    world = World(portion=PORTION)
    filled(world)
    queue, ended = world.queue("q"), list[str]()
    world.engine.work.begin()
    reclaim.purge(queue, lambda: ended.append("first"))
    world.send("q", b"between")
    reclaim.purge(queue, lambda: ended.append("second"))
    world.send("q", b"after")
    world.settle()
    assert sorted(ended) == ["first", "second"]
    assert world.engine.counters["purged"] == MANY + 1
    assert [got.body for got in world.waiting_in("q")] == [b"after"]


def test_a_purge_of_lanes_takes_all_of_them() -> None:
    """Also what is sorted anew meanwhile."""
    world = World(portion=PORTION)
    for number in range(MANY):
        world.send("q", b"%d" % number, headers={"n": str(number % 7)}, priority=number % 3)
    world.on_queue(world.consumer("one", prefetch=1, selector="n = 1"), "q")
    world.settle()
    queue = world.queue("q")
    world.engine.work.begin()
    reclaim.purge(queue)
    world.on_queue(world.consumer("two", prefetch=1, selector="n = 2"), "q")
    assert world.settle() == []
    assert queue.backlog.count == queue.backlog.size == 0
    assert world.engine.counters["purged"] == MANY - 1


def test_a_purge_that_a_crash_ends_has_taken_some_and_lost_nothing_else() -> None:
    world = World(portion=PORTION)
    filled(world)
    world.commit()
    world.engine.work.begin()
    reclaim.purge(world.queue("q"))
    world.send("q", b"new")
    world.commit()
    gone = world.engine.counters["purged"]
    assert 0 < gone < MANY
    world = world.restart()
    found = [got.body for got in world.waiting_in("q")]
    assert len(found) == MANY - gone + 1
    assert found[-1] == b"new"


def test_a_queue_that_is_purged_without_consumers_is_so_in_portions() -> None:
    world = World(AddressSetting(match="q", default_purge_on_no_consumers=True), portion=PORTION)
    holder = world.on_queue(world.consumer(prefetch=1), "q")
    filled(world)
    world.out()
    world.engine.work.begin()
    world.close(holder)
    assert world.engine.counters["purged"] < MANY
    world.on_queue(world.consumer("next"), "q")
    world.send("q", b"new")
    assert [got.body for got in world.settle()] == [b"new"]
    assert world.engine.counters["purged"] == MANY


@pytest.mark.parametrize("how", ["dropped", "dropped while it is purged", "left"])
def test_a_queue_that_goes_is_gone_at_once_and_its_memory_in_portions(how: str) -> None:
    world = World(
        AddressSetting(match="q", auto_delete_queues=True, auto_delete_queues_message_count=-1),
        portion=PORTION,
    )
    filled(world)
    world.send("q", b"later", headers={"AMQ_SCHEDULED_DELAY": "1000"})
    memory, old = world.engine.memory, world.queue("q")
    if how == "left":
        consumer = world.on_queue(world.consumer(prefetch=1), "q")
        world.out()
        world.engine.work.begin()
        world.close(consumer)
    else:
        if how != "dropped":
            reclaim.purge(old)
        world.engine.work.begin()
        world.engine.drop_queue(old)
    assert old.id not in world.engine.queues
    assert "q" not in world.address("q").anycast
    assert memory.count > MANY // 2
    most = most_of_a_turn(world, lambda: memory.count)
    assert 0 < most <= PORTION // MESSAGE + reclaim.EMPTIED
    assert memory.count == memory.size == 0
    assert not world.engine.returning


def test_a_queue_that_comes_again_has_nothing_of_the_one_that_goes() -> None:
    world = World(portion=PORTION)
    filled(world)
    world.engine.work.begin()
    world.engine.drop_queue(world.queue("q"))
    world.send("q", b"new")
    assert [got.body for got in world.waiting_in("q")] == [b"new"]
    assert world.engine.memory.count == 1


def test_an_address_goes_with_its_queues_in_portions() -> None:
    world = World(portion=PORTION)
    for number in range(MANY):
        world.on_topic(world.consumer(f"c{number}"), "t")
    address, ended = world.address("t"), list[int]()

    def dropping() -> Iterator[None]:
        ended.append(len((yield from transactions.dropping(world.engine, address))))

    world.engine.work.begin()
    world.engine.later.take(object(), dropping())
    assert len(address.topics) > MANY // 2
    assert address.is_blocked
    assert not ended
    most = most_of_a_turn(world, lambda: len(address.topics))
    assert 0 < most <= PORTION // COPY + transactions.ENDED
    assert ended == [MANY]
    assert "t" not in world.engine.addresses


# Messages that an operator takes elsewhere


def dead(world: World) -> None:
    consumer = world.on_queue(world.consumer("refusing"), "q")
    filled(world)
    for got in world.settle():
        world.nack(consumer, got)
    world.close(consumer)


DEAD = AddressSetting(match="q", max_delivery_attempts=1, dead_letter_address="dead")


@pytest.mark.parametrize("sort", ["redrive", "move"])
def test_dead_letters_go_back_in_portions_and_in_order(sort: str) -> None:
    world = World(DEAD, portion=PORTION)
    dead(world)
    ended = list[int]()
    world.engine.work.begin()
    queue, to = world.queue("dead"), "q" if sort == "redrive" else "other"
    if sort == "redrive":
        Redrive(world.engine, queue, on_done=ended.append)
    else:
        Move(world.engine, queue, to, on_done=ended.append)
    assert not ended
    world.send("dead", b"new")
    most = most_of_a_turn(world, lambda: queue.backlog.count)
    assert 0 < most <= PORTION // COPY + redrive.STEP
    assert ended == [MANY]
    assert queue.redrive is None
    assert [got.body for got in world.waiting_in(to)] == [b"%d" % number for number in range(MANY)]
    assert [got.body for got in world.waiting_in("dead")] == [b"new"]


@pytest.mark.parametrize("sort", ["redrive", "move"])
def test_a_crash_half_way_loses_nothing_and_doubles_nothing(sort: str) -> None:
    world = World(DEAD, portion=PORTION)
    dead(world)
    world.commit()
    world.engine.work.begin()
    to = "q" if sort == "redrive" else "other"
    going = (
        Redrive(world.engine, world.queue("dead"))
        if sort == "redrive"
        else Move(world.engine, world.queue("dead"), to)
    )
    world.engine.dispatch_rest(lambda: False)
    world.commit()
    gone = going.count
    world.engine.dispatch_rest(lambda: False)
    assert gone < going.count < MANY
    world = world.restart()
    assert [got.body for got in world.waiting_in(to)] == [b"%d" % number for number in range(gone)]
    assert [got.body for got in world.waiting_in("dead")] == [b"%d" % number for number in range(gone, MANY)]


def test_a_queue_that_goes_while_its_messages_are_moved_ends_the_move() -> None:
    world = World(portion=PORTION)
    filled(world)
    world.engine.work.begin()
    ended = list[int]()
    move = Move(world.engine, world.queue("q"), "other", on_done=ended.append)
    world.engine.drop_queue(world.queue("q"))
    assert ended == [move.count]
    assert 0 < move.count < MANY
    world.settle()
    assert depth_of(world.queue("other")).total == move.count
    assert world.engine.memory.count == move.count


def test_what_an_aborted_transaction_was_to_send_is_let_go_in_steps() -> None:
    world = World()
    transaction = transactions.Transaction("t")
    transaction.sends = [(world.engine.address("t"), run_of("t", b"x")) for _ in range(1000)]
    before = len(transaction.sends)
    for _ in transactions.aborting(world.engine, transaction, is_failure=False):
        assert before - len(transaction.sends) <= transactions.PART
        before = len(transaction.sends)
    assert not transaction.sends


def test_what_an_aborted_transaction_had_acknowledged_is_let_go_in_steps() -> None:
    world = World()
    filled(world, "q", count=2000)
    consumer = world.on_queue(world.consumer(ack=AckMode.INDIVIDUAL), "q")
    transaction = transactions.Transaction("t")
    for number, got in enumerate(world.settle()):
        world.hold(transaction, consumer, got, is_good=number < 1000)
    held = next(iter(consumer.bindings.values())).held
    assert (len(transaction.acked), len(transaction.refused), len(held)) == (1000, 1000, 0)
    left = 2000
    for _ in transactions.aborting(world.engine, transaction, is_failure=False):
        before, left = left, len(transaction.acked) + len(transaction.refused)
        assert before - left <= transactions.PART
    assert (left, len(held)) == (0, 2000)


def test_what_an_abort_gives_back_is_there_again_whole() -> None:
    world = World()
    for ack in (AckMode.CLIENT, AckMode.INDIVIDUAL):
        name = ack.value
        consumer = world.on_queue(world.consumer(name, ack), name)
        filled(world, name, count=500)
        world.out()
        binding = next(iter(consumer.bindings.values()))
        sent = consumer.take_all()
        consumer.hold_again(sent[250:])
        known = binding.held if ack is AckMode.INDIVIDUAL else binding.unacked
        list(consumer.holding_again(sent[:250], 100))
        assert len(known) == 500
        assert len(consumer.take_all()) == 500


def test_who_finds_a_subscription_that_is_ending_and_waits_for_its_end_hears_of_it() -> None:
    """Its queues are let go in steps: until all are gone it looks as if it were there."""
    world = World()
    consumer = world.on_queue(world.consumer(), "q")
    heard: list[str] = []
    consumer.on_close.append(lambda: heard.append("before"))
    steps = transactions.closing(world.engine, consumer, is_failure=True)
    next(steps)
    consumer.on_close.append(lambda: heard.append("meanwhile"))
    for _ in steps:
        pass
    assert heard == ["before", "meanwhile"]


def in_steps(world: World, *names: str) -> Iterator[None]:
    """Sends a message to each, as a unit that is done in steps."""
    unit = transactions.Transaction("t")
    unit.replace_sends([(world.address(name, ANYCAST), run_of(name, b"1")) for name in names])
    return transactions.committing(world.engine, unit, is_answered=False)


def waits(steps: Iterator[None], world: World) -> bool:
    """Takes steps until it is begun, or it is clear that it waits for a commit."""
    before = world.engine.counters["received"]
    for _ in range(20):
        next(steps, None)
        if world.engine.counters["received"] > before:
            return False
    return True


def test_a_commit_comes_between_two_units_that_are_done_in_steps_where_the_disk_is_free() -> None:
    """Else who sends one after the other would hold up all who wait for the disk."""
    world = World()
    commits = world.engine.commits
    for _ in in_steps(world, "a", "b"):
        pass
    second = in_steps(world, "a")
    assert waits(second, world) and commits.is_awaited
    world.commit()
    assert not waits(second, world) and commits.is_held
    for _ in second:
        pass
    world.commit()
    again = world.restart()
    again.on_queue(again.consumer(), "a")
    assert [got.body for got in again.settle()] == [b"1", b"1"]


def test_while_the_disk_works_no_unit_waits_for_it() -> None:
    """No other commit could be taken meanwhile; the next one has all that is done by then."""
    world = World()
    for _ in in_steps(world, "a"):
        pass
    taken = world.engine.take_commit()
    for _ in range(3):
        steps = in_steps(world, "a")
        assert not waits(steps, world)
        for _ in steps:
            pass
    world.store.apply(taken)
    world.engine.committed()
    late = in_steps(world, "a")
    assert waits(late, world)
    world.commit()
    assert not waits(late, world)
