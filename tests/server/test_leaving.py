"""What ends goes in portions, as everything else does: connections, their sockets, and what they had."""

from __future__ import annotations

import asyncio
from itertools import count, pairwise
from pathlib import Path
from weakref import ref

import pytest

from stompbox.server import turns
from stompbox.server.transport.tcp import Socket
from stompbox.server.turns import FEW, LATE
from tests.server.turning import LOOKS, Recorded, World
from tests.server.world import WITHIN, House, configured, play

MANY = 500
CLOSE = b"\x88\x80\0\0\0\0"  # as a client masks it


def unsubscribed(count: int) -> int:
    """Lines of the longest step of the UNSUBSCRIBE from a wildcard over so many addresses, with nothing to be acknowledged."""
    world = World()
    world.broker.engine.work.portion = 1000
    sender, holder = world.client(), world.client()
    for number in range(count):
        sender.say(("SEND", {"destination": f"/topic/wide.{number}", "retain": "set"}))
    holder.say(("SUBSCRIBE", {"id": "1", "destination": "/topic/wide.#", "ack": "client-individual"}))
    world.until_idle()
    world.turn(50)
    with world.steps() as steps:
        holder.say(("UNSUBSCRIBE", {"id": "1", "receipt": "done"}))
        world.until_idle()
    assert holder.confirmed() == ["done"]
    return steps.longest


def test_no_step_of_the_end_of_a_wide_subscription_is_longer_the_more_it_covers() -> None:
    few, many = unsubscribed(400), unsubscribed(2000)
    assert many <= 1.2 * few


def test_what_a_connection_had_is_let_go_one_after_the_other() -> None:
    """A long selector alone takes some time to go."""
    world = World(max_selector_cache_memory=0)
    client = world.client()
    client.say(
        *[
            ("SUBSCRIBE", {"id": f"{n}", "destination": f"/topic/{n}", "selector": f"n = {n}"})
            for n in range(60)
        ]
    )
    world.until_idle()
    living = [ref(consumer.selector) for consumer in client.connection.consumers.values()]
    client.socket.connection_lost(None)
    turns = []
    while world.broker.turns.waiting:
        turns.append(sum(selector() is not None for selector in living))
        world.turn()
    assert turns[0] > 0
    assert all(before - after <= 2 * LOOKS for before, after in pairwise([60, *turns, 0]))
    assert not any(selector() for selector in living)


def test_who_says_much_does_not_wait_for_all_that_are_lost() -> None:
    world = World()
    normal = world.client()
    clients = [world.client() for _ in range(MANY)]
    world.turn()
    for client in clients:
        client.socket.connection_lost(None)
    normal.say_much(("BEGIN", {"transaction": f"{n}", "receipt": f"{n}"}) for n in range(20))
    world.turn(20)
    assert len(normal.confirmed()) == 20
    assert len(world.broker.connections) > MANY // 2


class HalfClosing(Recorded):
    """One whose other side may still read when this one has ended."""

    def can_write_eof(self) -> bool:
        return True


def test_of_sockets_whose_peers_end_at_once_few_are_closed_in_a_turn() -> None:
    """The loop ends each in its next turn, where nobody looks at a clock."""
    world = World()
    kept = [HalfClosing() for _ in range(MANY)]
    sockets = []
    for wire in kept:
        sockets.append(Socket(world.broker, world.acceptor))
        sockets[-1].connection_made(wire)
    world.until_idle()
    world.turn()
    for socket in sockets:
        assert socket.eof_received(), "the loop itself does not close it"
    before = 0
    while before < MANY:
        closed = sum(wire.is_gone for wire in kept)
        assert before < closed <= before + FEW
        before = closed
        world.turn()


