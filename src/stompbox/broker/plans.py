"""Which topic subscriptions take the messages of a shape, where it depends on the values of each message's headers.

Selectors that hold a header to be equal to a text (`k = 'v'`, alone or with AND) are found by that text: of thousands of
subscribers that each wait for a text of their own only those are asked who may get the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stompbox.selectors import Selector
from stompbox.selectors.facts import Value

if TYPE_CHECKING:
    from stompbox.broker.address import Settings
    from stompbox.broker.queue import Queue


class Plan:
    """Of one shape at one address: looked at once, until subscriptions change."""

    __slots__ = ("_by_text", "_others", "always", "at", "by_message", "by_value", "known", "settings", "version")

    def __init__(self, version: object, settings: Settings) -> None:
        self.version = version
        self.settings = settings
        self.always: list[Queue] = []
        self.by_value: list[Selector] = []  # those that look at holes
        self.at: list[int] = []  # at which of them
        self.known: dict[tuple[bytes, ...], tuple[Selector, ...]] = {}  # values of these holes -> those of by_value that take them
        self.by_message: list[Selector] = []  # those that look at each message
        self._by_text: dict[tuple[str, ...], dict[str, list[Selector]]] = {}  # of by_value, by the headers and the text they must have
        self._others: list[Selector] = []

    def add_by_value(self, selector: Selector) -> None:
        self.by_value.append(selector)
        if selector.key is None:
            self._others.append(selector)
        else:
            names, text = selector.key
            self._by_text.setdefault(names, {}).setdefault(text, []).append(selector)

    def takers(self, headers: Mapping[str, str], facts: Mapping[str, Value]) -> tuple[Selector, ...]:
        """Those of `by_value` that take a message."""
        asked = self._others
        for names, by_text in self._by_text.items():
            text = next((headers[name] for name in names if name in headers), None)
            if text in by_text:
                asked = asked + by_text[text]
        return tuple([selector for selector in asked if selector.matches(headers, facts)])

    def __repr__(self) -> str:
        return f"<Plan always={len(self.always)} by_value={len(self.by_value)} by_message={len(self.by_message)}>"
