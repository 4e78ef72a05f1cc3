"""What an operator makes: addresses and queues, as the configuration file would."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from stompbox.admin.actions import AddressName
from stompbox.admin.apirequest import ApiRequest
from stompbox.admin.endpoints import changing, naming
from stompbox.broker.addresses.destinations import require_short
from stompbox.broker.addresses.makers import require_all
from stompbox.broker.queues.queue import Queue
from stompbox.config import AddressTable, RoutingType
from stompbox.config.sources import convert
from stompbox.errors import ConfigError, IllegalFrame, Refused
from stompbox.message import ANYCAST, MULTICAST
from stompbox.security import Right
from stompbox.server.configuring import configuring_address, filtering

if TYPE_CHECKING:
    from stompbox.config import QueueTable
    from stompbox.selectors import Selector

Routing = Annotated[RoutingType | None, Meta(description="None: as the settings of the address say.")]


class AddressCreation(Struct, forbid_unknown_fields=True):
    """An address to be made."""

    address: AddressName
    routing_type: Routing = None


class QueueCreation(Struct, forbid_unknown_fields=True):
    """A queue to be made, and its address, where that is not there yet."""

    address: AddressName
    queue: Annotated[str, Meta(description="Name of the queue; empty: that of the address.")] = ""
    routing_type: Annotated[
        RoutingType,
        Meta(description="ANYCAST: consumers share it; MULTICAST: it gets what is sent to the topic."),
    ] = RoutingType.ANYCAST
    filter: Annotated[
        str, Meta(description="A selector: only messages that it takes come into the queue.")
    ] = ""
    durable: Annotated[bool, Meta(description="It outlives a restart.")] = True


class AddressCreated(Struct):
    """The address. `is_new`: false where the address was there; it stays from now on, also without queues."""

    address: str
    is_new: bool


class QueueCreated(Struct):
    """The queue. `is_new`: false where the queue was there as it was wanted."""

    address: str
    queue: str
    is_new: bool


@changing("addresses/create", AddressCreation, AddressCreated, "Needs `create-address`.")
async def create_address(asked: ApiRequest) -> object:
    """Makes an address, which stays until it is deleted."""
    order: AddressCreation = asked.order
    table = _table(
        {"name": order.address}
        | ({} if order.routing_type is None else {"routing-types": [order.routing_type.value]})
    )
    asked.require(Right.CREATE_ADDRESS, order.address)
    is_new = order.address not in asked.broker.engine.addresses
    await _make(asked, table)
    return AddressCreated(order.address, is_new)


@changing(
    "queues/create",
    QueueCreation,
    QueueCreated,
    "Needs `create-durable-queue` or `create-non-durable-queue`, and `create-address` where that is new.",
)
async def create_queue(asked: ApiRequest) -> object:
    """Makes a queue, which stays until it is deleted."""
    order: QueueCreation = asked.order
    name = order.queue or order.address
    with naming("queue"):
        require_short(order.queue)
    queue = {"name": name, "routing-type": order.routing_type.value, "durable": order.durable}
    table = _table(
        {
            "name": order.address,
            "routing-types": [order.routing_type.value],
            "queue": [queue | ({"filter": order.filter} if order.filter else {})],
        }
    )
    right = Right.CREATE_DURABLE_QUEUE if order.durable else Right.CREATE_NON_DURABLE_QUEUE
    asked.require(right, order.address)
    addresses, wanted = asked.broker.engine.addresses, table.queues[0]
    if order.address not in addresses:
        asked.require(Right.CREATE_ADDRESS, order.address)
    with naming("filter"):
        selector = await asked.broker.turns.taken(filtering(wanted))
    address = addresses.get(order.address)  # looked for now: others had their turns meanwhile
    there: Queue | None = None
    if address is not None:
        there = (address.anycast if order.routing_type is RoutingType.ANYCAST else address.named).get(name)
    if there is not None and differs(there, wanted, selector):
        with naming("queue"):
            raise Refused(
                "queue-exists", f"queue {name[:200]!r} is there, with another filter, durability or owner"
            )
    await _make(asked, table, {wanted: selector})
    return QueueCreated(order.address, name, is_new=there is None)


def differs(there: Queue, wanted: QueueTable, selector: Selector | None) -> bool:
    """Whether a queue has another filter, durability or owner than the one that is to be made. `selector`: the wanted filter."""
    return there.selector != selector or there.is_durable is not wanted.durable or bool(there.owner)


async def _make(
    asked: ApiRequest,
    table: AddressTable,
    filters: Mapping[QueueTable, Selector | None] = MappingProxyType({}),
) -> None:
    engine, maker = asked.broker.engine, asked.maker
    wanted = [
        (table.name, queue.name, ANYCAST if queue.routing_type is RoutingType.ANYCAST else MULTICAST)
        for queue in table.queues
    ]
    require_all(engine, maker, wanted or [(table.name, "", 0)])
    asked.begin()
    for _ in configuring_address(engine, table, is_start=False, filters=filters, maker=maker):
        pass
    await asked.durable()


def _table(content: dict[str, Any]) -> AddressTable:
    """What a file would have to say. Raises IllegalFrame for a name that cannot be one, as the file's reader would."""
    try:
        return convert({"address": [content]}, {}).configuration.addresses[0]
    except ConfigError as error:
        field = "queue" if "queue" in error.message.partition(":")[0] else "address"
        with naming(field):
            raise IllegalFrame("bad-name", error.message) from None
