"""What is defined at run time, over the admin interface: users, permissions and address settings, as one more layer of the configuration.

    definitions.toml    in the data folder, written by the broker alone (server/definitions.py); with `memory = true` there is no such file

Decides what such a layer may hold, and what counts where the configuration says the same: a user of that name, a permission or a setting
of that `match` in the same virtual host is the configuration's then, whole, and `shadowed` says so. Nothing of the layer ever changes what
a file, a variable or a flag has said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

from msgspec import field

from stompbox.config import toml
from stompbox.config.converting import converted
from stompbox.config.fields import key, shown
from stompbox.config.origins import Layer, Origins, spelled
from stompbox.config.settings import AddressSetting
from stompbox.config.tables import PermissionTable, Table, UserTable
from stompbox.config.toml import Path
from stompbox.errors import ConfigError, Refused

FILE: Final = "definitions.toml"
RUN_TIME: Final = "run time"
PAGE: Final = "docs/admin.md"
HEAD: Final = "# Defined at run time over the admin interface; the broker writes this file.\n\n"

# by which of its keys an element of a list is known
KNOWN_BY: Final[Mapping[str, str]] = MappingProxyType(
    {"user": "name", "permission": "match", "address-setting": "match"}
)
IN_HOST: Final = ("permission", "address-setting")
HOST: Final = "virtual-host"


class HostDefinitions(Table, frozen=True):
    """What is defined for one virtual host, which the configuration has."""

    name: Annotated[str, key("The virtual host.", kind="name")]
    permissions: tuple[PermissionTable, ...] = field(default=(), name="permission")
    address_settings: tuple[AddressSetting, ...] = field(default=(), name="address-setting")


class Definitions(Table, frozen=True):
    """All that can be defined at run time, as a file has it."""

    users: tuple[UserTable, ...] = field(default=(), name="user")
    permissions: tuple[PermissionTable, ...] = field(default=(), name="permission")
    address_settings: tuple[AddressSetting, ...] = field(default=(), name="address-setting")
    virtual_hosts: tuple[HostDefinitions, ...] = field(default=(), name="virtual-host")


Kept = Callable[[Mapping[str, Any]], Layer]
"""The layer for a configuration whose other layers are these. Raises ConfigError."""


def layer_of(text: str, name: str) -> Layer:
    """The definitions of a text. Raises ConfigError that names the file and the line."""
    content, lines = toml.read(text, name or RUN_TIME)
    blame = Origins(origins={path: f"{name or RUN_TIME}:{line}" for path, line in lines.items()}, page=PAGE)
    converted(content, Definitions, blame)
    for path in twice(content):
        blame.refuse(path, "is there twice", "config-conflict")
    where = f"{RUN_TIME} ({name}:{{}})" if name else f"{RUN_TIME}"
    return Layer(content, {path: where.format(line) for path, line in lines.items()}, text, name)


def written(content: Mapping[str, Any], name: str) -> Layer:
    """The layer of a tree of tables, as it is to be written: what is empty is left out. Raises ConfigError as above."""
    return layer_of(HEAD + toml.write(filled(content)), name)


def filled(content: Mapping[str, Any]) -> dict[str, Any]:
    """The tables without lists of none, and without virtual hosts that have nothing."""
    hosts = [{name: value for name, value in host.items() if value} for host in content.get(HOST, ())]
    whole = {kind: content.get(kind, ()) for kind in ("user", "permission", "address-setting", "address")}
    return {
        kind: tables
        for kind, tables in {**whole, HOST: [host for host in hosts if len(host) > 1]}.items()
        if tables
    }


def in_folder(folder: str) -> Layer:
    """What a data folder keeps. Raises ConfigError `definitions-unreadable` where it cannot be read, and others where it is wrong."""
    name = f"{folder.rstrip('/') or '/'}/{FILE}".replace("//", "/")
    try:
        with open(name, encoding="utf-8", newline="") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return Layer(name=name)
    except OSError as error:
        raise ConfigError(
            "definitions-unreadable", f"{name}: cannot be read: {error.strerror or error}"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError("config-syntax", f"{name}: not TOML: byte {error.start} is not UTF-8") from None
    return layer_of(text, name)


def defined(
    content: Mapping[str, Any], origins: Mapping[Path, str], layer: Layer
) -> tuple[dict[str, Any], dict[Path, str], list[str]]:
    """The configuration with a layer of definitions behind it, where each key stands, and what of the layer does not count, in words."""
    whole, places = dict(content), dict(origins)
    said: list[str] = []
    below = _by_table(layer.places)
    for path, kind, tables in lists_of(layer.content):
        at = _host_at(whole, _name_at(layer, path)) if path else ()
        if path and not at:
            said.append(
                f"{layer.places.get(path, RUN_TIME)}: there is no [[virtual-host]] {shown(_name_at(layer, path))}: "
                "what is defined for it does not count"
            )
            continue
        target = whole if not at else _copied(whole, at)
        known = target.get(kind, [])
        if not isinstance(known, list | tuple):
            continue  # a mistake of the configuration, which is named when it is read
        target[kind] = list(known)
        first = {
            table[KNOWN_BY[kind]]: index
            for index, table in enumerate(known)
            if isinstance(table, Mapping) and isinstance(table.get(KNOWN_BY[kind]), str)
        }
        for index, table in enumerate(tables):
            name = table[KNOWN_BY[kind]]
            if name in first:
                there = Origins(origins=origins).where((*at, kind, first[name]))
                here = layer.places.get((*path, kind, index), RUN_TIME)
                said.append(
                    f"{here}: {spelled((*at, kind))} {shown(name)} is at {there}, too, and that one counts"
                )
                continue
            new = (*at, kind, len(target[kind]))
            places |= {(*new, *rest): where for rest, where in below.get((*path, kind, index), ())}
            target[kind].append(table)
    return whole, places, said


def tables_of(content: dict[str, Any], kind: str, host: str | None) -> list[Any]:
    """The list of a layer's tables, which can be changed, and is made where it is not there."""
    if host is None:
        found: list[Any] = content.setdefault(kind, [])
        return found
    hosts: list[Any] = content.setdefault(HOST, [])
    table = next((one for one in hosts if one["name"] == host), None)
    if table is None:
        hosts.append(table := {"name": host})
    inside: list[Any] = table.setdefault(kind, [])
    return inside


