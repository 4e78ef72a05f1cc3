"""Scheduled messages: they wait, hold up nobody, and outlive a restart."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from stompbox.broker.engine import Load
from stompbox.broker.queues import arrivals, delayed
from stompbox.broker.queues.depth import depth_of
from stompbox.broker.queues.reclaim import purge
from stompbox.config.settings import AddressSetting
from stompbox.message import MULTICAST, Run
from tests.broker.world import NOW, Got, World

DAY = 86_400_000
LATER = {"AMQ_SCHEDULED_DELAY": "1000"}


def test_delay_holds_up_nobody() -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    world.send("q", b"a", b"b", headers=LATER)
    world.send("q", b"c")
    assert world.bodies() == [b"c"]
    world.tick(999)
    assert world.bodies() == []
    world.tick(1)
    found = world.settle()
    assert [(got.body, got.is_redelivered) for got in found] == [(b"a", False), (b"b", False)]


def test_time() -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    world.send("q", b"a", headers={"AMQ_SCHEDULED_TIME": str(NOW + 5 * DAY)})
    assert world.engine.next_deadline() == NOW + 5 * DAY
    world.tick(5 * DAY)
    assert world.bodies() == [b"a"]


@pytest.mark.parametrize("header", ["AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME"])
@pytest.mark.parametrize("value", ["0", "-5"])
def test_not_above_zero_is_now(header: str, value: str) -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    world.send("q", b"a", headers={header: value})
    assert world.bodies() == [b"a"]


def test_past_time_is_now() -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    world.send("q", b"a", headers={"AMQ_SCHEDULED_TIME": str(NOW - 1)})
    assert world.bodies() == [b"a"]


def test_due_goes_before_what_is_newer() -> None:
    world = World()
    world.send("q", b"a", headers=LATER)
    world.send("q", b"b")
    world.tick(1000)
    world.on_queue(world.consumer(), "q")
    assert world.bodies() == [b"a", b"b"]


def test_survives_a_restart() -> None:
    world = World()
    world.send("q", b"early", headers=LATER)
    world.send("q", b"late", headers={"AMQ_SCHEDULED_DELAY": str(DAY)})
    world.send("q", b"now")
    world.commit()
    world = world.restart()
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"now"]
    world.tick(1000)
    assert [got.body for got in world.settle()] == [b"early"]
    world.commit()
    world = world.restart()
    world.tick(DAY)
    world.on_queue(world.consumer(), "q")
    assert b"late" in [got.body for got in world.settle()]


def test_expires_while_it_waits() -> None:
    world = World(AddressSetting(match="q", expiry_address="expired"))
    world.send("q", b"a", headers=LATER, expires=NOW + 500)
    world.tick(500)
    assert world.engine.counters["expired"] == 1
    assert world.queue("expired").backlog.count == 1


def test_dead_letters_do_not_wait_again() -> None:
    world = World(AddressSetting(match="q", max_delivery_attempts=1, dead_letter_address="dead"))
    consumer = world.on_queue(world.consumer(), "q")
    world.send("q", b"a", headers=LATER)
    world.tick(1000)
    (got,) = world.settle()
    world.nack(consumer, got)
    assert world.queue("dead").backlog.count == 1


def test_gone_with_its_queue() -> None:
    world = World()
    world.send("q", b"a", headers=LATER)
    queue = world.queue("q")
    world.engine.drop_queue(queue)
    world.tick(1000)
    assert queue.waits.count == queue.backlog.count == 0


def test_hundred_thousand_wait_and_the_rest_flows() -> None:
    world = World(page_size=1 << 40)
    for i in range(100_000):
        world.send("q", b"x", headers={"AMQ_SCHEDULED_TIME": str(NOW + DAY + i % 1000)})
    world.on_queue(world.consumer(), "q")
    world.send("q", b"now")
    assert world.bodies() == [b"now"]
    assert len(world.engine.timers) <= 2, "one timer for all of a queue"
    world.tick(DAY)
    assert len(world.settle()) == 100


# More than memory has room for

SIZE = 1000


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has room for some of what is for later, and two of it are read at a time."""
    monkeypatch.setattr(delayed, "MOST", 8 * SIZE)
    monkeypatch.setattr(arrivals, "PORTION", 2)


