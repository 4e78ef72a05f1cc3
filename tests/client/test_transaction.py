"""Transactions against a scripted broker."""

from __future__ import annotations

import asyncio

import pytest

import stompbox
from stompbox.client.options import Reconnect
from stompbox.errors import ConnectionLost, UsageError
from stompbox.stomp.frames import Frame
from tests.client.fake_broker import FakeBroker, FakeSession, run, serving

AT_ONCE = Reconnect(first_delay=0, max_delay=0.01)


def commands(broker: FakeBroker) -> list[str]:
    return [frame.command for frame in broker.frames if frame.command not in ("CONNECT", "DISCONNECT")]


def test_committed_together() -> None:
    async def story() -> None:
        async with (
            serving() as broker,
            stompbox.connect(broker.url) as client,
            client.subscribe("/queue/in", ack="client-individual") as messages,
        ):
            broker.last.message(b"one", 1)
            broker.last.message(b"two", 2)
            async with client.transaction() as transaction:
                await transaction.send("/queue/out", b"x", headers={"n": 1})
                await transaction.ack(await anext(messages))
                await transaction.nack(await anext(messages))
            assert commands(broker) == ["SUBSCRIBE", "BEGIN", "SEND", "ACK", "NACK", "COMMIT"]
            assert {frame.headers.get("transaction") for frame in broker.frames[2:]} == {transaction.id}
            assert broker.seen("SEND")[0].headers["n"] == "1"
            assert "COMMITTED" in repr(transaction)

    run(story())


def test_aborted_by_an_exception_and_acknowledged_after_all() -> None:
    async def story() -> None:
        async with (
            serving() as broker,
            stompbox.connect(broker.url) as client,
            client.subscribe("/queue/in", ack="client-individual") as messages,
        ):
            broker.last.message(b"one", 1)
            message = await anext(messages)
            with pytest.raises(ZeroDivisionError):
                async with client.transaction() as transaction:
                    await transaction.ack(message)
                    with pytest.raises(UsageError, match="acknowledged"):
                        await message.ack()
                    _ = 1 / 0
            await message.ack(confirm=True)
            assert commands(broker) == ["SUBSCRIBE", "BEGIN", "ACK", "ABORT", "ACK"]

    run(story())


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_refused_frame_aborts_the_whole(version: str) -> None:
    """Nothing of it may be committed, although brokers keep the connection open."""

    async def story() -> None:
        async with serving(version) as broker, stompbox.connect(broker.url) as client:
            broker.on["SEND"] = lambda session, frame: (
                session.error("no", frame) if frame.body == b"bad" else session.receipt(frame)
            )
            with pytest.raises(stompbox.BrokerError, match="no"):
                async with client.transaction() as transaction:
                    await transaction.send("/queue/a", b"good")
                    await transaction.send("/queue/a", b"bad")
            assert commands(broker) == ["BEGIN", "SEND", "SEND", "ABORT"]
            with pytest.raises(UsageError, match="not open: aborted"):
                await transaction.send("/queue/a")

    run(story())


def test_receipts_that_come_after_commit() -> None:
    """RabbitMQ confirms a transaction's sends only then."""

    async def story() -> None:
        async with serving(server="RabbitMQ/3.10") as broker, stompbox.connect(broker.url) as client:
            held: list[Frame] = []
            broker.on["SEND"] = lambda session, frame: held.append(frame)

            def commit(session: FakeSession, frame: Frame) -> None:
                session.receipt(frame)
                for each in held:
                    session.receipt(each)

            broker.on["COMMIT"] = commit
            async with client.transaction() as transaction:
                for _ in range(3):
                    await transaction.send("/queue/a")
            assert commands(broker) == ["BEGIN", "SEND", "SEND", "SEND", "COMMIT"]
            assert not client.counters["unknown-receipt"]

    run(story())


def test_lost_with_its_connection() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
            broker.on["SEND"] = lambda session, frame: session.drop()
            with pytest.raises(ConnectionLost):
                async with client.transaction() as transaction:
                    await transaction.send("/queue/a")
            del broker.on["SEND"]
            async with client.transaction() as transaction:
                await transaction.send("/queue/a")
            assert [frame.command for frame in broker.last.frames][:4] == [
                "CONNECT",
                "BEGIN",
                "SEND",
                "COMMIT",
            ]

    run(story())


def test_lost_between_two_frames() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
            transaction = client.transaction()
            await transaction.begin()
            await client.send("/queue/a")
            connection = client._link.connection
            assert connection is not None
            broker.last.drop()
            await connection.closed
            with pytest.raises(ConnectionLost, match="broker has aborted it") as caught:
                await transaction.send("/queue/a")
            assert caught.value.code == "transaction-lost"
            await transaction.abort()

    run(story())


def test_lost_while_committing() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, reconnect=AT_ONCE) as client:
            broker.on["COMMIT"] = lambda session, frame: session.drop()
            with pytest.raises(ConnectionLost, match="not known") as caught:
                async with client.transaction() as transaction:
                    await transaction.send("/queue/a")
            assert caught.value.code == "commit-unknown"

    run(story())


def test_refused_commit() -> None:
    async def story() -> None:
        async with serving("1.1") as broker, stompbox.connect(broker.url) as client:
            broker.on["COMMIT"] = lambda session, frame: session.error("disk full", frame)
            with pytest.raises(stompbox.BrokerError, match="disk full"):
                async with client.transaction() as transaction:
                    await transaction.send("/queue/a")

    run(story())


def test_by_hand_and_misuse() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            transaction = client.transaction()
            with pytest.raises(UsageError, match="not open: new"):
                await transaction.send("/queue/a")
            await transaction.begin()
            with pytest.raises(UsageError, match="begun before"):
                await transaction.begin()
            await transaction.commit()
            with pytest.raises(UsageError, match="not open: committed"):
                await transaction.commit()
            async with client.transaction() as another:
                await another.abort()
            assert commands(broker) == ["BEGIN", "COMMIT", "BEGIN", "ABORT"]
            assert another.id != transaction.id

    run(story())


def test_no_answers_in_time() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url, receipt_timeout=0.02) as client:
            broker.on["SEND"] = lambda session, frame: None
            with pytest.raises(ConnectionLost, match="no receipt for 1 frames of transaction"):
                async with client.transaction() as transaction:
                    await transaction.send("/queue/a")
            assert commands(broker) == ["BEGIN", "SEND", "ABORT"]

    run(story())


def test_many_frames_leave_the_loop_its_turns() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            other = asyncio.create_task(client.send("/queue/b"))
            async with client.transaction() as transaction:
                for _ in range(500):
                    await transaction.send("/queue/a", b"x" * 1000)
                assert other.done()
            assert len(broker.seen("SEND")) == 501

    run(story())
