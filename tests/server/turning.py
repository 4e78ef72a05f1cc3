"""A broker whose turns are counted: a loop that takes a turn when it is told to, and a clock that goes on by as much as it is looked at."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Any, TypeVar, cast

from stompbox.config import Configuration, ListenerTable
from stompbox.server.broker import Broker
from stompbox.server.transport.tcp import Acceptor, Socket
from stompbox.server.turns import Turns
from stompbox.stomp.codec import Decoder, encode
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import VERSIONS
from stompbox.store.memory import MemoryStore
from tests.crash import calls

T = TypeVar("T")

WITHIN = 20.0  # seconds for what another thread does
LOOKS = 10  # at the clock in one turn: each step is followed by one
PADDING = b"\n" * 1100  # makes a read large enough for the clock to be looked at


class Handle:
    def cancel(self) -> None:
        pass


class Waiter:
    """In the place of a future: whoever awaits it is sent on by the test."""

    def __init__(self) -> None:
        self.is_done = False
        self.result: Any = None

    def done(self) -> bool:
        return self.is_done

    def set_result(self, result: object) -> None:
        self.is_done, self.result = True, result

    def __await__(self) -> Generator[Waiter, None, Any]:
        yield self
        return self.result


class Loop:
    """Its time stands still within a turn, as uvloop's does. What is to be called later never is."""

    def __init__(self) -> None:
        self.turns = 0
        self.callbacks: deque[Callable[[], object]] = deque()

    def time(self) -> float:
        return float(self.turns)

    def call_soon(self, callback: Callable[..., object], *given: Any) -> Handle:
        self.callbacks.append(lambda: callback(*given))
        return Handle()

    call_soon_threadsafe = call_soon

    def call_later(self, *_: Any) -> Handle:
        return Handle()

    call_at = call_later

    def create_future(self) -> Waiter:
        return Waiter()

    def run_in_executor(self, _: object, work: Callable[..., object], *given: Any) -> Waiter:
        """What others do in a thread is done at once, and none of the loop's: it does not count as a step."""
        before = sys.gettrace()
        sys.settrace(None)
        try:
            done = Waiter()
            done.set_result(work(*given))
            return done
        finally:
            sys.settrace(before)

    def turn(self) -> None:
        """What was called for in one turn happens in the next."""
        self.turns += 1
        for _ in range(len(self.callbacks)):
            self.callbacks.popleft()()


class Clock:
    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Steps:
    """Counts the lines of Python that run between two looks at the clock: what each step does, whatever it is. `longest`: of them all,
    which are `total` together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lines = 0
        self.longest = self.total = 0

    def __call__(self) -> float:
        self.total += self._lines
        self.longest, self._lines = max(self.longest, self._lines), 0
        return self._clock()

    def trace(self, _: FrameType, event: str, __: object) -> Any:
        self._lines += event == "line"
        return self.trace


class Recorded(calls.Wire):
    """Writes down whether it is read."""

    is_read = True

    def is_reading(self) -> bool:
        return self.is_read

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class World:
    """`url`: options of the listener. `is_durable`: what is stored is in memory, and as if it were on a disk."""

    def __init__(self, options: str = "", *, is_durable: bool = False, **settings: Any) -> None:
        listener = ListenerTable(url=f"tcp://127.0.0.1:0{options}")
        self.settings = Configuration(memory=True, listeners=(listener,), **settings)
        self.loop = Loop()
        self.broker = Broker(
            self.settings, MemoryStore(), cast(asyncio.AbstractEventLoop, self.loop), is_durable=is_durable
        )
        self.broker.turns = Turns(self.broker, self.settings, Clock(self.broker.turns.budget / LOOKS))
        self.broker.faults.on_stop = lambda: None
        self.broker.spawn = lambda work, _=None: self.driven(work)  # type: ignore[method-assign]
        self.acceptor = Acceptor(self.broker, listener.parse())

    def client(self, version: str = "1.1", headers: Mapping[str, str] | None = None) -> Client:
        """`headers`: more of its CONNECT."""
        return Client(self, version, headers or {})

    @contextmanager
    def steps(self) -> Iterator[Steps]:
        """Of what is done meanwhile."""
        turns, before = self.broker.turns, sys.gettrace()
        clock = turns.clock
        turns.clock = steps = Steps(clock)
        sys.settrace(steps.trace)
        try:
            yield steps
        finally:
            sys.settrace(before)
            steps()
            turns.clock = clock

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.loop.turn()
            assert self.broker.faults.last is None, self.broker.faults.last

    def until_idle(self, most: int = 100_000) -> int:
        """Turns until no work waits."""
        for count in range(most):
            if not (self.broker.turns.waiting or self.broker.engine.later.waiting):
                return count
            if self.broker.committer.is_busy:
                self.broker.turns.clock()  # waiting is no step
            self.turn()
        raise AssertionError(f"there is work left after {most} turns")

    def until_stored(self) -> None:
        """Turns until all that was done is in the store."""
        deadline = monotonic() + WITHIN
        while self.broker.is_unsaved or self.broker.turns.waiting or len(self.broker.engine.later):
            assert monotonic() < deadline, self.broker
            self.broker.turns.clock()  # waiting is no step
            self.broker.try_commit()  # as the timer would
            self.turn()

    def driven(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns that gives way, in as many turns as that takes."""
        while True:
            try:
                waiter = work.send(None)
            except StopIteration as done:
                found: T = done.value
                return found
            while not waiter.done():
                self.turn()