def at(offset: int) -> dict[str, str]:
    return {"AMQ_SCHEDULED_TIME": str(NOW + offset)}


def drained(world: World) -> list[Got]:
    """All that comes without the clock being moved; each is acknowledged."""
    found: list[Got] = []
    while got := world.settle():
        for one in got:
            world.ack(next(iter(one.queue.bindings)).consumer, one)
        found += got
        world.commit()
    return found


class Counted(list[Run]):
    """Runs, and how many of them were looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.looks += len(found) if isinstance(key, slice) else 1
        return found

    def __iter__(self) -> Iterator[Run]:
        for run in super().__iter__():
            self.looks += 1
            yield run


@pytest.mark.usefixtures("little")
def test_what_is_due_at_once_is_woken_in_steps() -> None:
    """All that was read together was woken in one step."""
    world, woken = World(page_size=1000 * SIZE, portion=640), [0]
    world.on_queue(world.consumer(), "q")
    for number in range(300):
        world.send("q", b"%03d" % number + bytes(SIZE), headers={**at(10), f"name-{number % 7}": "1"})
    world.commit()
    world.tick(11)
    while world.serve() or world.engine.dispatch_rest(lambda: False):
        woken.append(len(world.out()))
        world.engine.work.begin()
    assert sum(woken) >= 290, "the first of them were in memory"
    assert max(woken) <= 2 * arrivals.STEP


@pytest.mark.usefixtures("little")
def test_what_is_due_at_once_is_found_by_looking_at_each_run_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many were read together: all that were left were gone through anew for each that was due."""
    monkeypatch.setattr(arrivals, "PORTION", 300)
    world, read = World(page_size=1000 * SIZE), list[Counted]()
    loaded = world.engine.loaded

    def counted(load: Load, runs: list[Run], stop: int) -> None:
        read.append(Counted(runs))
        loaded(load, read[-1], stop)

    monkeypatch.setattr(world.engine, "loaded", counted)
    world.on_queue(world.consumer(), "q")
    for number in range(300):
        world.send("q", b"%03d" % number + bytes(SIZE), headers={**at(10), f"name-{number % 7}": "1"})
    world.commit()
    world.tick(10)
    assert sorted(int(got.body[:3]) for got in drained(world)) == list(range(300))
    assert sum(len(runs) for runs in read) > 250  # those that memory had no room for
    assert sum(runs.looks for runs in read) <= 10 * 300


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("kind", ["anycast", "durable", "topic"])
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("committed", ["at once", "now and then", "late"])
def test_they_come_in_order_of_time_although_memory_has_only_their_places(
    kind: str, committed: str, *, persistent: bool
) -> None:
    world, random = World(page_size=10 * SIZE, chunk_bytes=5 * SIZE), Random(1)
    if kind == "anycast":
        world.on_queue(world.consumer(), "q")
    elif kind == "durable":
        world.on_durable(world.consumer(), "name", "q")
    else:
        world.on_topic(world.consumer(), "q")
    times = random.sample(range(1, 1000), 100)
    for time in times:
        routing = 1 if kind == "anycast" else MULTICAST
        world.send(
            "q", b"%03d" % time + bytes(SIZE), headers=at(time), persistent=persistent, routing=routing
        )
        if committed == "at once" or (committed == "now and then" and not random.randrange(10)):
            world.commit()
    (queue,) = world.engine.queues.values()
    assert queue.later is not None
    assert queue.waits.size + queue.backlog.size <= 8 * SIZE
    assert world.engine.memory.size == queue.waits.size
    assert depth_of(queue).delayed == 100
    if committed != "late":
        world.commit()
    found: list[int] = []
    for time in range(1000):
        world.tick(1)
        came = [int(got.body[:3]) for got in drained(world)]
        assert came in ([], [time + 1])
        found += came
    assert found == sorted(times)
    assert queue.later is None
    assert world.engine.memory.size == 0
    assert world.engine.addresses["q"].log.low_water() == 100


