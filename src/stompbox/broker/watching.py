"""Who waits for addresses and queues that are not there yet, and which names a pattern covers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompbox.config.matching import is_match

if TYPE_CHECKING:
    from stompbox.broker.address import Address
    from stompbox.broker.queue import Queue


@dataclass(slots=True, eq=False)
class Watcher:
    """A wildcard subscription waits for addresses (topics) and anycast queues that match."""

    words: list[str]
    on_address: Callable[[Address], None]
    on_queue: Callable[[Queue], None]
    owner: object = None


def is_reached(words: list[str], address: Address) -> bool:
    """Whether a wildcard reaches an address. Temporary ones it does not."""
    return not address.owner and is_match(words, address.name.split("."))


def is_named(pattern: str, name: str) -> bool:
    """Whether an address has this name, or one that the pattern covers."""
    return pattern == name or is_match(pattern.split("."), name.split("."))
