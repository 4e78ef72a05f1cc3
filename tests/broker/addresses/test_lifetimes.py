"""Queues and addresses that go by themselves; offsets that never come again.

Very many queues of an address, and very many wildcards: each comes and goes without a look at the others. The looks are counted.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from unittest.mock import Mock

import pytest

from stompbox.broker.addresses import configuration, lifetimes
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.addresses.lifetimes import AT_ONCE
from stompbox.broker.addresses.watching import Watcher
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.queues.queue import Queue
from stompbox.broker.sparse import NONE
from stompbox.broker.subscriptions import durables, readers, subscribers
from stompbox.broker.transactions import Transaction
from stompbox.config.settings import AddressSetting
from stompbox.message import ANYCAST, MULTICAST
from tests.broker.world import World

GOING = AddressSetting(match="#", auto_delete_queues=True, auto_delete_addresses=True)


def consume(world: World, name: str = "q") -> None:
    """All that waits, then the consumer leaves."""
    consumer = world.on_queue(world.consumer("once", AckMode.AUTO), name)
    world.settle()
    world.engine.flushed(consumer)
    world.close(consumer)


def used_up(world: World, *, is_stored: bool = True) -> World:
    """Address q has had three messages and is gone again."""
    world.send("q", b"0", b"1", b"2")
    if is_stored:
        world.commit()
    consume(world)
    world.commit()
    assert "q" not in world.engine.addresses
    return world


def test_a_queue_goes_with_its_last_message_and_consumer() -> None:
    world = World(GOING)
    world.send("q", b"a")
    world.commit()
    assert "q" in world.engine.addresses, "it has a message"
    consumer = world.on_queue(world.consumer(), "q")
    world.ack(consumer, world.out()[0])
    world.commit()
    assert "q" in world.engine.addresses, "it has a consumer"
    world.close(consumer)
    world.commit()
    assert not world.engine.addresses
    assert not world.engine.queues
    recovered = world.store.recover()
    assert not recovered.logs
    assert not recovered.cursors


def test_a_queue_waits_for_what_a_transaction_holds() -> None:
    world = World(GOING)
    world.send("q", b"a")
    consumer = world.on_queue(world.consumer(), "q")
    transaction = Transaction("x")
    world.hold(transaction, consumer, world.out()[0])
    world.close(consumer)
    world.commit()
    assert "q" in world.engine.addresses
    world.engine.abort(transaction)
    world.on_queue(world.consumer("later"), "q")
    assert [(got.body, got.is_redelivered) for got in world.out()] == [(b"a", True)]


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_offsets_go_on_where_they_ended(is_stored: bool, is_restarted: bool) -> None:
    """One offset never means two messages, though the address was gone in between."""
    world = used_up(World(GOING), is_stored=is_stored)
    if is_restarted:
        world = world.restart()
    assert world.send("q", b"3").first >= 3
    consumer = world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"3"]
    assert consumer.messages_out == 1


def test_an_address_that_came_again_is_kept_over_a_restart() -> None:
    """Its cursor must not be beyond the end of its log."""
    world = used_up(World(GOING))
    consumer = world.on_queue(world.consumer(), "q")
    world.commit()
    world = world.restart()
    assert consumer.bindings, "the first life's consumer is not the second's"
    run = world.send("q", b"3")
    assert run.first >= 3
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"3"]


def test_offsets_are_remembered_until_the_store_knows_the_new_log() -> None:
    """The address came again in memory alone, and the process was killed."""
    world = used_up(World(GOING))
    world.on_topic(world.consumer(), "q")
    world.commit()
    world = world.restart()
    assert world.send("q", b"3").first >= 3


def test_offsets_are_told_again_after_a_commit_that_failed() -> None:
    world = used_up(World(GOING))
    world.on_queue(world.consumer(), "q")
    world.engine.commit_failed(world.engine.take_commit())
    world.commit()
    world = world.restart()
    assert world.send("q", b"3").first >= 3


COUNT = 300
WIDE = Destination("x.#", "x.#", MULTICAST)


class Looks(dict[str, Queue]):
    """The queues of an address; counts how many of them are looked at one after the other."""

    def __init__(self, known: Mapping[str, Queue]) -> None:
        super().__init__(known)
        self.count = 0

    def values(self) -> Iterator[Queue]:  # type: ignore[override]
        for queue in super().values():
            self.count += 1
            yield queue


@pytest.mark.parametrize("has_arguments", [False, True])
def test_one_more_queue_of_an_address_makes_nobody_look_at_the_others(
    monkeypatch: pytest.MonkeyPatch, *, has_arguments: bool
) -> None:
    applied = Mock(side_effect=configuration.applied)
    monkeypatch.setattr("stompbox.broker.addresses.address.applied", applied)
    world = World()
    address = world.address("a", ANYCAST)
    address.anycast = looks = Looks(address.anycast)
    for number in range(COUNT):
        if has_arguments:
            configuration.make(world.engine, "a", f"q{number}", {"expiry_delay": 1000})
        else:
            world.engine.exact_queue(address, f"q{number}", ANYCAST)
    for queue in [address.anycast[f"q{number}"] for number in range(1, COUNT)]:
        world.engine.drop_queue(queue)
    assert looks.count <= 4 * COUNT
    assert applied.call_count <= 2 * COUNT * has_arguments
    assert address.is_timed is has_arguments


def test_a_disabled_queue_is_known_without_a_look_at_the_others() -> None:
    world = World()
    address = world.address("a", ANYCAST)
    first, second = [world.engine.exact_queue(address, name, ANYCAST) for name in ("a", "b")]
    first.obey(replace(first.rules, is_enabled=False))
    for number in range(4):
        world.send("a", b"%d" % number)
    assert (first.count, second.count) == (0, 4)
    first.obey(replace(first.rules, is_enabled=True))
    for number in range(4):
        world.send("a", b"%d" % number)
    assert (first.count, second.count) == (2, 6)


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_wildcard_that_goes_is_found_without_a_look_at_the_others(
    monkeypatch: pytest.MonkeyPatch, *, is_durable: bool
) -> None:
    world, compared = World(), []
    consumers = [world.consumer(str(number)) for number in range(COUNT)]
    for number, consumer in enumerate(consumers):
        if is_durable:
            world.on_durable(consumer, f"d{number}", "x.#")
        else:
            subscribers.to_topic(world.engine, consumer, WIDE, subscribers.Plain())
    monkeypatch.setattr(Watcher, "__eq__", lambda self, other: (compared.append(other), self is other)[1])
    for number, consumer in reversed(list(enumerate(consumers))):
        world.close(consumer)
        if is_durable:
            durables.drop_durable(world.engine, "client", f"d{number}")
    assert not world.engine.watchers
    assert not compared


def test_very_many_who_wait_join_one_by_one_and_all_of_them_before_anything_is_published() -> None:
    world = World()
    consumers = [world.consumer(str(number)) for number in range(3 * AT_ONCE)]
    for consumer in consumers:
        subscribers.to_topic(world.engine, consumer, WIDE, subscribers.Plain())
    address = world.engine.address("x.1", MULTICAST)
    steps = lifetimes.joining(address)
    for number in range(AT_ONCE):
        assert len(address.topics) == number
        next(steps)
    world.close(consumers.pop())
    assert address.is_in_use
    world.send_to_topic("x.1", b"a")
    assert len(address.topics) == len(consumers) == len(world.out())
    assert list(steps) == []


def test_very_many_groups_have_a_position_at_the_beginning_of_a_new_address() -> None:
    world = World()
    groups = [f"g{number}" for number in range(3 * AT_ONCE)]
    for group in groups:
        readers.make_group(world.engine, group, ["y.*", "y.#"])
    readers.drop_group(world.engine, groups.pop())
    address = world.engine.address("y.1", MULTICAST)
    assert not address.groups
    world.send_to_topic("y.1", b"a")
    assert {name: queue.cursor.position for name, queue in address.groups.items()} == dict.fromkeys(groups, 0)


def test_what_an_operator_has_paused_stays_until_it_is_resumed() -> None:
    """Whoever sent there next would make another one, which hands out at once."""
    world = World(GOING)
    world.send("q", b"a")
    world.commit()
    queue = world.queue("q")
    queue.pause()
    reclaim.purge(queue)
    world.settle()
    world.commit()
    assert world.queue("q") is queue and queue.is_paused
    world.send("q", b"b")
    assert world.on_queue(world.consumer(), "q") and not world.settle()
    world.close(next(iter(queue.bindings)).consumer)
    reclaim.purge(queue)
    world.settle()
    queue.resume()
    world.settle()
    world.commit()
    assert not world.engine.queues and not world.engine.addresses


@pytest.mark.parametrize(
    ("hold", "let_go"), [(Address.pause, Address.resume), (Address.block, Address.unblock)]
)
def test_an_address_that_is_held_stays_until_it_is_let_go(
    hold: Callable[[Address], None], let_go: Callable[[Address], None]
) -> None:
    world = World(GOING)
    world.send("q", b"a")
    world.commit()
    address = world.address("q")
    hold(address)
    world.engine.drop_queue(world.queue("q"))
    world.commit()
    assert world.engine.addresses == {"q": address}
    let_go(address)
    assert not world.engine.addresses


def test_an_address_without_subscriptions_has_no_room_for_them() -> None:
    """Of very many addresses a dictionary that was used once is what keeps the memory of all else."""
    world = World()
    address = world.engine.create_address("news")
    before = dictionaries_of(address)
    consumer = world.on_durable(world.consumer("once", AckMode.AUTO), "d", "news")
    assert len(dictionaries_of(address)) > len(before)
    world.close(consumer)
    durables.drop_durable(world.engine, "client", "d")
    assert dictionaries_of(address) == before


def test_addresses_share_what_is_empty() -> None:
    """Each has a dozen dictionaries and lists, of which most are never used."""
    world = World()
    addresses = [world.engine.create_address(name) for name in ("news", "mail")]
    assert not any(map(dictionaries_of, addresses))
    lists = [{id(held) for held in held_by(address) if held == []} for address in addresses]
    assert lists[0] == lists[1]


def test_what_comes_and_goes_leaves_nothing_new_at_an_address() -> None:
    """What was made meanwhile would lie between what was young then, and keep the memory of that as long as there is the address."""
    world = World()
    address = world.engine.create_address("news")
    world.commit()
    before = held_by(address)
    consumer = world.on_durable(world.consumer("once", AckMode.AUTO), "d", "news")
    world.commit()
    world.close(consumer)
    durables.drop_durable(world.engine, "client", "d")
    world.commit()
    known = set(map(id, before))  # of objects that are still there: nothing new has the place of an old one
    assert [held for held in held_by(address) if id(held) not in known and not isinstance(held, int)] == []


def dictionaries_of(address: Address) -> list[int]:
    """The dictionaries that it has for itself."""
    return [id(held) for held in held_by(address) if isinstance(held, dict) and held is not NONE]


def held_by(address: Address) -> list[object]:
    return [*gc.get_referents(address), *gc.get_referents(address.log)]
