"""What several sockets have in one turn of the loop goes out together when it was obeyed, and before that where it is much."""

from __future__ import annotations

from stompbox.server.broker import AT_ONCE
from tests.server.turning import Client, World


def hear(client: Client, *frames: tuple[str, dict[str, str]]) -> None:
    """As a socket hands it over, in a turn in which others are read, too."""
    client.socket.data_received(client.octets(frames))


def subscribed(world: World) -> Client:
    consumer = world.client()
    consumer.say(("SUBSCRIBE", {"id": "1", "destination": "/queue/a"}))
    return consumer


def test_what_three_clients_send_in_one_turn_is_one_write_to_the_one_who_gets_it() -> None:
    world = World()
    consumer, senders = subscribed(world), [world.client() for _ in range(3)]
    world.turn()
    writes: list[bytes] = []
    write = consumer.wire.write
    consumer.wire.write = lambda data: (writes.append(bytes(data)), write(data))  # type: ignore[method-assign,func-returns-value]
    for sender in senders:
        hear(sender, ("SEND", {"destination": "/queue/a"}))
    assert consumer.bodies() == []
    world.turn()
    assert len(consumer.bodies()) == 3
    assert len(writes) == 1


def test_what_comes_of_a_large_read_does_not_wait_for_other_sockets() -> None:
    world = World()
    consumer, sender = subscribed(world), world.client()
    world.turn()
    hear(sender, ("SEND", {"destination": "/queue/a", "padding": "x" * AT_ONCE}))
    assert len(consumer.bodies()) == 1


def test_many_small_reads_of_one_turn_are_as_much_as_a_large_one() -> None:
    world = World()
    consumer, senders = subscribed(world), [world.client() for _ in range(40)]
    world.turn()
    for sender in senders:
        hear(sender, ("SEND", {"destination": "/queue/a", "padding": "x" * 900}))
    assert 0 < len(consumer.bodies()) < 40
    world.turn()
    assert len(consumer.bodies()) == 40


def test_a_receipt_of_what_needs_no_disk_is_said_at_once() -> None:
    world = World()
    sender = world.client()
    world.turn()
    hear(sender, ("SEND", {"destination": "/queue/a", "receipt": "r"}))
    assert sender.confirmed() == ["r"]
