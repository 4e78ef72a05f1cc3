"""The configuration: one TOML file, STOMPBOX_ variables and flags become one immutable `Configuration`.

    load(path, environ, overrides)   the configuration, or a ConfigError that names file, line and key
    check(configuration)             warnings; refuses what would let strangers in
    parse_listener(url)              one listener and its options
    AddressSettingsTable             the settings of any address

This package decides what can be configured and says where a mistake is. It opens no socket, and reads only the one file.
"""

from __future__ import annotations

from stompbox.config.checks import check, needs_restart
from stompbox.config.cluster import ClusterTable
from stompbox.config.configuration import Configuration, schema
from stompbox.config.listener import (
    Listener,
    host_of,
    is_loopback,
    is_own_host,
    joined,
    parse_endpoint,
    parse_listener,
)
from stompbox.config.matching import PatternTable
from stompbox.config.options import (
    AckInTransaction,
    Dialect,
    EncoderType,
    KeyStoreType,
    ListenerOptions,
    NackPolicy,
)
from stompbox.config.origins import Loaded, Origins
from stompbox.config.settings import (
    AddressFullPolicy,
    AddressSetting,
    AddressSettings,
    AddressSettingsTable,
    DeletePolicy,
    DiskFullPolicy,
    PageFullPolicy,
    RoutingType,
    SlowConsumerPolicy,
    SlowConsumerUnit,
)
from stompbox.config.sources import load, read, read_file
from stompbox.config.tables import (
    AddressTable,
    AdminTable,
    DivertRouting,
    DivertTable,
    ListenerTable,
    LogFormat,
    LogLevel,
    PermissionTable,
    QueueTable,
    UnknownHeaderPolicy,
    UserTable,
    VirtualHostTable,
)
from stompbox.config.tracing import TracingTable

__all__ = [
    "AckInTransaction",
    "AddressFullPolicy",
    "AddressSetting",
    "AddressSettings",
    "AddressSettingsTable",
    "AddressTable",
    "AdminTable",
    "ClusterTable",
    "Configuration",
    "DeletePolicy",
    "Dialect",
    "DiskFullPolicy",
    "DivertRouting",
    "DivertTable",
    "EncoderType",
    "KeyStoreType",
    "Listener",
    "ListenerOptions",
    "ListenerTable",
    "Loaded",
    "LogFormat",
    "LogLevel",
    "NackPolicy",
    "Origins",
    "PageFullPolicy",
    "PatternTable",
    "PermissionTable",
    "QueueTable",
    "RoutingType",
    "SlowConsumerPolicy",
    "SlowConsumerUnit",
    "TracingTable",
    "UnknownHeaderPolicy",
    "UserTable",
    "VirtualHostTable",
    "check",
    "host_of",
    "is_loopback",
    "is_own_host",
    "joined",
    "load",
    "needs_restart",
    "parse_endpoint",
    "parse_listener",
    "read",
    "read_file",
    "schema",
]
