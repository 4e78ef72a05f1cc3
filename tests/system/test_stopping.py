"""SIGTERM: what clients are told, and the time that they have for what is in flight."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from stompbox.server.stopping import SOME, drain
from tests.conformance.script import VERSIONS
from tests.conformance.wire import connected
from tests.conftest import Served
from tests.system.conftest import Start
from tests.system.plain import WITHIN, Plain

LONG = "graceful-shutdown-timeout = 60000\n"


@pytest.fixture
def start(start: Start) -> Start:
    """start(toml) -> a broker that lets its clients finish."""
    return lambda text=LONG: start(text, is_graceful=True)


def consuming(served: Served, *bodies: bytes) -> tuple[Plain, list[str]]:
    """A client that has these messages: and the ids that they are acknowledged by."""
    client = Plain(served.port)
    for body in bodies:
        client.send("SEND", {"destination": "/queue/q", "receipt": "s"}, body)
        assert client.receive().command == "RECEIPT"
    client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "0", "ack": "client-individual"})
    return client, [client.receive().headers["ack"] for _ in bodies]


def said_goodbye(client: Plain) -> bool:
    frame = client.receive()
    return (frame.command, frame.headers["code"]) == ("ERROR", "shutting-down") and client.is_closed()


def test_who_has_nothing_in_flight_is_told_at_once(start: Start) -> None:
    served = start()
    with Plain(served.port) as idle, Plain(served.port, "1.0") as old:
        served.process.send_signal(signal.SIGTERM)
        assert said_goodbye(idle)
        assert said_goodbye(old)
    assert served.process.wait(WITHIN) == 0


def test_who_has_not_logged_in_is_told_at_once(start: Start) -> None:
    """Also while others have something in flight: neither who is silent nor who is in the middle of a CONNECT has."""
    served = start()
    client, (first,) = consuming(served, b"1")
    with client, ExitStack() as stack:
        place = served.host, served.port
        silent, slow = (stack.enter_context(socket.create_connection(place, WITHIN)) for _ in range(2))
        slow.sendall(b"CONNECT\naccept-version:1.2\n")
        opened = stack.enter_context(connected(place, "websocket"))
        with Plain(served.port):  # what came before it is read
            served.process.send_signal(signal.SIGTERM)
            for one in (silent, slow):
                assert b"code:shutting-down" in b"".join(iter(partial(one.recv, 4096), b""))
            assert opened.expect("ERROR").value("code") == "shutting-down" and opened.hear() is None
        client.send("ACK", {"id": first, "receipt": "ack"})
        assert client.receive().headers["receipt-id"] == "ack", "it was waited for"
        assert said_goodbye(client)
    assert served.process.wait(WITHIN) == 0


def test_every_version_on_every_transport_is_told_and_may_finish(start: Start) -> None:
    """One that waits for messages at once; one that has a message acknowledges it, hears the receipt, and is told then."""
    served = start()
    with ExitStack() as stack:
        idle, busy = [], []
        for version in VERSIONS:
            for transport in ("tcp", "websocket"):
                destination = f"/queue/{version}.{transport}"
                for clients, word in ((idle, "idle"), (busy, "busy")):
                    client = stack.enter_context(connected((served.host, served.port), transport))
                    client.log_in(version)
                    client.say(
                        f"SUBSCRIBE\nid:0\ndestination:{destination}.{word}\nack:client\nreceipt:s\n\n\0".encode()
                    )
                    client.expect("RECEIPT")
                    clients.append(client)
                busy[-1].say(f"SEND\ndestination:{destination}.busy\n\nwork\0".encode())
        given = [client.expect("MESSAGE") for client in busy]
        served.process.send_signal(signal.SIGTERM)
        assert all(
            client.expect("ERROR").value("code") == "shutting-down" and client.hear() is None
            for client in idle
        )
        for client, message in zip(busy, given, strict=True):
            id, subscription = message.value("message-id"), message.value("subscription")
            client.say(
                f"ACK\nid:{message.value('ack')}\nmessage-id:{id}\nsubscription:{subscription}\nreceipt:r\n\n\0".encode()
            )
            assert client.expect("RECEIPT").value("receipt-id") == "r"
            assert client.expect("ERROR").value("code") == "shutting-down"
            assert client.hear() is None
    assert served.process.wait(WITHIN) == 0


def test_what_is_in_flight_is_finished(start: Start) -> None:
    served = start()
    client, (first, second) = consuming(served, b"1", b"2")
    with client, Plain(served.port) as idle:
        served.process.send_signal(signal.SIGTERM)
        assert said_goodbye(idle), "the broker is stopping by now"
        client.send("BEGIN", {"transaction": "t"})
        client.send("SEND", {"destination": "/queue/q", "transaction": "t"}, b"result")
        client.send("ACK", {"id": first, "transaction": "t"})
        client.send("COMMIT", {"transaction": "t", "receipt": "commit"})
        assert client.receive().headers["receipt-id"] == "commit", "and nothing new is delivered"
        client.send("ACK", {"id": second, "receipt": "ack"})
        assert client.receive().headers["receipt-id"] == "ack"
        assert said_goodbye(client)
    assert served.process.wait(WITHIN) == 0
    served = start()
    client, _ = consuming(served)
    with client:
        found = client.receive()
        assert (found.body, found.headers["redelivered"]) == (b"result", "false")


def test_a_subscription_meanwhile_is_refused(start: Start) -> None:
    served = start()
    client, _ = consuming(served, b"1")
    with client, Plain(served.port) as idle:
        served.process.send_signal(signal.SIGTERM)
        assert said_goodbye(idle)
        client.send("SUBSCRIBE", {"destination": "/queue/other", "id": "1"})
        assert client.receive().headers["code"] == "shutting-down"
    assert served.process.wait(WITHIN) == 0


def test_the_time_is_limited_and_what_is_left_comes_again(start: Start) -> None:
    served = start("graceful-shutdown-timeout = 300\n")
    client, _ = consuming(served, b"1")
    begun = time.monotonic()
    with client:
        served.process.send_signal(signal.SIGTERM)
        assert said_goodbye(client)
        assert time.monotonic() - begun >= 0.3
    assert served.process.wait(WITHIN) == 0
    assert "with work in flight; connections that have some: 1" in served.log.read_text()
    served = start()
    client, _ = consuming(served)
    with client:
        found = client.receive()
        assert (found.body, found.headers["redelivered"]) == (b"1", "true")


def test_a_second_signal_ends_the_wait(start: Start) -> None:
    served = start()
    client, _ = consuming(served, b"1")
    with client, Plain(served.port) as idle:
        served.process.send_signal(signal.SIGTERM)
        assert said_goodbye(idle)
        served.process.send_signal(signal.SIGTERM)
        assert said_goodbye(client)
    assert served.process.wait(WITHIN) == 0


def test_very_many_are_told_in_turns() -> None:
    """Who finishes what is in flight is served meanwhile."""
    told: list[Any] = []
    most = 0

    def connection() -> Any:
        waiting = SimpleNamespace(holding=None, is_held=False, has_left=False)
        found = SimpleNamespace(
            consumers={}, is_ended=False, upload=None, outgoing=None, pending=SimpleNamespace(size=0), transactions={}, reading=waiting
        )  # fmt: skip
        found.shut = partial(told.append, found)
        return found

    async def others() -> None:
        nonlocal most
        before = 0
        while True:
            await asyncio.sleep(0)
            most, before = max(most, len(told) - before), len(told)

    async def stop() -> None:
        broker: Any = SimpleNamespace(
            connections=[connection() for _ in range(10 * SOME)], acceptors=[], drain=int,
            loop=asyncio.get_running_loop(), configuration=SimpleNamespace(graceful_shutdown_timeout=1000),
        )  # fmt: skip
        beside = asyncio.create_task(others())
        await drain(broker, asyncio.Event())
        beside.cancel()

    asyncio.run(stop())
    assert len(told) == 10 * SOME
    assert 0 < most <= 2 * SOME
