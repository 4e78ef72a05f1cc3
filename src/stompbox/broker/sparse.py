"""Dictionaries that are empty in most of very many objects: those share one.

An empty dictionary takes 64 octets, and an address refers to a dozen. One that was used once keeps its room, and lies between what is
young: of very many addresses it would be what keeps whole arenas of Python's memory (server/trimming.py). So who has nothing refers to
NONE, has a dictionary of its own with the first entry, and gives that up with the last.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

NONE: Final[dict[Any, Any]] = {}  # of all who have nothing; nobody ever adds to it


def put(there: dict[K, V], key: K, value: V) -> dict[K, V]:
    """The dictionary that has this entry as well, to be referred to from now on."""
    if not there:
        return {key: value}
    there[key] = value
    return there


def without(there: dict[K, V], key: K) -> dict[K, V]:
    """The dictionary that has no such entry, to be referred to from now on."""
    there.pop(key, None)
    return there or NONE