class Client(calls.Client):
    """Logged in, without a socket."""

    def __init__(self, world: World, version: str, headers: Mapping[str, str]) -> None:
        self.world = world
        self.version = VERSIONS[version]
        self.wire = Recorded()
        self.socket = Socket(world.broker, world.acceptor)
        self.decoder = Decoder(SERVER_COMMANDS)
        self.seen = 0
        self.frames: list[Frame] = []
        self.socket.connection_made(self.wire)
        self.say(("CONNECT", {"accept-version": version, "host": "localhost", **headers}))
        self.decoder.version = self.version
        self.connection = cast(Any, self.socket._receiver)
        while not self.connection.decoder.logged_in or self.connection.reading.is_waiting:
            # many strangers wait for each other
            world.turn()

    def say(self, *frames: tuple[str, Mapping[str, str]]) -> None:  # type: ignore[override]
        """In one read, however large, and the only one of this turn of the loop."""
        self.socket.data_received(self.octets(frames))
        self.world.broker.flush()

    def say_much(self, frames: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """The same, with so many EOLs before it that the read is no small one."""
        self.socket.data_received(PADDING + self.octets(frames))

    def octets(self, frames: Iterable[tuple[str, Mapping[str, str]]]) -> bytes:
        return b"".join([encode(Frame(command, dict(headers)), self.version) for command, headers in frames])

    def confirmed(self) -> list[str]:
        return [frame.headers["receipt-id"] for frame in self.heard() if frame.command == "RECEIPT"]

    def errors(self) -> list[str]:
        return [frame.headers["code"] for frame in self.heard() if frame.command == "ERROR"]

    def bodies(self) -> list[bytes]:
        return [frame.body for frame in self.heard() if frame.command == "MESSAGE"]


def loaded(
    world: World, count: int, options: Mapping[str, str], queue: str = "/queue/q"
) -> tuple[Client, list[bytes]]:
    """A client that has so many messages of a queue, each of them a run of its own, and has not acknowledged them."""
    sender, holder = world.client(), world.client()
    subscribe = ("SUBSCRIBE", {"id": "1", "destination": queue, "consumer-window-size": "-1", **options})
    if queue.startswith("/topic/"):
        holder.say(subscribe)
    bodies = []
    for number in range(count):
        sender.say(("SEND", {"destination": queue, f"name-{number}": "1"}))
    if not queue.startswith("/topic/"):
        holder.say(subscribe)
    world.until_idle()
    world.turn(20)
    assert len(holder.bodies()) == count
    return holder, bodies
