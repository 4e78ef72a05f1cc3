"""Fronts: processes that have the sockets of clients, started, watched and ended by the broker's process.

    clients -> front 1 (sockets, TLS, WebSocket, PROXY protocol)  \\
    clients -> front 2                                             ==> link (link.py) ==> Connection, engine, commits

The broker opens what is listened on, a socket for each front where the system can share a port (SO_REUSEPORT), else one for all, and keeps
it: who waits there to be accepted when a front dies is accepted by the next one. A front that dies takes its clients' connections with
it, and nothing else; it is started again, sooner the longer it had lived. One that does not answer within `front-timeout` is killed.
The link is a pair of sockets that nobody else has an end of.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from stompbox.errors import BrokerFault, ConfigError, LinkError, reason_of
from stompbox.server.fronts import link
from stompbox.server.fronts.link import COUNT, Kind
from stompbox.server.fronts.remote import FrontLink
from stompbox.server.transport.tcp import BACKLOG, Acceptor, cannot_listen, ready_made

if TYPE_CHECKING:
    from stompbox.config import Configuration, Listener
    from stompbox.server.broker import Broker

log = logging.getLogger("stompbox.fronts")

BEAT: Final = 1.0  # seconds
LATE: Final = 0.5  # seconds that a beat of ours may be late; then it was this process that stood still, and nobody is judged by it
START: Final = 30.0  # seconds for a front to accept, at the start of the broker
AGAIN: Final = 0.05  # seconds before a front that ended is started again, twice as long each time,
LATEST: Final = 5.0  # up to this
GOOD: Final = 30.0  # seconds that it has lived, after which that begins anew
GOODBYE: Final = 3.0  # seconds for a front to end when it is told to
# elsewhere one of the sockets of a shared port gets all connections (macOS), or there is no such thing
SHARES_PORTS: Final = sys.platform == "linux" and hasattr(socket, "SO_REUSEPORT")

# The front imports what this process has, from where it has it: not from the folder in which the broker was started
_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; from stompbox.server.fronts.process import main; main({descriptor})"
)


def front_count(configured: int) -> int:
    """How many there are to be. -1: one for each core but the broker's own."""
    if configured >= 0:
        return configured
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)


