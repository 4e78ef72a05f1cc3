"""Duplicate detection by _AMQ_DUPL_ID: bounded, per address, over transactions and restarts."""

from __future__ import annotations

from collections.abc import ItemsView

from stompbox.broker.addresses.duplicates import Duplicates
from stompbox.broker.transactions import Transaction
from stompbox.config.settings import AddressSetting
from stompbox.message import ANYCAST, MULTICAST, Shape
from tests.broker.world import World, run_of

ID = "_AMQ_DUPL_ID"


def ids(*values: str) -> dict[str, list[bytes]]:
    return {ID: [value.encode() for value in values]}


def stored(world: World) -> list[str]:
    return sorted(key for kind, key in world.store.recover().entries if kind == "duplicates")


def test_second_is_dropped_and_counted() -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    for body in (b"a", b"b"):
        world.send("q", body, headers={ID: "1"})
    world.send("q", b"c", headers={ID: "2"})
    world.send("q", b"d")
    assert world.bodies() == [b"a", b"c", b"d"]
    assert world.engine.counters["duplicates"] == 1


def test_runs_with_an_id_each() -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    world.send("q", b"a", b"b", b"c", b"d", b"e", holes=ids("1", "2", "1", "", ""))
    world.send("q", b"f", b"g", holes=ids("2", "3"))
    assert world.bodies() == [b"a", b"b", b"d", b"e", b"g"]
    assert world.engine.addresses["q"].log.next == 5, "duplicates take no offsets"


def test_addresses_do_not_share() -> None:
    world = World()
    for name in ("q", "p"):
        world.on_queue(world.consumer(name), name)
        world.send(name, b"a", headers={ID: "1"})
    assert world.bodies() == [b"a", b"a"]


def test_oldest_are_forgotten() -> None:
    world = World(AddressSetting(match="q", id_cache_size=3))
    world.on_queue(world.consumer(), "q")
    for value in "123", "4", "1", "4":
        world.send("q", *[b"x"] * len(value), holes=ids(*value))
        world.commit()
    assert len(world.out()) == 5, "1 was forgotten, 4 was not"
    duplicates = world.engine.addresses["q"].duplicates
    assert duplicates is not None
    assert len(duplicates) == 3


def test_no_cache_no_detection() -> None:
    world = World(AddressSetting(match="q", id_cache_size=0))
    world.on_queue(world.consumer(), "q")
    for _ in range(2):
        world.send("q", b"a", headers={ID: "1"})
    assert world.bodies() == [b"a", b"a"]


def test_outlives_a_restart() -> None:
    world = World()
    world.send("q", b"a", b"b", holes=ids("1", "2"))
    world.commit()
    world.send("q", b"c", headers={ID: "3"})
    world.commit()
    world = world.restart()
    world.send("q", b"again", b"new", holes=ids("2", "4"))
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"a", b"b", b"c", b"new"]


def test_stored_blocks_are_bounded() -> None:
    world = World(AddressSetting(match="q", id_cache_size=10))
    for i in range(100):
        world.send("q", b"x", headers={ID: str(i)})
        world.commit()
    assert len(stored(world)) <= 11
    world = world.restart()
    duplicates = world.engine.addresses["q"].duplicates
    assert duplicates is not None
    assert [value for value in range(100) if str(value).encode() in duplicates] == list(range(90, 100))


def test_settings_can_keep_them_in_memory() -> None:
    world = World()
    world.engine.persists_ids = False
    world.send("q", b"a", headers={ID: "1"})
    world.commit()
    assert stored(world) == []


def test_not_persistent_messages_are_remembered_in_memory() -> None:
    world = World()
    for _ in range(2):
        world.send("q", b"a", headers={ID: "1"}, persistent=False)
    world.commit()
    assert world.queue("q").backlog.count == 1
    assert stored(world) == []


def test_transaction_counts_when_it_commits() -> None:
    world = World()
    world.on_queue(world.consumer(), "q")
    address = world.address("q")
    aborted, committed = Transaction("t1"), Transaction("t2")
    for transaction in (aborted, committed):
        for body in (b"a", b"b"):
            run = run_of("q", body)
            run.shape = type(run.shape)({"destination": "q", ID: "1"})
            transaction.sends.append((address, run))
        transaction.sends.append((address, run_of("q", b"other")))
    world.engine.abort(aborted)
    assert world.bodies() == []
    world.engine.commit(committed)
    assert world.bodies() == [b"a", b"other"]
    world.send("q", b"c", headers={ID: "1"})
    assert world.bodies() == []


def test_dead_letters_and_their_way_back_are_no_duplicates() -> None:
    world = World(AddressSetting(match="q", max_delivery_attempts=1, dead_letter_address="dead"))
    consumer = world.on_queue(world.consumer(), "q")
    for value in ("1", "2"):
        world.send("q", b"x", headers={ID: value})
    for got in world.settle():
        world.nack(consumer, got)
    assert world.queue("dead").backlog.count == 2


def test_a_duplicate_waits_for_the_commit_of_the_first() -> None:
    world = World()
    address = world.address("q")
    answers = []
    for _ in range(2):
        run = run_of("q", b"a")
        run.shape = type(run.shape)({"destination": "q", ID: "1"})
        answers.append(world.engine.publish(address, run))
    assert answers == [True, True]


class Looked(dict[bytes, int]):
    """What is remembered, and how often all of it was looked through."""

    looks = 0

    def items(self) -> ItemsView[bytes, int]:
        self.looks += 1
        return super().items()


def test_what_is_left_of_a_block_that_was_refused_is_stored_again_and_looked_for_once() -> None:
    world = World()
    for value in map(str, range(50)):
        answered(world, value)
    answered(world, "7")  # is told that the first one is stored, so that one stays
    address = world.engine.addresses["q"]
    known = address.duplicates
    assert isinstance(known, Duplicates)
    looked = known._blocks = Looked(known._blocks)
    world.engine.commit_failed(world.engine.take_commit())
    assert list(looked) == [b"7"]
    assert world.engine.is_dirty, "nothing else may ever come"
    world.commit()
    assert looked.looks == 1
    assert len(stored(world)) == 1
    again = world.restart().engine.addresses["q"].duplicates
    assert again is not None
    assert b"7" in again
    assert len(again) == 1


def test_nothing_is_left_of_a_block_that_was_refused() -> None:
    world = World()
    answered(world, "1")
    world.engine.commit_failed(world.engine.take_commit())
    world.commit()
    assert stored(world) == []
    answered(world, "1")
    world.commit()
    assert len(stored(world)) == 1


def answered(world: World, value: str) -> None:
    """A SEND with a receipt and this id."""
    run = run_of("q", b"x")
    run.shape = Shape({"destination": "q", ID: value})
    run.routing = ANYCAST
    world.engine.publish(world.address("q", ANYCAST), run, is_answered=True)


def test_gone_with_the_address() -> None:
    world = World()
    world.send("q", b"a", headers={ID: "1"})
    world.commit()
    assert stored(world)
    world.engine.drop_queue(world.queue("q"))
    world.engine.drop_address(world.engine.addresses["q"])
    world.commit()
    assert stored(world) == []


def test_both_kinds() -> None:
    world = World()
    world.on_queue(world.consumer("a"), "x")
    world.on_topic(world.consumer("b"), "x")
    for _ in range(2):
        world.send("x", b"m", headers={ID: "1"}, routing=ANYCAST | MULTICAST)
    assert sorted(got.consumer for got in world.out()) == ["a", "b"]
