"""What spans keys: names that must be unique or known, and settings that do not go together or are unsafe.

Decides what is refused and what is only warned about. Does not look at the machine: whether files are there and ports are free shows at
start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from re import search
from string import punctuation

from msgspec import Struct

from stompbox.config.cluster import check_cluster
from stompbox.config.configuration import Configuration
from stompbox.config.fields import fields_of, nearest, shown
from stompbox.config.listener import Listener, check_socket, is_loopback, is_path, joined
from stompbox.config.matching import is_match
from stompbox.config.origins import Loaded, spelled
from stompbox.config.settings import AddressSetting, given
from stompbox.config.tables import DivertTable, PermissionTable, VirtualHostTable
from stompbox.config.toml import Path
from stompbox.config.tracing import check_tracing
from stompbox.errors import ConfigError

AT_START = (  # a reload leaves them
    "data", "memory", "admin", "log-format", "persist-id-cache", "persist-delivery-count-before-delivery", "fronts",
    "wildcard-addresses", "literal-match-markers", "cluster", "tracing", "management-address",
)  # fmt: skip

# they divide several destinations of a header, and the name of an address from that of its queue
NOT_DELIMITING = ",:"
NOT_WILD = ",:/.%_~-"  # the same, and what the spaces of virtual hosts are spelled with

_WHAT_TO_DO = (
    "configure at least one [[user]] (`stompbox user hash` makes the password) or listen on 127.0.0.1"
)


def check(configuration: Configuration) -> list[str]:
    """Warnings about a configuration that `load` made. Raises ConfigError where anyone on the network could do anything."""
    _refuse_open_listeners(configuration)
    return [
        *_user_warnings(configuration),
        *_permission_warnings(configuration),
        *_destination_warnings(configuration),
        *_other_warnings(configuration),
    ]


def needs_restart(old: Configuration, new: Configuration) -> list[str]:
    """Keys that differ and that a reload (SIGHUP) cannot apply; the rest can take effect at once."""
    changed = [
        name
        for name in AT_START
        if getattr(old, name.replace("-", "_")) != getattr(new, name.replace("-", "_"))
    ]
    return changed + ["listener"] * (_sockets(old) != _sockets(new))


def _sockets(configuration: Configuration) -> list[str]:
    """Where it listens; the options of a listener can change while it does, but for those of a file that is there."""
    return sorted(_socket(table.parse()) for table in configuration.listeners)


def _socket(listener: Listener) -> str:
    options = listener.options
    return f"{listener} {options.socket_mode} {options.socket_owner} {options.socket_group}"


def _refuse_open_listeners(configuration: Configuration) -> None:
    if configuration.users:
        return
    for table in configuration.listeners:
        listener = table.parse()
        if not listener.is_loopback:
            problem = f"listener {listener}: no users are configured, so anyone who reaches it could do anything; {_WHAT_TO_DO}"
            raise ConfigError("config-insecure", problem)
    endpoint = configuration.admin.endpoint()
    if endpoint and not is_loopback(endpoint[0]):
        problem = f"admin.listen {joined(*endpoint)}: no users are configured, so anyone who reaches it could do anything; {_WHAT_TO_DO}"
        raise ConfigError("config-insecure", problem)


def _user_warnings(configuration: Configuration) -> Iterable[str]:
    certificates = any(table.parse().options.need_client_auth for table in configuration.listeners)
    for user in configuration.users:
        if user.password is None and not certificates:
            yield f"user {shown(user.name)} has no password, and no listener asks for client certificates: they cannot log in"
        elif user.password is not None and not user.password.startswith("$argon2"):
            yield f"the password of user {shown(user.name)} is plain text; `stompbox user hash` makes a hash of it"


def _permission_warnings(configuration: Configuration) -> Iterable[str]:
    tables = [
        *configuration.permissions,
        *(table for host in configuration.virtual_hosts for table in host.permissions),
    ]
    if tables and not configuration.users:
        yield "there are [[permission]] but no users: nameless clients belong to no group, so each of them is refused everything"
        return
    known = {group for user in configuration.users for group in user.groups}
    for group in sorted({group for table in tables for group in _groups(table)} - known):
        yield f"no user is in the group {shown(group)} that a [[permission]] names"


def _groups(table: PermissionTable) -> set[str]:
    return {group for groups in table.grants().values() for group in groups}


def _destination_warnings(configuration: Configuration) -> Iterable[str]:
    """Names of addresses that are written as clients write destinations: such an address would be one of its own, met by nobody."""
    options = [table.parse().options for table in configuration.listeners]
    known = {prefix for each in options for prefix in (*each.anycast_prefix, *each.multicast_prefix)}
    for path, _, text in _names_in(configuration, ()):
        found = next((prefix for prefix in sorted(known) if prefix and text.startswith(prefix)), "")
        if rest := text.removeprefix(found) if found else "":
            yield f"{spelled(path)} is {shown(text)}, a destination: the address of that is {shown(rest)}"


def _other_warnings(configuration: Configuration) -> Iterable[str]:
    hosts = configuration.virtual_hosts
    if hosts and not any(host.default for host in hosts):
        yield "no [[virtual-host]] is the default: clients whose `host` names none of them are refused"


def is_admin_asked(loaded: Loaded) -> bool:
    """Somebody wants the admin interface where it is; else it is left out when its place is taken, as by a second broker on one machine."""
    return loaded.configuration.admin.enabled and loaded.where(("admin", "listen")) != "default"


def check_names(loaded: Loaded) -> None:
    """Refuse names that are there twice or not at all, and values that contradict each other. Raises ConfigError."""
    configuration = loaded.configuration
    hosts = configuration.virtual_hosts
    _refuse_twice(loaded, ("user",), "name", [user.name for user in configuration.users])
    _refuse_twice(loaded, ("virtual-host",), "name", [host.name for host in hosts])
    endpoints = _endpoints(configuration)
    _refuse_twice(loaded, ("listener",), "url", endpoints)
    endpoint = configuration.admin.endpoint()
    if endpoint:
        where = ": ".join([loaded.where(("admin",)), "admin"]).removeprefix("default: ")
        check_socket(
            endpoint[0],
            configuration.admin,
            where,
            "socket-mode, socket-owner and socket-group",
            "socket-mode",
        )
        if is_path(endpoint[0]) and configuration.admin.key_store_path:
            loaded.refuse(
                ("admin", "key-store-path"), "HTTPS goes with host:port: nobody reads along at a file"
            )
    if endpoint and joined(*endpoint) in endpoints and is_admin_asked(loaded):
        loaded.refuse(("admin", "listen"), f"a listener has {joined(*endpoint)} already", "config-conflict")
    if configuration.max_failed_login_delay < configuration.failed_login_delay:
        loaded.refuse(
            ("max-failed-login-delay",),
            f"is below failed-login-delay, {configuration.failed_login_delay}",
            "config-conflict",
        )
    check_cluster(loaded)
    check_tracing(loaded)
    _check_hashes(loaded)
    _check_wildcards(loaded)
    _check_patterns(loaded)
    _check_addresses(loaded, (), configuration)
    for index, host in enumerate(hosts):
        path = ("virtual-host", index)
        if host.default and any(other.default for other in hosts[:index]):
            loaded.refuse(
                (*path, "default"), "another virtual host is the default already", "config-conflict"
            )
        _check_addresses(loaded, path, host)
        names = [user.name for user in configuration.users]
        for number, name in enumerate(host.users or ()):
            if name not in names:
                loaded.refuse(
                    (*path, "users", number),
                    f"no [[user]] has the name {shown(name)}{'; ' + nearest(name, names) if names else ''}",
                    "config-conflict",
                )


def _check_hashes(loaded: Loaded) -> None:
    most = loaded.configuration.max_login_memory
    for index, user in enumerate(loaded.configuration.users):
        found = search(r"\$argon2\w+\$.*?\bm=(\d{1,12})\b", user.password or "")
        if found and int(found[1]) * 1024 > most:
            problem = f"this argon2 hash takes {int(found[1])} KiB to verify, more than max-login-memory, {most} bytes"
            loaded.refuse(("user", index, "password"), problem, "config-conflict")


def _endpoints(configuration: Configuration) -> list[str]:
    """host:port of each listener, or its file; those with port 0 never meet."""
    endpoints = []
    for index, table in enumerate(configuration.listeners):
        listener = table.parse()
        is_fixed = listener.port or listener.is_unix
        endpoints.append(joined(listener.host, listener.port) if is_fixed else f"any free port, {index}")
    return endpoints


def _check_addresses(loaded: Loaded, path: Path, tables: Configuration | VirtualHostTable) -> None:
    """What the top level and a virtual host have in common."""
    _refuse_twice(loaded, (*path, "address"), "name", [table.name for table in tables.addresses])
    for index, table in enumerate(tables.addresses):
        _refuse_twice(
            loaded, (*path, "address", index, "queue"), "name", [queue.name for queue in table.queues]
        )
    _refuse_twice(loaded, (*path, "permission"), "match", [table.match for table in tables.permissions])
    _refuse_twice(
        loaded, (*path, "address-setting"), "match", [setting.match for setting in tables.address_settings]
    )
    for index, setting in enumerate(tables.address_settings):
        _check_setting(loaded, (*path, "address-setting", index), setting)
    _check_diverts(loaded, path, tables.diverts)


def _check_setting(loaded: Loaded, path: Path, setting: AddressSetting) -> None:
    values = given(setting)
    least, most = values.get("min_expiry_delay", -1), values.get("max_expiry_delay", -1)
    if 0 <= most < least:
        loaded.refuse((*path, "max-expiry-delay"), f"is below min-expiry-delay, {least}", "config-conflict")


def _check_patterns(loaded: Loaded) -> None:
    """Matches are patterns, and addresses are none, in the syntax that the same configuration sets."""
    wildcards = loaded.configuration.wildcards()
    for path, kind, text in _names_in(loaded.configuration, ()):
        problem = wildcards.problem_of_match(text) if kind == "match" else ""
        if problem:
            loaded.refuse(path, f"{shown(text)} is not a pattern: {problem}")
        if kind == "address" and (wildcards.is_wild(text) or "::" in text):
            loaded.refuse(path, f"{shown(text)} is not one address: {wildcards.special()}")


def _names_in(table: Struct, path: Path) -> Iterator[tuple[Path, str, str]]:
    """Where a key is a match or the name of an address, which of the two, and what it says."""
    for field in fields_of(type(table)).values():
        value, where = getattr(table, field.name), (*path, field.spelled)
        if field.table and field.item:
            for index, item in enumerate(value):
                yield from _names_in(item, (*where, index))
        elif field.table:
            yield from _names_in(value, where)
        elif field.kind in ("match", "address") and isinstance(value, str) and value:
            yield where, field.kind, value


def _check_wildcards(loaded: Loaded) -> None:
    table, markers = loaded.configuration.wildcard_addresses, loaded.configuration.literal_match_markers
    taken: dict[str, str] = {}
    for name, text in (
        ("delimiter", table.delimiter),
        ("any-words", table.any_words),
        ("single-word", table.single_word),
    ):
        no = NOT_DELIMITING if name == "delimiter" else NOT_WILD
        if len(text) != 1 or text not in punctuation or text in no:
            problem = f"expected one character of punctuation, but none of {' '.join(no)}, not {shown(text)}"
            loaded.refuse(("wildcard-addresses", name), problem)
        if text in taken:
            loaded.refuse(
                ("wildcard-addresses", name), f"{shown(text)} is the {taken[text]} already", "config-conflict"
            )
        taken[text] = name
    if markers and (len(markers) != 2 or not markers.isprintable() or " " in markers):
        loaded.refuse(
            ("literal-match-markers",), f"expected two characters, such as (), or none, not {shown(markers)}"
        )
    if clash := next((marker for marker in markers if marker in taken), ""):
        loaded.refuse(
            ("literal-match-markers",),
            f"{shown(clash)} is the {taken[clash]} of [wildcard-addresses]",
            "config-conflict",
        )


def _check_diverts(loaded: Loaded, path: Path, diverts: Sequence[DivertTable]) -> None:
    _refuse_twice(loaded, (*path, "divert"), "name", [divert.name for divert in diverts])
    wildcards = loaded.configuration.wildcards()
    for index, divert in enumerate(diverts):
        if is_match(wildcards.match_words(divert.address), wildcards.split(divert.forwarding_address)):
            # it would go round and round
            where = (*path, "divert", index, "forwarding-address")
            loaded.refuse(where, "a divert cannot forward to its own address", "config-conflict")


def _refuse_twice(loaded: Loaded, path: Path, key: str, names: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            other = loaded.where((*path, first[name], key))
            problem = f"{shown(name)} is there already" + ("" if other == "default" else f", at {other}")
            loaded.refuse((*path, index, key), problem, "config-conflict")
        first[name] = index
