"""What addresses ask of the engine above them, and nothing else of it; and what becomes part of an address and is found beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from stompbox.broker.queues import contracts

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.course import Course
    from stompbox.broker.addresses.makers import Maker, Makers
    from stompbox.broker.addresses.notifications import Notifications
    from stompbox.broker.addresses.plans import Plans
    from stompbox.broker.addresses.unitofwork import UnitOfWork
    from stompbox.broker.addresses.watching import Watchers
    from stompbox.broker.kinds import Kind
    from stompbox.broker.logs.log import Log
    from stompbox.broker.queues.memory import Counted
    from stompbox.broker.queues.queue import Queue
    from stompbox.broker.queues.state import QueueState
    from stompbox.config.matching import Wildcards, Words
    from stompbox.config.settings import AddressFullPolicy, AddressSettingsTable
    from stompbox.errors import Refused, TooManyBindings
    from stompbox.handles import Body
    from stompbox.incarnations import Incarnations, NewId
    from stompbox.message import Run, Shape
    from stompbox.selectors import Selector


# What an address has, where it has it


STRIP: Final = 0  # the forwarding address decides the kind of the copies
PASS: Final = -1  # they keep their own


class Divert:
    """What a divert says of copies. `routing`: STRIP, PASS or the kinds of the copies. `transform` makes one message's copy from (run,
    index), or raises."""

    __slots__ = ("exclusive", "forwarding_address", "name", "routing", "selector", "transform")

    def __init__(
        self,
        name: str,
        forwarding_address: str,
        selector: Selector | None,
        *,
        exclusive: bool,
        routing: int = STRIP,
        transform: Callable[[Run, int], Run] | None = None,
    ) -> None:
        self.name = name
        self.forwarding_address = forwarding_address
        self.selector = selector
        self.exclusive = exclusive
        self.routing = routing
        self.transform = transform

    def __repr__(self) -> str:
        return f"<Divert {self.name} to {self.forwarding_address}{' exclusive' if self.exclusive else ''}>"


class Limits(Protocol):
    """What bounds how much an address takes (limits.py)."""

    is_full: bool
    policy: AddressFullPolicy
    together: Counted

    @property
    def value(self) -> str: ...
    @property
    def address(self) -> Address: ...
    @property
    def reason(self) -> str: ...
    def look(self) -> bool: ...
    def turn(self) -> None: ...
    def room(self) -> tuple[int, int]: ...
    def has_room_again(self) -> bool: ...
    def fitting(self, shape: Shape, bodies: Sequence[Body], room: tuple[int, int]) -> int: ...
    def kept(self, run: Run) -> Run | None: ...
    def refusal(self) -> Refused: ...


class Duplicates(Protocol):
    """Values by which duplicates are found among an address's messages (duplicates.py)."""

    size: int

    def __len__(self) -> int: ...
    def __contains__(self, value: bytes) -> bool: ...
    def add(self, values: list[bytes], *, is_stored: bool) -> None: ...
    def tell(self) -> None: ...
    def landed(self) -> None: ...
    def has_stored(self, value: bytes) -> bool: ...
    def bring(self, unit: UnitOfWork, values: list[bytes], *, is_stored: bool) -> None: ...
    def brought(self, unit: UnitOfWork, values: list[bytes]) -> None: ...
    def share(self, value: bytes, unit: UnitOfWork | None) -> None: ...
    def recall(self, block: int, values: list[str]) -> None: ...
    def forget_oldest(self, octets: int) -> None: ...
    def forget(self) -> None: ...


class Waiting(Protocol):
    """A run that waits until all who get it have been offered it."""

    @property
    def run(self) -> Run: ...
    @property
    def size(self) -> int: ...


class Fanout(contracts.Fanout, Protocol):
    """Messages that go to some of very many subscriptions at a time (fanout.py)."""

    size: int
    is_offering: bool
    leaving: dict[Queue, None]

    @property
    def first(self) -> int: ...
    @property
    def runs(self) -> Collection[Waiting]: ...
    def add(self, waiting: Any, /) -> None: ...
    def step(self) -> None: ...


