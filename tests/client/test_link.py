"""Connections that are lost: what is sent again, what is reported, where the client goes, when it gives up."""

from __future__ import annotations

import asyncio

import pytest

import stompbox
from stompbox.client.options import Reconnect
from stompbox.client.outgoing import decode_frame
from stompbox.errors import ConnectionLost, PeerError
from stompbox.stomp.frames import Frame
from stompbox.stomp.versions import V12
from tests.client.fake_broker import FakeBroker, FakeSession, run, serving

AT_ONCE = Reconnect(first_delay=0, max_delay=0.01)


async def lose(client: stompbox.Client, broker: FakeBroker) -> None:
    """Returns when the client knows."""
    connection = client._link.connection
    assert connection is not None
    broker.last.drop()
    await connection.closed


def dropping_first(broker: FakeBroker, command: str = "SEND") -> None:
    """The first such frame kills the connection."""

    def drop(session: FakeSession, frame: Frame) -> None:
        if len(broker.seen(command)) == 1:
            session.drop()
        else:
            session.obey(frame)

    broker.on[command] = drop


def test_confirmed_send_is_sent_again_with_its_receipt() -> None:
    async def story() -> None:
        async with serving() as broker:
            dropping_first(broker)
            async with stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
                await client.send("/queue/a", b"once or twice")
                assert client.counters["resent"] == 1
                assert client.counters["connections-lost"] == 1
            first, second = broker.seen("SEND")
            assert first == second

    run(story())


def test_confirmed_send_is_reported_where_the_policy_says_so() -> None:
    async def story() -> None:
        async with serving() as broker:
            dropping_first(broker)
            async with stompbox.connect(
                broker.url, reconnect=Reconnect(first_delay=0, resend=False)
            ) as client:
                with pytest.raises(ConnectionLost, match=r"stomp://127\.0\.0\.1"):
                    await client.send("/queue/a", b"who knows")
                await client.send("/queue/a", b"another")
            assert [frame.body for frame in broker.seen("SEND")] == [b"who knows", b"another"]

    run(story())


def test_without_policy_everything_fails_from_then_on() -> None:
    async def story() -> None:
        async with serving() as broker:
            dropping_first(broker)
            async with stompbox.connect(broker.url, reconnect=None) as client:
                for _ in range(2):
                    with pytest.raises(ConnectionLost) as caught:
                        await client.send("/queue/a")
                    assert caught.value.code == "connection-lost"
                async with asyncio.timeout(1):
                    with pytest.raises(ConnectionLost):
                        await client.subscribe("/queue/a").open()
            assert len(broker.sessions) == 1

    run(story())


def test_sends_wait_for_the_new_connection() -> None:
    async def story() -> None:
        async with serving() as broker:
            client = await stompbox.connect(broker.url, reconnect=AT_ONCE)
            await lose(client, broker)
            await client.send("/queue/a", b"later")
            assert broker.sessions[1].seen("SEND")[0].body == b"later"
            await client.close()

    run(story())


def test_several_urls_are_tried_in_turn() -> None:
    async def story() -> None:
        async with serving() as one, serving() as two:
            nobody = "stomp://127.0.0.1:1"
            client = await stompbox.connect([nobody, one.url, two.url], reconnect=AT_ONCE)
            await client.send("/queue/a")
            one.on["CONNECT"] = lambda session, frame: session.error("closing down", close=True)
            one.last.drop()
            await two.until(lambda: two.sessions and two.last.seen("CONNECT"))
            await client.send("/queue/a")
            assert (len(one.seen("SEND")), len(two.seen("SEND"))) == (1, 1)
            await client.close()

    run(story())


def test_another_broker_speaks_another_version() -> None:
    async def story() -> None:
        async with serving("1.2") as one, serving("1.0") as two:
            dropping_first(one)
            async with stompbox.connect([one.url, two.url], reconnect=AT_ONCE) as client:
                one.on["CONNECT"] = lambda session, frame: session.error("closing down", close=True)
                await client.send("/queue/a", b"\0", headers={"a": "b:c"})
                assert client.version.name == "1.0"
            assert one.seen("SEND") == two.seen("SEND")
            assert b"\na:b:c\n" in two.last.octets

    run(story())


def test_nobody_there_at_first() -> None:
    async def story() -> None:
        with pytest.raises(ConnectionLost, match=r"stomp://127\.0\.0\.1:1") as caught:
            await stompbox.connect(["stomp://127.0.0.1:1", "stomp://127.0.0.1:1"]).open()
        assert caught.value.code == "connect-failed"

    run(story())


def test_trying_again_at_first_is_an_option() -> None:
    async def story() -> None:
        policy = Reconnect(initial=True, attempts=3, first_delay=0, max_delay=0.001)
        with pytest.raises(
            ConnectionLost, match=r"gave up after 3 rounds over stomp://127\.0\.0\.1:1"
        ) as caught:
            await stompbox.connect("stomp://127.0.0.1:1", reconnect=policy).open()
        assert caught.value.code == "reconnect-failed"

    run(story())


