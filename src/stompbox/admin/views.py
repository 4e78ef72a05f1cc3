"""What the broker shows of itself, as values: they are the JSON of the API, and the command line prints them.

Times are ms since the epoch, durations ms. Lists give way to the loop every TURN entries, so that ten thousand queues hold nobody up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from stompbox import __version__
from stompbox.admin.health import Reason, reasons
from stompbox.admin.lag import Lags
from stompbox.broker.address import Address
from stompbox.broker.depth import depth_of
from stompbox.broker.queue import Kind, Queue
from stompbox.message import ANYCAST, MULTICAST

if TYPE_CHECKING:
    from stompbox.server.broker import Broker
    from stompbox.server.connection import Connection

T = TypeVar("T")

TURN: Final = 200
_ROUTING: Final = ((ANYCAST, "ANYCAST"), (MULTICAST, "MULTICAST"))
STAY: Final = frozenset((Kind.ANYCAST, Kind.DURABLE, Kind.READER))  # kinds that outlive their consumers


class Status(Struct, frozen=True):
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


class AddressView(Struct, frozen=True):
    """`oldest`: the lowest offset that can be read, `committed`: the one after the last on disk, `next`: the next message's."""

    name: str
    routing_types: list[str]
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


class QueueView(Struct, frozen=True):
    """Messages: `ready` could go out, `delayed` wait for their time, `delivering` are with consumers; `paged` of the ready are on disk
    alone. `is_estimate`: some of those may not be for this queue."""

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


class SubscriptionView(Struct, frozen=True):
    id: str
    destination: str
    ack: str
    selector: str | None
    delivering: int


class ConnectionView(Struct, frozen=True):
    """`waits_for`: why it is not read any further."""

    id: int
    peer: str
    user: str
    client_id: str
    version: str
    listener: str
    since: int
    transactions: int
    waits_for: list[str]
    subscriptions: list[SubscriptionView]


class GroupPosition(Struct, frozen=True):
    address: str
    position: int
    next: int
    lag_messages: int
    lag_ms: int | None


class GroupView(Struct, frozen=True):
    name: str
    patterns: list[str]
    addresses: list[GroupPosition]


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, which must not change meanwhile."""
    for number, item in enumerate(items, 1):
        yield item
        if number % TURN == 0:
            await asyncio.sleep(0)


def status_of(broker: Broker) -> Status:
    engine = broker.engine
    why = reasons(broker)
    return Status(
        __version__, os.getpid(), engine.epoch, broker.started, broker.now() - broker.started, engine.is_durable, not why, why,
        [str(table.parse()) for table in broker.configuration.listeners],
        len(broker.connections), len(broker.pressure.waiting), len(engine.addresses), len(engine.queues),
        dict(sorted(engine.counters.items())), dict(sorted(broker.errors.items())),
        broker.committer.applied, broker.committer.failed, engine.unsaved,
    )  # fmt: skip


def address_view(address: Address) -> AddressView:
    log = address.log
    return AddressView(
        address.name, [name for kind, name in _ROUTING if address.kinds & kind], address.is_auto, bool(address.owner),
        address.is_paused, address.is_blocked, address.limits is not None and address.limits.is_full,
        log.oldest, log.committed, log.next, len(address.anycast) + len(address.named),
        len(address.topics) - len(address.named) + len(address.streams), len(address.groups),
    )  # fmt: skip


def queue_view(queue: Queue) -> QueueView:
    depth = depth_of(queue)
    return QueueView(
        queue.address.name, queue.name, queue.kind.value, queue.is_durable, queue.is_auto, queue.is_paused,
        queue.selector.text if queue.selector is not None else None,
        depth.ready, depth.delayed, depth.delivering, depth.paged, depth.is_estimate,
        queue.consumer_count, queue.max_consumers, queue.cursor.position,
    )  # fmt: skip


def connection_view(broker: Broker, connection: Connection) -> ConnectionView:
    waits = sorted(reason.value for reason in broker.pressure.waiting.get(connection, ()))
    subscriptions = [
        SubscriptionView(
            id, consumer.destination, consumer.ack.value, consumer.selector.text if consumer.selector else None, consumer.messages_out
        )
        for id, consumer in connection.consumers.items()
    ]
    return ConnectionView(
        connection.session_id, connection.peer, connection.user.name, connection.client_id,
        connection.session.version.name if connection.is_entered else "", str(connection.listener), connection.since,
        len(connection.transactions), waits, subscriptions,
    )  # fmt: skip


async def group_view(broker: Broker, lags: Lags, name: str, addresses: Iterable[Address]) -> GroupView:
    """`addresses`: those that are shown."""
    positions = []
    for address in addresses:
        queue = address.groups.get(name)
        if queue is not None:
            lag = await lags.of(queue)
            positions.append(GroupPosition(address.name, queue.cursor.position, address.log.next, lag.messages, lag.ms))
    return GroupView(name, list(broker.engine.group_patterns.get(name, ())), positions)
