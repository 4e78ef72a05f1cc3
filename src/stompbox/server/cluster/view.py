"""What a node that follows has applied, as a broker that answers and changes nothing: for its admin interface, and for who reads logs.

    the store    is the node's own, which the Applier fills; nothing is ever written through the view
    the engine   is made of it anew when somebody asks and there is more: at most so often that it costs a fifth of the time
    an answer    is of a whole commit, and says how old it may be: all that was confirmed until `as_of` is in it
    who is       subscribed moves on to each new engine (broker/subscriptions/moving.py), and gets what has come

It never has what the log has not, because the store has not. Decides what of a store may be shown: an offset counts as confirmed where a
message, or a cursor beyond it, shows that it was given out; offsets that are stored ahead of use do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from stompbox.broker.engine import Engine
from stompbox.broker.recovery import recover
from stompbox.broker.subscriptions.moving import move
from stompbox.commitlog.replicated import Local, position_in
from stompbox.errors import Refused, StompboxError, StoreError
from stompbox.server.broker import EPOCH, Broker
from stompbox.server.configuring import Transition, limit_memory
from stompbox.server.transport.tcp import Acceptor as TcpAcceptor
from stompbox.store.base import CLUSTER, NOWHERE, Commit, Part, Recovered, StoredChunk, StoredLog
from stompbox.store.folderstore import FolderStore

if TYPE_CHECKING:
    from stompbox.config import Configuration, Listener
    from stompbox.server.cluster.members import Table
    from stompbox.server.seam import Acceptor
    from stompbox.server.session.connection import Connection
    from stompbox.stomp.frames import Frame

LEAST: Final = 0.1  # seconds between two looks at the store,
SHARE: Final = 5  # and so many times as long as the last one took
WITHIN: Final = 2.0  # seconds that who asks for offsets waits until they are here
PAUSE: Final = 0.05  # seconds between two looks meanwhile


class Followed(Protocol):
    """The node, as far as the view asks it."""

    name: str
    role: str
    local: Local
    store: FolderStore  # of `local`

    @property
    def as_of(self) -> float:
        """By the monotonic clock: all that was confirmed until then is in the store; 0.0: not known."""

    def described(self) -> Table: ...


class Shown:
    """The node's store, to be read. `turn` is held while it is closed and opened again."""

    def __init__(self, node: Followed) -> None:
        self.node = node
        self.turn = Lock()
        self.is_open = False

    def _store(self) -> FolderStore:
        if not self.is_open:
            raise StoreError("store-closed", f"node {self.node.name!r} does not follow just now")
        return self.node.store

    def look(self) -> tuple[Recovered, int]:
        """What the store has, and up to which record; offsets that are stored ahead of use are left out."""
        with self.turn:
            store = self._store()
            found = store.recover()
            ends = store.ends()
        position = position_in(found.entries).position
        for key in [key for key in found.entries if key[0] == CLUSTER or key == EPOCH]:
            del found.entries[key]
        for cursor in found.cursors:
            last = max([cursor.position, *[stop for _, stop in cursor.ahead]])
            ends[cursor.log] = max(ends.get(cursor.log, 0), last)
        return replace(found, logs=[_ended(log, ends.get(log.id, 0)) for log in found.logs]), position

    def recover(self) -> Recovered:
        """Nothing: the view looks when it is asked."""
        return Recovered([], [], {})

    def apply(self, commit: Commit) -> None:
        raise StoreError("data-not-writable", f"node {self.node.name!r} follows, and stores what the log has")

    def read(self, log: int, start: int, stop: int, max_bytes: int) -> list[StoredChunk]:
        with self.turn:
            return self._store().read(log, start, stop, max_bytes)

    def read_part(self, body: int, number: int) -> bytes:
        with self.turn:
            return self._store().read_part(body, number)

    def find_time(self, log: int, timestamp: int) -> int:
        with self.turn:
            return self._store().find_time(log, timestamp)

    def sizes(self, logs: Iterable[int], since: Mapping[int, int] = NOWHERE) -> dict[int, tuple[int, int]]:
        wanted = list(logs)
        if not wanted:
            return {}
        with self.turn:
            return self._store().sizes(wanted, since)

    def outline(self, log: int) -> Iterator[Part]:
        with self.turn:
            return iter(list(self._store().outline(log)))

    @property
    def unverified(self) -> str:
        return ""

    def maintain(self) -> bool:
        return False

    def close(self) -> None:
        """The store is the node's."""


def _ended(log: StoredLog, end: int) -> StoredLog:
    return replace(log, first=min(log.first, end), stop=end, next=end)


