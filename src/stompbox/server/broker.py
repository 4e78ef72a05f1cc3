"""The broker: one engine, one store, the connections, and the turn of the loop that joins them.

After each read, `flush` writes what the engine has put out, once per connection, and starts a commit where one is due.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompbox.broker import limits, retention, windows
from stompbox.broker.address import Address
from stompbox.broker.consumer import AckMode, Consumer, Output
from stompbox.broker.engine import Engine
from stompbox.broker.paging import Load
from stompbox.broker.queue import Kind
from stompbox.broker.recovery import DOUBTS, identified, note_doubts, recover
from stompbox.broker.stagings import Stagings
from stompbox.config import Configuration, ListenerOptions
from stompbox.errors import IllegalFrame, Refused, StompboxError, StoreError
from stompbox.incarnations import ID_OCTETS
from stompbox.message import Run
from stompbox.security import Permissions, Users
from stompbox.server import limiting
from stompbox.server.committer import Committer
from stompbox.server.configuring import configure
from stompbox.server.counting import Counting
from stompbox.server.disk import Disk
from stompbox.server.faults import Faults, told, watch
from stompbox.server.hosts import Hosts
from stompbox.server.logins import Login, Logins
from stompbox.server.losses import Losses
from stompbox.server.naming import Names
from stompbox.server.outgoing import Stream, Whole
from stompbox.server.pressure import UNREAD, Pressure
from stompbox.server.refusals import Refusals
from stompbox.server.timeouts import Timeouts
from stompbox.server.transforming import Transform, load_transform, outward
from stompbox.server.uploads import disk_failed
from stompbox.stomp.encode import messages, opening
from stompbox.stomp.runs import Reader
from stompbox.stomp.versions import VERSIONS
from stompbox.store.base import REFUSALS, Commit, Store

if TYPE_CHECKING:
    from stompbox.server.connection import Connection
    from stompbox.server.progress import Progress
    from stompbox.server.tcp import Door, Socket

log = logging.getLogger("stompbox")

ROUNDS = 4  # write, acknowledge what the system took, hand out more: so often before other connections get their turn
RELOAD = 1.0  # seconds until a queue that could not be read is read again


class Broker:
    """Everything of one broker but its listeners."""

    has_failed = False  # by a fault of its own (faults.py): nothing more happens

    def __init__(self, configuration: Configuration, store: Store, loop: asyncio.AbstractEventLoop, *, is_durable: bool) -> None:
        self.configuration = configuration
        self.hosts = Hosts(configuration.virtual_hosts)
        self.loop = loop
        self.started = self.now()
        recovered = store.recover()
        epoch = int.from_bytes(recovered.entries.pop(("broker", "epoch"), b"\0"))
        new_id = partial(secrets.token_hex, ID_OCTETS)
        unsaid = identified(recovered, new_id)
        self.engine = Engine(configuration.settings_of(), epoch=epoch + 1, is_durable=is_durable, new_id=new_id)
        self.engine.now = self.now()
        self.engine.chance = random.random
        self.engine.persists_ids = configuration.persist_id_cache
        self.engine.memory.limit(configuration.global_max_size, configuration.global_max_messages)
        recover(self.engine, recovered)
        limits.measure(self.engine, store.sizes)
        retention.outline(self.engine, store.outline)
        refusal = self._begin(store, Commit(entries={**unsaid, ("broker", "epoch"): (epoch + 1).to_bytes(4), DOUBTS: None}))
        self.faults = Faults(self, Path(configuration.data) if is_durable else None)
        self.committer = Committer(store, loop, self._committed, self.faults.stop)
        self.stagings = Stagings(self.engine, configuration.max_staged_bytes)
        self.users = Users(configuration.users, configuration.authentication_cache_size)
        grants = configuration.grants_of()
        self.permissions = Permissions(grants.best if grants is not None else None, configuration.authorization_cache_size)
        self.logins = Logins(self)
        self.connections: set[Connection] = set()
        self.doors: list[Door] = []
        self.of_listener: Counter[str] = Counter()  # connections, logged in or not, by what it listens on
        self.of_user: Counter[str] = Counter()  # connections that are logged in
        self.waiting: dict[Connection, None] = {}  # those with receipts that a commit must come before
        self.pressure = Pressure(self)
        self.losses = Losses(self)
        self.counting = Counting(self) if configuration.persist_delivery_count_before_delivery and is_durable else None
        self.progress: Progress | None = None  # of pipelines, once one has told of itself
        self.timeouts = Timeouts(self, configuration.transaction_timeout)
        self.disk = Disk(self, Path(configuration.data) if is_durable else None)
        self._names: dict[tuple[ListenerOptions, str], Names] = {}
        self._transforms: dict[str, Transform] = {}
        self.readers: dict[tuple[str, int, int], Reader] = {}
        self.errors: Counter[str] = Counter()  # refused frames and closed connections, by code
        self.refusals = Refusals(self)
        self.sequence = 1  # of the commit that is being gathered
        self.is_wanted = False  # somebody waits for it
        self.is_draining = False  # it will stop when its clients have finished
        self.is_stopping = False
        self.unreadable: set[int] = set()  # queues, said to be so
        self._on_durable: list[tuple[int, asyncio.Future[None]]] = []
        self._commit_timer: asyncio.TimerHandle | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._tick_at = 0
        self._flush_planned = self._commit_planned = False
        self._served = 0  # connections that waited for the last commit
        self._next_session = 1
        self.numbers = count(time.time_ns())  # of messages, where a listener asks for them (stamping.py); no start gives one again
        self.tasks: set[asyncio.Task[None]] = set()  # requests and reads under way
        self.sockets: set[Socket] = set()
        if refusal is not None:
            self.disk.failed(refusal)
        self._make(configuration)

    def _make(self, configuration: Configuration) -> None:
        configure(self.engine, configuration.addresses, configuration.diverts)
        for host in configuration.virtual_hosts:
            configure(self.engine, *configuration.made_of(host))

    def _begin(self, store: Store, first: Commit) -> StoreError | None:
        """The first commit. One that the disk refuses goes in with the next, before which nothing of this broker is in the store."""
        try:
            store.apply(first)
        except StoreError as error:
            if error.code not in REFUSALS:
                raise
            self.engine.commits.owe(first)
            return error
        return None

    def now(self) -> int:
        """ms since the epoch."""
        return int(time.time() * 1000)

    def new_session(self) -> int:
        self._next_session += 1
        return self._next_session

    def enter(self, connection: Connection, login: Login) -> None:
        """A connection is logged in. Raises Refused where the user has enough of them, or is gone since its passcode was verified."""
        user = self.users.again(login.user.name, login.proof)
        most = connection.options.max_connections_per_user
        if user.name and 0 <= most <= self.of_user[user.name]:
            raise Refused("too-many-connections", f"user {user.name!r} has {most} connections, which is the limit")
        connection.transport.enter()
        connection.user = user
        connection.proof = login.proof
        connection.is_entered = True
        self.of_user[user.name] += 1

    def leave(self, connection: Connection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        self.of_listener[str(connection.listener)] -= 1
        self.leave_user(connection)

    def leave_user(self, connection: Connection) -> None:
        """A connection obeys nothing more: its user may have another one in its place, however long its socket lingers."""
        if connection.is_entered:
            connection.is_entered = False
            self.of_user[connection.user.name] -= 1
            if not self.of_user[connection.user.name]:
                del self.of_user[connection.user.name]

    def names_of(self, options: ListenerOptions, space: str = "") -> Names:
        """What destinations mean on a listener and in a virtual host's space; one object for all of its connections."""
        found = self._names.get((options, space))
        if found is None:
            found = self._names[options, space] = Names(options, space)
        return found

    def transform_of(self, options: ListenerOptions) -> Transform | None:
        """The listener's message transformer. Raises ConfigError where it cannot be loaded."""
        name = options.message_transformer
        if name is not None and name not in self._transforms:
            self._transforms[name] = load_transform(name)
        return None if name is None else self._transforms[name]

    def reader(self, version: str, options: ListenerOptions) -> Reader:
        """What was learned of frames, shared by the connections of a version."""
        least = options.stomp_min_large_message_size
        most = min(options.max_body_size, max(0, least - 1)) if least >= 0 else options.max_body_size  # what is large comes in pieces
        key = (version, most, options.max_header_size)
        if key not in self.readers:
            self.readers[key] = Reader(VERSIONS[version], max_body=most, max_head=options.max_header_size)
        return self.readers[key]

    # The turn of the loop

    def flush(self) -> None:
        """Writes what was caused, starts what is due."""
        if self.has_failed:
            return
        engine = self.engine
        for _ in range(ROUNDS):
            if not engine.touched:
                break
            self._write()
        if engine.touched or (engine.later and engine.dispatch_rest()):
            self._flush_soon()
        if engine.loads:
            self._start_loads()
        if engine.slow:
            self._deal_with_slow()
        if engine.memory.is_pressed:
            windows.relieve(engine)
        if self.pressure.full:
            self.pressure.let_in()
        if engine.full:
            limiting.tell(self)
        if engine.undelivered.counts:
            self.losses.plan()
        if not (self.committer.is_busy or self.disk.is_waiting or self.is_stopping) and (self.is_wanted or engine.is_dirty):
            self._commit_when_due()
        deadline = engine.next_deadline()
        if deadline is not None and (self._tick_timer is None or deadline < self._tick_at):
            self._plan_tick(deadline)

    def _deal_with_slow(self) -> None:
        slow, self.engine.slow = self.engine.slow, []
        for found in slow:
            connection: Connection = found.consumer.owner
            log.warning("%s: %s (slow-consumer)", connection.name, found.text)
            if found.is_to_end and not connection.is_ended:
                connection.refuse(IllegalFrame("slow-consumer", found.text, closes=True))
                connection.write_out()
            else:
                self.errors["slow-consumer"] += 1

    def deliver_on(self, consumers: Iterable[Consumer]) -> None:
        """What they have is handed out in the next turn."""
        for consumer in consumers:
            if not consumer.is_closed:
                self.engine.touch(consumer)
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Once more, when others had their turn."""
        if not self._flush_planned:
            self._flush_planned = True
            self.loop.call_soon(self._flush_again)

    def _flush_again(self) -> None:
        self._flush_planned = False
        self.engine.now = self.now()
        self.flush()

    def _write(self) -> None:
        """One round: encode per subscription, write per connection."""
        engine = self.engine
        touched, engine.touched = engine.touched, []
        written: dict[Connection, None] = {}
        for consumer in touched:
            consumer.is_touched = False
            connection: Connection = consumer.owner
            if not consumer.is_closed:
                if connection.unread.is_much:
                    connection.unread.waiting[consumer] = None
                    continue
                held = self.counting.hold_back(consumer) if self.counting is not None else None
                self._encode(consumer, connection)
                if held:
                    consumer.outbox += held
                written[connection] = None
        for connection in written:
            connection.write_out()

    def _encode(self, consumer: Consumer, connection: Connection) -> None:
        if connection.transform is not None:
            self._encode_transformed(consumer, connection, connection.transform)
            return
        out, unread = connection.out, connection.unread
        done = 0
        for output in consumer.outbox:
            if unread.encoded > UNREAD:
                break
            done += 1
            run = output.run
            if run.is_large:
                self._stream(consumer, output, connection)
                continue
            try:
                out.append(self._frames(output, connection, output.first, output.stop))
                unread.encoded += len(out[-1])
            except Exception as error:
                self.errors["internal-fault"] += 1
                log.warning("%s: messages cannot be encoded together: %s", connection.name, told(error))
                self._encode_singly(consumer, output, connection)
        del consumer.outbox[:done]
        if consumer.outbox:  # in the next round, if the system takes what there is
            self.engine.touch(consumer)
        if consumer.ack is AckMode.AUTO:
            connection.unflushed[consumer] = None

    def _frames(self, output: Output, connection: Connection, first: int, stop: int) -> bytes:
        """The messages first .. stop-1 of an output."""
        run = output.run
        extra = connection.extra_headers(output) if output.is_redelivered else b""
        data = messages(output.binding.head, run, first - run.first, stop - run.first, redelivered=output.is_redelivered, extra=extra)
        self.engine.counters["delivered"] += stop - first
        return data

    def _encode_singly(self, consumer: Consumer, output: Output, connection: Connection) -> None:
        """One by one, up to the message that cannot be encoded: that is a failed delivery, so that it is dead in the end."""
        for offset in range(output.first, output.stop):
            try:
                connection.out.append(self._frames(output, connection, offset, offset + 1))
            except Exception as error:
                fault = self.faults.contain(connection, f"message {output.binding.queue.id}-{offset} was encoded", error)
                self.engine.withdraw(consumer, output.binding, offset)
                connection.refuse(fault)
                return

    def _stream(self, consumer: Consumer, output: Output, connection: Connection) -> None:
        """The same for messages whose bodies are in the store."""
        run = output.run
        extra = connection.extra_headers(output) if output.is_redelivered else b""
        for index in range(output.first - run.first, output.stop - run.first):
            head = opening(output.binding.head, run, index, redelivered=output.is_redelivered, extra=extra)
            connection.stream(Stream(head, run.large(index), self._on_gone(consumer, output, run.first + index)))
            self.engine.counters["delivered"] += 1

    def _on_gone(self, consumer: Consumer, output: Output, offset: int) -> Callable[[], None] | None:
        """What is done about a large message that is gone before it is written, to a reader who holds nothing up."""
        if output.binding.queue.kind not in (Kind.STREAM, Kind.BROWSER):
            return None
        return partial(self._pass_by, consumer, output, offset)

    def _pass_by(self, consumer: Consumer, output: Output, offset: int) -> None:
        """As with one that is gone before it is read: the reader goes on with the next."""
        if output.binding.queue.kind is Kind.STREAM:
            self.engine.counters["retention"] += 1
        if not consumer.is_closed:
            self.engine.acknowledge(consumer, consumer.withdraw(output.binding, offset))

    def _encode_transformed(self, consumer: Consumer, connection: Connection, transform: Transform) -> None:
        """The same, one by one. What the transformer does not take is a failed delivery."""
        outbox, consumer.outbox = consumer.outbox, []
        for output in outbox:
            for offset in range(output.first, output.stop):
                if output.run.is_large:
                    made = partial(self._transformed_whole, consumer, transform, output, offset)
                    gone = self._on_gone(consumer, output, offset)
                    connection.stream(Whole(output.run.large(offset - output.run.first), made, gone))
                    continue
                connection.out.append(self._transformed(consumer, transform, output, output.run, offset))
                if consumer.is_closed:
                    return
        if consumer.ack is AckMode.AUTO:
            connection.unflushed[consumer] = None

    def _transformed(self, consumer: Consumer, transform: Transform, output: Output, run: Run, offset: int) -> bytes:
        """The frame of one message; empty when the transformer did not take it."""
        connection: Connection = consumer.owner
        extra = connection.extra_headers(output) if output.is_redelivered else b""
        try:
            run = outward(transform, run, offset - run.first, connection.user.name)
        except StompboxError as error:
            self.engine.withdraw(consumer, output.binding, offset)
            connection.refuse(error)
            return b""
        self.engine.counters["delivered"] += 1
        return messages(output.binding.head, run, 0, 1, redelivered=output.is_redelivered, extra=extra)

    def _transformed_whole(self, consumer: Consumer, transform: Transform, output: Output, offset: int, body: bytes) -> bytes:
        """The same, once all pieces of a large body are there."""
        run, index = output.run, offset - output.run.first
        columns = tuple([column[index : index + 1] for column in run.columns])
        whole = Run(run.shape, [body], columns, first=offset, arrived=run.arrived, routing=run.routing, sender=run.sender, queue=run.queue)
        return self._transformed(consumer, transform, output, whole, offset)

    def _plan_tick(self, deadline: int) -> None:
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self._tick_at = deadline
        self._tick_timer = self.loop.call_later(max(0, deadline - self.now()) / 1000, self._tick)

    def _tick(self) -> None:
        self._tick_timer = None
        self.engine.tick(self.now())
        self.flush()

    # Commits

    def want_commit(self, connection: Connection) -> int:
        """Somebody waits for what was done just now: the sequence of the commit that will have it."""
        self.is_wanted = True
        self.waiting[connection] = None
        return self.sequence

    def when_durable(self, waiter: asyncio.Future[None]) -> None:
        """Resolves `waiter` when all that was done up to now is on disk, or fails it with the StoreError."""
        self.is_wanted = True
        self._on_durable.append((self.sequence, waiter))

    def _commit_when_due(self) -> None:
        if self.is_wanted:
            if self._served < 2 and len(self.waiting) < 2:  # nobody else has been here: there is no company to wait for
                self._commit_wanted()
            elif not self._commit_planned:
                self._commit_planned = True
                self.loop.call_soon(self._commit_wanted)
        elif self._commit_timer is None:
            self._commit_timer = self.loop.call_later(self.configuration.max_commit_delay / 1000, self._commit_late)

    def _commit_wanted(self) -> None:
        """All that the sockets had was obeyed: who came together is served together."""
        self._commit_planned = False
        if self.is_wanted and not self.committer.is_busy and not self.disk.is_waiting:
            self._start_commit()

    def _commit_late(self) -> None:
        self._commit_timer = None
        if not self.committer.is_busy and not self.disk.is_waiting and self.engine.is_dirty:
            self._start_commit()

    def try_commit(self) -> None:
        """The disk has failed, and it is time to see whether it works again."""
        if not self.committer.is_busy:
            self.engine.now = self.now()
            self._start_commit()

    def _start_commit(self) -> None:
        if self.has_failed:
            return
        if self._commit_timer is not None:
            self._commit_timer.cancel()
            self._commit_timer = None
        self.is_wanted = False
        commit = self.engine.take_commit()
        if self.disk.failure is not None:
            commit.is_loose = False  # it is to show whether the disk keeps again what it is given
        sequence, self.sequence = self.sequence, self.sequence + 1
        if commit or self.disk.failure is not None:
            self.committer.submit(commit or self.disk.probe())
        else:  # all of it was consumed already
            self.engine.committed()
            self._release(sequence)
            self._flush_soon()

    def _committed(self, commit: Commit, error: StoreError | None) -> None:
        """The committer has an answer: the one way by which anything that needs the disk is confirmed."""
        if self.has_failed:
            return
        self.committer.is_busy = False
        self.engine.now = self.now()
        if error is None:
            self.engine.committed()
            self.disk.worked()
            self._release(self.sequence - 1)
        else:
            self.engine.commit_failed(commit)
            self.disk.failed(error)
            for connection in list(self.connections):
                disk_failed(connection)
            self._refuse(self.sequence - 1, error)
        self.flush()

    def _refuse(self, sequence: int, error: StoreError) -> None:
        """The commit of this sequence is not in the store."""
        for connection in list(self.waiting):
            connection.refuse_commit(sequence, error)
        self._release(sequence, error)

    def _release(self, sequence: int, error: StoreError | None = None) -> None:
        self.pressure.relieve()
        if self.counting is not None:
            if error is None:
                self.counting.landed(sequence)
            else:
                self.counting.failed()
        self._served = len(self.waiting)
        for connection in list(self.waiting):
            connection.release(sequence)
        if not self._on_durable:
            return
        due = [waiter for at, waiter in self._on_durable if at <= sequence]
        self._on_durable = [(at, waiter) for at, waiter in self._on_durable if at > sequence]
        for waiter in due:
            if waiter.done():
                continue
            if error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(None)

    # Reads for paged queues

    def _start_loads(self) -> None:
        loads, self.engine.loads = self.engine.loads, []
        for load in loads:
            self.spawn(self._load(load))

    async def _load(self, load: Load) -> None:
        try:
            runs, stop = await self.committer.load(load.log, load.start, load.stop, load.max_bytes)
        except StoreError as error:
            self._cannot_load(load, error)
            return
        self.unreadable.discard(load.queue.id)
        self.engine.now = self.now()
        self.engine.loaded(load, runs, stop)
        self.flush()

    def _cannot_load(self, load: Load, error: StoreError) -> None:
        """Says so once, and asks again later: whoever waits for the queue has no other way to learn that it works again."""
        if load.queue.id not in self.unreadable:
            self.unreadable.add(load.queue.id)
            self.errors[error.code] += 1
            log.error("queue %s cannot be read from offset %d on: %s (%s)", load.queue.name, load.start, error.message, error.code)
        self.loop.call_later(RELOAD, self._load_again, load)

    def _load_again(self, load: Load) -> None:
        if not self.is_stopping and load.queue.id in self.engine.queues:
            self.engine.loads.append(load)
            self.flush()

    def spawn(self, work: Coroutine[Any, Any, None], connection: Connection | None = None) -> None:
        """Does something beside the rest. When it raises, the broker stops; or this connection alone, where nothing else was touched."""
        watch(self, work, connection)

    def address_of(self, name: str) -> Address | None:
        return self.engine.addresses.get(name)

    def drain(self) -> None:
        """Nothing new goes out from now on; what is out may be answered (stopping.py)."""
        self.is_draining = True

    async def stop(self) -> None:
        """Ends connections, writes what is not yet written, closes the store. After a fault nothing of that."""
        self.is_stopping = True
        if not self.has_failed:
            try:
                await self._end()
            except Exception as error:
                self.faults.stop("it was told to stop", error)
        if self.has_failed:
            self.disk.close()
            for task in list(self.tasks):
                task.cancel()
            self.committer.abandon()

    async def _end(self) -> None:
        for connection in list(self.connections):
            connection.shut()
        for task in list(self.tasks):
            task.cancel()
        self.disk.close()
        self.losses.tell()
        self.logins.close()
        await self._store_the_rest()
        if not self.has_failed:
            await self.loop.run_in_executor(None, self.committer.close)

    async def _store_the_rest(self) -> None:
        """All that is not stored yet, if the disk lets us: it is asked once."""
        await self._idle()
        while self.engine.is_dirty and not self.has_failed:
            self._start_commit()
            await self._idle()
            if self.disk.failure is not None:
                break
        if self.engine.is_dirty:
            log.error("stopped without having stored everything: %r", self.engine)
            return
        note_doubts(self.engine)
        self._start_commit()
        await self._idle()

    async def _idle(self) -> None:
        while self.committer.is_busy and not self.has_failed:
            await asyncio.sleep(0.001)

    def __repr__(self) -> str:
        return f"<Broker connections={len(self.connections)} commit={self.sequence} {self.engine!r}>"
