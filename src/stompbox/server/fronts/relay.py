"""A front: it has the sockets of some clients, with TLS, WebSocket and the PROXY protocol, and passes on to the broker what comes.

It knows nothing that lasts. What a client has sent goes to the broker as it came, gathered for a turn of the loop; what the broker says
to a client is written as it is. Whatever a client may or may not do is decided by the broker: its admission, its limits, its rights.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from stompbox.errors import ConfigError, Refused, StompboxError
from stompbox.server.faults import told as outline
from stompbox.server.fronts import link
from stompbox.server.fronts.link import (
    COUNT,
    PIECE,
    SIGNS,
    TAKEN,
    WINDOW,
    Kind,
    numbers,
    packed,
    raised,
    read_as,
    told,
)
from stompbox.server.fronts.records import HEAD, Record, Records
from stompbox.server.transport.admission import Admission
from stompbox.server.transport.tcp import Acceptor, Socket, accept
from stompbox.server.turns import OfLoop

if TYPE_CHECKING:
    from stompbox.config import Listener, ListenerOptions
    from stompbox.server.seam import Peer, Transport
    from stompbox.server.transport.admission import Visitor

log = logging.getLogger("stompbox.fronts")

LOOK: Final = 0.25  # seconds between two looks at clients that do not read, or are not read
SOME: Final = 32  # of them that are looked at in one turn of the loop: half a millisecond
AGAIN: Final = 256  # clients that are read again in one turn: a millisecond
MUCH: Final = 1 << 20  # octets that wait to be passed on, beyond which no client is read
# octets of all clients that were read and have not gone to the link, beyond which none is read
GATHERED: Final = 8 << 20
UNREAD: Final = 1 << 20  # octets that wait for a client, beyond which its pings are not answered
_DATA: Final = int(Kind.DATA)


class Front:
    """The process: what sockets know of it, and what the broker tells it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.sockets: set[Peer] = set()
        self.has_failed = False
        self.users = range(0)  # as many as the broker has
        self.refusals, self.faults, self.turns = Refusals(self), Faults(self), OfLoop(loop)
        self.clock: Callable[[], float] = time.perf_counter
        self.acceptors: list[Acceptor] = []
        self.servers: list[asyncio.Server] = []
        self.relays: dict[int, Relay] = {}
        self.by_number: dict[int, Socket] = {}
        self.numbers: dict[Any, int] = {}
        self.watched: dict[Relay, None] = {}  # who do not read, or are asked for signs of life
        self.choked: dict[Relay, None] = {}  # who are not read because the link has too much to carry
        self.ended: asyncio.Future[None] = loop.create_future()
        self.happened = 0  # what was passed on, in either direction, up to a turn of the loop at once
        self._last = 0
        self._out: list[bytes] = []
        self.gathered = 0  # octets of clients in there, and of those that came since the link is clogged
        self._is_planned = self._is_clogged = False
        self._is_looking = False
        self._records = Records(0)
        self._transport: asyncio.Transport | None = None

    # The link

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=MUCH, low=MUCH // 4)
        self.flush()

    def say(self, kind: Kind, number: int = 0, payload: bytes = b"") -> None:
        """A record, with all others of this turn of the loop."""
        self._out.append(HEAD.pack(kind, number, len(payload)))
        if payload:
            self._out.append(payload)
        if not self._is_planned:
            self._is_planned = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self._is_planned = False
        self.happened += 1
        if self._out and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(b"".join(out))
        if not self._is_clogged:
            was_full, self.gathered = self.gathered > GATHERED, 0
            if was_full:
                self._read_on()

    def gather(self, octets: int) -> None:
        """A client was read. Each of thousands has a whole read in one turn: where that is too much none is read until it has gone."""
        was_full, self.gathered = self.gathered > GATHERED, self.gathered + octets
        if self.gathered > GATHERED and not was_full:
            for relay in self.relays.values():
                relay.look()

    def disconnected(self) -> None:
        """There is nobody who could be told anything."""
        self._transport = None

    def link_clogged(self) -> None:
        self._is_clogged = True

    def link_drained(self) -> None:
        self._is_clogged, self.gathered = False, 0
        self._read_on()

    def _read_on(self) -> None:
        choked, self.choked = self.choked, {}
        self._read_again(list(choked))

    def _read_again(self, choked: list[Relay]) -> None:
        """Looks at AGAIN of those who were not read in each turn. Who finds the link full once more waits once more."""
        for relay in choked[:AGAIN]:
            relay.look()
        if len(choked) > AGAIN:
            self.loop.call_soon(self._read_again, choked[AGAIN:])

    @property
    def is_clogged(self) -> bool:
        """The broker does not take what it is told, or there is too much of it."""
        return self._is_clogged or self.gathered > GATHERED

    def heard(self, data: bytes) -> None:
        """Octets of the broker. What this turn has no time for waits for the next one, and nothing is read meanwhile."""
        self.happened += 1
        if self._records.obey(data, self._obey_some, self.clock) and self._transport is not None:
            self._transport.pause_reading()
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._transport is None:
            return
        try:
            self.heard(b"")
        except Exception as error:
            self.faults.stop("it was told something by the broker", error)
        if not (self._records.has_left or self.has_failed or self._transport is None):
            self._transport.resume_reading()

    def _obey_some(self, records: list[Record]) -> None:
        relays = self.relays
        for kind, number, payload in records:
            if kind == _DATA:
                relay = relays.get(number)
                if relay is not None:
                    relay.write(payload)
            elif number:
                self._obey_of(kind, number, payload)
            else:
                self._obey(kind, payload)

    def _obey_of(self, kind: int, number: int, payload: bytes) -> None:
        """What one socket is to do; it may be gone."""
        accepted, relay = self.by_number.get(number), self.relays.get(number)
        if accepted is None:
            return
        if kind == Kind.ABORT:
            (accepted if relay is None else relay.transport).abort()
        elif kind == Kind.FINISH:
            accepted.finish()
        elif kind == Kind.DISMISS:
            accepted.dismiss(raised(read_as(link.Fault, payload)))
        elif relay is None:
            return
        elif kind == Kind.CREDIT:
            relay.credited(numbers(COUNT, payload)[0])
        elif kind in (Kind.PAUSE, Kind.RESUME):
            relay.pause(is_paused=kind == Kind.PAUSE)
        elif kind == Kind.CLOSE:
            relay.close()
        elif kind == Kind.ENTERED:
            relay.enter(payload.decode())
        elif kind == Kind.PROBE:
            accepted.probe(numbers(COUNT, payload)[0])
            self.watch(relay)

    def _obey(self, kind: int, payload: bytes) -> None:
        if kind == Kind.BEGIN:
            self._configure(link.settings_in(payload))
        elif kind == Kind.BEAT:
            pulse = link.Pulse(numbers(COUNT, payload)[0], time.process_time())
            self.say(Kind.BEAT, 0, packed(pulse))
        elif kind == Kind.STOP_ACCEPTING:
            self._stop_accepting()
        elif kind == Kind.END:
            self.end()

    def _configure(self, settings: link.Settings) -> None:
        """Accepts, at the first time; takes what has changed of the listeners, later."""
        self.users = range(settings.users)
        logging.getLogger().setLevel(settings.log_level)
        if not self.acceptors:
            self.acceptors = [
                Acceptor(self, said.listener, RemoteAdmission(self, at))
                for at, said in enumerate(settings.bound)
            ]
            self.spawn(self._open(settings.bound))
            return
        for acceptor, said in zip(self.acceptors, settings.bound, strict=True):
            try:
                acceptor.change(*acceptor.prepare(said.listener))
            except ConfigError as error:
                log.error("%s stays as it was: %s", said.listener, error.message, extra={"code": error.code})
        self.say(Kind.READY)

    async def _open(self, bound: list[link.Bound]) -> None:
        for acceptor, said in zip(self.acceptors, bound, strict=True):
            for number in said.descriptors:
                self.servers.append(await accept(self.loop, acceptor, socket.socket(fileno=number)))
        self.say(Kind.READY)

    def _stop_accepting(self) -> None:
        for server in self.servers:
            server.close()

    def end(self) -> None:
        """Nothing more is to be done here."""
        self.flush()
        if not self.ended.done():
            self.ended.set_result(None)

    # What sockets know of it

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.faults.stop("something was done beside", error)

    def transform_of(self, options: ListenerOptions) -> None:
        """None here: messages are the broker's."""

    def client_of(self, listener: Listener, transport: Transport, peer: str) -> Relay:
        """A client is there."""
        accepted = cast(Socket, getattr(transport, "socket", transport))
        relay = Relay(
            self, self.numbers[accepted], accepted, transport, listener.options.max_connection_memory
        )
        self.relays[relay.number] = relay
        self.say(
            Kind.OPENED, relay.number, packed(link.Opening(peer, transport.certificate_name, transport.port))
        )
        return relay

    # Sockets that come and go

    def arrived(self, visitor: Visitor, listener: int, *, is_crowded: bool) -> None:
        accepted = cast(Socket, visitor)
        self._last += 1
        self.numbers[accepted], self.by_number[self._last] = self._last, accepted
        self.say(Kind.ARRIVED, self._last, packed(link.Arrival(listener, accepted.peer, is_crowded)))

    def gone(self, visitor: Visitor) -> None:
        """When all that it has sent was passed on: what its WebSocket has read may wait for its turn."""
        self.loop.call_soon(self._forget, visitor)

    def _forget(self, visitor: Visitor) -> None:
        number = self.numbers.get(visitor)
        relay = self.relays.get(number or 0)
        if number is None:
            return
        if relay is not None and not relay.is_lost:
            relay.is_gone = True
            return
        del self.numbers[visitor], self.by_number[number]
        if relay is not None:
            del self.relays[number]
            self.watched.pop(relay, None)
            self.choked.pop(relay, None)
        self.say(Kind.GONE, number)

    def watch(self, relay: Relay) -> None:
        """Looks at a client now and then from now on."""
        self.watched[relay] = None
        if not self._is_looking:
            self._is_looking = True
            self.loop.call_later(LOOK, self._look)

    def _look(self) -> None:
        self._look_at(list(self.watched))

    def _look_at(self, waiting: list[Relay]) -> None:
        """There may be thousands: SOME of them in each turn."""
        for relay in waiting[:SOME]:
            if relay in self.watched and not relay.give_signs():  # it has not gone meanwhile
                del self.watched[relay]
        if len(waiting) > SOME:
            self.loop.call_soon(self._look_at, waiting[SOME:])
            return
        self._is_looking = bool(self.watched)
        if self._is_looking:
            self.loop.call_later(LOOK, self._look)

    def __repr__(self) -> str:
        return f"<Front sockets={len(self.sockets)}>"


