"""What a broker should do, as simply as it can be said: boxes with copies of mail, and clients who hold some of them.

No runs, no segments, no pages, no credit beyond counting. The machine in test_model.py plays the same moves here and on the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from stompbox.broker.kinds import Kind
from stompbox.broker.queues.consumer import AckMode, Consumer

Key = tuple[str, Kind, str]  # address, kind, name
ATTEMPTS = 3
DELAY, MOST_DELAY = 100, 1000  # ms, of address r


@dataclass(frozen=True)
class Mail:
    key: str  # unique
    number: int  # in the order of publishing
    address: str
    word: str  # what selectors look at
    size: int = 0
    is_persistent: bool = True
    priority: int = 4
    expires: int = 0
    sender: int = 0


class State(Enum):
    READY = "ready"
    OUT = "out"  # at a client
    HELD = "held"  # by a transaction
    LATER = "later"  # waits for its redelivery delay


@dataclass
class Copy:
    mail: Mail
    state: State = State.READY
    deliveries: int = 0
    failures: int = 0
    told: tuple[int, int] = (0, 0)  # deliveries and failures as the next commit has them
    until: int = 0
    is_suspect: bool = False
    is_disordered: bool = False  # was handed out, but taken back before it was written
    turn: int = 0


@dataclass
class Box:
    """A queue: anycast, durable or plain subscription, or a reader of a stream."""

    key: Key
    word: str = ""  # its selector: the words that it takes, of one letter each; empty: any
    no_local: int = 0
    copies: dict[str, Copy] = field(default_factory=dict)
    is_paused: bool = False

    @property
    def kind(self) -> Kind:
        return self.key[1]

    @property
    def is_stored(self) -> bool:
        return self.kind in (Kind.ANYCAST, Kind.DURABLE)

    def takes(self, mail: Mail) -> bool:
        return (not self.word or mail.word in self.word) and not (
            self.no_local and self.no_local == mail.sender
        )


@dataclass
class Client:
    """A subscription. `out`: what it was sent and has not answered, in the order in which it was sent."""

    name: str
    connection: int
    consumer: Consumer
    word: str = ""  # on anycast boxes: as that of a box
    pattern: str = ""  # wildcard subscriptions join what comes
    durable: str = ""
    no_local: int = 0
    boxes: list[Box] = field(default_factory=list)
    out: list[tuple[Box, Copy]] = field(default_factory=list)
    is_closed: bool = False
    # numbers of what came, by box and priority
    last: dict[tuple[Key, int], int] = field(default_factory=dict)

    @property
    def has_credit(self) -> bool:
        count, octets = len(self.out), sum(copy.mail.size for _, copy in self.out)
        if not count:
            return True  # one message always flows
        window, prefetch = self.consumer.window, self.consumer.prefetch
        return not (0 <= window <= max(octets, count)) and not (0 <= prefetch <= count)

    def wants(self, box: Box, mail: Mail) -> bool:
        return box in self.boxes and (box.kind is not Kind.ANYCAST or not self.word or mail.word in self.word)


@dataclass
class Held:
    """What a transaction has of one ACK or NACK."""

    client: Client
    parts: list[tuple[Box, Copy]]
    is_good: bool


@dataclass
class Open:
    """A transaction."""

    connection: int
    sends: list[list[Mail]] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)


class Model:
    """`is_lossless`: expired copies are the only ones that may go without an answer."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.boxes: dict[Key, Box] = {}
        self.retained: dict[str, list[Mail]] = {}
        self.clients: dict[str, Client] = {}
        self.turn = 0
        self.number = 0

    def next_number(self) -> int:
        self.number += 1
        return self.number

    # Boxes

    def box(self, key: Key, word: str = "", no_local: int = 0) -> Box:
        found = self.boxes.get(key)
        if found is None:
            found = self.boxes[key] = Box(key, word, no_local)
        return found

    def route(self, mail: Mail, *, to_queue: bool, to_topic: bool) -> None:
        if to_queue:
            self.box((mail.address, Kind.ANYCAST, mail.address))
        for box in list(self.boxes.values()):
            reached = {
                Kind.ANYCAST: to_queue,
                Kind.DURABLE: to_topic,
                Kind.TOPIC: to_topic,
                Kind.STREAM: True,
            }[box.kind]
            if box.key[0] == mail.address and reached and box.takes(mail):
                box.copies[mail.key] = Copy(mail)
        if mail.address in self.retained:
            self.retained[mail.address].append(mail)

    # Clients

    def receive(self, client: Client, box: Box, key: str) -> Copy:
        """A message has come: it must be one that may come here now."""
        copy = box.copies.get(key)
        assert copy is not None, f"{client.name} got {key} of {box.key}, which is not there (any more)"
        assert copy.state is State.READY, f"{client.name} got {key} of {box.key}, which is {copy.state.value}"
        assert client.wants(box, copy.mail), f"{client.name} got {key} of {box.key}, which is not for it"
        assert client.has_credit, f"{client.name} got {key} without credit: {len(client.out)} are out"
        assert not self.is_lapsed(copy), f"{client.name} got {key}, which expired"
        self._check_order(client, box, copy)
        self.turn += 1
        copy.turn, copy.state = self.turn, State.OUT
        copy.deliveries += 1
        client.out.append((box, copy))
        return copy

    def _check_order(self, client: Client, box: Box, copy: Copy) -> None:
        place = (box.key, copy.mail.priority)
        if copy.deliveries or copy.is_disordered or box.key[0] == "dead":
            return
        assert client.last.get(place, -1) < copy.mail.number, (
            f"{client.name} got {copy.mail.key} of {box.key} after a later one"
        )
        client.last[place] = copy.mail.number

    def take(self, client: Client, at: int) -> list[tuple[Box, Copy]]:
        """What an ACK or NACK of the message at this place of `out` is about."""
        first = 0 if client.consumer.ack is AckMode.CLIENT else at
        taken = client.out[first : at + 1]
        del client.out[first : at + 1]
        return taken

    def done(self, parts: list[tuple[Box, Copy]]) -> None:
        for box, copy in parts:
            box.copies.pop(copy.mail.key, None)

    def lose(self, parts: list[tuple[Box, Copy]]) -> None:
        """The connection of a subscription is lost: an attempt of the oldest that it had; of the others nothing is counted."""
        if not parts:
            return
        oldest = min(parts, key=lambda part: part[1].turn)
        for _, copy in [part for part in parts if part is not oldest]:
            copy.deliveries -= 1
            copy.is_suspect = copy.is_disordered = True
        self.give_back([oldest], is_failure=True)
        self.give_back([part for part in parts if part is not oldest], is_failure=False)

    def give_back(self, parts: list[tuple[Box, Copy]], *, is_failure: bool) -> None:
        for box, copy in parts:
            if self.boxes.get(box.key) is not box:
                continue
            copy.state = State.READY
            copy.failures += is_failure
            copy.told = copy.deliveries, copy.failures
            if is_failure and copy.failures >= ATTEMPTS:
                del box.copies[copy.mail.key]
                self._die(box, copy.mail)
            elif is_failure and box.key[0] == "r":
                copy.state = State.LATER
                copy.until = self.now + min(MOST_DELAY, DELAY * 2 ** (copy.failures - 1))

    def _die(self, box: Box, mail: Mail) -> None:
        if box.key[0] == "r":
            key = f"{mail.key}|{box.key[2]}"
            dead = Mail(
                key,
                self.next_number(),
                "dead",
                mail.word,
                mail.size,
                mail.is_persistent,
                mail.priority,
                0,
                mail.sender,
            )
            self.route(dead, to_queue=True, to_topic=False)

    def close(self, client: Client, *, is_failure: bool) -> None:
        client.is_closed = True
        del self.clients[client.name]
        out, client.out = client.out, []
        for box in client.boxes:
            if not box.is_stored:
                del self.boxes[box.key]
        if is_failure:
            self.lose(out)
        else:
            self.give_back(out, is_failure=False)

    # Transactions

    def hold(self, transaction: Open, client: Client, at: int, *, is_good: bool) -> None:
        parts = self.take(client, at)
        for _, copy in parts:
            copy.state = State.HELD
        transaction.held.append(Held(client, parts, is_good))

    def settle(self, transaction: Open) -> None:
        """COMMIT, of what was held; the sends come before."""
        for held in sorted(transaction.held, key=lambda held: not held.is_good):
            if held.is_good:
                self.done(held.parts)
            else:
                self.give_back(held.parts, is_failure=True)

    def abort(self, transaction: Open, *, is_failure: bool) -> None:
        """`is_failure`: its connection was lost, which counts where the subscription had been closed before."""
        closed: dict[str, list[tuple[Box, Copy]]] = {}
        for held in transaction.held:
            if held.client.is_closed:
                closed.setdefault(held.client.name, []).extend(held.parts)
                continue
            for _, copy in held.parts:
                copy.state = State.OUT
            held.client.out = sorted([*held.parts, *held.client.out], key=lambda part: part[1].turn)
        for parts in closed.values():
            if is_failure:
                self.lose(parts)
            else:
                self.give_back(parts, is_failure=False)

    # Time

    def is_lapsed(self, copy: Copy) -> bool:
        """Whether it may have gone because it expired."""
        return 0 < copy.mail.expires <= self.now

    def tick(self, ms: int) -> None:
        self.now += ms
        for box in self.boxes.values():
            for copy in box.copies.values():
                if copy.state is State.LATER and copy.until <= self.now:
                    copy.state = State.READY

    def overdue(self) -> Iterator[tuple[Client, Box, Copy]]:
        """Copies that wait although somebody with credit wants them: there are none when nothing moves."""
        for client in self.clients.values():
            if client.has_credit:
                for box in [box for box in client.boxes if self.may_have(client, box)]:
                    for copy in box.copies.values():
                        if (
                            copy.state is State.READY
                            and not self.is_lapsed(copy)
                            and client.wants(box, copy.mail)
                        ):
                            yield client, box, copy

    def may_have(self, client: Client, box: Box) -> bool:
        """Whether the box hands out anything to this client: not while it is paused, nor while another one is exclusive."""
        exclusive = [
            other for other in self.clients.values() if box in other.boxes and other.consumer.is_exclusive
        ]
        first = min(exclusive, key=lambda other: -other.consumer.priority, default=client)
        return not box.is_paused and (box.kind is not Kind.ANYCAST or client is first)

    def purge(self, box: Box) -> None:
        """What waits goes."""
        box.copies = {key: copy for key, copy in box.copies.items() if copy.state in (State.OUT, State.HELD)}

    # Restart

    def stored(self) -> Stored:
        """What a commit that is taken now keeps."""
        boxes = {
            box.key: (box.word, [(c.mail, c.told) for c in box.copies.values() if c.mail.is_persistent])
            for box in self.boxes.values()
            if box.is_stored
        }
        return Stored(boxes, {address: list(mails) for address, mails in self.retained.items()})

    def restart(self, stored: Stored) -> None:
        self.clients = {}
        self.boxes = {
            key: Box(
                key,
                word,
                0,
                {
                    m.key: Copy(m, deliveries=told[0], failures=told[1], told=told, is_suspect=True)
                    for m, told in mails
                },
            )
            for key, (word, mails) in stored.boxes.items()
        }
        self.retained = {address: list(mails) for address, mails in stored.retained.items()}


@dataclass(frozen=True)
class Stored:
    # word, and what is in it with its counts
    boxes: dict[Key, tuple[str, list[tuple[Mail, tuple[int, int]]]]]
    retained: dict[str, list[Mail]]
