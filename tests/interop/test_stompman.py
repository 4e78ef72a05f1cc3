"""stompman, the asyncio client, plays with the broker: version 1.2 over TCP and over WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest
import stompman
from stompman.connection import AbstractConnection, Connection
from stompman.connection_ws import WebSocketConnection

WITHIN = 10  # seconds for anything that is on its way
TRANSPORTS: dict[str, type[AbstractConnection]] = {"tcp": Connection, "websocket": WebSocketConnection}


@pytest.fixture(params=sorted(TRANSPORTS))
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(transport: str, request: pytest.FixtureRequest) -> str:
    return f"/queue/interop.stompman.{request.function.__name__}.{transport}"


def client(broker: tuple[str, int], transport: str, errors: list[stompman.ErrorFrame]) -> stompman.Client:
    """Leaving its context disconnects and waits for the RECEIPT."""
    path = "stomp" if transport == "websocket" else None
    server = stompman.ConnectionParameters(*broker, login="guest", passcode="guest", ws_uri_path=path)
    return stompman.Client([server], connection_class=TRANSPORTS[transport], on_error_frame=errors.append)


def play(scene: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, timeout=3 * WITHIN))


class Inbox:
    """Message handler of a subscription: what came, to be waited for."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[stompman.AckableMessageFrame] = asyncio.Queue()

    async def __call__(self, frame: stompman.AckableMessageFrame) -> None:
        self.frames.put_nowait(frame)

    async def take(self, count: int) -> list[stompman.AckableMessageFrame]:
        return [await asyncio.wait_for(self.frames.get(), WITHIN) for _ in range(count)]


def test_what_was_sent_with_a_receipt_arrives_as_it_was(
    broker: tuple[str, int], transport: str, queue: str
) -> None:
    async def scene() -> None:
        errors: list[stompman.ErrorFrame] = []
        inbox = Inbox()
        async with client(broker, transport, errors) as stomp:
            headers = {"colour": "a:b\nc\\d"}
            await stomp.send(
                "grün\n1:2".encode(),
                queue,
                content_type="text/plain",
                headers=headers,
                receipt_timeout=WITHIN,
            )
            subscription = await stomp.subscribe_with_manual_ack(
                queue, inbox, ack="auto", receipt_timeout=WITHIN
            )
            [frame] = await inbox.take(1)
            await subscription.unsubscribe()
        assert frame.body == "grün\n1:2".encode()
        assert frame.headers["destination"] == queue
        assert frame.headers["content-type"] == "text/plain"
        assert frame.headers["colour"] == "a:b\nc\\d"  # type: ignore[typeddict-item]
        assert errors == []

    play(scene())


def test_only_what_was_not_acknowledged_comes_again(
    broker: tuple[str, int], transport: str, queue: str
) -> None:
    async def scene() -> None:
        errors: list[stompman.ErrorFrame] = []
        first, second = Inbox(), Inbox()
        async with client(broker, transport, errors) as stomp:
            for body in (b"one", b"two", b"three"):
                await stomp.send(body, queue, receipt_timeout=WITHIN)
            subscription = await stomp.subscribe_with_manual_ack(
                queue, first, ack="client-individual", receipt_timeout=WITHIN
            )
            frames = await first.take(3)
            assert [frame.body for frame in frames] == [b"one", b"two", b"three"]
            await frames[1].ack()
            await subscription.unsubscribe()
        async with client(broker, transport, errors) as stomp:
            subscription = await stomp.subscribe_with_manual_ack(
                queue, second, ack="auto", receipt_timeout=WITHIN
            )
            again = await second.take(2)
            await subscription.unsubscribe()
        assert [(frame.body, dict(frame.headers).get("redelivered")) for frame in again] == [
            (b"one", "true"),
            (b"three", "true"),
        ]
        assert errors == []

    play(scene())


def test_a_transaction_counts_when_committed_and_not_when_aborted(
    broker: tuple[str, int], transport: str, queue: str
) -> None:
    class ChangedMyMindError(Exception):
        pass

    async def scene() -> None:
        errors: list[stompman.ErrorFrame] = []
        inbox = Inbox()
        async with client(broker, transport, errors) as stomp:
            subscription = await stomp.subscribe_with_manual_ack(
                queue, inbox, ack="auto", receipt_timeout=WITHIN
            )
            with pytest.raises(ChangedMyMindError):
                async with stomp.begin() as dropped:
                    await dropped.send(b"never", queue)
                    raise ChangedMyMindError
            async with stomp.begin() as kept:
                await kept.send(b"first", queue)
                await kept.send(b"second", queue)
                await stomp.send(b"outside", queue, receipt_timeout=WITHIN)
                assert [frame.body for frame in await inbox.take(1)] == [b"outside"]
            assert [frame.body for frame in await inbox.take(2)] == [b"first", b"second"]
            await subscription.unsubscribe()
        assert errors == []

    play(scene())
