"""Addresses, queues and diverts of the configuration file: made at start, and made to be as the file says when it is read again.

What the file does not have any more stays, unless the address settings say FORCE (`config-delete-addresses`, `-queues`, `-diverts`): then
it goes, with its messages. A reload says what stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from stompbox.broker import transactions
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.configuration import Sizes, diverting, obeying
from stompbox.broker.addresses.contracts import PASS, STRIP, Divert, address_of
from stompbox.broker.addresses.makers import Maker
from stompbox.broker.engine import Engine
from stompbox.broker.kinds import Kind, Rules, rules_of
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions.staging import Sinks
from stompbox.config import (
    AddressSettingsTable,
    AddressTable,
    Configuration,
    DeletePolicy,
    DivertRouting,
    DivertTable,
    QueueTable,
    RoutingType,
)
from stompbox.config.spaces import local
from stompbox.message import ANYCAST, MULTICAST
from stompbox.security import Permissions, Users
from stompbox.selectors import Selector
from stompbox.selectors.limits import SelectorLimits
from stompbox.selectors.selector import compiling
from stompbox.selectors.steps import Steps, result
from stompbox.server.addressing.transforming import for_diverts
from stompbox.server.hosts import Hosts
from stompbox.server.revoking import orphaned

_ROUTING: Final = MappingProxyType({RoutingType.ANYCAST: ANYCAST, RoutingType.MULTICAST: MULTICAST})
_DIVERT_ROUTING: Final = MappingProxyType(
    {
        DivertRouting.STRIP: STRIP,
        DivertRouting.PASS: PASS,
        DivertRouting.ANYCAST: ANYCAST,
        DivertRouting.MULTICAST: MULTICAST,
    }
)


def permissions_of(configuration: Configuration) -> Permissions:
    """Who may do what, in all virtual hosts together."""
    grants, told = configuration.grants_of(), configuration.management_notification_address
    best = grants.best if grants is not None else None
    return Permissions(best, configuration.authorization_cache_size, lambda address: local(address) == told)


def limit_memory(engine: Engine, configuration: Configuration) -> None:
    """What the engine may have in memory; what it has stays."""
    engine.memory.limit(configuration.global_max_size, configuration.global_max_messages)
    engine.ids.limit(configuration.max_id_cache_memory)
    engine.retained.limit(configuration.max_retained_memory)


def limit_sinks(sinks: Sinks, configuration: Configuration) -> None:
    """What sinks may have staged, and how many are remembered; what there is stays."""
    most, of_user = configuration.max_staged_bytes, configuration.max_staged_bytes_per_user
    sinks.limit(most, of_user, configuration.max_sinks_per_user, configuration.staged_timeout)


def configure(engine: Engine, addresses: Iterable[AddressTable], diverts: Iterable[DivertTable]) -> None:
    """Diverts first: an address meets them when it is made. Raises ConfigError, or what is wrong with a filter."""
    for divert in diverts:
        engine.add_divert(divert.address, divert_of(divert))
    for table in addresses:
        for _ in configuring_address(engine, table, is_start=True):
            pass


def divert_of(table: DivertTable) -> Divert:
    """Raises IllegalFrame for a filter that is none, ConfigError for a transformer that cannot be loaded."""
    return result(making_divert(table))


def making_divert(table: DivertTable) -> Steps[Divert]:
    """Makes a divert as `divert_of` does, in steps."""
    selector = yield from filtering(table)
    return Divert(
        table.name,
        table.forwarding_address,
        selector,
        exclusive=table.exclusive,
        routing=_DIVERT_ROUTING[table.routing_type],
        transform=for_diverts(table.transformer) if table.transformer else None,
    )


def filter_of(table: DivertTable | QueueTable) -> Selector | None:
    """The selector of a table's filter, if it has one. Raises IllegalFrame for what is no selector."""
    return result(filtering(table))


def filtering(table: DivertTable | QueueTable) -> Steps[Selector | None]:
    """Compiles a table's filter as `filter_of` does, in steps."""
    if not table.filter:
        return None
    selector = yield from compiling(table.filter, conversion=True, limits=SelectorLimits())
    return selector


Diverts = dict[tuple[str, str], DivertTable]
"""Those of a configuration by host and name; the empty host is none."""


