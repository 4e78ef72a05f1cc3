"""What the broker shows of itself, as values: they are the JSON of the API, and the command line prints them.

Times are ms since the epoch, durations ms. Lists give way to the loop every TURN entries, so that ten thousand queues hold nobody up.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from stompbox import __version__
from stompbox.admin.following import NodeView, node_view
from stompbox.admin.health import Reason, of_role
from stompbox.admin.lag import Lags
from stompbox.broker.addresses.address import Address
from stompbox.broker.kinds import Kind
from stompbox.broker.queues.depth import depth_of, sums_of
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions.staging import KnownSink, Sinks
from stompbox.config.settings import AddressSettings
from stompbox.message import ANYCAST, MULTICAST
from stompbox.server.ledger import by_kind
from stompbox.server.requests.replies import in_turns

if TYPE_CHECKING:
    from stompbox.broker.queues.consumer import Consumer
    from stompbox.broker.transactions import Transaction
    from stompbox.server.broker import Broker
    from stompbox.server.session.connection import Connection


_ROUTING: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {0: (), ANYCAST: ("ANYCAST",), MULTICAST: ("MULTICAST",), ANYCAST | MULTICAST: ("ANYCAST", "MULTICAST")}
)
STAY: Final = (Kind.ANYCAST, Kind.DURABLE, Kind.READER)  # kinds that outlive their consumers


_PAGE: Final = mmap.PAGESIZE


class SinkView(Struct, frozen=True):
    """A sink as the API shows it. `batch`: the last one published, -1 none; `until`: when that may be forgotten, 0 never."""

    name: str
    user: str
    batch: int
    until: int
    staged_messages: int
    staged_bytes: int
    is_publishing: bool


def sink_view(sinks: Sinks, sink: KnownSink) -> SinkView:
    batch, until = (-1, 0) if sink.published is None else (sink.published.batch, sink.published.until)
    messages, size = (
        sum([attempt.count for attempt in sink.staged]),
        sum([attempt.size for attempt in sink.staged]),
    )
    return SinkView(
        sink.name, ", ".join(sorted(sink.users)), batch, until, messages, size, sink.name in sinks.publishing
    )


class DeadLetters(Struct, frozen=True):
    """What waits on an address that the settings name for dead or expired messages."""

    address: str
    messages: int


class Status(Struct, frozen=True):
    """`memory_bytes` of messages that wait, of which `memory_limit` may be (-1: any), `memory` by kind (server/ledger.py),
    `resident_bytes` of the whole process. `disk_…` None: in
    memory; `min_disk_free`: what must be free for messages to be stored."""

    version: str
    process: int
    epoch: int
    started: int
    uptime: int
    is_durable: bool
    is_ready: bool
    reasons: list[Reason]
    listeners: list[str]
    connections: int
    waiting: int
    addresses: int
    queues: int
    messages: dict[str, int]
    errors: dict[str, int]
    commits: int
    commits_failed: int
    unsaved_bytes: int
    subscriptions: int
    transactions: int
    memory_bytes: int
    memory_limit: int
    memory: dict[str, int]
    resident_bytes: int | None
    disk_free: int | None
    disk_size: int | None
    min_disk_free: int
    dead_letters: list[DeadLetters]
    cluster: NodeView | None = None


class AddressView(Struct, frozen=True):
    """An address as the API shows it. `oldest`: the lowest offset that can be read, `committed`: the one after the last on disk, `next`:
    the next message's. Messages are those of its queues and subscriptions together, as in QueueView; `settled`: messages that they are
    done with. `incarnations`: which log it is, each with the offset that it holds from."""

    name: str
    routing_types: tuple[str, ...]
    is_auto: bool
    is_temporary: bool
    is_paused: bool
    is_blocked: bool
    is_full: bool
    oldest: int
    committed: int
    next: int
    queues: int
    subscriptions: int
    groups: int
    ready: int
    delayed: int
    delivering: int
    is_estimate: bool
    consumers: int
    settled: int
    is_dead_letters: bool
    incarnations: tuple[tuple[str, int], ...]


class QueueView(Struct, frozen=True):
    """Messages: `ready` could go out, `delayed` wait for their time, `delivering` are with consumers; `paged` of the ready are on disk
    alone. `is_estimate`: some of those may not be for this queue. `settled`: it is done with so many since it was made, also by a purge or
    because they expired; `position`: the offset below which none is left for it."""

    address: str
    name: str
    kind: str
    is_durable: bool
    is_auto: bool
    is_paused: bool
    selector: str | None
    ready: int
    delayed: int
    delivering: int
    paged: int
    is_estimate: bool
    consumers: int
    max_consumers: int
    position: int
    settled: int


class SubscriptionView(Struct, frozen=True):
    id: str
    destination: str
    ack: str
    selector: str | None
    delivering: int


class ConnectionView(Struct, frozen=True):
    """A connection as the API shows it. `port`: the client's, 0 where it is not known; `waits_for`: why it is not read further;
    `memory_bytes`: what is kept for it, `memory` by kind."""

    id: int
    peer: str
    port: int
    user: str
    client_id: str
    version: str
    listener: str
    since: int
    transactions: int
    waits_for: list[str]
    memory_bytes: int
    memory: dict[str, int]
    subscriptions: list[SubscriptionView]


class ClientSubscription(Struct, frozen=True):
    """A subscription of one connection. `queues`: of how many queues it gets messages; `delivering`: messages that it has not
    acknowledged."""

    connection: int
    user: str
    client_id: str
    id: str
    destination: str
    ack: str
    selector: str | None
    queues: int
    delivering: int


class ClientTransaction(Struct, frozen=True):
    """An open transaction of one connection. `sends`: runs of messages, `acks` and `nacks`: answers that it holds; `bytes` of memory."""

    connection: int
    user: str
    client_id: str
    name: str
    sends: int
    acks: int
    nacks: int
    bytes: int


class GroupPosition(Struct, frozen=True):
    address: str
    position: int
    next: int
    lag_messages: int
    lag_ms: int | None
    moved: int | None
    incarnation: str


class PositionView(Struct, frozen=True):
    """Where a reader group is on one address; `address` None: it waits for addresses that match its `patterns`. `moved`: when it last
    went on; None: not since the broker started."""

    group: str
    patterns: list[str]
    address: str | None
    position: int
    next: int
    lag_messages: int
    lag_ms: int | None
    moved: int | None
    incarnation: str = ""


class GroupView(Struct, frozen=True):
    name: str
    patterns: list[str]
    addresses: list[GroupPosition]


def status_of(broker: Broker) -> Status:
    engine, connections = broker.engine, broker.connections
    why = of_role(broker, "")
    space = os.statvfs(broker.disk.folder) if broker.disk.folder is not None else None
    return Status(
        __version__, os.getpid(), engine.epoch, broker.started, broker.now() - broker.started, engine.is_durable, not why, why,
        [str(acceptor.listener) for acceptor in broker.all_acceptors],
        len(connections), len(broker.pressure.waiting), len(engine.addresses), len(engine.queues),
        dict(sorted(engine.counters.items())), dict(sorted(broker.errors.items())),
        broker.committer.applied, broker.committer.failed, engine.unsaved,
        sum([len(connection.consumers) for connection in connections]), sum([len(connection.transactions) for connection in connections]),
        engine.memory.size, broker.configuration.global_max_size, broker.ledger.by_kind, _resident(),
        space and space.f_bavail * space.f_frsize, space and space.f_blocks * space.f_frsize, broker.configuration.min_disk_free,
        _dead_letters(broker), node_view(broker),
    )  # fmt: skip


def _resident() -> int | None:
    """Bytes of memory that the process has, where the system says so."""
    try:
        with open("/proc/self/statm", "rb") as told:
            return int(told.read().split()[1]) * _PAGE
    except OSError:
        return None


def dead_letter_addresses(broker: Broker) -> frozenset[str]:
    """Where the settings send dead and expired messages to."""
    configuration = broker.configuration
    tables = [
        *configuration.address_settings,
        *[table for host in configuration.virtual_hosts for table in host.address_settings],
    ]
    keys = ("dead_letter_address", "expiry_address")
    found = {
        AddressSettings().dead_letter_address,
        *[getattr(table, key) for table in tables for key in keys],
    }
    return frozenset(
        [
            space + name
            for space in ("", *[host.space for host in configuration.virtual_hosts])
            for name in found
            if isinstance(name, str) and name  # not unset
        ]
    )


def _dead_letters(broker: Broker) -> list[DeadLetters]:
    found = []
    for name in sorted(dead_letter_addresses(broker)):
        address = broker.engine.addresses.get(name)
        if address is not None:
            sums = sums_of(address)
            found.append(DeadLetters(name, sums.ready + sums.delayed + sums.delivering))
    return found


def address_view(address: Address, dead_letters: Collection[str] = ()) -> AddressView:
    """An address as the API shows it. `dead_letters`: the addresses that are for them."""
    log, sums = address.log, sums_of(address)
    return AddressView(
        address.name, _ROUTING[address.kinds], address.is_auto, bool(address.owner),
        address.is_paused, address.is_blocked, address.limits is not None and address.limits.is_full,
        log.oldest, log.committed, log.next, len(address.anycast) + len(address.named),
        len(address.topics) - len(address.named) + len(address.streams), len(address.groups),
        sums.ready, sums.delayed, sums.delivering, sums.is_estimate, sums.consumers, sums.settled, address.name in dead_letters,
        log.incarnations.entries,
    )  # fmt: skip


def queue_view(queue: Queue) -> QueueView:
    depth = depth_of(queue)
    return QueueView(
        queue.address.name, queue.name, queue.kind.value, queue.is_durable, queue.is_auto, queue.is_paused,
        queue.selector.text if queue.selector is not None else None,
        depth.ready, depth.delayed, depth.delivering, depth.paged, depth.is_estimate,
        queue.consumer_count, queue.rules.max_consumers, queue.cursor.position, queue.settled,
    )  # fmt: skip


def connection_view(broker: Broker, connection: Connection) -> ConnectionView:
    waits = sorted(reason.value for reason in broker.pressure.waiting.get(connection, ()))
    subscriptions = [
        SubscriptionView(
            id,
            consumer.destination,
            consumer.ack.value,
            consumer.selector.text if consumer.selector else None,
            consumer.messages_out,
        )
        for id, consumer in connection.consumers.items()
    ]
    return ConnectionView(
        connection.session_id, connection.peer, connection.transport.port, connection.user.name, connection.client_id,
        connection.session.version.name if connection.is_entered else "", str(connection.listener), connection.since,
        len(connection.transactions), waits, connection.account.size, by_kind(connection), subscriptions,
    )  # fmt: skip


def subscription_view(connection: Connection, id: str, consumer: Consumer) -> ClientSubscription:
    return ClientSubscription(
        connection.session_id, connection.user.name, connection.client_id, id, consumer.destination, consumer.ack.value,
        consumer.selector.text if consumer.selector else None, len(consumer.bindings), consumer.messages_out,
    )  # fmt: skip


def transaction_view(connection: Connection, transaction: Transaction) -> ClientTransaction:
    return ClientTransaction(
        connection.session_id, connection.user.name, connection.client_id, transaction.name, len(transaction.sends),
        len(transaction.acked), len(transaction.refused), transaction.size,
    )  # fmt: skip


async def group_view(broker: Broker, lags: Lags, name: str, addresses: Iterable[Address]) -> GroupView:
    """A reader group as the API shows it, which is looked for in turns: it may have a position on each address. `addresses`: those that
    are shown."""
    positions = []
    async for address in in_turns(broker.turns, addresses):
        queue = address.groups.get(name)
        if queue is not None:
            lag = await lags.of(queue)
            moved = queue.moved or None
            at, log = queue.cursor.position, address.log
            positions.append(
                GroupPosition(
                    address.name, at, log.next, lag.messages, lag.ms, moved, log.incarnations.of(at)
                )
            )
    return GroupView(name, list(broker.engine.group_patterns.get(name, ())), positions)


async def position_view(broker: Broker, lags: Lags, name: str, queue: Queue | None) -> PositionView:
    """The position of a group on an address as the API shows it. `queue`: the group's on one address; None: it has none yet."""
    patterns = list(broker.engine.group_patterns.get(name, ()))
    if queue is None:
        return PositionView(name, patterns, None, 0, 0, 0, 0, None)
    lag = await lags.of(queue)
    address = queue.address
    return PositionView(
        name, patterns, address.name, queue.cursor.position, address.log.next, lag.messages, lag.ms, queue.moved or None,
        address.log.incarnations.of(queue.cursor.position),
    )  # fmt: skip
