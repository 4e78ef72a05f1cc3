"""Those of the drill with all features (players.py) who ask for things: a sink that stages batches, and one who gets answers.

| role    | does                                                                                                          |
|---------|----------------------------------------------------------------------------------------------------------------|
| sink    | stages parts of a batch, some of them in several attempts, publishes those that won, discards a batch; to the   |
|         | next broker the whole batch again when nobody answered, and now and then one that was published                |
| caller  | answers to a temporary queue, outside of and in transactions, which its owner must get before he leaves         |
"""

from __future__ import annotations

import time
from random import Random
from typing import Any, Final

from msgspec import json

from stompbox.message import Run
from stompbox.stomp.shapes import shape_of
from stompbox.store.chunks import encode
from tests.crash.audit import epoch
from tests.crash.events import Confirmed, Ended, Got, Journal, Refused, Sent
from tests.crash.features import TEMPORARY, UNREFUSED
from tests.crash.link import Link, Lost, Stopped
from tests.crash.players import Player, body_of, message_in

# What is published at once keeps its order at each destination as it is written: where one queue is reached by two names it would not
STAGED: Final = tuple(
    [each for each in UNREFUSED if "," not in each and each not in ("/queue/all.copies", "/queue/all.kept")]
)
PARTS: Final = 3
ANSWERS: Final = 12