class Relay:
    """What stands behind the socket of one client: its Connection is in the broker's process."""

    __slots__ = (
        "_is_choked", "_is_judged", "_is_paused", "_unobeyed", "_untold", "front", "is_ended", "is_gone", "is_logged_in",
        "is_lost", "most", "number", "socket", "transport",
    )  # fmt: skip

    def __init__(self, front: Front, number: int, accepted: Socket, transport: Transport, most: int) -> None:
        self.front = front
        self.number = number
        self.socket = accepted
        self.transport = transport
        self.most = most  # octets that may wait for the client to take them
        self.is_ended = self.is_logged_in = False
        self.is_gone = False  # its socket is,
        self.is_lost = False  # and nothing more comes of it
        self._is_paused = False  # the broker says so
        self._is_choked = False  # it is told what nobody but its WebSocket says, and does not read
        self._unobeyed = 0  # octets of it
        # what it may say is judged here too, frame by frame of its WebSocket, and by whether it has logged in
        self._is_judged = transport is not accepted
        self._untold = 0  # octets that were written, since the broker was told what the system has taken

    # What the client says

    def receive(self, data: bytes) -> None:
        if self.is_ended:
            return
        front = self.front
        front.gather(len(data))
        self._unobeyed += len(data)
        if len(data) <= PIECE:
            front.say(Kind.DATA, self.number, data)
        else:
            for at in range(0, len(data), PIECE):
                front.say(Kind.DATA, self.number, data[at : at + PIECE])
        if self._unobeyed > WINDOW or front.is_clogged or self._awaits_verdict:
            self.look()

    @property
    def _awaits_verdict(self) -> bool:
        """Whether the broker has not said yet if what has come has logged it in: what comes next is not a stranger's then."""
        return self._is_judged and not self.is_logged_in and self._unobeyed > 0

    @property
    def takes_more(self) -> bool:
        return not (self.front.is_clogged or self._unobeyed > WINDOW or self._awaits_verdict)

    def look(self) -> None:
        """Whether it is to be read."""
        if self.is_ended:
            return
        if self.front.is_clogged:
            self.front.choked[self] = None
        if self._is_paused or self._is_choked or not self.takes_more:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def credited(self, octets: int) -> None:
        was_full = self._unobeyed > WINDOW or self._awaits_verdict
        self._unobeyed -= octets
        if was_full:
            self.look()

    def pause(self, *, is_paused: bool) -> None:
        self._is_paused = is_paused
        self.look()
        if is_paused:
            self.front.watch(self)

    def dismiss(self, error: StompboxError) -> bool:
        if self.is_ended:
            return False
        self.front.say(Kind.DISMISSED, self.number, packed(told(error)))
        self.is_ended = True
        return True

    def says_its_last(self) -> bool:
        self.front.say(Kind.ENDED_ITS_SIDE, self.number)
        return True

    def lost(self) -> None:
        """What came of it was passed on."""
        self.is_ended = self.is_lost = True
        if self.is_gone:
            self.front.gone(self.socket)

    # What it is told

    def write(self, data: bytes) -> None:
        self.transport.write(data)
        self._untold += len(data)
        if self.transport.is_clogged:
            self.front.watch(self)
        elif self._untold >= TAKEN:
            self._tell_taken(self._untold)

    def drained(self) -> None:
        if self._untold:
            self._tell_taken(self._untold)
        if self._is_choked:
            self._is_choked = False
            self.look()

    def _tell_taken(self, octets: int) -> None:
        self._untold -= octets
        self.front.say(Kind.TAKEN, self.number, COUNT.pack(octets))

    def give_signs(self) -> bool:
        """What the broker may want to know of it; False: nothing any more. Who is not read is not heard to be gone."""
        if self.socket.is_reset:
            self.socket.abort()
            return False
        transport = self.transport
        unsent = transport.unsent
        taken, kept = self._untold - unsent, unsent + transport.unread
        if taken > 0:
            self._tell_taken(taken)
        silence, absence = self.socket.silence, self.socket.absence
        told = SIGNS.pack(_ms(silence), _ms(absence), min(kept, 0xFFFFFFFF))
        self.front.say(Kind.SIGNS, self.number, told)
        return transport.is_clogged or self._is_paused or kept > 0

    def look_kept(self) -> None:
        """What has come of a frame of its WebSocket counts, though the broker has not got it."""
        self.front.watch(self)

    def look_unread(self) -> None:
        """Its WebSocket has said something by itself, and it does not read."""
        self.front.watch(self)
        unsent = self.transport.unsent
        if unsent > self.most:
            limit = f"{self.most} (maxConnectionMemory)"
            text = f"{unsent} octets wait that the client does not take; the limit is {limit}"
            error = Refused("too-much-unread", text, closes=True)
            self.front.refusals.tell(f"connection from {self.socket.peer}", error, closes=True)
            self.socket.abort()
        elif unsent > UNREAD and not self._is_choked:
            self._is_choked = True
            self.look()

    def enter(self, user: str) -> None:
        self.is_logged_in = True
        self.transport.enter(user)
        self.look()

    def close(self) -> None:
        self.is_ended = True
        self.transport.close()

    def __repr__(self) -> str:
        return f"<Relay {self.number}>"


