"""Many patterns as one: which of them name an address, asked about one address after the other.

Decides nothing of its own: matching.py says what a pattern is. All patterns are one row of places, a bit each, in which the words of an
address are followed together (an automaton whose states are the bits of a number). So a question takes as many operations as the address
has words, each on numbers of as many bits as the patterns have words: no pattern is worse than another, and none is split anew.
"""

from __future__ import annotations

from stompbox.config.matching import Wild, Wildcards
from stompbox.config.spaces import MARK


class Patterns:
    """Holds patterns that are added one by one. `exact`: names among them; `words`: of all wildcards together."""

    def __init__(self, wildcards: Wildcards) -> None:
        self.exact: set[str] = set()
        self.words = 0
        self._wildcards = wildcards
        self._next = 1  # the first place of the next wildcard
        self._firsts = 0  # places where one begins,
        self._ends = 0  # those behind the last word of each,
        self._single = 0  # those that any word fits, and
        self._any = 0  # any number of words
        self._literal: dict[str, int] = {}  # and those that this word fits

    @property
    def has_wildcards(self) -> bool:
        return self._ends > 0

    def add(self, pattern: str) -> int:
        """The place that `matched` tells where the pattern names an address; 0 for a name."""
        if not self._wildcards.is_wild(pattern):
            self.exact.add(pattern)
            return 0
        place, before = self._next, None
        self._firsts |= place
        words = self._wildcards.words(pattern)
        self.words += len(words)
        for word in words:
            if word is Wild.ANY_WORDS:
                if before is Wild.ANY_WORDS:
                    continue  # says nothing more
                self._any |= place
            elif isinstance(word, Wild):
                self._single |= place
            else:
                self._literal[word] = self._literal.get(word, 0) | place
            before, place = word, place << 1
        self._ends |= place
        self._next = place << 1
        return place

    def matched(self, name: str) -> int:
        """The places of all wildcards that name the address."""
        words = self._wildcards.split(name)
        literal, single, any_words, states = self._literal, self._single, self._any, self._firsts
        if words[0].startswith(MARK):  # only a word that says the same stands for whose it is
            states = (states & literal.get(words[0], 0)) << 1
            del words[0]
        states |= (states & any_words) << 1  # which may be no words
        for word in words:
            states = ((states & (literal.get(word, 0) | single)) << 1) | (states & any_words)
            states |= (states & any_words) << 1
        return states & self._ends

    def reach(self, name: str) -> bool:
        """Whether one of them names the address."""
        return name in self.exact or self.matched(name) > 0

    def __repr__(self) -> str:
        return f"<Patterns {len(self.exact)} exact, {self._ends.bit_count()} with wildcards>"
