"""What was read of the log and not looked through is memory that counts, and nobody has it for longer than it is of use."""

from __future__ import annotations

import pytest

from stompbox.broker.logs.segments import cost_of
from stompbox.broker.queues import paging, reclaim
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.contracts import Load
from stompbox.broker.queues.queue import Queue
from stompbox.broker.queues.room import Unread
from stompbox.broker.work import HANDED
from stompbox.config.settings import AddressSetting
from tests.broker.world import World

COUNT = 60
LONG = "x" * 1000
SMALL = 8 * HANDED  # steps of a turn


def paged(*rules: AddressSetting) -> World:
    """The log alone has so many messages, each of them a run, but for the first."""
    world = World(*rules, page_size=100, portion=SMALL)
    for number in range(COUNT):
        world.send("q", b"%d" % number, headers={"long": f"{LONG}{number}"})
    world.commit()
    return world


def cut(world: World, consumer: Consumer) -> tuple[Queue, Unread]:
    """The queue has read all that there is, and the work of a turn was not enough to look through it."""
    world.on_queue(consumer, "q")
    queue = world.queue("q")
    while queue.unread is None:
        assert world.engine.dispatch_rest() or world.serve()
    return queue, queue.unread


def test_what_was_read_and_not_looked_through_counts_until_it_is() -> None:
    world = paged()
    queue, unread = cut(world, world.consumer("c", AckMode.AUTO))
    assert unread.cost == sum(map(cost_of, unread.runs)) > 1000 * len(unread.runs) > 0
    assert queue.address.memory.size >= unread.cost and world.engine.memory.size >= unread.cost
    found = [int(one.body) for one in world.settle()]
    assert found == list(range(COUNT)) and queue.unread is None
    assert queue.address.memory.size == world.engine.memory.size == 0


def test_a_queue_that_goes_leaves_none_of_it_behind() -> None:
    world = paged()
    queue, _ = cut(world, world.consumer("c", AckMode.AUTO))
    world.engine.drop_queue(queue)
    world.settle()
    assert world.engine.memory.size == 0 and not queue.has_unread


def test_where_memory_is_full_and_nobody_has_credit_it_is_not_kept() -> None:
    """The log has it, and it is found there again."""
    world = paged()
    consumer = world.consumer(prefetch=2)
    queue, unread = cut(world, consumer)
    got = world.out()
    world.engine.memory.limit(unread.cost, -1)
    while world.engine.dispatch_rest():
        got += world.out()
    assert not queue.has_unread
    assert world.engine.memory.size == sum([cost_of(waits.run) for waits in queue.backlog.since(0)])
    world.engine.memory.limit(-1, -1)
    bodies = []
    while got:
        for one in got:
            bodies.append(int(one.body))
            world.ack(consumer, one)
        got = world.settle()
    assert bodies == list(range(COUNT)), "in order, each once"


def test_what_a_queue_has_read_that_is_idle_goes_where_memory_is_full() -> None:
    world = paged()
    consumer = world.consumer(prefetch=2)
    queue, unread = cut(world, consumer)
    world.close(consumer)
    while world.engine.dispatch_rest():
        pass
    queue.keep_unread(unread)  # nobody looks at it any more
    world.tick(reclaim.IDLE + reclaim.AGAIN)
    world.engine.memory.limit(unread.cost, -1)
    reclaim.relieve(world.engine)
    world.settle()
    assert not queue.has_unread
    assert world.engine.memory.size < unread.cost


def test_what_is_read_at_once_is_a_page_as_far_as_there_is_room() -> None:
    world = paged(AddressSetting(match="q", page_size_bytes=5000))
    load = Load(world.queue("q"), 0, COUNT, Queue.loaded)
    assert load.max_bytes == 5000
    world.engine.memory.limit(world.engine.memory.taken + 3000, -1)
    assert load.max_bytes == 3000, "it is asked when it is read"
    world.engine.memory.limit(1, -1)
    assert load.max_bytes == 1
    world.engine.memory.limit(-1, 0)
    assert load.max_bytes == 1, "too many messages"


@pytest.mark.parametrize(("is_crowded", "most"), [(False, 5000), (True, 1500)])
def test_where_memory_is_full_no_message_keeps_its_neighbours_there(
    is_crowded: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that the disk has are cut. A queue has a share although memory is full; where very many have one, little."""
    monkeypatch.setattr(paging, "SHARE", 5000)
    monkeypatch.setattr(paging, "LITTLE", 1)
    world = World(page_size=100)
    bodies = [b"%03d" % number * 400 for number in range(COUNT)]
    world.send("q", *bodies)
    world.commit()
    memory, others = world.engine.memory, 50_000
    memory.count_beside(others)
    memory.limit(others // 2 if is_crowded else others, -1)
    consumer = world.on_queue(world.consumer(prefetch=1), "q")
    got, taken = world.settle(), []
    while got:
        assert memory.is_full and memory.is_crowded is is_crowded
        assert len(got) == 1
        assert 0 <= memory.size - others <= most
        assert all(waits.run.is_logged for waits in world.queue("q").backlog.since(0))
        taken += [one.body for one in got]
        world.ack(consumer, got[0])
        got = world.settle()
    assert taken == bodies, "in order, each once"
