"""What an operator defines at run time: users, permissions, address settings. It counts when the answer comes, and is kept in the data
folder (server/definitions.py).

Decides what each of these orders means, and that nobody locks himself out. What the configuration says is not changed here: such an order
is refused with the place where it stands. Passcodes are hashed before anything else is done with them; no answer and no log has one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from stompbox.admin.access import BROKER
from stompbox.admin.apirequest import ANSWER_WITHIN, ApiRequest
from stompbox.admin.endpoints import ON_BROKER, changing, naming
from stompbox.config import Configuration, Loaded
from stompbox.config.definitions import index_of, place_of, tables_of
from stompbox.config.sources import convert
from stompbox.errors import ConfigError, IllegalFrame, Refused
from stompbox.security import ARGON2, Right, User, hash_password
from stompbox.server.configuring import permissions_of
from stompbox.server.definitions import Allow, Content, Edit, Examined, define, require_readings

USER, PERMISSION, SETTING = "user", "permission", "address-setting"
_WORDS: Final = {USER: "user", PERMISSION: "permission for", SETTING: "address setting for"}
_PATTERNS: Final = (
    "wildcard-addresses",
    "literal-match-markers",
)  # keys of the configuration that say what a match is
_KEY: Final = re.compile(r"^[\w-]+\[0\](?:\.([\w-]+))?(?:\[\d+\])?")

UserName = Annotated[str, Meta(description="The login.", min_length=1)]
Passcode = Annotated[
    str,
    Meta(
        description="What the user logs in with, or what `stompbox user hash` prints of it: the broker keeps a hash alone. Null: none.",
        min_length=1,
    ),
]
Match = Annotated[
    str, Meta(description="Which addresses: `*` one word, `#` any number of words.", min_length=1)
]
HostName = Annotated[
    str | None, Meta(description="The virtual host, which the configuration has. Null: of the broker itself.")
]


CLOSED: Final = "it is the first user: whoever has no login is refused from now on, here too"


class UserCreation(Struct, forbid_unknown_fields=True):
    """A user to be made. Without a passcode only a client certificate logs in."""

    name: UserName
    password: Passcode | None = None
    groups: Annotated[list[str], Meta(description="Groups that a permission can name.")] = []


class UserChange(Struct, forbid_unknown_fields=True):
    """What is to change of a user. A field that is not there stays as it is."""

    name: UserName
    password: Passcode | None = None
    groups: Annotated[list[str] | None, Meta(description="All groups of the user.")] = None


class OfUser(Struct, forbid_unknown_fields=True):
    """An order about a user."""

    name: UserName


class PermissionOrder(Struct, forbid_unknown_fields=True):
    """Who may do what with the addresses that match, in place of what was defined for this match."""

    match: Match
    grants: Annotated[dict[str, list[str]], Meta(description="Groups by right, such as `send`.")]
    virtual_host: HostName = None


class OfPermission(Struct, forbid_unknown_fields=True):
    """An order about a permission."""

    match: Match
    virtual_host: HostName = None


class SettingOrder(Struct, forbid_unknown_fields=True):
    """Settings of the addresses that match. Others that were defined for this match stay."""

    match: Match
    settings: Annotated[
        dict[str, Any],
        Meta(description="Values by key, as in an [[address-setting]]; null takes away what was defined."),
    ]
    virtual_host: HostName = None


class OfSetting(Struct, forbid_unknown_fields=True):
    """An order about the settings of a match."""

    match: Match
    virtual_host: HostName = None


# Answers


class Defined(Struct, frozen=True):
    """What was defined. `is_new`: it was not there before; `warnings`: what a start would warn about, and did not before; `is_done`: false
    while addresses that are there do not obey it yet."""

    name: str
    is_new: bool
    warnings: list[str]
    is_done: bool


class Undefined(Struct, frozen=True):
    """What was taken away. `warnings`, `is_done`: as of what is defined."""

    name: str
    is_deleted: bool
    warnings: list[str]
    is_done: bool


# Users


@changing("users/create", UserCreation, Defined, ON_BROKER)
async def create_user(asked: ApiRequest) -> object:
    """Makes a user. The first one of a broker that had none closes it to all who have no login."""
    order: UserCreation = asked.order
    asked.require()
    asked.say({"name": order.name, "groups": order.groups, "password": "***"})
    table = {"name": order.name, "groups": order.groups} | (
        {} if order.password is None else {"password": order.password}
    )
    await _hashed(asked, table)
    is_first = not asked.broker.configuration.users

    def edit(content: Content, counting: Loaded) -> None:
        _refuse_configured(counting, USER, None, order.name)
        tables = tables_of(content, USER, None)
        if index_of(tables, USER, order.name) is not None:
            with naming("name"):
                raise Refused("user-exists", f"user {order.name[:200]!r} is there already")
        tables.append(table)

    found = await _define(asked, order.name, edit, is_new=True)
    warnings = [*found.warnings, CLOSED] if is_first else found.warnings
    return Defined(found.name, found.is_new, warnings, found.is_done)


@changing("users/change", UserChange, Defined, ON_BROKER)
async def change_user(asked: ApiRequest) -> object:
    """Gives a user another passcode, or other groups. Connections that logged in with the old passcode end."""
    order: UserChange = asked.order
    asked.require()
    asked.say(
        {"name": order.name}
        | ({} if order.groups is None else {"groups": order.groups})
        | ({} if order.password is None else {"password": "***"})
    )
    if order.password is None and order.groups is None:
        with naming("groups"):
            raise IllegalFrame(
                "bad-definition", "there is nothing to change: neither `password` nor `groups`"
            )
    table: dict[str, Any] = {"name": order.name}
    if order.groups is not None:
        table["groups"] = order.groups
    if order.password is not None:
        table["password"] = order.password
    await _hashed(asked, table)

    def edit(content: Content, counting: Loaded) -> None:
        _refuse_configured(counting, USER, None, order.name)
        tables, index = _found(content, USER, None, order.name)
        tables[index] = {**tables[index], **table}

    return await _define(asked, order.name, edit, is_new=False)


@changing("users/delete", OfUser, Undefined, ON_BROKER)
async def delete_user(asked: ApiRequest) -> object:
    """Takes a user away; its connections end."""
    order: OfUser = asked.order
    return await _delete(asked, USER, None, order.name)


async def _hashed(asked: ApiRequest, table: dict[str, Any]) -> None:
    """The passcode becomes its hash. Raises IllegalFrame for a user who cannot be so."""
    _check(asked, USER, table)
    password = table.get("password")
    if password is not None and not password.startswith(ARGON2):
        table["password"] = await asyncio.to_thread(hash_password, password)


# Permissions and settings


@changing("permissions/set", PermissionOrder, Defined, ON_BROKER)
async def set_permission(asked: ApiRequest) -> object:
    """Says who may do what with the addresses that match. The first permission of all takes from every user what it does not name."""
    order: PermissionOrder = asked.order
    asked.require()
    table = {"match": order.match, **order.grants}
    if "match" in order.grants:
        with naming("grants.match"):
            raise IllegalFrame("bad-definition", "`match` is no right")
    _check(asked, PERMISSION, table, "grants")
    return await _set(asked, PERMISSION, order.virtual_host, order.match, lambda before: table)


@changing("permissions/delete", OfPermission, Undefined, ON_BROKER)
async def delete_permission(asked: ApiRequest) -> object:
    """Takes away what was defined at run time for a match."""
    order: OfPermission = asked.order
    return await _delete(asked, PERMISSION, order.virtual_host, order.match)


@changing("settings/set", SettingOrder, Defined, ON_BROKER)
async def set_settings(asked: ApiRequest) -> object:
    """Changes settings of the addresses that match; those that are there obey them at once."""
    order: SettingOrder = asked.order
    asked.require()
    given = {key: value for key, value in order.settings.items() if value is not None}
    if "match" in order.settings or not order.settings:
        with naming("settings"):
            raise IllegalFrame("bad-definition", "`settings` has at least one key of an [[address-setting]]")
    _check(asked, SETTING, {"match": order.match, **given}, "settings")

    def changed(before: Mapping[str, Any]) -> Mapping[str, Any]:
        return {key: value for key, value in before.items() if key not in order.settings} | given

    return await _set(asked, SETTING, order.virtual_host, order.match, changed)


@changing("settings/delete", OfSetting, Undefined, ON_BROKER)
async def delete_settings(asked: ApiRequest) -> object:
    """Takes away what was defined at run time for a match."""
    order: OfSetting = asked.order
    return await _delete(asked, SETTING, order.virtual_host, order.match)


# What they share


def _replace(tables: list[Any], kind: str, table: Mapping[str, Any]) -> bool:
    """Whether the table is new."""
    index = index_of(tables, kind, table["name" if kind == USER else "match"])
    if index is None:
        tables.append(table)
    else:
        tables[index] = table
    return index is None


def _refuse_configured(counting: Loaded, kind: str, host: str | None, name: str) -> None:
    """Raises Refused for what the configuration says."""
    with naming("virtual_host"):
        place = place_of(counting.content, counting.content_origins, kind, host, name)
    if place is not None:
        with naming("name" if kind == USER else "match"):
            raise Refused(
                "defined-elsewhere", f"{_WORDS[kind]} {name[:200]!r} is at {place}; it is changed there alone"
            )


def _found(content: Content, kind: str, host: str | None, name: str) -> tuple[list[Any], int]:
    tables = tables_of(content, kind, host)
    index = index_of(tables, kind, name)
    if index is None:
        with naming("name" if kind == USER else "match"):
            raise Refused("not-defined", f"there is no {_WORDS[kind]} {name[:200]!r}")
    return tables, index


async def _set(
    asked: ApiRequest,
    kind: str,
    host: str | None,
    match: str,
    changed: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> Defined:
    """Defines for a match what `changed` makes of what was defined for it before."""
    is_new = False

    def edit(content: Content, counting: Loaded) -> None:
        nonlocal is_new
        _refuse_configured(counting, kind, host, match)
        tables = tables_of(content, kind, host)
        index = index_of(tables, kind, match)
        is_new = _replace(tables, kind, changed({"match": match} if index is None else tables[index]))

    found = await _define(asked, match, edit, is_new=False)
    return Defined(found.name, is_new, found.warnings, found.is_done)


async def _delete(asked: ApiRequest, kind: str, host: str | None, name: str) -> Undefined:
    asked.require()

    def edit(content: Content, counting: Loaded) -> None:
        tables = tables_of(content, kind, host)
        if index_of(tables, kind, name) is None:
            _refuse_configured(counting, kind, host, name)
        tables, index = _found(content, kind, host, name)
        del tables[index]

    found = await _define(asked, name, edit, is_new=False)
    return Undefined(name, is_deleted=True, warnings=found.warnings, is_done=found.is_done)


async def _define(asked: ApiRequest, name: str, edit: Edit, *, is_new: bool) -> Defined:
    examined, is_done = await obeyed(asked, edit)
    return Defined(name, is_new, examined.warnings, is_done)


async def obeyed(asked: ApiRequest, edit: Edit) -> tuple[Examined, bool]:
    """Has the broker take a change. False: some addresses obey it later. Raises Refused where nothing has changed."""
    try:
        found = await define(asked.broker, edit, allowing(asked), within=ANSWER_WITHIN)
    except ConfigError as error:
        raise IllegalFrame("bad-definition", f"{error.message}; nothing was changed") from None
    asked.begin()  # the change itself is a reload's, which tells the time when its turn has come
    return found


def allowing(asked: ApiRequest) -> Allow:
    """Refuses what would leave who asks, or everybody, without the right to take it back."""
    user = asked.user

    def allow(configuration: Configuration) -> None:
        permissions = permissions_of(configuration)
        admins = [
            one.name
            for one in configuration.users
            if permissions.may(User(one.name, frozenset(one.groups)), Right.MANAGE, BROKER)
            and (one.password is not None or one.name == user.name)
        ]
        if not configuration.users:
            is_well = not user.name and permissions.may(User(""), Right.MANAGE, BROKER)
        else:
            is_well = user.name in admins if user.name else bool(admins)
        if not is_well:
            who = f"user {user.name!r}, who asks for it," if user.name else "nobody"
            verb = "would lose" if user.name else "would have"
            raise Refused(
                "would-lock-out", f"nothing was changed: {who} {verb} the right 'manage' on {BROKER!r}"
            )

    return allow


def _check(asked: ApiRequest, kind: str, table: Mapping[str, Any], inside: str = "") -> None:
    """What is wrong with one table, whatever else there is. Raises IllegalFrame that names the field. `inside`: the field that has the
    keys of the table."""
    known = require_readings(asked.broker).require().content
    content = {kind: [dict(table)]} | {name: known[name] for name in _PATTERNS if name in known}
    try:
        convert(content, {})
    except ConfigError as error:
        found = _KEY.match(error.message)
        name = (found and found[1]) or ("name" if kind == USER else "match")
        with naming(f"{inside}.{name}" if inside and name != "match" else name):
            raise IllegalFrame(
                "bad-definition", _KEY.sub("", error.message).lstrip(": ") if found else error.message
            ) from None
