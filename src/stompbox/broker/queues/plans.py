"""Which topic subscriptions take the messages of a shape, where it depends on the values of each message's headers.

Selectors that hold a header to be equal to a text (`k = 'v'`, alone or with AND) are found by that text, those that compare it with
numbers (`k < 7`, `k BETWEEN 1 AND 5`) by the number that it is: of thousands of subscribers that each wait for values of their own
only those are asked who may get the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from stompbox.broker.queues.facts import Facts
from stompbox.selectors import Selector
from stompbox.selectors.intervals import Interval, Intervals
from stompbox.selectors.values import number_of_text

if TYPE_CHECKING:
    from stompbox.broker.queues.queue import Queue
    from stompbox.config.settings import AddressSettings
    from stompbox.message import Run


Ask = Callable[[Selector, Mapping[str, str], Facts], bool]


def _ask(selector: Selector, headers: Mapping[str, str], facts: Facts) -> bool:
    return selector.matches(headers, facts)


FEW: Final = 8  # selectors that compare one header with numbers; so few are asked sooner than found


class Plan:
    """Of one shape at one address: looked at once, until subscriptions change."""

    __slots__ = (
        "__weakref__", "_bounded", "_by_number", "_by_text", "_others", "always", "at", "by_message", "by_value", "by_value_steps",
        "known", "settings", "steps", "version",
    )  # fmt: skip

    def __init__(self, version: object, settings: AddressSettings) -> None:
        self.version = version
        self.settings = settings
        self.steps = 0  # that a message takes of which all are asked that cannot be found by its values
        self.by_value_steps = 0  # those of by_value among them
        self.always: list[Queue] = []
        self.by_value: list[Selector] = []  # those that look at holes
        self.at: list[int] = []  # at which of them
        self.known: dict[tuple[bytes, ...], tuple[Selector, ...]] = {}  # values of these holes -> those of by_value that take them
        self.by_message: list[Selector] = []  # those that look at each message
        self._by_text: dict[tuple[str, ...], dict[str, list[Selector]]] = {}  # of by_value, by the headers and the text they must have
        self._bounded: dict[tuple[str, ...], list[tuple[Interval, Selector]]] = {}  # the same by the numbers
        self._by_number: list[tuple[tuple[str, ...], Intervals[Selector]]] | None = None  # made of _bounded when a message asks first
        self._others: list[Selector] = []

    def forget(self) -> None:
        """It is out of date: nothing is kept for its sake."""
        self.always, self.by_value, self.by_message, self._others = [], [], [], []
        self.known, self._by_text, self._bounded, self._by_number = {}, {}, {}, None

    def add_by_value(self, selector: Selector) -> None:
        self.by_value.append(selector)
        if selector.key is not None:
            names, text = selector.key
            self._by_text.setdefault(names, {}).setdefault(text, []).append(selector)
        elif selector.bounds is not None:
            names, interval = selector.bounds
            self._bounded.setdefault(names, []).append((interval, selector))
        else:
            self._others.append(selector)
            self.by_value_steps += selector.steps

    def steps_of(self, run: Run) -> int:
        """That a run takes: each combination of values that is not known yet, and each message."""
        fresh = set(zip(*[run.columns[at] for at in self.at], strict=True)) - self.known.keys()
        return (self.steps - self.by_value_steps) * len(run.bodies) + self.by_value_steps * len(fresh)

    def takers(self, headers: Mapping[str, str], facts: Facts, ask: Ask = _ask) -> tuple[Selector, ...]:
        """Those of `by_value` that take a message; `ask` says whether one does."""
        by_number = self._by_number
        if by_number is None:
            by_number = self._by_number = self._numbered()
        candidates = self._others
        for names, by_text in self._by_text.items():
            text = _first(headers, names)
            if text in by_text:
                candidates = candidates + by_text[text]
        for names, intervals in by_number:
            text = _first(headers, names)
            number = None if text is None else number_of_text(text)
            if number is not None:
                candidates = candidates + intervals.around(number)
        return tuple([selector for selector in candidates if ask(selector, headers, facts)])

    def _numbered(self) -> list[tuple[tuple[str, ...], Intervals[Selector]]]:
        for bounded in self._bounded.values():
            if len(bounded) < FEW:
                self._others += [selector for _, selector in bounded]
        return [(names, Intervals(bounded)) for names, bounded in self._bounded.items() if len(bounded) >= FEW]

    def __repr__(self) -> str:
        return f"<Plan always={len(self.always)} by_value={len(self.by_value)} by_message={len(self.by_message)}>"


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((headers[name] for name in names if name in headers), None)
