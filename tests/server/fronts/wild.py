"""A broker with the link of a front, at whose other end the test is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvloop

from stompbox.errors import LinkError
from stompbox.server.fronts import link
from stompbox.server.fronts.link import Kind
from stompbox.server.fronts.records import HEAD, Records
from stompbox.server.fronts.remote import FrontLink
from stompbox.server.transport.tcp import Acceptor
from tests.server.world import House, configured

WITHIN = 20.0
CONNECT = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"
ARRIVES = link.packed(link.Arrival(0, "192.0.2.7"))
OPENS = link.packed(link.Opening("192.0.2.7", "alice", 50_000))


def record(kind: int, number: int = 0, payload: bytes = b"") -> bytes:
    return HEAD.pack(kind, number, len(payload)) + payload


OPENED = record(Kind.ARRIVED, 1, ARRIVES) + record(Kind.OPENED, 1, OPENS)


class Wild:
    """A broker with the link of a front, at whose other end the test is."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self.house = House(configured(folder))
        self.broker = self.house.broker
        self.broker.turns.clock = clock
        self.ended: list[LinkError | None] = []
        acceptors = [Acceptor(self.broker, listener) for listener in self.house.listeners]
        self.link = FrontLink(self.broker, "front 1", acceptors, self.ended.append)
        self.records = Records(0)
        self.heard: list[tuple[int, int, bytes]] = []

    async def open(self) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self.link, ours)
        self.reader, self.writer = await asyncio.open_connection(sock=theirs)

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hear(self, kind: Kind) -> bytes:
        """What the next record of this kind says."""
        async with asyncio.timeout(WITHIN):
            while True:
                for at, found in enumerate(self.heard):
                    if found[0] == kind:
                        del self.heard[at]
                        return found[2]
                data = await self.reader.read(1 << 16)
                assert data, "the link is gone"
                self.heard += self.records.read(data)

    async def until_ended(self) -> LinkError | None:
        async with asyncio.timeout(WITHIN):
            with suppress(ConnectionResetError):
                while await self.reader.read(1 << 16):
                    pass
            while not self.ended:
                await asyncio.sleep(0)
        return self.ended[0]


def standing() -> float:
    """The time of turns that are never over: clients are obeyed in the order in which they spoke, however slow the machine is."""
    return 0.0


def played(
    folder: Path, work: Callable[[Wild], asyncio.Future[None]], clock: Callable[[], float] = standing
) -> Wild:
    async def play() -> Wild:
        wild = Wild(folder, clock)
        await wild.open()
        try:
            await work(wild)
            assert not wild.broker.has_failed
        finally:
            wild.writer.close()
            with suppress(OSError):
                await wild.writer.wait_closed()
            await wild.house.close()
        return wild

    return uvloop.run(play())
