"""A short story that clients play on a broker in this process: messages, a durable subscription, acknowledgements, a transaction.

What they were told is in `Story`, what another broker has afterwards in `found`. What must be the same is for the tests to say.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from stompbox.config import Configuration, load
from stompbox.errors import StoreError
from stompbox.server.run import start, stop
from tests.crash.disk import Disk
from tests.system.plain import WITHIN, Plain

MESSAGES = 8
TAKEN = 5
QUEUE, OTHER, TOPIC = "/queue/q", "/queue/other", "/topic/news"


@dataclass
class Story:
    """What the clients were told, and when: after how many operations of the disk."""

    disk: Disk
    confirmed: dict[str, dict[bytes, int]] = field(default_factory=lambda: {QUEUE: {}, OTHER: {}, TOPIC: {}})
    refused: list[str] = field(default_factory=list)  # the codes of ERROR frames
    done: dict[bytes, int] = field(default_factory=dict)  # acknowledged with a RECEIPT
    exchanged: bytes = b""  # what was to become two others

    @property
    def now(self) -> int:
        """How many operations the disk has done."""
        return len(self.disk.operations)

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
        headers = {
            "destination": TOPIC,
            "id": "news",
            "durable-subscription-name": "news",
            "ack": "client",
            "prefetch-count": "1",
        }
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
        deadline = time.monotonic() + WITHIN
        for attempt in count():
            receipt = f"{body.decode()}-{attempt}"
            client.send("SEND", {"destination": destination, "receipt": receipt}, body)
            if self.answered(client, receipt):
                self.confirmed[destination][body] = self.now
                return
            assert time.monotonic() < deadline, (
                f"refused for {WITHIN} s, {attempt} times, at last {self.refused[-1]}"
            )

    def take(self, client: Plain) -> list[tuple[bytes, str]]:
        headers = {"destination": QUEUE, "id": "q", "ack": "client-individual", "prefetch-count": str(TAKEN)}
        client.send("SUBSCRIBE", headers)
        frames = [client.receive() for _ in range(TAKEN)]
        return [(frame.body, frame.headers["message-id"]) for frame in frames]

    def acknowledge(self, client: Plain, taken: list[tuple[bytes, str]]) -> None:
        for body, message in taken:
            client.send("ACK", {"message-id": message, "subscription": "q", "receipt": body.decode()})
            assert self.answered(client, body.decode()), "an acknowledgement waits until it can be stored"
            self.done[body] = self.now

    def exchange(self, client: Plain, taken: tuple[bytes, str]) -> None:
        """One message for two others, or not at all."""
        self.exchanged, message = taken
        client.send("BEGIN", {"transaction": "t"})
        client.send("ACK", {"message-id": message, "subscription": "q", "transaction": "t"})
        client.send("SEND", {"destination": OTHER, "transaction": "t"}, b"x")
        client.send("SEND", {"destination": TOPIC, "transaction": "t"}, b"y")
        client.send("COMMIT", {"transaction": "t", "receipt": "t"})
        if self.answered(client, "t"):
            self.done[self.exchanged] = self.confirmed[OTHER][b"x"] = self.confirmed[TOPIC][b"y"] = self.now

    def left(self, destination: str) -> set[bytes]:
        """What must be there in the end."""
        return self.confirmed[destination].keys() - (self.done.keys() if destination == QUEUE else set())


def configuration(folder: Path) -> Configuration:
    return load(
        None, {}, {"data": str(folder / "data"), "admin.listen": "off", "listen": ["tcp://127.0.0.1:0"]}
    )


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
                bodies.append(frame.body)
            there[destination] = bodies
    return there
