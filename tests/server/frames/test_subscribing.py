"""SUBSCRIBE to a wildcard that covers very many addresses, and the end of such a subscription, by the turns that they take."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stompbox.broker.addresses import lifetimes
from stompbox.broker.queues.consumer import WATCHED, AckMode, Consumer
from stompbox.broker.subscriptions import durables
from stompbox.broker.subscriptions.subscribers import JOINED
from stompbox.errors import Refused
from tests.server.turning import LOOKS, Client, World

WIDE = 400


def wide(world: World) -> Client:
    """So many topics, each with a retained message."""
    sender = world.client()
    sender.say(*[("SEND", {"destination": f"/topic/wide.{n}", "retain": "set"}) for n in range(WIDE)])
    world.until_idle()
    return sender


def queues_of(world: World) -> int:
    return sum(len(address.topics) for address in world.broker.engine.addresses.values())


DURABLE = {"durable-subscription-name": "d"}


@pytest.mark.parametrize("headers", [{}, DURABLE], ids=["plain", "durable"])
def test_a_wide_wildcard_is_joined_in_portions_and_its_receipt_is_the_last(
    headers: Mapping[str, str],
) -> None:
    world = World()
    sender, client = wide(world), world.client()
    client.connection.client_id = "c"
    client.say(("SUBSCRIBE", {"id": "1", "destination": "/topic/wide.#", "receipt": "done", **headers}))
    assert queues_of(world) <= LOOKS * JOINED
    sender.say(("SEND", {"destination": "/topic/wide.new"}))
    assert client.confirmed() == []
    most = 0
    before = queues_of(world)
    while world.broker.turns.waiting and not client.confirmed():
        world.turn()
        most, before = max(most, queues_of(world) - before), queues_of(world)
    assert 0 < most <= (LOOKS + 1) * JOINED
    world.until_idle()
    world.turn(50)
    assert client.confirmed() == ["done"]
    assert [frame.command for frame in client.frames[:2]] == ["CONNECTED", "RECEIPT"]
    assert queues_of(world) == WIDE + 1, "with the one that was made meanwhile"
    came = len(client.bodies())
    assert came == WIDE + (not headers), (
        "what is retained, and what came to the new one: a durable one looks first whether it may"
    )
    for name in ("7", "new"):
        sender.say(("SEND", {"destination": f"/topic/wide.{name}"}))
    world.turn(5)
    assert len(client.bodies()) == came + 2


def test_a_wide_wildcard_on_queues_is_joined_in_portions() -> None:
    world = World()
    sender, client = world.client(), world.client()
    sender.say(*[("SEND", {"destination": f"/queue/wide.{n}"}) for n in range(WIDE)])
    world.until_idle()
    client.say(("SUBSCRIBE", {"id": "1", "destination": "/queue/wide.#", "receipt": "done"}))
    queues = [world.broker.engine.addresses[f"wide.{n}"].anycast[f"wide.{n}"] for n in range(WIDE)]
    assert sum(len(queue.bindings) for queue in queues) <= LOOKS * JOINED
    world.until_idle()
    world.turn(50)
    assert client.confirmed() == ["done"]
    assert len(client.bodies()) == WIDE


@pytest.mark.parametrize("headers", [{}, DURABLE], ids=["plain", "durable"])
def test_who_goes_while_a_wildcard_is_joined_leaves_nothing_of_it(headers: Mapping[str, str]) -> None:
    world = World()
    wide(world)
    client = world.client("1.2")
    client.connection.client_id = "c"
    client.say(("SUBSCRIBE", {"id": "1", "destination": "/topic/wide.#", **headers}))
    while not queues_of(world):
        world.turn()
    assert queues_of(world) < WIDE
    client.connection.refuse(Refused("closed-by-operator", "an operator has closed this connection"))
    assert client.connection.is_ended
    world.until_idle()
    client.socket.connection_lost(None)
    world.until_idle()
    assert queues_of(world) == (WIDE if headers else 0)
    assert len(world.broker.engine.watchers) == len(headers)
    assert all(known.consumer is None for known in world.broker.engine.durables.values())


def test_a_durable_subscription_belongs_to_one_while_it_is_joined_and_to_nobody_while_it_goes() -> None:
    world = World()
    wide(world)
    clients = [world.client(), world.client()]
    for client in clients:
        client.connection.client_id = "c"
    wish = "SUBSCRIBE", {"id": "1", "destination": "/topic/wide.#", "receipt": "done", **DURABLE}
    clients[0].say(wish)
    clients[1].say(wish)
    assert clients[1].errors() == ["durable-in-use"]
    world.until_idle()
    assert clients[0].confirmed() == ["done"]
    clients[0].say(("UNSUBSCRIBE", {"id": "1", "receipt": "gone", **DURABLE}))
    while queues_of(world) == WIDE:
        world.turn()
    assert queues_of(world) > 0
    clients[1].say(wish)
    assert clients[1].errors() == ["durable-in-use"] * 2
    world.until_idle()
    assert clients[0].confirmed() == ["done", "gone"]
    assert queues_of(world) == 0
    clients[1].say(wish)
    world.until_idle()
    assert clients[1].confirmed() == ["done"]
    assert queues_of(world) == WIDE


@pytest.mark.parametrize("destination", ["/topic/wide.#", "/stream/log"])
def test_who_comes_back_before_the_old_connection_has_left_waits_for_its_end(destination: str) -> None:
    world = World()
    wide(world)
    old, new = world.client(), world.client()
    for client in (old, new):
        client.connection.client_id = "c"
    wish = "SUBSCRIBE", {"id": "1", "destination": destination, "receipt": "done", **DURABLE}
    old.say(wish)
    world.until_idle()
    old.say(*[("SEND", {"destination": "/topic/wide.1"}) for _ in range(50_000)])
    assert old.connection.reading.has_left
    old.socket.connection_lost(None)
    assert not old.connection.is_gone
    new.say(wish, ("SEND", {"destination": "/queue/after", "receipt": "after"}))
    assert new.errors() == [] == new.confirmed()
    world.until_idle()
    assert old.connection.is_gone
    world.turn(5)
    assert (new.errors(), new.confirmed()) == ([], ["done", "after"])


def test_a_durable_subscription_that_a_crash_has_left_half_made_is_made_whole() -> None:
    world = World()
    wide(world)
    engine = world.broker.engine
    half = durables.DurableSubscription("c", "d", "wide.#", None, no_local=False)
    steps = durables.joining(engine, Consumer("1", AckMode.AUTO, session=1), half)
    while queues_of(world) < WIDE // 2:
        next(steps)
    half.consumer = None  # as a recovery finds it
    half.queues[:] = [queue for queue in half.queues if queue.id in engine.queues]
    client = world.client()
    client.connection.client_id = "c"
    client.say(("SUBSCRIBE", {"id": "1", "destination": "/topic/wide.#", "receipt": "done", **DURABLE}))
    world.until_idle()
    assert client.confirmed() == ["done"]
    assert queues_of(world) == len(half.queues) == WIDE
    assert {queue.address.name for queue in half.queues} == {f"wide.{n}" for n in range(WIDE)}


def test_what_one_of_very_many_wildcards_has_joined_is_known_without_a_look_at_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, asked = World(), list[str]()
    sender, client = world.client(), world.client()
    sender.say(*[("SEND", {"destination": f"/topic/known.{n}"}) for n in range(WIDE)])
    world.until_idle()
    matches = lifetimes.is_match
    monkeypatch.setattr(lifetimes, "is_match", lambda *given: (asked.append(""), matches(*given))[1])
    others = [f"/topic/#.known.z{n}" for n in range(40)]
    client.say(("SUBSCRIBE", {"id": "1", "destination": ",".join([*others, "/topic/known.*", "/topic/#"])}))
    world.until_idle()
    assert len(asked) <= (len(others) + 2) * len(world.broker.engine.addresses)
    sender.say(("SEND", {"destination": "/topic/known.1"}), ("SEND", {"destination": "/topic/later"}))
    world.until_idle()
    world.turn(5)
    assert len(client.bodies()) == 2, "each once"


def test_wildcards_count_as_memory_of_their_connection_until_they_go() -> None:
    world = World()
    client = world.client()
    before = client.connection.allowance.subscribed
    client.say(("SUBSCRIBE", {"id": "1", "destination": ",".join([f"/topic/w{n}.*" for n in range(100)])}))
    world.until_idle()
    assert client.connection.allowance.subscribed > before + 100 * WATCHED
    client.say(("UNSUBSCRIBE", {"id": "1"}))
    world.until_idle()
    assert client.connection.allowance.subscribed == before
    assert not world.broker.engine.watchers
