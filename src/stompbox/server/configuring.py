"""Addresses, queues and diverts of the configuration file: made at start, or made to be as the file says when they were there."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from stompbox.broker.address import Address
from stompbox.broker.diverts import PASS, STRIP, Divert
from stompbox.broker.engine import Engine
from stompbox.broker.kinds import rules_of
from stompbox.broker.queue import Kind, Queue
from stompbox.config import AddressTable, DivertRouting, DivertTable, QueueTable, RoutingType
from stompbox.message import ANYCAST, MULTICAST
from stompbox.selectors import compile_selector
from stompbox.server.transforming import for_diverts

_ROUTING: Final = MappingProxyType({RoutingType.ANYCAST: ANYCAST, RoutingType.MULTICAST: MULTICAST})
_DIVERT_ROUTING: Final = MappingProxyType(
    {DivertRouting.STRIP: STRIP, DivertRouting.PASS: PASS, DivertRouting.ANYCAST: ANYCAST, DivertRouting.MULTICAST: MULTICAST}
)


def configure(engine: Engine, addresses: Iterable[AddressTable], diverts: Iterable[DivertTable]) -> None:
    """Diverts first: an address meets them when it is made."""
    for divert in diverts:
        made = Divert(
            divert.name,
            divert.forwarding_address,
            compile_selector(divert.filter) if divert.filter else None,
            exclusive=divert.exclusive,
            routing=_DIVERT_ROUTING[divert.routing_type],
            transform=for_diverts(divert.transformer) if divert.transformer else None,
        )
        engine.add_divert(divert.address, made)
    for table in addresses:
        _configure_address(engine, table)


def _configure_address(engine: Engine, table: AddressTable) -> None:
    address = engine.addresses.get(table.name) or engine.create_address(table.name)
    if address.is_auto:  # a frame had made it; from now on it stays
        address.is_auto = False
        engine.note_address(address)
    address.add_kind(sum(_ROUTING[kind] for kind in set(table.routing_types)) or engine.default_routing(table.name))
    for queue in table.queues:
        _configure_queue(engine, address, queue, several=len(table.routing_types) > 1)


def _configure_queue(engine: Engine, address: Address, table: QueueTable, *, several: bool) -> None:
    kind = _ROUTING[table.routing_type] if table.routing_type is not None else address.kinds
    if kind == ANYCAST | MULTICAST or (several and table.routing_type is None):
        kind = engine.default_routing(address.name, of_queue=True)
    address.add_kind(kind)
    selector = compile_selector(table.filter) if table.filter else None
    queue = (address.anycast if kind == ANYCAST else address.named).get(table.name)
    if queue is not None and queue.is_durable is not table.durable:
        engine.drop_queue(queue)
        queue = None
    if queue is None:
        of = Kind.ANYCAST if kind == ANYCAST else Kind.DURABLE
        queue = engine.new_queue(address, table.name, of, selector, is_durable=table.durable)
    elif queue.selector != selector or queue.is_auto:
        _change(engine, queue, table, is_auto=False)
    queue.obey(rules_of(address.settings, table))


def obey(engine: Engine, addresses: Iterable[AddressTable]) -> None:
    """Address settings are new: the rules of the file's queues. What else the file says of addresses counts at the next start."""
    for table in addresses:
        address = engine.addresses.get(table.name)
        for queue in table.queues if address is not None else ():
            assert address is not None
            found = address.anycast.get(queue.name) or address.named.get(queue.name)
            if found is not None:
                found.obey(rules_of(address.settings, queue))


def _change(engine: Engine, queue: Queue, table: QueueTable, *, is_auto: bool) -> None:
    """The filter decides about messages that come; what is there stays."""
    address = queue.address
    address.remove(queue)
    queue.selector = compile_selector(table.filter) if table.filter else None
    queue.is_auto = is_auto
    address.add(queue)
    engine.note_queue(queue)
