"""The broker's side of a front: its link, and for each socket that the front has accepted what stands for it here.

A `RemoteSocket` is to its Connection, to the admission at its listener and to the broker what a socket of this process is. What a client
may send is credit: the front stops reading a socket of which WINDOW octets are not obeyed yet. What a client is sent is credit, too: a
socket counts as clogged while more than AHEAD octets are on their way to the client's system, or LEAST where all clients of the front
together have more than SHARED. What lies in the front for longer than a moment, or of a frame of WebSocket that is not whole, it tells with
its signs of life: that counts for the client as if it lay here.

A front that takes nothing for a while, because it is busy or hangs, is given no more than FULL octets. What its clients are told meanwhile
is kept here, for each of them by itself: it counts for the client, and who is ended for it gives it back at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from mypy_extensions import mypyc_attr

from stompbox.errors import LinkError, StompboxError
from stompbox.server.fronts import link
from stompbox.server.fronts.link import (
    AHEAD,
    COUNT,
    CREDIT,
    LEAST,
    LONGEST,
    SHARED,
    SIGNS,
    Kind,
    numbers,
    packed,
    raised,
    read_as,
    told,
)
from stompbox.server.fronts.records import HEAD, PART, Record, Records
from stompbox.server.session.gathering import Gathering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stompbox.server.broker import Broker
    from stompbox.server.session.connection import Connection
    from stompbox.server.transport.admission import Listening

log = logging.getLogger("stompbox.fronts")

FULL: Final = (
    8 << 20
)  # octets on a link that its front has not taken, beyond which what its clients are told is kept here
PORTION: Final = 1 << 20  # octets of it that are handed on for one client in one go
_DATA: Final = int(Kind.DATA)


class RemoteSocket:
    """One socket of a front, by its `number` there. Is the transport of its Connection."""

    __slots__ = (
        "_answered",
        "_has_ended_its_side",
        "_heard",
        "_is_closing",
        "_is_paused",
        "_kept",
        "_obeyed",
        "_on_the_way",
        "acceptor",
        "certificate_name",
        "connection",
        "is_clogged",
        "line",
        "network",
        "number",
        "peer",
        "port",
        "refusal",
    )  # fmt: skip

    def __init__(self, line: FrontLink, number: int, acceptor: Listening, peer: str) -> None:
        self.line = line
        self.number = number
        self.acceptor = acceptor
        self.peer = peer
        self.network = ""
        self.certificate_name = ""
        self.port = 0
        self.connection: Connection | None = None
        self.refusal: StompboxError | None = None  # what it is to be told as soon as it speaks STOMP
        self.is_clogged = False
        self._is_paused = False
        self._is_closing = False
        self._has_ended_its_side = False  # the peer, while it was not listened to
        self._obeyed = 0  # octets, since the front was told
        self._on_the_way = 0  # octets that the client's system has not got, as far as the front has told
        self._kept = 0  # octets that lay in the front when it told so last: unread ones, and of a frame that is not whole
        self._heard: float | None = (
            None  # when its system sent data, and when it sent anything, by the loop's clock
        )
        self._answered: float | None = None

    # What the front tells

    def opened(self, opening: link.Opening) -> None:
        """Makes the Connection of a socket that speaks STOMP."""
        if self.connection is not None:
            raise LinkError("bad-link", f"socket {self.number} is opened twice")
        self.peer, self.certificate_name = opening.peer[:LONGEST], opening.certificate[:LONGEST]
        self.port = opening.port
        self.connection = self.line.broker.client_of(self.acceptor.listener, self, self.peer)
        if self.refusal is not None:
            self.connection.dismiss(self.refusal)

    def received(self, data: bytes) -> None:
        connection = self.connection
        if connection is None:
            raise LinkError("bad-link", f"socket {self.number} has sent something and was not opened")
        self._obeyed += len(data)
        if not self.line.gathering.takes(connection, data):
            connection.receive(data)
        if not self._is_paused:
            self._give_credit(connection)

    def _give_credit(self, connection: Connection) -> None:
        """Where it is worth a record; of a stranger always: until then its front does not know whether it is one still."""
        if self._obeyed >= CREDIT or (self._obeyed and not connection.is_logged_in):
            obeyed, self._obeyed = self._obeyed, 0
            self.line.say(Kind.CREDIT, self.number, COUNT.pack(obeyed))

    def taken(self, octets: int) -> None:
        """The system of the front has taken them."""
        if octets > self._on_the_way:
            raise LinkError("bad-link", f"socket {self.number} has taken more than it was given")
        self._on_the_way -= octets
        self.line.on_the_way -= octets
        self.look_at_room()

    def look_at_room(self) -> None:
        """Whether it may be told more, as less is on its way, or nothing is kept for it any more."""
        if self.is_clogged and self._on_the_way <= self.line.room // 2:
            self.is_clogged = False
            if self.connection is not None:
                self.connection.drained()

    def signs(self, heard: int, answered: int, kept: int) -> None:
        now = self.line.broker.loop.time()
        self._heard = None if heard < 0 else now - heard / 1000
        self._answered = None if answered < 0 else now - answered / 1000
        if kept != self._kept:
            self._kept = kept
            if self.connection is not None:
                self.connection.account.look(self.connection)

    def dismissed(self, error: StompboxError) -> None:
        """The front has something against it."""
        if self.connection is not None:
            self.connection.dismiss(error)

    def ended_its_side(self) -> None:
        """The peer says no more. While something of it waits to be obeyed that waits, too: of a socket of this process, which is not read
        meanwhile, its end would not be known."""
        self._has_ended_its_side = self._is_paused
        connection = self.connection
        if self._is_paused or connection is None or self._is_closing:
            return
        if not connection.says_its_last():
            self.line.say_behind(self, Kind.FINISH)

    def lost(self) -> None:
        """The socket is gone."""
        connection = self._leave()
        if connection is not None:
            connection.lost()

    def cut(self) -> None:
        """Its front is gone, and `part` follows."""
        self._is_closing = True
        if self.connection is not None:
            self.connection.cut()

    def part(self) -> None:
        """Ends what was cut."""
        connection = self._leave()
        if connection is not None:
            connection.part()

    def _leave(self) -> Connection | None:
        self._is_closing = True
        self._let_go()
        self.line.on_the_way -= self._on_the_way
        self._on_the_way = 0
        self.acceptor.admission.gone(self)
        self.line.broker.sockets.discard(self)
        connection, self.connection = self.connection, None
        return connection

    # What the admission and the broker do with it

    @property
    def place(self) -> object:
        """The front that has it."""
        return self.line

    def dismiss(self, error: StompboxError) -> None:
        """Closes a socket that is to go: told in an ERROR, if it has come so far that it could read one."""
        if self.connection is not None:
            self.connection.dismiss(error)
        elif self.refusal is None:
            self.refusal = error
            self.line.say(Kind.DISMISS, self.number, packed(told(error)))

    def abort(self) -> None:
        self._is_closing = True
        self.line.say(Kind.ABORT, self.number)
        if self._let_go() and self.connection is not None:
            self.connection.account.look(self.connection)

    def _let_go(self) -> int:
        """Nobody needs what is kept for it. How many octets that was."""
        octets = self.line.drop(self)
        self._on_the_way -= octets
        self.line.on_the_way -= octets
        return octets

    # The transport of a Connection

    def enter(self, user: str) -> None:
        """Logs in. Raises Refused where the listener has enough of them."""
        if self in self.line.broker.sockets:
            self.acceptor.admission.enter(self, self.acceptor.listener.options)
            self.line.say(Kind.ENTERED, self.number, user.encode())

    @property
    def unread(self) -> int:
        return 0

    @property
    def unsent(self) -> int:
        """Octets on their way, or what the front keeps; a few of which it has told nothing yet do not say that the client does not read."""
        return max(self._on_the_way, self._kept) if self.is_clogged else self._kept

    @property
    def silence(self) -> float | None:
        return None if self._heard is None else self.line.broker.loop.time() - self._heard

    @property
    def absence(self) -> float | None:
        return None if self._answered is None else self.line.broker.loop.time() - self._answered

    @property
    def is_reset(self) -> bool:
        """The front looks for that itself, and tells that it is gone."""
        return False

    def probe(self, seconds: int) -> None:
        self.line.say(Kind.PROBE, self.number, COUNT.pack(seconds))

    def write(self, data: bytes) -> None:
        if not self._is_closing:
            line, size = self.line, len(data)
            self._on_the_way += size
            line.on_the_way += size
            if line.is_full:
                self.is_clogged = True
                line.say_behind(self, _DATA, data)
                return
            self.is_clogged = self.is_clogged or self._on_the_way > line.room
            line.say(_DATA, self.number, data)

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.line.say(Kind.PAUSE, self.number)

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if self.connection is not None:
                self._give_credit(self.connection)
            self.line.say(Kind.RESUME, self.number)
            if self._has_ended_its_side:
                self.line.broker.loop.call_soon(self.ended_its_side)

    def close(self) -> None:
        """The front writes what is left, lets the peer read it, and closes."""
        if not self._is_closing:
            self._is_closing = True
            self.acceptor.admission.linger(self)
            self.line.say_behind(self, Kind.CLOSE)

    def __repr__(self) -> str:
        return f"<RemoteSocket {self.number} of {self.line.name}>"


@mypyc_attr(allow_interpreted_subclasses=True)  # NodeLink, of a node that follows
class FrontLink(asyncio.Protocol):
    """The link to one front's process. `ended` is called when it is gone, with what was wrong with it."""

    def __init__(
        self,
        broker: Broker,
        name: str,
        acceptors: Sequence[Listening],
        ended: Callable[[LinkError | None], None],
    ) -> None:
        self.broker = broker
        self.name = name
        self.peer = name  # for those who look after what transports call
        self.acceptors = acceptors
        self.ended = ended
        self.sockets: dict[int, RemoteSocket] = {}
        self.is_ready = False
        self.obeys = (
            asyncio.Event()
        )  # it has all that it was told to begin with and of changes; or it is gone
        self._behind = 0  # of those, how many it has not answered
        self.answered = 0  # the last beat that it has answered
        self.pulse = link.Pulse(0, 0.0)
        self.gathering = Gathering(broker, is_off=broker.tracing is not None)
        self._records = Records(link.MOST)
        self._out: list[bytes] = []
        self._is_planned = False
        self.is_full = False  # it takes nothing more, or what was kept meanwhile is not handed on yet
        self._is_clogged = False  # more than FULL octets wait for the front
        self._is_handing_on = False
        self._kept: dict[RemoteSocket, deque[tuple[int, bytes]]] = {}  # what its clients are told meanwhile
        self._is_to_end = False  # the front, behind that
        self._is_gone = False
        self.octets_in = self.octets_out = 0
        self.on_the_way = 0  # octets that clients' systems have not got, of all sockets together
        self.lost = 0  # sockets that went with it
        self._last = 0  # the highest number of a socket
        self._fault: LinkError | None = None
        self._transport: asyncio.Transport | None = None

    # To the front

    @property
    def room(self) -> int:
        """Octets that may be on their way to one client: less where very many have something, since what is there counts for nobody yet."""
        return AHEAD if self.on_the_way <= SHARED else LEAST

    def say(self, kind: int, number: int = 0, payload: bytes = b"") -> None:
        """A record, with all others of this turn of the loop."""
        out = self._out
        out.append(HEAD.pack(kind, number, len(payload)))
        if payload:
            out.append(payload)
        if not self._is_planned:
            self._is_planned = True
            self.broker.loop.call_soon(self.flush)

    def say_behind(self, socket: RemoteSocket, kind: int, payload: bytes = b"") -> None:
        """A record that comes behind what is kept for a client."""
        if not self.is_full:
            self.say(kind, socket.number, payload)
            return
        if socket not in self._kept:
            self._kept[socket] = deque()
        self._kept[socket].append((kind, payload))

    def drop(self, socket: RemoteSocket) -> int:
        """What is kept for a client is not told. How many octets that was."""
        kept = self._kept.pop(socket, None) if self._kept else None
        return sum([len(payload) for _, payload in kept]) if kept is not None else 0

    def pause_writing(self) -> None:
        self._is_clogged = self.is_full = True

    def resume_writing(self) -> None:
        self._is_clogged = False
        if not self._is_handing_on:
            self._is_handing_on = True
            self.broker.loop.call_soon(self._hand_on)

    def _hand_on(self) -> None:
        """What was kept, one client after the other, as far as the front takes it and one turn has time for it."""
        until = self.broker.turns.clock() + PART
        while self._kept and not (self._is_clogged or self._is_gone or self.broker.has_failed):
            self._hand_on_some(next(iter(self._kept)))
            if self.broker.turns.clock() > until:
                self.broker.loop.call_soon(self._hand_on)
                return
        self._is_handing_on = False
        self.is_full = self._is_clogged or bool(self._kept)
        if self._is_to_end and not self.is_full:
            self.end()

    def _hand_on_some(self, socket: RemoteSocket) -> None:
        """A PORTION of what is kept for one client; with the rest it comes behind the others."""
        kept, octets = self._kept.pop(socket), 0
        while kept and octets < PORTION:
            kind, payload = kept.popleft()
            octets += len(payload)
            self.say(kind, socket.number, payload)
        if kept:
            self._kept[socket] = kept
        self.flush()
        socket.look_at_room()

    def end(self) -> None:
        """The front is to end, once it has all that its clients are told."""
        self._is_to_end = self.is_full
        if not self.is_full:
            self.say(Kind.END)
            self.flush()

    def configure(self, settings: link.Settings) -> None:
        """Tells it what it must know, when it begins and whenever something of it has changed."""
        self.obeys.clear()
        self._behind += 1
        self.say(Kind.BEGIN, 0, link.settled(settings))

    def flush(self) -> None:
        self._is_planned = False
        if self._transport is None:  # the front is starting
            return
        out, self._out = self._out, []
        if out and not (self._is_gone or self.broker.has_failed):
            data = b"".join(out)
            self.octets_out += len(data)
            self._transport.write(data)

    def shut(self) -> None:
        """The front is no use any more, and ends."""
        if self._transport is not None:
            self._transport.abort()

    # From the front

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=FULL, low=FULL // 4)
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._is_gone or self.broker.has_failed:
            return
        self.octets_in += len(data)
        self._obey_all(data)

    def _obey_all(self, data: bytes) -> None:
        try:
            self._obey(data)
        except LinkError as error:
            self._fault = error
            self.shut()
            self._lose()
        except Exception as error:
            self.broker.faults.stop(f"what {self.name} passed on was obeyed", error)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose()

    def _lose(self) -> None:
        if self._is_gone:
            return
        self._is_gone = True
        self.obeys.set()
        self._out.clear()
        self._records.clear()
        self.gathering.clear()
        found, self.sockets = list(self.sockets.values()), {}
        self.lost = len(found)
        if not self.broker.has_failed:
            try:
                for one in found:
                    one.cut()
                self.broker.turns.run(_parting(found))
            except Exception as error:
                self.broker.faults.stop(f"the connections of {self.name} ended", error)
        self.ended(self._fault)

    def _obey(self, data: bytes) -> None:
        """What this turn has time for. A read has thousands of small records: the rest waits for the next turn, and nothing is read
        meanwhile."""
        is_more = self._records.obey(data, self._obey_some, self.broker.turns.clock)
        self.gathering.obey()
        if is_more and not self._is_gone:
            self._put_off()

    def _put_off(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
        self.broker.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._is_gone or self.broker.has_failed:
            return
        self._obey_all(b"")
        if not (self._records.has_left or self._is_gone or self._transport is None):
            self._transport.resume_reading()

    def _obey_some(self, records: list[Record]) -> None:
        sockets = self.sockets
        for kind, number, payload in records:
            found = sockets.get(number)
            if found is None:
                self._obey_stranger(kind, number, payload)
            elif kind == _DATA:
                found.received(payload)
            else:
                if found.connection is not None and found.connection.reading.group is not None:
                    self.gathering.obey()  # what it has sent comes before
                self._obey_socket(found, kind, payload)

    def _obey_socket(self, found: RemoteSocket, kind: int, payload: bytes) -> None:
        if kind == Kind.TAKEN:
            found.taken(numbers(COUNT, payload)[0])
        elif kind == Kind.LOCATED:
            self._locate(found, payload)
        elif kind == Kind.OPENED:
            found.opened(read_as(link.Opening, payload))
        elif kind == Kind.DISMISSED:
            found.dismissed(raised(read_as(link.Fault, payload)))
        elif kind == Kind.ENDED_ITS_SIDE:
            found.ended_its_side()
        elif kind == Kind.SIGNS:
            found.signs(*numbers(SIGNS, payload))
        elif kind == Kind.LINGERS:
            found.acceptor.admission.linger(found)
        elif kind == Kind.GONE:
            del self.sockets[found.number]
            found.lost()
        else:
            raise LinkError("bad-link", f"a record {kind} of socket {found.number}")

    def _locate(self, found: RemoteSocket, payload: bytes) -> None:
        found.peer = payload[:LONGEST].decode(errors="replace")
        try:
            found.acceptor.admission.locate(found, found.peer, found.acceptor.listener.options)
        except StompboxError as error:
            found.dismiss(error)

    def _obey_stranger(self, kind: int, number: int, payload: bytes) -> None:
        """What is not about a socket that is there."""
        if kind == Kind.ARRIVED and number > self._last:
            self._arrive(number, read_as(link.Arrival, payload))
        elif number:
            raise LinkError("bad-link", f"a record {kind} of socket {number}, which is not there")
        elif kind == Kind.READY:
            self._ready()
        elif kind == Kind.BEAT:
            self.pulse = read_as(link.Pulse, payload)
            self.answered = self.pulse.number
        elif kind == Kind.REFUSED:
            refusal = read_as(link.Refusal, payload)
            self.broker.refusals.tell(refusal.who[:LONGEST], raised(refusal.fault), closes=True)
        elif kind == Kind.LOGGED:
            line = read_as(link.Line, payload)
            extra = {"code": line.code} if line.code else None
            log.log(line.level, "%s: %s", self.name, line.text, extra=extra)
        else:
            raise LinkError("bad-link", f"a record {kind}")

    def _ready(self) -> None:
        self.is_ready = True
        self._behind -= 1
        if self._behind <= 0:
            self.obeys.set()

    def _arrive(self, number: int, arrival: link.Arrival) -> None:
        if not 0 <= arrival.listener < len(self.acceptors):
            raise LinkError("bad-link", f"somebody at the listener {arrival.listener}, which is not there")
        acceptor = self.acceptors[arrival.listener]
        found = RemoteSocket(self, number, acceptor, arrival.peer[:LONGEST])
        self._last, self.sockets[number] = number, found
        self.broker.sockets.add(found)
        acceptor.admission.arrive(found, acceptor.listener.options, is_crowded=arrival.is_crowded)

    def __repr__(self) -> str:
        return f"<FrontLink {self.name} sockets={len(self.sockets)}>"


def _parting(found: list[RemoteSocket]) -> Iterator[None]:
    """One after the other, of those that were cut."""
    for one in found:
        one.part()
        yield
