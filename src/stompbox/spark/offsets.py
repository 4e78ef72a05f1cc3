"""Offsets as Spark keeps them in its checkpoint: {"address": next}, and what lies between two of them.

Decides what one micro-batch takes, and how ranges of offsets are dealt out to tasks: from the two ends alone, so that a batch that is
planned again after a crash is the same batch. Asks the broker nothing.

    an address that stands in `end` and not in `start`   is new: it is read from 0, unless what it begins with is gone already
    an offset below 0, ~first                            such a new one: nothing of it is in this batch, the next one goes on at `first`
    an address that stands in `start` and not in `end`   is gone from the broker: nothing of it is read
    an end below its start                               the log was made anew: it is read from 0 (failOnDataLoss=false only)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

LEAST_ROWS: Final = 10_000  # of a task: one costs Spark about 30 ms, in which one that runs already reads as many rows

Offsets = dict[str, int]
"""Per address, the offset after the last message taken. Keys are sorted: Spark compares the JSON as text."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A log as the broker describes it: `first` is the lowest offset that may be there, `next` follows the last committed one."""

    first: int
    next: int
    messages: int = 0
    size: int = 0  # bytes of all its messages as they are stored

    @property
    def message_size(self) -> int:
        """Bytes, on average; 1 KiB while nothing is known."""
        return max(1, self.size // self.messages) if self.messages and self.size else 1024


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Messages start .. stop-1 of one address."""

    address: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Loss:
    """Why messages that should be read are not there any more; `count` is how many offsets, -1 when nobody can know."""

    address: str
    text: str
    count: int


def place(offset: int) -> int:
    """The offset that is meant, of one in a checkpoint."""
    return offset if offset >= 0 else ~offset


def places(offsets: Mapping[str, int]) -> Offsets:
    return {address: place(offset) for address, offset in offsets.items()}


def ordered(offsets: Mapping[str, int]) -> Offsets:
    return dict(sorted(offsets.items()))


def losses(start: Mapping[str, int], extents: Mapping[str, Extent]) -> list[Loss]:
    """What is between the checkpoint and the broker: vanished, shorter and trimmed logs."""
    found = []
    for address, offset in places(start).items():
        extent = extents.get(address)
        if extent is None:
            if offset:  # a log of which nothing was read yet has lost nothing
                text = f"address {address!r} is gone from the broker, or from the destinations; the checkpoint is at offset {offset}"
                found.append(Loss(address, text, -1))
        elif extent.next < offset:
            found.append(Loss(address, f"the log of {address!r} ends at offset {extent.next}, before the checkpoint's {offset}", -1))
        elif extent.first > offset:
            text = f"offsets {offset} to {extent.first - 1} of {address!r} were deleted (retention) before they were read"
            found.append(Loss(address, text, extent.first - offset))
    return found


def available(start: Mapping[str, int], extents: Mapping[str, Extent]) -> list[OffsetRange]:
    """What there is to read after `start`, by address."""
    found = []
    for address, extent in sorted(extents.items()):
        if _is_to_be_marked(address, extent, start):
            continue
        offset = place(start.get(address, 0))
        begin = max(extent.first, 0 if extent.next < offset else offset)  # made anew, or trimmed
        if extent.next > begin:
            found.append(OffsetRange(address, begin, extent.next))
    return found


def _is_to_be_marked(address: str, extent: Extent, start: Mapping[str, int]) -> bool:
    """It is new, and what it began with was never there to be read: where it is read from must stand in the offsets."""
    return address not in start and extent.first > 0


def advance(start: Mapping[str, int], extents: Mapping[str, Extent], *, max_rows: int = 0, max_bytes: int = 0) -> Offsets:
    """The end of the next micro-batch: no more than the limits (0: none), each address in proportion to what it has.

    At least one message goes along when there is any, so that a message larger than max_bytes does not stop the query.
    """
    ranges = available(start, extents)
    share = 1.0
    rows = sum(len(part) for part in ranges)
    if max_rows and rows > max_rows:
        share = max_rows / rows
    size = sum(len(part) * extents[part.address].message_size for part in ranges)
    if max_bytes and size * share > max_bytes:
        share = max_bytes / size
    end = {address: offset for address, offset in start.items() if address in extents}
    end |= {address: ~extent.first for address, extent in extents.items() if _is_to_be_marked(address, extent, start)}
    left = max(1, int(rows * share))
    for part in sorted(ranges, key=len, reverse=True):  # the longest backlog first, so that none waits for ever
        taken = min(left, len(part), -int(-len(part) * share // 1))  # rounded up: small addresses are not starved by large ones
        if taken:
            end[part.address] = part.start + taken
            left -= taken
    return ordered(end)


def between(start: Mapping[str, int], end: Mapping[str, int]) -> list[OffsetRange]:
    """The ranges of the batch from `start` to `end`."""
    found = []
    for address, stop in sorted(end.items()):
        begin = place(start.get(address, 0))
        if begin > stop >= 0:
            begin = 0
        if stop > begin:
            found.append(OffsetRange(address, begin, stop))
    return found


def dealt(ranges: Sequence[OffsetRange], partitions: int, least: int = LEAST_ROWS) -> list[tuple[OffsetRange, ...]]:
    """The ranges as equal shares, at most `partitions`, each a few ranges one after another; large ranges are split."""
    total = sum(map(len, ranges))
    if not total:
        return []
    shares = min(partitions, max(1, total // least))
    size = -(-total // shares)
    found: list[tuple[OffsetRange, ...]] = []
    share: list[OffsetRange] = []
    room = size
    for part in ranges:
        start = part.start
        while start < part.stop:
            stop = min(part.stop, start + room)
            share.append(OffsetRange(part.address, start, stop))
            room -= stop - start
            start = stop
            if not room:
                found.append(tuple(share))
                share, room = [], size
    return [*found, tuple(share)] if share else found