@dataclass(frozen=True, slots=True)
class Transition:
    """What is made of a configuration before it counts in place of another one, in any thread: of ten thousand users, permissions,
    settings and addresses that takes seconds. `diverts`: all that there will be, in their order; None where none changes."""

    configuration: Configuration
    hosts: Hosts
    users: Users
    permissions: Permissions
    settings: AddressSettingsTable
    diverts: list[DivertTable] | None
    before: dict[str, AddressTable]
    after: dict[str, AddressTable]
    queues: dict[tuple[str, str], QueueTable]
    said: list[str]  # what could not be done


def transition(old: Configuration, new: Configuration) -> Transition:
    """From what the one file says to what the other says. Raises ConfigError for a hash that is none."""
    settings, said, after = new.settings_of(), list[str](), _addresses(new)
    return Transition(
        new,
        Hosts(new.virtual_hosts),
        Users(new.users, new.authentication_cache_size),
        permissions_of(new),
        settings,
        _other_diverts(settings, _diverts(old), _diverts(new), said),
        _addresses(old),
        after,
        {(name, queue.name): queue for name, table in after.items() for queue in table.queues},
        said,
    )


def reconfiguring(engine: Engine, found: Transition, sizes: Sizes) -> Iterator[None]:
    """Has the engine obey another configuration, in steps."""
    engine.settings = found.settings
    if found.diverts is not None:
        yield from _changing_diverts(engine, found.diverts)
    yield from obeying(engine, partial(_rules_for, found.queues), sizes)
    before, after, said = found.before, found.after, found.said
    for name, table in before.items():
        yield from _removing(engine, table, after.get(name), said)
    for name, table in after.items():
        if table != before.get(name) or name not in engine.addresses:
            said += _later(engine, table)
            yield from configuring_address(engine, table, is_start=False)
        yield


def _rules_for(own: Mapping[tuple[str, str], QueueTable], queue: Queue) -> Rules:
    """The rules of a queue, which for queues of the file stand there."""
    table = own.get((queue.address.name, queue.name))
    return rules_of(queue.settings) if table is None else rules_of(queue.address.settings, table)


def _addresses(configuration: Configuration) -> dict[str, AddressTable]:
    """The addresses of all virtual hosts, by the names that they have inside the broker."""
    hosts = [table for host in configuration.virtual_hosts for table in configuration.made_of(host)[0]]
    return {table.name: table for table in (*configuration.addresses, *hosts)}


def _diverts(configuration: Configuration) -> Diverts:
    own = {("", table.name): table for table in configuration.diverts}
    return own | {
        (host.name, table.name): table
        for host in configuration.virtual_hosts
        for table in configuration.made_of(host)[1]
    }


def _other_diverts(
    settings: AddressSettingsTable, old: Diverts, new: Diverts, said: list[str]
) -> list[DivertTable] | None:
    """The order is that of the file. What went from the file and stays comes first, since it was there before."""
    kept = {
        key: table
        for key, table in old.items()
        if key not in new and settings.resolve(table.address).config_delete_diverts is DeletePolicy.OFF
    }
    said += [f"divert {name!r} stays until the next start (config-delete-diverts is OFF)" for _, name in kept]
    is_same = {**kept, **new} == old and list(new) == list(old)
    return None if is_same else [*kept.values(), *new.values()]


def _changing_diverts(engine: Engine, tables: list[DivertTable]) -> Iterator[None]:
    diverts = list[tuple[str, Divert]]()
    for table in tables:
        divert = yield from making_divert(table)
        diverts.append((table.address, divert))
        yield
    yield from diverting(engine, diverts)


def _removing(engine: Engine, old: AddressTable, new: AddressTable | None, said: list[str]) -> Iterator[None]:
    """What the file has no more of one address."""
    address = engine.addresses.get(old.name)
    if address is None:
        return
    if new is not None:
        yield from _removing_queues(engine, address, old, new, said)
    elif address.settings.config_delete_addresses is DeletePolicy.OFF:
        said.append(f"address {local(old.name)!r} stays (config-delete-addresses is OFF)")
    elif any(queue.owner for queue in address.queues()):
        said.append(f"address {local(old.name)!r} stays, for it has durable subscriptions")
    else:
        yield from orphaned((yield from transactions.dropping(engine, address)))
    yield


