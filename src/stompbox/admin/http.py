"""HTTP for the admin interface: uvicorn's protocol in the broker's loop, with limits on how long and how many.

Decides nothing about what is answered (app.py). uvicorn's own server is not used: it would take over the signals.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from stompbox.admin.app import build
from stompbox.security import network_of
from stompbox.server.transport import unixsocket
from stompbox.server.transport.tlstransport import TlsTransport

if TYPE_CHECKING:
    from stompbox.admin.listening import AdminListener
    from stompbox.server.sockets import Reader

# at a time; a newcomer takes the place of one that does not ask, and gets 503 when all are being answered
CONNECTIONS: Final = 100
HEAD_WITHIN: Final = 10.0  # seconds for a request's head and the hand-shake of TLS before it, and for the next head after an answer
HEAD: Final = 32 << 10  # bytes of a request's head
UNREAD_WITHIN: Final = 30.0  # seconds in which a client takes some of an answer that waits for it
# octets of answers that nobody has taken yet, of all connections together; beyond that who has most of them has no room for another one
UNREAD: Final = 32 << 20
PART: Final = 1024  # octets of what was read that are parsed as one,
EVENTS: Final = 100  # and how often that is done in one go: less than a millisecond
LINES: Final = 100  # of a head, or of trailers
ENDING: Final = 2.0  # seconds for answers under way when the broker stops, or comes to lead or to follow
ASKING: Final = 0.1  # seconds for the first request of who has just connected then


class Parser(h11.Connection):
    """Parses what was read PART octets at a time, and says that it has nothing more once it has done EVENTS in one go: it `is_cut` then,
    until it may have `more`. So neither very many chunks of a body nor the lines of a head come to much at once."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEAD)
        self._rest = memoryview(b"")  # was read, and is not parsed yet
        self._left = EVENTS
        self.wrong = ""  # with what was read

    def more(self) -> None:
        self._left = EVENTS

    @property
    def is_cut(self) -> bool:
        return self._left <= 0

    def receive_data(self, data: bytes) -> None:
        self._rest = memoryview(bytes(self._rest) + data)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._next_event()
        except h11.RemoteProtocolError as error:
            self.wrong = str(error)
            raise

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while self._left > 0:
            self._left -= 1
            event = super().next_event()
            if isinstance(event, h11.Request):
                _require_one_length(event)
            if event is not h11.NEED_DATA or not self._rest:
                return event
            begun, _ = self.trailing_data
            if begun.count(b"\n") > LINES:
                raise h11.RemoteProtocolError(f"more than {LINES} lines", error_status_hint=431)
            super().receive_data(bytes(self._rest[:PART]))
            self._rest = self._rest[PART:]
        return h11.NEED_DATA


def _require_one_length(request: h11.Request) -> None:
    """A proxy that believes the other one of two lengths would see another request (RFC 9112, 6.1 and 6.3)."""
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
        raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")


