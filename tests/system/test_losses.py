"""What becomes of messages that consumers fail at, with the settings that nobody changed, and what the log says of it."""

from __future__ import annotations

import time

from tests.conftest import Served
from tests.system.conftest import Start
from tests.system.plain import WITHIN, Plain


def send(served: Served, count: int, destination: str = "/queue/q") -> None:
    with Plain(served.port) as client:
        for number in range(count):
            client.send(
                "SEND",
                {"destination": destination, "receipt": str(number), "persistent": "true"},
                b"%d" % number,
            )
            assert client.receive().command == "RECEIPT"


def subscribed(served: Served, destination: str = "/queue/q") -> Plain:
    client = Plain(served.port)
    client.send("SUBSCRIBE", {"destination": destination, "id": "0", "ack": "client-individual"})
    return client


def warnings(served: Served, word: str, count: int = 1) -> list[str]:
    """Lines of the log with the word in them, once there are so many."""
    deadline = time.monotonic() + WITHIN
    while True:
        found = [line for line in served.log.read_text().splitlines() if "WARNING" in line and word in line]
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, served.log.read_text()


def test_a_consumer_that_dies_again_and_again_loses_nothing(start: Start) -> None:
    served = start()
    send(served, 87)
    for life in range(10):
        with subscribed(served) as client:
            frames = [client.receive() for _ in range(87)]
        assert [frame.headers.get("JMSXDeliveryCount", "1") for frame in frames] == [
            str(life + 1),
            *["1"] * 86,
        ]
        assert {frame.headers["redelivered"] for frame in frames} == {"true" if life else "false"}
    with subscribed(served) as client, subscribed(served, "/queue/DLQ") as dead:
        assert sorted(int(client.receive().body) for _ in range(86)) == list(range(1, 87))
        found = dead.receive()
        assert (found.body, found.headers["dead-letter-reason"]) == (b"0", "max-delivery-attempts")
    (line,) = warnings(served, "max-delivery-attempts")
    assert "queue 'q': 1 message sent to the dead letter address" in line


def test_a_burst_is_one_line(start: Start) -> None:
    served = start('[[address-setting]]\nmatch = "#"\ndead-letter-address = ""\n')
    send(served, 300)
    with subscribed(served) as client:
        for _ in range(300):
            client.send("NACK", {"id": client.receive().headers["ack"], "requeue": "false"})
        client.send("DISCONNECT", {"receipt": "bye"})
        assert client.receive().command == "RECEIPT"
    lines = warnings(served, "rejected")
    served.stop()
    lines = warnings(served, "rejected")
    assert len(lines) <= 2
    assert sum(int(line.split("'q': ")[1].split()[0]) for line in lines) == 300
    assert all("dropped (rejected)" in line for line in lines)


def test_what_expires_without_an_address_to_go_to_is_told_of(start: Start) -> None:
    served = start()
    with Plain(served.port) as client:
        for number in range(5):
            client.send("SEND", {"destination": "/queue/q", "expiration": "1", "receipt": str(number)}, b"x")
            assert client.receive().command == "RECEIPT"
    assert "dropped (expired)" in warnings(served, "expired")[0]


def test_what_a_full_address_drops_is_told_of_with_the_count(start: Start) -> None:
    served = start('[[address-setting]]\nmatch = "q"\naddress-full-policy = "DROP"\nmax-size-messages = 2\n')
    send(served, 7)
    served.stop()
    found = warnings(served, "queue 'q'")
    assert sum(int(line.split("'q': ")[1].split()[0]) for line in found) == 5


def test_no_delay_keeps_others(start: Start) -> None:
    served = start(
        '[[address-setting]]\nmatch = "q"\nredelivery-delay = 600000\nredelivery-collision-avoidance-factor = 0.5\n'
    )
    send(served, 40)
    with subscribed(served) as client:
        for frame in [client.receive() for _ in range(40)]:
            client.send("NACK", {"id": frame.headers["ack"]})
        client.send("SEND", {"destination": "/queue/q"}, b"another")
        assert client.receive().body == b"another"


def test_delays_are_spread(start: Start) -> None:
    served = start(
        '[[address-setting]]\nmatch = "q"\nredelivery-delay = 1500\nredelivery-collision-avoidance-factor = 0.9\n'
    )
    send(served, 40)
    with subscribed(served) as client:
        frames = [client.receive() for _ in range(40)]
        started = time.monotonic()
        for frame in frames:
            client.send("NACK", {"id": frame.headers["ack"]})
        came = []
        for _ in range(40):
            client.receive()
            came.append(time.monotonic() - started)
    assert max(came) - min(came) > 0.2, "they would come within some milliseconds without the factor"


def test_the_end_of_a_broker_is_no_attempt(start: Start) -> None:
    served = start('[[address-setting]]\nmatch = "#"\nmax-delivery-attempts = 2\n')
    send(served, 1)
    for life in range(4):
        with subscribed(served) as client:
            assert client.receive().headers.get("JMSXDeliveryCount", "1") == str(life + 1)
            served.stop()
        served = start('[[address-setting]]\nmatch = "#"\nmax-delivery-attempts = 2\n')


def test_attempts_outlive_the_broker(start: Start) -> None:
    rule = '[[address-setting]]\nmatch = "#"\nmax-delivery-attempts = 2\n'
    served = start(rule)
    send(served, 2)
    with subscribed(served) as client:
        assert [client.receive().body, client.receive().body] == [b"0", b"1"]
    served.stop()
    served = start(rule)
    with subscribed(served) as client:
        assert [client.receive().headers["redelivered"] for _ in range(2)] == ["true", "true"]
    with subscribed(served) as client, subscribed(served, "/queue/DLQ") as dead:
        assert (client.receive().body, dead.receive().body) == (b"1", b"0")
