"""What the client does beyond frames, against the real broker: rpc, handlers, logs by offset, refusals with a delay, JSON, states."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import stompbox
from stompbox import ClientState, blocking
from stompbox.client.options import Reconnect
from stompbox.errors import ConnectionLost, StompboxError, UsageError
from stompbox.testing import Broker
from tests.client.fake_broker import run, serving

AT_ONCE = Reconnect(first_delay=0.01, max_delay=0.1)
KEPT = {"address-setting": [{"match": "log.#", "retention-messages": 1000}]}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(KEPT) as found:
        yield found


def connected(broker: Broker, **options: Any) -> stompbox.Client:
    return stompbox.connect(broker.url, reconnect=AT_ONCE, **options)


async def dropped(broker: Broker, *clients: stompbox.Client) -> None:
    """Their connections are lost, they have seen it, and are back."""
    before = [client._link.connection for client in clients]
    broker.drop()
    for client, connection in zip(clients, before, strict=True):
        assert connection is not None
        await connection.closed
        await client.wait_connected(5)


# --- a message ----------------------------------------------------------------------------------------------------------------


def test_what_a_message_says_of_itself(broker: Broker) -> None:
    with broker.client() as client:
        before = datetime.now(UTC) - timedelta(seconds=1)
        client.send("/queue/a", {"k": [1, "grün"]}, {"reply-to": "/queue/b", "correlation-id": 7})
        with client.subscribe("/queue/a", ack="client-individual") as messages:
            first = messages.receive(timeout=5)
            assert first is not None
            assert (first.json(), first.content_type) == ({"k": [1, "grün"]}, "application/json")
            assert (first.delivery_count, first.offset) == (1, None)
            assert (first.reply_to, first.correlation_id) == ("/queue/b", "7")
            assert first.timestamp is not None and before < first.timestamp <= datetime.now(UTC)
            first.nack()
            again = messages.receive(timeout=5)
            assert again is not None and again.delivery_count == 2


@pytest.mark.parametrize(
    ("headers", "count", "timestamp"),
    [
        ({}, 1, None),
        ({"redelivered": "true"}, 2, None),
        ({"redelivered": "true", "JMSXDeliveryCount": "5"}, 5, None),
        ({"JMSXDeliveryCount": "many", "timestamp": "yesterday"}, 1, None),
        ({"timestamp": "0"}, 1, datetime(1970, 1, 1, tzinfo=UTC)),
        ({"timestamp": "9" * 18}, 1, None),
    ],
)
def test_headers_of_other_brokers(headers: dict[str, str], count: int, timestamp: datetime | None) -> None:
    from stompbox.client.message import message_from_headers

    message = message_from_headers(None, headers, b"x", None)
    assert (message.delivery_count, message.timestamp) == (count, timestamp)
    with pytest.raises(UsageError, match="is no JSON"):
        message.json()


# --- NACK ---------------------------------------------------------------------------------------------------------------------


def test_a_refusal_that_waits() -> None:
    with Broker(frozen=True) as broker, broker.client() as client:
        client.send("/queue/a", b"1")
        with client.subscribe("/queue/a", ack="client-individual") as messages:
            message = messages.receive(timeout=5)
            assert message is not None
            message.nack(delay=60.5, confirm=True)
            assert messages.receive(timeout=0.05) is None
            broker.advance(60)
            assert messages.receive(timeout=0.05) is None
            broker.advance(1)
            again = messages.receive(timeout=5)
            assert again is not None and again.delivery_count == 2


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_refusal_for_good(broker: Broker, in_transaction: bool) -> None:
    with broker.client() as client:
        client.send("/queue/a", b"1")
        with client.subscribe("/queue/a", ack="client-individual") as messages:
            message = messages.receive(timeout=5)
            assert message is not None
            if in_transaction:
                with client.transaction() as transaction:
                    transaction.nack(message, requeue=False)
            else:
                message.nack(requeue=False, confirm=True)
            assert messages.receive(timeout=0.05) is None
        assert [held.headers["dead-letter-reason"] for held in broker.messages("/queue/DLQ")] == ["rejected"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"delay": -1}, "delay is -1; allowed are seconds from 0"),
        ({"delay": "soon"}, "delay is 'soon'"),
        ({"delay": True}, "delay is True"),
        ({"delay": float("nan")}, "delay is nan"),
        ({"delay": 1e12}, "delay is 1000000000000.0"),
        ({"requeue": "no"}, "requeue is 'no'; allowed are True and False"),
        ({"requeue": False, "delay": 1}, "waits for nothing"),
    ],
)
def test_refusals_that_cannot_be_meant(broker: Broker, arguments: dict[str, Any], text: str) -> None:
    with broker.client() as client:
        client.send("/queue/a", b"1")
        with client.subscribe("/queue/a", ack="client-individual") as messages:
            message = messages.receive(timeout=5)
            assert message is not None
            with pytest.raises(UsageError, match=text):
                message.nack(**arguments)
            message.ack(confirm=True)


def test_a_delay_is_not_ignored_in_silence_by_a_broker_that_has_none() -> None:
    async def story() -> None:
        async with serving(server="RabbitMQ/4") as broker, stompbox.connect(broker.url) as client:
            broker.on["SUBSCRIBE"] = lambda session, frame: (session.obey(frame), session.message(b"1", 1))
            async with client.subscribe("/queue/a", ack="client-individual") as messages:
                message = await messages.receive()
                assert message is not None
                with pytest.raises(UsageError, match="RabbitMQ/4 has no delay for one delivery"):
                    await message.nack(delay=1)
                await message.nack(requeue=False, confirm=True)
            assert broker.seen("NACK")[0].headers["requeue"] == "false"

    run(story())


# --- logs by offset -----------------------------------------------------------------------------------------------------------


def test_a_log_is_read_from_an_offset(broker: Broker) -> None:
    with broker.client() as client:
        assert client.send_many("/topic/log.a", (f"{n}" for n in range(10))) == 10
        for offset, first in ((7, 7), ("first", 0), ("last", 9), (datetime(2020, 1, 1, tzinfo=UTC), 0)):
            with client.subscribe("/topic/log.a", offset=offset) as messages:  # type: ignore[arg-type]
                message = messages.receive(timeout=5)
                assert message is not None
                assert (message.offset, message.body) == (first, b"%d" % first)
        with client.subscribe("/topic/log.a", offset="next") as messages:
            client.send("/topic/log.a", b"new")
            message = messages.receive(timeout=5)
            assert message is not None and message.offset == 10


@pytest.mark.parametrize("offset", [-1, True, "soon", 1.5, datetime(2020, 1, 1)])
def test_offsets_that_are_none(broker: Broker, offset: Any) -> None:
    with (
        broker.client() as client,
        pytest.raises(UsageError, match=r"offset is .*; allowed are a number from 0"),
    ):
        client.subscribe("/topic/log.a", offset=offset)


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_reader_of_a_log_goes_on_where_it_was(broker: Broker, ack: str) -> None:
    """And not where it began; what it has not acknowledged comes again."""

    async def story() -> None:
        async with connected(broker) as client:
            await client.send_many("/topic/log.b", [b"%d" % n for n in range(20)])
            async with client.subscribe(
                "/topic/log.b", offset=5, ack=ack, headers={"prefetch-count": 4}
            ) as messages:
                taken = []
                for _ in range(3):
                    message = await messages.receive(5)
                    assert message is not None
                    taken.append(message)
                if ack == "client":
                    await taken[1].ack(confirm=True)
                elif ack == "client-individual":
                    await taken[0].ack(confirm=True)
                    await taken[2].ack(confirm=True)
                expected = {"auto": 8, "client": 7, "client-individual": 6}[ack]
                await dropped(broker, client)
                message = await messages.receive(5)
                assert message is not None and message.offset == expected

    run(story())


def test_what_keeps_no_log_is_told(broker: Broker) -> None:
    async def story() -> None:
        async with serving(server="ActiveMQ-Artemis/2") as other, stompbox.connect(other.url) as client:
            with pytest.raises(UsageError, match="ActiveMQ-Artemis/2 keeps no log"):
                async with client.subscribe("/topic/a", offset="first"):
                    pass

    run(story())


# --- many bodies --------------------------------------------------------------------------------------------------------------


def test_many_bodies_of_every_kind(broker: Broker) -> None:
    async def bodies() -> AsyncIterator[Any]:
        for body in (b"1", "zwei", {"three": 3}, [4]):
            yield body

    async def story() -> None:
        async with connected(broker) as client:
            assert await client.send_many("/queue/many", bodies(), {"a": 1}, window=2) == 4
            assert await client.send_many("/queue/many", []) == 0
            with pytest.raises(UsageError, match="bodies must be an iterable of bodies, not one bytes"):
                await client.send_many("/queue/many", b"123")
            with pytest.raises(UsageError, match="body must be bytes"):
                await client.send_many("/queue/many", [b"5", None])  # type: ignore[list-item]

    run(story())
    held = broker.messages("/queue/many")
    assert [one.body for one in held][:4] == [b"1", b"zwei", b'{"three":3}', b"[4]"]
    assert {one.headers["a"] for one in held[:4]} == {"1"}


@pytest.mark.parametrize("size", [10, 1 << 10, 1 << 20])
def test_many_bodies_keep_their_order_and_the_window(broker: Broker, size: int) -> None:
    count = 700 if size < 1 << 20 else 20
    with broker.client() as client:
        assert (
            client.send_many("/queue/many", (b"%08d" % n + b"x" * size for n in range(count)), window=100)
            == count
        )
        with client.publisher(window=7) as publisher:
            assert publisher.send_many("/queue/many", (str(n) for n in range(30))) == 30
            assert publisher.outstanding <= 7
        assert publisher.confirmed_count == 30
    held = broker.messages("/queue/many")
    assert [one.body[:8] for one in held[:count]] == [b"%08d" % n for n in range(count)]
    assert [one.body for one in held[count:]] == [b"%d" % n for n in range(30)]


def test_many_bodies_go_on_over_a_lost_connection(broker: Broker) -> None:
    async def story() -> None:
        async with connected(broker) as client:

            async def bodies() -> AsyncIterator[str]:
                for number in range(600):
                    if number in (100, 400):
                        broker.drop()
                    yield str(number)

            assert await client.send_many("/queue/many", bodies(), window=50) == 600

    run(story())
    assert {one.text for one in broker.messages("/queue/many")} == {*map(str, range(600))}


# --- handlers -----------------------------------------------------------------------------------------------------------------


def test_handlers_work_side_by_side_and_one_that_fails_stops_nobody(broker: Broker) -> None:
    async def story() -> None:
        at_once, most, done = 0, 0, list[str]()
        all_at_it, ended = asyncio.Event(), asyncio.Event()

        async def handle(message: stompbox.Message) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            if at_once == 3:
                all_at_it.set()
            await all_at_it.wait()
            at_once -= 1
            if message.text == "bad" and message.delivery_count == 1:
                raise RuntimeError("not this time")
            done.append(message.text)
            if len(done) == 10:
                ended.set()

        async with connected(broker) as client:
            await client.send_many("/queue/work", ["bad", *map(str, range(9))])
            async with client.subscribe("/queue/work", ack="client-individual") as messages:
                work = asyncio.create_task(messages.run(handle, concurrency=3))
                await asyncio.wait_for(ended.wait(), 10)
                await messages.unsubscribe()
                await asyncio.wait_for(work, 5)  # it ends with its subscription
        assert most == 3
        assert sorted(done) == sorted(["bad", *map(str, range(9))])

    run(story())
    assert broker.messages("/queue/work") == []


def test_handlers_end_with_what_ended_their_subscription(broker: Broker) -> None:
    async def story() -> None:
        async with (
            stompbox.connect(broker.url, reconnect=None) as client,
            client.subscribe("/queue/work") as messages,
        ):
            work = asyncio.create_task(messages.run(client.reply, concurrency=2))
            await client.send("/queue/work", b"no reply-to: the handler fails, and the next message follows")
            await client.send("/queue/work", b"the same")
            broker.drop()
            with pytest.raises(ConnectionLost):
                await work

    run(story())


def test_handlers_in_threads(broker: Broker) -> None:
    with broker.client() as client:
        client.send_many("/queue/work", map(str, range(6)))
        barrier, done, ended = threading.Barrier(3, timeout=10), list[str](), threading.Event()

        def handle(message: blocking.Message) -> None:
            barrier.wait()
            done.append(message.text)
            if len(done) == 6:
                ended.set()

        with client.subscribe("/queue/work", ack="client-individual") as messages:
            worker = threading.Thread(target=messages.run, args=(handle,), kwargs={"concurrency": 3})
            worker.start()
            assert ended.wait(10)
            messages.unsubscribe()
            worker.join(10)
            assert not worker.is_alive()
        assert sorted(done) == sorted(map(str, range(6)))


@pytest.mark.parametrize(("concurrency", "ack"), [(0, "auto"), (True, "auto"), (2, "client")])
def test_a_concurrency_that_cannot_be_meant(broker: Broker, concurrency: int, ack: str) -> None:
    with (
        broker.client() as client,
        client.subscribe("/queue/a", ack=ack) as messages,
        pytest.raises(UsageError, match="concurrency is"),
    ):
        messages.run(print, concurrency=concurrency)


# --- requests and replies -----------------------------------------------------------------------------------------------------


async def serve_prices(client: stompbox.Client, started: asyncio.Event) -> None:
    async with client.subscribe("/queue/prices") as requests:
        started.set()
        async for request in requests:
            await client.reply(request, {"price": len(request.text)})


def test_requests_and_replies(broker: Broker) -> None:
    async def story() -> None:
        async with connected(broker) as server, connected(broker) as client:
            started = asyncio.Event()
            work = asyncio.create_task(serve_prices(server, started))
            await started.wait()
            replies = await asyncio.gather(*[client.rpc("/queue/prices", "x" * n) for n in range(20)])
            assert [reply.json()["price"] for reply in replies] == [*range(20)]
            await dropped(broker, client, server)  # the queue of replies is another one now
            assert (await client.rpc("/queue/prices", "xx", timeout=5)).json() == {"price": 2}
            work.cancel()

    run(story())


def test_a_request_that_nobody_answers(broker: Broker) -> None:
    async def story() -> None:
        async with connected(broker) as client:
            with pytest.raises(ConnectionLost, match=r"no reply from /queue/nobody within 0.05 s") as caught:
                await client.rpc("/queue/nobody", b"?", timeout=0.05)
            assert caught.value.code == "reply-timeout"
            with pytest.raises(UsageError, match="header 'reply-to' of a request is written by the client"):
                await client.rpc("/queue/nobody", b"?", {"reply-to": "/queue/mine"})
            waiting = asyncio.create_task(client.rpc("/queue/nobody", b"?"))
            await asyncio.to_thread(broker.wait_for_sent, "/queue/nobody", 2)
            broker.drop()
            with pytest.raises(ConnectionLost) as lost:
                await waiting
            assert lost.value.code == "reply-lost"

    run(story())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_first_request_that_was_given_up_takes_nothing_from_the_next(
    broker: Broker, is_cancelled: bool
) -> None:
    """The queue of replies may be subscribed to by then, or not."""

    async def story() -> None:
        async with connected(broker) as server, connected(broker) as client:
            started = asyncio.Event()
            work = asyncio.create_task(serve_prices(server, started))
            await started.wait()
            number = max(each.number for each in broker.connections)
            with broker.stall(number):
                asked = asyncio.create_task(
                    client.rpc("/queue/prices", "x", timeout=None if is_cancelled else 0.05)
                )
                await broker.until(lambda: len(broker.frames("received", "SUBSCRIBE")) == 2)
                if is_cancelled:
                    asked.cancel()
                with pytest.raises(asyncio.CancelledError if is_cancelled else ConnectionLost):
                    await asked
            assert (await client.rpc("/queue/prices", "xx", timeout=5)).json() == {"price": 2}
            assert (broker.errors(), client.counters["connections-lost"]) == ([], 0)
            work.cancel()

    run(story())


def test_requesters_that_leave_cost_nobody_else_an_answer(broker: Broker) -> None:
    async def story() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def answer(request: stompbox.Message) -> None:
            if request.text == "left":
                asked.set()
            await go_on.wait()
            await server.reply(request, "answer")

        async with connected(broker) as server, connected(broker) as other:
            async with server.subscribe("/queue/prices", ack="client-individual") as requests:
                work = asyncio.create_task(requests.run(answer, concurrency=3))
                waiting = asyncio.create_task(other.rpc("/queue/prices", "stays"))
                async with broker.connect() as leaving:
                    left = asyncio.create_task(leaving.rpc("/queue/prices", "left"))
                    await asked.wait()
                with pytest.raises(ConnectionLost):
                    await left
                go_on.set()
                assert (await waiting).text == "answer"
                await broker.until(lambda: not broker.messages("/queue/prices"))
                work.cancel()
            assert server.counters["connections-lost"] == 0
        assert broker.errors() == []

    run(story())


def test_a_refused_request_says_why(broker: Broker) -> None:
    async def story() -> None:
        async with connected(broker) as client:
            with broker.refuse("/queue/closed"), pytest.raises(stompbox.BrokerError):
                await client.rpc("/queue/closed", b"?", timeout=5)

    run(story())


def test_a_reply_to_nobody(broker: Broker) -> None:
    with broker.client() as client:
        client.send("/queue/a", b"1")
        with client.subscribe("/queue/a") as messages:
            message = messages.receive(timeout=5)
            assert message is not None
            with pytest.raises(UsageError, match="has no header reply-to"):
                client.reply(message, b"?")


def test_what_was_committed_is_not_aborted(broker: Broker) -> None:
    async def story() -> None:
        async with connected(broker) as client:
            transaction = client.transaction()
            await transaction.begin()
            await transaction.send("/queue/a", b"1")
            await transaction.commit()
            await transaction.abort()
            assert transaction.state.name == "COMMITTED"

    run(story())
    assert len(broker.messages("/queue/a")) == 1 and not broker.frames("received", "ABORT")


def test_a_client_that_is_closed_has_ended_its_subscriptions(broker: Broker) -> None:
    """Who leaves their blocks afterwards, in whichever thread, is told of no fault."""
    client = broker.client().open()
    with client.subscribe("/queue/a", ack="client-individual") as messages:
        closing = threading.Timer(0.05, client.close)
        closing.start()
        assert [*messages] == []
        closing.join()
    messages.unsubscribe()
    with pytest.raises(ConnectionLost):
        client.send("/queue/a", b"1")


# --- states -------------------------------------------------------------------------------------------------------------------


def test_each_state_is_told(broker: Broker) -> None:
    async def story() -> None:
        seen: list[tuple[ClientState, bool]] = []

        def told(state: ClientState, error: StompboxError | None) -> None:
            seen.append((state, error is not None))
            if state is ClientState.RECONNECTING:
                raise RuntimeError("a listener that fails is not the connection's matter")

        client = connected(broker, on_state=told)
        assert client.state is ClientState.NEW
        async with client:
            assert client.state is ClientState.OPEN
            await dropped(broker, client)
        assert seen == [
            (ClientState.CONNECTING, False),
            (ClientState.OPEN, False),
            (ClientState.RECONNECTING, True),
            (ClientState.OPEN, False),
            (ClientState.CLOSING, False),
            (ClientState.CLOSED, True),
        ]
        with pytest.raises(ConnectionLost):
            await client.wait_connected()
        with pytest.raises(UsageError, match="on_state is 7"):
            connected(broker, on_state=7)

    run(story())


# --- names --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Client", "Message", "Publisher", "Subscription", "Transaction"])
def test_public_names_are_the_users_and_the_same_without_async(kind: str) -> None:
    asynchronous = {name for name in vars(getattr(stompbox, kind)) if not name.startswith("_")}
    without = {name for name in vars(getattr(blocking, kind)) if not name.startswith("_")}
    only = {
        "Subscription": ({"buffered", "receive_many"}, {"iterate"}),
        "Publisher": ({"failure"}, set()),
        "Transaction": (set(), {"id"}),
    }
    more, own = only.get(kind, (set(), set()))
    assert (asynchronous - without, without - asynchronous) == (more, own)
    assert not asynchronous & {"deliver", "confirmed", "failed", "resubscribe", "detached", "refused", "link"}
