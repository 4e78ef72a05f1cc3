"""Addresses against patterns: what stands for one word, and for any number of words (also none), and what divides words.

Decides what the syntax is (`Wildcards`: `*`, `#` and `.` where nothing else is configured), and which pattern is the more specific one.
The rule (Artemis manual, address settings: a match with `#` is less specific than one without, `*` less than an exact word), made a
total order: a pattern without `#` before one with it; then word by word from the left, a literal word before `*` before `#`; then the
pattern that goes on before the one that ends; then a name as it is before the same between the literal-match-markers (Artemis,
HierarchicalObjectRepository.getMatches); then the later in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stompbox.config.spaces import MARK, space_of

T = TypeVar("T")


class Wild(Enum):
    """What a wildcard of a pattern stands for. No text is equal to it, whatever characters an address has."""

    ONE_WORD = 1
    ANY_WORDS = 0


Words = Sequence[str | Wild]


class Wildcards(Struct, frozen=True):
    """The syntax of patterns (Artemis: wildcard-addresses). Each text is one character.

    `is_routed` False: a destination is the name of one address, whatever characters it has; matches in the configuration are patterns
    all the same. `markers`: a match between these two characters is the name of one address, too (Artemis: literal-match-markers).
    """

    delimiter: str = "."
    any_words: str = "#"
    single_word: str = "*"
    is_routed: bool = True
    markers: str = ""

    @property
    def has_other_spellings(self) -> bool:
        """Whether a destination may say `a.>` and `a.**` for `a.#`, as in ActiveMQ Classic and OpenMQ: these names have dots."""
        return self.is_routed and (self.delimiter, self.any_words, self.single_word) == (".", "#", "*")

    def split(self, name: str) -> list[str]:
        """The words of an address. That of a virtual host begins with its space, which is one word whatever divides the others."""
        if self.delimiter != "." and name.startswith(MARK):
            space = space_of(name)
            return [space, *name[len(space) :].split(self.delimiter)]
        return name.split(self.delimiter)

    def is_wild(self, destination: str) -> bool:
        """Whether a destination is a pattern of several addresses."""
        return self.is_routed and self._has_wildcards(destination)

    def words(self, destination: str) -> Words:
        """The words of a destination, which may be a pattern."""
        return self._compiled(destination) if self.is_routed else self.split(destination)

    def is_named(self, destination: str, name: str) -> bool:
        """Whether an address has this name, or one that the destination covers."""
        return destination == name or (
            self.is_wild(destination) and is_match(self.words(destination), self.split(name))
        )

    def special(self) -> str:
        """What the name of an address cannot have."""
        if not self.is_routed:
            return ":: has a meaning of its own"
        return f"{self.single_word}, {self.any_words} and :: have a meaning of their own"

    def exact(self, match: str) -> str:
        """The one address that a match of the configuration is for; empty where it is a pattern."""
        space = space_of(match)
        text = match[len(space) :]
        if self._is_literal(text):
            return space + text[1:-1]
        return "" if self._has_wildcards(match) else match

    def match_words(self, match: str) -> Words:
        """The words of a match of the configuration."""
        exact = self.exact(match)
        return self.split(exact) if exact else self._compiled(match)

    def problem_of(self, pattern: str) -> str:
        """Why `pattern` cannot be one; empty if it can."""
        words = pattern.split(self.delimiter)
        if self.delimiter == "/" and len(words) > 1 and not words[0]:
            del words[0]  # as the name of an address may begin, /news/x
        if not all(words):
            return "it has an empty word"
        mixed = next((word for word in words if len(word) > 1 and self._has_wildcards(word)), "")
        if not mixed:
            return ""
        other = self.other_delimiter(pattern)
        hint = (
            f", and words are divided by {self.delimiter}: write {pattern.replace(other, self.delimiter)!r}"
            if other
            else ""
        )
        whole = f"{self.single_word} and {self.any_words} stand for whole words"
        return f"in {mixed!r} a wildcard is only a part of the word; {whole}{hint}"

    def problem_of_match(self, match: str) -> str:
        """What is wrong with a match of the configuration, where another delimiter can be set; "" for a good one."""
        if self._is_literal(match):
            is_name = match[1:-1] and not match[1:-1].startswith(MARK)
            return (
                "" if is_name else "between the literal-match-markers stands no name that an address can have"
            )
        problem, other = self.problem_of(match), self.other_delimiter(match)
        is_other = problem and other and not replace(self, delimiter=other).problem_of(match)
        return f'{problem}, or set delimiter = "{other}" in [wildcard-addresses]' if is_other else problem

    def other_delimiter(self, pattern: str) -> str:
        """What may have been meant to divide its words, where a wildcard stands beside it."""
        beside = (self.any_words, self.single_word)
        others = [one for one in "/." if one != self.delimiter]
        return next(
            (one for one in others if any(one + word in pattern or word + one in pattern for word in beside)),
            "",
        )

    def _is_literal(self, match: str) -> bool:
        return bool(self.markers) and len(match) > 1 and match[0] + match[-1] == self.markers

    def _has_wildcards(self, text: str) -> bool:
        return self.any_words in text or self.single_word in text

    def _compiled(self, pattern: str) -> Words:
        wild = {self.single_word: Wild.ONE_WORD, self.any_words: Wild.ANY_WORDS}
        return [wild.get(word, word) for word in self.split(pattern)]


DOTS: Final = Wildcards()  # where nothing else is configured
AT_ONCE: Final = (
    200  # words that are held against a pattern again, before what is left of it is made bits of a number
)


def specificity(pattern: Words) -> tuple[bool, tuple[int, ...]]:
    """A key that sorts patterns that match one address from the least to the most specific."""
    ranks = tuple(word.value if isinstance(word, Wild) else 2 for word in pattern)
    return Wild.ANY_WORDS.value not in ranks, ranks


class Spots:
    """The words of a pattern as bits of one number: bit n of a state says that n of them may stand for what has come so far. One more word
    costs some operations with such numbers, however many `#` there are. No two `#` follow each other (`shortest`)."""

    __slots__ = ("_any", "_one", "_words", "end")

    def __init__(self, pattern: Words = ()) -> None:
        self._any = self._one = 0
        self._words: dict[str, int] = {}
        self.end = 1  # all of it
        for word in pattern:
            self.add(word)

    def add(self, word: str | Wild) -> None:
        if isinstance(word, str):
            self._words[word] = self._words.get(word, 0) | self.end
        elif word is Wild.ONE_WORD:
            self._one |= self.end
        else:
            self._any |= self.end
        self.end <<= 1

    def begin(self) -> int:
        """Where a further pattern begins, which shares nothing with those before it."""
        self.end <<= 1
        return self.end

    def closed(self, state: int) -> int:
        """With what a `#` that stands for no word leads to."""
        return state | (state & self._any) << 1

    def moved(self, state: int, word: str) -> int:
        """What one more word leads to."""
        return (state & (self._words.get(word, 0) | self._one)) << 1 | (state & self._any)

    def named(self, state: int, word: str) -> int:
        """What one more word leads to that no wildcard stands for."""
        return (state & self._words.get(word, 0)) << 1


def shortest(pattern: Words) -> Words:
    """What the pattern says, without a `#` behind another one."""
    found: list[str | Wild] = []
    for word in pattern:
        if word is not Wild.ANY_WORDS or not found or found[-1] is not Wild.ANY_WORDS:
            found.append(word)
    return found


def is_match(pattern: Words, words: Sequence[str]) -> bool:
    """Do the words of an address fit the words of a pattern? Hostile patterns do not explode: beyond AT_ONCE looks the time is that of the
    words alone. A wildcard never stands for the word that says whose virtual host's an address is."""
    if words[0].startswith(MARK) and pattern[0] != words[0]:
        return False
    at = word = looks = 0
    back_at, back_word = -1, 0  # where to go on when a literal after the last `#` does not fit
    while word < len(words):
        if at < len(pattern) and pattern[at] is Wild.ANY_WORDS:
            back_at, back_word = at, word
            at += 1
        elif at < len(pattern) and (pattern[at] is Wild.ONE_WORD or pattern[at] == words[word]):
            at += 1
            word += 1
        elif back_at >= 0:
            back_word += 1
            looks += word - back_word + 2
            if looks > AT_ONCE:
                return _is_long_match(pattern, words)
            at, word = back_at + 1, back_word
        else:
            return False
    return all(left is Wild.ANY_WORDS for left in pattern[at:])


