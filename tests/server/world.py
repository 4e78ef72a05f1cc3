"""A broker of this process behind real sockets, and clients of it, all in one loop: for tests that look into it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvloop

from stompbox.config import Configuration, read
from stompbox.server.broker import Broker
from stompbox.server.session.connection import Connection
from stompbox.server.transport.tcp import listen
from stompbox.store.memory import MemoryStore
from tests.certificates import of_localhost
from tests.system.transports import message, upgrade

WITHIN = 20.0  # seconds for anything
KINDS = ("tcp", "tls", "websocket")


def configured(folder: Path, options: str = "", top: str = "") -> Configuration:
    pem = folder / "server.pem"
    pem.write_text(of_localhost())
    urls = [f"tcp://127.0.0.1:0?{options}", f"ssl://127.0.0.1:0?keyStorePath={pem};{options}"]
    path = folder / "stompbox.toml"
    (folder / "data").mkdir()
    path.write_text(
        f'data = "{folder / "data"}"\n' + top + "".join([f'\n[[listener]]\nurl = "{url}"\n' for url in urls])
    )
    return read(path).configuration


class House:
    """One broker and its two ports."""

    def __init__(
        self, configuration: Configuration, *, is_durable: bool = True, store: MemoryStore | None = None
    ) -> None:
        self.broker = Broker(
            configuration, store or MemoryStore(), asyncio.get_running_loop(), is_durable=is_durable
        )
        self.listeners = [table.parse() for table in configuration.listeners]
        self.servers: list[asyncio.Server] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._is_stuck = False

    async def open(self) -> None:
        self.servers = [await listen(self.broker, listener) for listener in self.listeners]

    def stick(self) -> None:
        """Nothing is confirmed until the end: the disk takes its time."""
        self._is_stuck = self.broker.committer.is_busy = True

    async def close(self) -> None:
        if self._is_stuck:
            self.broker.committer.is_busy = False
        for server in self.servers:
            server.close()
        await self.broker.stop()
        for writer in self.writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
        for peer in list(self.broker.sockets):  # who has not read all that he was told
            peer.abort()
        await self.until(lambda: not self.broker.sockets, "the broker's sockets are closed")

    async def until(self, is_so: Callable[[], object], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + WITHIN
        while not is_so():
            assert asyncio.get_running_loop().time() < deadline, f"never: {what}"
            await asyncio.sleep(0)

    async def client(self, kind: str = "tcp", version: str | None = "1.2", more: str = "") -> Guest:
        context = None
        if kind == "tls":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        port = self.servers[kind == "tls"].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 16)
        self.writers.append(writer)
        guest = Guest(reader, writer, kind)
        if kind == "websocket":
            writer.write(upgrade())
            await guest.hear(b"\r\n\r\n")
        if version is not None:
            guest.say(f"CONNECT\naccept-version:{version}\nhost:localhost\n{more}\n\0")
            await guest.hear(b"\0\n")
        return guest

    def connection(self) -> Connection:
        """The one that there is."""
        (found,) = self.broker.connections
        return found


class Guest:
    """A client that writes octets and reads them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str) -> None:
        self.reader, self.writer, self.kind = reader, writer, kind
        self.heard = b""

    def say(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self.writer.write(message(data) if self.kind == "websocket" else data)

    async def hear(self, until: bytes) -> bytes:
        """All that came up to these octets; fails when they do not come."""
        async with asyncio.timeout(WITHIN):
            while until not in self.heard:
                more = await self.reader.read(1 << 16)
                assert more, f"closed, and no {until!r} in {self.heard[-400:]!r}"
                self.heard += more
        before, _, self.heard = self.heard.partition(until)
        return before + until

    async def end(self) -> bytes:
        """What comes until the broker closes."""
        async with asyncio.timeout(WITHIN):
            while more := await self.reader.read(1 << 16):
                self.heard += more
        return self.heard

    def leave(self) -> None:
        """Without a word."""
        self.writer.transport.abort()


def play(
    configuration: Configuration,
    story: Callable[[House], Awaitable[None]],
    *,
    is_durable: bool = True,
    fast: bool = False,
    store: MemoryStore | None = None,
) -> None:
    """`fast`: in the loop that the broker has in earnest. `store`: what a broker before it has left."""

    async def run() -> None:
        house = House(configuration, is_durable=is_durable, store=store)
        await house.open()
        try:
            await story(house)
        finally:
            await house.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
        runner.run(run())


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector: what is gone in here went because nothing refers to it. What was there before is not looked through again
    by who counts objects: beside thousands of tests it is a second's work."""
    import gc

    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
