"""What addresses ask of the engine above them, and nothing else of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, cast

from stompbox.broker.queues import contracts

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.diverts import Divert
    from stompbox.broker.addresses.duplicates import Duplicates, Ids
    from stompbox.broker.addresses.lifetimes import Ended, Watcher
    from stompbox.broker.addresses.limits import AddressLimits
    from stompbox.broker.addresses.makers import Maker, Makers
    from stompbox.broker.addresses.notifications import Notifications
    from stompbox.broker.addresses.retained import Retained
    from stompbox.broker.addresses.unitofwork import UnitOfWork
    from stompbox.broker.kinds import Kind
    from stompbox.broker.logs.log import Log
    from stompbox.broker.queues.queue import Queue
    from stompbox.broker.queues.state import QueueState
    from stompbox.config.matching import Wildcards, Words
    from stompbox.config.settings import AddressSettingsTable
    from stompbox.errors import TooManyBindings
    from stompbox.incarnations import NewId
    from stompbox.message import Run
    from stompbox.selectors import Selector


class Commits(contracts.Commits, Protocol):
    """What the next commit of the store must say."""

    is_awaited: bool
    unit: UnitOfWork | None
    news: dict[Duplicates, None]

    def add_log(self, log: Log) -> None: ...
    def want(self) -> None: ...


class Engine(contracts.Engine, Protocol):
    """It knows all addresses, makes them and lets them go, and sends on what comes to one of them because of another."""

    wildcards: Wildcards
    settings: AddressSettingsTable
    new_id: NewId
    ended: dict[str, Ended]
    beyond: int
    addresses: dict[str, Address]
    logs: dict[int, Address]
    diverts: list[tuple[Words, Divert]]
    diverting: dict[Address, None]
    named_readers: dict[str, dict[Address, None]]
    group_patterns: dict[str, list[str]]
    watchers: dict[Watcher, None]
    overbound: list[TooManyBindings]
    full: list[tuple[AddressLimits, bool, int]]
    ids: Ids
    retained: Retained
    makers: Makers
    notifications: Notifications
    chance: Callable[[], float]
    counts_first: bool
    persists_ids: bool

    @property
    def commits(self) -> Commits: ...
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
