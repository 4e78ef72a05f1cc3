"""The client without async, from one thread and from several."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import stompbox
from stompbox import blocking
from stompbox.client.options import Reconnect
from stompbox.errors import ConnectionLost, UsageError
from stompbox.stomp.frames import Frame
from tests.client.fake_broker import DEADLINE, FakeBroker, FakeSession, serving_in_thread

AT_ONCE = Reconnect(first_delay=0, max_delay=0.01)


def delivering(broker: FakeBroker, count: int) -> None:
    def subscribe(session: FakeSession, frame: Frame) -> None:
        session.obey(frame)
        for number in range(count):
            session.message(b"%d" % number, number)

    broker.on["SUBSCRIBE"] = subscribe


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Runs `work` in so many threads and raises what one of them raised."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def threads_of_clients() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "stompbox-client"]


def test_the_whole_round() -> None:
    with serving_in_thread() as broker:
        delivering(broker, 3)
        with blocking.connect(broker.url) as client:
            assert client.is_connected
            assert (client.version.name, client.server) == ("1.2", "fake/1")
            client.send("/queue/a", b"body", headers={"n": 1})
            client.send("/queue/a", "unconfirmed", confirm=False)
            with client.subscribe("/queue/a", ack="client-individual") as messages:
                one, two = messages.receive(), messages.receive(timeout=5)
                assert one is not None
                assert two is not None
                assert (one.body, one.destination, one.headers["ack"]) == (b"0", "/queue/a", "a0")
                one.ack()
                two.nack(confirm=True)
                for message in messages:
                    with message.process():
                        break
            with client.transaction() as transaction:
                transaction.send("/queue/b", b"in it", headers={"n": 2})
        commands = [frame.command for frame in broker.frames]
        assert commands[0] == "CONNECT"
        assert commands[-1] == "DISCONNECT"
        assert [frame.headers["id"] for frame in broker.frames if frame.command in ("ACK", "NACK")] == [
            "a0",
            "a1",
            "a2",
        ]
        assert broker.seen("SEND")[2].headers["transaction"] == transaction.id
    assert threads_of_clients() == []


def test_iteration_ends_when_nothing_comes_in_time() -> None:
    with serving_in_thread() as broker:
        delivering(broker, 250)
        with blocking.connect(broker.url) as client, client.subscribe("/queue/a") as messages:
            assert [int(message.body) for message in messages.iterate(timeout=0.2)] == list(range(250))
            started = time.monotonic()
            assert messages.receive(timeout=0.05) is None
            assert time.monotonic() - started >= 0.05


def test_nack_when_the_block_raises() -> None:
    with serving_in_thread() as broker:
        delivering(broker, 1)
        with (
            blocking.connect(broker.url) as client,
            client.subscribe("/queue/a", ack="client-individual") as messages,
        ):
            message = messages.receive()
            assert message is not None
            with pytest.raises(ZeroDivisionError), message.process():
                _ = 1 / 0
            with pytest.raises(UsageError, match="acknowledged"):
                message.ack()
        assert broker.seen("NACK")[0].headers == {"id": "a0"}


def test_publisher_confirms_everything() -> None:
    with serving_in_thread() as broker:
        with blocking.connect(broker.url) as client, client.publisher(window=100) as publisher:
            for number in range(5000):
                publisher.send("/queue/a", b"", {"n": number})
                assert publisher.outstanding <= 100
            publisher.flush()
            assert (publisher.confirmed_count, publisher.outstanding) == (5000, 0)
        assert [int(frame.headers["n"]) for frame in broker.seen("SEND")] == list(range(5000))


def test_publisher_raises_what_was_refused() -> None:
    with serving_in_thread("1.1") as broker:
        broker.on["SEND"] = lambda session, frame: (
            session.error("no", frame) if frame.body == b"bad" else session.receipt(frame)
        )
        with blocking.connect(broker.url) as client:
            publisher = client.publisher()
            with pytest.raises(stompbox.BrokerError, match="no"), publisher:
                publisher.send("/queue/a", b"good")
                publisher.send("/queue/a", b"bad")
            assert [frame.body for frame, _ in publisher.failures] == [b"bad"]
            with pytest.raises(UsageError, match="header 'x'"):
                publisher.send("/queue/a", b"", {"x": None})  # type: ignore[dict-item]


def test_publisher_over_lost_connections() -> None:
    with serving_in_thread() as broker:

        def drop_sometimes(session: FakeSession, frame: Frame) -> None:
            if frame.headers["n"] in ("50", "300") and len(session.seen("SEND")) > 1:
                session.drop()
            elif not session.transport.is_closing():
                session.receipt(frame)

        broker.on["SEND"] = drop_sometimes
        with (
            blocking.connect(broker.url, reconnect=AT_ONCE) as client,
            client.publisher(window=20) as publisher,
        ):
            for number in range(600):
                publisher.send("/queue/a", b"", {"n": number})
        assert publisher.confirmed_count == 600
        assert len(broker.sessions) == 3
        assert {int(frame.headers["n"]) for frame in broker.seen("SEND")} == set(range(600))


def test_several_threads_send_and_publish() -> None:
    with serving_in_thread() as broker:
        with blocking.connect(broker.url) as client, client.publisher(window=10) as publisher:

            def work(name: int) -> None:
                for number in range(50):
                    client.send("/queue/a", b"", headers={"by": name, "n": number})
                    publisher.send("/queue/b", b"", {"by": name, "n": number})

            in_threads(4, work)
        for destination in ("/queue/a", "/queue/b"):
            for name in range(4):
                found = [
                    frame.headers["n"]
                    for frame in broker.seen("SEND")
                    if frame.headers["destination"] == destination and frame.headers["by"] == str(name)
                ]
                assert found == [str(number) for number in range(50)]


def test_several_threads_take_from_one_subscription() -> None:
    with serving_in_thread() as broker:
        delivering(broker, 400)
        found: list[tuple[int, bytes]] = []
        with (
            blocking.connect(broker.url) as client,
            client.subscribe("/queue/a", ack="client-individual") as messages,
        ):
            meeting = threading.Barrier(4)

            def work(name: int) -> None:
                first = messages.receive(timeout=5)
                meeting.wait(DEADLINE)  # every thread has got one: none of them hoards
                while first is not None:
                    first.ack()
                    found.append((name, first.body))
                    first = messages.receive(timeout=0.3)

            in_threads(4, work)
            broker.wait(lambda: len(broker.seen("ACK")) == 400)
        assert sorted(int(body) for _, body in found) == list(range(400))
        assert {name for name, _ in found} == {0, 1, 2, 3}


def test_closing_ends_the_calls_of_other_threads() -> None:
    with serving_in_thread() as broker:
        broker.on["SEND"] = lambda session, frame: None
        client = blocking.connect(broker.url).open()
        messages = client.subscribe("/queue/a")
        messages.open()
        told: dict[int, Any] = {}

        def work(number: int) -> None:
            if number == 0:
                told[number] = messages.receive()
            elif number == 1:
                with pytest.raises(ConnectionLost) as caught:
                    client.send("/queue/a")
                told[number] = caught.value.code
            else:
                broker.wait(lambda: broker.seen("SEND"))
                client.close()

        in_threads(3, work)
        assert told[0] is None
        assert told[1] in ("closed", "connection-lost")
        with pytest.raises(ConnectionLost, match="closed"):
            client.send("/queue/a")
        with pytest.raises(ConnectionLost, match="closed"):
            client.publisher().send("/queue/a")
        client.close()


def test_request() -> None:
    with serving_in_thread() as broker:

        def answer(session: FakeSession, frame: Frame) -> None:
            headers = {
                "subscription": "stompbox.requests",
                "message-id": "1",
                "destination": "stompbox.requests",
            }
            session.write(
                Frame(
                    "MESSAGE",
                    {**headers, "request-id": frame.headers["request-id"], "status": "ok"},
                    frame.body,
                )
            )

        broker.on["SEND"] = answer
        with blocking.connect(broker.url) as client:
            assert client.request("describe", '{"a": 1}', {"destinations": "/topic/a"}).json() == {"a": 1}


def test_messages_of_a_lost_connection_are_passed_over() -> None:
    with serving_in_thread() as broker:
        delivering(broker, 5)
        with (
            blocking.connect(broker.url, reconnect=AT_ONCE) as client,
            client.subscribe("/queue/a", ack="client") as messages,
        ):
            first = messages.receive()
            assert first is not None
            client._running().call(_lose(client))
            with pytest.raises(ConnectionLost, match="delivers it again"):
                first.ack()
            again = messages.receive(timeout=5)
            assert again is not None
            assert again.body == b"0"
            again.ack(confirm=True)
        assert len(broker.sessions) == 2


async def _lose(client: blocking.Client) -> None:
    connection = client._inner._link.connection
    assert connection is not None
    connection.abort(ConnectionLost("connection-lost", "unplugged"))
    await connection.closed


def test_refused_and_unreachable() -> None:
    with serving_in_thread() as broker:
        broker.on["CONNECT"] = lambda session, frame: session.error("who are you?", close=True)
        with pytest.raises(stompbox.BrokerError, match="who are you"):
            blocking.connect(broker.url).open()
    with pytest.raises(ConnectionLost):
        blocking.connect("stomp://127.0.0.1:1").open()
    assert threads_of_clients() == []


def test_use_before_and_twice() -> None:
    with serving_in_thread() as broker:
        client = blocking.connect(broker.url)
        with pytest.raises(UsageError, match="with stompbox"):
            client.send("/queue/a")
        with client, pytest.raises(UsageError, match="opened before"):
            client.open()
    with pytest.raises(UsageError, match="url"):
        blocking.connect("nowhere")


def test_heart_beats_do_not_depend_on_the_callers_thread() -> None:
    with serving_in_thread() as broker:
        broker.heart_beat = "0,20"
        with blocking.connect(broker.url, heart_beat=(20, 0)):
            broker.wait(lambda: broker.last.octets.endswith(b"\0\n\n\n"))
        assert [frame.command for frame in broker.frames] == ["CONNECT", "DISCONNECT"]


def test_transaction_by_hand_and_durable_subscription() -> None:
    with serving_in_thread() as broker:
        delivering(broker, 2)
        with blocking.connect(broker.url, client_id="c") as client:
            messages = client.subscribe("/topic/a", ack="client-individual", durable="d")
            messages.open()
            one, two = messages.receive(), messages.receive()
            assert one is not None
            assert two is not None
            transaction = client.transaction()
            transaction.begin()
            transaction.ack(one)
            transaction.nack(two)
            transaction.commit()
            another = client.transaction()
            another.begin()
            another.abort()
            messages.unsubscribe()
            with client.subscribe("/topic/b", durable="e") as other:
                other.delete()
            assert "blocking" in repr(client)
            assert "/topic/b" in repr(other)
            assert client.counters["connections-lost"] == 0
        commands = [frame.command for frame in broker.frames]
        assert commands == [
            *("CONNECT", "SUBSCRIBE", "BEGIN", "ACK", "NACK", "COMMIT", "BEGIN", "ABORT"),
            *("UNSUBSCRIBE", "SUBSCRIBE", "UNSUBSCRIBE", "DISCONNECT"),
        ]
        assert broker.seen("UNSUBSCRIBE")[1].headers["durable-subscription-name"] == "e"


def test_publisher_gets_no_receipts_in_time() -> None:
    with serving_in_thread() as broker:
        broker.on["SEND"] = lambda session, frame: None
        with blocking.connect(broker.url, receipt_timeout=0.02) as client:
            publisher = client.publisher(window=1)
            publisher.send("/queue/a")
            with pytest.raises(ConnectionLost, match="no receipt for any of 1 messages"):
                publisher.send("/queue/a")
