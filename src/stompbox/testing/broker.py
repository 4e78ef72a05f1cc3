"""What a test says to its broker, and asks it.

    with Broker() as broker:                        # or: async with Broker() as broker:
        program_under_test(broker.url)
        assert [message.text for message in broker.messages("/queue/orders")] == ["42 apples"]

Every call may come from any thread and from any event loop: the broker lives in a thread of its own and answers in well under a
millisecond, so that nothing of it has to be awaited but what waits for something to happen: there each verb is there twice,
`wait_until` for threads and `until` for coroutines.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from tempfile import TemporaryDirectory
from types import MappingProxyType, TracebackType
from typing import Any, Final, TypeVar, get_args

from stompbox import blocking
from stompbox.client import Client
from stompbox.client import connect as connect_client
from stompbox.client.loopthread import LoopThread
from stompbox.errors import ConnectionLost, UsageError
from stompbox.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS
from stompbox.testing.inside import Clock, Held, House
from stompbox.testing.recording import Exchanged, Record, Way, outline
from stompbox.testing.sockets import Connected, Fault, connected

T = TypeVar("T")
WITHIN: Final = 5.0  # seconds for what a test waits for
RECORDED: Final = 100_000  # frames
# keys, the values that change nothing, and why no other can be meant
NOT_MEANT: Final[tuple[tuple[str, tuple[Any, ...], str], ...]] = (
    ("data", (), "this broker keeps all that it has in memory, and what it has goes with it"),
    ("memory", (True,), "this broker keeps all that it has in memory"),
    ("fronts", (0,), "this broker lives in the process of the test, and starts no other"),
    ("cluster", (), "this broker is no node of a cluster"),
    ("admin", ({"enabled": False},), "this broker has no admin interface"),
)
NO_CONFIG: Final[Mapping[str, Any]] = MappingProxyType({})


class Changes:
    """Tells those who wait, threads and coroutines, that the broker has done something: they look again."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._threads = 0
        self.count = 0

    def changed(self) -> None:
        self.count += 1
        if not (self._threads or self._waiters):
            return
        with self._condition:
            self._condition.notify_all()
            for loop, event in self._waiters:
                loop.call_soon_threadsafe(event.set)

    def wait(self, is_so: Callable[[], object], deadline: float) -> bool:
        """Whether it came to be so before the deadline (time.monotonic)."""
        with self._condition:
            self._threads += 1
        try:
            while True:
                seen = self.count
                if is_so():
                    return True
                with self._condition:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    if seen == self.count:
                        self._condition.wait(left)
        finally:
            with self._condition:
                self._threads -= 1

    async def arrive(self, is_so: Callable[[], object], deadline: float) -> bool:
        """Waits as `wait` does, in a coroutine."""
        event = asyncio.Event()
        waiter = asyncio.get_running_loop(), event
        with self._condition:
            self._waiters.add(waiter)
        try:
            while not is_so():
                try:
                    await asyncio.wait_for(event.wait(), deadline - time.monotonic())
                except TimeoutError:
                    return bool(is_so())
                event.clear()
            return True
        finally:
            with self._condition:
                self._waiters.discard(waiter)


