"""The broker behind `testing.Broker`: the server's own, in a loop of its own, with a clock, a disk and sockets that a test has a hand on.

All of it runs in that loop. What follows the clock is what the engine times: expiry, delivery delays, redelivery delays, schedules,
retention, transaction timeouts, what is deleted when nobody uses it. Heart-beats, hand-shakes and the pauses after failed logins follow
the machine's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from stompbox.admin.messages import Wanted, delivering, first_of
from stompbox.config import Configuration
from stompbox.config.sources import convert
from stompbox.errors import NotPermitted, StoreError, UsageError
from stompbox.handles import Large
from stompbox.message import MULTICAST, Run
from stompbox.security import Permissions, Right, User
from stompbox.server.broker import Broker
from stompbox.server.run import stop
from stompbox.server.session.framelog import FrameLogs
from stompbox.server.transport.tcp import listen
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from stompbox.testing.recording import Record
from stompbox.testing.sockets import Mood, TestedAcceptor, TestedSocket

if TYPE_CHECKING:
    from stompbox.broker.addresses.destinations import Destination
    from stompbox.broker.queues.queue import Queue
    from stompbox.server.session.connection import Connection

ANY_PORT: Final = ({"url": "tcp://127.0.0.1:0"},)
# A test is about its program, not about the machine: how full its disk is, and how long the last client takes to say goodbye
TESTED: Final[Mapping[str, Any]] = {
    "min-disk-free": 0,
    "max-disk-usage": -1,
    "graceful-shutdown-timeout": 0,
    "listener": ANY_PORT,
}
SETTLE_WITHIN: Final = 10.0  # seconds for what the broker does of itself, when its clock has moved
ACCEPTING: Final = (
    20  # turns of the loop in which a socket is accepted, which asyncio does not expect to outlive its server
)
PORTION: Final = 10_000  # messages of a queue that are looked for at once


@dataclass(frozen=True, slots=True)
class Held:
    """A message that a queue holds. `is_delivering`: a consumer has it and has not answered."""

    offset: int
    destination: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    is_delivering: bool

    @property
    def text(self) -> str:
        return self.body.decode()


class Clock:
    """ms since the epoch: the machine's time and what was advanced; or, frozen, what was advanced since it began."""

    def __init__(self, *, is_frozen: bool) -> None:
        self._frozen: int | None = int(time.time() * 1000) if is_frozen else None
        self._ahead = 0

    def now(self) -> int:
        return self._ahead + (int(time.time() * 1000) if self._frozen is None else self._frozen)

    def seconds(self) -> float:
        return (self.now() + 0.5) / 1000  # whoever cuts it to ms has what `now` says

    def reach(self, when: int) -> None:
        """Sets the clock forward to a time, never back."""
        self._ahead += max(0, when - self.now())


class FillableStore(MemoryStore):
    """A store in memory that says that its disk is full when a test wants it so."""

    full = 0  # faults that say so

    def apply(self, commit: Commit) -> None:
        if self.full:
            raise StoreError("disk-full", "the test has filled the disk")
        super().apply(commit)

    def close(self) -> None:
        """Closes nothing: the next broker goes on with the store."""

    def end(self) -> None:
        super().close()


class Refusing(Permissions):
    """The rights of the configuration, but for the addresses that a test refuses."""

    def __init__(self, configured: Permissions) -> None:
        super().__init__()
        self.configured = configured
        self.refused: list[str] = []

    def may(self, user: User, right: Right, address: str) -> bool:
        return address not in self.refused and self.configured.may(user, right, address)

    def require(self, user: User, right: Right, address: str) -> None:
        if address in self.refused:
            raise NotPermitted(
                "not-permitted", f"the test refuses address {address[:200]!r}", right.value, address
            )
        self.configured.require(user, right, address)

    def is_granted_manage(self, user: User, address: str) -> bool:
        return self.configured.is_granted_manage(user, address)


class TestedBroker(Broker):
    """The server's broker with another clock. `changed` is called when it has done something."""

    __test__ = False  # for pytest

    def __init__(
        self,
        configuration: Configuration,
        store: FillableStore,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock,
        record: Record,
    ) -> None:
        self.moved = clock
        self.clock = clock.seconds
        self.changed = record.changed
        super().__init__(configuration, store, loop, is_durable=True)
        self.frames = cast(FrameLogs, record)
        self.permissions = self.refusing = Refusing(self.permissions)

    def flush(self, *, is_turn_over: bool = False) -> None:
        super().flush(is_turn_over=is_turn_over)
        self.changed()

    async def advance(self, milliseconds: int) -> None:
        """The clock goes on, from one thing that is due to the next; each is done at its time, and whole, before the clock goes on."""
        target = self.now() + milliseconds
        while (due := self.engine.next_deadline()) is not None and due <= target:
            await self._reach(due)
        await self._reach(target)

    async def _reach(self, when: int) -> None:
        self.moved.reach(when)
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self._tick()
        await self.settle()

    async def settle(self) -> None:
        """Waits until nothing is left of what was begun."""
        async with asyncio.timeout(SETTLE_WITHIN):
            while self._is_at_work and not self.has_failed:
                await asyncio.sleep(0)

    @property
    def _is_at_work(self) -> bool:
        engine = self.engine
        is_writing = self.committer.is_busy or (
            engine.is_dirty and not (self.disk.is_waiting or engine.commits.is_held)
        )
        return bool(
            engine.touched
            or engine.later.waiting
            or engine.loads
            or self.tasks
            or self.turns.waiting
            or is_writing
        )