class HttpProtocol(H11Protocol):
    """Closes on who does not ask, or does not read: they must not hold the CONNECTIONS, neither for long nor together.

    One client address (an IPv6 network of 64 bits) has `max-connections-per-address`; -1: no limit. So nobody has all of the CONNECTIONS,
    whatever it asks: its newcomer takes the place of one of its own that does not ask, and gets 503 where all of them are being answered.
    """

    _deadline: asyncio.TimerHandle
    _since: float  # it waits for a head
    _unread: asyncio.TimerHandle | None = None  # while much of an answer waits for its reader
    conn: Parser
    _is_put_off = False  # what it has said waits for a turn
    _under_way = 0  # octets of the answer that is being written
    # a user, or the client address of who needs no login: they have what is not read in equal parts
    _whose = ("", "")

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        listener: AdminListener,
    ) -> None:
        super().__init__(config, state, app_state, loop)
        self.conn = Parser()
        self._most = listener.table.max_connections_per_address
        self._turns = listener.broker.turns
        self._faults = listener.broker.faults
        self.answered = asyncio.Event()  # once
        self._inner, self.app = self.app, self._answer

    def accepted(self, transport: asyncio.Transport, reader: Reader) -> None:
        """The hand-shake of TLS is still to come: it has a deadline, and a place as everybody."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.client = (str(peer[0]), int(peer[1])) if peer else None
        self.connections.add(self)
        self._take_place()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        is_accepted = self in self.connections
        super().connection_made(transport)
        if not is_accepted:
            self._take_place()

    def _take_place(self) -> None:
        self._expect()
        others = [one for one in self.connections if isinstance(one, HttpProtocol) and one is not self]
        same = [one for one in others if one.address == self.address]
        if 0 <= self._most <= len(same):
            if not self._make_room(same):
                self.app = service_unavailable
        elif len(others) + 1 >= CONNECTIONS:
            self._make_room(others)

    def _make_room(self, others: list[HttpProtocol]) -> bool:
        """One goes that does not ask: of the client address with most of them, the one that has waited for the longest time."""
        waiting = [one for one in others if one.is_waiting]
        if waiting:
            of_address = Counter([one.address for one in waiting])
            gone = max(waiting, key=lambda one: (of_address[one.address], -one._since))
            self.connections.discard(gone)
            gone.transport.abort()
        return bool(waiting)

    @property
    def peer(self) -> str:
        return self.client[0] if self.client else "local"

    @property
    def address(self) -> str:
        return network_of(self.client[0]) if self.client else ""

    @property
    def is_waiting(self) -> bool:
        """Whether the connection is open and no request of it is being answered, or about to be."""
        return not self._is_put_off and (self.cycle is None or self.cycle.response_complete)

    def data_received(self, data: bytes) -> None:
        """To parse a request takes as long as to answer it: of very many at once others wait for a turn of them, and no longer."""
        self._unset_keepalive_if_required()
        self.conn.receive_data(data)
        if self._turns.is_over:
            self._put_off()
        elif not self._is_put_off:
            self.handle_events()

    def _put_off(self) -> None:
        if not self._is_put_off:
            self._is_put_off = True
            self.transport.pause_reading()
            self._turns.later(self._obey)

    def _obey(self, _: float) -> bool:
        self._is_put_off = False
        if not self.transport.is_closing():
            self.handle_events()
        if not (self._is_put_off or self.transport.is_closing() or self.flow.read_paused):
            self.transport.resume_reading()
        return False

    def handle_events(self) -> None:
        """What one read has beyond what may be parsed in one go waits for a turn. A fault in the parser has changed nothing but this
        connection, which ends."""
        self.conn.more()
        try:
            super().handle_events()
        except Exception as error:
            self._faults.drop(self, "a request was parsed", error)
        if self.conn.is_cut and not self.transport.is_closing():
            self._put_off()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Nothing is made for who has not read the last answer, and what has been made is 503 where too much is not read."""
        await self.flow.drain()
        is_refused = False

        async def send_bounded(message: Any) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start":
                length = int(dict(message["headers"]).get(b"content-length", b"0"))
                user = scope["state"].get("user")
                self._whose = (user.name, "") if user is not None and user.name else ("", self.address)
                is_refused = not self._has_room(length)
                if is_refused:
                    await service_unavailable(scope, receive, send)
                    return
                self._under_way = length
            if not is_refused:
                await send(message)

        try:
            await self._inner(scope, receive, send_bounded)
        finally:
            self._under_way = 0

    def _has_room(self, length: int) -> bool:
        """Whether the answer may be written. For that those connections go who do not read more than it is: the largest answer of whoever
        has most, so that nobody's are refused for what somebody else does not read."""
        unread = {one: one.unread for one in self.connections if isinstance(one, HttpProtocol) and one.unread}
        going: list[HttpProtocol] = []
        while unread and sum(unread.values()) + length > UNREAD:
            shares = Counter({self._whose: length})
            for one, octets in unread.items():
                shares[one._whose] += octets
            gone = max(unread, key=lambda one: (shares[one._whose], unread[one]))
            if (shares[gone._whose], unread[gone]) <= (shares[self._whose], length):
                return False
            del unread[gone]
            going.append(gone)
        for gone in going:
            self.connections.discard(gone)
            gone.abort()
        return True

    @property
    def unread(self) -> int:
        """Octets of an answer that are here still, the whole of it while it is being written."""
        return max(self._under_way, self.transport.get_write_buffer_size())

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is said where no answer has begun, and closes. Who waits for the rest of a body is told that it does not come."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(f"{msg} {self.conn.wrong}".strip())
        else:
            self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    def _expect(self) -> None:
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        self._deadline = loop.call_later(HEAD_WITHIN, self._late)

    def _late(self) -> None:
        if self.is_waiting:
            self.transport.close()

    def on_response_complete(self) -> None:
        self._deadline.cancel()
        self._expect()
        self.answered.set()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        self._forget_reader()
        super().resume_writing()

    def _expect_reader(self) -> None:
        loop, left = asyncio.get_running_loop(), self.transport.get_write_buffer_size()
        self._unread = loop.call_later(UNREAD_WITHIN, self._look_at_reader, left)

    def _look_at_reader(self, before: int) -> None:
        """A reader that is slow is waited for, and one that takes nothing has its place for no longer."""
        if self.transport.get_write_buffer_size() >= before:
            self.transport.abort()
        else:
            self._expect_reader()

    def _forget_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._forget_reader()
        self.answered.set()
        super().connection_lost(exc)