def _ms(seconds: float | None) -> int:
    return -1 if seconds is None else min(int(seconds * 1000), 0x7FFFFFFF)


class RemoteAdmission(Admission):
    """Who is let in is decided by the broker, which is told of everybody."""

    def __init__(self, front: Front, listener: int) -> None:
        super().__init__()
        self._front = front
        self._listener = listener

    def arrive(self, visitor: Visitor, options: ListenerOptions, *, is_crowded: bool) -> None:
        self.strangers[visitor] = None
        self._front.arrived(visitor, self._listener, is_crowded=is_crowded)

    def locate(self, visitor: Visitor, peer: str, options: ListenerOptions) -> None:
        self._front.say(Kind.LOCATED, self._front.numbers[visitor], peer.encode(errors="replace"))

    def enter(self, visitor: Visitor, options: ListenerOptions) -> None:
        """The broker has let it in."""
        self.leave(visitor)

    def linger(self, visitor: Visitor) -> None:
        self.leave(visitor)
        number = self._front.numbers.get(visitor)
        if number is not None:
            self._front.say(Kind.LINGERS, number)

    def gone(self, visitor: Visitor) -> None:
        self.leave(visitor)
        self._front.gone(visitor)


class Refusals:
    """The broker counts them, and its log says them."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def tell(self, who: str, error: StompboxError, *, closes: bool) -> bool:
        self._front.say(Kind.REFUSED, 0, packed(link.Refusal(who, told(error))))
        return closes


class Faults:
    """A fault of ours in here: of one socket, or of the front, which ends with its clients' connections."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def stop(self, doing: str, error: BaseException) -> None:
        if not self._front.has_failed:
            self._front.has_failed = True
            log.critical("stopped by a fault of its own, while %s: %s", doing, outline(error), exc_info=error)
            self._front.end()

    def drop(self, socket: Peer, doing: str, error: Exception) -> None:
        log.error(
            "%s: a fault of the front while %s: %s; closed",
            socket.peer,
            doing,
            outline(error),
            exc_info=error,
            extra={"code": "internal-fault"},
        )
        socket.abort()

    def in_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What a callback raised."""
        error = context.get("exception")
        if isinstance(error, Exception) and not {"task", "future"} & context.keys():
            self.stop("the event loop called back", error)
        else:
            loop.default_exception_handler(context)
