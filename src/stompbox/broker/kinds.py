"""Kinds of queues: what an address setting, or the queue's own table in the configuration, makes of a queue.

Decides which rules a queue has, key by key: its own table, then the settings of its address. What a rule does is found in
queue.py (consumers), intake.py (ring, last value, purge), browsing.py (non-destructive) and messagegroups.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from stompbox.message import ANYCAST, FOR_ONE, MULTICAST

LAST_VALUE_KEY: Final = "_AMQ_LVQ_NAME"  # Artemis: the header that is the key where no other is named


class Kind(Enum):
    ANYCAST = "anycast"  # competing consumers, stored
    DURABLE = "durable"  # a durable subscription, stored
    TOPIC = "topic"  # a plain subscription, gone with its connection
    STREAM = "stream"  # a reader of the log, gone with its connection
    GROUP = "group"  # a position that holds retention back; nothing is delivered
    READER = "reader"  # a reader of the log whose position is stored by name (positions.py)
    BROWSER = "browser"  # copies of what another queue holds (browsing.py), gone with its connection


ROUTING: Final = {Kind.ANYCAST: ANYCAST, Kind.DURABLE: MULTICAST, Kind.TOPIC: MULTICAST}
BY_OFFSET: Final = frozenset((Kind.STREAM, Kind.READER))  # of the log, and told the offset of each message (readers.py)
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
    """Of one queue; the defaults are a queue without any."""

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
    def has_intake(self) -> bool:
        """Something is to be done as messages arrive."""
        return not self.is_enabled or self.is_purged or bool(self.last_value_key) or self.ring_size >= 0

    @property
    def chooses(self) -> bool:
        """Not every consumer gets messages at any time."""
        return self.is_exclusive or self.consumers_before_dispatch > 0


PLAIN: Final = Rules()


def rules_of(settings: Any, table: Any = None) -> Rules:
    """The rules of a queue: `settings` are its address's (config.AddressSettings), `table` its own (config.QueueTable)."""

    def of(name: str, default: Any) -> Any:
        own = getattr(table, name, None)
        return own if own is not None else getattr(settings, f"default_{name}", default)

    rules = Rules(
        is_enabled=getattr(table, "enabled", True),
        max_consumers=of("max_consumers", -1),
        consumers_before_dispatch=of("consumers_before_dispatch", 0),
        delay_before_dispatch=of("delay_before_dispatch", -1),
        is_exclusive=_exclusive(settings, table),
        is_purged=of("purge_on_no_consumers", False),
        is_non_destructive=of("non_destructive", False),
        last_value_key=_last_value_key(of, table),
        ring_size=of("ring_size", -1),
        group_rebalance=of("group_rebalance", False),
        group_pause=of("group_rebalance_pause_dispatch", False),
        group_buckets=of("group_buckets", -1),
        group_first_key=of("group_first_key", None) or "",
    )
    return PLAIN if rules == PLAIN else rules


def _exclusive(settings: Any, table: Any) -> bool:
    own = getattr(table, "exclusive", None)
    return bool(own if own is not None else getattr(settings, "default_exclusive_queue", False))


def _last_value_key(of: Callable[[str, Any], Any], table: Any) -> str:
    """`last-value = false` on the queue wins over whatever else names a key."""
    key = of("last_value_key", None)
    if getattr(table, "last_value", None) is False:
        return ""
    is_wanted = getattr(table, "last_value", None) or of("last_value_queue", False)
    return key or (LAST_VALUE_KEY if is_wanted else "")
