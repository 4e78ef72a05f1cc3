"""Which log it is: over restarts, over the end of an address, in stores of older brokers, and in positions of groups."""

from __future__ import annotations

import pytest

from stompbox.broker.engine import Engine
from stompbox.broker.recovery import identified, recover
from stompbox.broker.subscriptions import readers
from stompbox.config import AddressSettingsTable
from stompbox.config.settings import AddressSetting
from stompbox.incarnations import INCARNATIONS, Incarnations, Position, numbered
from stompbox.message import MULTICAST
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from tests.broker.addresses.test_lifetimes import GOING, used_up
from tests.broker.world import World

KEPT = AddressSetting(match="#", retention_messages=1000)


def known(world: World, name: str) -> Incarnations:
    return world.engine.addresses[name].log.incarnations


def test_a_log_is_one_incarnation_and_stays_it_over_a_restart() -> None:
    world = World(KEPT)
    world.send("q", b"a")
    world.send("r", b"a")
    world.commit()
    first, other = known(world, "q"), known(world, "r")
    assert len(first.entries) == 1 and first != other
    again = world.restart()
    assert (known(again, "q"), known(again, "r")) == (first, other)


def test_an_address_that_comes_again_is_the_same_log() -> None:
    world = used_up(World(GOING))
    before = world.engine.ended["q"]
    world = world.restart()
    assert world.engine.ended["q"] == before
    world.send("q", b"3")
    world.commit()
    assert known(world, "q") == before.incarnations
    assert world.restart().engine.addresses["q"].log.next == 4


def test_an_address_that_was_forgotten_is_another_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbox.broker.addresses.lifetimes.REMEMBERED", 0)
    world = World(GOING)
    world.send("q", b"0", b"1", b"2")
    world.commit()
    before = known(world, "q")
    world = used_up(world)
    world.send("q", b"again")
    assert not known(world, "q").holds(before.current, 2)
    assert world.engine.addresses["q"].log.first == 6


def test_a_log_that_goes_leaves_nothing_in_the_catalogue() -> None:
    world = used_up(World(GOING))
    assert not [key for kind, key in world.store.recover().entries if kind == INCARNATIONS]


def test_a_store_of_an_older_broker_gets_ids_once() -> None:
    store = MemoryStore()
    store.apply(Commit(logs={1: "q"}, next_offsets={1: 7}, entries={("ended", "gone"): b"12"}))
    found = store.recover()
    told = identified(found, numbered(1))
    assert list(told) == [(INCARNATIONS, "1")]
    assert not identified(found, numbered(2))
    store.apply(Commit(entries={**told}))
    engine = Engine(AddressSettingsTable(()), epoch=3)
    recover(engine, store.recover())
    assert engine.ended["gone"].next == 12
    assert engine.create_address("gone").log.incarnations.entries == (("3.1", 12),)


def test_a_group_goes_on_in_the_log_that_was_read_and_in_no_other() -> None:
    world = World(KEPT)
    engine = world.engine
    readers.open_group(engine, "lake", ["t"], lambda address: 0)
    world.send("t", *[b"x"] * 10, routing=MULTICAST)
    id = known(world, "t").current
    told = {"t": Position(5, "another"), "gone": Position(3, id)}
    assert readers.commit_group(engine, "lake", told) == {"t": "other-incarnation", "gone": "no-such-address"}
    assert readers.positions(engine, "lake") == {"t": 0}
    assert readers.commit_group(engine, "lake", {"t": Position(5, id)}) == {}
    assert readers.positions(engine, "lake") == {"t": 5}


@pytest.mark.parametrize(("to", "position"), [(2, 2), (9, 9), (500, 10)])
def test_a_group_is_put_elsewhere(to: int, position: int) -> None:
    world = World(KEPT)
    readers.open_group(world.engine, "lake", ["t"], lambda address: 0)
    world.send("t", *[b"x"] * 10, routing=MULTICAST)
    readers.commit_group(world.engine, "lake", {"t": Position(7)})
    world.commit()
    address = world.engine.addresses["t"]
    assert readers.reset(world.engine, "lake", address, lambda _: to) == position
    world.commit()
    again = world.restart()
    assert readers.positions(again.engine, "lake") == {"t": position}
    readers.commit_group(again.engine, "lake", {"t": Position(10)})
    again.commit()
    assert readers.positions(again.restart().engine, "lake") == {"t": 10}


def test_a_group_that_is_put_back_while_the_disk_refuses_what_it_has_acknowledged() -> None:
    world = World(KEPT)
    engine = world.engine
    readers.open_group(engine, "lake", ["t"], lambda address: 0)
    world.send("t", *[b"x"] * 10, routing=MULTICAST)
    world.commit()
    readers.commit_group(engine, "lake", {"t": Position(7)})
    commit = engine.take_commit()
    readers.reset(engine, "lake", engine.addresses["t"], lambda _: 2)
    engine.commit_failed(commit)
    world.commit()
    assert readers.positions(engine, "lake") == readers.positions(world.restart().engine, "lake") == {"t": 2}


def test_ids_come_from_outside() -> None:
    world = World(KEPT)
    engine = Engine(world.engine.settings, new_id=iter(["one", "two"]).__next__)
    assert [engine.create_address(name).log.incarnations.current for name in ("a", "b")] == ["one", "two"]
