"""What a test does to connections: answers are held, sockets are dropped, those who come are turned away.

A connection that is stalled obeys what its client says, and nothing of what it answers goes out, heart-beats neither, until it is resumed.
What it holds counts as not taken by the system, so that credit and acknowledgements are those of a client that does not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, cast

from stompbox.server.faults import guarded
from stompbox.server.transport.tcp import Acceptor, Socket

if TYPE_CHECKING:
    from stompbox.config import Listener
    from stompbox.server.broker import Broker
    from stompbox.server.session.connection import Connection
    from stompbox.server.transport.host import Host


@dataclass(frozen=True, slots=True)
class Connected:
    """A client's connection. `number` names it in `Exchanged.connection` and to the faults that are made."""

    number: int
    user: str
    peer: str
    client_id: str
    version: str
    subscriptions: tuple[str, ...]  # their destinations


def connected(connection: Connection) -> Connected:
    session = connection.session
    subscribed = tuple([each.destination for each in connection.consumers.values()])
    return Connected(
        connection.session_id, connection.user.name, connection.peer, connection.client_id, session.version.name, subscribed
    )  # fmt: skip


class Fault:
    """A fault that was made: it lasts until `end`, the end of its `with`, or of the broker."""

    def __init__(self, name: str, end: Callable[[], None]) -> None:
        self.name = name
        self._end: Callable[[], None] | None = end

    def end(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<Fault {self.name}{'' if self._end else ' (ended)'}>"


@dataclass(slots=True)
class Mood:
    """What happens to connections, those that are there and those that come. Counts, for faults may overlap."""

    refuses: int = 0
    stalls: int = 0
    stalled: dict[int, int] = field(default_factory=dict)  # of one connection, by its number

    def is_stalled(self, connection: Connection | None) -> bool:
        return bool(self.stalls or (connection is not None and self.stalled.get(connection.session_id)))


class TestedSocket(Socket):
    """A socket of a broker under test that can be stalled."""

    __test__ = False  # for pytest

    def __init__(self, broker: Host, acceptor: TestedAcceptor) -> None:
        super().__init__(broker, acceptor)
        self.mood = acceptor.mood
        self.held: list[bytes] = []
        self._is_full = False  # the system says so, stalled or not
        self._is_to_close = False

    @property
    def connection(self) -> Connection | None:
        receiver = self._receiver
        return cast("Connection | None", getattr(receiver, "connection", receiver))

    @guarded
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.mood.refuses:
            self.abort()

    def write(self, data: bytes) -> None:
        if self.held or self.mood.is_stalled(self.connection):
            self.held.append(data)
            self.is_clogged = True
        else:
            super().write(data)

    @property
    def unsent(self) -> int:
        return super().unsent + sum(map(len, self.held))

    def pause_writing(self) -> None:
        self._is_full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        if not self.held:
            super().resume_writing()

    @guarded
    def let_go(self) -> None:
        """What was held goes out, where nothing stalls it any more."""
        if not self.held or self.mood.is_stalled(self.connection):
            return
        data, self.held = b"".join(self.held), []
        super().write(data)
        if not self._is_full:
            super().resume_writing()
        if self._is_to_close:
            super().close()

    def close(self) -> None:
        """Closes the socket; what is held goes out before."""
        if self.held:
            self._is_to_close = True
        else:
            super().close()


class TestedAcceptor(Acceptor):
    """Accepts clients with sockets that can be stalled."""

    __test__ = False

    mood: Mood  # of the broker, which gives it before anybody comes

    def __init__(self, broker: Broker, listener: Listener) -> None:
        super().__init__(broker, listener)
        self.mood = Mood()

    def newcomer(self) -> Socket:
        return TestedSocket(self.broker, self)
