"""What the lives of test_model.py stand on: the engine and the model side by side, and what is done to both of them."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from stompbox.broker.kinds import Kind
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.queue import Queue
from stompbox.broker.transactions import Transaction
from stompbox.broker.work import PORTION
from stompbox.config.settings import AddressSetting
from stompbox.message import ANYCAST, MULTICAST, Run, Shape
from stompbox.selectors import compile_selector
from stompbox.store.base import Commit
from tests.broker.model import ATTEMPTS, DELAY, MOST_DELAY, Client, Mail, Model, Open, Stored
from tests.broker.world import NOW, Got, World

EXAMPLES = int(os.environ.get("STOMPBOX_MODEL_EXAMPLES", "80"))
RULES = (
    AddressSetting(match="#", max_delivery_attempts=ATTEMPTS, dead_letter_address=None),
    AddressSetting(
        match="r",
        redelivery_delay=DELAY,
        redelivery_delay_multiplier=2.0,
        max_redelivery_delay=MOST_DELAY,
        dead_letter_address="dead",
    ),
    AddressSetting(match="s", retention_messages=1_000_000),
)
# 0: either or both
ADDRESSES = {"q": ANYCAST, "r": ANYCAST, "t": MULTICAST, "s": MULTICAST, "w.x": 0, "w.y": 0}
# name: pattern, word of the selector
DURABLES = {"all": ("t", ""), "ones": ("t", "1"), "wide": ("w.#", ""), "seen": ("s", "")}
# window, prefetch
CREDITS = ((-1, -1), (-1, -1), (0, -1), (3, -1), (40, -1), (700, -1), (-1, 0), (-1, 1), (-1, 3))
KINDS_OF_MAIL = (  # persistent, priority, expires, octets of body beside the key
    (None, 4, 0, 0), (True, 4, 0, 0), (True, 4, 0, 5), (True, 4, 0, 600),
    (None, 9, 0, 0), (True, 4, 50, 0), (False, 4, 0, 0), (False, 4, 0, 600),
)  # fmt: skip
T = TypeVar("T")


def key_of(got: Got) -> str:
    key = got.body.partition(b".")[0].decode()
    return f"{key}|{got.headers['_AMQ_ORIG_QUEUE']}" if got.queue.address.name == "dead" else key


def place(queue: Queue) -> tuple[str, Kind, str]:
    return queue.address.name, queue.kind, queue.name


class Lived(RuleBasedStateMachine):
    """`taken` is the commit that the disk works on, with what the model says it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(*RULES)
        self.model = Model(NOW)
        self.model.retained["s"] = []
        self.stored = self.model.stored()
        self.taken: tuple[Commit, Stored] | None = None
        self.open: dict[str, tuple[Transaction, Open]] = {}
        self.sessions = [1, 2]  # of the two connections; a new one after each disconnect
        self.names = 0
        self.offsets: dict[tuple[str, str], int] = {}  # by address and key
        self.grouped: list[tuple[int, str]] = []  # what group g must find on address t
        self.begun = self.ended = 0
        self.addresses: list[str] = []
        self.data: Any = None  # what the current move draws from

    @initialize(
        page_size=st.sampled_from([1300, 4000, 1 << 20]),
        is_durable=st.sampled_from([True, True, False]),
        portion=st.sampled_from([1, 40, 200, PORTION]),
        chunk_bytes=st.sampled_from([300, 1 << 20]),
        addresses=st.lists(st.sampled_from(sorted(ADDRESSES)), min_size=1, max_size=3, unique=True),
    )
    def begin(
        self, page_size: int, is_durable: bool, portion: int, chunk_bytes: int, addresses: list[str]
    ) -> None:
        """Few addresses in one life, so that much happens at each."""
        self.world = World(
            *RULES, page_size=page_size, is_durable=is_durable, portion=portion, chunk_bytes=chunk_bytes
        )
        self.world.commits_itself = False
        self.addresses = addresses

    def draw(self, *choices: T) -> T:
        return self.data.draw(st.sampled_from(choices))

    def send_run(self, words: str, connection: int) -> None:
        address = self.draw(*self.addresses)
        routing = ADDRESSES[address] or self.draw(ANYCAST, MULTICAST, ANYCAST | MULTICAST)
        persistent, priority, expires, pad = self.draw(*KINDS_OF_MAIL)
        session, expires = self.sessions[connection], self.model.now + expires if expires else 0
        self.made(address)
        mails = []
        for word in words:
            number = self.model.next_number()
            size = len(str(number)) + pad
            mails.append(
                Mail(
                    str(number),
                    number,
                    address,
                    word,
                    size,
                    persistent is not False,
                    priority,
                    expires,
                    session,
                )
            )
        bodies = [mail.key.encode() + b"." * pad for mail in mails]
        columns = ([word.encode() for word in words],) if len(set(words)) > 1 else ()
        headers = {"destination": address} if columns else {"destination": address, "word": words[0]}
        shape = Shape(
            headers,
            holes=("word",) if columns else (),
            persistent=persistent,
            priority=priority,
            expires=expires,
        )
        run = Run(shape, bodies, columns, routing=routing, sender=session)
        transaction = self.draw(
            "", *[name for name, (_, held) in self.open.items() if held.connection == connection]
        )
        if transaction:
            done, held = self.open[transaction]
            done.sends.append((self.world.address(address, routing), run))
            held.sends.append(mails)
        else:
            self.world.engine.publish(self.world.address(address, routing), run)
            self.published(mails, run)

    def published(self, mails: list[Mail], run: Run) -> None:
        for at, mail in enumerate(mails):
            if run.routing & ANYCAST:
                self.box_made(mail.address)
            self.model.route(
                mail, to_queue=bool(run.routing & ANYCAST), to_topic=bool(run.routing & MULTICAST)
            )
            self.offsets[mail.address, mail.key] = run.first + at
            if mail.address == "t" and "g" in self.world.engine.group_patterns:
                self.grouped.append((run.first + at, mail.key))

    def made(self, address: str) -> None:
        """A frame names an address: who waits for it joins it."""
        if address in self.world.engine.addresses:
            return
        self.world.engine.address(address)
        self.join(address)

    def join(self, address: str) -> None:
        if not address.startswith("w."):
            return
        for client in self.model.clients.values():
            if client.pattern == "w.#" and not client.durable:
                self.join_topic(client, address)
        if ("client", "wide") in self.world.engine.durables:
            box = self.model.box((address, Kind.DURABLE, "client.wide"))
            for client in self.model.clients.values():
                if client.durable == "wide":
                    client.boxes.append(box)

    def join_topic(self, client: Client, address: str) -> None:
        key = (address, Kind.TOPIC, f"{client.consumer.session}.{client.name}")
        client.boxes.append(self.model.box(key, client.word, client.no_local))

    def box_made(self, address: str) -> None:
        """The anycast queue of an address is there, if it was not: wildcards join it."""
        key = (address, Kind.ANYCAST, address)
        if key not in self.model.boxes:
            box = self.model.box(key)
            for client in self.model.clients.values():
                if client.pattern == "w.*" and address.startswith("w."):
                    client.boxes.append(box)

    # Subscribing

    def client(
        self,
        connection: int,
        mode: AckMode,
        word: str,
        credit: tuple[int, int],
        *,
        priority: int = 0,
        is_exclusive: bool = False,
    ) -> Client:
        self.names += 1
        words = ", ".join([f"'{letter}'" for letter in word])
        window, prefetch = credit
        consumer = Consumer(
            f"c{self.names}",
            mode,
            session=self.sessions[connection],
            selector=compile_selector(f"word IN ({words})") if word else None,
            window=window,
            prefetch=prefetch,
            priority=priority,
            is_exclusive=is_exclusive,
        )
        name = consumer.name
        return Client(name, connection, consumer, word)
