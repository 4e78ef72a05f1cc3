"""What a broker obeys: users, permissions, the settings of an address, listeners, the whole configuration; each with where it was set.

A source is `stompbox.toml:12`, a variable or a flag; "default" is what nobody has set, and "" what a broker was started with that no
file has. Passwords are never shown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, to_builtins
from starlette.responses import Response

from stompbox.admin.access import may_see
from stompbox.admin.endpoints import ON_BROKER, Text, naming, reading
from stompbox.admin.listing import Field, Pieces, cutting, in_order, joined, listed, members, page_of
from stompbox.broker.addresses.destinations import require_short
from stompbox.config.listing import content_of, masked
from stompbox.config.matching import PatternTable, is_match
from stompbox.config.options import ListenerOptions
from stompbox.config.origins import Loaded, spelled
from stompbox.config.settings import AddressSetting, AddressSettings, given
from stompbox.config.spaces import local, space_of
from stompbox.config.tables import PermissionTable
from stompbox.config.toml import Path
from stompbox.errors import NotPermitted
from stompbox.security import ARGON2, Right
from stompbox.selectors.steps import Steps

if TYPE_CHECKING:
    from stompbox.admin.apirequest import ApiRequest
    from stompbox.config import Configuration


class UserView(Struct, frozen=True):
    """A user. `login`: by argon2, plain text or certificate alone; `connections`: those that are there now."""

    name: str
    groups: list[str]
    login: str
    connections: int
    source: str


class PermissionView(Struct, frozen=True):
    """Who may do what with the addresses that match: groups by right. `virtual_host`: whose; None: of the broker itself."""

    match: str
    virtual_host: str | None
    grants: dict[str, list[str]]
    source: str


class SettingView(Struct, frozen=True):
    """One setting that an address obeys. `match`: of the [[address-setting]] that says so; None: it is the default."""

    value: Any
    match: str | None
    source: str


class SettingsView(Struct, frozen=True):
    """All settings of one address, by name."""

    address: str
    settings: dict[str, SettingView]


class ListenerView(Struct, frozen=True):
    """Where the broker listens. `options`: all that count there."""

    url: str
    scheme: str
    host: str
    port: int
    is_tls: bool
    connections: int
    options: dict[str, Any]
    source: str


class ConfigurationView(Struct, frozen=True):
    """Every key with its value, as a file has them, and where those were set that somebody has set."""

    values: dict[str, Any]
    sources: dict[str, str]


def source(asked: ApiRequest, *path: str | int) -> str:
    return _place(asked.loaded(), *path)


def _place(loaded: Loaded | None, *path: str | int) -> str:
    return "" if loaded is None else loaded.where(path)


BY_USER: Final[Mapping[str, Field]] = MappingProxyType(
    {"name": lambda one: one.name, "connections": lambda one: one.connections}
)


@reading("users", page_of("users", UserView), ON_BROKER, *cutting(BY_USER))
async def users(asked: ApiRequest) -> Response:
    """Users with their groups and how they log in."""
    asked.require()
    views = await asked.broker.turns.taken(_users(asked))
    return await listed(
        asked, "users", views, lambda view: view, key=lambda view: view.name,
        text=lambda view: f"{view.name} {' '.join(view.groups)}", fields=BY_USER,
    )  # fmt: skip


def _users(asked: ApiRequest) -> Steps[list[UserView]]:
    there, loaded, views = asked.broker.of_user, asked.loaded(), list[UserView]()
    for index, user in enumerate(asked.broker.configuration.users):
        place = _place(loaded, "user", index)
        views.append(UserView(user.name, list(user.groups), _login(user.password), there[user.name], place))
        yield
    ordered: list[UserView] = yield from in_order(views, lambda view: view.name)
    return ordered


def _login(password: str | None) -> str:
    return "certificate" if password is None else "argon2" if password.startswith(ARGON2) else "plain"


@reading("permissions", page_of("permissions", PermissionView), ON_BROKER, *cutting())
async def permissions(asked: ApiRequest) -> Response:
    """Which groups may do what with which addresses. Of all that match an address the most specific one alone decides."""
    asked.require()
    views = await asked.broker.turns.taken(_permissions(asked))
    return await listed(
        asked, "permissions", views, lambda view: view, key=_permission, text=lambda view: view.match
    )


def _permission(view: PermissionView) -> str:
    return f"{view.virtual_host or ''} {view.match}"


def _permissions(asked: ApiRequest) -> Steps[list[PermissionView]]:
    configuration, loaded = asked.broker.configuration, asked.loaded()
    places: list[tuple[str | None, Sequence[PermissionTable], Path]] = [(None, configuration.permissions, ())]
    for index, host in enumerate(configuration.virtual_hosts):
        places.append((host.name, host.permissions, ("virtual-host", index)))
    views = list[PermissionView]()
    for name, tables, at in places:
        for index, table in enumerate(tables):
            grants = {right: sorted(groups) for right, groups in table.grants().items()}
            place = _place(loaded, *at, "permission", index)
            views.append(PermissionView(table.match, name, grants, place))
            yield
    ordered: list[PermissionView] = yield from in_order(views, _permission)
    return ordered


@reading(
    "settings",
    SettingsView,
    "Needs `manage` or `browse` on the address.",
    Text("address", "Name of the address, which need not be there.", is_required=True),
)
async def settings(asked: ApiRequest) -> object:
    """The settings that an address obeys, or would obey, each with the [[address-setting]] that it comes from."""
    name: str = asked.values["address"]
    with naming("address"):
        require_short(name)
    if not asked.may() and not may_see(asked.broker, asked.user, name):
        raise NotPermitted(
            "not-permitted",
            f"user {asked.user.name!r} has not the right 'browse' on {name[:200]!r}",
            Right.BROWSE.value,
            name,
        )
    found = asked.broker.engine.settings.resolve(name)
    said = await asked.broker.turns.taken(_said(asked, name))
    values: dict[str, Any] = to_builtins(found)
    return SettingsView(
        name,
        {
            key: SettingView(values[key], *said.get(attribute, (None, "default")))
            for attribute, key in zip(
                AddressSettings.__struct_fields__, AddressSettings.__struct_encode_fields__, strict=True
            )
        },
    )


def _said(asked: ApiRequest, name: str) -> Steps[dict[str, tuple[str, str]]]:
    """By setting, the pattern that says it, and where that stands."""
    configuration, loaded = asked.broker.configuration, asked.loaded()
    tables: Sequence[AddressSetting] = configuration.address_settings
    at: Path = ()
    for index, host in enumerate(configuration.virtual_hosts):
        if host.address_settings and host.space == space_of(name):
            tables, at = host.address_settings, ("virtual-host", index)
    wildcards, own = configuration.wildcards(), local(name)
    words, matching = wildcards.split(own), []
    for index, table in enumerate(tables):
        if is_match(wildcards.match_words(table.match), words):
            matching.append((table.match, index))
        yield
    patterns = PatternTable(matching, wildcards)
    found = {}
    for rank in patterns.ranks(own):
        index = patterns.value(rank)
        for attribute in given(tables[index]):
            key = attribute.replace("_", "-")
            found[attribute] = tables[index].match, _place(loaded, *at, "address-setting", index, key)
    return found


@reading("listeners", page_of("listeners", ListenerView), ON_BROKER, *cutting())
async def listeners(asked: ApiRequest) -> Response:
    """Where the broker listens, with the options that count there."""
    asked.require()
    there = Counter(str(connection.listener) for connection in asked.broker.connections)
    known = [str(table.parse()) for table in asked.broker.configuration.listeners]
    views = []
    for acceptor in asked.broker.all_acceptors:
        one, url = acceptor.listener, str(acceptor.listener)
        at = ("listener", known.index(acceptor.configured)) if acceptor.configured in known else ("listener",)
        view = ListenerView(
            url, one.scheme, one.host, one.port, one.is_tls, there[url], _options(one.options), source(asked, *at),
        )  # fmt: skip
        views.append(view)
    views.sort(key=lambda view: view.url)
    return await listed(asked, "listeners", views, lambda view: view, key=lambda view: view.url)


def _options(options: ListenerOptions) -> dict[str, Any]:
    shown: dict[str, Any] = masked(to_builtins(options), ListenerOptions)
    return shown


@reading("configuration", ConfigurationView, ON_BROKER)
async def configuration(asked: ApiRequest) -> Response:
    """The whole configuration as the broker obeys it, and where each key was set."""
    asked.require()
    pieces = await asyncio.to_thread(_whole, asked.broker.configuration, asked.loaded())
    return Pieces(asked.broker.turns, pieces)


def _whole(configuration: Configuration, loaded: Loaded | None) -> list[bytes]:
    """The view as JSON, entry by entry: in a thread, which others do not wait for while one is made."""
    sources = {} if loaded is None else {spelled(path): at for path, at in loaded.origins.items() if path}
    values = members(content_of(configuration))
    return joined(chain([b'{"values":'], values, [b',"sources":'], members(sources), [b"}"]))