def test_who_has_gone_gets_nothing_while_its_socket_waits_to_be_closed() -> None:
    """What it got with `ack:auto` would be acknowledged, and nobody would have it."""
    world = World()
    sender, gone, there = world.client(), world.client(), world.client()
    for reader in (gone, there):
        reader.say(("SUBSCRIBE", {"id": "1", "destination": "/queue/q", "ack": "auto"}))
    world.until_idle()
    for _ in range(FEW):  # in this turn no more are closed
        socket = Socket(world.broker, world.acceptor)
        socket.connection_made(HalfClosing())
        socket.eof_received()
    gone.wire.can_write_eof = lambda: True  # type: ignore[method-assign]
    gone.socket.eof_received()
    assert not gone.wire.is_gone
    sender.say(*[("SEND", {"destination": "/queue/q", "receipt": f"{n}"}) for n in range(10)])
    world.until_idle()
    assert (gone.bodies(), len(there.bodies())) == ([], 10)


@pytest.mark.parametrize("late", [0.0, LATE], ids=["late", "in time"])
@pytest.mark.parametrize("is_held", [False, True], ids=["waits", "is held"])
@pytest.mark.parametrize("is_durable", [False, True], ids=["in memory", "stored"])
def test_who_ends_its_side_is_told_of_all_that_it_has_said(
    monkeypatch: pytest.MonkeyPatch, late: float, *, is_held: bool, is_durable: bool
) -> None:
    """A small read that waits among others does not stop its socket from being read, so the end is heard before it is obeyed."""
    monkeypatch.setattr(turns, "LATE", late)
    world = World(is_durable=is_durable)
    clients = [world.client() for _ in range(20)]
    world.until_idle()
    world.turn()
    for client in clients:
        client.wire.can_write_eof = lambda: True  # type: ignore[method-assign]
        if is_held:
            client.connection.reading.hold()
        for number in range(4):
            client.socket.data_received(
                client.octets([("SEND", {"destination": "/queue/q", "receipt": f"{number}"})])
            )
        client.socket.eof_received()
    if is_held:
        for client in clients:
            client.connection.reading.go_on()
    world.turn(2)
    world.until_idle()
    world.until_stored()
    world.turn(2)
    assert [client.confirmed() for client in clients] == [["0", "1", "2", "3"]] * 20
    assert all(client.wire.is_gone for client in clients)
    for client in clients:
        client.socket.connection_lost(None)
    world.until_idle()
    assert not world.broker.connections


def test_a_broker_stops_whatever_comes_due_again_and_again(tmp_path: Path) -> None:
    """Each time that its clock is looked at all schedules are due."""

    async def story(house: House) -> None:
        client, broker = await house.client(), house.broker
        again = "AMQ_SCHEDULED_PERIOD:1\nAMQ_SCHEDULED_REPEAT:-1\npersistent:true\nreceipt:r"
        client.say(f"SEND\ndestination:/queue/q\n{again}\n\n\0" * 3)
        await house.until(lambda: broker.engine.counters["received"] > 30, "they are sent")
        first = int(broker.clock())
        broker.clock = count(first, 10).__next__
        try:
            async with asyncio.timeout(WITHIN):
                await broker.stop()
        finally:
            broker.clock = lambda: first
        assert not broker.engine.is_dirty and broker.faults.last is None

    play(configured(tmp_path), story)


def test_who_has_closed_its_websocket_gets_nothing_while_its_socket_is_open(tmp_path: Path) -> None:
    """What it got with `ack:auto` would be acknowledged, and not even be written."""

    async def story(house: House) -> None:
        gone = await house.client("websocket")
        gone.say("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:auto\nreceipt:there\n\n\0")
        await gone.hear(b"receipt-id:there\n")
        gone.writer.write(CLOSE)
        await gone.hear(b"\x88\0")  # the broker's own, in answer
        sender = await house.client()
        sender.say(
            "SEND\ndestination:/queue/q\nreceipt:sent\n\nx\0SUBSCRIBE\nid:1\ndestination:/queue/q\n\n\0"
        )
        assert b"\n\nx\0" in await sender.hear(b"\nx\0")

    play(configured(tmp_path), story)
