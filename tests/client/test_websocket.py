"""STOMP over WebSocket, against the server of the library websockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from websockets.asyncio.server import Request, Response, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

import stompbox
from stompbox.client.url import parse_url
from stompbox.client.websocket import WebSocketWire
from stompbox.errors import ConnectionLost
from stompbox.stomp.codec import Decoder, FrameLimits, encode
from stompbox.stomp.frames import CLIENT_COMMANDS, Frame
from stompbox.stomp.versions import V12
from tests.client.fake_broker import run


class Seen:
    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.messages: list[str | bytes] = []
        self.path = ""
        self.subprotocol: str | None = None


async def obey(socket: ServerConnection, frame: Frame) -> None:
    if frame.command == "CONNECT":
        await socket.send("CONNECTED\nversion:1.2\n\n\0")
    elif "receipt" in frame.headers:
        await socket.send(encode(Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]}), V12).decode())
    if frame.command == "SUBSCRIBE":
        octets = encode(
            Frame(
                "MESSAGE",
                {"subscription": frame.headers["id"], "message-id": "1", "destination": "/q"},
                b"\xff body",
            ),
            V12,
        )
        await socket.send([octets[:20], octets[20:25], octets[25:]])  # one message in fragments
    if frame.command == "SEND" and frame.body == b"hang up":
        await socket.close(1011, "tired")


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[str, Seen]]:
    seen = Seen()

    async def play(socket: ServerConnection) -> None:
        assert socket.request is not None
        seen.path, seen.subprotocol = socket.request.path, socket.subprotocol
        decoder = Decoder(CLIENT_COMMANDS)
        decoder.logged_in = True
        try:
            async for message in socket:
                seen.messages.append(message)
                for frame in decoder.receive(message.encode() if isinstance(message, str) else message):
                    assert isinstance(frame, Frame)
                    decoder.version = V12
                    seen.frames.append(frame)
                    await obey(socket, frame)
        except ConnectionClosed:
            assert socket.close_code is not None

    def refuse(socket: ServerConnection, request: Request) -> Response | None:
        return (
            socket.respond(HTTPStatus.FORBIDDEN, "not from here\n") if request.path == "/forbidden" else None
        )

    async with serve(play, "127.0.0.1", 0, subprotocols=["v12.stomp"], process_request=refuse) as server:  # type: ignore[list-item]
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


def test_there_and_back() -> None:
    async def story() -> None:
        async with serving() as (url, seen):
            async with stompbox.connect(url + "/stomp?token=1") as client:
                await client.send("/queue/a", "grün")
                await client.send("/queue/a", b"\xff\0", headers={"n": 1})
                async with client.subscribe("/queue/a") as messages:
                    assert (await anext(messages)).body == b"\xff body"
            assert (seen.path, seen.subprotocol) == ("/stomp?token=1", "v12.stomp")
            assert [frame.command for frame in seen.frames] == [
                "CONNECT",
                "SEND",
                "SEND",
                "SUBSCRIBE",
                "UNSUBSCRIBE",
                "DISCONNECT",
            ]
            assert [frame.body for frame in seen.frames if frame.command == "SEND"] == [
                "grün".encode(),
                b"\xff\0",
            ]
            assert [type(message) for message in seen.messages] == [str, str, bytes, str, str, str]

    run(story())


def test_many_messages_each_in_its_own() -> None:
    async def story() -> None:
        async with serving() as (url, seen), stompbox.connect(url) as client:
            async with client.publisher(window=100) as publisher:
                for number in range(1000):
                    await publisher.send("/queue/a", b"x" * number)
            assert publisher.confirmed_count == 1000
            assert len(seen.messages) == 1001

    run(story())


def test_refused_handshake() -> None:
    async def story() -> None:
        async with serving() as (url, _):
            with pytest.raises(ConnectionLost, match="HTTP 403 Forbidden: not from here") as caught:
                await stompbox.connect(url + "/forbidden").open()
            assert caught.value.code == "websocket-refused"

    run(story())


def test_a_port_without_websocket() -> None:
    async def story() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"ERROR\nmessage:what?\n\n\0" + b"\n" * 10)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            with pytest.raises(ConnectionLost, match="no WebSocket handshake") as caught:
                await stompbox.connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}").open()
            assert caught.value.code == "websocket-refused"

    run(story())


def test_closed_by_the_server_with_a_reason() -> None:
    async def story() -> None:
        async with serving() as (url, _), stompbox.connect(url, reconnect=None) as client:
            messages = client.subscribe("/queue/a")
            await messages.open()
            await anext(messages)
            await client.send("/queue/a", b"hang up", confirm=False)
            with pytest.raises(ConnectionLost, match="WebSocket close 1011 tired"):
                await anext(messages)

    run(story())


def test_a_server_that_breaks_the_rules() -> None:
    wire = WebSocketWire(parse_url("ws://h/"), ("1.2",), FrameLimits())
    request = wire.start()
    assert b"GET / HTTP/1.1\r\n" in request
    assert b"Sec-WebSocket-Protocol: v12.stomp\r\n" in request
    assert not wire.is_open
    with pytest.raises(ConnectionLost, match="no WebSocket handshake"):
        wire.receive(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: wrong\r\n\r\n"
        )
    assert not wire.is_open
    assert wire.last_words() == ""