class House:
    """A broker that accepts, and can begin again with what it has stored. To be used in its loop."""

    broker: TestedBroker

    def __init__(self, content: Mapping[str, Any], folder: str, clock: Clock, record: Record) -> None:
        """Makes the broker of a configuration. Raises ConfigError."""
        self.configuration = convert({**TESTED, **content, "data": folder}, {}).configuration
        self.listeners = self.configuration.listening()
        self.clock = clock
        self.record = record
        self.store = FillableStore()
        self.mood = Mood()
        self.refused: list[str] = []
        self._servers: list[asyncio.Server] = []

    async def open(self) -> None:
        """Listens; the next time at the ports that the system chose at first."""
        loop = asyncio.get_running_loop()
        self.broker = broker = TestedBroker(
            self.configuration, self.store, loop, clock=self.clock, record=self.record
        )
        loop.set_exception_handler(broker.faults.in_loop)
        broker.refusing.refused = self.refused
        for listener in self.listeners:
            acceptor = TestedAcceptor(broker, listener)
            acceptor.mood = self.mood
            self._servers.append(await listen(broker, listener, acceptor))
        self.listeners = [acceptor.listener for acceptor in broker.acceptors]

    async def close(self) -> None:
        """Raises BrokerFault where the broker had a fault of its own."""
        for _ in range(ACCEPTING):
            if self._others <= self.broker.tasks:
                break
            await asyncio.sleep(0)
        await stop(self.broker, self._servers)
        async with asyncio.timeout(SETTLE_WITHIN):
            while self.broker.sockets or self._others:  # each is told that it is closed in a turn of the loop
                self.drop(None)
                await asyncio.sleep(0)
        self._servers.clear()
        if self.broker.faults.last is not None:
            raise self.broker.faults.last

    @property
    def _others(self) -> set[asyncio.Task[Any]]:
        """All that goes on in the loop beside whoever asks."""
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def end(self) -> None:
        try:
            await self.close()
        finally:
            self.store.end()
            await asyncio.get_running_loop().shutdown_default_executor()

    # What it has

    async def messages(self, destination: str) -> list[Held]:
        return [each for queue in self._queues(destination) for each in await self._held(queue)]

    async def _held(self, queue: Queue) -> list[Held]:
        found: list[tuple[int, Run]] = []
        start: int | None = 0
        while start is not None:
            part, start = await first_of(self.broker, queue, PORTION, Wanted(start=start))
            found += part
        out = await delivering(self.broker, queue)
        held = []
        for offset, run in found:
            index = offset - run.first
            headers = run.headers(index)
            whole = await self._whole(run.large(index)) if run.is_large else run.octets(index)
            held.append(Held(offset, headers.get("destination", ""), headers, whole, offset in out))
        return held

    async def _whole(self, large: Large) -> bytes:
        body = bytearray()
        for number in count():
            if len(body) >= large.size:
                break
            known = self.broker.engine.bodies.piece(large, number)
            body += await self.broker.committer.read_part(large.id, number) if known is None else known
        return bytes(body)

    def address(self, destination: str) -> Destination:
        names = self.broker.names_of(self.listeners[0].options)
        found = names.parse_one(destination)
        if found.is_wild:
            raise UsageError(
                "bad-argument", f"destination is {destination!r}; allowed is one without wildcards"
            )
        return found

    def _queues(self, destination: str) -> list[Queue]:
        named = self.address(destination)
        address = self.broker.engine.addresses.get(named.address)
        if named.routing == MULTICAST and not named.queue:
            raise UsageError(
                "bad-argument",
                f"{destination} is a topic, which holds nothing: ask `sent` or `delivered`, or a queue of it",
            )
        if address is None:
            return []
        queues = [*address.anycast.values(), *address.named.values()]
        return [queue for queue in queues if not named.queue or queue.name == named.queue]

    # What is done to it

    def connection(self, number: int) -> Connection:
        for connection in self.broker.connections:
            if connection.session_id == number:
                return connection
        raise UsageError("bad-argument", f"there is no connection {number}")

    def drop(self, number: int | None) -> int:
        """Closes sockets without a word, and returns how many there were."""
        sockets = list(self.sockets(number))
        for socket in sockets:
            socket.abort()
        return len(sockets)

    def sockets(self, number: int | None) -> Iterator[TestedSocket]:
        if number is not None:
            self.connection(number)
        for socket in list(self.broker.sockets):
            assert isinstance(socket, TestedSocket)
            if number is None or (socket.connection is not None and socket.connection.session_id == number):
                yield socket

    def stall(self, number: int | None, more: int) -> None:
        """Stalls connections, with `more` = 1, or lets them go on, with `more` = -1."""
        if number is None:
            self.mood.stalls += more
        else:
            self.mood.stalled[number] = self.mood.stalled.get(number, 0) + more
        for socket in [each for each in self.broker.sockets if isinstance(each, TestedSocket)]:
            socket.let_go()

    def fill(self, more: int) -> None:
        self.store.full += more
        if not self.store.full:
            self.broker.disk.try_now()

    def refuse_connects(self, more: int) -> None:
        self.mood.refuses += more

    def refuse(self, address: str, more: int) -> None:
        if more > 0:
            self.refused.append(address)
        else:
            self.refused.remove(address)
