"""Message selectors: SQL-92 conditions on headers, facts of the broker and XML bodies.

`compile_selector` turns a text into a `Selector`, whose `matches` answers for one message. Everything that can be wrong with a selector
is found at compilation and raised as SelectorError with its position.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from stompbox.selectors.budget import Budget
from stompbox.selectors.cache import SelectorCache
from stompbox.selectors.facts import FACTS, PER_MESSAGE, SPECIAL_NAMES, Value
from stompbox.selectors.limits import SelectorLimits
from stompbox.selectors.selector import Selector, compile_selector

__all__ = [
    "FACTS",
    "PER_MESSAGE",
    "SPECIAL_NAMES",
    "Budget",
    "Selector",
    "SelectorCache",
    "SelectorLimits",
    "Value",
    "compile_selector",
    "load",
]


def load() -> None:
    """Loads the compiler, and RE2 where it is installed: it takes as long as hundreds of messages, and is left out of the start."""
    compile_selector("a = 1")
    with suppress(ImportError):
        import_module("re2")