def index_of(tables: Iterable[Any], kind: str, name: str) -> int | None:
    """Which of the tables has this name, or match."""
    return next((at for at, one in enumerate(tables) if one[KNOWN_BY[kind]] == name), None)


def place_of(
    content: Mapping[str, Any], origins: Mapping[Path, str], kind: str, host: str | None, name: str
) -> str | None:
    """Where the configuration, without what is defined at run time, has this table; None where it has none. Raises Refused for a virtual
    host that it has not."""
    at: Path = ()
    inside: Any = content
    if host is not None:
        at = _host_at(content, host)
        if not at:
            raise Refused("no-such-virtual-host", f"there is no [[virtual-host]] {shown(host)}")
        inside = content[HOST][at[1]]
    index = index_of(inside.get(kind, ()), kind, name)
    return None if index is None else Origins(origins=origins).where((*at, kind, index))


def _by_table(places: Mapping[Path, str]) -> dict[Path, list[tuple[Path, str]]]:
    """Where the keys of each table stand, by the path of the table."""
    found: dict[Path, list[tuple[Path, str]]] = {}
    for path, where in places.items():
        of = path[: 4 if path[0] == HOST else 2]
        found.setdefault(of, []).append((path[len(of) :], where))
    return found


def lists_of(content: Mapping[str, Any]) -> Iterator[tuple[Path, str, list[Any]]]:
    """(of which virtual host, of what, the tables) of a layer."""
    for kind in KNOWN_BY:
        if kind in content:
            yield (), kind, content[kind]
    for index, host in enumerate(content.get(HOST, ())):
        for kind in IN_HOST:
            if kind in host:
                yield (HOST, index), kind, host[kind]


def _name_at(layer: Layer, path: Path) -> str:
    name: str = layer.content[str(path[0])][path[1]]["name"]
    return name


def _host_at(whole: Mapping[str, Any], name: str) -> Path:
    """Where the configuration has the virtual host of this name; empty where it has none."""
    hosts = whole.get(HOST, ())
    named = (
        [one.get("name") if isinstance(one, Mapping) else None for one in hosts]
        if isinstance(hosts, list | tuple)
        else []
    )
    return (HOST, named.index(name)) if name in named else ()


def _copied(whole: dict[str, Any], at: Path) -> dict[str, Any]:
    """The table of a virtual host, which is a copy from now on."""
    hosts, index = list(whole[HOST]), int(at[1])
    hosts[index] = dict(hosts[index])
    whole[HOST] = hosts
    found: dict[str, Any] = hosts[index]
    return found


def twice(content: Mapping[str, Any]) -> Iterator[Path]:
    """Where a list of a layer has a name that it has before."""
    for path, kind, tables in [*lists_of(content), ((), HOST, list(content.get(HOST, ())))]:
        first: set[str] = set()
        for index, table in enumerate(tables):
            name = table[KNOWN_BY.get(kind, "name")]
            if name in first:
                yield (*path, kind, index, KNOWN_BY.get(kind, "name"))
            first.add(name)
