"""The tables of the configuration file and their keys, as structs. The whole is configuration.py.

Decides names, types, units, ranges and defaults. Reading files, the environment and flags is sources.py; what spans keys is checks.py; the
keys of [[address-setting]] are settings.py, the options of a listener's URL options.py.
"""

from typing import Annotated, Final

from msgspec import Struct, field

from stompbox.config.fields import Word, key
from stompbox.config.listener import Listener, parse_endpoint, parse_listener
from stompbox.config.matching import DOTS
from stompbox.config.options import SOCKET_MODE
from stompbox.config.settings import (
    AddressSetting,
    RoutingType,
)
from stompbox.config.spaces import space_of_host
from stompbox.errors import redacted

DEFAULT_LISTENER: Final = "tcp://127.0.0.1:61613"
DEFAULT_ADMIN: Final = "127.0.0.1:8161"
OFF: Final = "off"

Grants = dict[str, frozenset[str]]
_ARTEMIS: Final = "Artemis"
_OWN: Final = "Stompbox"


class LogLevel(Word):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LogFormat(Word):
    TEXT = "text"
    JSON = "json"


class UnknownHeaderPolicy(Word):
    ERROR = "ERROR"
    LOG = "LOG"


class DivertRouting(Word):
    STRIP = "STRIP"
    PASS = "PASS"
    ANYCAST = "ANYCAST"
    MULTICAST = "MULTICAST"


