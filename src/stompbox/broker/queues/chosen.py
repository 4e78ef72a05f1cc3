"""The selectors of a queue's consumers: the order in which they came, what it costs to ask them, and which of them may take a message.

Hundreds may each want another text in the same header: the usual way to wait for an answer in a queue that many share. A message finds
the few that may take it by that text, and nobody asks the others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from stompbox.broker.work import MESSAGE
from stompbox.selectors import Selector
from stompbox.selectors.values import value_of

if TYPE_CHECKING:
    from stompbox.broker.logs.segments import Segment
    from stompbox.broker.work import Work
    from stompbox.selectors.keys import Key, Names

FEW: Final = 8  # that want a text: as soon asked as found
FOUND: Final = 5 * MESSAGE  # steps that it takes to find those of a message


class Selectors:
    """Each once, however many consumers have it. `in_order`, with the `numbers` of each: none has that of one that came before, `last` is
    the highest. `steps`: that a message takes at the most which is asked about. `is_heavy`: to ask all of them is too much for one
    turn, and each message is asked about in several, behind what others do."""

    __slots__ = (
        "_alone", "_by_text", "_keyed", "_looking", "_most_steps", "_numbered", "_others", "_searching", "_steps", "_uses", "in_order",
        "is_heavy", "last", "numbers", "steps",
    )  # fmt: skip

    def __init__(self) -> None:
        self._uses: dict[Selector, int] = {}  # by how many consumers
        self._numbered: dict[Selector, int] = {}
        self.in_order: list[Selector] = []
        self.numbers: list[int] = []
        self.last = 0
        self.steps = 0
        self.is_heavy = False
        self._most_steps = self._steps = 0  # that all of them take, and without XPATH and LIKE
        self._looking = 0  # of them that look into bodies
        self._searching = 0  # and of those that may take long
        # those that want a text, by the headers that may have it, and the text; how many, and the steps of those that want one alone
        self._by_text: dict[Names, dict[str, dict[Selector, None]]] = {}
        self._keyed = self._alone = 0
        self._others: dict[Selector, None] = {}

    def __len__(self) -> int:
        return len(self._numbered)

    def __contains__(self, selector: object) -> bool:
        return selector in self._numbered

    def __iter__(self) -> Iterator[Selector]:
        return iter(self.in_order)

    @property
    def is_long(self) -> bool:
        """Whether it may take long to ask some of them."""
        return self._searching > 0

    def after(self, number: int) -> Collection[Selector]:
        """Which of them came after the one with this number."""
        if self.numbers and number < self.numbers[0]:
            return self
        return self.in_order[bisect_right(self.numbers, number) :]

    def add(self, selector: Selector, work: Work) -> bool:
        """A consumer has it. True when it is the first of them."""
        uses = self._uses[selector] = self._uses.get(selector, 0) + 1
        if uses > 1:
            return False
        self.last += 1
        self._numbered[selector] = self.last
        self.in_order.append(selector)
        self.numbers.append(self.last)
        key = _key_of(selector)
        if key is None:
            self._others[selector] = None
        else:
            same = self._by_text.setdefault(key[0], {}).setdefault(key[1], {})
            self._alone -= _alone(same)
            same[selector] = None
            self._alone += _alone(same)
            self._keyed += 1
        self._count(selector, 1, work)
        return True

    def discard(self, selector: Selector, work: Work) -> bool:
        """A consumer has it no more. True when nobody has."""
        self._uses[selector] -= 1
        if self._uses[selector]:
            return False
        del self._uses[selector]
        at = bisect_left(self.numbers, self._numbered.pop(selector))
        del self.numbers[at], self.in_order[at]
        key = _key_of(selector)
        if key is None:
            del self._others[selector]
        else:
            by_text = self._by_text[key[0]]
            same = by_text[key[1]]
            self._alone -= _alone(same)
            del same[selector]
            self._alone += _alone(same)
            self._keyed -= 1
            if not same:
                del by_text[key[1]]
            if not by_text:
                del self._by_text[key[0]]
        self._count(selector, -1, work)
        return True

    def _count(self, selector: Selector, uses: int, work: Work) -> None:
        self._most_steps += uses * selector.most_steps
        self._steps += uses * selector.steps
        self._looking += uses * selector.needs_body
        self._searching += uses * selector.is_costly
        found = FOUND * len(self._by_text) - self._alone if self._keyed >= FEW else 0
        self.steps = self._most_steps + found
        self.is_heavy = self._most_steps > 2 * work.most or self._steps > work.heavy or self._looking > 0

    def asked(
        self, segment: Segment, selectors: Collection[Selector]
    ) -> Iterator[tuple[Segment, Collection[Selector]]]:
        """The segment in parts, each with those of these selectors that may take something of it."""
        if self._keyed < FEW or len(selectors) < FEW:
            yield segment, selectors
            return
        run, holes = segment.run, frozenset(segment.run.shape.holes)
        among = frozenset(selectors) if isinstance(selectors, list) else selectors
        others = [selector for selector in self._others if selector in among]
        if all(holes.isdisjoint(names) for names in self._by_text):
            yield segment, others + self._wanting(run.shape.headers, among)
            return
        for offset in range(segment.first, segment.stop):
            found = others + self._wanting(run.headers(offset - run.first), among)
            yield segment.part(offset, offset + 1) if len(segment) > 1 else segment, found

    def _wanting(self, headers: Mapping[str, str], among: Collection[Selector]) -> list[Selector]:
        """Finds those among some that want what stands in these headers."""
        found: list[Selector] = []
        for names, by_text in self._by_text.items():
            text = value_of(headers, names)
            if text in by_text:
                found += [selector for selector in by_text[text] if selector in among]
        return found

    def __repr__(self) -> str:
        return f"<Selectors {len(self)} steps={self.steps}{' heavy' if self.is_heavy else ''}>"


def _key_of(selector: Selector) -> Key | None:
    """The text that it wants, where it is as soon asked as that is looked up."""
    return None if selector.is_costly else selector.key


def _alone(same: Collection[Selector]) -> int:
    """The steps of one that wants a text which no other wants: it is found, and where there are two both of them are asked."""
    return sum([selector.steps for selector in same]) if len(same) == 1 else 0


NOBODY: Final = Selectors()
"""Of queues whose consumers have none: nobody adds to it."""
