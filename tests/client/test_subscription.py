"""Subscriptions against a scripted broker: frames, iteration, acknowledgements, slow applications, lost connections."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import stompbox
from stompbox.client.feed import TURN
from stompbox.client.options import Reconnect
from stompbox.errors import ConnectionLost, UsageError
from stompbox.stomp.frames import Frame
from tests.client.fake_broker import FakeBroker, FakeSession, run, serving

AT_ONCE = Reconnect(first_delay=0, max_delay=0.01)


def delivering(broker: FakeBroker, *bodies: bytes, first_only: bool = True) -> None:
    """SUBSCRIBE is followed by these messages."""

    def subscribe(session: FakeSession, frame: Frame) -> None:
        session.obey(frame)
        if not first_only or len(broker.seen("SUBSCRIBE")) == 1:
            for number, body in enumerate(bodies):
                session.message(body, number)

    broker.on["SUBSCRIBE"] = subscribe


async def lose(client: stompbox.Client, broker: FakeBroker) -> None:
    connection = client._link.connection
    assert connection is not None
    broker.last.drop()
    await connection.closed


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_messages_come_and_are_acknowledged(version: str, ack: str) -> None:
    async def story() -> None:
        async with serving(version) as broker, stompbox.connect(broker.url) as client:
            delivering(broker, b"one", b"two")
            async with client.subscribe("/queue/a", ack=ack) as messages:
                found = []
                async for message in messages:
                    async with message.process() as same:
                        assert same is message
                        found.append((message.body, message.destination))
                    if len(found) == 2:
                        break
                assert found == [(b"one", "/queue/a"), (b"two", "/queue/a")]
            acks = [frame.headers.get("id", frame.headers.get("message-id")) for frame in broker.seen("ACK")]
            assert acks == ([] if ack == "auto" else ["a0", "a1"] if version == "1.2" else ["m0", "m1"])
            (subscribed,), (unsubscribed,) = broker.seen("SUBSCRIBE"), broker.seen("UNSUBSCRIBE")
            assert subscribed.headers["ack"] == ack
            assert subscribed.headers["id"] == unsubscribed.headers["id"]

    run(story())


def test_process_sends_nack_and_lets_the_exception_through() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            delivering(broker, b"one")
            async with client.subscribe("/queue/a", ack="client-individual") as messages:
                with pytest.raises(ZeroDivisionError):
                    async with (await anext(messages)).process():
                        _ = 1 / 0
                await broker.until(lambda: broker.seen("NACK"))
                assert broker.seen("NACK")[0].headers == {"id": "a0"}
                assert not broker.seen("ACK")

    run(story())


def test_a_cancelled_block_leaves_its_message_unacknowledged() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            delivering(broker, b"one")
            async with client.subscribe("/queue/a", ack="client-individual") as messages:
                message = await anext(messages)
                with pytest.raises(asyncio.CancelledError):
                    async with message.process():
                        raise asyncio.CancelledError
                assert not message.is_settled
            assert not broker.seen("NACK") + broker.seen("ACK")

    run(story())


def test_a_message_is_settled_once() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            delivering(broker, b"one")
            async with client.subscribe("/queue/a", ack="client") as messages:
                async with (await anext(messages)).process() as message:
                    await message.nack(confirm=True)
                with pytest.raises(UsageError, match="'m0': it was acknowledged"):
                    await message.ack()
            assert [frame.command for frame in broker.frames if frame.command in ("ACK", "NACK")] == ["NACK"]

    run(story())


def test_what_auto_does_not_allow() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            delivering(broker, b"one")
            async with client.subscribe("/queue/a") as messages:
                with pytest.raises(UsageError, match="ack='auto'"):
                    await (await anext(messages)).ack()

    run(story())


def test_no_nack_in_1_0(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with serving("1.0") as broker, stompbox.connect(broker.url) as client:
            delivering(broker, b"one", b"two")
            async with client.subscribe("/queue/a", ack="client") as messages:
                with pytest.raises(ZeroDivisionError):
                    async with (await anext(messages)).process():
                        _ = 1 / 0
                with pytest.raises(UsageError, match="no NACK"):
                    await (await anext(messages)).nack()
            assert not broker.seen("NACK")

    with caplog.at_level(logging.WARNING, "stompbox.client"):
        run(story())
    assert "1.0 has no NACK" in caplog.text


def test_confirmed_ack_and_its_error() -> None:
    async def story() -> None:
        async with serving("1.1") as broker, stompbox.connect(broker.url) as client:
            delivering(broker, b"one", b"two")
            async with client.subscribe("/queue/a", ack="client-individual") as messages:
                await (await anext(messages)).ack(confirm=True)
                broker.on["ACK"] = lambda session, frame: session.error(
                    "unknown message", frame, code="unknown-ack"
                )
                with pytest.raises(stompbox.BrokerError, match="unknown message"):
                    await (await anext(messages)).ack(confirm=True)

    run(story())


# -- what SUBSCRIBE says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (
            "Stompbox/1",
            {"durable-subscription-name": "d", "activemq.subscriptionName": "d", "prefetch-count": "5"},
        ),
        (
            "ActiveMQ/5.18",
            {
                "durable-subscription-name": "d",
                "activemq.subscriptionName": "d",
                "activemq.prefetchSize": "5",
            },
        ),
        ("RabbitMQ/3.10", {"durable": "true", "auto-delete": "false", "prefetch-count": "5"}),
    ],
)
def test_headers_in_the_brokers_spelling(server: str, expected: dict[str, str]) -> None:
    async def story() -> None:
        async with serving(server=server) as broker, stompbox.connect(broker.url, client_id="c") as client:
            messages = client.subscribe(
                "/topic/a", selector="a > 1", durable="d", prefetch=5, headers={"x": 1}
            )
            await messages.open()
            (frame,) = broker.seen("SUBSCRIBE")
            assert frame.headers.pop("receipt")
            assert frame.headers == {
                "id": "d",
                "destination": "/topic/a",
                "ack": "auto",
                "selector": "a > 1",
                "x": "1",
                **expected,
            }
            await messages.delete()
            frame = broker.seen("UNSUBSCRIBE")[-1]
            # Classic wants the consumer gone first
            assert len(broker.seen("UNSUBSCRIBE")) == (2 if server.startswith("ActiveMQ/") else 1)
            assert (
                frame.headers.items()
                >= {name: value for name, value in expected.items() if "prefetch" not in name}.items()
            )

    run(story())


def test_leaving_a_durable_subscription_keeps_it() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, client_id="c") as client:
            async with client.subscribe("/topic/a", durable="d"):
                pass
            assert broker.seen("UNSUBSCRIBE")[0].headers.keys() == {"id", "receipt"}

    run(story())


def test_what_the_broker_cannot_do_is_said_before_it_is_asked() -> None:
    async def story() -> None:
        async with serving(server="ActiveMQ-Artemis/2") as broker, stompbox.connect(broker.url) as client:
            with pytest.raises(UsageError, match="needs a client_id"):
                await client.subscribe("/topic/a", durable="d").open()
            with pytest.raises(UsageError, match="consumer-window-size"):
                await client.subscribe("/topic/a", prefetch=5).open()
            assert not broker.seen("SUBSCRIBE")

    run(story())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"destination": ""}, "destination is ''"),
        ({"destination": None}, "destination is None"),
        ({"ack": "maybe"}, "auto, client, client-individual"),
        ({"selector": ""}, "selector is ''"),
        ({"durable": 7}, "durable is 7"),
        ({"prefetch": 0}, "prefetch is 0"),
        ({"headers": {"ack": "auto"}}, "header 'ack'"),
        ({"headers": {"x": None}}, "header 'x'"),
    ],
)
def test_wrong_arguments_are_named(given: dict[str, Any], text: str) -> None:
    client = stompbox.connect("stomp://h")
    with pytest.raises(UsageError) as caught:
        client.subscribe(given.pop("destination", "/q"), **given)
    assert text in caught.value.message


def test_the_same_id_twice_and_opened_twice() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            async with client.subscribe("/queue/a", id="mine") as messages:
                with pytest.raises(UsageError, match="id 'mine' is used"):
                    await client.subscribe("/queue/b", id="mine").open()
                with pytest.raises(UsageError, match="opened before"):
                    await messages.open()
            async with client.subscribe("/queue/b", id="mine"):
                assert len(broker.seen("SUBSCRIBE")) == 2
            with pytest.raises(UsageError, match="not open yet"):
                await anext(client.subscribe("/queue/c"))
            with pytest.raises(UsageError, match="not durable"):
                await client.subscribe("/queue/c").delete()

    run(story())


def test_refused_subscription() -> None:
    async def story() -> None:
        async with serving("1.1") as broker, stompbox.connect(broker.url) as client:
            broker.on["SUBSCRIBE"] = lambda session, frame: session.error("bad selector at 7", frame)
            with pytest.raises(stompbox.BrokerError, match="bad selector at 7"):
                await client.subscribe("/queue/a", selector="a >").open()
            del broker.on["SUBSCRIBE"]
            async with client.subscribe("/queue/a") as messages:
                broker.last.message(b"x")
                assert (await anext(messages)).body == b"x"

    run(story())


# -- receiving -------------------------------------------------------------------------------------------------------


def test_receive_with_a_timeout() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            async with client.subscribe("/queue/a") as messages:
                assert await messages.receive(timeout=0.01) is None
                assert await messages.receive_many(5, timeout=0.01) == []
                for number in range(7):
                    broker.last.message(b"%d" % number)
                assert (await messages.receive()).body == b"0"  # type: ignore[union-attr]
                rest = []
                while len(rest) < 6:
                    rest += await messages.receive_many(4)
                assert [message.body for message in rest] == [b"%d" % number for number in range(1, 7)]
            assert await messages.receive() is None

    run(story())


def test_several_tasks_share_a_subscription() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            delivering(broker, *(b"%d" % number for number in range(300)))
            found: list[bytes] = []

            async def work(messages: stompbox.Subscription) -> None:
                async for message in messages:
                    found.append(message.body)
                    if len(found) == 300:
                        await messages.unsubscribe()

            async with client.subscribe("/queue/a") as messages:
                await asyncio.gather(*(work(messages) for _ in range(3)))
            assert sorted(map(int, found)) == list(range(300))

    run(story())


def test_an_application_that_never_waits_lets_the_loop_have_its_turn() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            delivering(broker, *(b"x" for _ in range(TURN * 3)))
            turns = 0

            def turn() -> None:
                nonlocal turns
                turns += 1
                asyncio.get_running_loop().call_soon(turn)

            async with client.subscribe("/queue/a") as messages:
                await broker.until(lambda: messages.buffered == TURN * 3 or not broker.changed())
                turn()
                for _ in range(TURN * 3):
                    await anext(messages)
                assert turns >= 2

    run(story())


def test_a_slow_application_stops_the_reading() -> None:
    async def story() -> None:
        async with (
            serving() as broker,
            stompbox.connect(broker.url, buffer=50_000) as client,
            client.subscribe("/queue/a") as messages,
        ):
            session, intake = broker.last, client._link.intake
            session.transport.set_write_buffer_limits(high=1_000_000_000)
            for number in range(20_000):
                session.message(b"x" * 1000, number)  # 20 MB: more than sockets hold
            while not intake.is_paused:
                await messages.receive()
            size = intake.size
            assert size < 50_000 + 400_000  # what one read brought comes on top
            assert session.transport.get_write_buffer_size() > 1_000_000
            found = messages.buffered
            while intake.is_paused:
                await messages.receive()
                found -= 1
            assert found > 0

    run(story())


def test_a_call_gets_its_receipt_past_messages_that_nobody_takes() -> None:
    async def story() -> None:
        async with (
            serving() as broker,
            stompbox.connect(broker.url, buffer=50_000) as client,
            client.subscribe("/queue/a") as messages,
        ):
            for number in range(3000):
                broker.last.message(b"x" * 1000, number)
            while not client._link.intake.is_paused:
                await messages.receive()
            await client.send("/queue/b", b"from within the loop over messages")
            assert client._link.intake.size > 1_000_000

    run(story())


def test_a_call_that_waits_behind_too_much_says_why() -> None:
    async def story() -> None:
        async with (
            serving() as broker,
            stompbox.connect(broker.url, buffer=50_000, buffer_limit=100_000) as client,
            client.subscribe("/queue/a") as messages,
        ):
            for number in range(3000):
                broker.last.message(b"x" * 1000, number)
            await messages.receive()
            with pytest.raises(ConnectionLost, match="octets of messages wait for the application"):
                await client.send("/queue/b", timeout=0.05)

    run(story())


# -- lost connections ------------------------------------------------------------------------------------------------


def test_subscribed_again_on_the_new_connection() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
            async with client.subscribe(
                "/queue/a", ack="client-individual", selector="a = 1", headers={"x": "y"}
            ) as messages:
                await lose(client, broker)
                await broker.until(lambda: len(broker.seen("SUBSCRIBE")) == 2)
                one, two = broker.seen("SUBSCRIBE")
                assert {**one.headers, "receipt": ""} == {**two.headers, "receipt": ""}
                broker.last.message(b"after", 9)
                async with (await anext(messages)).process() as message:
                    assert message.body == b"after"
            assert broker.last.seen("ACK")[0].headers == {"id": "a9"}

    run(story())


def test_messages_of_a_lost_connection_are_not_acknowledged_over_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
            delivering(broker, b"one", b"two", b"three")
            async with client.subscribe("/queue/a", ack="client-individual") as messages:
                message, another = await anext(messages), await anext(messages)
                async with another.process():
                    await lose(client, broker)
                with pytest.raises(ConnectionLost, match="delivers it again") as caught:
                    await message.ack()
                assert caught.value.code == "stale-message"
                await client.send("/queue/b")
                assert messages.buffered == 0
            assert not broker.seen("ACK")
            assert (client.counters["stale-message"], client.counters["dropped-unacknowledged"]) == (1, 1)

    with caplog.at_level(logging.WARNING, "stompbox.client"):
        run(story())
    assert "it will come again" in caplog.text


def test_auto_messages_survive_their_connection() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
            delivering(broker, b"one", b"two")
            async with client.subscribe("/queue/a") as messages:
                assert (await anext(messages)).body == b"one"
                await lose(client, broker)
                assert (await anext(messages)).body == b"two"

    run(story())


def test_refused_when_subscribing_again() -> None:
    async def story() -> None:
        async with (
            serving() as broker,
            stompbox.connect(broker.url, reconnect=AT_ONCE) as client,
            client.subscribe("/queue/a") as good,
        ):
            messages = client.subscribe("/queue/b")
            await messages.open()

            def refuse(session: FakeSession, frame: Frame) -> None:
                if frame.headers["destination"] == "/queue/b":
                    session.error("not any more", frame, close=True)
                else:
                    session.obey(frame)

            broker.on["SUBSCRIBE"] = refuse
            await lose(client, broker)
            with pytest.raises(stompbox.BrokerError, match="not any more"):
                await anext(messages)
            await messages.unsubscribe()
            await broker.until(lambda: len(broker.sessions) == 3 and broker.last.seen("SUBSCRIBE"))
            broker.last.message(b"still there")
            assert (await anext(good)).body == b"still there"

    run(story())


def test_iteration_ends_with_the_client() -> None:
    async def story() -> None:
        async with serving() as broker:
            client = await stompbox.connect(broker.url)
            messages = client.subscribe("/queue/a")
            await messages.open()
            reading = asyncio.create_task(messages.receive())
            await client.send("/queue/b")
            await client.close()
            assert await reading is None
            assert [message async for message in messages] == []
            assert "ended" in repr(messages)

    run(story())


def test_leaving_by_an_exception_when_the_connection_is_gone() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, reconnect=None) as client:
            with pytest.raises(ZeroDivisionError):
                async with client.subscribe("/queue/a"):
                    await lose(client, broker)
                    _ = 1 / 0

    run(story())


def test_another_broker_cannot_do_what_the_first_one_could() -> None:
    async def story() -> None:
        async with (
            serving(server="Stompbox/1") as one,
            serving(server="ActiveMQ-Artemis/2") as two,
            stompbox.connect([one.url, two.url], reconnect=AT_ONCE) as client,
        ):
            messages = client.subscribe("/queue/a", prefetch=5)
            await messages.open()
            one.on["CONNECT"] = lambda session, frame: session.error("closing down", close=True)
            await lose(client, one)
            with pytest.raises(UsageError, match="consumer-window-size"):
                await anext(messages)
            assert not two.seen("SUBSCRIBE")
            await messages.unsubscribe()

    run(story())


def test_a_connection_lost_during_unsubscribe_ends_it_too() -> None:
    async def story() -> None:
        async with (
            serving() as broker,
            stompbox.connect(broker.url, reconnect=AT_ONCE, client_id="c") as client,
        ):
            broker.on["UNSUBSCRIBE"] = lambda session, frame: session.drop()
            async with client.subscribe("/queue/a"):
                pass
            messages = client.subscribe("/topic/a", durable="d")
            await messages.open()
            with pytest.raises(ConnectionLost):
                await messages.delete()
            await client.send("/queue/b")
            assert not broker.last.seen("SUBSCRIBE")

    run(story())


def test_refused_unsubscribe_does_not_hide_the_exception_of_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with serving("1.1") as broker, stompbox.connect(broker.url) as client:
            broker.on["UNSUBSCRIBE"] = lambda session, frame: session.error("cannot", frame)
            with pytest.raises(ZeroDivisionError):
                async with client.subscribe("/queue/a"):
                    _ = 1 / 0
            with pytest.raises(stompbox.BrokerError, match="cannot"):
                async with client.subscribe("/queue/a"):
                    pass

    with caplog.at_level(logging.WARNING, "stompbox.client"):
        run(story())
    assert "UNSUBSCRIBE from /queue/a failed: cannot" in caplog.text


def test_wrong_id_is_named() -> None:
    with pytest.raises(UsageError, match="id is ''"):
        stompbox.connect("stomp://h").subscribe("/q", id="")
