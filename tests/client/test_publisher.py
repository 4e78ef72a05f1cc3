"""Confirmed sends through a window."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import stompbox
from stompbox.client.options import Reconnect
from stompbox.client.publisher import WINDOW_SIZE, Window
from stompbox.errors import ConnectionLost, UsageError
from stompbox.stomp.frames import Frame
from tests.client.fake_broker import FakeBroker, FakeSession, run, serving

AT_ONCE = Reconnect(first_delay=0, max_delay=0.01)


def holding(broker: FakeBroker) -> list[tuple[FakeSession, Frame]]:
    held: list[tuple[FakeSession, Frame]] = []
    broker.on["SEND"] = lambda session, frame: held.append((session, frame))
    return held


def test_all_are_confirmed_at_the_end() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            async with client.publisher(window=50) as publisher:
                for number in range(5000):
                    await publisher.send("/queue/a", b"%d" % number, {"n": number})
                assert publisher.confirmed_count > 4000
                assert publisher.outstanding <= 50
            assert (publisher.confirmed_count, publisher.outstanding) == (5000, 0)
            frames = broker.seen("SEND")
            assert [int(frame.body) for frame in frames] == list(range(5000))
            assert len({frame.headers["receipt"] for frame in frames}) == 5000
            assert broker.last.writes < 1000

    run(story())


def test_the_window_holds_the_sender() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            held = holding(broker)
            async with client.publisher(window=3) as publisher:

                async def send_all() -> None:
                    for _ in range(4):
                        await publisher.send("/queue/a")

                sending = asyncio.create_task(send_all())
                await broker.until(lambda: len(held) == 3)
                assert not sending.done()
                assert publisher.outstanding == 3
                for session, frame in held[:2]:
                    session.receipt(frame)
                await sending
                await broker.until(lambda: len(held) == 4)
                for session, frame in held[2:]:
                    session.receipt(frame)
            assert publisher.confirmed_count == 4

    run(story())


def test_several_tasks_share_a_publisher() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            async with client.publisher(window=7) as publisher:

                async def send(name: str) -> None:
                    for number in range(300):
                        await publisher.send("/queue/a", b"", {"by": name, "n": number})

                await asyncio.gather(*(send(name) for name in "abc"))
            for name in "abc":
                assert [
                    frame.headers["n"] for frame in broker.seen("SEND") if frame.headers["by"] == name
                ] == [str(n) for n in range(300)]

    run(story())


def test_a_refused_message_is_raised_once_and_named() -> None:
    async def story() -> None:
        async with serving("1.1") as broker, stompbox.connect(broker.url) as client:
            broker.on["SEND"] = lambda session, frame: (
                session.error("too long", frame) if frame.body == b"bad" else session.receipt(frame)
            )
            publisher = client.publisher(window=2)
            with pytest.raises(stompbox.BrokerError, match="too long"):
                async with publisher:
                    await publisher.send("/queue/a", b"good")
                    await publisher.send("/queue/a", b"bad", {"n": 1})
                    await publisher.flush()
            ((frame, error),) = publisher.failures
            assert (frame.headers["n"], frame.body, error.message) == ("1", b"bad", "too long")
            async with publisher:
                await publisher.send("/queue/a", b"good")
            assert publisher.confirmed_count == 2

    run(story())


def test_raised_by_the_next_send() -> None:
    async def story() -> None:
        async with serving("1.1") as broker, stompbox.connect(broker.url) as client:
            broker.on["SEND"] = lambda session, frame: session.error("no", frame)
            with pytest.raises(stompbox.BrokerError):
                async with client.publisher(window=1) as publisher:
                    for _ in range(3):
                        await publisher.send("/queue/a")
            assert len(broker.seen("SEND")) == 1

    run(story())


def test_sent_again_after_a_lost_connection() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
            confirmed: list[str] = []

            def drop_sometimes(session: FakeSession, frame: Frame) -> None:
                if frame.headers["n"] in ("100", "500") and len(session.seen("SEND")) > 1:
                    session.drop()
                elif not session.transport.is_closing():
                    confirmed.append(frame.headers["n"])
                    session.receipt(frame)

            broker.on["SEND"] = drop_sometimes
            async with client.publisher(window=20) as publisher:
                for number in range(1000):
                    await publisher.send("/queue/a", b"", {"n": number})
            assert len(broker.sessions) == 3
            assert {int(number) for number in confirmed} == set(range(1000))
            assert publisher.confirmed_count == 1000

    run(story())


def test_reported_after_a_lost_connection_where_the_policy_says_so() -> None:
    async def story() -> None:
        async with (
            serving() as broker,
            stompbox.connect(broker.url, reconnect=Reconnect(first_delay=0, resend=False)) as client,
        ):
            held = holding(broker)
            async with client.publisher(window=10) as publisher:
                for number in range(3):
                    await publisher.send("/queue/a", b"", {"n": number})
                await broker.until(lambda: len(held) == 3)
                held[0][0].receipt(held[0][1])
                broker.last.transport.close()
                with pytest.raises(ConnectionLost):
                    await publisher.flush()
                assert [frame.headers["n"] for frame, _ in publisher.failures] == ["1", "2"]
                broker.on.clear()
                await publisher.send("/queue/a", b"goes on")

    run(story())


def test_no_receipts_in_time() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, receipt_timeout=0.02) as client:
            broker.on["SEND"] = lambda session, frame: None
            publisher = client.publisher(window=2)
            await publisher.send("/queue/a")
            await publisher.send("/queue/a")
            with pytest.raises(ConnectionLost, match=r"no receipt for any of 2 messages within 0\.02 s"):
                await publisher.send("/queue/a")

    run(story())


def test_an_exception_of_the_block_is_not_held_up() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            broker.on["SEND"] = lambda session, frame: None
            with pytest.raises(ZeroDivisionError):
                async with client.publisher() as publisher:
                    await publisher.send("/queue/a")
                    _ = 1 / 0

    run(story())


@pytest.mark.parametrize("window", [0, -1, 1.5, True, "10"])
def test_wrong_window_is_named(window: Any) -> None:
    with pytest.raises(UsageError, match="window is"):
        stompbox.connect("stomp://h").publisher(window=window)


def test_wrong_message_leaves_no_trace() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            async with client.publisher() as publisher:
                with pytest.raises(UsageError, match="header 'x'"):
                    await publisher.send("/queue/a", b"", {"x": None})  # type: ignore[dict-item]
                assert publisher.outstanding == 0
            assert not broker.seen("SEND")

    run(story())


def test_large_messages_are_limited_by_their_size() -> None:
    window = Window(1000)
    window.add(bytes(WINDOW_SIZE - 1))
    assert not window.is_full
    window.add(b"x")
    assert window.is_full
    window.take(b"x")
    assert not window.has_room_again
    window.take(bytes(WINDOW_SIZE - 1))
    assert window.has_room_again
    assert (window.size, window.outstanding, window.confirmed_count) == (0, 0, 2)


def test_backpressure_of_the_socket() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            session = broker.last
            session.transport.pause_reading()
            async with client.publisher(window=100_000) as publisher:

                async def flood() -> None:
                    for _ in range(20):
                        await publisher.send("/queue/a", bytes(1_000_000))

                sending = asyncio.create_task(flood())
                await asyncio.wait([sending], timeout=0.1)
                assert not sending.done()
                connection = client._link.connection
                assert connection is not None
                assert connection.is_blocked
                session.transport.resume_reading()
                await sending
            assert len(broker.seen("SEND")) == 20

    run(story())