class Table(Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A table of the file: immutable, keys in kebab case, no others."""


class ListenerTable(Table, frozen=True):
    url: Annotated[
        str,
        key(
            "Where to listen and how: `tcp://host:port?option=value;…`, `ssl://…` or `unix:///path?…`.",
            kind="url",
        ),
    ]

    def parse(self, connection_ttl: int = -1) -> Listener:
        """The listener of this URL, which `load` has found to be good; `connection_ttl` as in `parse_listener`."""
        return parse_listener(self.url, connection_ttl=connection_ttl)

    def __repr__(self) -> str:
        return f"ListenerTable(url={redacted(self.url)!r})"


class AdminTable(Table, frozen=True):
    enabled: Annotated[bool, key("false: no admin interface.")] = True
    listen: Annotated[
        str,
        key(
            "`host:port` of console, API and metrics, or `unix:///path`; `off`: as enabled = false.",
            kind="endpoint",
        ),
    ] = DEFAULT_ADMIN
    socket_mode: Annotated[
        str, key("Permissions of the file of `unix:///path`, octal: who may write to it may connect.")
    ] = SOCKET_MODE
    socket_owner: Annotated[
        str | None, key("User, by name or number, whose file it is; unset: the broker's.")
    ] = None
    socket_group: Annotated[str | None, key("Its group, likewise.")] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        key(
            "Names in a request's Host header that are answered, besides loopback and the address listened on."
        ),
    ] = ()
    max_connections_per_address: Annotated[
        int,
        key(
            "Connections of one client address (an IPv6 network of 64 bits), this machine included; of 100 in all. -1: no limit.",
            "connections",
            at_least=-1,
        ),
    ] = 50
    max_requests_per_second: Annotated[
        int,
        key(
            "Requests of one client address (an IPv6 network of 64 bits) in a second, over ten; health is not counted. -1: no limit.",
            "requests",
            at_least=-1,
        ),
    ] = 100
    session_timeout: Annotated[
        int,
        key("How long a session of the log-in page lasts without a request.", "ms", at_least=1000),
    ] = 1_800_000
    key_store_path: Annotated[
        str | None, key("PEM file with certificate chain and key: HTTPS instead of HTTP.")
    ] = None
    key_store_password: Annotated[str | None, key("Password of the key.", kind="secret")] = None
    key_path: Annotated[str | None, key("The private key, when that file has only the certificates.")] = None

    def endpoint(self) -> tuple[str, int] | None:
        """(host, port), (path, 0) of a file, or None when there is no admin interface."""
        return parse_endpoint(self.listen, "admin.listen") if self.enabled else None

    def __repr__(self) -> str:
        return f"AdminTable(listen={self.listen!r}{'' if self.enabled else ', enabled=False'})"


class WildcardTable(Table, frozen=True):
    delimiter: Annotated[
        str, key("What divides the words of an address: one character.", source=_ARTEMIS)
    ] = DOTS.delimiter
    any_words: Annotated[
        str, key("What stands for any number of words, also none: one character.", source=_ARTEMIS)
    ] = DOTS.any_words
    single_word: Annotated[str, key("What stands for one word: one character.", source=_ARTEMIS)] = (
        DOTS.single_word
    )
    enabled: Annotated[
        bool,
        key(
            "false: not in destinations, which are names of addresses then; a `match` is a pattern all the same.",
            source=_ARTEMIS,
        ),
    ] = True


class UserTable(Table, frozen=True):
    name: Annotated[str, key("The login.", kind="name")]
    password: Annotated[
        str | None,
        key(
            "What `stompbox user hash` prints; or plain text, which is warned about. Absent: login by client certificate only.",
            kind="password",
        ),
    ] = None
    groups: Annotated[tuple[str, ...], key("Groups that a [[permission]] can name.")] = ()

    def __repr__(self) -> str:
        return f"UserTable(name={self.name!r}, groups={self.groups!r})"


class PermissionTable(Table, frozen=True):
    match: Annotated[
        str,
        key("Addresses this is for. Of all that match, the most specific one alone decides.", kind="match"),
    ]
    send: Annotated[tuple[str, ...] | None, key("Groups that may send.", source=_ARTEMIS)] = None
    consume: Annotated[
        tuple[str, ...] | None, key("Groups that may subscribe and acknowledge.", source=_ARTEMIS)
    ] = None
    browse: Annotated[
        tuple[str, ...] | None, key("Groups that may look without taking.", source=_ARTEMIS)
    ] = None
    create_address: Annotated[
        tuple[str, ...] | None,
        key("Groups that may make the address, or give it another kind, by using it too.", source=_ARTEMIS),
    ] = None
    delete_address: Annotated[
        tuple[str, ...] | None, key("Groups that may delete the address (admin interface).", source=_ARTEMIS)
    ] = None
    create_durable_queue: Annotated[
        tuple[str, ...] | None, key("Groups that may make queues and durable subscriptions.", source=_ARTEMIS)
    ] = None
    delete_durable_queue: Annotated[
        tuple[str, ...] | None, key("Groups that may delete them.", source=_ARTEMIS)
    ] = None
    create_non_durable_queue: Annotated[
        tuple[str, ...] | None,
        key("Groups that may make plain topic subscriptions and temporary destinations.", source=_ARTEMIS),
    ] = None
    delete_non_durable_queue: Annotated[
        tuple[str, ...] | None,
        key(
            "Groups that may delete queues that do not outlive a restart (admin interface).", source=_ARTEMIS
        ),
    ] = None
    manage: Annotated[
        tuple[str, ...] | None, key("Groups that may purge, move, pause and the like.", source=_ARTEMIS)
    ] = None

    def grants(self) -> Grants:
        """Groups by right, for the rights that this table names."""
        named = {right: getattr(self, right.replace("-", "_")) for right in RIGHTS}
        return {right: frozenset(groups) for right, groups in named.items() if groups is not None}


RIGHTS: Final = tuple(name.replace("_", "-") for name in PermissionTable.__struct_fields__ if name != "match")


class QueueTable(Table, frozen=True):
    name: Annotated[str, key("The queue.", kind="name")]
    routing_type: Annotated[
        RoutingType | None,
        key("Kind; unset: the address's, or `default-queue-routing-type`.", source=_ARTEMIS),
    ] = None
    filter: Annotated[
        str | None, key("A selector; what it does not match is not routed here.", source=_ARTEMIS)
    ] = None
    durable: Annotated[bool, key("The queue outlives a restart.", source=_ARTEMIS)] = True
    enabled: Annotated[bool, key("false: nothing is routed to it.", source=_ARTEMIS)] = True
    max_consumers: (
        Annotated[int, key("As `default-max-consumers`.", "consumers", source=_ARTEMIS, at_least=-1)] | None
    ) = None
    consumers_before_dispatch: (
        Annotated[
            int, key("As `default-consumers-before-dispatch`.", "consumers", source=_ARTEMIS, at_least=0)
        ]
        | None
    ) = None
    delay_before_dispatch: (
        Annotated[int, key("As `default-delay-before-dispatch`.", "ms", source=_ARTEMIS, at_least=-1)] | None
    ) = None
    exclusive: Annotated[bool | None, key("As `default-exclusive-queue`.", source=_ARTEMIS)] = None
    purge_on_no_consumers: Annotated[
        bool | None, key("As `default-purge-on-no-consumers`.", source=_ARTEMIS)
    ] = None
    non_destructive: Annotated[bool | None, key("As `default-non-destructive`.", source=_ARTEMIS)] = None
    last_value: Annotated[bool | None, key("As `default-last-value-queue`.", source=_ARTEMIS)] = None
    last_value_key: Annotated[str | None, key("As `default-last-value-key`.", source=_ARTEMIS)] = None
    ring_size: (
        Annotated[int, key("As `default-ring-size`.", "messages", source=_ARTEMIS, at_least=-1)] | None
    ) = None
    group_rebalance: Annotated[bool | None, key("As `default-group-rebalance`.", source=_ARTEMIS)] = None
    group_rebalance_pause_dispatch: Annotated[
        bool | None, key("As `default-group-rebalance-pause-dispatch`.", source=_ARTEMIS)
    ] = None
    group_buckets: (
        Annotated[int, key("As `default-group-buckets`.", "buckets", source=_ARTEMIS, at_least=-1)] | None
    ) = None
    group_first_key: Annotated[str | None, key("As `default-group-first-key`.", source=_ARTEMIS)] = None


class AddressTable(Table, frozen=True):
    name: Annotated[str, key("The address.", kind="address")]
    routing_types: Annotated[
        tuple[RoutingType, ...], key("Kinds; none: `default-address-routing-type`.", source=_ARTEMIS)
    ] = ()
    queues: Annotated[tuple[QueueTable, ...], key("[[address.queue]]: its queues.")] = field(
        default=(), name="queue"
    )


class DivertTable(Table, frozen=True):
    name: Annotated[str, key("The divert.", kind="name")]
    address: Annotated[
        str, key("Whose messages; also a pattern: `*` one word, `#` any number of words.", kind="match")
    ]
    forwarding_address: Annotated[str, key("Where to.", kind="address")]
    filter: Annotated[str | None, key("A selector; only what it matches.", source=_ARTEMIS)] = None
    exclusive: Annotated[bool, key("true: matching messages go only there.", source=_ARTEMIS)] = False
    routing_type: Annotated[
        DivertRouting,
        key("Kind of the copy: PASS keeps it, STRIP leaves it to the forwarding address.", source=_ARTEMIS),
    ] = DivertRouting.STRIP
    transformer: Annotated[
        str | None,
        key("`module:function` that sees and may change each copy.", kind="module", source=_ARTEMIS),
    ] = None


class VirtualHostTable(Table, frozen=True):
    name: Annotated[str, key("What a CONNECT's `host` says.", kind="name")]
    default: Annotated[bool, key("Takes clients whose `host` is unknown or missing.")] = False
    users: Annotated[tuple[str, ...] | None, key("Names of users that may use it; absent: all.")] = None
    address_settings: Annotated[
        tuple[AddressSetting, ...], key("[[virtual-host.address-setting]]: in place of the top-level ones.")
    ] = field(default=(), name="address-setting")
    permissions: Annotated[
        tuple[PermissionTable, ...], key("[[virtual-host.permission]]: in place of the top-level ones.")
    ] = field(default=(), name="permission")
    addresses: Annotated[
        tuple[AddressTable, ...], key("[[virtual-host.address]]: made at start in this host.")
    ] = field(default=(), name="address")
    diverts: Annotated[tuple[DivertTable, ...], key("[[virtual-host.divert]]: diverts of this host.")] = (
        field(default=(), name="divert")
    )

    @property
    def space(self) -> str:
        """What the names of its addresses begin with inside the broker (spaces.py)."""
        return "" if self.default else space_of_host(self.name)
