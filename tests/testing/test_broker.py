"""The broker that tests of others stand on: what it holds, what it saw, faults, time; from threads and from coroutines."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stomp

import stompbox
from stompbox.errors import ConfigError, ConnectionLost, Refused, StompboxError, UsageError
from stompbox.testing import Broker, inside

WITHIN = 10.0  # seconds for anything


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


# Beginning and end


def test_it_is_ready_within_50_ms() -> None:
    """The best of ten, so that what else the machine does is not measured; the first has had the imports."""
    times = []
    for _ in range(10):
        began = time.perf_counter()
        with Broker() as broker, socket.create_connection((broker.host, broker.port), timeout=WITHIN):
            times.append(time.perf_counter() - began)
    assert min(times) < 0.050, times


def test_it_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    with Broker() as broker, broker.client() as client:
        client.send("/queue/a", b"1")
    assert set(threading.enumerate()) - before == set()


def test_two_know_nothing_of_each_other() -> None:
    with Broker() as one, Broker() as other:
        assert one.port != other.port
        with one.client() as client:
            client.send("/queue/a", b"1")
        assert [each.body for each in one.messages("/queue/a")] == [b"1"]
        assert other.messages("/queue/a") == [] and other.frames() == []


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"data": "somewhere"}, "config has 'data'"),
        ({"memory": False}, "config has 'memory', which cannot be meant here: .*; allowed is True"),
        ({"fronts": 2}, "config has 'fronts', .*; allowed is 0"),
        ({"cluster": {"name": "c"}}, "config has 'cluster', .*; leave it out"),
        ({"admin": {"listen": "127.0.0.1:0"}}, "config has 'admin'"),
    ],
)
def test_what_a_broker_in_memory_cannot_obey_is_refused(config: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Broker(config)


def test_what_changes_nothing_may_be_said() -> None:
    with Broker({"memory": True, "fronts": 0, "admin": {"enabled": False}}, frozen=False) as broker:
        assert broker.port
    with pytest.raises(UsageError, match="frozen is 'no'"):
        Broker(frozen="no")  # type: ignore[arg-type]


def test_its_configuration_is_that_of_the_file() -> None:
    config = {"user": [{"name": "ann", "password": "secret"}]}
    with Broker(config) as broker:
        with pytest.raises(StompboxError), broker.client("ann", "wrong"):
            pass
        with broker.client("ann", "secret"):
            assert [each.user for each in broker.connections] == ["ann"]


def test_a_wrong_configuration_is_refused_by_key() -> None:
    with pytest.raises(ConfigError, match="max-bdy-size"), Broker({"max-bdy-size": 1}):
        pass


def test_one_that_does_not_run_says_so() -> None:
    broker = Broker()
    for use in (
        lambda: broker.url,
        lambda: broker.messages("/queue/a"),
        broker.fill_disk,
        lambda: broker.advance(1),
    ):
        with pytest.raises(UsageError, match="does not run"):
            use()
    with broker, pytest.raises(UsageError, match="runs already"):
        broker.start()


# What it has and what it saw


def test_messages_are_what_a_queue_holds(broker: Broker) -> None:
    with broker.client() as client:
        for number in range(3):
            client.send("/queue/a", str(number), headers={"number": number})
        with client.subscribe("/queue/a", ack="client-individual") as messages:
            first = messages.receive(WITHIN)
            assert first is not None
            broker.wait_until(lambda: any(each.is_delivering for each in broker.messages("/queue/a")))
            first.ack(confirm=True)
            assert [(each.offset, each.text) for each in broker.messages("/queue/a")] == [(1, "1"), (2, "2")]
        assert [each.headers["number"] for each in broker.messages("/queue/a")] == ["1", "2"]
        assert not any(each.is_delivering for each in broker.messages("/queue/a"))


def test_a_topic_holds_nothing(broker: Broker) -> None:
    with pytest.raises(UsageError, match="topic"):
        broker.messages("/topic/news")


def test_a_large_body_is_shown_whole(broker: Broker) -> None:
    body = bytes(range(256)) * 4096
    with broker.client() as client:
        client.send("/queue/a", body)
    assert [each.body for each in broker.messages("/queue/a")] == [body]
    assert [each.body for each in broker.sent("/queue/a")] == [body]


def test_what_was_sent_and_delivered_is_known_when_it_is_gone(broker: Broker) -> None:
    with broker.client() as client, client.subscribe("/topic/news") as messages:
        client.send("/topic/news", "extra", headers={"colon:": "a:b"})
        assert messages.receive(WITHIN) is not None
    (sent,) = broker.sent("/topic/news")
    (delivered,) = broker.delivered("/topic/news")
    assert (
        (sent.text, sent.headers["colon:"])
        == (delivered.text, delivered.headers["colon:"])
        == ("extra", "a:b")
    )
    assert broker.sent("/topic/other") == []
    broker.clear()
    assert broker.sent() == broker.delivered() == []


def test_a_transaction_has_sent_when_it_was_committed(broker: Broker) -> None:
    with broker.client() as client:
        with client.transaction() as transaction:
            transaction.send("/queue/a", b"1")
            broker.wait_until(lambda: broker.frames("received", "SEND"))
            assert broker.sent() == []
        assert [each.body for each in broker.sent()] == [b"1"]
        with pytest.raises(ZeroDivisionError), client.transaction() as transaction:
            transaction.send("/queue/a", b"2")
            raise ZeroDivisionError
        broker.wait_until(lambda: broker.frames("received", "ABORT"))
    assert [each.body for each in broker.sent()] == [b"1"]


def test_no_passcode_is_in_the_record() -> None:
    with (
        Broker({"user": [{"name": "ann", "password": "hush-hush"}]}) as broker,
        broker.client("ann", "hush-hush"),
    ):
        (frame,) = [each for each in broker.frames("received") if each.command in ("CONNECT", "STOMP")]
    assert frame.headers["login"] == "ann" and "hush-hush" not in repr(frame)


def test_a_malformed_frame_ends_the_record_and_its_error_is_in_it(broker: Broker) -> None:
    with socket.create_connection((broker.host, broker.port), timeout=WITHIN) as raw:
        raw.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0SEND\nno colon here\n\n\0")
        broker.wait_until(broker.errors)
    assert [each.command for each in broker.frames("received")] == ["CONNECT"]


# Waiting


def test_a_thread_waits_for_what_another_does(broker: Broker) -> None:
    def work() -> None:
        with broker.client() as client:
            client.send("/queue/a", b"1")

    thread = threading.Thread(target=work)
    thread.start()
    assert [each.body for each in broker.wait_for_sent("/queue/a", within=WITHIN)] == [b"1"]
    thread.join()


def test_who_waits_in_vain_is_told_what_there_was(broker: Broker) -> None:
    with broker.client() as client:
        client.send("/queue/a", b"1")
        with pytest.raises(TimeoutError, match=r"received SEND /queue/a"):
            broker.wait_for_sent("/queue/b", within=0.01)


def test_a_coroutine_waits_while_its_loop_goes_on() -> None:
    async def main() -> list[bytes]:
        async with Broker() as broker, broker.connect() as client, client.subscribe("/queue/a") as messages:
            waiting = asyncio.create_task(broker.until_delivered("/queue/a", 2, WITHIN))
            for number in (b"1", b"2"):
                await client.send("/queue/a", number)
            found = [each.body for each in await waiting]
            assert [await messages.receive(WITHIN) is not None for _ in found] == [True, True]
            with pytest.raises(TimeoutError, match="not so within"):
                await broker.until_sent("/queue/b", within=0.01)
            return found

    assert asyncio.run(main()) == [b"1", b"2"]


def test_a_client_of_others_is_seen_as_well(broker: Broker) -> None:
    client = stomp.Connection12([(broker.host, broker.port)])
    client.connect(wait=True)
    client.send("/queue/a", "from elsewhere")
    assert [each.text for each in broker.wait_for_sent("/queue/a", within=WITHIN)] == ["from elsewhere"]
    client.disconnect()


def test_a_websocket_is_seen_and_stalled_as_well(broker: Broker) -> None:
    with stompbox.blocking.connect(f"ws://{broker.host}:{broker.port}/stomp", reconnect=None) as client:
        client.send("/queue/a", b"1")
        assert [each.body for each in broker.sent("/queue/a")] == [b"1"]
        (number,) = [each.number for each in broker.connections]
        with broker.stall(number), pytest.raises(StompboxError):
            client.send("/queue/a", b"2", timeout=0.2)


# Faults


def test_a_dropped_connection_is_lost_to_its_client(broker: Broker) -> None:
    with broker.client() as one, broker.client() as other:
        first, second = [each.number for each in broker.connections]
        assert broker.drop(first) == 1
        with pytest.raises(ConnectionLost):
            one.send("/queue/a", b"1")
        other.send("/queue/a", b"2")
        assert [each.number for each in broker.connections] == [second]
        assert broker.drop() == 1
    with pytest.raises(UsageError, match="no connection"):
        broker.drop(first)


def test_a_stalled_connection_is_obeyed_and_hears_nothing(broker: Broker) -> None:
    with broker.client() as client, broker.client() as other:
        first, _ = [each.number for each in broker.connections]
        fault = broker.stall(first)
        with pytest.raises(StompboxError, match=r"receipt|0\.2"):
            client.send("/queue/a", b"1", timeout=0.2)
        assert [each.body for each in broker.messages("/queue/a")] == [b"1"]
        other.send("/queue/a", b"2")
        fault.end()
        client.send("/queue/a", b"3")
    assert [each.body for each in broker.messages("/queue/a")] == [b"1", b"2", b"3"]


def test_what_was_held_comes_in_its_order(broker: Broker) -> None:
    with broker.client() as client, client.subscribe("/topic/a") as messages:
        with broker.stall(), broker.stall():
            for number in range(100):
                client.send("/topic/a", str(number), confirm=False)
            broker.wait_for_delivered("/topic/a", 100, WITHIN)
            assert messages.receive(0.05) is None
        found = [messages.receive(WITHIN) for _ in range(100)]
    assert [each.text for each in found if each] == [str(number) for number in range(100)]


def test_what_is_held_is_seen_however_much_it_is(broker: Broker) -> None:
    with broker.client() as client, client.subscribe("/topic/a") as messages:
        with broker.stall():
            client.send("/topic/a", b"x" * 50_000, confirm=False)
            (one,) = broker.wait_for_delivered("/topic/a", 1, WITHIN)
            assert one.body == b"x" * 50_000
            assert messages.receive(0.05) is None
        found = messages.receive(WITHIN)
        assert found is not None and found.body == one.body


def test_what_a_stalled_client_has_not_read_comes_again(broker: Broker) -> None:
    """Although it is a subscription that acknowledges by itself: the system has not taken the message."""
    with broker.client() as client, broker.client() as sender, client.subscribe("/queue/a"):
        first, _ = [each.number for each in broker.connections]
        broker.stall(first)
        sender.send("/queue/a", b"1")
        broker.wait_for_delivered("/queue/a", 1, WITHIN)
        broker.drop(first)
        with sender.subscribe("/queue/a") as messages:
            again = messages.receive(WITHIN)
            assert again is not None and again.is_redelivered


def test_a_fault_outlives_neither_its_end_nor_its_broker(broker: Broker) -> None:
    fault = broker.stall()
    fault.end()
    fault.end()
    with broker.client() as client:
        client.send("/queue/a", b"1", timeout=WITHIN)
    later = broker.fill_disk()
    broker.stop()
    later.end()
    assert "ended" in repr(fault)


def test_those_who_come_are_turned_away_while_they_are_refused(broker: Broker) -> None:
    with broker.client() as client:
        with broker.refuse_connects():
            with pytest.raises(StompboxError), broker.client():
                pass
            client.send("/queue/a", b"1")
        with broker.client():
            assert len(broker.connections) == 2


def test_a_refused_destination_gets_an_error(broker: Broker) -> None:
    with broker.client() as client:
        client.send("/queue/a", b"1")
        with broker.refuse("/queue/a"), pytest.raises(Refused, match="the test refuses"):
            client.send("/queue/a", b"2")
    with broker.client() as client:
        client.send("/queue/a", b"3")
    assert [each.body for each in broker.messages("/queue/a")] == [b"1", b"3"]


def test_a_full_disk_refuses_and_works_again_at_once(broker: Broker) -> None:
    with broker.client() as client:
        client.send("/queue/a", b"1")
        with broker.fill_disk(), pytest.raises(StompboxError, match="disk"):
            client.send("/queue/a", b"2")
    with broker.client() as client:
        client.send("/queue/a", b"3")
    assert [each.body for each in broker.messages("/queue/a")] == [b"1", b"3"]


def test_a_restart_keeps_what_was_stored_and_its_port(broker: Broker) -> None:
    port = broker.port
    with broker.client() as client:
        client.send("/queue/a", b"stored", headers={"persistent": "true"})
        broker.restart()
        assert broker.port == port
        with pytest.raises(StompboxError):
            client.send("/queue/a", b"lost")
    assert [each.body for each in broker.messages("/queue/a")] == [b"stored"]
    with broker.client() as client, client.subscribe("/queue/a") as messages:
        assert messages.receive(WITHIN) is not None


# Time


@pytest.mark.parametrize("frozen", [True, False])
def test_a_message_expires_when_time_has_gone_on(frozen: bool) -> None:
    config = {"address-setting": [{"match": "#", "expiry-address": "late"}]}
    with Broker(config, frozen=frozen) as broker, broker.client() as client:
        client.send("/queue/a", b"1", headers={"expires": round(broker.now() * 1000) + 3_600_000})
        broker.advance(3599 - 60 * (not frozen))
        assert len(broker.messages("/queue/a")) == 1
        broker.advance(2 + 60 * (not frozen))
        assert broker.messages("/queue/a") == []
        assert [each.body for each in broker.messages("/queue/late")] == [b"1"]


def test_frozen_time_stands_still() -> None:
    with Broker(frozen=True) as broker:
        before = broker.now()
        broker.advance(0.25)
        assert broker.now() == pytest.approx(before + 0.25)
        with pytest.raises(UsageError, match="from 0 on"):
            broker.advance(-1)


def test_a_redelivery_has_its_delay() -> None:
    config = {
        "address-setting": [
            {
                "match": "#",
                "redelivery-delay": 60_000,
                "max-delivery-attempts": 2,
                "dead-letter-address": "dead",
            }
        ]
    }
    with Broker(config, frozen=True) as broker, broker.client() as client:
        with client.subscribe("/queue/a", ack="client-individual") as messages:
            client.send("/queue/a", b"1")
            first = messages.receive(WITHIN)
            assert first is not None
            first.nack(confirm=True)
            broker.advance(59)
            assert messages.receive(0.01) is None
            broker.advance(1)
            again = messages.receive(WITHIN)
            assert again is not None and again.is_redelivered
            again.nack(confirm=True)
        assert [each.body for each in broker.messages("/queue/dead")] == [b"1"]


def test_a_schedule_sends_at_each_of_its_times() -> None:
    with Broker(frozen=True) as broker, broker.client() as client:
        client.send("/queue/a", b"1", headers={"AMQ_SCHEDULED_PERIOD": 60_000, "AMQ_SCHEDULED_REPEAT": 9})
        broker.advance(5 * 60)
        assert len(broker.messages("/queue/a")) == 5
        client.send("/queue/b", b"2", headers={"AMQ_SCHEDULED_DELAY": 86_400_000})
        broker.advance(86_399)
        assert broker.messages("/queue/b") == [] and len(broker.messages("/queue/a")) == 10
        broker.advance(1)
        assert [each.body for each in broker.messages("/queue/b")] == [b"2"]


# --- what cannot be meant ------------------------------------------------------------------------------------------------------


WRONG: list[tuple[Callable[[Broker], object], str]] = [
    (lambda broker: broker.messages(None), "destination is None"),  # type: ignore[arg-type]
    (
        lambda broker: broker.messages("/queue/*.new"),
        "destination is '/queue/*.new'; allowed is one without wildcards",
    ),
    (lambda broker: broker.sent(""), "destination is ''"),
    (lambda broker: broker.delivered(5), "destination is 5"),  # type: ignore[arg-type]
    (lambda broker: broker.refuse("/queue/#"), "destination is '/queue/#'; allowed is one without wildcards"),
    (lambda broker: broker.frames("sideways"), "way is 'sideways'; allowed are received, sent"),  # type: ignore[arg-type]
    (lambda broker: broker.frames("sent", "message"), "command is 'message'; allowed are ABORT, ACK, BEGIN"),
    (lambda broker: broker.advance(-1), "seconds is -1; allowed is a number from 0 on"),
    (lambda broker: broker.advance(float("nan")), "seconds is nan"),
    (lambda broker: broker.advance("1"), "seconds is '1'"),  # type: ignore[arg-type]
    (lambda broker: broker.wait_until(bool, within="1"), "within is '1'"),  # type: ignore[arg-type]
    (lambda broker: broker.wait_for_sent("/queue/a", count="1"), "count is '1'; allowed is a whole number"),  # type: ignore[arg-type]
    (lambda broker: broker.wait_for_delivered("/queue/a", count=1.5), "count is 1.5"),  # type: ignore[arg-type]
    (lambda broker: Broker(record=-1), "record is -1"),
    (lambda broker: Broker(None), "config is None; allowed is a mapping"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("asked", "text"), WRONG, ids=[text for _, text in WRONG])
def test_what_cannot_be_meant_is_named(asked: Callable[[Broker], object], text: str) -> None:
    with Broker() as broker, pytest.raises(UsageError) as caught:
        asked(broker)
    assert caught.value.message.startswith(text)


def test_a_queue_of_very_many_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "PORTION", 7)
    with Broker({"global-max-size": "64KiB"}) as broker, broker.client() as client:
        client.send_many("/queue/a", (b"%08d" % number + b"x" * 1000 for number in range(300)))
        assert [int(message.body[:8]) for message in broker.messages("/queue/a")] == [*range(300)]


def test_a_broker_that_begins_again_has_seen_nothing() -> None:
    broker = Broker()
    for _ in range(2):
        with broker, broker.client() as client:
            client.send("/queue/a", b"1")
            assert len(broker.sent()) == 1