class Front:
    """One front's process, and those that come after it. `sockets`: what it is to accept on, for each listener."""

    def __init__(self, fronts: Fronts, number: int, sockets: list[list[socket.socket]]) -> None:
        self.fronts = fronts
        self.broker = fronts.broker
        self.name = f"front {number}"
        self.sockets = sockets
        self.link: FrontLink | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = 0
        self.busy = 0.0  # share of a core that it takes
        self._octets = 0, 0  # of those before it
        self._beat = 0
        self._begun = self._looked = 0.0  # by the loop's clock
        self._cpu = 0.0
        self._wait = AGAIN
        self._is_told_to_end = self._is_shut = False

    @property
    def connections(self) -> int:
        return len(self.link.sockets) if self.link is not None else 0

    @property
    def octets(self) -> tuple[int, int]:
        """On the link: from the front, and to it."""
        now = (self.link.octets_in, self.link.octets_out) if self.link is not None else (0, 0)
        return self._octets[0] + now[0], self._octets[1] + now[1]

    async def start(self) -> None:
        """Raises OSError where the system has no room for a process."""
        ours, theirs = socket.socketpair()
        try:
            self.process = await self.broker.loop.run_in_executor(None, self._spawn, theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._begun = self._looked = self.broker.loop.time()
        self._beat, self._cpu, self.busy = 0, 0.0, 0.0
        self.link = FrontLink(self.broker, self.name, self.fronts.acceptors, self._ended)
        self.configure()
        await self.broker.loop.connect_accepted_socket(self._own_link, ours)

    def _own_link(self) -> FrontLink:
        assert self.link is not None
        return self.link

    def _spawn(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        program = _PROGRAM.format(path=sys.path, descriptor=theirs.fileno())
        listening = [bound.fileno() for sockets in self.sockets for bound in sockets]
        return subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *listening),
        )  # fmt: skip

    def configure(self) -> None:
        """Tells it what it must know, and what of that has changed."""
        if self.link is None:
            return
        places = [
            link.Bound(acceptor.listener, [one.fileno() for one in sockets])
            for acceptor, sockets in zip(self.fronts.acceptors, self.sockets, strict=True)
        ]
        level = self.broker.configuration.log_level.value.upper()
        self.link.configure(link.Settings(self.name, places, len(self.broker.users), level))

    async def obeyed(self) -> None:
        """Returns when the process has what it was told last, or has ended; the next one begins with that."""
        if self.link is not None:
            await self.link.obeys.wait()

    def look(self, timeout: float) -> None:
        """Whether it lives: asks it again, and ends it where it has not answered for so long (seconds)."""
        found, now = self.link, self.broker.loop.time()
        if found is None:
            return
        if found.answered == self._beat:
            passed = now - self._looked
            self.busy = max(0.0, found.pulse.cpu - self._cpu) / passed if passed > 0 and self._beat else 0.0
            self._cpu, self._looked = found.pulse.cpu, now
            self._beat += 1
            found.say(Kind.BEAT, 0, COUNT.pack(self._beat & 0xFFFFFFFF))
        elif now - self._looked > (timeout if found.is_ready else max(timeout, START)):
            text = (
                f"{self.name} has not answered for {now - self._looked:.1f} s (front-timeout); it is killed"
            )
            self._tell(BrokerFault("front-hangs", text))
            self.kill()

    def _tell(self, error: BrokerFault) -> None:
        """Counts what a front did, and says it in the log."""
        self.broker.errors[error.code] += 1
        log.error("%s (%s)", error.message, error.code, extra={"code": error.code})

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def stop_accepting(self) -> None:
        """Lets nobody else connect; if it dies now there is none after it."""
        self._is_shut = True
        if self.link is not None:
            self.link.say(Kind.STOP_ACCEPTING)

    async def end(self) -> None:
        """Told what is left, it ends by itself, or is killed."""
        self._is_told_to_end = True
        if self.link is not None and self.broker.has_failed:
            self.link.shut()  # nothing more may be said
        elif self.link is not None:
            self.link.end()
        if self.process is not None:
            await self.broker.loop.run_in_executor(None, _reap, self.process, GOODBYE)

    def _ended(self, fault: LinkError | None) -> None:
        """The link is gone."""
        self._octets = self.octets
        found, self.link = self.link, None
        process, self.process = self.process, None
        if self._is_told_to_end or self.broker.has_failed or process is None or found is None:
            self.process = process
            return
        lived = self.broker.loop.time() - self._begun
        self._wait = AGAIN if lived > GOOD else self._wait
        why = f", because of what it said: {fault.message} ({fault.code})" if fault is not None else ""
        then = "" if self._is_shut else f". Another one starts in {self._wait:.2f} s"
        text = f"{self.name} has ended{why}; connections that went with it: {found.lost}{then}"
        self._tell(BrokerFault("front-ended", text))
        self.broker.spawn(self._start_again(process))

    async def _start_again(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        await self.broker.loop.run_in_executor(None, _reap, process, GOODBYE)
        while not self._is_shut:
            await asyncio.sleep(self._wait)
            self._wait = min(2 * self._wait, LATEST)
            if self._is_shut or self.broker.is_stopping:
                return
            try:
                await self.start()
            except OSError as error:
                text = f"{self.name} cannot be started: {reason_of(error)}"
                self._tell(BrokerFault("front-ended", text))
                continue
            self.restarts += 1
            return

    def __repr__(self) -> str:
        return f"<Front {self.name} connections={self.connections} restarts={self.restarts}>"


def _reap(process: subprocess.Popen[bytes], timeout: float) -> None:
    """Waits for its end, and makes it come. In a thread."""
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Fronts:
    """All fronts of one broker, and what they accept on."""

    def __init__(self, broker: Broker, configuration: Configuration) -> None:
        self.broker = broker
        self.acceptors: list[Acceptor] = []
        self.fronts: list[Front] = []
        self._count = front_count(configuration.fronts)
        self._sockets: list[list[list[socket.socket]]] = []  # for each front, for each listener
        self._due = 0.0

    async def open(self, listeners: list[Listener]) -> None:
        """Accepts, when it returns. Raises ConfigError where it cannot listen, or no front starts."""
        if not hasattr(socket, "socketpair") or os.name == "nt":
            raise ConfigError(
                "config-value",
                "fronts need a system on which processes can inherit sockets; fronts = 0 does without",
            )
        self._sockets = [[] for _ in range(self._count)]
        try:
            for listener in listeners:
                await self._listen(listener)
            for number in range(self._count):
                self.fronts.append(Front(self, number + 1, self._sockets[number]))
            self.broker.fronts.extend(self.fronts)
            await asyncio.gather(*[front.start() for front in self.fronts])
            self._due = self.broker.loop.time()
            self._look()
            await self._until_ready()
        except BaseException:
            self.close()
            await asyncio.gather(*[front.end() for front in self.fronts])
            self.broker.fronts.clear()
            raise

    async def _until_ready(self) -> None:
        until = self.broker.loop.time() + START
        while not all(front.link is not None and front.link.is_ready for front in self.fronts):
            if self.broker.loop.time() > until or any(front.restarts for front in self.fronts):
                raise BrokerFault("front-ended", "a front does not start; the log says more")
            await asyncio.sleep(0.005)

    async def _listen(self, listener: Listener) -> None:
        acceptor = Acceptor(self.broker, listener)
        try:
            bound = ready_made(acceptor)
            found = [[bound] for _ in self._sockets] if bound is not None else await self._bound(listener)
        except OSError as error:
            raise cannot_listen(listener, error) from None
        for sockets, of_front in zip(found, self._sockets, strict=True):
            of_front.append(sockets)
        if not listener.is_unix:
            acceptor.opened(found[0][0].getsockname()[1])
        self.acceptors.append(acceptor)
        self.broker.acceptors.append(acceptor)

    async def _bound(self, listener: Listener) -> list[list[socket.socket]]:
        """For each front its sockets: one for each address that the host has. Raises OSError."""
        found: list[list[socket.socket]] = [[] for _ in range(self._count)]
        infos = await self.broker.loop.getaddrinfo(
            listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        port = listener.port
        for family, _, _, _, address in dict.fromkeys(infos):
            place: Any = (address[0], port, *address[2:])
            first = _listening(family, place, is_shared=False)
            port = port or first.getsockname()[1]
            place = (address[0], port, *address[2:])
            if not SHARES_PORTS:
                for sockets in found:
                    sockets.append(first)
                continue
            # it has shown that nobody else listens there, whom a shared port would not keep from sharing it
            first.close()
            for sockets in found:
                sockets.append(_listening(family, place, is_shared=True))
        return found

    def configure(self) -> None:
        for front in self.fronts:
            front.configure()

    def _look(self) -> None:
        loop = self.broker.loop
        if self.broker.is_stopping or not self.broker.fronts:
            return
        is_late = loop.time() - self._due > LATE
        timeout = self.broker.configuration.front_timeout / 1000
        for front in self.fronts:
            front.look(float("inf") if is_late else timeout)
        self._due = loop.time() + BEAT
        loop.call_at(self._due, self._look)

    def close(self) -> None:
        """Lets nobody else connect, at any front."""
        for front in self.fronts:
            front.stop_accepting()
        for sockets in self._sockets:
            for bound in [bound for of_acceptor in sockets for bound in of_acceptor]:
                bound.close()

    def __repr__(self) -> str:
        return f"<Fronts {len(self.fronts)}>"


def _listening(family: int, place: Any, *, is_shared: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            with suppress(AttributeError, OSError):
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(place)
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound
