"""Who does not take what it is told is not read, and so its heart-beats are not seen: when it lives all the same, and when it is cut."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from stompbox.server.session.connection import Connection
from stompbox.server.session.unread import Unread
from stompbox.server.transport.tcp import Socket
from tests.server.world import KINDS, Guest, House, configured, play

TTL = "connectionTtl=600"
LONG = "x" * 50_000


async def clog(house: House, guest: Guest) -> Connection:
    """Subscribes, and reads nothing of what another one sends, until it is read no more."""
    connection = house.connection()
    guest.say("SUBSCRIBE\nid:1\ndestination:/topic/much\nreceipt:1\n\n\0")
    await guest.hear(b"receipt-id:1\n\n\0\n")
    guest.reader._transport.pause_reading()  # type: ignore[attr-defined]
    sender = await house.client(more="heart-beat:1000,0\n")
    while not connection.unread.is_much:
        guest.say("\n")  # however long this takes on a busy machine: it is alive until now
        sender.say(f"SEND\ndestination:/topic/much\nreceipt:1\n\n{LONG}\0")
        await sender.hear(b"receipt-id:1\n\n\0\n")
    sender.leave()
    await house.until(lambda: len(house.broker.connections) == 1, "the sender has left")
    return connection


def beats(monkeypatch: pytest.MonkeyPatch, guest: Guest) -> list[float]:
    """When a sign of life was looked for. The guest beats just before, however busy the machine is."""
    look, found = Unread.last_sign, list[float]()

    def last_sign(self: Unread, connection: Connection, now: float) -> float:
        guest.writer.transport.write(b"\n")
        found.append(now)
        return look(self, connection, now)

    monkeypatch.setattr(Unread, "last_sign", last_sign)
    return found


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_has_vanished_is_cut(tmp_path: Path, kind: str, *, fast: bool) -> None:
    """It neither takes what it is told nor says anything."""

    async def story(house: House) -> None:
        guest = await house.client(kind, version="1.1")
        connection = await clog(house, guest)
        await house.until(lambda: connection.is_lost, "it is cut")
        assert house.broker.errors["connection-ttl"] == 1
        assert not house.broker.connections

    play(configured(tmp_path, TTL), story, fast=fast)


def test_who_beats_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(house: House) -> None:
        guest = await house.client(version="1.1")
        connection = await clog(house, guest)
        times = beats(monkeypatch, guest)
        await house.until(
            lambda: len(times) > 2 and times[-1] - times[0] > 1.0,
            "it was looked at for longer than its time to live",
        )
        assert not connection.is_ended

    play(configured(tmp_path, TTL), story)


def test_each_sign_of_life_counts() -> None:
    """(octets that its system did not take, seconds since it said something, whether all was taken once): when it was seen at last."""
    unread = Unread()
    loop, transport = (
        SimpleNamespace(time=lambda: 100.0),
        Mock(unsent=5 << 20, silence=3.0, absence=99.0, is_clogged=True),
    )
    connection: Any = SimpleNamespace(
        broker=SimpleNamespace(loop=loop, pressure=Mock()), transport=transport, outgoing=None, is_lost=False, is_ended=False,
        account=Mock(), options=SimpleNamespace(max_connection_memory=64 << 20), pulse=Mock(agreement=Mock(ttl_ms=60_000)),
    )  # fmt: skip
    assert unread.last_sign(connection, 100.0) == 100.0, (
        "it is not its fault that it is not read, and its system was not asked"
    )
    transport.probe.assert_called_once_with(15)
    for absence, sign in ((44.0, 110.0), (45.0, 65.0), (200.0, -90.0), (None, 110.0)):
        transport.absence = absence
        assert unread.last_sign(connection, 110.0) == sign
    transport.probe.assert_called_once()
    unread.look(connection)
    transport.silence = 15.0
    assert unread.last_sign(connection, 110.0) == 100.0
    transport.silence = 4.0
    assert unread.last_sign(connection, 112.0) == 108.0
    transport.silence = 20.0
    assert unread.last_sign(connection, 113.0) == 108.0, "what was seen is not forgotten"
    transport.unsent -= 1
    assert unread.last_sign(connection, 114.0) == 114.0
    assert unread.last_sign(connection, 115.0) == 114.0
    unread.has_drained = True
    assert unread.last_sign(connection, 116.0) == 116.0
    transport.silence = None
    assert unread.last_sign(connection, 117.0) == 116.0, "a system that says nothing of it"


# Senders that wait for room

FULL = '[[address-setting]]\nmatch = "full"\nmax-size-bytes = 100000\naddress-full-policy = "BLOCK"\n'


async def block(house: House, guest: Guest) -> Connection:
    """Sends more than an address takes, until nothing more is read from it and its system takes no more."""
    connection = house.connection()
    transport = guest.writer.transport
    while not connection.reading.is_paused or transport.get_write_buffer_size() < len(LONG):  # type: ignore[attr-defined]
        guest.say(f"SEND\ndestination:/queue/full\n\n{LONG}\0")
        await house.until(
            lambda: connection.reading.is_paused or not transport.get_write_buffer_size(), "it is read"
        )  # type: ignore[attr-defined]
    return connection


def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a sign of life was looked for."""
    look, found = Unread.last_sign, list[float]()

    def last_sign(self: Unread, connection: Connection, now: float) -> float:
        found.append(now)
        return look(self, connection, now)

    monkeypatch.setattr(Unread, "last_sign", last_sign)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_sender_that_waits_for_room_is_cut_when_its_host_has_vanished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Its system answers nothing: on this machine there is always one that does."""
    monkeypatch.setattr(Socket, "absence", 100.0)

    async def story(house: House) -> None:
        connection = await block(house, await house.client(kind, version="1.1"))
        await house.until(lambda: connection.is_lost, "it is cut")
        assert house.broker.errors["connection-ttl"] == 1
        assert not house.broker.connections
        assert not house.broker.pressure.waiting
        assert not house.broker.pressure.full

    play(configured(tmp_path, TTL, FULL), story)


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
def test_a_sender_that_waits_for_room_is_not_cut_while_its_host_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fast: bool
) -> None:
    """Not even its heart-beats come, for the buffers of both systems are full. Its system answers ours."""

    async def story(house: House) -> None:
        connection = await block(house, await house.client(version="1.1"))
        times = looks(monkeypatch)
        silence = connection.transport.silence
        await house.until(
            lambda: times and times[-1] - times[0] > 4.0,
            "it was looked at for longer than a host may be absent",
        )
        assert not connection.is_ended
        assert silence is not None
        assert (connection.transport.silence or 0) > silence + 3, "nothing came from it that could be read"
        assert (connection.transport.absence or 0) < 3

    play(configured(tmp_path, TTL, FULL), story, fast=fast)
