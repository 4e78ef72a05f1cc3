"""An engine with everything around it played by the test: producers, consumers, the disk, the clock.

Nothing happens by itself: `out` takes what the engine has for the consumers, `commit` lets the disk have its turn, `serve` answers
reads, `tick` moves the clock. `settle` does all of that until nothing moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.addresses.redelivery import FAILED
from stompbox.broker.engine import PAGE_SIZE, Engine, Load
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.memory import Allowance
from stompbox.broker.queues.queue import Queue
from stompbox.broker.recovery import recover
from stompbox.broker.subscriptions import durables, subscribers
from stompbox.broker.subscriptions.durables import DurableSubscription
from stompbox.broker.transactions import Transaction
from stompbox.config.settings import AddressSetting, AddressSettings, AddressSettingsTable
from stompbox.message import ANYCAST, DEFAULT_PRIORITY, MULTICAST, Run, Shape
from stompbox.selectors import compile_selector
from stompbox.store.base import Commit
from stompbox.store.chunks import decode
from stompbox.store.memory import MemoryStore

NOW = 1_000_000
PORTION = 20_000  # steps, where a test says nothing else: most tests are over before a turn is
# what tests made does not go by itself
STAYING = AddressSettings(auto_delete_queues=False, auto_delete_addresses=False)


class Got(NamedTuple):
    """One message as a consumer has it."""

    consumer: str
    queue: Queue
    offset: int
    body: bytes
    is_redelivered: bool
    deliveries: int  # before this one
    headers: dict[str, str]


def settings(*rules: AddressSetting) -> AddressSettingsTable:
    return AddressSettingsTable(rules, STAYING)


def run_of(
    destination: str,
    *bodies: bytes,
    persistent: bool | None = None,
    priority: int = DEFAULT_PRIORITY,
    expires: int = 0,
) -> Run:
    """Messages of one shape without headers of their own."""
    return Run(
        Shape({"destination": destination}, persistent=persistent, priority=priority, expires=expires),
        list(bodies),
    )


class World:
    """One broker's life. `restart` begins the next one from what the store holds."""

    def __init__(
        self,
        *rules: AddressSetting,
        page_size: int = PAGE_SIZE,
        is_durable: bool = True,
        store: MemoryStore | None = None,
        epoch: int = 1,
        now: int = NOW,
        chunk_bytes: int = 1 << 20,
        portion: int = PORTION,
    ) -> None:
        self.rules = rules
        self.store = store or MemoryStore(chunk_bytes=chunk_bytes)
        self.engine = Engine(settings(*rules), epoch=epoch, is_durable=is_durable, page_size=page_size)
        self.engine.now = now
        self.engine.work.portion = portion  # steps of one turn
        self.loads: list[Load] = []  # that the store has not answered
        self.commits_itself = True  # `settle` lets the disk have its turn for readers who wait for it
        recover(self.engine, self.store.recover())

    def restart(self) -> World:
        engine = self.engine
        return World(
            *self.rules,
            page_size=engine.page_size,
            is_durable=engine.is_durable,
            store=self.store,
            epoch=engine.epoch + 1,
            now=engine.now,
            portion=engine.work.portion,
        )

    # Sending

    def send(
        self,
        name: str,
        *bodies: bytes,
        routing: int = ANYCAST,
        persistent: bool | None = None,
        priority: int = DEFAULT_PRIORITY,
        expires: int = 0,
        headers: dict[str, str] | None = None,
        holes: dict[str, Sequence[bytes]] | None = None,
        sender: int = 0,
    ) -> Run:
        """One run to an address."""
        holes = holes or {}
        shape = Shape(
            {"destination": name, **(headers or {})},
            holes=tuple(holes),
            persistent=persistent,
            priority=priority,
            expires=expires,
        )
        run = Run(shape, list(bodies), tuple(holes.values()), routing=routing, sender=sender)
        self.engine.publish(self.address(name, routing), run)
        return run

    def send_to_topic(
        self, name: str, *bodies: bytes, headers: dict[str, str] | None = None, sender: int = 0
    ) -> Run:
        return self.send(name, *bodies, routing=MULTICAST, headers=headers, sender=sender)

    def address(self, name: str, routing: int = 0) -> Address:
        address = self.engine.address(name)
        address.kinds |= routing & MULTICAST
        return address

    # Subscribing

    def consumer(
        self,
        name: str = "c",
        ack: AckMode = AckMode.INDIVIDUAL,
        *,
        selector: str = "",
        window: int = -1,
        prefetch: int = -1,
        session: int = 1,
        allowance: Allowance | None = None,
    ) -> Consumer:
        compiled = compile_selector(selector) if selector else None
        return Consumer(
            name,
            ack,
            session=session,
            selector=compiled,
            window=window,
            prefetch=prefetch,
            allowance=allowance,
        )

    def on_queue(self, consumer: Consumer, name: str, queue: str = "") -> Consumer:
        subscribers.to_queue(self.engine, consumer, Destination(name, name, ANYCAST, queue))
        subscribers.start(consumer)
        return consumer

    def on_topic(self, consumer: Consumer, name: str, *, no_local: bool = False) -> Consumer:
        plain = subscribers.Plain(consumer.selector, no_local)
        subscribers.to_topic(self.engine, consumer, Destination(name, name, MULTICAST), plain)
        subscribers.start(consumer)
        return consumer

    def on_stream(self, consumer: Consumer, name: str, position: int) -> Consumer:
        subscribers.to_stream(self.engine, consumer, Destination(name, name, 0, is_stream=True), position)
        subscribers.start(consumer)
        return consumer

    def on_durable(self, consumer: Consumer, name: str, pattern: str, *, no_local: bool = False) -> Consumer:
        durables.to_durable(
            self.engine, consumer, DurableSubscription("client", name, pattern, consumer.selector, no_local)
        )
        subscribers.start(consumer)
        return consumer

    def close(self, consumer: Consumer, *, is_failure: bool = False) -> None:
        self.engine.close_consumer(consumer, is_failure=is_failure)

    # What consumers do

    def out(self) -> list[Got]:
        """What is in the outboxes; from now on it counts as written."""
        touched, self.engine.touched = self.engine.touched, []
        found: list[Got] = []
        for consumer in touched:
            consumer.is_touched = False
            for output in consumer.outbox:
                run = output.run
                for offset in range(output.first, output.stop):
                    at = offset - run.first
                    queue, again, deliveries = output.binding.queue, output.is_redelivered, output.deliveries
                    found.append(
                        Got(consumer.name, queue, offset, run.bodies[at], again, deliveries, run.headers(at))
                    )
            consumer.outbox.clear()
        return found

    def bodies(self) -> list[bytes]:
        return [got.body for got in self.out()]

    def ack(self, consumer: Consumer, got: Got) -> None:
        sent, reached = consumer.take(got.queue.id, got.offset, got.offset + 1)
        assert reached == got.offset + 1, f"{consumer!r} does not have {got!r}"
        self.engine.acknowledge(consumer, sent)

    def nack(self, consumer: Consumer, got: Got) -> None:
        sent, reached = consumer.take(got.queue.id, got.offset, got.offset + 1)
        assert reached == got.offset + 1, f"{consumer!r} does not have {got!r}"
        self.engine.refuse(consumer, sent)

    def hold(self, transaction: Transaction, consumer: Consumer, got: Got, *, is_good: bool = True) -> None:
        """ACK or NACK in a transaction, as the server does it."""
        sent, reached = consumer.take(got.queue.id, got.offset, got.offset + 1)
        assert reached == got.offset + 1, f"{consumer!r} does not have {got!r}"
        if is_good:
            transaction.acked.append((consumer, sent))
        else:
            transaction.refused.append((consumer, sent, FAILED))
        self.engine.feed(consumer)

    # Disk and clock

    def commit(self) -> Commit:
        commit = self.engine.take_commit()
        self.store.apply(commit)
        self.engine.committed()
        return commit

    def serve(self, *, max_bytes: int = 1 << 20) -> bool:
        """Answers one read of the log; False when none is asked for."""
        self.loads += self.engine.loads
        self.engine.loads = []
        if not self.loads:
            return False
        load = self.loads.pop(0)
        chunks = self.store.read(load.log, load.start, load.stop, max_bytes)
        is_cut = sum(len(chunk.blob) for chunk in chunks) >= max_bytes or bool(
            chunks and self.store.read(load.log, chunks[-1].stop, load.stop, 1)
        )
        runs = [run for chunk in chunks for run in decode(chunk.blob, chunk.first)]
        self.engine.loaded(load, runs, min(chunks[-1].stop, load.stop) if is_cut else load.stop)
        return True

    def tick(self, ms: int) -> None:
        self.engine.tick(self.engine.now + ms)

    def settle(self) -> list[Got]:
        """Until nothing moves: everything that goes out meanwhile."""
        found = self.out()
        for _ in range(100_000):
            if self.engine.commits.is_awaited and self.commits_itself:
                self.commit()
            if not (self.engine.dispatch_rest() or self.serve(max_bytes=1) or self.engine.touched):
                return found
            found += self.out()
        raise AssertionError(f"it moves for ever: {self.engine.later!r} {list(self.engine.queues.values())}")

    def waiting_in(self, name: str) -> list[Got]:
        """What waits in a queue, by way of a consumer that gives it back."""
        reader = self.on_queue(self.consumer("reader"), name)
        found = [got for got in self.settle() if got.consumer == "reader"]
        self.close(reader)
        return found

    def queue(self, name: str, address: str = "") -> Queue:
        return self.engine.addresses[address or name].anycast[name]
