"""The seam between a client's connection and the engine: what each is to the other, and to all that stands between them.

    Core     the engine with what surrounds it: the loop, the time, the disk, rights, limits, accounts. broker.py makes it
    Client   what a client's connection is to these. session/connection.py makes it

Nothing below those two knows them, or imports them: it knows the two protocols. Each room adds what it needs beyond them, addressing in
`Sender`, requests in `Asker`, frames in `Speaker`, the session in `Host`. Nothing here does anything.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Task
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from stompbox.broker.addresses.destinations import Temporaries
from stompbox.broker.engine import Engine
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.memory import Allowance
from stompbox.broker.subscriptions.staging import Sinks
from stompbox.broker.transactions import Transaction
from stompbox.config import Configuration, Listener, ListenerOptions
from stompbox.config.matching import Words
from stompbox.errors import StompboxError, StoreError
from stompbox.security import Permissions, User, Users
from stompbox.selectors import SelectorCache
from stompbox.server.committer import Committer
from stompbox.server.hosts import Hosts
from stompbox.server.turns import Turns
from stompbox.stomp.codec import Decoder
from stompbox.stomp.frames import Frame
from stompbox.stomp.heartbeat import Pulse
from stompbox.stomp.runs import Acks, Reader, Sends
from stompbox.stomp.session import Session

if TYPE_CHECKING:
    from ssl import SSLContext

    from stompbox.server.closings import Why
    from stompbox.server.faults import Faults
    from stompbox.server.ledger import Account, Ledger
    from stompbox.server.pressure import Pressure


class Core(Protocol):
    """The engine and what surrounds it, as a client's connection sees them."""

    configuration: Configuration
    hosts: Hosts
    loop: AbstractEventLoop
    engine: Engine
    committer: Committer
    sinks: Sinks
    turns: Turns
    faults: Faults
    pressure: Pressure
    ledger: Ledger
    users: Users
    permissions: Permissions
    selectors: SelectorCache
    readers: dict[tuple[str, int, int], Reader]
    errors: Counter[str]
    tasks: set[Task[None]]
    waiting: dict[ClientConnection, None]
    sequence: int
    has_failed: bool
    is_wanted: bool
    is_draining: bool
    is_stopping: bool

    @property
    def connections(self) -> Collection[ClientConnection]: ...
    @property
    def sockets(self) -> Collection[Peer]: ...
    @property
    def acceptors(self) -> Collection[Acceptor]: ...
    @property
    def is_unsaved(self) -> bool: ...
    @property
    def numbers(self) -> Iterator[int]: ...

    def now(self) -> int: ...
    def set_time(self) -> None: ...
    def new_session(self) -> int: ...
    def flush(self) -> None: ...
    def flush_soon(self) -> None: ...
    def try_commit(self) -> None: ...
    def when_durable(self, waiter: Future[None]) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None], connection: ClientConnection | None = None) -> None: ...
    def drain(self) -> None: ...


class ClientConnection(Protocol):
    """What a client's connection is to the engine and what surrounds it."""

    peer: str
    options: ListenerOptions
    session: Session
    session_id: int
    decoder: Decoder[Sends | Acks]
    user: User
    proof: str | None
    host: str | None
    client_id: str
    temporaries: Temporaries
    allowance: Allowance
    consumers: dict[str, Consumer]
    transactions: dict[str, Transaction]
    timed_out: dict[str, None]
    transacted: dict[Consumer, bool]
    transport: Transport
    pulse: Pulse | None
    out: list[bytes]
    account: Account
    frames: FrameLog | None
    is_ended: bool
    is_lost: bool
    is_gone: bool

    @property
    def name(self) -> str: ...
    @property
    def marks(self) -> dict[str, object]: ...
    @property
    def broker(self) -> Core: ...
    @property
    def names(self) -> Space: ...
    @property
    def reading(self) -> Reading: ...
    @property
    def pending(self) -> Kept: ...
    @property
    def requests(self) -> Kept | None: ...
    @property
    def outgoing(self) -> Kept | None: ...
    @property
    def upload(self) -> Incoming | None: ...

    def write_out(self) -> None: ...
    def release(self, sequence: int) -> bool: ...
    def refuse_commit(self, sequence: int, error: StoreError) -> None: ...
    def refuse(self, error: StompboxError, frame: Frame | None = None) -> None: ...
    def refuse_each(self, error: StompboxError, event: Sends) -> None: ...
    def contain(self, doing: str, error: Exception, frame: Frame | None = None) -> None: ...
    def end(
        self, *, is_failure: bool, then: Callable[[], None] | None = None, why: Why | None = None
    ) -> None: ...
    def shut(self) -> None: ...


