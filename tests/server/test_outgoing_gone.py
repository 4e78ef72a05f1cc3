"""Large bodies on their way out that are gone when their turn comes, as retention may have it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from stompbox.config import Configuration
from stompbox.config.settings import AddressSetting
from stompbox.config.tables import ListenerTable
from stompbox.errors import StoreError
from stompbox.server.broker import Broker
from stompbox.server.run import start, stop
from stompbox.stomp.codec import Decoder, encode
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import VERSIONS

WITHIN = 20.0  # seconds
LARGE = bytes(range(256)) * 2000


class Client:
    """A connection in the broker's own loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.decoder = Decoder(SERVER_COMMANDS)
        self.frames: list[Frame] = []

    def send(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        self.writer.write(encode(Frame(command, headers, body), VERSIONS["1.2"]))

    async def receive(self) -> Frame:
        while not self.frames:
            data = await asyncio.wait_for(self.reader.read(1 << 16), WITHIN)
            assert data, "the broker closed the connection"
            self.frames += [frame for frame in self.decoder.receive(data) if isinstance(frame, Frame)]
        return self.frames.pop(0)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Broker, Client]]:
    """A broker in memory that keeps what was consumed, and a connection to it."""
    configuration = Configuration(
        memory=True,
        listeners=(ListenerTable(url="tcp://127.0.0.1:0?connectionTtl=-1"),),
        address_settings=(AddressSetting(match="s", retention_messages=100),),
    )
    broker, servers, urls = await start(configuration)
    client = Client(*await asyncio.open_connection("127.0.0.1", urlsplit(urls[0]).port))
    client.send("CONNECT", {"accept-version": "1.2", "host": "localhost"})
    assert (await client.receive()).command == "CONNECTED"
    client.decoder.version = VERSIONS["1.2"]
    try:
        yield broker, client
    finally:
        client.writer.close()
        await stop(broker, servers)


async def stored(broker: Broker, client: Client, *bodies: bytes) -> None:
    for number, body in enumerate(bodies):
        client.send("SEND", {"destination": "/topic/s", "receipt": str(number)}, body)
        assert (await client.receive()).headers["receipt-id"] == str(number)
    while broker.engine.is_dirty:
        waiter: asyncio.Future[None] = broker.loop.create_future()
        broker.when_durable(waiter)
        broker.flush()
        await asyncio.wait_for(waiter, WITHIN)


class Vanishing:
    """The broker's reads of pieces: of some messages (the first large one is 0) a piece is not there any more."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch, gone: dict[int, int]) -> None:
        self.broker, self.gone = broker, gone
        self.read = broker.committer.read_part
        self.bodies: list[int] = []  # that were asked for, in order
        self.were_untold = 0
        monkeypatch.setattr(broker.committer, "read_part", self.read_part)

    def read_part(self, body: int, number: int) -> asyncio.Future[bytes]:
        if body not in self.bodies:
            self.bodies.append(body)
            handle = self.broker.engine.bodies._alive[body]()
            assert handle is not None
            self.were_untold += self.broker.engine.bodies.is_untold(handle)
        if self.gone.get(self.bodies.index(body)) != number:
            return self.read(body, number)
        future: asyncio.Future[bytes] = self.broker.loop.create_future()
        future.set_exception(
            StoreError("no-such-body", f"piece {number} of body {body} is not there (any more)")
        )
        return future


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_stream_goes_on_with_the_next_message(monkeypatch: pytest.MonkeyPatch, ack: str) -> None:
    async def play() -> None:
        async with running() as (broker, client):
            await stored(broker, client, b"1", LARGE, b"3", LARGE + b"4", LARGE, b"6")
            vanishing = Vanishing(broker, monkeypatch, {0: 0, 2: 0})
            client.send(
                "SUBSCRIBE",
                {
                    "destination": "/stream/s",
                    "id": "r",
                    "ack": ack,
                    "x-stream-offset": "first",
                    "prefetch-count": "2",
                },
            )
            found = []
            while len(found) < 4:
                frame = await client.receive()
                found.append(frame.body)
                if ack != "auto":
                    client.send("ACK", {"id": frame.headers["ack"]})
            assert found == [b"1", b"3", LARGE + b"4", b"6"]
            assert broker.engine.counters["retention"] == 2
            assert vanishing.were_untold == 0, (
                "a body may go half-way as long as the store does not know that it is being read"
            )
            client.send("SEND", {"destination": "/topic/s", "receipt": "alive"}, b"7")
            assert {(await client.receive()).command for _ in range(2)} == {"RECEIPT", "MESSAGE"}
            (consumer,) = [connection.consumers["r"] for connection in broker.connections]
            assert consumer.messages_out <= 1

    asyncio.run(play())


def test_a_frame_that_was_begun_cannot_be_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with running() as (broker, client):
            await stored(broker, client, b"1", LARGE, b"3")
            Vanishing(broker, monkeypatch, {0: 1})
            client.send("SUBSCRIBE", {"destination": "/stream/s", "id": "r", "x-stream-offset": "first"})
            assert (await client.receive()).body == b"1"
            with pytest.raises((AssertionError, ConnectionResetError)):
                await client.receive()
            assert broker.errors["no-such-body"] == 1

    asyncio.run(play())


def test_a_queue_does_not_go_on_without_a_message_that_it_must_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lets it go but its acknowledgement: that is damage, and not passed over."""

    async def play() -> None:
        async with running() as (broker, client):
            client.send("SEND", {"destination": "/queue/q", "receipt": "q"}, LARGE)
            assert (await client.receive()).command == "RECEIPT"
            while broker.engine.is_dirty:
                await asyncio.sleep(0)
            monkeypatch.setattr(broker.engine.bodies, "piece", lambda *_: None)
            Vanishing(broker, monkeypatch, {0: 0})
            client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "r"})
            with pytest.raises((AssertionError, ConnectionResetError)):
                await client.receive()
            assert broker.errors["no-such-body"] == 1
            assert broker.engine.counters["retention"] == 0

    asyncio.run(play())
