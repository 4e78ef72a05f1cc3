"""Settings of addresses: every key of an [[address-setting]], its default and source, and how they combine for one address.

Decides the keys (Artemis's names where Artemis has the setting) and the inheritance: the most specific pattern wins key by key, what
it leaves unset comes from less specific ones, then from the defaults. Does not decide what the broker does with a value.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import UNSET, Struct, UnsetType, defstruct
from msgspec.structs import replace

from stompbox.config.fields import Word, key
from stompbox.config.matching import DOTS, PatternTable, Wildcards

# characters of an address; of longer ones they are worked out each time: a client can make up any number
LONGEST_CACHED: Final = 512
# resolved settings kept; beyond, the oldest answer is forgotten and worked out again when asked
CACHED_ADDRESSES: Final = 10_000


class RoutingType(Word):
    ANYCAST = "ANYCAST"
    MULTICAST = "MULTICAST"


class AddressFullPolicy(Word):
    PAGE = "PAGE"
    BLOCK = "BLOCK"
    FAIL = "FAIL"
    DROP = "DROP"


class PageFullPolicy(Word):
    FAIL = "FAIL"
    DROP = "DROP"


class DiskFullPolicy(Word):
    FAIL = "FAIL"
    BLOCK = "BLOCK"


class SlowConsumerPolicy(Word):
    NOTIFY = "NOTIFY"
    KILL = "KILL"


class SlowConsumerUnit(Word):
    MESSAGES_PER_SECOND = "MESSAGES_PER_SECOND"
    MESSAGES_PER_MINUTE = "MESSAGES_PER_MINUTE"
    MESSAGES_PER_HOUR = "MESSAGES_PER_HOUR"
    MESSAGES_PER_DAY = "MESSAGES_PER_DAY"


class DeletePolicy(Word):
    OFF = "OFF"
    FORCE = "FORCE"


_ARTEMIS: Final = "Artemis"
_OWN: Final = "Stompbox"


class AddressSettings(Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """All settings of one address, resolved. Each key says its unit; a default's source is Artemis's manual or Stompbox's design."""

    # What an address is, and when it comes and goes.
    default_address_routing_type: Annotated[
        RoutingType,
        key(
            "What a bare destination name makes when nothing else says.",
            source="Stompbox (Artemis: MULTICAST)",
        ),
    ] = RoutingType.ANYCAST
    default_queue_routing_type: Annotated[
        RoutingType,
        key("The same for a queue whose kind nothing says.", source="Stompbox (Artemis: MULTICAST)"),
    ] = RoutingType.ANYCAST
    auto_create_addresses: Annotated[
        bool, key("SEND and SUBSCRIBE make the address they name; else ERROR.", source=_ARTEMIS)
    ] = True
    auto_create_queues: Annotated[
        bool, key("SEND and SUBSCRIBE make the queue they need; else ERROR.", source=_ARTEMIS)
    ] = True
    auto_delete_addresses: Annotated[
        bool, key("Delete auto-created addresses that have no queue left.", source=_ARTEMIS)
    ] = True
    auto_delete_addresses_delay: Annotated[
        int, key("How long an address stays after that.", "ms", source=_ARTEMIS, at_least=0)
    ] = 0
    auto_delete_addresses_skip_usage_check: Annotated[
        bool, key("Delete an address that never had a queue, too.", source=_ARTEMIS)
    ] = False
    auto_delete_queues: Annotated[
        bool,
        key("Delete auto-created queues without consumers and with few enough messages.", source=_ARTEMIS),
    ] = True
    auto_delete_created_queues: Annotated[
        bool, key("The same for queues made on purpose.", source=_ARTEMIS)
    ] = False
    auto_delete_queues_delay: Annotated[
        int, key("How long a queue stays after that.", "ms", source=_ARTEMIS, at_least=0)
    ] = 0
    auto_delete_queues_message_count: Annotated[
        int,
        key("How many messages it may still hold; -1: any number.", "messages", source=_ARTEMIS, at_least=-1),
    ] = 0
    auto_delete_queues_skip_usage_check: Annotated[
        bool, key("Delete a queue that nobody ever used, too.", source=_ARTEMIS)
    ] = False
    config_delete_addresses: Annotated[
        DeletePolicy,
        key("FORCE deletes an [[address]] that a reload no longer finds in the file.", source=_ARTEMIS),
    ] = DeletePolicy.OFF
    config_delete_queues: Annotated[
        DeletePolicy, key("The same for an [[address.queue]].", source=_ARTEMIS)
    ] = DeletePolicy.OFF
    config_delete_diverts: Annotated[
        DeletePolicy, key("The same for a [[divert]]; OFF: it stays until the next start.", source=_ARTEMIS)
    ] = DeletePolicy.OFF

    # Persistence and retention.
    default_persistent: Annotated[
        bool,
        key(
            "What a SEND without `persistent` header is, on queues and durable subscriptions.",
            source="Stompbox (JMS)",
        ),
    ] = True
    retention_ms: Annotated[
        int,
        key(
            "Keep messages this long although consumed, as a stream that can be replayed; -1: no rule by age.",
            "ms",
            source=_OWN,
            at_least=-1,
        ),
    ] = -1
    retention_bytes: Annotated[
        int,
        key(
            "Keep up to this much of what was consumed; -1: no rule by size.",
            "bytes",
            source=_OWN,
            at_least=-1,
        ),
    ] = -1
    retention_messages: Annotated[
        int,
        key(
            "Keep up to this many of what was consumed; -1: no rule by count.",
            "messages",
            source=_OWN,
            at_least=-1,
        ),
    ] = -1
    retroactive_message_count: Annotated[
        int,
        key(
            "A new subscription first gets this many of the latest messages.",
            "messages",
            source=_ARTEMIS,
            at_least=0,
        ),
    ] = 0
    id_cache_size: Annotated[
        int,
        key(
            "Values of `_AMQ_DUPL_ID` remembered to drop duplicates; unset: the top-level key.",
            "values",
            source=_ARTEMIS,
            at_least=0,
        ),
    ] = 20_000
    enable_ingress_timestamp: Annotated[
        bool, key("MESSAGE carries `ingress-timestamp`, when the broker received it.", source=_ARTEMIS)
    ] = False

    # Size and paging.
    max_size_bytes: Annotated[
        int,
        key(
            "What the address may hold before `address-full-policy` acts: with PAGE messages in memory, else all that are not consumed; "
            "-1: only `global-max-size` counts. See limits.md.",
            "bytes",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = -1
    max_size_messages: Annotated[
        int, key("The same by count; -1: no limit.", "messages", source=_ARTEMIS, at_least=-1)
    ] = -1
    address_full_policy: Annotated[
        AddressFullPolicy,
        key(
            "PAGE to disk, BLOCK the producer's socket, FAIL the SEND with an ERROR, or DROP the message and count it.",
            source=_ARTEMIS,
        ),
    ] = AddressFullPolicy.PAGE
    disk_full_policy: Annotated[
        DiskFullPolicy,
        key(
            "Persistent messages when the disk is full: FAIL or BLOCK; unset: the top-level key.", source=_OWN
        ),
    ] = DiskFullPolicy.FAIL
    page_size_bytes: Annotated[
        int, key("How much is read from the disk at once.", "bytes", source=_ARTEMIS, at_least=1)
    ] = 10 * 1024 * 1024
    page_limit_bytes: Annotated[
        int,
        key(
            "What the address may hold, consumed by nobody yet, before `page-full-policy` acts; -1: no limit.",
            "bytes",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = -1
    page_limit_messages: Annotated[
        int, key("The same by count; -1: no limit.", "messages", source=_ARTEMIS, at_least=-1)
    ] = -1
    page_full_policy: Annotated[
        PageFullPolicy,
        key(
            "FAIL the SEND with an ERROR, or DROP the message and count it.",
            source="Stompbox (Artemis: none)",
        ),
    ] = PageFullPolicy.FAIL
    max_read_page_bytes: Annotated[
        int,
        key(
            "Paged messages that a queue holds in memory, unacknowledged ones included; -1: twice `page-size-bytes`.",
            "bytes",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = -1
    max_read_page_messages: Annotated[
        int, key("The same by count; -1: no limit.", "messages", source=_ARTEMIS, at_least=-1)
    ] = -1
    prefetch_page_bytes: Annotated[
        int,
        key(
            "Paged messages read ahead of the consumers; -1: `max-read-page-bytes`.",
            "bytes",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = -1
    prefetch_page_messages: Annotated[
        int, key("The same by count; -1: `max-read-page-messages`.", "messages", source=_ARTEMIS, at_least=-1)
    ] = -1

    # Expiry, failed deliveries, dead letters.
    expiry_address: Annotated[
        str | None,
        key(
            "Where expired messages go; none: they are dropped, counted, and the log says so.",
            kind="address",
            source=_ARTEMIS,
        ),
    ] = None
    auto_create_expiry_resources: Annotated[
        bool, key("Make the expiry address, and a queue on it for this address.", source=_ARTEMIS)
    ] = False
    expiry_queue_prefix: Annotated[str, key("How the name of that queue begins.", source=_ARTEMIS)] = "EXP."
    expiry_queue_suffix: Annotated[str, key("How the name of that queue ends.", source=_ARTEMIS)] = ""
    expiry_delay: Annotated[
        int,
        key(
            "Time to live of messages that have none; -1: they never expire.",
            "ms",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = -1
    min_expiry_delay: Annotated[
        int,
        key("Shorter times to live are raised to this; -1: no minimum.", "ms", source=_ARTEMIS, at_least=-1),
    ] = -1
    max_expiry_delay: Annotated[
        int,
        key("Longer ones, and none, are cut to this; -1: no maximum.", "ms", source=_ARTEMIS, at_least=-1),
    ] = -1
    no_expiry: Annotated[
        bool, key("Messages of this address never expire, whatever their sender says.", source=_ARTEMIS)
    ] = False
    dead_letter_address: Annotated[
        str | None,
        key(
            'Where messages go that failed too often; "": they are dropped, counted, and the log says so.',
            kind="address",
            source="Stompbox (Artemis: none)",
        ),
    ] = "DLQ"
    auto_create_dead_letter_resources: Annotated[
        bool, key("Make the dead letter address, and a queue on it for this address.", source=_ARTEMIS)
    ] = False
    dead_letter_queue_prefix: Annotated[str, key("How the name of that queue begins.", source=_ARTEMIS)] = (
        "DLQ."
    )
    dead_letter_queue_suffix: Annotated[str, key("How the name of that queue ends.", source=_ARTEMIS)] = ""
    send_to_dla_on_no_route: Annotated[
        bool, key("A message that no queue takes goes to the dead letter address.", source=_ARTEMIS)
    ] = False
    max_delivery_attempts: Annotated[
        int,
        key(
            "Failed deliveries of a message before it is a dead letter; -1: any number.",
            "deliveries",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = 10
    redelivery_delay: Annotated[
        int, key("Wait before the first redelivery.", "ms", source=_ARTEMIS, at_least=0)
    ] = 0
    redelivery_delay_multiplier: Annotated[
        float, key("Each further wait is this much longer.", "factor", source=_ARTEMIS, at_least=0.0)
    ] = 1.0
    redelivery_collision_avoidance_factor: Annotated[
        float,
        key(
            "Waits differ by up to this share, up or down, so that they do not coincide.",
            "share",
            source=_ARTEMIS,
            at_least=0.0,
            at_most=1.0,
        ),
    ] = 0.0
    max_redelivery_delay: Annotated[
        int, key("No wait is longer; -1: ten times `redelivery-delay`.", "ms", source=_ARTEMIS, at_least=-1)
    ] = -1

    # Queues and their consumers: what a queue gets that does not say otherwise itself.
    default_max_consumers: Annotated[
        int,
        key(
            "Consumers a queue takes, more get an ERROR; -1: any number.",
            "consumers",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = -1
    default_consumers_before_dispatch: Annotated[
        int,
        key(
            "A queue waits for this many consumers before it delivers.",
            "consumers",
            source=_ARTEMIS,
            at_least=0,
        ),
    ] = 0
    default_delay_before_dispatch: Annotated[
        int,
        key("But no longer than this after the first one; -1: for ever.", "ms", source=_ARTEMIS, at_least=-1),
    ] = -1
    default_exclusive_queue: Annotated[
        bool, key("One consumer gets everything; when it leaves, the next.", source=_ARTEMIS)
    ] = False
    default_purge_on_no_consumers: Annotated[
        bool, key("A queue is emptied when its last consumer leaves.", source=_ARTEMIS)
    ] = False
    default_non_destructive: Annotated[bool, key("Consuming does not remove messages.", source=_ARTEMIS)] = (
        False
    )
    default_last_value_queue: Annotated[
        bool, key("A queue keeps only the newest message per key.", source=_ARTEMIS)
    ] = False
    default_last_value_key: Annotated[
        str | None,
        key(
            "The header that is that key, and makes a queue a last-value one; none: `_AMQ_LVQ_NAME`.",
            source=_ARTEMIS,
        ),
    ] = None
    default_ring_size: Annotated[
        int,
        key(
            "A queue keeps the newest so many messages, older ones are dropped; -1: all.",
            "messages",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = -1
    default_group_rebalance: Annotated[
        bool, key("A new consumer makes message groups be shared out anew.", source=_ARTEMIS)
    ] = False
    default_group_rebalance_pause_dispatch: Annotated[
        bool,
        key(
            "Delivery stops until what is in flight is acknowledged, before groups change hands.",
            source=_ARTEMIS,
        ),
    ] = False
    default_group_buckets: Annotated[
        int,
        key(
            "Groups are hashed into so many buckets; -1: each group for itself.",
            "buckets",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = -1
    default_group_first_key: Annotated[
        str | None,
        key("A header set to true on the first message that a consumer gets of a group.", source=_ARTEMIS),
    ] = None
    slow_consumer_threshold: Annotated[
        int,
        key("A consumer below this rate is slow; -1: nobody is.", "see unit", source=_ARTEMIS, at_least=-1),
    ] = -1
    slow_consumer_threshold_measurement_unit: Annotated[
        SlowConsumerUnit, key("The unit of that rate.", source=_ARTEMIS)
    ] = SlowConsumerUnit.MESSAGES_PER_SECOND
    slow_consumer_policy: Annotated[
        SlowConsumerPolicy, key("NOTIFY says so, KILL closes the connection.", source=_ARTEMIS)
    ] = SlowConsumerPolicy.NOTIFY
    slow_consumer_check_period: Annotated[
        int, key("How often it is looked at.", "s", source=_ARTEMIS, at_least=1)
    ] = 5
    offline_durable_subscription_timeout: Annotated[
        int,
        key(
            "A durable subscription without a subscriber for this long is deleted; -1: never.",
            "ms",
            source="ActiveMQ Classic",
            at_least=-1,
        ),
    ] = -1

    # Looking at it.
    enable_metrics: Annotated[
        bool, key("The address and its queues have metrics of their own.", source=_ARTEMIS)
    ] = True
    management_browse_page_size: Annotated[
        int,
        key(
            "Messages that the admin interface shows of a queue at a time, at most.",
            "messages",
            source=_ARTEMIS,
            at_least=1,
        ),
    ] = 200

    @property
    def is_last_value(self) -> bool:
        """Queues of this address keep one message per key unless they say otherwise."""
        return self.default_last_value_queue or self.default_last_value_key is not None


if TYPE_CHECKING:

    class AddressSetting(Struct, frozen=True, kw_only=True):
        """One [[address-setting]]: a pattern, and of the keys of `AddressSettings` those that it sets (the others are UNSET)."""

        match: str

else:
    _KEYS: Final = AddressSettings.__annotations__
    AddressSetting = defstruct(
        "AddressSetting",
        [
            (
                "match",
                Annotated[
                    str, key("Addresses this is for: `*` one word, `#` any number of words.", kind="match")
                ],
            ),
            *((name, hint | UnsetType, UNSET) for name, hint in _KEYS.items()),
        ],
        frozen=True,
        kw_only=True,
        rename="kebab",
        forbid_unknown_fields=True,
        repr_omit_defaults=True,
        module=__name__,
    )


def given(setting: AddressSetting) -> dict[str, Any]:
    """The keys that one [[address-setting]] sets, by attribute name."""
    values = {name: getattr(setting, name) for name in AddressSettings.__struct_fields__}
    return {name: value for name, value in values.items() if value is not UNSET}


class AddressSettingsTable:
    """The settings of any address: `resolve` combines what matches. Answers are kept, equal ones are one object."""

    def __init__(
        self,
        settings: Iterable[AddressSetting] = (),
        defaults: AddressSettings | None = None,
        wildcards: Wildcards = DOTS,
    ) -> None:
        self._defaults: Final = defaults or AddressSettings()
        self._table: Final = PatternTable(
            ((setting.match, given(setting)) for setting in settings), wildcards
        )
        self._combined: Final[dict[tuple[int, ...], AddressSettings]] = {(): self._defaults}
        self._known: Final[dict[str, AddressSettings]] = {}

    def __repr__(self) -> str:
        return f"<AddressSettingsTable of {len(self._table)}, {len(self._known)} addresses known>"

    def resolve(self, address: str) -> AddressSettings:
        known = self._known.get(address)
        return known if known is not None else self._remember(address)

    def forget(self, address: str) -> None:
        """Its answer is kept no longer: ten thousand names of addresses that are gone would keep memory that lies all around them."""
        self._known.pop(address, None)

    def _remember(self, address: str) -> AddressSettings:
        ranks = self._table.ranks(address)
        settings = self._combined.get(ranks)
        if settings is None:
            changes: dict[str, Any] = {}
            for rank in ranks:
                changes |= self._table.value(rank)
            settings = replace(self._defaults, **changes)
            _make_room(self._combined)
            self._combined[ranks] = settings
        if len(address) <= LONGEST_CACHED:
            _make_room(self._known)
            self._known[address] = settings
        return settings


def _make_room(answers: dict[Any, AddressSettings]) -> None:
    if len(answers) >= CACHED_ADDRESSES:
        del answers[next(iter(answers))]