class HttpServer:
    """What listens, what is connected, what is being answered."""

    def __init__(self, state: ServerState, servers: list[asyncio.Server]) -> None:
        self.state = state
        self.servers = servers

    async def close(self) -> None:
        for server in self.servers:
            server.close()
        await self._let_ask()
        if self.state.tasks:
            await asyncio.wait(list(self.state.tasks), timeout=ENDING)
        for connection in list(self.state.connections):
            connection.transport.close()

    async def _let_ask(self) -> None:
        """Who has connected and not asked yet has a request on its way, which would be dropped."""
        new = [
            asyncio.ensure_future(one.answered.wait())
            for one in self.state.connections
            if isinstance(one, HttpProtocol) and not one.answered.is_set()
        ]
        if new:
            await asyncio.wait(new, timeout=ASKING)
            for one in new:
                one.cancel()

    def __repr__(self) -> str:
        return f"<HttpServer connections={len(self.state.connections)} requests={self.state.total_requests}>"


def prepare(listener: AdminListener) -> uvicorn.Config:
    """Builds the admin interface, as `serve` wants it: that takes some ms, and may be done in a thread."""
    app = build(listener.broker, listener.table, listener.history)
    config = uvicorn.Config(
        app, http=HttpProtocol, ws="none", lifespan="off", interface="asgi3",
        # what a stranger says that is no HTTP, or asks to upgrade, is nobody's fault here
        log_config=None, log_level="error",
        access_log=False, server_header=False, date_header=False,
        # a client's address is its own, not what a header says: failed logins count by it
        proxy_headers=False,
        limit_concurrency=CONNECTIONS, h11_max_incomplete_event_size=HEAD,
    )  # fmt: skip
    config.load()
    return config


async def serve(listener: AdminListener, config: uvicorn.Config) -> HttpServer:
    """Serves the admin interface on the listener's sockets, which are accepted from now on."""
    loop = listener.broker.loop
    state = ServerState()

    def connected() -> HttpProtocol:
        app_state: dict[str, Any] = {}
        return HttpProtocol(config, state, app_state, loop, listener)

    def secured(context: ssl.SSLContext) -> TlsTransport:
        return TlsTransport(connected(), context, loop, listener.broker.turns)

    accepting = connected if listener.context is None else partial(secured, listener.context)
    servers = [
        await loop.create_unix_server(connected, sock=each, **unixsocket.KEPT)
        if each.family == getattr(socket, "AF_UNIX", None)
        else await loop.create_server(accepting, sock=each)
        for each in listener.sockets
    ]
    return HttpServer(state, servers)
