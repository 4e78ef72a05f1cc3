"""SIGHUP: the configuration is read again. What is wrong in it changes nothing; what needs a restart is named.

Users, permissions, virtual hosts, address settings, limits, addresses and diverts change at once, for connections that are there as
well: what is no longer allowed ends (revoking.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from stompbox.broker import limits
from stompbox.broker.resettling import resettle
from stompbox.config import Configuration, needs_restart
from stompbox.errors import ConfigError
from stompbox.security import Permissions, Users
from stompbox.server import configuring
from stompbox.server.hosts import Hosts
from stompbox.server.revoking import revoke

if TYPE_CHECKING:
    from stompbox.server.broker import Broker

log = logging.getLogger("stompbox")

STAYING: Final = 100  # lines about what stays although the file has it no more

Read = Callable[[], Configuration]
"""Raises ConfigError where the file cannot be read, or is wrong."""


def reload(broker: Broker, read: Read) -> None:
    try:
        found = read()
    except ConfigError as error:
        log.error("the configuration is not read again: %s (%s). Everything stays as it was", error.message, error.code)
        return
    later = needs_restart(broker.configuration, found)
    try:
        _change_doors(broker, found)
    except ConfigError as error:
        log.error("the listeners stay as they were: %s (%s)", error.message, error.code)
    stays = take(broker, found)
    for line in stays[:STAYING]:
        log.warning("%s", line)
    log.warning("the configuration was read again%s", f"; at the next start: {', '.join(later)}" if later else "")


def take(broker: Broker, configuration: Configuration) -> list[str]:
    """From now on this one counts. What of the old one stays none the less."""
    old, broker.configuration = broker.configuration, configuration
    broker.hosts = Hosts(configuration.virtual_hosts)
    broker.users = Users(configuration.users, configuration.authentication_cache_size)
    grants = configuration.grants_of()
    broker.permissions = Permissions(grants.best if grants is not None else None, configuration.authorization_cache_size)
    engine = broker.engine
    engine.now = broker.now()
    engine.memory.limit(configuration.global_max_size, configuration.global_max_messages)
    resettle(engine, configuration.settings_of())
    stays = configuring.reconfigure(engine, old, configuration)
    configuring.obey(engine, configuration.addresses)
    for host in configuration.virtual_hosts:
        configuring.obey(engine, configuration.made_of(host)[0])
    broker.timeouts.change(configuration.transaction_timeout)
    broker.stagings.limit(configuration.max_staged_bytes)
    limits.measure(engine, broker.committer.store.sizes)
    broker.pressure.relieve()
    broker.logins.obey(configuration)
    revoke(broker)
    logging.getLogger().setLevel(configuration.log_level.value.upper())
    broker.flush()
    return stays


def _change_doors(broker: Broker, configuration: Configuration) -> None:
    """Options and certificates of what is listened on still. Raises ConfigError for the first one that cannot be so."""
    found = {str(listener): listener for listener in [table.parse() for table in configuration.listeners]}
    for door in broker.doors:
        if str(door.listener) in found:
            door.change(found[str(door.listener)])
