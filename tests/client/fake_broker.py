"""A scripted broker for the client's tests: small, obedient, and rude when told to be.

By itself it accepts CONNECT, confirms every frame that asks for a receipt, and remembers what came. A test changes what it does
for one command with `broker.on["SEND"] = lambda session, frame: …` (which then does everything, receipts included), and plays
MESSAGE, ERROR or the loss of a connection through the sessions.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, cast

from stompbox.client.loopthread import LoopThread
from stompbox.stomp.codec import Decoder, encode
from stompbox.stomp.frames import CLIENT_COMMANDS, Frame
from stompbox.stomp.versions import V10, VERSIONS

T = TypeVar("T")
DEADLINE = 20.0  # seconds: for machines that are busy; nothing here takes long
Handler = Callable[["FakeSession", Frame], None]


class FakeSession(asyncio.Protocol):
    """The broker's side of one connection."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.decoder = Decoder(CLIENT_COMMANDS)
        self.decoder.logged_in = True
        self.version = V10
        self.frames: list[Frame] = []
        self.octets = bytearray()
        self.writes = 0
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.broker.sessions.append(self)
        self.broker.changed()

    def data_received(self, data: bytes) -> None:
        self.octets += data
        self.writes += 1
        for frame in self.decoder.receive(data):
            assert isinstance(frame, Frame)
            self.frames.append(frame)
            self.broker.frames.append(frame)
            self.broker.on.get(frame.command, FakeSession.obey)(self, frame)
        self.broker.changed()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self.broker.changed()

    def obey(self, frame: Frame) -> None:
        if frame.command == "CONNECT":
            self.accept(frame)
        elif "receipt" in frame.headers:
            self.receipt(frame)

    def accept(self, frame: Frame) -> None:
        offered = frame.headers.get("accept-version", "1.0").split(",")
        self.version = self.decoder.version = VERSIONS[
            self.broker.version if self.broker.version in offered else offered[-1]
        ]
        headers = {
            "version": self.version.name,
            "heart-beat": self.broker.heart_beat,
            "server": self.broker.server,
        }
        self.write(Frame("CONNECTED", headers))

    def receipt(self, frame: Frame) -> None:
        self.write(Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]}))

    def message(
        self, body: bytes = b"", number: int = 0, subscription: str | None = None, **more: str
    ) -> None:
        """A MESSAGE for the last subscription of this session."""
        subscribed = [frame for frame in self.frames if frame.command == "SUBSCRIBE"][-1]
        headers = {
            "subscription": subscription or subscribed.headers["id"],
            "message-id": f"m{number}",
            "destination": subscribed.headers["destination"],
        }
        if self.version.sends_ack_id and subscribed.headers.get("ack", "auto") != "auto":
            headers["ack"] = f"a{number}"
        headers |= {name.replace("_", "-"): value for name, value in more.items()} | {
            "content-length": str(len(body))
        }
        self.write(Frame("MESSAGE", headers, body))

    def error(self, text: str, frame: Frame | None = None, *, close: bool = False, **more: str) -> None:
        headers = {"message": text, **more}
        if frame is not None and "receipt" in frame.headers:
            headers["receipt-id"] = frame.headers["receipt"]
        self.write(Frame("ERROR", headers))
        if close:
            self.transport.close()

    def write(self, frame: Frame) -> None:
        self.transport.write(encode(frame, self.version))

    def drop(self) -> None:
        """The connection is gone, as if somebody pulled the plug."""
        self.transport.abort()

    def seen(self, command: str) -> list[Frame]:
        return [frame for frame in self.frames if frame.command == command]


class FakeBroker:
    """Use `frames` and `sessions` from any thread; `until` in the loop's, `wait` in others."""

    def __init__(self, version: str = "1.2", *, server: str = "fake/1", heart_beat: str = "0,0") -> None:
        self.version = version
        self.server = server
        self.heart_beat = heart_beat
        self.on: dict[str, Handler] = {}
        self.sessions: list[FakeSession] = []
        self.frames: list[Frame] = []
        self.port = 0
        self._event = asyncio.Event()
        self._condition = threading.Condition()

    @property
    def url(self) -> str:
        return f"stomp://127.0.0.1:{self.port}"

    @property
    def last(self) -> FakeSession:
        return self.sessions[-1]

    def seen(self, command: str) -> list[Frame]:
        return [frame for frame in self.frames if frame.command == command]

    def changed(self) -> None:
        self._event.set()
        with self._condition:
            self._condition.notify_all()

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not is_so():
                self._event.clear()
                await self._event.wait()

    def wait(self, is_so: Callable[[], object]) -> None:
        with self._condition:
            assert self._condition.wait_for(is_so, DEADLINE)

    async def start(self, context: ssl.SSLContext | None = None) -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(
            lambda: FakeSession(self), "127.0.0.1", self.port, ssl=context
        )
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def stop(self, server: asyncio.Server) -> None:
        server.close()
        for session in self.sessions:
            session.drop()
        await self.until(lambda: all(session.is_lost for session in self.sessions))
        await server.wait_closed()


@asynccontextmanager
async def serving(
    version: str = "1.2",
    *,
    server: str = "fake/1",
    heart_beat: str = "0,0",
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[FakeBroker]:
    broker = FakeBroker(version, server=server, heart_beat=heart_beat)
    listener = await broker.start(context)
    try:
        yield broker
    finally:
        await broker.stop(listener)


@contextmanager
def serving_in_thread(version: str = "1.2") -> Iterator[FakeBroker]:
    thread = LoopThread("fake-broker")
    broker = FakeBroker(version)
    listener = thread.call(broker.start())
    try:
        yield broker
    finally:
        thread.call(broker.stop(listener))
        thread.stop()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a test's coroutine, with a deadline and with asyncio's own checks."""

    async def limited() -> T:
        return await asyncio.wait_for(work, DEADLINE)

    return asyncio.run(limited())