class Passing(Protocol):
    """What came for one of very many queues, and the others are to be told of (routing.py)."""

    def note(self, run: Run) -> None: ...


# What the engine has


@dataclass(frozen=True, slots=True)
class Ended:
    """The log of an address that is gone: where its offsets ended, and which messages they meant."""

    next: int
    incarnations: Incarnations

    def wire(self) -> dict[str, object]:
        return {"next": self.next, "incarnations": self.incarnations.wire()}


class Ids(Protocol):
    """What all addresses remember together to find duplicates."""

    of: set[Any]

    def grow(self, size: int) -> None: ...
    def relieve(self) -> None: ...


class Retained(Protocol):
    """Octets of memory that all retained messages take."""

    size: int
    most: int

    def replace(self, before: Run | None, after: Run | None) -> None: ...
    def takes(self, before: Run | None, after: Run, more: int = 0) -> bool: ...


class Commits(contracts.Commits, Protocol):
    """What the next commit of the store must say."""

    is_awaited: bool
    unit: UnitOfWork | None
    news: dict[Duplicates, None]

    def add_log(self, log: Log) -> None: ...
    def want(self) -> None: ...


class Engine(contracts.Engine, Protocol):
    """What an address asks of the engine, which knows all addresses, makes them and lets them go, and sends on what comes to one of them
    because of another."""

    wildcards: Wildcards
    settings: AddressSettingsTable
    new_id: NewId
    ended: dict[str, Ended]
    beyond: int
    addresses: dict[str, Address]
    logs: dict[int, Address]
    diverts: list[tuple[Words, Divert]]
    course: Course
    named_readers: dict[str, dict[Address, None]]
    group_patterns: dict[str, list[str]]
    watchers: Watchers
    overbound: list[TooManyBindings]
    full: list[tuple[Any, bool, int]]  # Limits
    makers: Makers
    notifications: Notifications
    chance: Callable[[], float]
    counts_first: bool
    persists_ids: bool

    @property
    def plans(self) -> Plans: ...
    @property
    def commits(self) -> Commits: ...
    @property
    def ids(self) -> Ids: ...
    @property
    def retained(self) -> Retained: ...
    @property
    def queues(self) -> Mapping[int, Queue]: ...

    def address(self, name: str, kind: int = 0, maker: Maker | None = None) -> Address: ...
    def create_address(
        self,
        name: str,
        log: Log | None = None,
        *,
        is_auto: bool = False,
        owner: int = 0,
        maker: Maker | None = None,
    ) -> Address: ...
    def drop_address(self, address: Address) -> None: ...
    def note_address(self, address: Address) -> None: ...
    def forget_ended(self, name: str) -> None: ...
    def default_routing(self, name: str, *, of_queue: bool = False) -> int: ...
    def new_queue(
        self, address: Address, name: str, kind: Kind, selector: Selector | None = None, *, position: int = -1, owner: str = "",
        is_auto: bool = False, is_durable: bool | None = None, maker: Maker | None = None,
    ) -> Queue: ...  # fmt: skip
    def anycast_queue(self, address: Address, name: str = "", maker: Maker | None = None) -> Queue: ...
    def exact_queue(self, address: Address, name: str, kind: int, maker: Maker | None = None) -> Queue: ...
    def drop_queue(self, queue: Queue) -> None: ...
    def note_queue(self, queue: Queue) -> None: ...
    def put(self, kind: str, key: str, value: object | None) -> None: ...
    def require_disk(self, address: Address, run: Run) -> None: ...
    def prepare(self, sends: Iterable[tuple[Address, Run]], maker: Maker | None = None) -> None: ...
    def publish(self, address: Address, run: Run, *, is_answered: bool = False) -> bool: ...
    def publish_prepared(self, address: Address, run: Run) -> bool: ...
    def route(self, address: Address, run: Run) -> bool: ...
    def append(self, address: Address, run: Run) -> bool: ...
    def forward(self, name: str, run: Run, routing: int = 0) -> bool: ...


def address_of(queue: QueueState) -> Address:
    """The address that a queue is of, with all that queues need not know of it."""
    return cast("Address", queue.address)
