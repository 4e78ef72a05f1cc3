"""Each call to the disk of a whole broker fails once, in turn: who got a RECEIPT has what it says, who got an ERROR can do it again.

A broker in this process plays the same short story again and again, another call failing in each run; then another broker is
started on what is left, with a disk that works. `make soak` leaves out no call.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stompbox.config import Configuration, load
from stompbox.errors import StoreError
from stompbox.server import disk as server_disk
from stompbox.server.run import start, stop
from stompbox.store import schema
from tests.crash.disk import Disk
from tests.system.plain import Plain

IS_LONG = bool(os.environ.get("SOAK"))
EVERY = 1 if IS_LONG else 9  # of the reads and writes
MESSAGES = 8
TAKEN = 5
QUEUE, OTHER, TOPIC = "/queue/q", "/queue/other", "/topic/news"


@dataclass
class Story:
    """What the clients were told."""

    confirmed: dict[str, set[bytes]] = field(default_factory=lambda: {QUEUE: set(), OTHER: set(), TOPIC: set()})
    refused: list[str] = field(default_factory=list)  # the codes of ERROR frames
    done: set[bytes] = field(default_factory=set)  # acknowledged with a RECEIPT

    def play(self, port: int) -> None:
        """STOMP 1.1, where an ERROR does not end the connection."""
        with Plain(port, "1.1", {"client-id": "anna"}) as client:
            self.durable(client)
            for number in range(MESSAGES):
                self.send(client, QUEUE, b"q%d" % number)
                self.send(client, TOPIC, b"t%d" % number)
            taken = self.take(client)
            self.acknowledge(client, taken[:2])
            if len(taken) > 2:
                self.exchange(client, taken[2])

    def durable(self, client: Plain) -> None:
        headers = {"destination": TOPIC, "id": "news", "durable-subscription-name": "news", "ack": "client", "prefetch-count": "1"}
        client.send("SUBSCRIBE", headers | {"receipt": "s"})
        assert self.answered(client, "s"), self.refused
        client.send("UNSUBSCRIBE", {"id": "news", "receipt": "u"})
        assert self.answered(client, "u"), self.refused

    def answered(self, client: Plain, receipt: str) -> bool:
        """Whether it came to a RECEIPT."""
        while (frame := client.receive()).headers.get("receipt-id") != receipt:
            assert frame.command == "MESSAGE", frame
        if frame.command == "ERROR":
            self.refused.append(frame.headers["code"])
        return frame.command == "RECEIPT"

    def send(self, client: Plain, destination: str, body: bytes) -> None:
        """Again, until it is confirmed: what was refused is not there twice."""
        for attempt in range(100):
            receipt = f"{body.decode()}-{attempt}"
            client.send("SEND", {"destination": destination, "receipt": receipt}, body)
            if self.answered(client, receipt):
                self.confirmed[destination].add(body)
                return
        raise AssertionError(f"refused 100 times: {self.refused}")

    def take(self, client: Plain) -> list[tuple[bytes, str]]:
        headers = {"destination": QUEUE, "id": "q", "ack": "client-individual", "prefetch-count": str(TAKEN)}
        client.send("SUBSCRIBE", headers)
        frames = [client.receive() for _ in range(TAKEN)]
        return [(frame.body, frame.headers["message-id"]) for frame in frames]

    def acknowledge(self, client: Plain, taken: list[tuple[bytes, str]]) -> None:
        for body, message in taken:
            client.send("ACK", {"message-id": message, "subscription": "q", "receipt": body.decode()})
            assert self.answered(client, body.decode()), "an acknowledgement waits until it can be stored"
            self.done.add(body)

    def exchange(self, client: Plain, taken: tuple[bytes, str]) -> None:
        """One message for two others, or not at all."""
        body, message = taken
        client.send("BEGIN", {"transaction": "t"})
        client.send("ACK", {"message-id": message, "subscription": "q", "transaction": "t"})
        client.send("SEND", {"destination": OTHER, "transaction": "t"}, b"x")
        client.send("SEND", {"destination": TOPIC, "transaction": "t"}, b"y")
        client.send("COMMIT", {"transaction": "t", "receipt": "t"})
        if self.answered(client, "t"):
            self.done.add(body)
            self.confirmed[OTHER].add(b"x")
            self.confirmed[TOPIC].add(b"y")

    def left(self, destination: str) -> set[bytes]:
        return self.confirmed[destination] - (self.done if destination == QUEUE else set())


def configuration(folder: Path) -> Configuration:
    return load(None, {}, {"data": str(folder / "data"), "admin.listen": "off", "listen": ["tcp://127.0.0.1:0"]})


async def during(folder: Path, work: Callable[[int], None]) -> None:
    """A broker for as long as the work takes, in another thread. Raises StoreError when it cannot start."""
    broker, servers, urls = await start(configuration(folder))
    try:
        port = int(urls[0].rpartition(":")[2])
        await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(None, work, port), 60)
    finally:
        with suppress(StoreError):  # that of closing the store; all that matters is on the disk or not
            await stop(broker, servers)


def found(port: int) -> dict[str, list[bytes]]:
    """What another broker has in each place, in order."""
    there = {}
    with Plain(port, "1.1", {"client-id": "anna"}) as client:
        for destination, more in ((QUEUE, {}), (OTHER, {}), (TOPIC, {"durable-subscription-name": "news"})):
            client.send("SUBSCRIBE", {"destination": destination, "id": destination, "ack": "client", **more})
            client.send("SEND", {"destination": destination, "persistent": "false"}, b"end")
            bodies = []
            while (frame := client.receive()).body != b"end":
                assert frame.headers["redelivered"] == "true", frame
                bodies.append(frame.body)
            there[destination] = bodies
    return there


def told(folder: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Story:
    """The story as it went on this disk. A broker that could not start is started again."""
    story = Story()
    with monkeypatch.context() as patched:
        patched.setattr(schema, "connect", disk.connect)
        try:
            asyncio.run(during(folder, story.play))
        except StoreError as error:
            assert disk.failed and str(folder) in error.message
            asyncio.run(during(folder, story.play))
    return story


def check(folder: Path, story: Story, disk: Disk) -> None:
    there: dict[str, list[bytes]] = {}
    asyncio.run(during(folder, lambda port: there.update(found(port))))
    for destination in (QUEUE, OTHER, TOPIC):
        assert sorted(there[destination]) == sorted(story.left(destination)), (destination, disk.failed, story.refused)
    assert there[QUEUE] == sorted(there[QUEUE]), "in order"
    assert [body for body in there[TOPIC] if body != b"y"] == [b"t%d" % number for number in range(MESSAGES)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_disk, "RETRY_FIRST", 0.001)


def calls(folder: Path, monkeypatch: pytest.MonkeyPatch, kinds: str) -> Iterator[int]:
    disk = Disk(f"whole-broker-{kinds}")
    story = told(folder, disk, monkeypatch)
    assert story.refused == []
    check(folder, story, disk)
    numbers = [number for number, kind in enumerate(disk.kinds, 1) if kind in kinds.split()]
    assert numbers
    yield from numbers[::EVERY] if kinds in ("read", "write") else numbers


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what SQLite swallows, apsw tells Python
@pytest.mark.parametrize(
    ("kinds", "fault", "codes"),
    [
        ("sync", "", {"io-error"}),
        ("open delete truncate", "", {"io-error", "data-not-writable"}),
        ("read", "", {"io-error"}),
        ("write", "", {"io-error"}),
        ("write", "full", {"disk-full"}),
        ("write", "read-only", {"data-not-writable"}),
    ],
    ids=["sync", "open, delete, truncate", "read", "write", "write, disk full", "write, read-only"],
)
def test_a_broker_survives_the_failure_of_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: str, fault: str, codes: set[str]
) -> None:
    refused: list[str] = []
    for number in calls(tmp_path / "whole", monkeypatch, kinds):
        disk = Disk(f"broker-{kinds}-{fault}-{number}")
        disk.fail_at, disk.fault = number, fault
        story = told(tmp_path / str(number), disk, monkeypatch)
        check(tmp_path / str(number), story, disk)
        refused += story.refused
    assert set(refused) <= codes
    assert refused or kinds in ("read", "open delete truncate"), "nobody was refused anything"