class View(Broker):
    """The broker of a node that follows."""

    def __init__(self, node: Followed, configuration: Configuration, loop: asyncio.AbstractEventLoop) -> None:
        self.shown = Shown(node)
        self.position = -1  # the record up to which it shows the store
        self.as_of = 0.0
        self._looked = self._cost = 0.0
        self._turn = asyncio.Lock()
        self._passed: Sequence[Acceptor] = ()
        self._looked_for: dict[int, Frame] = {}  # by session: the frame for which it has looked last
        self._is_going_on = False
        super().__init__(configuration, self.shown, loop, is_durable=False)
        self.is_view = True
        self.engine.is_view = True
        self.cluster = node

    @property
    def node(self) -> Followed:
        return self.shown.node

    def follow(self) -> None:
        """Answers from now on."""
        self.shown.is_open = True

    def show(self, acceptors: Sequence[Acceptor]) -> None:
        """Clients that come in at these acceptors are passed on."""
        self._passed = acceptors

    @property
    def all_acceptors(self) -> list[Acceptor]:
        return [*self.acceptors, *self._passed]

    def take(self, found: Transition | Broker) -> None:
        """What another configuration says from now on, for who connects next."""
        self.configuration = found.configuration
        self.hosts, self.users, self.permissions = found.hosts, found.users, found.permissions

    def open(self, listeners: Iterable[Listener]) -> list[TcpAcceptor]:
        """What is open here for who only reads."""
        found = [TcpAcceptor(self, listener) for listener in listeners]
        self.acceptors = list(found)
        return found

    def rest(self) -> None:
        """Answers nobody: the node leads, or its store is another one. Waits for a read that is under way."""
        self.shown.is_open = False
        with self.shown.turn:
            self.position, self.as_of = -1, 0.0
        for connection in list(self.connections):
            connection.shut()
        for one in list(self.sockets):
            one.abort()
        self.acceptors = []
        self._show(self._engine())

    def _engine(self) -> Engine:
        """One that has nothing yet, and is to take the place of the one that is there."""
        configuration = self.configuration
        found = Engine(configuration.settings_of(), wildcards=configuration.wildcards(), is_durable=False)
        found.succeed(self.engine)
        limit_memory(found, configuration)
        return found

    def _show(self, engine: Engine) -> None:
        self.engine = self.deliveries.engine = engine

    def _start_commit(self) -> None:
        """Nothing is stored: what the engine would tell the store of readers that come and go is forgotten."""
        if self._commit_timer is not None:
            self._commit_timer.cancel()
            self._commit_timer = None
        self.is_wanted = False
        commits = self.engine.commits
        commits.dirty.clear()  # what may be deleted is the leader's to say
        self.engine.take_commit()
        self.engine.committed()
        sequence, self.sequence = self.sequence, self.sequence + 1
        self._release(sequence)

    # Subscriptions

    def has_looked(self, connection: Connection, frame: Frame) -> bool:
        return self._looked_for.get(connection.session_id) is frame

    async def catch_up_for(self, connection: Connection, frame: Frame, address: str, offset: int) -> None:
        await self.catch_up(address, offset)
        self._looked_for[connection.session_id] = frame
        if not self._is_going_on:
            self._is_going_on = True
            self.spawn(self._go_on())

    def leave(self, connection: Connection) -> None:
        self._looked_for.pop(connection.session_id, None)
        super().leave(connection)

    async def _go_on(self) -> None:
        """Looks for more as long as there are subscriptions to whom it goes."""
        try:
            while self._looked_for and self.shown.is_open and not self.is_stopping:
                await asyncio.sleep(LEAST)
                if any(connection.consumers for connection in self.connections):
                    with suppress(StompboxError):  # who asks next is told
                        await self._look()
        finally:
            self._is_going_on = False

    def _move(self) -> None:
        """Subscriptions go on with what is shown now."""
        for connection in list(self.connections):
            if not connection.is_ended:
                self._move_all(connection)

    def _move_all(self, connection: Connection) -> None:
        try:
            for consumer in list(connection.consumers.values()):
                if not consumer.is_closed:
                    move(self.engine, consumer)
        except StompboxError as error:
            connection.refuse(error)
            connection.write_out()

    # Looking

    async def catch_up(self, address: str = "", offset: int = 0) -> None:
        begun = monotonic()
        while True:
            await self._look()
            if not address or self._reaches(address, offset):
                return
            if self.as_of >= begun:  # there was no more when it was asked for, as far as can be seen here
                break
            if monotonic() - begun > WITHIN:
                break
            await asyncio.sleep(PAUSE)
        if address in self.engine.addresses:
            text = (
                f"node {self.node.name!r} has {address!r} up to offset {self.engine.addresses[address].log.committed}, "
                f"not to {offset}"
            )
            raise Refused("node-behind", text)

    def _reaches(self, address: str, offset: int) -> bool:
        found = self.engine.addresses.get(address)
        return found is not None and offset <= found.log.committed

    async def _look(self) -> None:
        """Shows what the store has, where it has more than what is shown."""
        async with self._turn:
            node, as_of = self.node, self.node.as_of
            if self.position == node.local.position:
                self.as_of = max(self.as_of, as_of)
                return
            begun = monotonic()
            if self.position >= 0 and begun - self._looked < max(LEAST, SHARE * self._cost):
                return
            recovered, position = await self.committer.do(self.shown.look)
            if not self.shown.is_open:
                raise Refused("not-the-leader", f"node {node.name!r} does not follow any more")
            self.set_time()
            self.flush(is_turn_over=True)  # what was read for subscriptions is theirs before they move
            engine = self._engine()
            recover(engine, recovered)
            self._show(engine)
            self._move()
            self.flush_soon()
            self.position, self.as_of = position, as_of
            self._looked = monotonic()
            self._cost = self._looked - begun

    @property
    def lag(self) -> int:
        """Records that the log is known to have beyond what is shown."""
        return max(0, self.node.described().position - max(0, self.position))

    @property
    def staleness(self) -> float | None:
        """Seconds: all that was confirmed before is in what is shown. None: not known."""
        return monotonic() - self.as_of if self.as_of else None

    def standing(self) -> dict[str, str]:
        stale = self.staleness
        known = {} if stale is None else {"stale-ms": str(int(stale * 1000) + 1)}
        return {"node": self.node.name, "lag": str(self.lag), **known}

    # What it does not do

    def _begin(self, store: object, first: Commit) -> StoreError | None:
        return None

    def _make(self, configuration: Configuration) -> None:
        """What the configuration names was made by the leader."""

    def _commit_when_due(self, *, is_turn_over: bool) -> None:
        self.is_wanted = False

    def _plan_tick(self, deadline: int) -> None:
        """Nothing expires here: the leader says what has."""

    def when_durable(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    async def _store_the_rest(self) -> None:
        """A view has nothing that would have to be stored."""