# What the two have


class Kept(Protocol):
    """Something that takes memory for a client."""

    @property
    def size(self) -> int:
        """How many octets of memory it takes, about."""


class Holding(Kept, Protocol):
    """Frames that wait for room in an address."""

    @property
    def messages(self) -> int:
        """How many SENDs are among what waits."""


class Incoming(Kept, Protocol):
    """A large body that is coming in."""

    @property
    def may_go_on(self) -> bool:
        """Whether so much of it is on the disk that more may come."""


class Space(Protocol):
    """How the addresses of a virtual host are named."""

    @property
    def space(self) -> str:
        """The prefix of the host's names inside the broker."""

    def without_space(self, text: str) -> str: ...


class FrameLog(Protocol):
    """A log of what one client says and is told."""

    addresses: list[Words] | None

    def came(self, data: bytes) -> None: ...
    def goes(self) -> None: ...
    def went(self, data: bytes) -> None: ...


class Reading(Protocol):
    """Whether a client is read, and what of it waits to be obeyed."""

    is_held: bool
    is_paused: bool
    has_sent: bool

    @property
    def unobeyed(self) -> int: ...
    @property
    def holding(self) -> Holding | None: ...
    @property
    def has_left(self) -> bool: ...

    def hold(self) -> None: ...
    def go_on(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def hold_sends(self) -> None: ...


class Peer(Protocol):
    """A socket, whether or not somebody has logged in on it."""

    @property
    def peer(self) -> str: ...

    def abort(self) -> None: ...


class Strangers(Protocol):
    """The clients of a listener that have not logged in yet."""

    @property
    def strangers(self) -> Iterable[Stranger]: ...


class Stranger(Protocol):
    def dismiss(self, error: StompboxError) -> None: ...


class Acceptor(Protocol):
    """What accepts the sockets of a listener, which `configured` says as the configuration does."""

    listener: Listener
    configured: str

    @property
    def admission(self) -> Strangers: ...
    def prepare(self, listener: Listener) -> tuple[Listener, SSLContext | None]: ...
    def change(self, listener: Listener, context: SSLContext | None) -> None: ...
    def close(self) -> None: ...


class Front(Protocol):
    """A process that has the sockets of some clients."""

    name: str
    restarts: int
    busy: float

    @property
    def connections(self) -> int: ...
    @property
    def octets(self) -> tuple[int, int]:
        """On the link: from it, and to it."""

    def configure(self) -> None: ...
    async def obeyed(self) -> None: ...
    def stop_accepting(self) -> None: ...
    async def end(self) -> None: ...


class Transport(Protocol):
    """What a connection needs of its socket."""

    @property
    def is_clogged(self) -> bool:
        """The operating system has not yet taken all that was written."""

    @property
    def certificate_name(self) -> str:
        """The CN of the client's verified certificate; empty without one."""

    @property
    def port(self) -> int:
        """The client's own port; 0 where it has none, or a balancer stands before it."""

    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None:
        """Writes what is left, lets the peer read it, closes (STOMP 1.2, Connection Lingering)."""

    def abort(self) -> None: ...
    def enter(self, user: str) -> None:
        """The client logs in: no longer has it to hurry, and it is read as one of its user's. Raises Refused where the listener has enough
        connections."""

    @property
    def unread(self) -> int:
        """Octets that came and that the connection has not been given yet."""

    @property
    def unsent(self) -> int:
        """Octets that were written and that the operating system has not taken."""

    @property
    def silence(self) -> float | None:
        """Seconds since the operating system got something from the peer, read or not; None where it does not say."""

    @property
    def absence(self) -> float | None:
        """Seconds since the peer's system said anything, if only that it got something of ours; None where ours does not say."""

    @property
    def is_reset(self) -> bool:
        """The peer has reset it, or its system has, as far as ours says: nobody is told of that while nothing is read or written."""

    def probe(self, seconds: int) -> None:
        """The peer's system is asked for an answer whenever it has said nothing for so long."""
