"""What a process counts of the flights that it sent or got: how many, each once, in order, and octet for octet the same."""

from __future__ import annotations

from typing import Any
from zlib import crc32


class Tally:
    """Counts flights by number and address. Two tallies with equal `checksum` and `count` have seen the same bodies."""

    def __init__(self, total: int) -> None:
        self._seen = bytearray(total)
        self._last: dict[str, int] = {}  # per carrier
        self.by_carrier: dict[str, int] = {}
        self.count = 0
        self.duplicates = 0
        self.out_of_order = 0
        self.checksum = 0  # sum of the CRC-32 of each body

    def add(self, carrier: str, number: int, body: bytes) -> None:
        self.count += 1
        self.checksum += crc32(body)
        self.by_carrier[carrier] = self.by_carrier.get(carrier, 0) + 1
        if self._seen[number]:
            self.duplicates += 1
        self._seen[number] = 1
        if number < self._last.get(carrier, -1):
            self.out_of_order += 1
        self._last[carrier] = number

    @property
    def distinct(self) -> int:
        return sum(self._seen)

    def facts(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "duplicates": self.duplicates,
            "out_of_order": self.out_of_order,
            "checksum": self.checksum,
            "by_carrier": self.by_carrier,
        }
