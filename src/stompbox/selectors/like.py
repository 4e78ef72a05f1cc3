"""LIKE: a pattern with `%` and `_` -> a function that tells whether a whole text fits.

Decides: what a pattern means (SQL-92, 8.5: `%` any run, `_` one character, both over line ends; ESCAPE makes the next character
literal) and that matching never goes back: pattern and text are both strangers'. The parts between two `%` are looked for from left to
right, each at its first place; what is fixed is compared by whole strings, and a part with `_` inside is searched with one bit per
character of the part (shift-and), so the cost is (length of text) x (length of part / machine word) at worst.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from sys import getsizeof
from typing import Final

Matcher = Callable[..., bool]
"""Of a text. Where a part is searched with one bit per character it takes `spend` as well, as a Budget has it (budget.py): it is called
for every BLOCK characters before they are looked at, and may leave the stack."""
Spend = Callable[[int], bool]

_REPEATED: Final = 8  # characters of a part
_SHORT: Final = 1_000
_LINEAR_FROM: Final = 30_000
_SIZE: Final = 500  # octets
BLOCK: Final = 1024  # characters that are searched in one go: a tenth of a millisecond, or two
_FILLING: Final = "\0" * _LINEAR_FROM

_ANY_RUN = "%"
_ANY_ONE = "_"


@dataclass(frozen=True, slots=True)
class Fragment:
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
    middle = [part for part in middle if part != ""]
    if not middle:
        return _ends(first, last)
    if len(middle) == 1 and first == last == "" and isinstance(middle[0], str):
        wanted = middle[0]
        return (
            (lambda text: wanted in text)
            if len(wanted) < _REPEATED
            else lambda text: find(text, wanted, 0, len(text)) >= 0
        )
    return _sequence(_fixed(first), middle, _fixed(last))


def weight_of(pattern: str, escape: str | None) -> int:
    """Steps (budget.py) that it takes to look for the pattern in 64 characters; 0 where only the ends of a text are compared."""
    return max(map(_weight, _parts(pattern, escape)[1:-1]), default=0)


def searches_of(pattern: str, escape: str | None) -> int:
    """Parts of the pattern that are looked for with a table of their own, which takes time and memory."""
    return (
        0
        if "_" not in pattern
        else sum([isinstance(part, Fragment) for part in _parts(pattern, escape)[1:-1]])
    )


def size_of(pattern: str, escape: str | None) -> int:
    """Octets of memory that the compiled pattern takes, about."""
    parts = _parts(pattern, escape)
    placed = sum([len(part.pieces) for part in (parts[0], parts[-1]) if isinstance(part, Fragment)])
    return _SIZE + 2 * getsizeof(pattern) + 150 * placed + sum(map(_size, parts))


def _size(part: Fragment | str) -> int:
    if isinstance(part, str):
        return 8 + (getsizeof(part) if len(part) > 1 else 0)
    characters = set("".join([piece for _, piece in part.pieces]))
    return _SIZE + len(characters) * (120 + part.length // 7)  # the table has as many bits for each character


def _weight(part: Fragment | str) -> int:
    if isinstance(part, str):
        return 1 if part else 0
    return 32 + part.length // 16 if part.pieces else 0


def _whole(part: Fragment | str) -> Matcher:
    if isinstance(part, str):
        return lambda text: text == part
    return lambda text: len(text) == part.length and part.fits_at(text, 0)


def _ends(first: Fragment | str, last: Fragment | str) -> Matcher:
    if last == "" and isinstance(first, str):
        return lambda text: text.startswith(first)
    begins, ends = _fixed(first), _fixed(last)
    least = begins.length + ends.length
    return lambda text: (
        len(text) >= least and begins.fits_at(text, 0) and ends.fits_at(text, len(text) - ends.length)
    )


def _sequence(first: Fragment, middle: list[Fragment | str], last: Fragment) -> Matcher:
    searches = [part if isinstance(part, str) else _search(part) for part in middle]

    def matches(text: str, spend: Spend | None = None) -> bool:
        at, end = first.length, len(text) - last.length
        if at > end or not first.fits_at(text, 0) or not last.fits_at(text, end):
            return False
        for search in searches:
            if not isinstance(search, str):
                at = search(text, at, end, spend)
            elif (at := find(text, search, at, end)) >= 0:
                at += len(search)
            if at < 0:
                return False
        return True

    return matches


def find(text: str, wanted: str, start: int, end: int) -> int:
    """As `text.find(wanted, start, end)`, in linear time for whatever text.

    CPython searches less than 30,000 characters with an algorithm that goes back: it compares up to all of `wanted` at every character.
    More of them it searches in linear time, so what is long enough to matter is made longer.
    """
    if len(wanted) < _REPEATED or end - start < _SHORT:
        return text.find(wanted, start, end)
    at = (text if len(text) - start >= _LINEAR_FROM else text + _FILLING).find(wanted, start)
    return at if at + len(wanted) <= end else -1


def _search(part: Fragment) -> Callable[[str, int, int, Spend | None], int]:
    """(text, from, to, spend) -> where the first occurrence ends, or -1."""
    length = part.length
    if not part.pieces:
        return lambda text, start, end, _: start + length if start + length <= end else -1
    return _shift_and(part)


def _shift_and(part: Fragment) -> Callable[[str, int, int, Spend | None], int]:
    everywhere = (1 << part.length) - 1
    literal = {at + index: char for at, piece in part.pieces for index, char in enumerate(piece)}
    open_places = everywhere
    for at in literal:
        open_places &= ~(1 << at)
    places: dict[str, int] = {}
    for at, char in literal.items():
        places[char] = places.get(char, open_places) | 1 << at
    found, weight = 1 << (part.length - 1), _weight(part)

    def search(text: str, start: int, end: int, spend: Spend | None) -> int:
        state = 0
        for at in range(start, end, BLOCK):
            stop = min(at + BLOCK, end)
            if spend is not None:
                spend(weight * (stop - at) // 64)
            masks = map(places.get, text[at:stop], repeat(open_places))
            for offset, mask in enumerate(masks, at + 1):
                if (state := (state << 1 | 1) & mask) >= found:  # its highest bit is there
                    return offset
        return -1

    return search


def _parts(pattern: str, escape: str | None) -> list[Fragment | str]:
    """What stands between the `%` of a pattern; a text where that has no `_`."""
    if escape is None or escape not in pattern:
        return [_part(raw.split(_ANY_ONE)) if _ANY_ONE in raw else raw for raw in pattern.split(_ANY_RUN)]
    parts: list[Fragment | str] = []
    pieces, piece = [], ""
    for escaped, sign, literal in re.findall(
        f"{re.escape(escape)}(.)|([%_])|([^%_{re.escape(escape)}]+)", pattern, re.DOTALL
    ):
        if sign:
            pieces.append(piece)
            piece = ""
            if sign == _ANY_RUN:
                parts.append(_part(pieces))
                pieces = []
        else:
            piece += escaped or literal
    return [*parts, _part([*pieces, piece])]


def _part(pieces: list[str]) -> Fragment | str:
    """What a text between two `%` stands for, given the pieces between its `_`."""
    if len(pieces) == 1:
        return pieces[0]
    at, placed = 0, []
    for piece in pieces:
        if piece:
            placed.append((at, piece))
        at += len(piece) + 1
    return Fragment(at - 1, tuple(placed))


def _fixed(part: Fragment | str) -> Fragment:
    return part if isinstance(part, Fragment) else Fragment(len(part), ((0, part),) if part else ())
