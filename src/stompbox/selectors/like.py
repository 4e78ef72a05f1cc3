"""LIKE: a pattern with `%` and `_` -> a function that tells whether a whole text fits.

Decides: what a pattern means (SQL-92, 8.5: `%` any run, `_` one character, both over line ends; ESCAPE makes the next character
literal) and that matching never goes back: pattern and text are both strangers'. The parts between two `%` are looked for from left to
right, each at its first place; what is fixed is compared by whole strings, and a part with `_` inside is searched with one bit per
character of the part (shift-and), so the cost is (length of text) x (length of part / machine word) at worst.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Matcher = Callable[[str], bool]

_ANY_RUN = "%"
_ANY_ONE = "_"


@dataclass(frozen=True, slots=True)
class Part:
    """What stands between two `%`: its length, and its literal pieces with the offset of each; all else is `_`."""

    length: int
    pieces: tuple[tuple[int, str], ...]

    def fits_at(self, text: str, offset: int) -> bool:
        return all(text.startswith(piece, offset + at) for at, piece in self.pieces)


def compile_like(pattern: str, escape: str | None) -> Matcher:
    """A total function over texts. `escape` is one character or None."""
    parts = _parts(pattern, escape)
    if len(parts) == 1:
        return _whole(parts[0])
    first, *middle, last = parts
    middle = [part for part in middle if part.length]
    if not middle:
        return _ends(first, last)
    if len(middle) == 1 and not first.length and not last.length and _is_plain(middle[0]):
        wanted = middle[0].pieces[0][1]
        return lambda text: wanted in text
    return _sequence(first, [_search(part) for part in middle], last)


def weight_of(pattern: str, escape: str | None) -> int:
    """Steps (budget.py) that it takes to look for the pattern in 64 characters; 0 where only the ends of a text are compared."""
    return max(map(_weight, _parts(pattern, escape)[1:-1]), default=0)


def _weight(part: Part) -> int:
    return 0 if not part.pieces else 1 if _is_plain(part) else 32 + part.length // 16


def _whole(part: Part) -> Matcher:
    if _is_plain(part):
        wanted = part.pieces[0][1] if part.pieces else ""
        return lambda text: text == wanted
    return lambda text: len(text) == part.length and part.fits_at(text, 0)


def _ends(first: Part, last: Part) -> Matcher:
    least = first.length + last.length
    if not last.length and _is_plain(first):
        prefix = first.pieces[0][1] if first.pieces else ""
        return lambda text: text.startswith(prefix)
    return lambda text: len(text) >= least and first.fits_at(text, 0) and last.fits_at(text, len(text) - last.length)


def _sequence(first: Part, searches: list[Callable[[str, int, int], int]], last: Part) -> Matcher:
    def matches(text: str) -> bool:
        at, end = first.length, len(text) - last.length
        if at > end or not first.fits_at(text, 0) or not last.fits_at(text, end):
            return False
        for search in searches:
            at = search(text, at, end)
            if at < 0:
                return False
        return True

    return matches


def _search(part: Part) -> Callable[[str, int, int], int]:
    """(text, from, to) -> where the first occurrence ends, or -1."""
    length = part.length
    if _is_plain(part):
        wanted = part.pieces[0][1]

        def find(text: str, start: int, end: int) -> int:
            at = text.find(wanted, start, end)
            return at if at < 0 else at + length

        return find
    if not part.pieces:
        return lambda text, start, end: start + length if start + length <= end else -1
    return _shift_and(part)


def _shift_and(part: Part) -> Callable[[str, int, int], int]:
    everywhere = (1 << part.length) - 1
    literal = {at + index: char for at, piece in part.pieces for index, char in enumerate(piece)}
    open_places = everywhere
    for at in literal:
        open_places &= ~(1 << at)
    places: dict[str, int] = {}
    for at, char in literal.items():
        places[char] = places.get(char, open_places) | 1 << at
    found = 1 << (part.length - 1)

    def search(text: str, start: int, end: int) -> int:
        state = 0
        for offset in range(start, end):
            state = (state << 1 | 1) & places.get(text[offset], open_places)
            if state & found:
                return offset + 1
        return -1

    return search


def _is_plain(part: Part) -> bool:
    return sum(len(piece) for _, piece in part.pieces) == part.length


def _parts(pattern: str, escape: str | None) -> list[Part]:
    parts: list[Part] = []
    characters: list[str | None] = []  # None: any one character
    escaped = False
    for char in pattern:
        if not escaped and char == escape:
            escaped = True
            continue
        if escaped or char not in (_ANY_RUN, _ANY_ONE):
            characters.append(char)
        elif char == _ANY_ONE:
            characters.append(None)
        else:
            parts.append(_part(characters))
            characters = []
        escaped = False
    parts.append(_part(characters))
    return parts


def _part(characters: list[str | None]) -> Part:
    pieces: list[tuple[int, str]] = []
    start = 0
    for at, char in enumerate([*characters, None]):
        if char is None:
            if at > start:
                pieces.append((start, "".join(char for char in characters[start:at] if char is not None)))
            start = at + 1
    return Part(len(characters), tuple(pieces))
