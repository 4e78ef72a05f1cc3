"""What a socket needs of the process that it is in, and what stands behind it there.

    in the broker's process   the host is the broker, and behind a socket is its Connection
    in a front (fronts/)      the host is the front, and behind a socket is a Relay, which passes on what comes to the broker's process

Nothing here does anything.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Task
from collections.abc import Callable, Coroutine, Sized
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from stompbox.config import Listener, ListenerOptions
    from stompbox.errors import StompboxError
    from stompbox.server.addressing.transforming import Transform
    from stompbox.server.seam import Peer, Transport
    from stompbox.server.sockets import Sockets


class Behind(Protocol):
    """What is behind a socket: a WebSocket, or a client's end."""

    def receive(self, data: bytes) -> None: ...
    def dismiss(self, error: StompboxError) -> bool:
        """The listener has something against it, before its login. False: it is too late for that."""

    def drained(self) -> None:
        """The system has taken all that was written."""

    def says_its_last(self) -> bool:
        """The client has ended its side; whether there may be answers that it waits for. The socket closes when they are said."""

    def lost(self) -> None: ...


class ClientEnd(Behind, Protocol):
    """What is behind the socket, or the WebSocket, of one client."""

    is_ended: bool

    @property
    def is_logged_in(self) -> bool: ...
    @property
    def takes_more(self) -> bool:
        """Nothing that it was given waits, but for what only its client could change."""

    def look_unread(self) -> None:
        """Something was written that nobody behind the socket has said: a pong."""

    def look_kept(self) -> None:
        """Something has come that it is not given yet: a part of a frame of WebSocket, which is memory of its client's."""


class Refusals(Protocol):
    def tell(self, who: str, error: StompboxError, *, closes: bool) -> bool: ...


class Faults(Protocol):
    def stop(self, doing: str, error: BaseException) -> None: ...
    def drop(self, socket: Peer, doing: str, error: Exception) -> None: ...


class Line(Protocol):
    @property
    def is_late(self) -> bool: ...
    def wait(self, work: Callable[[], None]) -> None: ...


class Turns(Protocol):
    @property
    def few(self) -> Callable[[Callable[[], None]], None]: ...
    @property
    def line(self) -> Line: ...
    @property
    def sockets(self) -> Sockets: ...


class Host(Protocol):
    """The process, as far as sockets know it."""

    loop: AbstractEventLoop
    sockets: set[Peer]
    has_failed: bool

    @property
    def refusals(self) -> Refusals: ...
    @property
    def faults(self) -> Faults: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def users(self) -> Sized: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> Task[None] | Future[None] | None: ...
    def transform_of(self, options: ListenerOptions) -> Transform | None: ...
    def client_of(self, listener: Listener, transport: Transport, peer: str) -> ClientEnd:
        """A client is there: what stands behind its socket from now on."""
