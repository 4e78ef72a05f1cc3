"""Sockets: what is loaded for some of them holds up none of the others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from urllib.parse import urlsplit

import pytest

from stompbox.config import Configuration
from stompbox.config.tables import ListenerTable
from stompbox.server.run import start, stop
from stompbox.server.transport import tcp
from stompbox.server.turns import FEW

WITHIN = 20.0  # seconds
GET = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_who_speaks_websocket_first_waits_for_its_library_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_first_websockets(monkeypatch))


def test_of_those_who_come_at_once_few_are_accepted_in_a_turn() -> None:
    asyncio.run(_many_newcomers())


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
