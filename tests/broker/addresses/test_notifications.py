"""Notifications in the engine: made for who listens, after what they tell of, and otherwise not at all."""

from __future__ import annotations

import pytest

from stompbox.broker.addresses.notifications import Event
from stompbox.config.settings import AddressSetting
from stompbox.errors import LONGEST
from stompbox.message import ANYCAST
from tests.broker.world import Got, World

GOING = AddressSetting(match="#", auto_delete_queues=True, auto_delete_addresses=True)


def listening(*rules: AddressSetting) -> World:
    world = World(*rules)
    world.engine.notifications.address = "told"
    return world


def heard(world: World) -> list[tuple[str, str]]:
    """What happened, and to which address, since this was asked last."""
    world.engine.notifications.publish()
    return [(got.headers["_AMQ_NotifType"], got.headers.get("_AMQ_Address", "")) for got in told(world)]


def told(world: World) -> list[Got]:
    return [got for got in world.out() if got.consumer == "operator"]


def test_an_address_and_what_it_has_come_and_go() -> None:
    world = listening(GOING)
    world.on_topic(world.consumer("operator"), "told")
    assert heard(world) == [("BINDING_ADDED", "told")], "its own"
    consumer = world.on_queue(world.consumer("c"), "q")
    assert heard(world) == [("ADDRESS_ADDED", "q"), ("BINDING_ADDED", "q")]
    world.close(consumer)
    assert heard(world) == [("BINDING_REMOVED", "q"), ("ADDRESS_REMOVED", "q")]


def test_what_is_noted_waits_until_it_is_published() -> None:
    world = listening()
    world.on_topic(world.consumer("operator"), "told")
    world.address("a")
    assert not told(world)
    assert [each.headers["_AMQ_NotifType"] for each in world.engine.notifications.waiting] == [
        "BINDING_ADDED",
        "ADDRESS_ADDED",
    ]
    assert len(heard(world)) == 2
    assert heard(world) == []


@pytest.mark.parametrize("address", ["", "told"])
def test_without_somebody_who_listens_nothing_is_made(address: str) -> None:
    world = listening()
    world.engine.notifications.address = address
    if not address:
        world.on_topic(world.consumer("operator"), "told")
    world.on_queue(world.consumer("c"), "q")
    world.address("told", ANYCAST)  # a queue of this name is no topic
    world.engine.notifications.publish()
    assert not world.engine.notifications.waiting
    assert world.engine.counters["received"] == world.engine.counters["unrouted"] == 0


def test_who_has_gone_before_it_was_published_brings_nothing_back() -> None:
    world = listening(GOING)
    operator = world.on_topic(world.consumer("operator"), "told")
    world.address("a")
    world.close(operator)
    world.engine.notifications.publish()
    assert "told" not in world.engine.addresses


def test_they_are_not_persistent_and_nothing_of_them_is_stored() -> None:
    world = listening()
    world.on_topic(world.consumer("operator"), "told")
    world.commit()
    world.address("a")
    heard(world)
    world.commit()
    assert "told" not in {log.name for log in world.store.recover().logs}


def test_what_a_client_has_said_is_repeated_up_to_a_length() -> None:
    world = listening()
    world.on_topic(world.consumer("operator"), "told")
    heard(world)
    assert world.engine.notifications.note(
        Event.CONSUMER_CREATED, "", {"_AMQ_Address": "a" * 60_000, "_AMQ_User": ""}
    )
    world.engine.notifications.publish()
    [got] = told(world)
    assert len(got.headers["_AMQ_Address"]) == LONGEST
    assert "_AMQ_User" not in got.headers, "nobody by name"