class Batch:
    """What a sink wants to publish, or to discard: chunks by (partition, attempt), of which the attempts `won`."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.sent: list[Sent] = []  # of those that won
        self.chunks: list[tuple[tuple[int, int], bytes]] = []
        self.won: list[tuple[int, int]] = []
        self.is_kept = True
        self.is_tried = False


class Sink(Player):
    def __init__(self, name: str, port: int, journal: Journal, random: Random) -> None:
        super().__init__(name, port, journal, random)
        self.batch: Batch | None = None
        self.batches = 0
        self.published: dict[str, Any] = {}  # what asks for the last batch that was

    def work(self) -> None:
        link = self.connect()
        while True:
            if self.batch is None:
                self.batch = self.made(link)
            else:
                self.told_again(link, self.batch)
            self.done(link, self.batch)
            self.batch = None
            if self.control.is_over():
                raise Stopped

    def made(self, link: Link) -> Batch:
        """A new batch, nothing of which is with the broker yet."""
        random, batch = self.random, Batch(self.batches, f"{self.name}-b{self.batches}")
        self.batches += 1
        batch.is_kept = random.random() < 0.9
        for partition in range(random.randint(1, PARTS)):
            for attempt in range(random.choice((1, 1, 2))):
                lost = self.next_serial("lost")  # what another attempt at the same has staged
                chunk, _ = self.chunk(link, lost)
                self.journal.note(Ended(link.name, lost, commits=False))
                batch.chunks.append(((partition, attempt), chunk))
            chunk, sent = self.chunk(link, batch.name)
            batch.won.append((partition, 9))
            batch.sent += sent
            batch.chunks.append((batch.won[-1], chunk))
        random.shuffle(batch.chunks)
        return batch

    def chunk(self, link: Link, unit: str) -> tuple[bytes, list[Sent]]:
        runs, sent = [], []
        for _ in range(self.random.randint(1, 6)):
            one, headers, body = self.message(link, self.random.choice(STAGED), transaction=unit)
            del headers["transaction"]
            sent.append(one)
            runs.append(Run(shape_of(headers), [body], first=len(runs)))
        return encode(runs, 0), sent

    def told_again(self, link: Link, batch: Batch) -> None:
        for sent in batch.sent:
            now = time.monotonic_ns()
            self.journal.note(
                Sent(
                    link.name,
                    sent.message,
                    sent.destination,
                    sent.transaction,
                    sent.persistent,
                    now,
                    sent.traits,
                )
            )

    def done(self, link: Link, batch: Batch) -> None:
        where = {"sink": self.name, "batch": str(batch.number)}
        for (partition, attempt), chunk in batch.chunks:
            link.ask("stage", {**where, "partition": str(partition), "attempt": str(attempt)}, chunk)
        if not batch.is_kept:
            self.journal.note(Ended(link.name, batch.name, commits=False))
            link.ask("discard", where)
            return
        if not batch.is_tried:
            self.journal.note(Ended(link.name, batch.name, commits=True))
        batch.is_tried = True
        attempts = json.encode({"attempts": batch.won})
        answer = link.ask("publish", where, attempts)
        self.confirmed_unit(link, batch.name, len(batch.sent))
        assert answer["already"] or answer["published"] == len(batch.sent), (answer, len(batch.sent))
        if self.random.random() < 0.2:
            again = link.ask("publish", where, attempts)
            assert again == {"published": 0, "already": True}, again


class Caller(Player):
    def work(self) -> None:
        owner = self.connect()
        owner.write(owner.frame("SUBSCRIBE", {"destination": TEMPORARY.destination, "id": "answers"}))
        name = self.name_of(owner)
        other = Link(self.port, self.journal, self.control, may_be_refused=True)
        if epoch(other.name) != epoch(owner.name):  # the owner's broker is gone, and its queue
            raise Lost
        while self.random.random() < 0.9:
            asked = self.answer(other, owner, name)
            while asked:
                frame = owner.receive()
                message = message_in(frame.body)
                is_again, source = frame.headers["redelivered"] == "true", f"{TEMPORARY.name}:{owner.name}"
                self.journal.note(
                    Got(
                        time.monotonic_ns(),
                        owner.name,
                        source,
                        message,
                        is_again,
                        frame.headers["message-id"],
                    )
                )
                asked -= 1
        assert owner.disconnect() == [], "all was there before"
        self.answer_nobody(other, owner, name)
        other.disconnect()
        if self.control.is_over():
            self.link = None
            raise Stopped

    def name_of(self, owner: Link) -> str:
        """What others call the owner's temporary queue."""
        where = {"destination": TEMPORARY.destination, "reply-to": TEMPORARY.destination}
        owner.write(owner.frame("SEND", where, b"name"))
        return owner.receive().headers["reply-to"]

    def one(self, link: Link, owner: Link, name: str, transaction: str) -> bytes:
        """An answer. The broker keeps it no longer than its owner, whatever it asks for."""
        self.number += 1
        message = f"{self.name}.{self.number}"
        source = f"{TEMPORARY.name}:{owner.name}"
        self.journal.note(Sent(link.name, message, source, transaction, True, time.monotonic_ns()))
        more = {"transaction": transaction} if transaction else {"receipt": message}
        return link.frame(
            "SEND", {"destination": name, **more}, body_of(message, self.random.choice((1, 100, 5000)))
        )

    def answer(self, link: Link, owner: Link, name: str) -> int:
        """How many answers are confirmed now."""
        transaction = self.next_serial("t") if self.random.random() < 0.3 else ""
        count = self.random.randint(1, ANSWERS)
        data = [self.one(link, owner, name, transaction) for _ in range(count)]
        units = [f"{self.name}.{number}" for number in range(self.number - count + 1, self.number + 1)]
        commits = self.random.random() < 0.8
        if transaction:
            self.journal.note(Ended(link.name, transaction, commits))
            end = link.frame(
                "COMMIT" if commits else "ABORT", {"transaction": transaction, "receipt": transaction}
            )
            data, units = [link.frame("BEGIN", {"transaction": transaction}), *data, end], [transaction]
        link.write(b"".join(data))
        for unit in units:
            frame = link.receive()
            assert (frame.command, frame.headers.get("receipt-id")) == ("RECEIPT", unit), (frame, frame.body)
            self.journal.note(Confirmed(time.monotonic_ns(), link.name, unit))
        return count if commits or not transaction else 0

    def answer_nobody(self, link: Link, owner: Link, name: str) -> None:
        """The owner is gone, and so is the queue."""
        link.write(self.one(link, owner, name, ""))
        frame = link.receive()
        assert (frame.command, frame.headers.get("code")) == ("ERROR", "no-such-temporary"), (
            frame,
            frame.body,
        )
        self.journal.note(Refused(link.name, frame.headers["receipt-id"]))
