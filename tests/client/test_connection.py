"""One connection on asyncio: TLS, time limits, heart-beats, writes, and what is left behind when it does not come about."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import stompbox
from stompbox.client.connection import WRITE_SIZE
from stompbox.client.options import TLS, Reconnect
from stompbox.errors import ConnectionLost, UsageError
from tests.client.fake_broker import DEADLINE, run, serving


def server_context(tls_files: tuple[str, str], *, wants_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*tls_files)
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(tls_files[0])
    return context


def test_tls_with_an_own_ca(tls_files: tuple[str, str]) -> None:
    async def story() -> None:
        async with serving(context=server_context(tls_files)) as broker:
            url = f"stomp+ssl://127.0.0.1:{broker.port}"
            async with stompbox.connect(url, tls=TLS(ca=tls_files[0])) as client:
                await client.send("/queue/a", b"x" * 200_000)
            async with stompbox.connect(f"{url}?ca={tls_files[0]}") as client:
                await client.send("/queue/a")
            context = ssl.create_default_context(cafile=tls_files[0])
            async with stompbox.connect(url, tls=context) as client:
                await client.send("/queue/a")
            assert [len(frame.body) for frame in broker.seen("SEND")] == [200_000, 0, 0]

    run(story())


def test_tls_with_a_certificate_of_the_client(tls_files: tuple[str, str]) -> None:
    async def story() -> None:
        async with serving(context=server_context(tls_files, wants_certificate=True)) as broker:
            url = f"stomp+ssl://127.0.0.1:{broker.port}"
            async with stompbox.connect(
                url, tls=TLS(ca=tls_files[0], cert=tls_files[0], key=tls_files[1])
            ) as client:
                await client.send("/queue/a")

    run(story())


def test_tls_that_cannot_be_trusted(tls_files: tuple[str, str]) -> None:
    async def story() -> None:
        async with serving(context=server_context(tls_files)) as broker:
            url = f"stomp+ssl://127.0.0.1:{broker.port}"
            with pytest.raises(ConnectionLost, match="certificate verify failed") as caught:
                await stompbox.connect(url).open()
            assert caught.value.code == "tls-failed"
            with pytest.raises(ConnectionLost, match=r"not valid for|doesn't match|mismatch"):
                await stompbox.connect(url, tls=TLS(ca=tls_files[0], server_name="elsewhere")).open()
            with pytest.raises(UsageError, match=r"ca='/nowhere'"):
                await stompbox.connect(url, tls=TLS(ca="/nowhere")).open()

    run(story())


@asynccontextmanager
async def silent_server(answer: bytes = b"") -> AsyncIterator[int]:
    """Accepts, says one thing, and then nothing, until the other side leaves."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await reader.read()
        writer.close()
        left.set()

    left = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
        await asyncio.wait_for(left.wait(), DEADLINE)
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("scheme", ["stomp", "stomp+ssl", "ws"])
def test_no_answer_in_time_leaves_nothing_behind(scheme: str) -> None:
    async def story() -> None:
        async with silent_server() as port:
            with pytest.raises(
                ConnectionLost, match=rf"{port}/?: no answer within the connect_timeout of 0\.05 s"
            ) as caught:
                await stompbox.connect(f"{scheme}://127.0.0.1:{port}", connect_timeout=0.05).open()
            assert caught.value.code == "connect-timeout"

    run(story())


def test_giving_up_while_connecting_leaves_nothing_behind() -> None:
    async def story() -> None:
        async with silent_server() as port:
            opening = asyncio.create_task(stompbox.connect(f"stomp://127.0.0.1:{port}").open())
            await asyncio.wait([opening], timeout=0.05)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening

    run(story())


OTHERS = {
    b"HTTP/1.1 400 Bad Request\r\n\r\n": "a server of HTTP",
    b"SSH-2.0-OpenSSH_9\r\n\n": "unknown command",
}


@pytest.mark.parametrize("answer", OTHERS)
def test_a_port_that_speaks_something_else(answer: bytes) -> None:
    async def story() -> None:
        async with silent_server(answer) as port:
            with pytest.raises(stompbox.StompboxError, match=OTHERS[answer]):
                await stompbox.connect(f"stomp://127.0.0.1:{port}").open()

    run(story())


def test_a_host_that_is_none() -> None:
    async def story() -> None:
        with pytest.raises(ConnectionLost) as caught:
            await stompbox.connect("stomp://" + "x" * 70 + ".invalid").open()
        assert caught.value.code == "connect-failed"

    run(story())


def test_heart_beats_go_out_while_the_application_does_nothing() -> None:
    async def story() -> None:
        async with serving(heart_beat="0,20") as broker, stompbox.connect(broker.url, heart_beat=(20, 0)):
            session = broker.last
            await broker.until(lambda: session.octets.endswith(b"\0\n\n\n\n"))
            assert [frame.command for frame in session.frames] == ["CONNECT"]

    run(story())


def test_a_broker_that_falls_silent_is_left() -> None:
    async def story() -> None:
        async with serving(heart_beat="20,0") as broker:
            reconnect = Reconnect(first_delay=0, max_delay=0.01)
            async with stompbox.connect(broker.url, heart_beat=(0, 20), reconnect=reconnect) as client:
                await broker.until(lambda: len(broker.sessions) == 2)
                await client.send("/queue/a")

    run(story())


def test_silence_without_a_policy_is_an_error() -> None:
    async def story() -> None:
        async with (
            serving(heart_beat="20,0") as broker,
            stompbox.connect(broker.url, heart_beat=(0, 20), reconnect=None) as client,
        ):
            messages = client.subscribe("/queue/a")
            await messages.open()
            with pytest.raises(ConnectionLost, match=r"nothing came from the broker for 0\.04 s") as caught:
                await anext(messages)
            assert caught.value.code == "heart-beat-lost"

    run(story())


def test_frames_are_collected_until_the_loops_turn_or_until_they_are_many() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            connection = client._link.connection
            assert connection is not None
            assert not connection.post(b"\n")
            assert connection.protocol.output == [b"\n"]
            assert connection.post(b"\n" * WRITE_SIZE)
            assert connection.protocol.output == []
            await broker.until(lambda: len(broker.last.octets) > WRITE_SIZE)

    run(story())


def test_nothing_is_written_after_the_end() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            connection = client._link.connection
            assert connection is not None
            connection.abort(ConnectionLost("closed", "enough"))
            connection.post(b"x" * WRITE_SIZE)
            await connection.closed
            assert not connection.is_open
            await connection.drain()
            await client.send("/queue/a", b"over the next one")
            assert b"xxx" not in broker.sessions[0].octets
            assert "OPEN" in repr(client._link.connection)

    run(story())