def _removing_queues(
    engine: Engine, address: Address, old: AddressTable, new: AddressTable, said: list[str]
) -> Iterator[None]:
    kept, is_off = (
        {table.name for table in new.queues},
        address.settings.config_delete_queues is DeletePolicy.OFF,
    )
    for name in [table.name for table in old.queues if table.name not in kept]:
        for queue in (address.anycast.get(name), address.named.get(name)):
            if queue is None:
                continue
            if is_off:
                said.append(f"queue {local(name)!r} stays (config-delete-queues is OFF)")
            elif queue.owner:
                said.append(f"queue {local(name)!r} stays, for it is a durable subscription's")
            else:
                yield from orphaned((yield from transactions.dropping_queue(engine, queue)))
                yield


def _later(engine: Engine, table: AddressTable) -> list[str]:
    """A queue that becomes durable, or is so no more, is another queue: its messages would go."""
    address = engine.addresses.get(table.name)
    if address is None:
        return []
    found = [
        (queue, address.named.get(queue.name) or address.anycast.get(queue.name)) for queue in table.queues
    ]
    differ = [
        queue.name for queue, known in found if known is not None and known.is_durable is not queue.durable
    ]
    return [f"queue {local(name)!r} changes `durable` at the next start" for name in differ]


def configuring_address(
    engine: Engine,
    table: AddressTable,
    *,
    is_start: bool,
    filters: Mapping[QueueTable, Selector | None] = MappingProxyType({}),
    maker: Maker | None = None,
) -> Steps[None]:
    """Makes an address, or changes it, to be as its table says, in steps. `filters`: of its queues, those that are compiled already.
    `maker`: the user for whom counts what is new; None: nobody, and what frames had made counts for nobody any more."""
    address = engine.addresses.get(table.name) or engine.create_address(table.name, maker=maker)
    # a user had made it; from now on it stays
    if address.is_auto or (maker is None and address.maker is not None):
        address.stay()
        if maker is None:
            engine.makers.made_address(address, None)
        engine.note_address(address)
    address.add_kind(
        sum(_ROUTING[kind] for kind in set(table.routing_types)) or engine.default_routing(table.name)
    )
    for queue in table.queues:
        selector = filters[queue] if queue in filters else (yield from filtering(queue))
        if engine.addresses.get(table.name) is not address:  # it has gone meanwhile
            return
        several = len(table.routing_types) > 1
        _configure_queue(engine, address, queue, selector, maker, several=several, is_start=is_start)
        yield


def _configure_queue(
    engine: Engine,
    address: Address,
    table: QueueTable,
    selector: Selector | None,
    maker: Maker | None,
    *,
    several: bool,
    is_start: bool,
) -> None:
    kind = _ROUTING[table.routing_type] if table.routing_type is not None else address.kinds
    if kind == ANYCAST | MULTICAST or (several and table.routing_type is None):
        kind = engine.default_routing(address.name, of_queue=True)
    address.add_kind(kind)
    queue = (address.anycast if kind == ANYCAST else address.named).get(table.name)
    if queue is not None and queue.is_durable is not table.durable and is_start:
        engine.drop_queue(queue)
        queue = None
    if queue is None:
        of = Kind.ANYCAST if kind == ANYCAST else Kind.DURABLE
        queue = engine.new_queue(address, table.name, of, selector, is_durable=table.durable, maker=maker)
    elif queue.selector != selector or queue.is_auto or _is_taken_over(queue, maker):
        _change(engine, queue, selector, maker, is_auto=False)
    queue.obey(rules_of(address.settings, table))


def _is_taken_over(queue: Queue, maker: Maker | None) -> bool:
    """Whether what a user has made is the configuration's, or an operator's, from now on; a durable subscription stays whose it is."""
    return maker is None and queue.maker is not None and not queue.owner


def _change(
    engine: Engine, queue: Queue, selector: Selector | None, maker: Maker | None, *, is_auto: bool
) -> None:
    """The filter decides about messages that come; what is there stays."""
    address = address_of(queue)
    address.remove(queue)
    queue.selector = selector
    queue.stay(is_auto=is_auto)
    if maker is None:
        engine.makers.made_queue(queue, None)
    address.add(queue)
    engine.note_queue(queue)
