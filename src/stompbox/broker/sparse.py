"""Dictionaries and lists that are empty in most of very many objects: those share one.

An empty dictionary takes 64 octets, and an address refers to a dozen. One that was used once keeps its room, and lies between what is
young: of very many addresses it would be what keeps whole arenas of Python's memory (server/trimming.py). So who has nothing refers to
NONE, has a dictionary of its own with the first entry, and gives that up with the last. NOTHING is the same for lists. Neither takes
anything: what one had would be everybody's.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("what all share that have nothing takes nothing: who has something has one of its own")


class _NoEntries(dict[Any, Any]):
    __slots__ = ()
    __setitem__ = __ior__ = setdefault = update = _refuse


class _NoItems(list[Any]):
    __slots__ = ()
    __setitem__ = __iadd__ = append = extend = insert = _refuse


NONE: Final[dict[Any, Any]] = _NoEntries()  # of all who have nothing
NOTHING: Final[list[Any]] = _NoItems()


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