class Broker:
    """A broker in memory, on a free port of 127.0.0.1, for one test.

    `config`: keys of stompbox.toml, such as {"user": [{"name": "ann", "password": "secret"}]}; those of data folder, fronts, cluster and
    admin interface are refused. `frozen`: time goes on only when
    `advance` says so; otherwise it goes on by itself, too. `record`: of so many frames, the last ones, is known what they were.
    """

    __test__ = False  # for pytest

    def __init__(
        self, config: Mapping[str, Any] = NO_CONFIG, *, frozen: bool = False, record: int = RECORDED
    ) -> None:
        if not isinstance(config, Mapping):
            raise UsageError(
                "bad-argument", f"config is {config!r}; allowed is a mapping with keys of stompbox.toml"
            )
        _require_meant(config)
        if not isinstance(frozen, bool):
            raise UsageError("bad-argument", f"frozen is {frozen!r}; allowed are True and False")
        _require_number("record", record, whole=True)
        self._config = config
        self._clock = Clock(is_frozen=frozen)
        self._changes = Changes()
        self._record = Record(record, self._changes.changed)
        self._folder: TemporaryDirectory[str] | None = None
        self._thread: LoopThread | None = None
        self._opened: House

    # Beginning and end

    def start(self) -> Broker:
        """Accepts connections when it returns. Raises ConfigError for a configuration that is wrong."""
        if self._thread is not None:
            raise UsageError("already-opened", "this broker runs already")
        self._record.frames.clear()  # of an earlier run
        self._folder = TemporaryDirectory(prefix="stompbox-")
        self._thread = LoopThread("stompbox-broker")
        try:
            self._opened = House(self._config, self._folder.name, self._clock, self._record)
            self._thread.call(self._house.open())
        except BaseException:
            self._leave()
            raise
        return self

    def stop(self) -> None:
        """Ends all connections. Raises BrokerFault where the broker had a fault of its own meanwhile."""
        if self._thread is not None:
            try:
                self._thread.call(self._house.end())
            finally:
                self._leave()

    def _leave(self) -> None:
        assert self._thread is not None and self._folder is not None
        self._thread.stop()
        self._folder.cleanup()
        self._thread = self._folder = None

    def restart(self) -> None:
        """Stops, and begins again at the same port with what it has stored; what was not persistent is gone."""
        self._do(self._house.restart())

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def _house(self) -> House:
        if self._thread is None:
            raise UsageError(
                "not-opened", "this broker does not run: use `with Broker() as broker:`, or start it"
            )
        return self._opened

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
            raise ConnectionLost("closed", "this broker was stopped meanwhile")
        return self._thread.call(work)

    def _ask(self, question: Callable[[], T]) -> T:
        _ = self._house  # it runs, or this raises

        async def asked() -> T:
            return question()

        return self._do(asked())

    # Where it is

    @property
    def urls(self) -> list[str]:
        """The URLs of all listeners, for clients of Stompbox."""
        listeners = self._ask(lambda: self._house.listeners)
        return [f"{'stomp+ssl' if each.is_tls else 'stomp'}://{each.host}:{each.port}" for each in listeners]

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def host(self) -> str:
        return self._ask(lambda: self._house.listeners[0].host)

    @property
    def port(self) -> int:
        return self._ask(lambda: self._house.listeners[0].port)

    def connect(self, login: str | None = None, passcode: str | None = None) -> Client:
        """`async with broker.connect() as client:`; an asynchronous client that does not connect again when it is lost."""
        return connect_client(self.url, login=login, passcode=passcode, reconnect=None)

    def client(self, login: str | None = None, passcode: str | None = None) -> blocking.Client:
        """`with broker.client() as client:`; the same without async."""
        return blocking.connect(self.url, login=login, passcode=passcode, reconnect=None)

    # What it has and what it saw

    def messages(self, destination: str) -> list[Held]:
        """What a queue holds, in its order, also what a consumer has and has not answered; not what waits for its time. A queue that
        is not there holds nothing. Raises UsageError for a topic, or several of them."""
        _require_destination(destination)
        return self._do(self._house.messages(destination))

    def sent(self, destination: str | None = None) -> list[Exchanged]:
        """What clients have sent, to a destination as they wrote it, or to all: those of a transaction from its COMMIT on. What was
        refused is among them: `errors` has the answer."""
        if destination is not None:
            _require_destination(destination)
        return self._ask(lambda: self._record.sent(destination))

    def delivered(self, destination: str | None = None) -> list[Exchanged]:
        """The MESSAGE frames that went out, again for each subscription and each redelivery."""
        if destination is not None:
            _require_destination(destination)
        return self._ask(lambda: self._record.delivered(destination))

    def errors(self) -> list[Exchanged]:
        """The ERROR frames that went out to clients."""
        return self.frames("sent", "ERROR")

    def frames(self, way: Way | None = None, command: str | None = None) -> list[Exchanged]:
        """All frames in their order: `received` by the broker, or `sent` by it. Raises UsageError for a command that there is not."""
        if way not in (None, *get_args(Way)):
            raise UsageError("bad-argument", f"way is {way!r}; allowed are {', '.join(get_args(Way))}")
        if command is not None and command not in CLIENT_COMMANDS | SERVER_COMMANDS:
            known = ", ".join(sorted(CLIENT_COMMANDS | SERVER_COMMANDS))
            raise UsageError("bad-argument", f"command is {command!r}; allowed are {known}")
        return self._ask(lambda: self._record.all(way, command))

    def clear(self) -> None:
        """Forgets the frames that were recorded; what queues hold stays."""
        self._ask(self._record.frames.clear)

    @property
    def connections(self) -> list[Connected]:
        """The connections that are logged in, the oldest first."""
        found = self._ask(
            lambda: [connected(each) for each in self._house.broker.connections if each.is_entered]
        )
        return sorted(found, key=lambda each: each.number)

    # Waiting

    def wait_until(self, is_so: Callable[[], object], within: float = WITHIN) -> None:
        """Returns as soon as it is so; looks whenever the broker has done something. Raises TimeoutError after `within` seconds."""
        _require_number("within", within)
        if not self._changes.wait(is_so, time.monotonic() + within):
            raise self._in_vain(within)

    async def until(self, is_so: Callable[[], object], within: float = WITHIN) -> None:
        """Waits as `wait_until` does, in a coroutine whose loop goes on meanwhile."""
        _require_number("within", within)
        if not await self._changes.arrive(is_so, time.monotonic() + within):
            raise self._in_vain(within)

    def wait_for_sent(self, destination: str, count: int = 1, within: float = WITHIN) -> list[Exchanged]:
        """Waits until so many messages were sent there, and returns them."""
        _require_number("count", count, whole=True)
        self.wait_until(lambda: len(self.sent(destination)) >= count, within)
        return self.sent(destination)

    async def until_sent(self, destination: str, count: int = 1, within: float = WITHIN) -> list[Exchanged]:
        _require_number("count", count, whole=True)
        await self.until(lambda: len(self.sent(destination)) >= count, within)
        return self.sent(destination)

    def wait_for_delivered(self, destination: str, count: int = 1, within: float = WITHIN) -> list[Exchanged]:
        """Waits until so many messages of it went out, and returns them."""
        _require_number("count", count, whole=True)
        self.wait_until(lambda: len(self.delivered(destination)) >= count, within)
        return self.delivered(destination)

    async def until_delivered(
        self, destination: str, count: int = 1, within: float = WITHIN
    ) -> list[Exchanged]:
        _require_number("count", count, whole=True)
        await self.until(lambda: len(self.delivered(destination)) >= count, within)
        return self.delivered(destination)

    def _in_vain(self, within: float) -> TimeoutError:
        frames = self.frames()
        return TimeoutError(
            f"not so within {within:g} s, after {len(frames)} frames, the last of them: {outline(frames)}"
        )

    # Time

    def now(self) -> float:
        """Seconds since the epoch, as the broker sees it."""
        return self._clock.now() / 1000

    def advance(self, seconds: float) -> None:
        """The broker's clock goes on. All that comes due meanwhile (expiry, delays, redelivery, schedules) happens in its order, each at
        its time, and has happened when this returns."""
        _require_number("seconds", seconds)
        self._do(self._house.broker.advance(round(seconds * 1000)))

    # Faults

    def drop(self, connection: int | None = None) -> int:
        """Closes the socket of a connection, or of all, without a word. How many there were."""
        return self._ask(lambda: self._house.drop(connection))

    def stall(self, connection: int | None = None) -> Fault:
        """Nothing more goes out to a connection, or to anybody; it follows in its order when the fault ends."""
        if connection is not None:
            self._ask(lambda: self._house.connection(connection))
        name = "stall" if connection is None else f"stall connection {connection}"
        return self._fault(name, partial(self._stall, connection))

    def _stall(self, connection: int | None, more: int) -> None:
        self._house.stall(connection, more)

    def refuse_connects(self) -> Fault:
        """Whoever connects is closed at once; connections that are there stay."""
        return self._fault("refuse connects", self._house.refuse_connects)

    def refuse(self, destination: str) -> Fault:
        """SEND and SUBSCRIBE to it get an ERROR `not-permitted`; subscriptions that are there stay."""
        _require_destination(destination)
        address = self._ask(lambda: self._house.address(destination)).address
        return self._fault(f"refuse {destination}", lambda more: self._house.refuse(address, more))

    def fill_disk(self) -> Fault:
        """Nothing can be stored: persistent messages get an ERROR `disk-full` in place of a RECEIPT, or wait, as the settings say."""
        return self._fault("full disk", self._house.fill)

    def _fault(self, name: str, change: Callable[[int], None]) -> Fault:
        self._ask(lambda: change(1))

        def end() -> None:
            if self._thread is not None:  # the faults of a broker that has ended have ended with it
                self._ask(lambda: change(-1))

        return Fault(name, end)

    def __repr__(self) -> str:
        return f"<testing.Broker {self.url if self._thread is not None else 'not running'}>"


def _require_meant(config: Mapping[str, Any]) -> None:
    """Raises UsageError for keys that a broker in the process of its test, and in memory, cannot obey."""
    for key, allowed, why in NOT_MEANT:
        if key in config and config[key] not in allowed:
            hint = f"; allowed is {allowed[0]!r}" if allowed else "; leave it out"
            raise UsageError("bad-argument", f"config has {key!r}, which cannot be meant here: {why}{hint}")


def _require_number(name: str, value: float, *, whole: bool = False) -> None:
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise UsageError(
            "bad-argument", f"{name} is {value!r}; allowed is a {'whole ' if whole else ''}number from 0 on"
        )


def _require_destination(destination: str) -> None:
    if not isinstance(destination, str) or not destination:
        raise UsageError(
            "bad-argument", f"destination is {destination!r}; allowed is a str that is not empty"
        )