def _is_long_match(pattern: Words, words: Sequence[str]) -> bool:
    spots = Spots(shortest(pattern))
    state = spots.closed(1)
    for word in words:
        state = spots.closed(spots.moved(state, word))
    return bool(state & spots.end)


class PatternTable(Generic[T]):
    """Values by pattern. Exact addresses are found in a dict; patterns with a literal first word only meet addresses that begin so."""

    def __init__(self, entries: Iterable[tuple[str, T]], wildcards: Wildcards = DOTS) -> None:
        listed = [(wildcards.match_words(match), match, value) for match, value in entries]
        # equal ones stay
        ordered = sorted(
            listed, key=lambda entry: (specificity(entry[0]), entry[1] == wildcards.exact(entry[1]))
        )
        self._split: Final = wildcards.split
        self._values: Final[list[T]] = [value for _, _, value in ordered]
        self._exact: Final[dict[str, list[int]]] = {}
        self._wild: Final[dict[str, list[tuple[int, Words]]]] = {}
        for rank, (words, match, _) in enumerate(ordered):
            if exact := wildcards.exact(match):
                self._exact.setdefault(exact, []).append(rank)
            else:
                first = "" if isinstance(words[0], Wild) else words[0]
                self._wild.setdefault(first, []).append((rank, words))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<PatternTable of {len(self)}: {len(self._exact)} exact, {sum(map(len, self._wild.values()))} with wildcards>"

    def ranks(self, address: str) -> tuple[int, ...]:
        """Numbers of the entries that match, from the least to the most specific; equal numbers mean equal entries."""
        words = self._split(address)
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
