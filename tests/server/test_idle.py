"""A connection that does nothing costs little: what Python has for it, counted; what uvloop and the system have comes on top."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from pathlib import Path

from stompbox.server.trimming import CONNECTION
from tests.server.world import House, configured, play

COUNT = 100
HELLO = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"


async def come(house: House) -> list[socket.socket]:
    loop, found = asyncio.get_running_loop(), []
    for _ in range(COUNT):
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, house.servers[0].sockets[0].getsockname())
        await loop.sock_sendall(client, HELLO)
        assert (await loop.sock_recv(client, 4096)).startswith(b"CONNECTED")
        found.append(client)
    return found


def test_an_idle_connection(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        first = await come(house)
        tracemalloc.start()
        try:
            clients = first + await come(house)
            each = tracemalloc.get_traced_memory()[0] / COUNT
        finally:
            tracemalloc.stop()
        for client in clients:
            client.close()
        assert each <= 5_200, f"{each:.0f} octets"
        assert each < CONNECTION

    play(configured(tmp_path), story, fast=True)
