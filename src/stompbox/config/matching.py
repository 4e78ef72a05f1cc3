"""Addresses against patterns: `*` stands for one word, `#` for any number of words (also none), words are divided by `.`.

Decides which pattern is the more specific one. The rule (Artemis manual, address settings: a match with `#` is less specific than
one without, `*` less than an exact word), made a total order: a pattern without `#` before one with it; then word by word from the
left, a literal word before `*` before `#`; then the pattern that goes on before the one that ends; then the later in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from stompbox.config.spaces import MARK

T = TypeVar("T")

DELIMITER: Final = "."
ONE_WORD: Final = "*"
ANY_WORDS: Final = "#"


def problem_of(pattern: str) -> str:
    """Why `pattern` cannot be one; empty if it can."""
    words = pattern.split(DELIMITER)
    if not all(words):
        return "it has an empty word"
    mixed = next((word for word in words if len(word) > 1 and (ONE_WORD in word or ANY_WORDS in word)), "")
    if not mixed:
        return ""
    hint = f", and words are divided by {DELIMITER}: write {pattern.replace('/', DELIMITER)!r}" if "/" in mixed else ""
    return f"in {mixed!r} a wildcard is only a part of the word; * and # stand for whole words{hint}"


def is_wild(pattern: str) -> bool:
    return ONE_WORD in pattern or ANY_WORDS in pattern


def specificity(pattern: str) -> tuple[bool, tuple[int, ...]]:
    """A key that sorts patterns that match one address from the least to the most specific."""
    ranks = tuple(0 if word == ANY_WORDS else 1 if word == ONE_WORD else 2 for word in pattern.split(DELIMITER))
    return 0 not in ranks, ranks


def is_match(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Do the words of an address fit the words of a pattern? Time is at most their product: hostile patterns do not explode.
    A wildcard never stands for the word that says whose virtual host's an address is."""
    if words[0].startswith(MARK) and pattern[0] != words[0]:
        return False
    at = word = 0
    back_at, back_word = -1, 0  # where to go on when a literal after the last `#` does not fit
    while word < len(words):
        if at < len(pattern) and pattern[at] == ANY_WORDS:
            back_at, back_word = at, word
            at += 1
        elif at < len(pattern) and pattern[at] in (ONE_WORD, words[word]):
            at += 1
            word += 1
        elif back_at >= 0:
            back_word += 1
            at, word = back_at + 1, back_word
        else:
            return False
    return all(left == ANY_WORDS for left in pattern[at:])


class PatternTable(Generic[T]):
    """Values by pattern. Exact addresses are found in a dict; patterns with a literal first word only meet addresses that begin so."""

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        ordered = sorted(enumerate(entries), key=lambda entry: (specificity(entry[1][0]), entry[0]))
        self._values: Final[list[T]] = [value for _, (_, value) in ordered]
        self._exact: Final[dict[str, list[int]]] = {}
        self._wild: Final[dict[str, list[tuple[int, list[str]]]]] = {}
        for rank, (_, (pattern, _)) in enumerate(ordered):
            if not is_wild(pattern):
                self._exact.setdefault(pattern, []).append(rank)
                continue
            words = pattern.split(DELIMITER)
            first = "" if words[0] in (ONE_WORD, ANY_WORDS) else words[0]
            self._wild.setdefault(first, []).append((rank, words))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<PatternTable of {len(self)}: {len(self._exact)} exact, {sum(map(len, self._wild.values()))} with wildcards>"

    def ranks(self, address: str) -> tuple[int, ...]:
        """Numbers of the entries that match, from the least to the most specific; equal numbers mean equal entries."""
        words = address.split(DELIMITER)
        found = list(self._exact.get(address, ()))
        for first in {"", words[0]}:
            found += [rank for rank, pattern in self._wild.get(first, ()) if is_match(pattern, words)]
        return tuple(sorted(found))

    def value(self, rank: int) -> T:
        return self._values[rank]

    def matching(self, address: str) -> list[T]:
        """All values whose pattern matches, from the least to the most specific."""
        return [self._values[rank] for rank in self.ranks(address)]

    def best(self, address: str) -> T | None:
        """The value of the most specific pattern that matches."""
        ranks = self.ranks(address)
        return self._values[ranks[-1]] if ranks else None
