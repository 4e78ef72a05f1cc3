"""Those who take part in a drill, each a process of its own that lives through any number of brokers.

    python -m tests.crash.actors ROLE NAME PORT JOURNAL SEED

Stops when its stdin ends. Prints a dot whenever PACE things were confirmed. Never tries anything twice: what was under way when
the broker went may or may not have happened, and the audit knows it.

| role       | does                                                                                             |
|------------|--------------------------------------------------------------------------------------------------|
| producer   | SENDs with receipts, some not persistent; transactions over several destinations, some aborted    |
| worker     | client-individual on all queues: ACKs out of order, NACKs, leaves with unacknowledged messages    |
| subscriber | a durable subscription, cumulative ACKs                                                           |
| relay      | takes from one queue and sends on to another and a topic, in one transaction with the ACKs        |
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from stompbox.stomp.frames import Frame
from tests.crash.events import Acknowledged, Answered, Confirmed, Ended, Got, Journal, Sent, Subscribed
from tests.crash.link import Control, Link, Lost, Stopped

QUEUES = ("/queue/drill.a", "/queue/drill.b", "/queue/drill.c")
RELAYED, RESULTS = "/queue/drill.relayed", "/queue/drill.results"
TOPIC = "/topic/drill.news"
SUBSCRIBERS = ("anna", "bert")  # client-ids; each has the durable subscription `news`
PACE = 50  # things confirmed for a dot
WINDOW = 100  # SENDs without an answer


def source_of(client_id: str) -> str:
    return f"{client_id}/news"


class Actor:
    def __init__(self, name: str, port: int, journal: Journal, random: Random) -> None:
        self.name = name
        self.port = port
        self.journal = journal
        self.random = random
        self.control = Control()
        self.link: Link | None = None
        self.number = 0
        self.confirmed = 0
        self.serial = 0  # of transactions and receipts

    def connect(self, client_id: str = "") -> Link:
        self.link = None
        self.link = link = Link(self.port, self.journal, self.control, client_id)
        return link

    def run(self, work: Callable[[Actor], None]) -> None:
        """Again with each broker, until the drill is over."""
        while not self.control.is_over():
            try:
                work(self)
            except Lost:
                self.note_loss()
                self.link = None
            except Stopped:
                if self.link is not None:
                    self.link.close()
                return

    def note_loss(self) -> None:
        """The broker may have ended this connection alone."""
        if self.link is not None:
            self.link.lost()

    def count(self, things: int = 1) -> None:
        before, self.confirmed = self.confirmed, self.confirmed + things
        for _ in range(self.confirmed // PACE - before // PACE):
            self.control.progress()

    def next_serial(self, kind: str) -> str:
        self.serial += 1
        return f"{self.name}-{kind}{self.serial}"

    def send(
        self,
        link: Link,
        destination: str,
        *,
        transaction: str = "",
        persistent: bool = True,
        receipt: bool = True,
    ) -> bytes:
        """The frame of a new message, noted as sent; its receipt is called as the message is."""
        self.number += 1
        message = f"{self.name}.{self.number}"
        self.journal.note(Sent(link.name, message, destination, transaction, persistent, time.monotonic_ns()))
        headers = {"destination": destination}
        if transaction:
            headers["transaction"] = transaction
        elif receipt:
            headers["receipt"] = message
        if not persistent:
            headers["persistent"] = "false"
        if self.random.random() < 0.1:
            headers["kind"] = self.random.choice("xyz")
        return link.frame("SEND", headers, message.encode() + b" " * self.random.choice((1, 100, 1000)))


# Producers


def produce(actor: Actor) -> None:
    link, random = actor.connect(), actor.random
    waiting: set[str] = set()
    while True:
        data = b""
        for _ in range(random.randint(1, 40)):
            if random.random() < 0.1:
                data += _transaction(actor, link, waiting)
                continue
            persistent = random.random() < 0.9
            data += actor.send(link, random.choice((*QUEUES, RELAYED, TOPIC)), persistent=persistent)
            waiting.add(f"{actor.name}.{actor.number}")
        link.write(data)
        most = random.choice((0, WINDOW))
        while len(waiting) > most:
            waiting.discard(_confirmed(actor, link, link.receive()))
        if actor.control.is_over():
            raise Stopped


def _transaction(actor: Actor, link: Link, waiting: set[str]) -> bytes:
    """A whole one, committed or aborted; some are never ended."""
    random, name = actor.random, actor.next_serial("t")
    data = link.frame("BEGIN", {"transaction": name})
    for _ in range(random.randint(1, 12)):
        data += actor.send(link, random.choice((*QUEUES, RELAYED, TOPIC)), transaction=name)
    if random.random() < 0.005:
        return data
    commits = random.random() < 0.8
    actor.journal.note(Ended(link.name, name, commits))
    waiting.add(name)
    return data + link.frame("COMMIT" if commits else "ABORT", {"transaction": name, "receipt": name})


def _confirmed(actor: Actor, link: Link, frame: Frame) -> str:
    assert frame.command == "RECEIPT", frame
    unit = frame.headers["receipt-id"]
    actor.journal.note(Confirmed(time.monotonic_ns(), link.name, unit))
    actor.count()
    return unit


# Consumers


def _got(actor: Actor, link: Link, frame: Frame, source: str) -> str:
    assert frame.command == "MESSAGE", frame
    message = frame.body.split()[0].decode()
    actor.journal.note(
        Got(time.monotonic_ns(), link.name, source, message, frame.headers["redelivered"] == "true")
    )
    return message


class Acks:
    """ACKs that wait for their RECEIPT."""

    def __init__(self, actor: Actor, link: Link) -> None:
        self.actor = actor
        self.link = link
        self.waiting: dict[str, tuple[str, list[str]]] = {}

    def answer(
        self, source: str, frame: Frame, messages: list[str], *, is_good: bool = True, transaction: str = ""
    ) -> bytes:
        """An ACK or NACK for `messages`, the last of which is `frame`. ACKs outside of transactions ask for a receipt now and then."""
        actor = self.actor
        actor.journal.note(Answered(self.link.name, source, messages, transaction, is_good))
        headers = {"id": frame.headers["ack"]}
        if transaction:
            headers["transaction"] = transaction
        elif is_good and actor.random.random() < 0.5:
            headers["receipt"] = actor.next_serial("a")
            self.waiting[headers["receipt"]] = source, messages
        return self.link.frame("ACK" if is_good else "NACK", headers)

    def confirmed(self, frame: Frame) -> None:
        source, messages = self.waiting.pop(frame.headers["receipt-id"])
        self.actor.journal.note(Acknowledged(time.monotonic_ns(), self.link.name, source, messages))
        self.actor.count(len(messages))


def work(actor: Actor) -> None:
    """On all queues at once; leaves without a word now and then."""
    link, random = actor.connect(), actor.random
    acks = Acks(actor, link)
    held: list[tuple[str, Frame, str]] = []
    prefetch = random.choice((3, 30, 300))
    for queue in QUEUES:
        headers = {
            "destination": queue,
            "id": queue,
            "ack": "client-individual",
            "prefetch-count": str(prefetch),
        }
        actor.journal.note(Subscribed(link.name, queue))
        link.write(link.frame("SUBSCRIBE", headers))
    while True:
        frame = link.receive_or_stop()
        if frame.command == "RECEIPT":
            acks.confirmed(frame)
            continue
        source = frame.headers["subscription"]
        held.append((source, frame, _got(actor, link, frame, source)))
        if len(held) < prefetch and (link.frames or random.random() < 0.3):
            continue
        random.shuffle(held)
        kept = random.randint(0, len(held) // 2)
        link.write(
            b"".join(
                [
                    acks.answer(at, frame, [message], is_good=random.random() > 0.01)
                    for at, frame, message in held[kept:]
                ]
            )
        )
        del held[kept:]
        if random.random() < 0.005:
            link.close()
            return


def subscribe(actor: Actor) -> None:
    """One of SUBSCRIBERS, as its name says."""
    link, source = actor.connect(actor.name), source_of(actor.name)
    acks = Acks(actor, link)
    headers = {"destination": TOPIC, "id": "news", "durable-subscription-name": "news", "ack": "client"}
    link.write(link.frame("SUBSCRIBE", headers | {"prefetch-count": str(actor.random.choice((5, 500)))}))
    messages: list[str] = []
    while True:
        frame = link.receive_or_stop()
        if frame.command == "RECEIPT":
            acks.confirmed(frame)
            continue
        messages.append(_got(actor, link, frame, source))
        if len(messages) >= 5 or not link.frames or actor.random.random() < 0.1:
            link.write(acks.answer(source, frame, messages))
            messages = []


def relay(actor: Actor) -> None:
    """What it takes and what it sends on happens together or not at all."""
    link, random = actor.connect(), actor.random
    headers = {"destination": RELAYED, "id": RELAYED, "ack": "client-individual", "prefetch-count": "50"}
    actor.journal.note(Subscribed(link.name, RELAYED))
    link.write(link.frame("SUBSCRIBE", headers))
    acks = Acks(actor, link)
    held: list[tuple[Frame, str]] = []
    while True:
        frame = link.receive_or_stop()
        if frame.command == "RECEIPT":
            _confirmed_transaction(actor, link, frame)
            continue
        held.append((frame, _got(actor, link, frame, RELAYED)))
        if len(held) < 10 and link.frames:
            continue
        commits = random.random() < 0.9
        name = actor.next_serial("t")
        data = link.frame("BEGIN", {"transaction": name})
        for frame, message in held:
            data += acks.answer(RELAYED, frame, [message], transaction=name)
            data += actor.send(link, random.choice((RESULTS, TOPIC)), transaction=name)
        actor.journal.note(Ended(link.name, name, commits))
        link.write(
            data + link.frame("COMMIT" if commits else "ABORT", {"transaction": name, "receipt": name})
        )
        if commits:
            held = []


def _confirmed_transaction(actor: Actor, link: Link, frame: Frame) -> None:
    actor.journal.note(Confirmed(time.monotonic_ns(), link.name, frame.headers["receipt-id"]))
    actor.count(10)


ROLES = {"producer": produce, "worker": work, "subscriber": subscribe, "relay": relay}


def main(role: str, name: str, port: int, journal: Path, seed: int) -> None:
    with Journal(journal) as opened:
        Actor(name, port, opened, Random(f"{seed} {name}")).run(ROLES[role])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
