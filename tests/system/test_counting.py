"""persist-delivery-count-before-delivery: what a delivery that ended with the broker has cost the message."""

from __future__ import annotations

import pytest

from tests.conftest import Served
from tests.system.conftest import Start
from tests.system.plain import Plain

BEFORE = "persist-delivery-count-before-delivery = true\n"
RULES = '[[address-setting]]\nmatch = "#"\nmax-delivery-attempts = 3\ndead-letter-address = "dead"\n'


@pytest.fixture
def start(start: Start) -> Start:
    return lambda text: start(text + RULES)


def killed(served: Served) -> None:
    served.process.kill()
    served.process.wait()


def subscribe(client: Plain, destination: str = "/queue/q", **headers: str) -> None:
    client.send(
        "SUBSCRIBE", {"destination": destination, "id": destination, "ack": "client-individual", **headers}
    )


def test_each_broker_that_died_with_a_message_was_an_attempt(start: Start) -> None:
    served = start(BEFORE)
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "/queue/q", "receipt": "1"}, b"poison")
        assert client.receive().command == "RECEIPT"
    for count in (None, "2", "3"):
        with Plain(served.port) as client:
            subscribe(client)
            assert client.receive().headers.get("JMSXDeliveryCount") == count
            killed(served)
        served = start(BEFORE)
    with Plain(served.port) as client:
        subscribe(client)
        subscribe(client, "/queue/dead")
        found = client.receive()
        assert (found.headers["subscription"], found.body) == ("/queue/dead", b"poison")


def test_without_it_only_failures_that_were_seen_count(start: Start) -> None:
    served = start("")
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "/queue/q", "receipt": "1"}, b"poison")
        assert client.receive().command == "RECEIPT"
        subscribe(client)
        client.send("NACK", {"id": client.receive().headers["ack"], "receipt": "nack"})
        frames = [client.receive() for _ in range(2)]
        assert sorted(frame.command for frame in frames) == ["MESSAGE", "RECEIPT"]
    killed(served)
    served = start("")
    with Plain(served.port) as client:
        subscribe(client)
        found = client.receive()
        assert found.headers["redelivered"] == "true"
        assert found.headers["JMSXDeliveryCount"] in ("2", "3"), (
            "2; or 3 where the end of the connection was stored in time"
        )


@pytest.mark.parametrize("prefetch", ["1", "7", "1000"])
def test_nothing_is_lost_or_out_of_order_for_being_counted(start: Start, prefetch: str) -> None:
    served = start(BEFORE)
    with Plain(served.port) as client:
        subscribe(client, **{"prefetch-count": prefetch})
        got = []
        for number in range(300):
            persistent = "true" if number % 5 else "false"
            client.send("SEND", {"destination": "/queue/q", "persistent": persistent}, b"%d" % number)
        while len(got) < 300:
            frame = client.receive()
            got.append(int(frame.body))
            client.send("ACK", {"id": frame.headers["ack"]})
        assert got == list(range(300))
        client.send("DISCONNECT", {"receipt": "bye"})
        assert client.receive().headers["receipt-id"] == "bye"
    killed(served)
    served = start(BEFORE)
    with Plain(served.port) as client:
        subscribe(client)
        client.send("SEND", {"destination": "/queue/q"}, b"end")
        assert client.receive().body == b"end"
