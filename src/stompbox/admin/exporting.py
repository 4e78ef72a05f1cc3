"""All definitions as one text, in TOML: what `stompbox definitions export` prints, and another broker, or this one, imports.

Users, permissions and address settings are those that were defined at run time; addresses and queues those that stay and that no
configuration has made. `?all=true` adds what the configuration says of the same kinds. Passcodes are hashes there, also where the
configuration has them in plain text.

An import adds what it names, and replaces what was defined at run time by the same name; what the configuration says stays as that says,
and the answer warns of it. `is_replacing`: users, permissions and settings that were defined at run time and are not named go. Addresses
and queues never go by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct, field
from msgspec.structs import replace
from starlette.responses import Response

from stompbox.admin.apirequest import ApiRequest
from stompbox.admin.defining import differs
from stompbox.admin.definitions import allowing, obeyed
from stompbox.admin.endpoints import ON_BROKER, Truth, changing, naming, reading
from stompbox.config import AddressTable, Loaded, RoutingType, toml
from stompbox.config.converting import converted
from stompbox.config.definitions import (
    HOST,
    PAGE,
    Definitions,
    HostDefinitions,
    defined,
    filled,
    lists_of,
    place_of,
    tables_of,
    twice,
)
from stompbox.config.fields import shown
from stompbox.config.origins import Origins
from stompbox.config.spaces import local, space_of
from stompbox.config.toml import Path
from stompbox.errors import ConfigError, IllegalFrame, Refused, StompboxError
from stompbox.message import ANYCAST, MULTICAST
from stompbox.security import ARGON2, Right, hash_password
from stompbox.selectors.steps import Steps
from stompbox.server.configuring import configuring_address, filtering
from stompbox.server.definitions import Content, examine, require_readings
from stompbox.server.requests.replies import in_turns

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.queues.queue import Queue

MOST: Final = 4 << 20  # bytes of an import
MEDIA: Final = "application/toml"
HEAD: Final = "# Definitions of a Stompbox broker\n\n"
ADDRESS: Final = "address"
QUEUE: Final = "queue"


class HostImport(HostDefinitions, frozen=True):
    """What an import has of one virtual host."""

    addresses: tuple[AddressTable, ...] = field(default=(), name="address")


class Imported(Definitions, frozen=True):
    """What an import has, as a file."""

    addresses: tuple[AddressTable, ...] = field(default=(), name="address")
    virtual_hosts: tuple[HostImport, ...] = field(default=(), name="virtual-host")


class Import(Struct, forbid_unknown_fields=True):
    """Definitions to be taken."""

    toml: Annotated[
        str,
        Meta(
            description="[[user]], [[permission]], [[address-setting]], [[address]], and [[virtual-host]] with these but users."
        ),
    ]
    is_dry_run: Annotated[bool, Meta(description="Nothing changes; the answer says what would.")] = False
    is_replacing: Annotated[
        bool,
        Meta(
            description="Users, permissions and settings that were defined at run time and are not named go."
        ),
    ] = False


class ImportDone(Struct, frozen=True):
    """How many were named of each kind, without those that the configuration has. `addresses`, `queues`: those that were not there before.
    `is_done`: false for a dry run, and while addresses that are there do not obey yet."""

    users: int
    permissions: int
    address_settings: int
    addresses: int
    queues: int
    warnings: list[str]
    is_dry_run: bool
    is_done: bool


@reading(
    "definitions", None, ON_BROKER,
    Truth("all", "Also what the configuration says of users, permissions, settings and addresses."), media=MEDIA,
)  # fmt: skip
async def export(asked: ApiRequest) -> Response:
    """What was defined at run time, as TOML, with hashes in place of passcodes. The log says who has asked for it."""
    asked.require()
    asked.tell()
    counting = require_readings(asked.broker).require()
    is_all: bool = asked.values["all"]
    content: Content = {**counting.layer.content}
    if is_all:
        content = defined(counting.content, counting.content_origins, counting.layer)[0]
    found = _chosen(content)
    await _add_addresses(asked, found, is_all=is_all)
    return Response(await asyncio.to_thread(_text, found), media_type=MEDIA)


def _chosen(content: Mapping[str, Any]) -> Content:
    """Copies of the tables that are exported."""
    found: Content = {kind: [*content.get(kind, ())] for kind in ("user", "permission", "address-setting")}
    found[HOST] = [
        {"name": host["name"]}
        | {kind: [*host[kind]] for kind in ("permission", "address-setting") if kind in host}
        for host in content.get(HOST, ())
    ]
    return found


def _text(content: Content) -> str:
    content["user"] = [_without_passcode(user) for user in content["user"]]
    return HEAD + toml.write(filled(content))


def _without_passcode(user: Mapping[str, Any]) -> dict[str, Any]:
    password = user.get("password")
    if password is None or password.startswith(ARGON2):
        return {**user}
    return {**user, "password": hash_password(password)}


async def _add_addresses(asked: ApiRequest, content: Content, *, is_all: bool) -> None:
    """Addresses and queues that stay; without those of the configuration, where not all are wanted."""
    broker, configuration = asked.broker, asked.broker.configuration
    hosts = {host.space: host.name for host in configuration.virtual_hosts if not host.default}
    tables = [*configuration.addresses]
    for host in configuration.virtual_hosts:
        tables += configuration.made_of(host)[0]
    made = {} if is_all else {table.name: {queue.name for queue in table.queues} for table in tables}
    async for address in in_turns(broker.turns, list(broker.engine.addresses.values())):
        queues = [queue for queue in _staying(address) if queue.name not in made.get(address.name, ())]
        space = space_of(address.name)
        if (
            address.is_auto
            or address.owner
            or (address.name in made and not queues)
            or (space and space not in hosts)
        ):
            continue
        tables_of(content, ADDRESS, hosts.get(space)).append(
            {
                "name": local(address.name),
                "routing-types": [kind.value for kind, bit in _KINDS.items() if address.kinds & bit],
            }
            | ({"queue": [_queue(address, queue) for queue in queues]} if queues else {})
        )


_KINDS: Final = {RoutingType.ANYCAST: ANYCAST, RoutingType.MULTICAST: MULTICAST}


def _staying(address: Address) -> Iterator[Queue]:
    for queue in (*address.anycast.values(), *address.named.values()):
        if not queue.is_auto and not queue.owner:
            yield queue


def _queue(address: Address, queue: Queue) -> dict[str, Any]:
    kind = RoutingType.ANYCAST if address.anycast.get(queue.name) is queue else RoutingType.MULTICAST
    found = {"name": local(queue.name), "routing-type": kind.value, "durable": queue.is_durable}
    return found | ({"filter": queue.selector.text} if queue.selector is not None else {})


# Import


@changing(
    "definitions",
    Import,
    ImportDone,
    f"{ON_BROKER} And the rights to make its addresses and queues.",
    most=MOST,
)
async def take(asked: ApiRequest) -> object:
    """Takes definitions as an export has them: all, or nothing has changed and the error names the line."""
    order: Import = asked.order
    asked.require()
    wanted = await asyncio.to_thread(_parsed, order.toml)
    addresses = await _addresses(asked, wanted)
    warnings: list[str] = []

    def edit(content: Content, counting: Loaded) -> None:
        if order.is_replacing:
            content.clear()
        warnings.extend(wanted.lay_over(content, counting))

    with naming("toml"):
        if order.is_dry_run:
            counting = require_readings(asked.broker).require()
            try:
                examined = await asyncio.to_thread(examine, counting, edit, allowing(asked))
            except ConfigError as error:
                raise IllegalFrame("bad-definition", error.message) from None
            asked.begin()  # there would be nothing more to look at
            is_done = False
        else:
            examined, is_done = await obeyed(asked, edit)
    new, queues = await asked.broker.turns.taken(_new(asked, addresses))
    done = ImportDone(
        wanted.counts["user"], wanted.counts["permission"], wanted.counts["address-setting"], new, queues,
        [*warnings, *examined.warnings], order.is_dry_run, is_done,
    )  # fmt: skip
    if not order.is_dry_run:
        await _make(asked, addresses)
    asked.say(done)
    return done


class Wanted:
    """An import that was read: its tables, and where they stand."""

    def __init__(self, content: Content, lines: Mapping[Path, str], tables: Imported) -> None:
        self.content = content
        self.origins = Origins(origins=lines, page=PAGE)
        self.tables = tables
        self.counts = dict.fromkeys(("user", "permission", "address-setting"), 0)

    def lay_over(self, content: Content, counting: Loaded) -> list[str]:
        """Puts the definitions over those of a layer. Says what is left to the configuration. Raises Refused for an unknown host."""
        said = []
        for path, kind, tables in lists_of(self.content):
            host = self.content[HOST][path[1]]["name"] if path else None
            there = tables_of(content, kind, host)
            known = {table["name" if kind == "user" else "match"]: at for at, table in enumerate(there)}
            for index, table in enumerate(tables):
                name = table["name" if kind == "user" else "match"]
                where = self.origins.where((*path, kind, index))
                place = self._place(counting, kind, host, name, where)
                if place is not None:
                    said.append(f"{where}: {kind} {shown(name)} is at {place}, which counts; it is left out")
                    continue
                self.counts[kind] += 1
                if name in known:
                    there[known[name]] = table
                else:
                    there.append(table)
        return said

    def _place(self, counting: Loaded, kind: str, host: str | None, name: str, where: str) -> str | None:
        try:
            return place_of(counting.content, counting.content_origins, kind, host, name)
        except Refused as error:
            raise Refused(error.code, f"{where}: {error.message}; nothing was changed") from None


def _parsed(text: str) -> Wanted:
    """In a thread: reading, and hashing what is plain text. Raises IllegalFrame that names the line."""
    try:
        content, lines = toml.read(text, "toml")
        places = {path: f"line {line}" for path, line in lines.items()}
        blame = Origins(origins=places, page=PAGE)
        tables = converted(content, Imported, blame)
        for path in twice(content):
            blame.refuse(path, "is there twice", "config-conflict")
    except ConfigError as error:
        with naming("toml"):
            raise IllegalFrame("bad-definition", f"{error.message}; nothing was changed") from None
    content["user"] = [_without_passcode(user) for user in content.get("user", ())]
    return Wanted(content, places, tables)


async def _addresses(asked: ApiRequest, wanted: Wanted) -> list[AddressTable]:
    """The addresses of an import, with the names that they have inside the broker. Raises Refused or IllegalFrame for those that cannot
    be made."""
    found: list[AddressTable] = []
    spaces = {host.name: host.space for host in asked.broker.configuration.virtual_hosts}
    places: list[tuple[Path, str, tuple[AddressTable, ...]]] = [((), "", wanted.tables.addresses)]
    places += [
        ((HOST, at), spaces.get(host.name, ""), host.addresses)
        for at, host in enumerate(wanted.tables.virtual_hosts)
    ]
    for path, space, tables in places:
        host = wanted.tables.virtual_hosts[int(path[1])] if path else None
        # where it has permissions or settings, the first of those is what has no place (server/definitions.py)
        is_bare = host is not None and not (host.permissions or host.address_settings)
        if host is not None and host.name not in spaces and (tables or is_bare):
            where = wanted.origins.where(path)
            with naming("toml"):
                raise Refused(
                    "no-such-virtual-host", f"{where}: there is no such virtual host; nothing was changed"
                )
        async for index, table in in_turns(asked.broker.turns, enumerate(tables)):
            queues = tuple([replace(queue, name=space + queue.name) for queue in table.queues])
            inside = replace(table, name=space + table.name, queues=queues)
            with naming("toml"):
                await _require_address(asked, inside, wanted.origins, (*path, ADDRESS, index))
            found.append(inside)
    return found


async def _require_address(asked: ApiRequest, table: AddressTable, origins: Origins, path: Path) -> None:
    addresses = asked.broker.engine.addresses
    wildcards = asked.broker.configuration.wildcards()
    if wildcards.is_wild(table.name) or "::" in table.name:
        raise IllegalFrame(
            "bad-name", f"{origins.where(path)}: {shown(table.name)} is not one address; nothing was changed"
        )
    if table.name not in addresses:
        asked.require(Right.CREATE_ADDRESS, table.name)
    async for at, queue in in_turns(asked.broker.turns, enumerate(table.queues)):
        right = Right.CREATE_DURABLE_QUEUE if queue.durable else Right.CREATE_NON_DURABLE_QUEUE
        asked.require(right, table.name)
        try:
            selector = await asked.broker.turns.taken(filtering(queue))
        except StompboxError as error:
            where = origins.where((*path, QUEUE, at, "filter"))
            raise IllegalFrame(
                "bad-definition", f"{where}: queue {shown(queue.name)}: {error.message}; nothing was changed"
            ) from None
        known = addresses.get(table.name)
        there = None if known is None else known.anycast.get(queue.name) or known.named.get(queue.name)
        if there is not None and differs(there, queue, selector):
            where = origins.where((*path, QUEUE, at, "name"))
            raise Refused(
                "queue-exists",
                f"{where}: queue {shown(queue.name)} is there, with another filter, durability or owner; nothing was changed",
            )


def _new(asked: ApiRequest, tables: list[AddressTable]) -> Steps[tuple[int, int]]:
    """How many addresses, and queues, are not there yet."""
    addresses = queues = 0
    for table in tables:
        known = asked.broker.engine.addresses.get(table.name)
        addresses += known is None
        for queue in table.queues:
            queues += known is None or (queue.name not in known.anycast and queue.name not in known.named)
        yield
    return addresses, queues


async def _make(asked: ApiRequest, tables: list[AddressTable]) -> None:
    engine = asked.broker.engine
    asked.begin()
    async for table in in_turns(asked.broker.turns, tables):
        asked.begin()
        await asked.broker.turns.taken(configuring_address(engine, table, is_start=False))
    await asked.durable()
