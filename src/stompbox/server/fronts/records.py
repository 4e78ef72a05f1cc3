"""Where records begin and end on the link between the broker's process and a front.

    record   kind (1 octet), socket (8), octets that follow (4), those octets        integers are little-endian

What they say is link.py's. A read has thousands of small ones: both sides obey them in turns of the loop (`obey`), and read no more of the
link while some wait.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from stompbox.errors import LinkError

HEAD: Final = Struct("<BQI")
PART: Final = 0.005  # seconds of a turn of the loop in which what one read of a link has brought is obeyed
SOME: Final = 16  # records, after which the clock is looked at

Record = tuple[int, int, bytes]
"""Kind, socket and payload."""


class Records:
    """Cuts what comes on a link into records. `most`: octets of one; 0: any number, from a side that is trusted."""

    __slots__ = ("_left", "_most", "_rest", "_wanted")

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()  # of a record, what has come of it
        self._wanted = 0  # octets of it that must be there before another look is worth while
        self._left: list[Record] = []  # that have come and wait for the next turn

    def obey(self, data: bytes, some: Callable[[list[Record]], None], clock: Callable[[], float]) -> bool:
        """Hands on what has come, SOME at a time and as many as one turn has time for. True: more of it waits. Raises LinkError."""
        left, self._left = self._left, []
        records = left + self.read(data) if left else self.read(data)
        at, until = 0, clock() + PART
        while at < len(records):
            some(records[at : at + SOME])
            at += SOME
            if clock() > until:
                break
        self._left = records[at:]
        return bool(self._left)

    @property
    def has_left(self) -> bool:
        return bool(self._left)

    def clear(self) -> None:
        """Nobody obeys any more what waits."""
        self._left.clear()

    def read(self, data: bytes) -> list[Record]:
        """Kind, socket and payload of each record that is complete. Raises LinkError for one that is too long."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return []
            data = bytes(self._rest)
            self._rest = bytearray()
        found: list[Record] = []
        at, stop = 0, len(data)
        unpack, size = HEAD.unpack_from, HEAD.size
        while stop - at >= size:
            kind, socket, length = unpack(data, at)
            if length > self._most > 0:
                raise LinkError("bad-link", f"a record of {length} octets; the longest has {self._most}")
            end = at + size + length
            if end > stop:
                break
            found.append((kind, socket, data[at + size : end]))
            at = end
        if at < stop:
            self._rest += data[at:]
            self._wanted = size if stop - at < size else size + length
        return found

    def __repr__(self) -> str:
        return f"<Records {len(self._rest)} octets of the next one>"
