"""A broker that stops by a fault of its own, as clients, supervisors and operators see it: the fault is put in by a transformer."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from stompbox.stomp.frames import Frame
from tests.conftest import STOP_WITHIN, Served
from tests.system.conftest import Start
from tests.system.plain import Plain

FAULT = 70  # exit code
CONFIGURATION = """
[[address]]
name = "break"

[[divert]]
name = "breaking"
address = "break"
forwarding-address = "broken"
transformer = "breaking:transform"

[[address-setting]]
match = "small"
max-size-bytes = "8KiB"
"""
LOSES_A_COMMIT = """
from stompbox.broker.commits import Commits

def gather(self):
    raise IndexError("list index out of range")

def transform(letter):
    Commits._gather = gather
"""
FINE = "def transform(letter): pass"
HAS_A_POISONED_QUEUE = """
from stompbox.broker.queues.queue import Queue

dispatch = Queue.dispatch

def poisoned(self, *given):
    if self.name == "poisoned" and self.bindings and self.backlog.count and not self.is_paused:
        raise IndexError("list index out of range")
    return dispatch(self, *given)

Queue.dispatch = poisoned

def transform(letter):
    pass
"""


@pytest.fixture
def start(start: Start, tmp_path: Path) -> Start:
    """start(module) -> a broker on the same data each time, with this module as transformer."""

    def begin(module: str) -> Served:
        folder = tmp_path / "broker"
        folder.mkdir(exist_ok=True)
        (folder / "breaking.py").write_text(textwrap.dedent(module))
        return start(CONFIGURATION)

    return begin


def send(client: Plain, destination: str, receipt: str) -> None:
    client.send("SEND", {"destination": destination, "receipt": receipt}, receipt.encode())


def stored(client: Plain, destination: str, receipt: str) -> None:
    send(client, destination, receipt)
    assert client.receive().headers["receipt-id"] == receipt


def drained(served: Served, destination: str) -> list[bytes]:
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": destination, "id": "1"})
        client.send("SEND", {"destination": destination, "persistent": "false"}, b"end")
        found = []
        while (frame := client.receive()).body != b"end":
            found.append(frame.body)
        return found


def gone(client: Plain) -> bool:
    """Closed without a word, or cut."""
    try:
        return client.is_closed()
    except ConnectionError:
        return True


def test_a_lost_commit_stops_the_broker_and_nothing_of_it_is_confirmed(
    start: Start,
) -> None:
    first = start(LOSES_A_COMMIT)
    with Plain(first.port) as one, Plain(first.port) as other:
        stored(other, "/queue/q", "before")
        send(one, "/queue/break", "lost")
        assert gone(one)
        assert gone(other)
    assert first.process.wait(STOP_WITHIN) == FAULT
    log = first.log.read_text()
    assert log.count("CRITICAL") == 1
    assert "stopped by a fault of its own" in log
    assert "(broker-stopped)" in log
    assert "IndexError: list index out of range" in log
    assert "in gather" in log, "the traceback"
    second = start(FINE)
    assert drained(second, "/queue/q") == [b"before"]
    assert drained(second, "/queue/break") == []


def test_messages_for_later_that_wait_in_the_log_lose_nothing_of_others(
    start: Start,
) -> None:
    """A full address, an earlier message that is not acknowledged, messages for later, and another client with receipts: kill -9."""
    first = start(FINE)
    confirmed = []
    with Plain(first.port) as worker, Plain(first.port) as sender:
        worker.send("SUBSCRIBE", {"destination": "/queue/small", "id": "1", "ack": "client-individual"})
        stored(sender, "/queue/small", "first")
        assert worker.receive().body == b"first"
        for number in range(20):
            headers = {"destination": "/queue/small", "AMQ_SCHEDULED_DELAY": "300", "receipt": str(number)}
            sender.send("SEND", headers, b"x" * 1000)
            assert sender.receive().headers["receipt-id"] == str(number)
        worker.socket.setblocking(False)
        came = 0
        while came < 20:  # all are due; receipts are given meanwhile
            confirmed.append(f"c{len(confirmed)}")
            stored(sender, "/queue/other", confirmed[-1])
            came += frames_so_far(worker)
    first.process.kill()
    first.process.wait(STOP_WITHIN)
    second = start(FINE)
    assert [body.decode() for body in drained(second, "/queue/other")] == confirmed
    assert len(drained(second, "/queue/small")) == 21


def frames_so_far(client: Plain) -> int:
    """How many have come, without waiting."""
    try:
        data = client.socket.recv(1 << 20)
    except BlockingIOError:
        return 0
    assert data, "the broker closed the connection"
    return sum(isinstance(frame, Frame) for frame in client.decoder.receive(data))


def test_a_queue_that_stops_the_broker_twice_starts_paused(start: Start, tmp_path: Path) -> None:
    first = start(HAS_A_POISONED_QUEUE)
    with Plain(first.port) as client:
        stored(client, "/queue/poisoned", "poison")
        stored(client, "/queue/other", "fine")
    first.stop()
    for _ in range(2):
        served = start(HAS_A_POISONED_QUEUE)
        with Plain(served.port) as client:
            client.send("SUBSCRIBE", {"destination": "/queue/poisoned", "id": "1", "ack": "client"})
            assert gone(client)
        assert served.process.wait(STOP_WITHIN) == FAULT
        assert "at queue 'poisoned'" in served.log.read_text()
    assert (tmp_path / "data" / "stompbox.fault").stat().st_mode & 0o077 == 0
    third = start(HAS_A_POISONED_QUEUE)
    with Plain(third.port) as client:
        client.send(
            "SUBSCRIBE", {"destination": "/queue/poisoned", "id": "1", "ack": "client", "receipt": "s"}
        )
        assert client.receive().headers["receipt-id"] == "s"
        stored(client, "/queue/poisoned", "is taken")
        assert drained(third, "/queue/other") == [b"fine"]
    assert "queue 'poisoned' starts paused" in third.log.read_text()
    assert third.stop() == 0
