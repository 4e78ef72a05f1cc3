"""A connection that does nothing costs little: what Python has for it, counted; what uvloop and the system have comes on top."""

from __future__ import annotations

import asyncio
import gc
import socket
import tracemalloc
from pathlib import Path

from stompbox.server.trimming import CONNECTION
from tests.server.world import House, configured, play

COUNT = 100
BROKERS = 3
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
    """The least of a few brokers': what else the process does, for tests before this one, comes on top of some and takes from none."""
    each: list[float] = []

    async def story(house: House) -> None:
        first = await come(house)
        gc.collect()  # what others have left would be found now, and what is said of it would be counted here
        tracemalloc.start()
        try:
            clients = first + await come(house)
            each.append(tracemalloc.get_traced_memory()[0] / COUNT)
        finally:
            tracemalloc.stop()
        for client in clients:
            client.close()

    configuration = configured(tmp_path)
    for _ in range(BROKERS):
        play(configuration, story, fast=True)
    assert min(each) <= 3_850, f"{each} octets"
    assert min(each) < CONNECTION
