"""The configuration as a whole: the keys outside of tables, the tables, and what is found with all of it at hand.

Decides names, types, units, ranges and defaults of the keys that stand outside of tables; those of tables are tables.py. Reading files, the
environment and flags is sources.py; what spans keys is checks.py.
"""

from typing import Annotated, Any, Final

from msgspec import field
from msgspec.structs import replace

from stompbox.config.cluster import ClusterTable
from stompbox.config.fields import AUTO, key
from stompbox.config.listener import Listener
from stompbox.config.matching import PatternTable, Wildcards
from stompbox.config.settings import AddressSetting, AddressSettings, AddressSettingsTable, DiskFullPolicy
from stompbox.config.tables import (
    DEFAULT_LISTENER,
    RIGHTS,
    AddressTable,
    AdminTable,
    DivertTable,
    Grants,
    ListenerTable,
    LogFormat,
    LogLevel,
    PermissionTable,
    Table,
    UnknownHeaderPolicy,
    UserTable,
    VirtualHostTable,
    WildcardTable,
)
from stompbox.config.tracing import TracingTable

_ARTEMIS: Final = "Artemis"
_OWN: Final = "Stompbox"


class Configuration(Table, frozen=True):
    """The whole configuration of a broker. Made by `load`; the defaults alone are what `stompbox serve` uses without file."""

    data: Annotated[str, key("Folder of the data; made if it is not there, its owner's alone.")] = (
        "stompbox-data"
    )
    memory: Annotated[
        bool, key("true: no data folder. What must be paged goes to a temporary file that is gone at exit.")
    ] = False
    disk_full_policy: Annotated[
        DiskFullPolicy,
        key(
            "Persistent messages when the disk is full: FAIL with an ERROR, or BLOCK the producer.",
            source="Stompbox (Artemis: BLOCK)",
        ),
    ] = DiskFullPolicy.FAIL
    min_disk_free: Annotated[
        int, key("Less free space than this counts as a full disk.", "bytes", source=_OWN, at_least=0)
    ] = 64 * 1024 * 1024
    max_disk_usage: Annotated[
        int,
        key(
            "More of the disk in use than this counts as full; -1: no rule.",
            "percent",
            source="Stompbox (Artemis: 90)",
            at_least=-1,
            at_most=100,
        ),
    ] = -1
    disk_scan_period: Annotated[
        int, key("How often free space is looked at.", "ms", source=_ARTEMIS, at_least=100)
    ] = 5000
    global_max_size: Annotated[
        int,
        key(
            "Messages in memory, all addresses together, before their `address-full-policy` acts; -1: no limit.",
            "bytes",
            source=_OWN,
            at_least=-1,
        ),
    ] = 128 * 1024 * 1024
    max_client_memory: Annotated[
        int,
        key(
            "All that is kept for connections together, beside messages; beyond it the largest connection of the user that has most is "
            "closed. -1: no limit.",
            "bytes", source=_OWN, at_least=-1,
        ),
    ] = 256 * 1024 * 1024  # fmt: skip
    global_max_messages: Annotated[
        int, key("The same by count; -1: no limit.", "messages", source=_ARTEMIS, at_least=-1)
    ] = -1
    max_commit_delay: Annotated[
        int,
        key("What nobody waits for is committed at the latest after this.", "ms", source=_OWN, at_least=0),
    ] = 20
    max_staged_bytes: Annotated[
        int,
        key(
            "Messages that sinks may have staged and not published, all together; on disk.",
            "bytes",
            source=_OWN,
            at_least=0,
        ),
    ] = 32 * 1024 * 1024 * 1024
    max_staged_bytes_per_user: Annotated[
        int,
        key(
            "The same, of the sinks of one user. An attempt counts for 64 KiB at least.",
            "bytes",
            source=_OWN,
            at_least=0,
        ),
    ] = 16 * 1024 * 1024 * 1024
    staged_timeout: Annotated[
        int,
        key(
            "What is staged goes when nothing was staged or published of its batch for so long.",
            "ms",
            source=_OWN,
            at_least=1,
        ),
    ] = 3_600_000
    max_sinks_per_user: Annotated[
        int,
        key("Sinks whose last batch is remembered. Beyond it a new one is refused: none is forgotten for another.", "sinks", source=_OWN,
            at_least=0),
    ] = 10_000  # fmt: skip
    max_scheduled_bytes: Annotated[
        int,
        key(
            "Messages that are sent again and again (`AMQ_SCHEDULED_CRON`, `_PERIOD`), in all.",
            "bytes",
            source=_OWN,
            at_least=0,
        ),
    ] = 64 * 1024 * 1024
    persist_delivery_count_before_delivery: Annotated[
        bool, key("Delivery counts are stored before delivery, not after a failed one.", source=_ARTEMIS)
    ] = False
    id_cache_size: Annotated[
        int, key("Values of `_AMQ_DUPL_ID` remembered per address.", "values", source=_ARTEMIS, at_least=0)
    ] = 20_000
    max_id_cache_memory: Annotated[
        int,
        key("Memory of them, all addresses together; beyond it the address with most forgets its oldest. -1: no limit.", "bytes",
            source=_OWN, at_least=-1),
    ] = 32 * 1024 * 1024  # fmt: skip
    max_retained_memory: Annotated[
        int,
        key(
            "Retained messages, all topics together; one more is refused. -1: no limit.",
            "bytes",
            source=_OWN,
            at_least=-1,
        ),
    ] = 32 * 1024 * 1024
    max_selector_cache_memory: Annotated[
        int,
        key("Compiled selectors that are kept for the next SUBSCRIBE; beyond it the user with most loses its oldest.", "bytes",
            source=_OWN, at_least=0),
    ] = 8 * 1024 * 1024  # fmt: skip
    persist_id_cache: Annotated[bool, key("They outlive a restart.", source=_ARTEMIS)] = True
    transaction_timeout: Annotated[
        int, key("A transaction open for longer is aborted; -1: never.", "ms", source=_ARTEMIS, at_least=-1)
    ] = 300_000
    graceful_shutdown_timeout: Annotated[
        int,
        key(
            "How long a stopping broker waits for what its clients have in flight.",
            "ms",
            source=_OWN,
            at_least=0,
        ),
    ] = 5000
    populate_validated_user: Annotated[
        bool, key("MESSAGE carries the sender's login as `JMSXUserID`.", source=_ARTEMIS)
    ] = False
    reject_empty_validated_user: Annotated[
        bool, key("A SEND from a nameless client is refused.", source=_ARTEMIS)
    ] = False
    authentication_cache_size: Annotated[
        int,
        key("Users whose last good passcode is remembered, hashed.", "users", source=_ARTEMIS, at_least=0),
    ] = 1000
    authorization_cache_size: Annotated[
        int,
        key(
            "Answers about rights that are remembered.",
            "answers",
            source="Stompbox (Artemis: 1000)",
            at_least=0,
        ),
    ] = 10_000
    failed_login_delay: Annotated[
        int,
        key(
            "Wait before the login after a failed one of the same client address; doubles with each.",
            "ms",
            source=_OWN,
            at_least=0,
        ),
    ] = 250
    max_failed_login_delay: Annotated[int, key("No such wait is longer.", "ms", source=_OWN, at_least=0)] = (
        5000
    )
    max_failed_logins: Annotated[
        int,
        key(
            "After so many within the window, logins from that address are refused; 0: no limit.",
            "logins",
            source=_OWN,
            at_least=0,
        ),
    ] = 20
    max_failed_logins_per_user: Annotated[
        int,
        key(
            "After so many as one user within the window, from wherever, addresses that have failed must wait; 0: no limit.",
            "logins", source=_OWN, at_least=0,
        ),
    ] = 100  # fmt: skip
    failed_login_window: Annotated[
        int, key("Time in which so many failures are forgotten.", "ms", source=_OWN, at_least=1)
    ] = 300_000
    login_threads: Annotated[
        int,
        key(
            "Passcodes that are verified against argon2 hashes at a time.", "threads", source=_OWN, at_least=1
        ),
    ] = 2
    max_login_memory: Annotated[
        int,
        key(
            "What argon2 may have at a time; a hash that needs more is refused.",
            "bytes",
            source=_OWN,
            at_least=1,
        ),
    ] = 256 * 1024 * 1024
    max_waiting_logins: Annotated[
        int,
        key(
            "Logins that wait to be verified; beyond, the address with most of them gets an ERROR.",
            "logins",
            source=_OWN,
            at_least=1,
        ),
    ] = 1000
    max_turn_time: Annotated[
        int,
        key(
            "Work of one turn of the event loop; what a client causes beyond it waits behind others.",
            "ms",
            source=_OWN,
            at_least=1,
        ),
    ] = 1
    max_turn_frames: Annotated[
        int,
        key(
            "Frames of one client, runs of equal ones as one, that are obeyed in one turn.",
            "frames",
            source=_OWN,
            at_least=1,
        ),
    ] = 1000
    fronts: Annotated[
        int,
        key(
            "Processes that have the clients' sockets; `auto`: one for each core but one. 0: none, all is one process. See fronts.md.",
            "processes", source=_OWN, at_least=-1, at_most=256, kind="auto",
        ),
    ] = 0  # fmt: skip
    front_timeout: Annotated[
        int,
        key(
            "A front that does not answer for so long is killed, and another one started.",
            "ms",
            source=_OWN,
            at_least=1000,
        ),
    ] = 10_000
    max_refusals_logged: Annotated[
        int,
        key(
            "Refused frames and connections in the log, per minute, and as many lines about full addresses; one line counts the others.",
            "lines",
            source=_OWN,
            at_least=0,
        ),
    ] = 600
    connection_ttl_override: Annotated[
        int,
        key(
            "The `connectionTtl` of listeners whose URL gives none; -1: their default.",
            "ms",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = -1
    unknown_header_policy: Annotated[
        UnknownHeaderPolicy,
        key(
            "Headers of other brokers that ask for what there is not here: ERROR names them, LOG passes them, with a WARNING.",
            source=_OWN,
        ),
    ] = UnknownHeaderPolicy.ERROR
    management_address: Annotated[
        str | None,
        key(
            "Messages sent there ask of the broker, its addresses and queues, and are answered, for those with the right `manage`; none: "
            "there is no such address.",
            kind="address", source="Stompbox (Artemis: `activemq.management`)",
        ),
    ] = None  # fmt: skip
    management_notification_address: Annotated[
        str | None,
        key(
            "Where messages tell of connections, subscriptions, addresses, queues and refusals, to those with the right `manage` on it; "
            "none: nowhere.",
            kind="address", source="Stompbox (Artemis: `activemq.notifications`)",
        ),
    ] = None  # fmt: skip
    log_level: Annotated[LogLevel, key("What is logged.")] = LogLevel.INFO
    log_format: Annotated[LogFormat, key("How it is written: lines of text, or one JSON object a line.")] = (
        LogFormat.TEXT
    )
    listeners: Annotated[tuple[ListenerTable, ...], key("[[listener]]: where clients connect.")] = field(
        default=(ListenerTable(url=DEFAULT_LISTENER),), name="listener"
    )
    admin: Annotated[AdminTable, key("[admin]: console, API and metrics.")] = AdminTable()
    cluster: Annotated[ClusterTable, key("[cluster]: several nodes that share a log. See cluster.md.")] = (
        ClusterTable()
    )
    tracing: Annotated[TracingTable, key("[tracing]: spans of OpenTelemetry. See howto/tracing.md.")] = (
        TracingTable()
    )
    wildcard_addresses: Annotated[
        WildcardTable, key("[wildcard-addresses]: how patterns of addresses are written.")
    ] = WildcardTable()
    literal_match_markers: Annotated[
        str,
        key(
            "Two characters, such as `()`: a `match` between them is the name of one address; empty: none.",
            source=_ARTEMIS,
        ),
    ] = ""
    users: Annotated[tuple[UserTable, ...], key("[[user]]: who may log in; none: anyone, from loopback.")] = (
        field(default=(), name="user")
    )
    permissions: Annotated[
        tuple[PermissionTable, ...], key("[[permission]]: who may do what; none: every user everything.")
    ] = field(default=(), name="permission")
    address_settings: Annotated[
        tuple[AddressSetting, ...], key("[[address-setting]]: how addresses behave.")
    ] = field(default=(), name="address-setting")
    addresses: Annotated[tuple[AddressTable, ...], key("[[address]]: made at start.")] = field(
        default=(), name="address"
    )
    diverts: Annotated[tuple[DivertTable, ...], key("[[divert]]: copies of messages to another address.")] = (
        field(default=(), name="divert")
    )
    virtual_hosts: Annotated[
        tuple[VirtualHostTable, ...], key("[[virtual-host]]: separate sets of addresses.")
    ] = field(default=(), name="virtual-host")

    def listening(self) -> list[Listener]:
        """The listeners, with what is said for all of them."""
        return [table.parse(self.connection_ttl_override) for table in self.listeners]

    def wildcards(self) -> Wildcards:
        """The syntax of patterns, in matches of the configuration and in destinations."""
        table = self.wildcard_addresses
        return Wildcards(
            table.delimiter, table.any_words, table.single_word, table.enabled, self.literal_match_markers
        )

    def settings_of(self, host: VirtualHostTable | None = None) -> AddressSettingsTable:
        """The address settings of a virtual host: its own in place of the top-level ones; of none: of all spaces together."""
        defaults = AddressSettings(id_cache_size=self.id_cache_size, disk_full_policy=self.disk_full_policy)
        if host is not None:
            return AddressSettingsTable(
                host.address_settings or self.address_settings, defaults, self.wildcards()
            )
        placed = [
            replace(setting, match=space + setting.match)
            for space, one in self._spaces()
            for setting in (one and one.address_settings) or self.address_settings
        ]
        return AddressSettingsTable(placed, defaults, self.wildcards())

    def grants_of(self, host: VirtualHostTable | None = None) -> PatternTable[Grants] | None:
        """Groups by right, by address pattern, for `security.Permissions`; None when there is no [[permission]] at all. As above."""
        if host is not None:
            permissions = host.permissions or self.permissions
            granted = [(table.match, table.grants()) for table in permissions]
            return PatternTable(granted, self.wildcards()) if permissions else None
        if not (self.permissions or any(one.permissions for one in self.virtual_hosts)):
            return None
        placed: list[tuple[str, Grants]] = []
        for space, one in self._spaces():
            permissions = (one and one.permissions) or self.permissions
            placed += [(space + table.match, table.grants()) for table in permissions]
            if not permissions:
                placed.append(
                    (space + self.wildcard_addresses.any_words, dict.fromkeys(RIGHTS, frozenset("*")))
                )
        return PatternTable(placed, self.wildcards())

    def made_of(self, host: VirtualHostTable) -> tuple[list[AddressTable], list[DivertTable]]:
        """Addresses and diverts of a virtual host, with the names that they have inside the broker."""
        space = host.space
        addresses = [
            replace(
                table,
                name=space + table.name,
                queues=tuple([replace(queue, name=space + queue.name) for queue in table.queues]),
            )
            for table in host.addresses
        ]
        diverts = [
            replace(table, address=space + table.address, forwarding_address=space + table.forwarding_address)
            for table in host.diverts
        ]
        return addresses, diverts

    def _spaces(self) -> list[tuple[str, VirtualHostTable | None]]:
        """Every space with the host that has it; the empty one is the default host's, or nobody's."""
        default = next((host for host in self.virtual_hosts if host.default), None)
        return [("", default), *((host.space, host) for host in self.virtual_hosts if not host.default)]


def schema() -> dict[str, Any]:
    """JSON Schema of the file. Sizes may be texts such as "512MiB", words may be written in any case."""
    from msgspec.json import schema as schema_of

    whole: dict[str, Any] = _widened(schema_of(Configuration))
    return whole


def _widened(node: Any) -> Any:
    if isinstance(node, list):
        return [_widened(item) for item in node]
    if not isinstance(node, dict):
        return node
    wide = {name: _widened(item) for name, item in node.items()}
    if wide.pop("x-auto", False):
        limits = {name: wide.pop(name) for name in ("type", "minimum", "maximum") if name in wide}
        wide["anyOf"] = [limits, {"const": AUTO}]
    if wide.get("x-unit") == "bytes" and wide.get("type") == "integer":
        limits = {name: wide.pop(name) for name in ("type", "minimum", "maximum") if name in wide}
        wide["anyOf"] = [limits, {"type": "string", "pattern": r"^-?[0-9]+ ?([KMGTkmgt]([iI]?[bB])?|[bB])?$"}]
    return wide
