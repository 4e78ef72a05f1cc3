"""The broker: one engine, one store, the connections, and the turn of the loop that joins them.

When the sockets that had something are read, `flush` writes what the engine has put out, once per connection, and starts a commit where
one is due; before that where they had much.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mypy_extensions import mypyc_attr

from stompbox.broker.addresses import limits
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.configuration import outline_retention
from stompbox.broker.engine import Engine
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.recovery import DOUBTS, identified, note_end, recover
from stompbox.broker.subscriptions.staging import Sinks
from stompbox.config import AddressSettingsTable, Configuration
from stompbox.config.matching import Wildcards
from stompbox.errors import IllegalFrame, Refused, StoreError
from stompbox.incarnations import ID_OCTETS, NewId
from stompbox.server import limiting, notifications
from stompbox.server.beats import Beats
from stompbox.server.clients import Clients
from stompbox.server.committer import Committer
from stompbox.server.company import Company
from stompbox.server.configuring import configure, limit_memory, limit_sinks
from stompbox.server.counting import Counting
from stompbox.server.delivering import Deliveries
from stompbox.server.disk import Disk
from stompbox.server.faults import Faults, watch
from stompbox.server.frames.transactions import Timeouts
from stompbox.server.frames.uploads import disk_failed
from stompbox.server.generations import YoungGeneration
from stompbox.server.ledger import Ledger
from stompbox.server.loading import Loads
from stompbox.server.logins import Logins
from stompbox.server.pressure import Pressure
from stompbox.server.releasing import Releases
from stompbox.server.requests import schedules
from stompbox.server.requests.publishing import Publications
from stompbox.server.session.connection import Connection
from stompbox.server.session.framelog import FrameLogs
from stompbox.server.summaries import Losses, Refusals
from stompbox.server.turns import Turns
from stompbox.stomp.frames import Frame
from stompbox.store.base import REFUSALS, Commit, Store

if TYPE_CHECKING:
    from stompbox.config import Listener, Loaded
    from stompbox.server.requests.progress import Progress
    from stompbox.server.seam import ClientConnection, Transport

log = logging.getLogger("stompbox")

EPOCH = ("broker", "epoch")  # of the store's entries: how often a broker has opened it
# octets that were read, after which what came of them goes out before the next socket is read
AT_ONCE = 16 << 10
# write, acknowledge what the system took, hand out more: so often before other connections get their turn
ROUNDS = 4
AGAIN = 1.0  # seconds until a commit is tried again that half of a transaction holds up
PORTION = 64  # slow consumers that are dealt with in one turn of the loop


class Readings(Protocol):
    """What was read of the configuration (readings.py)."""

    async def beside(self) -> Configuration:
        """Reads it once more, in a thread. Raises ConfigError."""

    def counting(self) -> Loaded | None:
        """What the broker obeys now, with where each key comes from."""

    def require(self) -> Loaded:
        """Says what `counting` says, and raises Refused where nobody has read it."""

    def take(self, loaded: Loaded) -> None:
        """Another one may count soon."""


class Tracing(Protocol):
    """What a broker is made with that makes spans of OpenTelemetry (tracing.py)."""

    spans: Any  # how many there were: what the metrics say

    def engine(
        self,
        settings: AddressSettingsTable,
        *,
        wildcards: Wildcards,
        epoch: int,
        is_durable: bool,
        new_id: NewId,
    ) -> Engine: ...

    def deliveries(self, broker: Any) -> Deliveries: ...

    def close(self) -> None:
        """Lets the last spans go out; blocks."""


@mypyc_attr(allow_interpreted_subclasses=True)  # View, of a node that follows
class Broker(Clients):
    """All that belongs to one broker but its listeners."""

    clock: Callable[[], float] = staticmethod(time.time)  # seconds since the epoch
    has_failed = False  # by a fault of its own (faults.py): nothing more happens
    cluster: object | None = (
        None  # the node (cluster/node.py) that this broker is the leader of, if there is a cluster
    )
    is_view = False  # of a node that follows: it answers, and changes nothing (cluster/view.py)
    _ending: asyncio.Task[None] | None = None  # once it was told to stop
    _is_preparing = False  # the next commit is gathered in steps

    def __init__(
        self,
        configuration: Configuration,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        *,
        is_durable: bool,
        owes_first: bool = False,
    ) -> None:
        """Recovers what the store has. `owes_first`: its first commit may take long, so the committer's thread stores it, and nobody may be
        accepted before it has (`begun`). Raises StoreError."""
        super().__init__(configuration)
        self.loop = loop
        self.started = self.now()
        recovered = store.recover()
        epoch = int.from_bytes(recovered.entries.pop(EPOCH, b"\0"))
        new_id = partial(secrets.token_hex, ID_OCTETS)
        unsaid = identified(recovered, new_id)
        settings, wildcards = configuration.settings_of(), configuration.wildcards()
        self.tracing = _tracing_of(configuration)
        self.engine: Engine = (self.tracing.engine if self.tracing is not None else Engine)(
            settings, wildcards=wildcards, epoch=epoch + 1, is_durable=is_durable, new_id=new_id
        )
        self.set_time()
        self.engine.chance = random.random
        self.engine.persists_ids = configuration.persist_id_cache
        limit_memory(self.engine, configuration)
        recover(self.engine, recovered)
        limits.measure(self.engine, store.sizes)
        outline_retention(self.engine, store.outline)
        first = Commit(entries={**unsaid, EPOCH: (epoch + 1).to_bytes(4), DOUBTS: None})
        refusal = None
        if owes_first:
            self.engine.commits.owe(first)
        else:
            refusal = self._begin(store, first)
        self.faults = Faults(self, Path(configuration.data) if is_durable else None)
        self.turns = Turns(self, configuration)
        self.deliveries, self.releases = _deliveries_of(self), Releases(self)
        self.company, self.committer = Company(), Committer(store, loop, self._committed, self.faults.stop)
        self.sinks, self.publications = Sinks(self.engine, recovered.entries), Publications(self)
        schedules.attend(self)
        self.logins = Logins(self)
        self.waiting: dict[ClientConnection, None] = {}  # those with receipts that a commit must come before
        self.pressure = Pressure(self)
        self.losses, self.refusals = Losses(self), Refusals(self)
        self._watch(configuration, is_durable=is_durable)
        self.sequence = 1  # of the commit that is being gathered
        self.is_wanted = False  # somebody waits for it
        self.is_draining = False  # it will stop when its clients have finished
        self.is_stopping = False
        self.loads = Loads(self)
        self._commit_timer: asyncio.TimerHandle | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._flush_planned = self._commit_planned = False
        self._tick_at = self._octets_read = 0  # ms; octets since what came of them went out
        self.tasks: set[asyncio.Task[None]] = set()  # requests and reads under way
        if refusal is not None:
            self.disk.failed(refusal)
        self._make(configuration)

    def _watch(self, configuration: Configuration, *, is_durable: bool) -> None:
        """What looks after clients and the disk."""
        # the one that is going on, and who waits for it (reloading.py)
        self.reloads: deque[Any] = deque()
        self.readings: Readings | None = None  # where the configuration was read for this broker
        self.progress: Progress | None = None  # of pipelines, once one has told of itself
        self.timeouts = Timeouts(self, configuration.transaction_timeout)
        self.disk: Disk = Disk(self, Path(configuration.data) if is_durable else None)
        self.frames, self.beats, self.young = FrameLogs(self), Beats(self), YoungGeneration()
        self.ledger = Ledger(self, configuration.max_client_memory)
        self.counting = (
            Counting(self) if configuration.persist_delivery_count_before_delivery and is_durable else None
        )

    def _make(self, configuration: Configuration) -> None:
        configure(self.engine, configuration.addresses, configuration.diverts)
        for host in configuration.virtual_hosts:
            configure(self.engine, *configuration.made_of(host))
        limit_sinks(self.sinks, configuration)
        self.publications.resume()
        self.engine.notifications.address = configuration.management_notification_address or ""

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

    async def begun(self) -> None:
        """Returns when its first commit is in the store. Raises StoreError where it is refused."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self.when_durable(waiter)
        self.flush_soon()
        await waiter

    def now(self) -> int:
        """The time of the broker's clock, ms since the epoch."""
        return int(self.clock() * 1000)

    def set_time(self) -> None:
        """Tells the engine what time it is: whatever comes from outside does so first, and nobody else does."""
        self.engine.now = int(self.clock() * 1000)

    # The turn of the loop

    def flush(self, *, is_turn_over: bool = False) -> None:
        """Writes what was caused, starts what is due. `is_turn_over`: all that the sockets had was obeyed."""
        if self.has_failed:
            return
        self._octets_read = 0
        engine = self.engine
        if engine.work.has_begun:
            engine.work.begin()
        if engine.notifications.waiting:
            engine.notifications.publish()
        for _ in range(ROUNDS):
            if not engine.touched or not self.deliveries.write() or (engine.touched and self.turns.is_over):
                break
        if engine.touched or engine.later.waiting:
            self.flush_soon()
        if engine.loads:
            self.loads.start()
        if engine.slow:
            self._deal_with_slow()
        if engine.overbound:
            self._end_overbound()
        if engine.memory.is_pressed:
            reclaim.relieve(engine)
        if self.pressure.full:
            self.pressure.let_in()
        if engine.full:
            limiting.tell(self)
        if engine.undelivered.counts:
            self.losses.plan()
        if engine.commits.is_awaited:
            self.is_wanted = True
        if not (self.committer.is_busy or self.disk.is_waiting or self.is_stopping) and (
            self.is_wanted or (self._commit_timer is None and engine.is_dirty)
        ):
            self._commit_when_due(is_turn_over=is_turn_over)
        deadline = engine.next_deadline()
        if (
            deadline is not None
            and (self._tick_timer is None or deadline < self._tick_at)
            and not self.is_stopping
        ):
            self._plan_tick(deadline)

    def _deal_with_slow(self) -> None:
        slow, self.engine.slow = self.engine.slow[:PORTION], self.engine.slow[PORTION:]
        if self.engine.slow:
            self.flush_soon()
        for found in slow:
            connection: Connection = found.consumer.owner
            log.warning(
                "%s: %s (slow-consumer)",
                connection.name,
                found.text,
                extra={"code": "slow-consumer", **connection.marks},
            )
            notifications.slow(connection, found.consumer, found.text)
            if found.is_to_end and not connection.is_ended:
                connection.refuse(IllegalFrame("slow-consumer", found.text, closes=True))
                connection.write_out()
            else:
                self.errors["slow-consumer"] += 1

    def _end_overbound(self) -> None:
        """Ends connections whose subscription covers a queue that it was not given: they would miss its messages, and must know."""
        overbound, self.engine.overbound = self.engine.overbound, []
        for error in overbound:
            connection: Connection | None = error.consumer.owner if error.consumer is not None else None
            if connection is not None and not connection.is_ended:
                connection.refuse(Refused(error.code, error.message, closes=True))
                connection.write_out()

    def deliver_on(self, consumers: Iterable[Consumer]) -> None:
        """What they have is handed out in the next turn."""
        for consumer in consumers:
            if not consumer.is_closed:
                self.engine.touch(consumer)
        self.flush_soon()

    def was_read(self, octets: int) -> None:
        """A socket was, and obeyed: what came of it goes out with that of others which are read in this turn of the loop."""
        self._octets_read += octets
        if self._octets_read > AT_ONCE:
            self.flush()
        elif not self._flush_planned:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Once for all that the sockets have in this turn of the loop, when it was obeyed."""
        if not self._flush_planned:
            self._flush_planned = True
            self.loop.call_soon(self._flush_again)

    def _flush_again(self) -> None:
        self._flush_planned = False
        self.set_time()
        self.turns.serve()
        self.committer.give_way()
        self.young.look(self.loop.time())

    def _plan_tick(self, deadline: int) -> None:
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self._tick_at = deadline
        self._tick_timer = self.loop.call_later(max(0, deadline - self.now()) / 1000, self._tick)

    def _tick(self) -> None:
        self._tick_timer = None
        self.engine.tick(self.now(), self.turns.goes_on())
        self.flush()

    # Commits

    @property
    def is_unsaved(self) -> bool:
        """Something that was done is not known to be on disk: its commit is to come, or under way."""
        return self.engine.is_durable and (self.engine.is_dirty or self.committer.is_busy)

    def want_commit(self, connection: Connection) -> int:
        """Somebody waits for what was done just now: the sequence of the commit that will have it."""
        self.is_wanted = True
        self.waiting[connection] = None
        return self.sequence

    def when_durable(self, waiter: asyncio.Future[None]) -> None:
        """Resolves `waiter` when all that was done up to now is on disk, or fails it with the StoreError."""
        self.is_wanted = True
        self.releases.when_durable(self.sequence, waiter)

    def _commit_when_due(self, *, is_turn_over: bool) -> None:
        if self.is_wanted:
            if self.company.is_whole(len(self.waiting), is_turn_over=is_turn_over):
                self._commit_wanted()
            elif not self._commit_planned:
                self._plan_commit()
        elif self._commit_timer is None:
            self._commit_timer = self.loop.call_later(
                self.configuration.max_commit_delay / 1000, self._commit_late
            )

    def _plan_commit(self) -> None:
        self._commit_planned = True
        self.loop.call_soon(self._commit_or_look)

    def _commit_or_look(self) -> None:
        if self.company.is_worth_a_look(len(self.waiting)) and not self.is_stopping:
            self._plan_commit()
        else:
            self._commit_wanted()

    def _commit_wanted(self) -> None:
        """Commits what is waited for: who came together is served together."""
        self._commit_planned = False
        self.company.goes()
        if self.is_wanted and not self.committer.is_busy and not self.disk.is_waiting:
            self._start_commit()

    def _commit_late(self) -> None:
        self._commit_timer = None
        if not self.committer.is_busy and not self.disk.is_waiting and self.engine.is_dirty:
            self._start_commit()

    def try_commit(self) -> None:
        """The disk has failed, and it is time to see whether it works again."""
        if self.engine.commits.is_held:
            self.loop.call_later(AGAIN, self.try_commit)
        elif not self.committer.is_busy:
            self.set_time()
            self._start_commit()

    def _start_commit(self) -> None:
        if self.has_failed or self._is_preparing or self.engine.commits.is_held:
            return  # held by half of a transaction: when it is whole it is time again
        if self.engine.commits.is_large and not self.is_stopping:
            self._is_preparing = True
            self.turns.run(self.engine.commits.preparing(), self._prepared, is_commit=True)
        else:
            self._take_commit()

    def _prepared(self) -> None:
        self._is_preparing = False
        if self.has_failed:
            return
        if not self.engine.commits.is_held:
            self._take_commit()
        elif self.disk.is_waiting:  # nothing else tries it
            self.loop.call_later(AGAIN, self.try_commit)

    def _take_commit(self) -> None:
        if self._commit_timer is not None:
            self._commit_timer.cancel()
            self._commit_timer = None
        self.is_wanted = False
        commit = self.engine.take_commit()
        is_probe = self.disk.is_probed
        if is_probe:
            commit.is_loose = False  # it is to show whether the disk keeps again what it is given
        sequence, self.sequence = self.sequence, self.sequence + 1
        if commit or is_probe:
            self.committer.submit(commit or self.disk.probe())
        elif self.engine.commits.is_landing_long and not self.is_stopping:
            self.committer.is_busy = True
            self.turns.run(self.engine.commits.landing(), partial(self._consumed, sequence), is_commit=True)
        else:
            self._consumed(sequence)

    def _consumed(self, sequence: int) -> None:
        """The commit has nothing to say: all of it was consumed already."""
        self.committer.is_busy = False
        self.engine.committed()
        self._release(sequence)
        self.flush_soon()

    def _committed(self, commit: Commit, error: StoreError | None) -> None:
        """The committer has an answer: the one way by which anything that needs the disk is confirmed."""
        if self.has_failed:
            return
        self.set_time()
        if error is None and self.engine.commits.is_landing_long and not self.is_stopping:
            self.turns.run(
                self.engine.commits.landing(), partial(self._conclude, commit, None), is_commit=True
            )
        else:
            self._conclude(commit, error)

    def _conclude(self, commit: Commit, error: StoreError | None) -> None:
        self.committer.is_busy = False
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
        """The commit of this sequence is not in the store. What earlier ones have let out is said first."""
        self.releases.say_all()
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
        self.company.served = len(self.waiting)
        self.releases.release(sequence, error)

    def spawn(self, work: Coroutine[Any, Any, None], connection: ClientConnection | None = None) -> None:
        """Does something beside the rest. When it raises, the broker stops; or this connection alone, where nothing else was touched.
        A broker that stops begins nothing: the threads that would do it are about to end."""
        if self.is_stopping:
            work.close()
            return
        watch(self, work, connection)

    def client_of(self, listener: Listener, transport: Transport, peer: str) -> Connection:
        """A client is there: its connection."""
        return Connection(self, listener, transport, peer)

    def address_of(self, name: str) -> Address | None:
        return self.engine.addresses.get(name)

    def drain(self) -> None:
        """Nothing new goes out from now on; what is out may be answered (stopping.py)."""
        self.is_draining = True

    async def catch_up(self, address: str = "", offset: int = 0) -> None:
        """What is confirmed is here. A node that follows has to look (cluster/view.py)."""

    def has_looked(self, connection: Connection, frame: Frame) -> bool:
        return True

    async def catch_up_for(self, connection: Connection, frame: Frame, address: str, offset: int) -> None:
        await self.catch_up(address, offset)

    def standing(self) -> dict[str, str]:
        return {}

    async def stop(self) -> None:
        """Ends connections, writes what is not yet written, closes the store. After a fault nothing of that.

        Who asks again waits for the same end: nothing can be stored after it."""
        if self._ending is None:
            self.is_stopping = True
            self._ending = self.loop.create_task(self._stop())
        await asyncio.shield(self._ending)

    async def _stop(self) -> None:
        if not self.has_failed:
            try:
                await self._end()
            except Exception as error:
                self.faults.stop("it was told to stop", error)
        if self.has_failed:
            self.disk.close()
            for task in list(self.tasks):
                task.cancel()
            for timer in (self._tick_timer, self._commit_timer):
                if timer is not None:
                    timer.cancel()
            self.beats.stop()
            self.committer.abandon()
        if self.tracing is not None:
            await self.loop.run_in_executor(None, self.tracing.close)

    async def _end(self) -> None:
        if self._tick_timer is not None:  # what comes again and again would be stored without an end
            self._tick_timer.cancel()
        self.releases.say_all()
        for connection in list(self.connections):
            connection.shut()
        self.turns.finish()
        for task in list(self.tasks):
            task.cancel()
        self.disk.close()
        self.losses.tell()
        self.logins.close()
        await self._store_the_rest()
        if not self.has_failed:
            await self.loop.run_in_executor(None, self.committer.close)

    async def _store_the_rest(self) -> None:
        """Stores all that is not stored yet, if the disk lets us: it is asked once."""
        await self._idle()
        while self.engine.is_dirty and not self.has_failed:
            self._start_commit()
            await self._idle()
            if self.disk.failure is not None:
                break
        if self.engine.is_dirty:
            log.error("stopped without having stored everything: %r", self.engine)
            return
        note_end(self.engine)
        self._start_commit()
        await self._idle()

    async def _idle(self) -> None:
        while self.committer.is_busy and not self.has_failed:
            await asyncio.sleep(0.001)

    def __repr__(self) -> str:
        return f"<Broker connections={len(self.connections)} commit={self.sequence} {self.engine!r}>"


def _tracing_of(configuration: Configuration) -> Tracing | None:
    """What makes the spans of a broker; one without them loads nothing of OpenTelemetry. Raises ConfigError where none could go out."""
    if not configuration.tracing.enabled:
        return None
    from stompbox.server.tracing import tracing_of

    return tracing_of(configuration)


def _deliveries_of(broker: Broker) -> Deliveries:
    return Deliveries(broker) if broker.tracing is None else broker.tracing.deliveries(broker)