@pytest.mark.usefixtures("little")
def test_many_that_are_due_together_are_read_as_there_is_room() -> None:
    world = World(page_size=10 * SIZE, chunk_bytes=5 * SIZE)
    for number in range(200):
        world.send("q", b"%03d" % number + bytes(SIZE), headers=at(1000))
    world.commit()
    world.tick(1000)
    assert world.settle() == []
    assert world.queue("q").backlog.size < 20 * SIZE
    world.on_queue(world.consumer(prefetch=3), "q")
    most, seen = 0, []
    while got := world.settle():
        seen += [int(one.body[:3]) for one in got]
        for one in got:
            world.ack(next(iter(one.queue.bindings)).consumer, one)
        most = max(most, world.engine.memory.size)
    assert sorted(seen) == list(range(200))
    assert most < 20 * SIZE


@pytest.mark.usefixtures("little")
def test_all_of_them_survive_a_restart() -> None:
    world = World(page_size=10 * SIZE, chunk_bytes=5 * SIZE)
    times = Random(2).sample(range(1, 1000), 60)
    for time in times:
        world.send("q", b"%03d" % time + bytes(SIZE), headers=at(time))
    world.commit()
    for _ in range(2):
        world = world.restart()
        world.on_queue(world.consumer(), "q")
        assert drained(world) == []
        assert world.queue("q").waits.size <= 8 * SIZE
        assert depth_of(world.queue("q")).delayed == 60
    found = []
    for _ in range(1000):
        world.tick(1)
        found += [int(got.body[:3]) for got in drained(world)]
    assert found == sorted(times)


@pytest.mark.usefixtures("little")
def test_a_purge_takes_them_too() -> None:
    world = World(page_size=10 * SIZE, chunk_bytes=5 * SIZE)
    for time in range(1, 61):
        world.send("q", bytes(SIZE), headers=at(time))
    world.commit()
    purge(world.queue("q"))
    assert world.engine.counters["purged"] == 60
    assert depth_of(world.queue("q")).total == 0
    world.on_queue(world.consumer(), "q")
    world.tick(100)
    assert world.settle() == []
    world.commit()
    assert world.engine.addresses["q"].log.low_water() == 60


@pytest.mark.usefixtures("little")
def test_they_expire_in_the_log_too() -> None:
    world = World(
        AddressSetting(match="q", expiry_address="expired"), page_size=10 * SIZE, chunk_bytes=5 * SIZE
    )
    for number in range(40):
        world.send("q", bytes(SIZE), headers=at(1000 + number), expires=NOW + 500)
    world.commit()
    world.tick(500)
    world.settle()
    assert world.engine.counters["expired"] == 40


@pytest.mark.usefixtures("little")
def test_what_could_not_be_stored_does_not_come() -> None:
    world = World(page_size=10 * SIZE, chunk_bytes=5 * SIZE)
    world.on_queue(world.consumer(), "q")
    for time in range(1, 31):
        world.engine.commits.begin()
        world.send("q", b"%03d" % time + bytes(SIZE), headers=at(time))
        world.engine.commits.end(is_stored=True)
        if time == 10:
            world.commit()
    world.engine.commit_failed(world.engine.take_commit())
    for time in range(31, 41):
        world.send("q", b"%03d" % time + bytes(SIZE), headers=at(time))
    world.tick(50)
    assert sorted(int(got.body[:3]) for got in drained(world)) == [*range(1, 11), *range(31, 41)]
    assert world.engine.addresses["q"].log.low_water() == 40


def test_what_waits_counts_as_memory() -> None:
    world = World()
    world.engine.memory.limit(5 * SIZE, -1)
    for _ in range(20):
        world.send("q", bytes(SIZE), headers=LATER)
    assert world.engine.memory.is_full
    assert world.engine.memory.size < 7 * SIZE
    world.send("other", b"pages")
    assert world.queue("other").is_paged
    world.commit()
    world.on_queue(world.consumer(), "q")
    world.tick(1000)
    assert len(drained(world)) == 20
    assert not world.engine.memory.is_full


