"""Who waits for a disk that is behind: those who send it much, and nobody else."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from stompbox.server import pressure
from stompbox.server.pressure import LITTLE, MOST, UNSAVED, Reason
from tests.server.turning import Client, World
from tests.server.world import KINDS, House, configured, play


def behind(octets: int) -> World:
    """A broker whose disk is at a commit, with so much on its way."""
    world = World(is_durable=True)
    world.until_stored()
    world.broker.committer.is_busy = True
    world.broker.engine.unsaved = octets
    return world


def send(client: Client, size: int) -> None:
    client.say(("SEND", {"destination": "/queue/a", "padding": "x" * size}))
    client.world.until_idle()


def is_read(client: Client) -> bool:
    return client.wire.is_read


def test_who_sends_the_disk_much_is_read_no_further_until_half_of_all_is_there() -> None:
    world = behind(UNSAVED)
    sender = world.client()
    send(sender, 2 * LITTLE)
    assert not is_read(sender)
    world.broker.engine.unsaved = UNSAVED // 2
    world.broker.pressure.relieve()
    assert not is_read(sender)
    world.broker.engine.unsaved -= 1
    world.broker.pressure.relieve()
    assert is_read(sender)


MUCH = {"padding": "x" * 2 * LITTLE}
NOTHING = {
    "not persistent": ("SEND", {"destination": "/queue/a", "persistent": "false", **MUCH}),
    "nobody is there": ("SEND", {"destination": "/topic/a", **MUCH}),
    "no message": ("BEGIN", {"transaction": "t"}),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_who_sends_the_disk_nothing_is_read_however_far_it_is_behind(kind: str) -> None:
    world = behind(2 * MOST)
    client = world.client()
    client.say(NOTHING[kind])
    world.until_idle()
    assert is_read(client)


def test_who_sends_the_disk_little_goes_on_for_longer_and_not_without_end() -> None:
    world = behind(UNSAVED + 1)
    sender = world.client()
    for _ in range(10):
        send(sender, LITTLE // 2)
        assert is_read(sender)
    world.broker.engine.unsaved = MOST
    send(sender, LITTLE // 2)
    assert not is_read(sender)


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_not_read_and_has_reset_its_socket_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Also where no time to live ends it: the loop hears nothing of a socket that it does not read."""
    monkeypatch.setattr(pressure, "LOOK", 0.001)

    async def story(house: House) -> None:
        guest = await house.client(kind)
        connection = house.connection()
        house.broker.pressure.hold(connection, Reason.DISK)
        assert connection.pulse is not None
        house.broker.beats.leave(connection)
        raw = guest.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        guest.leave()
        await house.until(lambda: not (house.broker.connections or house.broker.sockets), "it is gone")
        assert not house.broker.pressure.waiting

    play(configured(tmp_path), story, fast=True)
