"""Whether a broker could start with a configuration: what `stompbox serve`, a reload and `stompbox config check` ask alike.

Beyond what the file says by itself (config/checks.py) it looks at what the file names: selectors, transformers, hashes, the files of
certificates. What others may hold, ports and the data folder, shows at start alone.
"""

from __future__ import annotations

from collections.abc import Callable

from stompbox.config import Configuration, Loaded, VirtualHostTable, check, parse_listener
from stompbox.config.toml import Path
from stompbox.errors import ConfigError, StompboxError
from stompbox.security import Users
from stompbox.server import configuring
from stompbox.server.addressing.transforming import load_transform
from stompbox.server.transport.keystores import admin_context
from stompbox.server.transport.tls import tls_context


def verify(loaded: Loaded) -> list[str]:
    """Warnings. Raises ConfigError with file, line and key for the first thing that a broker could not start with."""
    configuration = loaded.configuration
    warnings = [*check(configuration), *loaded.shadowed]
    for index, table in enumerate(configuration.listeners):
        _verify_listener(loaded, ("listener", index, "url"), table.url)
    _try(loaded, ("admin", "key-store-path"), lambda: admin_context(configuration.admin))
    verify_users(loaded)
    _verify_tables(loaded, (), configuration)
    for index, host in enumerate(configuration.virtual_hosts):
        _verify_tables(loaded, ("virtual-host", index), host)
    return warnings


def verify_users(loaded: Loaded) -> None:
    """Raises ConfigError for the first hash that is none."""
    for index, user in enumerate(loaded.configuration.users):
        _try(loaded, ("user", index, "password"), lambda user=user: Users([user]))  # type: ignore[misc]


def _verify_listener(loaded: Loaded, path: Path, url: str) -> None:
    listener = parse_listener(url)
    name = listener.options.message_transformer
    if name is not None:
        _try(loaded, path, lambda: load_transform(name))
    if listener.is_tls:
        _try(loaded, path, lambda: tls_context(listener))


def _verify_tables(loaded: Loaded, path: Path, tables: Configuration | VirtualHostTable) -> None:
    for index, address in enumerate(tables.addresses):
        for number, queue in enumerate(address.queues):
            where = (*path, "address", index, "queue", number, "filter")
            _try(loaded, where, lambda queue=queue: configuring.filter_of(queue))  # type: ignore[misc]
    for index, divert in enumerate(tables.diverts):
        where = (*path, "divert", index)
        _try(loaded, (*where, "filter"), lambda divert=divert: configuring.filter_of(divert))  # type: ignore[misc]
        _try(loaded, (*where, "transformer"), lambda divert=divert: configuring.divert_of(divert))  # type: ignore[misc]


def _try(loaded: Loaded, path: Path, make: Callable[[], object]) -> None:
    """Refuses the key at this place where what it names cannot be made."""
    try:
        make()
    except ConfigError as error:
        loaded.refuse(path, error.message, error.code)
    except StompboxError as error:
        loaded.refuse(path, f"{error.message} ({error.code})")