@pytest.mark.usefixtures("little")
def test_the_last_value_of_a_key_counts_when_it_is_due() -> None:
    world = World(
        AddressSetting(match="q", default_last_value_key="k"), page_size=10 * SIZE, chunk_bytes=5 * SIZE
    )
    for number in range(30):
        world.send("q", b"%02d" % number + bytes(SIZE), headers={"k": str(number % 3), **at(10 + number)})
    world.commit()
    world.tick(100)
    world.settle()
    world.on_queue(world.consumer(), "q")
    assert len(drained(world)) == 3
    assert world.engine.counters["replaced"] == 27


def test_those_in_the_log_come_while_an_earlier_one_is_unacknowledged() -> None:
    """There is nothing between one of them and the next, and nothing is what the commit has to say of it."""
    world = World(AddressSetting(match="q", max_size_bytes=8 << 10))
    consumer = world.on_queue(world.consumer(), "q")
    world.send("q", b"first")
    world.commit()
    (first,) = world.settle()
    for number in range(20):
        world.send("q", b"%d" % number + b" " * 1000, headers=LATER)
        world.commit()
    found: list[Got] = []
    for _ in range(10):
        world.tick(200)
        found += world.settle()
        world.commit()
    assert [int(got.body) for got in found] == list(range(20))
    for got in (*found, first):
        world.ack(consumer, got)
    world.commit()
    again = world.restart()
    again.on_queue(again.consumer(), "q")
    assert again.settle() == []


def test_what_the_log_alone_has_comes_before_what_was_to_wait_longer() -> None:
    """Although the one must be read when it is due, and the other is at hand."""
    world = World(page_size=3000, chunk_bytes=100)
    world.send("q", b"1".ljust(2500), headers={"AMQ_SCHEDULED_DELAY": "90"})
    world.send("q", b"2".ljust(2000), headers={"AMQ_SCHEDULED_DELAY": "100"})  # for which there is no room
    world.send("q", b"3", headers={"AMQ_SCHEDULED_DELAY": "110"})
    world.commit()
    assert world.queue("q").later is not None
    consumer = world.on_queue(world.consumer(), "q")
    world.engine.tick(world.engine.now + 200)
    found = world.out() + world.settle()
    assert [got.body[:1] for got in found] == [b"1", b"2", b"3"]
    world.close(consumer)


@pytest.mark.parametrize("has_room", [True, False])
def test_readers_of_a_log_get_them_in_the_order_of_their_times_although_they_were_stored_late(
    *, has_room: bool
) -> None:
    """The second one is shown when its time is over, and the first one is not awake yet, or lies in the log alone."""
    world = World(AddressSetting(match="t", retention_messages=100))
    world.commits_itself = False
    reader = world.on_stream(world.consumer(), "t", 0)
    if not has_room:
        world.engine.memory.limit(1, -1)
    world.send_to_topic("t", b"first", headers={"AMQ_SCHEDULED_DELAY": "100"})
    world.commit()
    assert world.settle() == []
    world.send_to_topic("t", b"second", headers={"AMQ_SCHEDULED_DELAY": "150"})
    world.engine.now += 200
    world.commit()
    found = world.settle()
    world.tick(0)
    found += world.settle()
    for got in found:
        world.ack(reader, got)
    found += world.settle()
    assert [got.body for got in found] == [b"first", b"second"]


def test_nobody_gets_what_was_to_wait_longer_out_of_the_log_before_what_waits_there_for_room() -> None:
    world = World(chunk_bytes=100)
    world.on_queue(world.consumer("a", selector="kind = 'a'", prefetch=1), "q")
    world.on_queue(world.consumer("b", selector="kind = 'b'"), "q")
    world.send("q", b"taken", b"waits", headers={"kind": "a"})
    world.engine.memory.limit(1, -1)
    world.send("q", b"first", headers={"kind": "b", "AMQ_SCHEDULED_DELAY": "100"})
    world.send("q", b"paged", headers={"kind": "a"})
    world.send("q", b"second", headers={"kind": "b", "AMQ_SCHEDULED_DELAY": "150"})
    world.commit()
    assert [got.body for got in world.settle()] == [b"taken"]
    world.tick(200)
    assert world.settle() == []
    world.engine.memory.limit(-1, -1)
    world.tick(1000)
    assert [got.body for got in world.settle()] == [b"first", b"second"]
