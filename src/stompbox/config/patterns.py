"""Many patterns as one: which of them name an address, asked about one address after the other.

Decides nothing of its own: matching.py says what a pattern is. All patterns are one row of places, a bit each, in which the words of an
address are followed together (an automaton whose states are the bits of a number). So a question takes as many operations as the address
has words, each on numbers of as many bits as the patterns have words: no pattern is worse than another, and none is split anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from stompbox.config.matching import Spots, Wildcards, shortest
from stompbox.config.spaces import MARK


class Patterns:
    """Holds patterns that are added one by one. `exact`: names among them."""

    def __init__(self, wildcards: Wildcards, patterns: Iterable[str] = ()) -> None:
        self.exact: set[str] = set()
        self._wildcards = wildcards
        self._spots = Spots()  # of all wildcards, one behind the other
        self._firsts = 0  # places where one begins,
        self._ends = 0  # and those behind the last word of each
        for pattern in patterns:
            self.add(pattern)

    @property
    def has_wildcards(self) -> bool:
        return self._ends > 0

    def add(self, pattern: str) -> int:
        """The place that `matched` tells where the pattern names an address; 0 for a name."""
        if not self._wildcards.is_wild(pattern):
            self.exact.add(pattern)
            return 0
        words, spots = self._wildcards.words(pattern), self._spots
        self._firsts |= spots.begin()
        for word in shortest(words):
            spots.add(word)
        self._ends |= spots.end
        return spots.end

    def matched(self, name: str) -> int:
        """The places of all wildcards that name the address."""
        words, spots, states = self._wildcards.split(name), self._spots, self._firsts
        if words[0].startswith(MARK):  # only a word that says the same stands for whose it is
            states = spots.named(states, words.pop(0))
        states = spots.closed(states)
        for word in words:
            states = spots.closed(spots.moved(states, word))
        return states & self._ends

    def reach(self, name: str) -> bool:
        """Whether one of them names the address."""
        return name in self.exact or self.matched(name) > 0

    def __repr__(self) -> str:
        return f"<Patterns {len(self.exact)} exact, {self._ends.bit_count()} with wildcards>"
