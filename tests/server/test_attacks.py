"""What a client with an account does that uses several features at once (bench/attacks/composed.py): no step is longer the more of it there
is, counted in lines that run between two looks at the clock. And all of it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from stompbox.broker.transactions import dropping
from stompbox.config.settings import AddressSetting
from stompbox.server.revoking import orphaned
from tests.server.turning import Client, World, loaded

Frames = Iterable[tuple[str, Mapping[str, str]]]


def read(client: Client, octets: bytes) -> None:
    """In one read, and all of it is done."""
    client.socket.data_received(octets)
    client.world.turn(3)
    client.world.until_idle()
    client.world.turn(100)


def taken_over(count: int) -> int:
    """A durable subscription with a backlog, which the next connection takes up while the one before is leaving."""
    world = World()
    sender, name = world.client(), {"durable-subscription-name": "d", "selector": "n >= 0"}
    subscribe = ("SUBSCRIBE", {"id": "1", "destination": "/topic/t", "ack": "client", **name})

    def taker() -> Client:
        found = world.client(headers={"client-id": "one"})
        found.say((subscribe[0], {**subscribe[1], "consumer-window-size": "-1"}))
        return found

    holder = taker()
    frames = [("SEND", {"destination": "/topic/t", f"h-{n % 7}": "1", "n": str(n)}) for n in range(count)]
    read(sender, sender.octets(frames))
    world.until_idle()
    world.turn(20)
    with world.steps() as steps:
        for _ in range(3):
            holder.socket.connection_lost(None)
            holder = taker()
            world.until_idle()
            world.turn(5)
    world.until_idle()
    world.turn(20)
    assert len(holder.bodies()) == count
    return steps.longest


def temporary(count: int) -> int:
    """Temporary queues of one connection, which goes."""
    world = World()
    client = world.client()
    octets = client.octets(
        [("SUBSCRIBE", {"id": str(n), "destination": f"/temp-queue/{n}"}) for n in range(count)]
    )
    with world.steps() as steps:
        read(client, octets)
        assert len(world.broker.engine.queues) == count
        client.socket.connection_lost(None)
        world.until_idle()
    assert not world.broker.engine.queues
    return steps.longest


def wide(count: int) -> int:
    """Wildcards with selectors over some addresses that retain, which end in one read."""
    world = World()
    world.broker.engine.work.portion = 500
    client, addresses = world.client(), [f"/topic/wide.{n}" for n in range(5)]
    read(client, client.octets([("SEND", {"destination": name, "retain": "set"}) for name in addresses]))
    selectors = [f"n = {n} OR m >= {n}" for n in range(count)]
    wildcard = {"destination": "/topic/wide.#"}
    parts: list[Frames] = [
        [("SUBSCRIBE", {"id": str(n), "selector": text, **wildcard}) for n, text in enumerate(selectors)],
        [("SEND", {"destination": name, "m": str(count // 2)}) for name in addresses],
        [("UNSUBSCRIBE", {"id": str(n)}) for n in range(count)],
    ]
    octets, wanted = [client.octets(part) for part in parts], len(addresses) * (count // 2 + 1)
    with world.steps() as steps:
        for part in octets:
            read(client, part)
            while part is octets[1] and client.wire.written.count(b"MESSAGE\n") < wanted:
                world.turn()
    world.turn(20)
    assert len(client.bodies()) == wanted
    assert not world.broker.engine.queues
    return steps.longest


def escaped(count: int) -> int:
    """A header that is nothing but escapes."""
    world = World()
    sender, reader = world.client("1.2"), world.client("1.2")
    reader.say(("SUBSCRIBE", {"id": "1", "destination": "/topic/t"}))
    text = "\\:\r\n" * count
    octets = sender.octets([("SEND", {"destination": "/topic/t", "text": text})])
    with world.steps() as steps:
        read(sender, octets)
        world.turn()
    assert [frame.headers["text"] for frame in reader.heard() if frame.command == "MESSAGE"] == [text]
    return steps.longest


def nacked(count: int) -> int:
    """NACKs of one read each, with a delay of the redelivery."""
    again = AddressSetting(match="#", redelivery_delay=2000, max_delivery_attempts=3)
    world = World(address_settings=(again,))
    holder, _ = loaded(world, count, {"ack": "client-individual"})
    ids = [frame.headers["message-id"] for frame in holder.heard() if frame.command == "MESSAGE"]
    octets = holder.octets([("NACK", {"message-id": id, "subscription": "1"}) for id in ids])
    with world.steps() as steps:
        read(holder, octets)
    (queue,) = world.broker.engine.queues.values()
    assert queue.waits.count == count
    return steps.longest


def committed(count: int) -> int:
    """A COMMIT of tiny messages, hardly two of which are a run, to an address that is paged."""
    world = World(is_durable=True, address_settings=(AddressSetting(match="#", max_size_bytes=1 << 14),))
    client, where = world.client(), {"destination": "/queue/q", "transaction": "t"}
    client.say(("BEGIN", {"transaction": "t"}))
    octets = client.octets([("SEND", {f"n-{n % 7}": "1", **where}) for n in range(count)])
    with world.steps() as steps:
        read(client, octets)
        client.say(("COMMIT", {"transaction": "t", "receipt": "done"}))
        world.until_idle()
    world.until_stored()
    assert client.confirmed() == ["done"]
    (queue,) = world.broker.engine.queues.values()
    assert queue.is_paged is (count > 100)
    return steps.longest


def deleted(count: int) -> int:
    """A queue with very many consumers, which an operator deletes."""
    world = World()
    clients = [world.client("1.2") for _ in range(count // 3)]
    for client in clients:
        client.say(*[("SUBSCRIBE", {"id": str(n), "destination": "/queue/q"}) for n in range(3)])
    world.until_idle()
    engine = world.broker.engine

    def going() -> Iterator[None]:
        yield from orphaned((yield from dropping(engine, engine.addresses["q"])))

    with world.steps() as steps:
        engine.later.take(object(), going())
        world.broker.flush()
        world.until_idle()
    assert not engine.queues
    assert [client.errors()[0] for client in clients] == ["queue-deleted"] * len(clients)
    return steps.longest


@pytest.mark.parametrize(
    ("attack", "few", "many"),
    [
        (taken_over, 300, 2400), (temporary, 200, 800), (wide, 150, 600), (escaped, 100, 7_000), (nacked, 300, 2400),
        (committed, 600, 2400), (deleted, 300, 2400),
    ],
)  # fmt: skip
def test_no_step_is_longer_the_more_there_is(attack: Callable[[int], int], few: int, many: int) -> None:
    attack(3)  # what is imported when it is first wanted is no step
    found = attack(few), attack(many)
    assert found[1] <= 1.2 * found[0] + 300, found
