"""Sockets: what is loaded for some of them holds up none of the others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pytest

from stompbox.config import Configuration
from stompbox.config.tables import ListenerTable
from stompbox.errors import Refused
from stompbox.server.run import start, stop
from stompbox.server.transport import tcp
from stompbox.server.transport.tcp import Socket
from stompbox.server.turns import FEW
from tests.server.turning import Recorded, World
from tests.server.world import Guest, House, configured, play

WITHIN = 20.0  # seconds
GET = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_who_speaks_websocket_first_waits_for_its_library_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_first_websockets(monkeypatch))


def test_of_those_who_come_at_once_few_are_accepted_in_a_turn() -> None:
    asyncio.run(_many_newcomers())


MANY = 10 * FEW
CONNECT = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"


def strangers(world: World, first: bytes) -> list[tuple[Socket, Recorded]]:
    """Those who have all said so much in one turn."""
    found = [(Socket(world.broker, world.acceptor), Recorded()) for _ in range(MANY)]
    for socket_, wire in found:
        socket_.connection_made(wire)
    for socket_, _ in found:
        socket_.data_received(first)
    return found


@pytest.mark.parametrize("first", [b"C", b"\n", CONNECT], ids=["an octet", "an end of line", "a login"])
def test_of_strangers_who_first_speak_at_once_few_are_met_in_a_turn(first: bytes) -> None:
    """To make a client's end takes 20 us: 5,000 of them would hold everybody up for 100 ms."""
    world = World()
    normal = world.client()
    world.turn()
    met = strangers(world, first)
    normal.say(("BEGIN", {"transaction": "t", "receipt": "now"}))
    assert normal.confirmed() == ["now"], "who is logged in waits for none of them"
    before = len(world.broker.connections)
    assert before <= 1 + FEW
    assert not any(wire.is_read for _, wire in met[before - 1 :]), "nobody is read before he is met"
    while before < MANY + 1:
        world.turn()
        assert 0 < len(world.broker.connections) - before <= FEW
        before = len(world.broker.connections)
    world.until_idle()
    for socket_, wire in met:
        assert wire.is_read
        if first != CONNECT:
            socket_.data_received(CONNECT.removeprefix(first))
    world.until_idle()
    assert all(bytes(wire.written).count(b"CONNECTED\n") == 1 for _, wire in met)


def test_a_stranger_who_goes_or_is_too_late_before_it_is_met_leaves_nothing() -> None:
    world = World()
    met = strangers(world, b"C")
    gone, late = met[-1], met[-2]
    gone[0].connection_lost(None)
    late[0]._late()
    world.turn(MANY)
    assert b"\ncode:handshake-timeout\n" in late[1].written
    assert len(world.broker.connections) == MANY - 1
    assert len(world.broker.sockets) == MANY - 1, "the late one may read what it was told"


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
def test_of_a_socket_that_is_closed_the_system_says_nothing(tmp_path: Path, *, fast: bool) -> None:
    """Its heart-beats are looked at as long as what it has read is not obeyed, and a front tells of it until that is passed on."""

    async def story(house: House) -> None:
        guest = await house.client()
        transport = cast(Socket, house.connection().transport)
        guest.leave()
        raw = transport._transport
        await house.until(lambda: raw.get_extra_info("socket").fileno() < 0, "it is closed")
        transport.probe(1)
        assert transport.silence is None
        assert transport.absence is None

    play(configured(tmp_path), story, fast=fast)


class HalfClosing(Recorded):
    def can_write_eof(self) -> bool:
        return True


def test_who_has_ended_its_side_is_not_met_once_more_when_it_is_to_go() -> None:
    """Its front would say of it a second time that it is there."""
    world, wire = World(), HalfClosing()
    ended = Socket(world.broker, world.acceptor)
    ended.connection_made(wire)
    ended.data_received(b"C")
    assert ended.eof_received()
    world.turn(2)
    assert not world.broker.connections
    ended.dismiss(Refused("too-many-connections", "it was the oldest", closes=True))
    assert not world.broker.connections
    assert not wire.written


def half_closed(guest: Guest) -> None:
    with socket.socket(fileno=os.dup(guest.writer.get_extra_info("socket").fileno())) as same:
        same.shutdown(socket.SHUT_WR)


def not_tls(guest: Guest) -> None:
    os.write(guest.writer.get_extra_info("socket").fileno(), b"what is no record of TLS")


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("kind", "ends"), [("tcp", half_closed), ("tls", half_closed), ("tls", not_tls)],
    ids=["TCP", "TLS", "no more TLS"],
)  # fmt: skip
def test_who_ends_its_side_and_does_not_read_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, kind: str, ends: Callable[[Guest], None], fast: bool
) -> None:
    """What it was told would stay in memory for ever, and be counted nowhere."""
    monkeypatch.setattr(tcp, "LAST_WORDS", 0.01)

    async def story(house: House) -> None:
        guest = await house.client(kind)
        connection = house.connection()
        guest.say("SUBSCRIBE\nid:1\ndestination:/topic/t\nreceipt:1\n\n\0")
        await guest.hear(b"receipt-id:1\n\n\0\n")
        guest.reader._transport.pause_reading()  # type: ignore[attr-defined]
        sender = await house.client()
        while not connection.transport.is_clogged:
            sender.say(f"SEND\ndestination:/topic/t\nreceipt:1\n\n{'x' * 50_000}\0")
            await sender.hear(b"receipt-id:1\n\n\0\n")
        assert not connection.unread.is_much, "it is read on"
        ends(guest)
        await house.until(lambda: len(house.broker.sockets) == 1, "its socket is closed")

    play(configured(tmp_path), story, fast=fast)


async def _many_newcomers() -> None:
    """asyncio would accept all of them. The system keeps those who wait."""
    listener = ListenerTable(url="tcp://127.0.0.1:0")
    broker, servers, urls = await start(Configuration(memory=True, listeners=(listener,)))
    where, count = ("127.0.0.1", urlsplit(urls[0]).port), 10 * FEW
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(socket.create_connection(where, WITHIN))
            before = most = 0
            while before < count:
                await asyncio.sleep(0)
                most, before = max(most, len(broker.sockets) - before), len(broker.sockets)
            assert most <= FEW
    finally:
        await stop(broker, servers)


async def _first_websockets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, may_load, load = threading.Event(), threading.Event(), tcp._websocket
    loaders: list[threading.Thread] = []

    def slowly() -> object:
        loaders.append(threading.current_thread())
        asked.set()
        assert may_load.wait(WITHIN)
        return load()

    monkeypatch.setattr(tcp, "_websocket", slowly)
    listener = ListenerTable(url="tcp://127.0.0.1:0")
    broker, servers, urls = await start(Configuration(memory=True, listeners=(listener,)))
    port = urlsplit(urls[0]).port
    try:
        webs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in webs:
            writer.write(GET[:40])
        assert await asyncio.to_thread(asked.wait, WITHIN)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        assert (await asyncio.wait_for(reader.readuntil(b"\0"), WITHIN)).startswith(b"CONNECTED")
        webs[0][1].close()  # goes while it waits
        for _, other in webs[1:]:
            other.write(GET[40:])
        may_load.set()
        for answer, _ in webs[1:]:
            assert (await asyncio.wait_for(answer.readuntil(b"\r\n\r\n"), WITHIN)).startswith(b"HTTP/1.1 101")
        assert len(loaders) == 1
        assert loaders[0] is not threading.main_thread()
        for _, other in [*webs[1:], (reader, writer)]:
            other.close()
            await other.wait_closed()
    finally:
        may_load.set()
        await stop(broker, servers)
