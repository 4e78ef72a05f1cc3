"""SQLite's write-ahead log, read before SQLite reads it: what it would pass over in silence.

    header   >IIIIII II   magic, version, bytes of a page, number of the checkpoint, salt (two words), checksum of these
    frame    >II II II    page, pages of the database after a commit (else 0), the salt, checksum; then the page
    (https://www.sqlite.org/fileformat2.html#the_write_ahead_log)

A frame counts when its salt is the header's and its checksum goes on from the frame before. SQLite ends at the first that does not: after
a crash that is the end, and after one flipped bit all that was confirmed behind it is gone. The two are told apart here. The checksum is
linear, so that what one flipped bit does to it can be worked out: a frame that is right with one bit turned over was whole once, which
by chance alone happens once in 2**46. A write that was cut short lacks whole sectors, and no single bit puts it right. Which bit it
was is certain in two of three cases; the high bits of many words change the checksum alike.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from operator import mul
from typing import Final

HEADER: Final = 32  # bytes
FRAME: Final = 24  # bytes before the page
VERSION: Final = 3007000
_WORD: Final = 0xFFFFFFFF
# -> the order of the bytes in the words that are summed up
_MAGIC: Final = {0x377F0682: "little", 0x377F0683: "big"}
_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_APART: Final = 96  # bits between the two sums when both are taken at once

Sums = tuple[int, int]


@dataclass(slots=True)
class LogContent:
    """What a write-ahead log holds. Frames are counted from 1."""

    # (byte, bit): to be turned over, and all is as it was
    flipped: list[tuple[int, int]] = field(default_factory=list)
    spoiled: list[int] = field(default_factory=list)  # frames with a flipped bit, nobody knows which
    frames: int = 0  # up to the first that does not count, those with a flipped bit among them
    commits: int = 0  # the last of them that ends a transaction
    beyond: int = 0  # frames of the same salt behind the first that does not count
    is_headless: bool = False  # there is something, and the header is damaged

    @property
    def is_damaged(self) -> bool:
        """Whether anything that was committed is damaged. Nobody waits for frames of a transaction that never came to its end."""
        return self.is_headless or bool(self.flipped) or any(frame <= self.commits for frame in self.spoiled)


@dataclass(frozen=True, slots=True)
class Walk:
    """How frames are to be read, by a header."""

    data: bytes
    page: int
    order: str
    salt: list[int]

    @property
    def size(self) -> int:
        return FRAME + self.page

    def sums(self, at: int, before: Sums) -> Sums:
        """As they come out behind the frame at `at`."""
        data = self.data[at : at + 8] + self.data[at + FRAME : at + self.size]
        return _sums(_words(data, self.order), before)

    def marks(self, at: int) -> list[int]:
        """The salt and the sums that a frame has."""
        return list(_FRAME.unpack_from(self.data, at)[2:])

    def is_right(self, at: int, before: Sums) -> bool:
        return at + self.size <= len(self.data) and self.marks(at) == [*self.salt, *self.sums(at, before)]


def read(data: bytes) -> LogContent:
    """Reads through a whole file and says what is in it."""
    found = LogContent()
    if len(data) < HEADER + FRAME:
        return found  # no transaction
    header = _header(data, found)
    if header is None:
        found.is_headless = any(data)
        return found
    magic, _, page, _, *salt, first, second = _HEADER.unpack(header)
    walk, sums, at = Walk(data, page, _MAGIC[magic], salt), (first, second), HEADER
    while at + walk.size <= len(data):
        after = walk.sums(at, sums)
        if walk.marks(at) != [*salt, *after]:
            flips = _flips(walk, at, after)
            if not flips:
                break
            after = _put_right(walk, at, after, flips, found)
        sums = after
        found.frames += 1
        if _FRAME.unpack_from(data, at)[1]:
            found.commits = found.frames
        at += walk.size
    found.beyond = sum(
        1 for place in range(at, len(data) - walk.size + 1, walk.size) if walk.marks(place)[:2] == salt
    )
    return found


def _put_right(walk: Walk, at: int, after: Sums, flips: list[tuple[int, int]], found: LogContent) -> Sums:
    """Notes which bit it is, where that is certain; the sums behind the frame."""
    said = (walk.marks(at)[2], walk.marks(at)[3])
    of_sums = [flip for flip in flips if at + 16 <= flip[0] < at + FRAME]
    if of_sums and len(flips) > 1:  # the last word of the page, or the second sum: the frame behind tells
        is_sum, is_word = walk.is_right(at + walk.size, after), walk.is_right(at + walk.size, said)
        flips = of_sums if is_sum else [flip for flip in flips if flip not in of_sums] if is_word else flips
    if len(flips) == 1:
        found.flipped.append(flips[0])
    else:
        found.spoiled.append(found.frames + 1)
    return after if flips == of_sums else said


def _header(data: bytes, found: LogContent) -> bytes | None:
    """The header of the log, with the bit turned over that makes it right, and with it the first frame."""
    header = data[:HEADER]
    if _is_header(header):
        return header
    flips = [(at, bit) for at in range(HEADER) for bit in range(8) if _is_header(turned(header, at, bit))]
    if len(flips) > 1:
        flips = [flip for flip in flips if _begins(data, turned(header, *flip))]
    if len(flips) != 1:
        return None
    found.flipped.append(flips[0])
    return turned(header, *flips[0])


def _begins(data: bytes, header: bytes) -> bool:
    magic, _, page, _, *salt, first, second = _HEADER.unpack(header)
    return Walk(data, page, _MAGIC[magic], salt).is_right(HEADER, (first, second))


def _is_header(header: bytes) -> bool:
    magic, version, page, *_, first, second = _HEADER.unpack(header)
    if magic not in _MAGIC or version != VERSION or not 512 <= page <= 65536:
        return False
    return _sums(_words(header[:24], _MAGIC[magic]), (0, 0)) == (first, second)


def turned(data: bytes, at: int, bit: int) -> bytes:
    """A copy of octets with one bit turned over."""
    return data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]


def _words(data: bytes, order: str) -> array[int]:
    words = array("I", data)
    if order != sys.byteorder:
        words.byteswap()
    return words


@lru_cache(4)
def _weights(pairs: int) -> tuple[list[int], Sums, Sums]:
    """What each word adds to the sums of so many pairs, both in one number; and what the sums before add to the first and second.

    Each pair of words x, y does: s0 += x + s1; s1 += y + s0.
    """
    weights: list[int] = []
    first, second = (1, 1), (0, 1)  # what the x and the y of the last pair add to (s0, s1)
    for _ in range(pairs):
        weights += [second[0] | second[1] << _APART, first[0] | first[1] << _APART]
        first, second = _step(first), _step(second)
    weights.reverse()
    # The sums before count as the x and y of a pair in front: s0 as (1, 1) - (0, 1), s1 as (0, 1), each a step further.
    s0, s1 = (1, 0), (0, 1)
    for _ in range(pairs):
        s0, s1 = _step(s0), _step(s1)
    return weights, s0, s1


def _step(sums: Sums) -> Sums:
    first = sums[0] + sums[1] & _WORD
    return first, sums[1] + first & _WORD


def _sums(words: array[int], before: Sums) -> Sums:
    weights, s0, s1 = _weights(len(words) // 2)
    both = sum(map(mul, weights, words))
    first = (both & (1 << _APART) - 1) + before[0] * s0[0] + before[1] * s1[0]
    second = (both >> _APART) + before[0] * s0[1] + before[1] * s1[1]
    return first & _WORD, second & _WORD


def _flips(walk: Walk, at: int, after: Sums) -> list[tuple[int, int]]:
    """Each (byte, bit) with which the frame at `at` would count. `after`: the sums behind it, as they come out."""
    marks = walk.marks(at)
    wrong = [
        (place, one ^ other)
        for place, (one, other) in enumerate(zip(marks, [*walk.salt, *after], strict=True))
        if one != other
    ]
    flips = []
    if len(wrong) == 1 and wrong[0][1].bit_count() == 1:
        place, bit = wrong[0][0], wrong[0][1].bit_length() - 1
        flips.append((at + 8 + place * 4 + 3 - bit // 8, bit % 8))
    if marks[:2] == walk.salt:
        missing = (marks[2] - after[0] & _WORD, marks[3] - after[1] & _WORD)
        flips += [flip for flip in _words_with(walk, at, missing) if flip not in flips]
    return flips


def _words_with(walk: Walk, at: int, missing: Sums) -> Iterator[tuple[int, int]]:
    """Bits of the words that are summed up: turned over, each changes the sums by what is missing."""
    fewer = (-missing[0] & _WORD, -missing[1] & _WORD)
    for word, bit in _changing((8 + walk.page) // 8, missing):
        octet = word * 4 + (bit // 8 if walk.order == "little" else 3 - bit // 8)
        place = at + octet if octet < 8 else at + FRAME + octet - 8
        weight = _weights((8 + walk.page) // 8)[0][word]
        change = ((weight & _WORD) << bit & _WORD, weight >> _APART << bit & _WORD)
        if change == (fewer if walk.data[place] & 1 << bit % 8 else missing):
            yield place, bit % 8


def _changing(pairs: int, missing: Sums) -> list[tuple[int, int]]:
    """(word, bit): those whose weight, moved up by the bit, is what is missing, or as much less. Moved up by so many, the sums end with as
    many zeros: so there are few bits to look for, and of each only what was not moved out at the top."""
    found = []
    for bit in range(32):
        kept = (1 << 32 - bit) - 1
        ours = [
            missing[0] >> bit | missing[1] >> bit << _APART,
            (-missing[0] & _WORD) >> bit | (-missing[1] & _WORD) >> bit << _APART,
        ]
        mask = kept | kept << _APART
        found += [(word, bit) for word, weight in enumerate(_weights(pairs)[0]) if weight & mask in ours]
        if (missing[0] | missing[1]) & 1 << bit:
            break
    return sorted(found)


def resealed(data: bytes, frame: int, last: int) -> dict[int, bytes]:
    """The sums of `frame` and of those behind it up to `last` anew, so that they count as they are: where each of them stands.

    What is behind `last` did not count, because a write was cut short, and must not now.
    """
    header = _header(data, LogContent())
    assert header is not None
    magic, _, page, _, *salt, first, second = _HEADER.unpack(header)
    walk, sums = Walk(data, page, _MAGIC[magic], salt), (first, second)
    if frame > 1:
        sums = (
            walk.marks(HEADER + (frame - 2) * walk.size)[2],
            walk.marks(HEADER + (frame - 2) * walk.size)[3],
        )
    changes = {}
    for at in range(HEADER + (frame - 1) * walk.size, HEADER + last * walk.size, walk.size):
        sums = walk.sums(at, sums)
        changes[at + 16] = struct.pack(">2I", *sums)
    return changes
