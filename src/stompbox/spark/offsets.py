"""Offsets as Spark keeps them in its checkpoint: {"address": [next, incarnation]}, and what lies between two of them.

Decides what one micro-batch takes, and how ranges of offsets are dealt out to tasks: from the two ends alone, so that a batch that is
planned again after a crash is the same batch. Asks the broker nothing.

    next                            as older checkpoints have it: taken to be of the log that is there
    [next, incarnation]             the offset after the last message taken, and which log that message was in (incarnations.py)
    [next, incarnation, begin]      the same, of the first batch, whose start Spark does not keep, and of one that goes on elsewhere than
                                    the one before has ended: this one began at `begin`
    an address that stands in `end` and not in `start`   is new: it is read from 0, unless what it begins with is gone already
    an offset below 0, ~first                            such a new one: nothing of it is in this batch, the next one goes on at `first`
    an address that stands in `start` and not in `end`   is gone from the broker: nothing of it is read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from stompbox.incarnations import UNTOLD, Incarnations, Position, difference

# of a task: one costs Spark about 30 ms, in which one that runs already reads as many rows
LEAST_ROWS: Final = 10_000

Offset = int | list[int | str]
Offsets = Mapping[str, Offset]
"""Per address, the offset after the last message taken. Keys are sorted: Spark compares the JSON as text."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A log as the broker describes it: `first` is the lowest offset that may be there, `next` follows the last committed one."""

    first: int
    next: int
    messages: int = 0
    size: int = 0  # bytes of all its messages as they are stored
    incarnations: Incarnations = UNTOLD

    @property
    def message_size(self) -> int:
        """Bytes, on average; 1 KiB while nothing is known."""
        return max(1, self.size // self.messages) if self.messages and self.size else 1024


_NONE: Final[Mapping[str, Extent]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The messages start .. stop-1 of one address."""

    address: str
    start: int
    stop: int
    incarnation: str = ""  # of the last of them; "": unknown

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Loss:
    """Why messages that should be read are not there any more; `count` is how many offsets, -1 when nobody can know."""

    address: str
    text: str
    count: int


def number_of(offset: Offset) -> int:
    """The offset that is meant, of one in a checkpoint."""
    return _number_of(_parts(offset)[0])


def _number_of(offset: int) -> int:
    return offset if offset >= 0 else ~offset


def _parts(offset: Offset) -> tuple[int, str, int]:
    """Offset, incarnation ("": unknown) and where the batch began (-1: where the one before has ended)."""
    if isinstance(offset, int):
        return offset, "", -1
    next, id, *begin = offset
    return int(next), str(id), int(begin[0]) if begin else -1


def position(offset: Offset) -> Position:
    next, id, _ = _parts(offset)
    return Position(_number_of(next), id)


def numbers_of(offsets: Offsets) -> dict[str, int]:
    return {address: number_of(offset) for address, offset in offsets.items()}


def ordered(offsets: Offsets) -> dict[str, Offset]:
    return dict(sorted(offsets.items()))


def told(extent: Extent, offset: int, begin: int = -1) -> Offset:
    """An offset (or ~first) in this log, as a checkpoint has it."""
    if not extent.incarnations.entries:
        return offset
    return [offset, extent.incarnations.of(_number_of(offset)), *([begin] if begin >= 0 else [])]


def starts(offsets: Mapping[str, int], extents: Mapping[str, Extent]) -> dict[str, Offset]:
    """Where a query begins: what its first batch takes remembers it."""
    return ordered({address: told(extents[address], offset, offset) for address, offset in offsets.items()})


def losses(start: Offsets, extents: Mapping[str, Extent], ended: Mapping[str, Extent] = _NONE) -> list[Loss]:
    """What is between the checkpoint and the broker: vanished, other, shorter and trimmed logs. `ended`: of addresses that are gone."""
    found = []
    for address, value in start.items():
        extent, (offset, id) = extents.get(address), position(value)
        if extent is None:
            found += _lost_with(address, offset, id, ended.get(address))
        elif not extent.incarnations.holds(id, offset):
            if _parts(value)[0] >= 0:  # else nothing of it was read, or promised
                bounds = extent.first, extent.next
                found.append(Loss(address, difference(address, extent.incarnations, id, offset, bounds), -1))
        elif extent.next < offset:
            found.append(
                Loss(
                    address,
                    f"the log of {address!r} ends at offset {extent.next}, before the checkpoint's {offset}",
                    -1,
                )
            )
        elif extent.first > offset:
            text = f"offsets {offset} to {extent.first - 1} of {address!r} were deleted (retention) before they were read"
            found.append(Loss(address, text, extent.first - offset))
    return found


def _lost_with(address: str, offset: int, id: str, ended: Extent | None) -> list[Loss]:
    """With an address that is gone; one of which all was read, or nothing yet, has taken nothing along."""
    is_same = ended is not None and ended.incarnations.holds(id, offset)
    if not offset or (is_same and ended is not None and ended.next == offset):
        return []
    text = f"address {address!r} is gone from the broker, or from the destinations; the checkpoint is at offset {offset}"
    if is_same and ended is not None and ended.next > offset:
        return [Loss(address, f"{text}, and its log had ended at {ended.next}", -1)]
    return [Loss(address, text, -1)]


def available(start: Offsets, extents: Mapping[str, Extent]) -> list[OffsetRange]:
    """What there is to read after `start`, by address."""
    found = []
    for address, extent in sorted(extents.items()):
        if _is_to_be_marked(address, extent, start):
            continue
        begin = _begin(start.get(address, 0), extent)
        if extent.next > begin:
            found.append(OffsetRange(address, begin, extent.next))
    return found


def _is_elsewhere(value: Offset, extent: Extent) -> bool:
    """The log does not go on from there: it is another one, or has lost its end."""
    offset, id = position(value)
    return not extent.incarnations.holds(id, offset) or extent.next < offset


def _begin(value: Offset, extent: Extent) -> int:
    offset, id = position(value)
    if extent.next >= offset or not extent.incarnations.holds(id, offset):
        return extent.incarnations.resumed(id, offset, extent.first)
    return extent.next if id else extent.first  # without an id nobody knows whether it was made anew


def _is_to_be_marked(address: str, extent: Extent, start: Offsets) -> bool:
    """Whether an address is new, and what its log began with was never there to be read: where it is read from must be in the offsets."""
    if address not in start:
        return extent.first > 0
    return _parts(start[address])[0] < 0 and _is_elsewhere(start[address], extent)


def advance(
    start: Offsets, extents: Mapping[str, Extent], *, max_rows: int = 0, max_bytes: int = 0
) -> dict[str, Offset]:
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
    end = {
        address: _unmoved(value, extents[address]) for address, value in start.items() if address in extents
    }
    end |= {
        address: told(extent, ~extent.first)
        for address, extent in extents.items()
        if _is_to_be_marked(address, extent, start)
    }
    left = max(1, int(rows * share))
    for part in sorted(ranges, key=len, reverse=True):
        # the longest backlog first, so that none waits for ever
        # rounded up: small addresses are not starved by large ones
        taken = min(left, len(part), -int(-len(part) * share // 1))
        if taken:
            end[part.address] = _moved(
                start.get(part.address, 0), extents[part.address], part.start, part.start + taken
            )
            left -= taken
    return ordered(end)


def _unmoved(value: Offset, extent: Extent) -> Offset:
    """The end of an address of which nothing is taken."""
    if not extent.incarnations.entries:
        return value
    if _is_elsewhere(value, extent):
        return told(extent, _begin(value, extent), _begin(value, extent))
    return told(extent, value) if isinstance(value, int) else value


def _moved(value: Offset, extent: Extent, begin: int, stop: int) -> Offset:
    offset, _, first = _parts(value)
    # of the query, or after a leap: it may have to be read again when nobody remembers where it began
    is_first = offset == first
    return told(
        extent,
        stop,
        offset
        if is_first and not _is_elsewhere(value, extent)
        else begin
        if _is_elsewhere(value, extent)
        else -1,
    )


def between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The ranges of the batch from `start` to `end`."""
    found = []
    for address, value in sorted(end.items()):
        before = start.get(address, 0)
        stop, id, begin = _parts(value)
        if before == value and address in start:
            continue
        if begin < 0:
            begin = number_of(before)
            if begin > stop >= 0 and not id:
                begin = 0
        if stop > begin:
            found.append(OffsetRange(address, begin, stop, id))
    return found


def dealt(
    ranges: Sequence[OffsetRange],
    partitions: int,
    least: int = LEAST_ROWS,
    *,
    at_least: int = 1,
    max_records: int = 0,
) -> list[tuple[OffsetRange, ...]]:
    """The ranges as equal shares, at most `partitions`, each a few ranges one after another; large ranges are split.

    `at_least` so many shares as there are rows for, and more than `partitions` where else one would have more than `max_records`.
    """
    total = sum(map(len, ranges))
    if not total:
        return []
    shares = max(
        min(partitions, max(1, total // least)),
        min(at_least, total),
        -(-total // max_records) if max_records else 1,
    )
    size = -(-total // shares)
    found: list[tuple[OffsetRange, ...]] = []
    share: list[OffsetRange] = []
    room = size
    for part in ranges:
        start = part.start
        while start < part.stop:
            stop = min(part.stop, start + room)
            share.append(replace(part, start=start, stop=stop))
            room -= stop - start
            start = stop
            if not room:
                found.append(tuple(share))
                share, room = [], size
    return [*found, tuple(share)] if share else found
