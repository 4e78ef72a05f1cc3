"""Clients of a follower, passed on to the leader: a follower is a front (fronts/) whose link is a connection of two nodes.

On the follower's side `Passing` has the sockets, on the leader's `NodeLink` has what stands for them there. Over the same link each tells
the other how far it is. What a follower says is checked as what a front says is; what a leader says is JSON, and never a pickle.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import MsgspecError, Struct

from stompbox.config import Listener, parse_listener
from stompbox.errors import LinkError, StompboxError
from stompbox.server.cluster.members import (
    NEVER,
    PERIOD,
    Member,
    Status,
    Table,
    Told,
    packed,
    status_in,
    status_of,
    table_of,
    told_in,
)
from stompbox.server.fronts.link import COUNT, Kind, numbers
from stompbox.server.fronts.relay import Front, RemoteAdmission
from stompbox.server.fronts.remote import FrontLink
from stompbox.server.transport.admission import Admission
from stompbox.server.transport.tcp import Acceptor

if TYPE_CHECKING:
    from ssl import SSLContext

    from stompbox.server.broker import Broker
    from stompbox.server.cluster.sockets import ClientSockets

# options that say where keys lie on the follower's disk, and how they are encrypted
_KEYS: Final = re.compile(r"(?<=[?;&])(?:keyStore|keyPath|trustStore|crl)\w*=[^;&]*[;&]?")
_LATE: Final = 3 * PERIOD  # seconds without a word after which the other side counts as gone, at the least


class Request(Struct, frozen=True):
    """What a follower wants that passes its clients on: the URLs of its listeners, without where keys lie, what it is, and the time to live
    (ms) of connections whose listener says nothing of it; -1: none."""

    listeners: list[str]
    member: Member
    connection_ttl: int = -1


class Follower(Protocol):
    """The node, as far as the link asks it."""

    @property
    def quiet(self) -> float: ...
    def member(self) -> Member: ...
    def heard(self, table: Table, asked_at: float) -> None: ...
    def asked_to_lead(self) -> None: ...
    def drained(self, *, is_drained: bool) -> None: ...


def without_keys(url: str) -> str:
    """A listener's URL as the leader is told of it: TLS ends at the follower."""
    return _KEYS.sub("", url).rstrip("?;&")


class RemoteAcceptor:
    """A listener of another node: its options count for the clients that come there, and its own limits."""

    def __init__(self, url: str, connection_ttl: int = -1) -> None:
        """Raises LinkError for a URL that is none."""
        where = "a listener of the other node"
        try:
            self.listener: Listener = parse_listener(
                url, where, connection_ttl=connection_ttl, has_keys=False
            )
        except StompboxError as error:
            raise LinkError("bad-link", error.message) from None
        self.configured = str(self.listener)
        self.admission = Admission()

    def prepare(self, listener: Listener) -> tuple[Listener, SSLContext | None]:
        return listener, None

    def change(self, listener: Listener, context: SSLContext | None) -> None:
        """Its own node's configuration says what it is."""

    def close(self) -> None:
        """The other node has it, and closes it itself."""


class NodeLink(FrontLink):
    """The leader's end. `told` takes what the follower says of itself, and gives the table that it is answered with. Raises LinkError for
    a request that cannot be met."""

    def __init__(
        self,
        broker: Broker,
        node: str,
        request: Request,
        ended: Callable[[LinkError | None], None],
        told: Callable[[Status], Told],
    ) -> None:
        acceptors = [RemoteAcceptor(url, request.connection_ttl) for url in request.listeners]
        for acceptor in acceptors:
            broker.transform_of(acceptor.listener.options)
        super().__init__(broker, f"node {node}", acceptors, ended)
        self.node = node
        self._told = told
        self._heard = broker.loop.time()

    def _obey_stranger(self, kind: int, number: int, payload: bytes) -> None:
        if kind != Kind.STATUS or number:
            super()._obey_stranger(kind, number, payload)
            return
        try:
            status = status_in(payload)
        except MsgspecError as error:
            raise LinkError("bad-link", f"a Member that is none: {error}") from None
        self._heard = self.broker.loop.time()
        self.say(Kind.TABLE, 0, packed(self._told(status)))

    def ask(self, told: Told) -> None:
        """The other node is to say at once what it hears."""
        self.say(Kind.TABLE, 0, packed(told))

    def look(self, late: float) -> None:
        """Ends it where nothing was heard for so many seconds."""
        if self.broker.loop.time() - self._heard > max(_LATE, late):
            self.shut()

    def drain(self, *, is_drained: bool) -> None:
        """The other node is not to try to lead, or may again."""
        self.say(Kind.DRAIN, 0, COUNT.pack(is_drained))

    def lead(self) -> None:
        """The other node is to lead from here on."""
        self.say(Kind.LEAD)
        self.flush()


class Passing(Front):
    """The follower's end: sockets of clients, whose Connections are in the leader's process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client_sockets: ClientSockets,
        users: int,
        node: Follower,
    ) -> None:
        super().__init__(loop)
        self.users = range(users)
        self._client_sockets = client_sockets
        self._node = node
        self._answered = loop.time()
        self._answers = NEVER  # by the leader's clock: when it has sent what was heard last
        self._asked: deque[float] = (
            deque()
        )  # by the monotonic clock: when statuses went out that have no answer yet
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, late: float) -> None:
        """Accepts clients, from the moment on in which the leader takes them."""
        self.acceptors = [
            Acceptor(self, listener, RemoteAdmission(self, at))
            for at, listener in enumerate(self._client_sockets.listeners)
        ]
        await self._client_sockets.serve(self.loop, self.acceptors)
        self.say(Kind.READY)
        self._tell(max(_LATE, late))

    def _tell(self, late: float) -> None:
        if self.ended.done():
            return
        if self.loop.time() - self._answered > late:
            self.end()
            return
        self._tell_status()
        self._timer = self.loop.call_later(PERIOD, self._tell, late)

    def _tell_status(self) -> None:
        node = self._node
        self._asked.append(monotonic())
        self.say(Kind.STATUS, 0, packed(status_of(node.member(), node.quiet, self._answers)))

    def _obey(self, kind: int, payload: bytes) -> None:
        if kind == Kind.TABLE:
            told = told_in(payload)
            self._answered, self._answers = self.loop.time(), told.sent
            asked_at = 0.0 if told.asks or not self._asked else self._asked.popleft()
            self._node.heard(table_of(told), asked_at)
            if told.asks:
                self._tell_status()
        elif kind == Kind.LEAD:
            self._node.asked_to_lead()
        elif kind == Kind.DRAIN:
            self._node.drained(is_drained=bool(numbers(COUNT, payload)[0]))
        elif kind != Kind.BEGIN:  # settings are this node's own
            super()._obey(kind, payload)

    def shut(self) -> None:
        """Ends all that is passed on: clients come back, to whoever leads then."""
        self._client_sockets.rest()
        if self._timer is not None:
            self._timer.cancel()
        for one in list(self.sockets):
            one.abort()
        if self._transport is not None:
            self._transport.abort()
        self.end()
