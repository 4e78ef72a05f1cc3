"""Kinds of queues: what an address setting, or the queue's own table in the configuration, makes of a queue.

Decides which rules a queue has, key by key: its own table, then the settings of its address. What a rule does is found in
queue.py (consumers), admission.py (ring, last value, purge), browsing.py (non-destructive) and dispatch.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from stompbox.config import QueueTable
from stompbox.config.settings import AddressSettings
from stompbox.message import ANYCAST, FOR_ONE, MULTICAST

T = TypeVar("T")
LAST_VALUE_KEY: Final = "_AMQ_LVQ_NAME"  # Artemis: the header that is the key where no other is named


class Kind(Enum):
    ANYCAST = "anycast"  # competing consumers, stored
    DURABLE = "durable"  # a durable subscription, stored
    TOPIC = "topic"  # a plain subscription, gone with its connection
    STREAM = "stream"  # a reader of the log, gone with its connection
    GROUP = "group"  # a position that holds retention back; nothing is delivered
    READER = "reader"  # a reader of the log whose position is stored by name (readers.py)
    BROWSER = "browser"  # copies of what another queue holds (browsing.py), gone with its connection


ROUTING: Final = {Kind.ANYCAST: ANYCAST, Kind.DURABLE: MULTICAST, Kind.TOPIC: MULTICAST}
TYPES: Final = MappingProxyType(
    {ANYCAST: "ANYCAST", MULTICAST: "MULTICAST", ANYCAST | MULTICAST: "ANYCAST and MULTICAST"}
)
# of the log, and told the offset of each message (fanout.py)
BY_OFFSET: Final = frozenset((Kind.STREAM, Kind.READER))
READS_THE_LOG: Final = frozenset((Kind.STREAM, Kind.GROUP, Kind.READER, Kind.BROWSER))


def is_for(kind: Kind, routing: int, number: int) -> bool:
    """Whether what was sent with this routing is for a queue of this kind, with this number (`Cursor.number`), at all."""
    if kind in READS_THE_LOG:
        return True
    if not routing & ROUTING[kind]:
        return False
    only = routing >> FOR_ONE  # among the anycast queues, where the routing has these
    return not only or only == number or (kind is not Kind.ANYCAST and bool(routing & ANYCAST))


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that one queue obeys; the defaults are a queue without any."""

    is_enabled: bool = True  # False: nothing is routed to it
    max_consumers: int = -1  # -1: any number
    consumers_before_dispatch: int = 0
    delay_before_dispatch: int = -1  # ms after the first consumer; -1: for ever
    is_exclusive: bool = False  # one consumer gets everything
    is_purged: bool = False  # emptied when its last consumer leaves, and nothing comes in before the next
    is_non_destructive: bool = False
    last_value_key: str = ""  # the header that is the key; empty: no last-value queue
    ring_size: int = -1  # messages; -1: any number
    group_rebalance: bool = False
    group_pause: bool = False  # group-rebalance-pause-dispatch
    group_buckets: int = -1  # -1: each group for itself, 0: no groups
    group_first_key: str = ""  # the header that is true on the first message of a group that a consumer gets

    @property
    def has_admission(self) -> bool:
        """Something is to be done as messages arrive."""
        return not self.is_enabled or self.is_purged or bool(self.last_value_key) or self.ring_size >= 0

    @property
    def chooses(self) -> bool:
        """Not every consumer gets messages at any time."""
        return self.is_exclusive or self.consumers_before_dispatch > 0


Arguments = Mapping[str, Any]  # by attribute name of config.AddressSettings
LIFE: Final = "max_expiry_delay"


def applied(settings: AddressSettings, arguments: Arguments) -> AddressSettings:
    """The settings of an address as they are for a queue with these arguments."""
    changes = dict(arguments)
    if LIFE in changes:
        changes |= _no_longer(settings, changes[LIFE])
    return replace(settings, **changes)


def _no_longer(settings: AddressSettings, most: int) -> dict[str, int]:
    """Times to live of at most so many ms."""
    highest = min(most, settings.max_expiry_delay) if settings.max_expiry_delay >= 0 else most
    given = min(highest, settings.expiry_delay) if settings.expiry_delay >= 0 else -1
    return {
        LIFE: highest,
        "expiry_delay": given,
        "min_expiry_delay": min(settings.min_expiry_delay, highest),
    }


PLAIN: Final = Rules()


def rules_of(settings: AddressSettings, table: QueueTable | None = None) -> Rules:
    """The rules of a queue: `settings` are its address's, `table` its own."""

    def of(name: str, default: T) -> T:
        own: T | None = getattr(table, name, None)
        return own if own is not None else default

    rules = Rules(
        is_enabled=table is None or table.enabled,
        max_consumers=of("max_consumers", settings.default_max_consumers),
        consumers_before_dispatch=of("consumers_before_dispatch", settings.default_consumers_before_dispatch),
        delay_before_dispatch=of("delay_before_dispatch", settings.default_delay_before_dispatch),
        is_exclusive=of("exclusive", settings.default_exclusive_queue),
        is_purged=of("purge_on_no_consumers", settings.default_purge_on_no_consumers),
        is_non_destructive=of("non_destructive", settings.default_non_destructive),
        last_value_key=_last_value_key(settings, table),
        ring_size=of("ring_size", settings.default_ring_size),
        group_rebalance=of("group_rebalance", settings.default_group_rebalance),
        group_pause=of("group_rebalance_pause_dispatch", settings.default_group_rebalance_pause_dispatch),
        group_buckets=of("group_buckets", settings.default_group_buckets),
        group_first_key=of("group_first_key", settings.default_group_first_key) or "",
    )
    return PLAIN if rules == PLAIN else rules


def _last_value_key(settings: AddressSettings, table: QueueTable | None) -> str:
    """`last-value = false` on the queue wins over whatever else names a key."""
    own, key = (None, None) if table is None else (table.last_value, table.last_value_key)
    if own is False:
        return ""
    if key is None:
        key = settings.default_last_value_key
    return key or (LAST_VALUE_KEY if own or settings.default_last_value_queue else "")
