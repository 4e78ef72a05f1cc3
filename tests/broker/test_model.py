"""Random interleavings of producers, consumers, transactions, commits, failures and restarts, on the engine and on a simple model.

The engine may do what the model cannot see (when something is paged, in which portions it goes out); the model says what may come
to whom, with which flags, and what must have come when nothing moves any more. Pages are tiny, so that paging happens at once.

STOMPBOX_MODEL_EXAMPLES=20000 pytest tests/broker/test_model.py   for a long run; each example is a life of up to 60 moves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from stompbox.broker.kinds import Kind
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions import durables, readers
from stompbox.broker.transactions import Transaction
from stompbox.incarnations import Position
from stompbox.message import ANYCAST, MULTICAST
from stompbox.store.chunks import decode
from tests.broker.life import ADDRESSES, CREDITS, DURABLES, Lived, key_of, place
from tests.broker.model import MOST_DELAY, Box, Client, Copy, Open
from tests.broker.world import Got

EXAMPLES = int(os.environ.get("STOMPBOX_MODEL_EXAMPLES", "80"))


class Life(Lived):
    """What may happen to it."""

    # Sending

    @rule(data=st.data(), runs=st.lists(st.text("123", min_size=1, max_size=4), min_size=1, max_size=4))
    def send(self, data: st.DataObject, runs: list[str]) -> None:
        """Runs of messages; each message has a word that selectors look at."""
        self.start(data)
        for words in runs:
            self.send_run(words, self.draw(0, 1))

    @precondition(lambda self: len(self.model.clients) < 6)
    @rule(data=st.data(), count=st.integers(1, 3))
    def subscribe(self, data: st.DataObject, count: int) -> None:
        self.start(data)
        for _ in range(count):
            address = self.draw(*self.addresses)
            ways: list[Callable[[Client, str], None]] = []
            if ADDRESSES[address] in (0, ANYCAST):
                ways.append(self.subscribe_to_queue)
            if ADDRESSES[address] in (0, MULTICAST):
                ways += [self.subscribe_to_topic, self.subscribe_durably]
            if address == "s":
                ways.append(self.read_stream)
            word, mode = self.draw("", "", "", "1", "2", "12", "23"), self.draw(*AckMode)
            priority, is_exclusive = self.draw(0, 0, 0, 5), self.draw(False, False, False, False, True)
            client = self.client(
                self.draw(0, 1),
                mode,
                word,
                self.draw(*CREDITS),
                priority=priority,
                is_exclusive=is_exclusive,
            )
            self.draw(*ways)(client, address)

    def subscribe_to_queue(self, client: Client, address: str) -> None:
        name = self.draw(address, address, {"r": "dead", "w.x": "w.*", "w.y": "w.*"}.get(address, address))
        if name == "w.*":
            client.pattern = name
            client.boxes = [
                box
                for box in self.model.boxes.values()
                if box.kind is Kind.ANYCAST and box.key[0].startswith("w.")
            ]
        else:
            self.made(name)
            self.box_made(name)
            client.boxes = [self.model.boxes[name, Kind.ANYCAST, name]]
        self.model.clients[client.name] = client
        self.world.on_queue(client.consumer, name)

    def subscribe_to_topic(self, client: Client, address: str) -> None:
        no_local = self.draw(False, False, True)
        client.no_local = client.consumer.session if no_local else 0
        name = self.draw(address, "w.#") if address.startswith("w.") else address
        if name == "w.#":
            client.pattern = name
            names = [known for known in self.world.engine.addresses if known.startswith("w.")]
        else:
            self.made(name)
            names = [name]
        for known in names:
            self.join_topic(client, known)
        self.model.clients[client.name] = client
        self.world.on_topic(client.consumer, name, no_local=no_local)

    def subscribe_durably(self, client: Client, address: str) -> None:
        free = DURABLES.keys() - {client.durable for client in self.model.clients.values()}
        names = sorted(
            name for name in free if DURABLES[name][0] == (address if address in ("s", "t") else "w.#")
        )
        if not names:
            return
        name = self.draw(*names)
        pattern, word = DURABLES[name]
        mode, credit = client.consumer.ack, (client.consumer.window, client.consumer.prefetch)
        client = self.client(client.connection, mode, word, credit if mode is not AckMode.AUTO else (-1, -1))
        client.durable = name
        if pattern != "w.#":
            self.made(pattern)
        for known in self.world.engine.addresses:
            if known == pattern or (pattern == "w.#" and known.startswith("w.")):
                client.boxes.append(self.model.box((known, Kind.DURABLE, f"client.{name}"), word))
        self.model.clients[client.name] = client
        self.world.on_durable(client.consumer, name, pattern)

    def read_stream(self, client: Client, address: str) -> None:
        is_from_first = self.draw(True, False)
        log = self.world.address(address, MULTICAST).log
        box = self.model.box((address, Kind.STREAM, f"{client.consumer.session}.{client.name}"), client.word)
        if is_from_first:
            box.copies = {mail.key: Copy(mail) for mail in self.model.retained[address] if box.takes(mail)}
        client.boxes = [box]
        self.model.clients[client.name] = client
        self.world.on_stream(client.consumer, address, 0 if is_from_first else log.next)

    @rule(
        data=st.data(),
        connection=st.integers(0, 1),
        way=st.sampled_from(["unsubscribe", "unsubscribe", "drop", "leave", "lost"]),
    )
    def leave(self, data: st.DataObject, connection: int, way: str) -> None:
        self.start(data)
        if way in ("leave", "lost"):
            self.disconnect(connection, is_lost=way == "lost")
        elif way == "drop":
            self.drop_durable(self.draw(*sorted(DURABLES)))
        elif self.model.clients:
            self.close(self.model.clients[self.draw(*sorted(self.model.clients))], is_failure=False)

    def drop_durable(self, name: str) -> None:
        if ("client", name) not in self.world.engine.durables:
            return
        for client in [client for client in self.model.clients.values() if client.durable == name]:
            self.close(client, is_failure=False)
        durables.drop_durable(self.world.engine, "client", name)
        self.model.boxes = {
            key: box for key, box in self.model.boxes.items() if key[1:] != (Kind.DURABLE, f"client.{name}")
        }

    def disconnect(self, connection: int, *, is_lost: bool) -> None:
        for name in [name for name, (_, held) in self.open.items() if held.connection == connection]:
            self.finish(name, is_commit=False, is_lost=is_lost)
        for client in [client for client in self.model.clients.values() if client.connection == connection]:
            self.close(client, is_failure=is_lost)
        self.sessions[connection] = max(self.sessions) + 1

    def close(self, client: Client, *, is_failure: bool) -> None:
        """What is in the outbox was never written."""
        for output in client.consumer.outbox:
            for body in output.run.bodies[output.first - output.run.first : output.stop - output.run.first]:
                for copy in self.model.boxes[place(output.binding.queue)].copies.values():
                    copy.is_disordered |= copy.mail.key.partition("|")[0] == body.partition(b".")[0].decode()
        self.world.close(client.consumer, is_failure=is_failure)
        self.model.close(client, is_failure=is_failure)

    @rule(data=st.data(), way=st.sampled_from(["pause", "resume", "resume", "purge"]))
    def operate(self, data: st.DataObject, way: str) -> None:
        """An operator pauses a queue, lets it go on, or purges it."""
        self.start(data)
        boxes = [box for box in self.model.boxes.values() if box.kind is Kind.ANYCAST]
        if not boxes:
            return
        box = self.draw(*boxes)
        queue = self.world.queue(box.key[2], box.key[0])
        self.receive(self.world.out())
        if way == "purge":
            self.purge(queue, box)
        elif way == "pause":
            box.is_paused = True
            queue.pause()
        else:
            box.is_paused = False
            queue.resume()

    def purge(self, queue: Queue, box: Box) -> None:
        done: list[bool] = []
        self.model.purge(box)
        reclaim.purge(queue, lambda: done.append(True))
        while not done:
            assert self.world.engine.dispatch_rest()

    # Receiving and answering

    def receive(self, all_got: list[Got]) -> None:
        for got in all_got:
            client, box, key = (
                self.model.clients[got.consumer],
                self.model.boxes[place(got.queue)],
                key_of(got),
            )
            copy = self.model.receive(client, box, key)
            before = copy.deliveries - 1
            assert got.deliveries == before, (
                f"{key} says {got.deliveries} deliveries before, there were {before}"
            )
            assert got.is_redelivered == (before > 0 or copy.is_suspect), (
                f"{key} says redelivered {got.is_redelivered}"
            )
            known = self.offsets.setdefault((box.key[0], key), got.offset)
            assert got.offset == known, f"{key} has offset {got.offset}, it was {known}"

    @rule(data=st.data(), count=st.integers(1, 8))
    def answer(self, data: st.DataObject, count: int) -> None:
        """ACKs and NACKs, some of them in transactions."""
        self.start(data)
        for _ in range(count):
            self.receive(self.world.out())
            clients = [
                client
                for client in self.model.clients.values()
                if client.out and client.consumer.ack is not AckMode.AUTO
            ]
            if not clients:
                return
            client = self.draw(*clients)
            self.answer_one(
                client, data.draw(st.integers(0, len(client.out) - 1)), is_good=self.draw(True, True, False)
            )

    def answer_one(self, client: Client, at: int, *, is_good: bool) -> None:
        box, copy = client.out[at]
        queue = next(
            binding.queue for binding in client.consumer.bindings.values() if place(binding.queue) == box.key
        )
        got = Got(client.name, queue, self.offsets[box.key[0], copy.mail.key], b"", False, 0, {})
        transaction = self.draw(
            "", "", *[name for name, (_, held) in self.open.items() if held.connection == client.connection]
        )
        if transaction:
            done, held = self.open[transaction]
            self.world.hold(done, client.consumer, got, is_good=is_good)
            self.model.hold(held, client, at, is_good=is_good)
            return
        (self.world.ack if is_good else self.world.nack)(client.consumer, got)
        parts = self.model.take(client, at)
        if is_good:
            self.model.done(parts)
        else:
            self.model.give_back(parts, is_failure=True)

    @rule(data=st.data())
    def flush(self, data: st.DataObject) -> None:
        """The operating system has taken what was written for auto subscriptions."""
        self.start(data)
        for client in self.model.clients.values():
            if client.consumer.ack is AckMode.AUTO:
                parts, client.out = client.out, []
                self.world.engine.flushed(client.consumer)
                self.model.done(parts)

    # Transactions

    @rule(data=st.data(), way=st.sampled_from(["begin", "commit", "abort"]))
    def transact(self, data: st.DataObject, way: str) -> None:
        self.start(data)
        if way == "begin" and len(self.open) < 3:
            self.names += 1
            self.open[f"x{self.names}"] = Transaction(f"x{self.names}"), Open(self.draw(0, 1))
        elif self.open:
            self.receive(self.world.out())
            self.finish(self.draw(*sorted(self.open)), is_commit=way == "commit")

    def finish(self, name: str, *, is_commit: bool, is_lost: bool = False) -> None:
        done, held = self.open.pop(name)
        if is_commit:
            self.world.engine.commit(done)
            for mails, (_, run) in zip(held.sends, done.sends, strict=True):
                self.published([replace(mail, number=self.model.next_number()) for mail in mails], run)
            self.model.settle(held)
        else:
            self.world.engine.abort(done, is_failure=is_lost)
            self.model.abort(held, is_failure=is_lost)

    # Reader groups

    @precondition(lambda self: "t" in self.addresses)
    @rule(data=st.data())
    def group(self, data: st.DataObject) -> None:
        """A reader group begins, or moves on."""
        self.start(data)
        self.made("t")
        if "g" not in self.world.engine.group_patterns:
            readers.open_group(self.world.engine, "g", ["t"], lambda address: address.log.next)
            self.grouped = []
        elif self.grouped:
            offset, _ = self.draw(*self.grouped)
            readers.commit_group(self.world.engine, "g", {"t": Position(offset)})
            self.grouped = [entry for entry in self.grouped if entry[0] >= offset]

    # Disk and clock

    @rule(data=st.data(), is_good=st.sampled_from([True, True, True, False]))
    def commit(self, data: st.DataObject, is_good: bool) -> None:
        """The commit under way ends, or one begins."""
        self.start(data)
        if self.taken is not None:
            self.land(is_good=is_good)
        else:
            self.taken = self.world.engine.take_commit(), self.model.stored()

    def land(self, *, is_good: bool) -> None:
        if self.taken is None:
            return
        (commit, stored), self.taken = self.taken, None
        if is_good:
            self.world.store.apply(commit)
            self.world.engine.committed()
            self.stored = stored
        else:
            self.world.engine.commit_failed(commit)

    @rule(data=st.data(), max_bytes=st.sampled_from([1, 1 << 20]))
    def serve(self, data: st.DataObject, max_bytes: int) -> None:
        self.start(data)
        self.world.serve(max_bytes=max_bytes)

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """Memory is full, and this queue's window is the idlest. Nobody can tell."""
        self.start(data)
        queues = list(self.world.engine.queues.values())
        if queues:
            reclaim.give_back(self.draw(*queues))

    @rule(data=st.data(), ms=st.sampled_from([10, 100, 1000]))
    def tick(self, data: st.DataObject, ms: int) -> None:
        self.start(data)
        self.pass_time(ms)

    def pass_time(self, ms: int) -> None:
        self.receive(self.world.out())
        self.model.tick(ms)
        self.world.tick(ms)

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        self.start(data)
        self.quiesce()

    def quiesce(self) -> None:
        self.receive(self.world.settle())
        while self.is_unshown():
            self.land(is_good=True)
            self.save()
            self.receive(self.world.settle())
        for client, box, copy in self.model.overdue():
            raise AssertionError(
                f"{copy.mail.key} waits in {box.key}, {client.name} has credit and wants it; {client.consumer!r}"
            )

    def is_unshown(self) -> bool:
        """Something waits for the commit after which readers by offset are shown it."""
        engine = self.world.engine
        return any(
            address.streams and address.log.shown < address.log.next for address in engine.commits.dirty
        ) or bool(self.taken is not None and any(address.streams for address in engine.addresses.values()))

    @precondition(lambda self: self.world.engine.is_durable)
    @rule(data=st.data(), is_stored=st.booleans())
    def restart(self, data: st.DataObject, is_stored: bool) -> None:
        self.start(data)
        self.begin_again(is_stored=is_stored)

    def begin_again(self, *, is_stored: bool) -> None:
        """The process was killed: the commit under way is on the disk whole, or not at all."""
        if self.taken is not None and is_stored:
            self.world.store.apply(self.taken[0])
            self.stored = self.taken[1]
        self.taken = None
        self.world = self.world.restart()
        self.world.commits_itself = False
        self.model.restart(self.stored)
        self.open = {}
        self.sessions = [max(self.sessions) + 1, max(self.sessions) + 2]
        if "g" not in self.world.engine.group_patterns:
            self.grouped = []
        else:
            log = self.world.engine.addresses["t"].log
            position = readers.positions(self.world.engine, "g")["t"]
            self.grouped = [
                (offset, key)
                for offset, key in self.grouped
                if position <= offset < log.next and (offset, key) in self.kept("t")
            ]
        self.offsets = {
            (box.key[0], copy.mail.key): self.offsets[box.key[0], copy.mail.key]
            for box in self.model.boxes.values()
            for copy in box.copies.values()
            if (box.key[0], copy.mail.key) in self.offsets
        } | {("s", mail.key): self.offsets["s", mail.key] for mail in self.model.retained["s"]}

    def kept(self, address: str) -> set[tuple[int, str]]:
        """What the store has of an address."""
        log = self.world.engine.addresses[address].log
        chunks = self.world.store.read(log.id, 0, log.next, 1 << 30)
        runs = [run for chunk in chunks for run in decode(chunk.blob, chunk.first)]
        return {
            (run.first + at, body.partition(b".")[0].decode())
            for run in runs
            for at, body in enumerate(run.bodies)
        }

    # What always holds

    def start(self, data: st.DataObject) -> None:
        self.data = data
        self.begun += 1

    @invariant()
    def books_are_right(self) -> None:
        """A stored cursor has nothing that is not answered, no log lets go of what its queues still need, credit is what is out."""
        for queue in self.world.engine.queues.values():
            box = self.model.boxes.get(place(queue))
            if box is None or not box.is_stored:
                continue
            low = queue.address.log.low_water()
            for copy in box.copies.values():
                offset = self.offsets.get((box.key[0], copy.mail.key))
                if offset is not None and not self.model.is_lapsed(copy):
                    assert offset >= queue.cursor.position, f"{queue!r} is past {copy.mail.key} at {offset}"
                    assert offset not in queue.cursor.ahead, (
                        f"{queue!r} has {copy.mail.key} at {offset} as acknowledged"
                    )
                    assert low <= offset, (
                        f"{queue.address.log!r} needs nothing below {low}, but {copy.mail.key} at {offset}"
                    )

        for client in self.model.clients.values():
            check_credit(client.consumer)
        self.ended = self.begun

    def teardown(self) -> None:
        """In the end everything that was not answered comes to whoever asks, once, and then nothing is left in the store."""
        if self.ended != self.begun:
            return
        for connection in (0, 1):
            self.disconnect(connection, is_lost=False)
        self.land(is_good=True)
        self.quiesce()
        self.save()
        if self.world.engine.is_durable and self.names % 2:
            self.begin_again(is_stored=True)
        for box in self.model.boxes.values():
            if box.is_paused:
                box.is_paused = False
                self.world.queue(box.key[2], box.key[0]).resume()
        self.pass_time(10 * MOST_DELAY)
        if self.grouped:
            assert set(self.grouped) <= self.kept("t"), "the group's messages are not in the log"
        self.consume_everything()
        self.save()
        self.save()
        self.check_nothing_is_left()

    def save(self) -> None:
        self.taken = self.world.engine.take_commit(), self.model.stored()
        self.land(is_good=True)

    def consume_everything(self) -> None:
        for box in [box for box in self.model.boxes.values() if box.is_stored]:
            client = self.client(0, AckMode.AUTO, "", (-1, -1))
            client.boxes = [box]
            self.model.clients[client.name] = client
            address, kind, name = box.key
            if kind is Kind.ANYCAST:
                self.world.on_queue(client.consumer, address)
                continue
            queue = next(
                queue for queue in self.world.engine.addresses[address].topics.values() if queue.name == name
            )
            queue.bind(client.consumer)
            queue.dispatch()
        for _ in range(1000):
            self.quiesce()
            if not any(client.out for client in self.model.clients.values()):
                break
            self.flush(self.data)
        left = [
            (box.key, c.mail.key)
            for box in self.model.boxes.values()
            for c in box.copies.values()
            if not self.model.is_lapsed(c)
        ]
        assert not left, f"never came: {left}"

    def check_nothing_is_left(self) -> None:
        for address in self.world.engine.addresses.values():
            if not address.log.is_retained and not address.groups:
                messages, _ = self.world.store.sizes([address.log.id])[address.log.id]
                assert messages == 0, (
                    f"{messages} messages of {address!r} are still stored: {list(address.queues())}"
                )


def check_credit(consumer: Consumer) -> None:
    out = [segment for _, segment in consumer.ledger]
    for binding in consumer.bindings.values():
        out += binding.held._segments.values()
    assert consumer.messages_out == sum(len(segment) for segment in out), consumer
    if consumer.ack is not AckMode.AUTO:
        assert consumer.bytes_out == sum(segment.size for segment in out), consumer


Life.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=60, report_multiple_bugs=False)
TestLife = Life.TestCase
