"""Where records begin and end on the link between the broker's process and a front.

    record   kind (1 octet), socket (8), octets that follow (4), those octets        integers are little-endian

What they say is link.py's.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from stompbox.errors import LinkError

HEAD: Final = Struct("<BQI")


class Records:
    """Cuts what comes on a link into records. `most`: octets of one; 0: any number, from a side that is trusted."""

    __slots__ = ("_most", "_rest", "_wanted")

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()  # of a record, what has come of it
        self._wanted = 0  # octets of it that must be there before another look is worth while

    def read(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Kind, socket and payload of each record that is complete. Raises LinkError for one that is too long."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return []
            data = bytes(self._rest)
            self._rest = bytearray()
        found: list[tuple[int, int, bytes]] = []
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