def test_gives_up_and_tells_everybody() -> None:
    async def story() -> None:
        broker = FakeBroker()
        listener = await broker.start()
        broker.on["SEND"] = lambda session, frame: None
        client = await stompbox.connect(
            broker.url, reconnect=Reconnect(attempts=2, first_delay=0, max_delay=0.001)
        )
        messages = client.subscribe("/queue/a")
        await messages.open()
        sending = asyncio.create_task(client.send("/queue/a"))
        await broker.until(lambda: broker.seen("SEND"))
        await broker.stop(listener)
        with pytest.raises(ConnectionLost) as caught:
            await sending
        assert caught.value.code == "reconnect-failed"
        with pytest.raises(ConnectionLost, match="gave up"):
            await anext(messages)
        with pytest.raises(ConnectionLost, match="gave up"):
            await client.send("/queue/a")
        await client.close()

    run(story())


def test_a_broker_that_always_hangs_up_is_given_up() -> None:
    async def story() -> None:
        async with serving() as broker:
            client = await stompbox.connect(
                broker.url, reconnect=Reconnect(attempts=3, first_delay=0, max_delay=1)
            )
            broker.on["SUBSCRIBE"] = lambda session, frame: session.drop()
            with pytest.raises(ConnectionLost):
                await client.subscribe("/queue/a").open()
            assert len(broker.sessions) == 3
            await client.close()

    run(story())


def test_closing_while_reconnecting() -> None:
    async def story() -> None:
        async with serving() as broker:
            client = await stompbox.connect(broker.url, reconnect=Reconnect(first_delay=1000, max_delay=1000))
            await lose(client, broker)
            sending = asyncio.create_task(client.send("/queue/a"))
            await client.close()
            with pytest.raises(ConnectionLost, match="closed"):
                await sending

    run(story())


def test_a_send_does_not_wait_for_ever_for_a_connection() -> None:
    async def story() -> None:
        async with serving() as broker:
            client = await stompbox.connect(broker.url, reconnect=Reconnect(first_delay=1000, max_delay=1000))
            await lose(client, broker)
            with pytest.raises(ConnectionLost, match=r"came back within 0\.01 s") as caught:
                await client.send("/queue/a", timeout=0.01)
            assert caught.value.code == "reconnecting"
            await client.close()

    run(story())


# -- sends that the broker refuses -----------------------------------------------------------------------------------


def test_the_refused_send_fails_and_the_others_are_sent_again() -> None:
    """STOMP 1.2, ERROR: the broker MUST close the connection after it."""

    async def story() -> None:
        async with serving() as broker:

            def refuse(session: FakeSession, frame: Frame) -> None:
                if session is broker.sessions[0]:
                    if frame.body == b"bad":
                        session.error("bad message", frame, close=True)
                else:
                    session.receipt(frame)

            broker.on["SEND"] = refuse
            async with stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
                found = await asyncio.gather(
                    *(client.send("/q", body) for body in (b"one", b"bad", b"two")), return_exceptions=True
                )
            assert [type(each) for each in found] == [type(None), stompbox.BrokerError, type(None)]
            assert [frame.body for frame in broker.sessions[1].seen("SEND")] == [b"one", b"two"]

    run(story())


def test_a_send_that_always_ends_the_connection_is_not_sent_for_ever() -> None:
    async def story() -> None:
        async with serving() as broker:

            def refuse(session: FakeSession, frame: Frame) -> None:
                if frame.body == b"bad":
                    session.error("something was wrong", close=True)  # no receipt-id
                else:
                    session.receipt(frame)

            broker.on["SEND"] = refuse
            async with stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
                with pytest.raises(stompbox.BrokerError, match="something was wrong"):
                    await client.send("/q", b"bad")
                await client.send("/q", b"good")
            assert [frame.body for frame in broker.seen("SEND")] == [b"bad", b"bad", b"good"]

    run(story())


def test_an_error_while_the_broker_goes_down_loses_nothing() -> None:
    async def story() -> None:
        async with serving() as broker:

            def go_down(session: FakeSession, frame: Frame) -> None:
                if session is broker.sessions[0]:
                    session.error("shutting down", close=True)
                else:
                    session.receipt(frame)

            broker.on["SEND"] = go_down
            async with stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
                await client.send("/q", b"kept")
            assert [frame.body for frame in broker.seen("SEND")] == [b"kept", b"kept"]

    run(story())


def test_a_broken_stream_is_the_brokers_fault() -> None:
    async def story() -> None:
        async with serving() as broker:
            broker.on["SEND"] = lambda session, frame: session.transport.write(
                b"RECEIPT\nno colon here\n\n\0"
            )
            async with stompbox.connect(broker.url, reconnect=None) as client:
                with pytest.raises(PeerError, match="no colon here"):
                    await client.send("/q")

    run(story())


def test_the_text_tells_the_brokers_last_error() -> None:
    async def story() -> None:
        async with serving() as broker:
            client = await stompbox.connect(broker.url, reconnect=None)
            messages = client.subscribe("/q")
            await messages.open()
            broker.last.error("you were too quiet", close=True)
            with pytest.raises(ConnectionLost, match="you were too quiet"):
                await anext(messages)
            await client.close()

    run(story())


def test_decode_of_own_frames_shows_what_was_sent() -> None:
    assert decode_frame(b"SEND\ndestination:/q\n\nx\0\n", V12) == Frame("SEND", {"destination": "/q"}, b"x")
