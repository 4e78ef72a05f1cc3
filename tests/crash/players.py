"""Those who take part in the drill with all features (features.py), each a process of its own (cast.py) that lives through any number of
brokers. Readers that take nothing are in readers.py, who asks for things is in askers.py.

| role       | does                                                                                                       |
|------------|-------------------------------------------------------------------------------------------------------------|
| producer   | SENDs with any mixture of headers, to queues, topics and several at once; transactions; what had an id for   |
|            | duplicate detection and no answer is sent again to the next broker, and now and then what had one            |
| worker     | takes from most queues: ACK, NACK, in transactions with SENDs, cumulative, leaves, lets go, comes back       |
| subscriber | a durable subscription, as one of SUBSCRIBERS                                                                |
| pricer     | retained messages on several topics, and new subscriptions to one or all of them                             |
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from stompbox.stomp.frames import Frame
from tests.crash.actors import Actor
from tests.crash.events import (
    Acknowledged,
    Answered,
    Closed,
    Confirmed,
    Ended,
    Got,
    Journal,
    Refused,
    Retained,
    Sent,
    Traits,
)
from tests.crash.features import (
    BY_NAME,
    DEAD,
    DESTINATIONS,
    EXPIRED,
    FILTERED,
    GROUPS,
    KEYS,
    KINDS,
    PRICED,
    PRICES,
    QUEUES,
    SUBSCRIBERS,
    UNREFUSED,
    Source,
    sources_of,
)
from tests.crash.link import Link, Stopped

DELAY = 800  # ms that a scheduled message waits at the most
LIVES = (1, 50, 1000)  # ms
SIZES = (1, 1, 10, 10, 100, 1000, 5000)
LARGE = 120_000  # streamed to the store
WINDOW = 60  # SENDs without an answer
ANSWERS_WITHIN = 0.2  # seconds for a message, then a worker answers what it has


def body_of(message: str, size: int) -> bytes:
    return f"{message} {size} ".encode() + b"." * size


def message_in(body: bytes) -> str:
    """The name of the message; one whose body is not what was sent has a name that nobody sent."""
    message, size, rest = body.split(b" ", 2)
    is_whole = len(rest) == int(size) == rest.count(b".")
    return message.decode() if is_whole else f"broken-{message.decode()}.0"


def ms(ahead: int) -> int:
    return time.monotonic_ns() + ahead * 1_000_000


class Player(Actor, ABC):
    @abstractmethod
    def work(self) -> None:
        """With one broker, until it goes (Lost) or all is over (Stopped)."""

    def live(self) -> None:
        self.run(lambda _: self.work())

    def note_loss(self) -> None:
        """A broker that is killed takes them all with it, which the audit sees by itself."""

    def mixed(self, link: Link, destination: str, *, transaction: str = "") -> tuple[bytes, Sent]:
        """The frame of a new message with a random choice of headers, noted as sent."""
        sent, headers, body = self.message(link, destination, transaction=transaction)
        if not transaction:
            headers["receipt"] = sent.message
        return link.frame("SEND", headers, body), sent

    def message(
        self, link: Link, destination: str, *, transaction: str = ""
    ) -> tuple[Sent, dict[str, str], bytes]:
        """A new message with a random choice of headers, noted as sent."""
        random = self.random
        self.number += 1
        persistent = random.random() < 0.95 or "ring" in destination or "last" in destination
        traits, headers = self.traits(destination, may_come_again=persistent and not transaction)
        sent = Sent(
            link.name,
            f"{self.name}.{self.number}",
            destination,
            transaction,
            persistent,
            time.monotonic_ns(),
            traits,
        )
        self.journal.note(sent)
        if not persistent:
            headers["persistent"] = "false"
        if transaction:
            headers["transaction"] = transaction
        size = LARGE if random.random() < 0.01 else random.choice(SIZES)
        return sent, {"destination": destination, **headers}, body_of(sent.message, size)

    def traits(self, destination: str, *, may_come_again: bool) -> tuple[Traits, dict[str, str]]:
        random, headers = self.random, {}
        kind, priority, delay, due, expires, group, key, again = (
            random.choice(KINDS),
            4,
            0,
            0,
            0,
            "",
            "",
            False,
        )
        headers["kind"] = kind
        if random.random() < 0.2:
            priority = random.randint(0, 9)
            headers["priority"] = str(priority)
        if random.random() < 0.15:
            delay = random.randint(1, DELAY)
            headers["AMQ_SCHEDULED_DELAY"], due = str(delay), ms(delay)
        if random.random() < 0.1:
            life = random.choice(LIVES) + (DELAY if due else 0)
            headers["expires"], expires = str(int(time.time() * 1000) + life), ms(life)
        if "groups" in destination or random.random() < 0.05:
            group = headers["JMSXGroupID"] = f"g{random.randrange(GROUPS)}"
        if "last" in destination:
            key = headers["key"] = f"k{random.randrange(KEYS)}"
        if may_come_again and random.random() < 0.3:
            again, headers["_AMQ_DUPL_ID"] = True, f"{self.name}.{self.number}"
        return Traits(kind, priority, due, expires, group, key, False, again, delay), headers

    def got(self, link: Link, frame: Frame, source: str) -> str:
        assert frame.command == "MESSAGE", frame
        headers, message = frame.headers, message_in(frame.body)
        is_again = headers["redelivered"] == "true"
        reason, offset = headers.get("dead-letter-reason", ""), int(headers.get("x-stream-offset", -1))
        self.journal.note(
            Got(
                time.monotonic_ns(),
                link.name,
                source,
                message,
                is_again,
                headers["message-id"],
                reason,
                offset,
            )
        )
        return message

    def confirmed_unit(self, link: Link, unit: str, things: int = 1) -> None:
        self.journal.note(Confirmed(time.monotonic_ns(), link.name, unit))
        self.count(things)


def source_of(frame: Frame, name: str) -> str:
    return f"{name}|{frame.headers['_AMQ_ORIG_QUEUE']}" if name in (DEAD, EXPIRED) else name


# Producers


class Producer(Player):
    def __init__(self, name: str, port: int, journal: Journal, random: Random) -> None:
        super().__init__(name, port, journal, random)
        # sent with an id for duplicate detection, not answered yet
        self.again: dict[str, tuple[Sent, bytes]] = {}
        self.answered: list[tuple[bytes, str]] = []  # the last frames that were, with their messages
        self.waiting: set[str] = set()

    def work(self) -> None:
        self.link = None
        self.link = link = Link(self.port, self.journal, self.control, may_be_refused=True)
        self.waiting.clear()
        link.write(self.once_more(link))
        self.settle(link, 0)
        while True:
            link.write(b"".join([self.something(link) for _ in range(self.random.randint(1, 30))]))
            self.settle(link, self.random.choice((0, WINDOW)))
            if self.control.is_over():
                raise Stopped

    def once_more(self, link: Link) -> bytes:
        """What the last broker did not answer, in its order."""
        data = b""
        for message, (sent, frame) in list(self.again.items()):
            self.journal.note(
                Sent(
                    link.name,
                    message,
                    sent.destination,
                    "",
                    sent.persistent,
                    time.monotonic_ns(),
                    sent.traits,
                )
            )
            self.waiting.add(message)
            data += frame
        return data

    def something(self, link: Link) -> bytes:
        random = self.random
        if random.random() < 0.1:
            return self.transaction(link)
        if self.answered and random.random() < 0.03:
            return random.choice(self.answered)[0]  # a duplicate: its receipt comes, and nothing else happens
        frame, sent = self.mixed(link, random.choice(DESTINATIONS))
        self.waiting.add(sent.message)
        if sent.traits.again:
            self.again[sent.message] = sent, frame
        return frame

    def transaction(self, link: Link) -> bytes:
        """Committed or aborted; some are never ended."""
        random, name = self.random, self.next_serial("t")
        data = link.frame("BEGIN", {"transaction": name})
        for _ in range(random.randint(1, 8)):
            data += self.mixed(link, random.choice(DESTINATIONS), transaction=name)[0]
            if self.answered and random.random() < 0.1:  # a duplicate: nothing happens
                again, message = random.choice(self.answered)
                data += again.replace(
                    f"\nreceipt:{message}\n".encode(), f"\ntransaction:{name}\n".encode(), 1
                )
        if random.random() < 0.01:
            return data
        commits = random.random() < 0.8
        self.journal.note(Ended(link.name, name, commits))
        self.waiting.add(name)
        return data + link.frame("COMMIT" if commits else "ABORT", {"transaction": name, "receipt": name})

    def settle(self, link: Link, most: int) -> None:
        while len(self.waiting) > most:
            frame = link.receive()
            unit = frame.headers.get("receipt-id", "")
            assert unit, (frame, frame.body)
            if unit not in self.waiting:  # of a duplicate
                assert frame.command == "RECEIPT", (frame, frame.body)
                continue
            self.waiting.discard(unit)
            known = self.again.pop(unit, None)
            if frame.command == "RECEIPT":
                self.confirmed_unit(link, unit)
                if known is not None and not any(BY_NAME[source].may_drop for source in sources_of(known[0])):
                    # one that was dropped would come as a new one
                    self.answered = [*self.answered[-20:], (known[1], unit)]
            else:
                assert frame.headers.get("code") == "address-full", (frame, frame.body)
                self.journal.note(Refused(link.name, unit))


# Consumers


@dataclass(slots=True)
class Taken:
    """What a subscription has from a source and did not answer."""

    source: str
    message: str
    ack: str


class Consumer(Player):
    """Of several subscriptions; `taken` by subscription, in the order in which they came."""

    def begin(self, client_id: str = "") -> Link:
        self.receipts: dict[str, tuple[str, list[str]]] = {}
        self.ended: dict[str, int] = {}
        self.taken: dict[str, list[Taken]] = {}
        self.modes: dict[str, str] = {}
        return self.connect(client_id)

    def subscribe(self, link: Link, name: str, headers: dict[str, str]) -> None:
        mode = self.random.choice(("client", "client-individual"))
        self.modes[name], self.taken[name] = mode, []
        prefetch = {"prefetch-count": str(self.random.choice((1, 5, 30)))}
        link.write(link.frame("SUBSCRIBE", {"id": name, "ack": mode, **prefetch, **headers}))

    def take(self, link: Link, frame: Frame) -> None:
        if frame.command == "RECEIPT":
            self.receipt(link, frame.headers["receipt-id"])
            return
        name = frame.headers["subscription"]
        source = source_of(frame, name)
        ack = frame.headers["ack"]
        assert ack not in [one.ack for one in self.taken[name]], f"{ack} came again while it was held"
        self.taken[name].append(Taken(source, self.got(link, frame, source), ack))

    def receipt(self, link: Link, receipt: str) -> None:
        if receipt in self.ended:
            self.confirmed_unit(link, receipt, self.ended.pop(receipt))
        elif receipt in self.receipts:
            source, messages = self.receipts.pop(receipt)
            self.journal.note(Acknowledged(time.monotonic_ns(), link.name, source, messages))
            self.count(len(messages))

    def held(self) -> int:
        return sum(map(len, self.taken.values()))

    def answer(self, link: Link) -> bytes:
        """To some or all of what was taken, in some way."""
        data = b""
        for name, taken in self.taken.items():
            if taken and self.modes[name] == "client":
                data += b"".join(self.cumulatively(link, name))
            elif taken and self.random.random() < 0.3:
                data += self.in_transaction(link, name)
            elif taken:
                data += b"".join(self.one_by_one(link, name))
        return data

    def cumulatively(self, link: Link, name: str) -> Iterator[bytes]:
        taken = self.taken[name]
        count = self.random.randint(1, len(taken))
        covered, self.taken[name] = taken[:count], taken[count:]
        yield self.reply(link, covered, is_good=self.random.random() > 0.03)

    def one_by_one(self, link: Link, name: str) -> Iterator[bytes]:
        taken = self.taken[name]
        self.random.shuffle(taken)
        kept = self.random.randint(0, len(taken) // 2)
        for one in taken[kept:]:
            yield self.reply(link, [one], is_good=self.random.random() > 0.1)
        del taken[kept:]

    def reply(self, link: Link, covered: list[Taken], *, is_good: bool, transaction: str = "") -> bytes:
        """An ACK or NACK of the last of them, for all of them."""
        by_source: dict[str, list[str]] = {}
        for one in covered:
            by_source.setdefault(one.source, []).append(one.message)
        is_final = (
            not is_good and len(covered) == 1 and "|" not in covered[0].source and self.random.random() < 0.1
        )
        for source, messages in by_source.items():
            self.journal.note(
                Answered(link.name, source, messages, transaction, is_good, not is_good, is_final)
            )
        headers = {"id": covered[-1].ack}
        if is_final:
            headers["requeue"] = "false"  # a dead letter at once
        if transaction:
            headers["transaction"] = transaction
        elif is_good and len(by_source) == 1 and self.random.random() < 0.5:
            headers["receipt"] = self.next_serial("a")
            self.receipts[headers["receipt"]] = next(iter(by_source.items()))
        return link.frame("ACK" if is_good else "NACK", headers)

    def in_transaction(self, link: Link, name: str) -> bytes:
        """ACKs, some NACKs, and SENDs."""
        random, transaction = self.random, self.next_serial("t")
        data = link.frame("BEGIN", {"transaction": transaction})
        taken = self.taken[name]
        for one in taken:
            data += self.reply(link, [one], is_good=random.random() > 0.02, transaction=transaction)
        for _ in range(random.randint(0, 3)):
            data += self.mixed(link, random.choice(UNREFUSED), transaction=transaction)[0]
        commits = random.random() < 0.9
        self.journal.note(Ended(link.name, transaction, commits))
        self.ended[transaction] = len(taken)
        if commits:
            self.taken[name] = []
        return data + link.frame(
            "COMMIT" if commits else "ABORT", {"transaction": transaction, "receipt": transaction}
        )


class Worker(Consumer):
    def work(self) -> None:
        link, random = self.begin(), self.random
        for source in (*QUEUES, FILTERED):
            if not source.is_kept and (source.may_block or random.random() < 0.7):
                self.subscribe(
                    link, source.name, {"destination": source.destination, **self.selector(source)}
                )
        for _ in range(random.choice((20, 100, 1000))):
            frame = link.receive_within(ANSWERS_WITHIN)
            if frame is not None:
                self.take(link, frame)
                if self.held() < 20 and (link.frames or random.random() < 0.5):
                    continue
            link.write(self.answer(link))
            if random.random() < 0.005:
                self.let_go(link)
        self.leave(link)

    def selector(self, source: Source) -> dict[str, str]:
        is_plain = not (source.may_block or source.is_grouped or source.is_exclusive)
        return (
            {"selector": f"kind <> '{self.random.choice(KINDS)}'"}
            if is_plain and self.random.random() < 0.1
            else {}
        )

    def let_go(self, link: Link) -> None:
        """UNSUBSCRIBE: what was taken and not answered goes back."""
        names = [
            name
            for name in self.taken
            if not (BY_NAME[name].is_grouped or BY_NAME[name].is_exclusive or BY_NAME[name].may_block)
        ]
        if not names:
            return
        name, receipt = self.random.choice(names), self.next_serial("u")
        self.refuse(link, name)
        self.journal.note(Closed(time.monotonic_ns(), f"{link.name}/{name}"))
        link.write(link.frame("UNSUBSCRIBE", {"id": name, "receipt": receipt}))
        while (frame := link.receive()).headers.get("receipt-id") != receipt:
            self.take_no_more(link, frame, name)
        del self.taken[name], self.modes[name]

    def take_no_more(self, link: Link, frame: Frame, *names: str) -> None:
        """What was under way to these subscriptions goes back, and may be with somebody else before it is read here."""
        if frame.headers.get("subscription") not in names:
            self.take(link, frame)

    def refuse(self, link: Link, name: str) -> None:
        """What is held is given back, which is noted as if it was refused."""
        for one in self.taken[name]:
            self.journal.note(Answered(link.name, one.source, [one.message], "", is_good=False))
        self.taken[name] = []

    def leave(self, link: Link) -> None:
        """In peace, or without a word."""
        for name in self.taken:
            self.refuse(link, name)
        is_abrupt = self.random.random() < 0.5
        self.journal.note(Closed(time.monotonic_ns(), link.name, is_abrupt, list(self.taken)))
        if not is_abrupt:
            link.write(link.frame("DISCONNECT", {"receipt": "bye"}))
            while (frame := link.receive()).headers.get("receipt-id") != "bye":
                self.take_no_more(link, frame, *self.taken)
        link.socket.close()


class Subscriber(Consumer):
    """One of SUBSCRIBERS, as its name says."""

    def work(self) -> None:
        link, name = self.begin(self.name), f"{self.name}.news"
        selector = {"selector": SUBSCRIBERS[self.name]} if SUBSCRIBERS[self.name] else {}
        self.subscribe(
            link,
            name,
            {"destination": BY_NAME[name].destination, "durable-subscription-name": "news", **selector},
        )
        while True:
            frame = link.receive_within(ANSWERS_WITHIN)
            if frame is not None:
                self.take(link, frame)
                if self.held() < 10 and link.frames:
                    continue
            link.write(self.answer(link))


class Pricer(Player):
    def work(self) -> None:
        link, is_first = self.connect(), True
        while True:
            data, waiting = b"", set[str]()
            for destination in PRICED if is_first else self.random.choices(PRICED, k=3):
                data += self.price(link, waiting, destination)
            link.write(data)
            while waiting:
                unit = link.receive().headers["receipt-id"]
                waiting.discard(unit)
                self.confirmed_unit(link, unit)
            is_first = False
            self.look()
            if self.control.is_over():
                raise Stopped

    def price(self, link: Link, waiting: set[str], destination: str) -> bytes:
        """A SEND, to several topics now and then, or a transaction with two."""
        if self.random.random() < 0.2:
            destination = ",".join(PRICED)
        if self.random.random() < 0.7:
            return self.send(link, waiting, destination)
        transaction = self.next_serial("t")
        data = link.frame("BEGIN", {"transaction": transaction})
        for where in (destination, self.random.choice(PRICED)):
            data += self.send(link, waiting, where, transaction)
        self.journal.note(Ended(link.name, transaction, commits=True))
        waiting.add(transaction)
        return data + link.frame("COMMIT", {"transaction": transaction, "receipt": transaction})

    def send(self, link: Link, waiting: set[str], destination: str, transaction: str = "") -> bytes:
        self.number += 1
        message = f"{self.name}.{self.number}"
        self.journal.note(
            Sent(
                link.name, message, destination, transaction, True, time.monotonic_ns(), Traits(retained=True)
            )
        )
        if not transaction:
            waiting.add(message)
        asked = {"transaction": transaction} if transaction else {"receipt": message}
        return link.frame(
            "SEND", {"destination": destination, "retain": "set", **asked}, body_of(message, 10)
        )

    def look(self) -> None:
        """With another connection, because a subscription is new once; each topic has something by now."""
        asked = time.monotonic_ns()
        other = Link(self.port, self.journal, self.control)
        destination = self.random.choice((PRICES, *PRICED))
        other.write(other.frame("SUBSCRIBE", {"destination": destination, "id": "1"}))
        for _ in PRICED if destination == PRICES else (destination,):
            frame = other.receive()
            self.journal.note(
                Retained(asked, other.name, frame.headers["destination"], message_in(frame.body))
            )
        other.close()
