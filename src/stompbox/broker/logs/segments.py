"""Parts of runs with one history: what backlogs, deliveries and transactions hold."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final, TypeVar

from stompbox.broker import sweeping
from stompbox.message import Run, Shape, room_of

T = TypeVar("T")

EACH: Final = 64  # octets of memory that a message costs beside its body, at a guess
VALUE: Final = 48  # and that the value of a hole costs beside its octets
HEADER: Final = 160  # and that a header of a shape, its destination aside, costs beside its octets
RUN: Final = 512  # and that a run costs beside its messages
_ROOM: Final = "room"  # of Shape.cache


def _room_of(shape: Shape) -> int:
    """Octets of memory that the texts of its headers take."""
    known: int | None = shape.cache.get(_ROOM)
    if known is None:
        wide = sum([room_of(value) - len(value) for value in shape.headers.values()])
        known = shape.cache[_ROOM] = shape.octets + wide
    return known


def _shared(shape: Shape, room: int) -> int:
    """Octets of a run and its shape, whose headers take `room`. Most shapes have but one run, or their runs are long."""
    return RUN + room + HEADER * (len(shape.headers) - 1)


def _weigh(run: Run) -> None:
    """Notes what a run costs, and each of its messages."""
    count, room = len(run.bodies), _room_of(run.shape)
    run.share = EACH + room // (count or 1)
    run.cost = _shared(run.shape, room)
    if not (run.is_large and run.is_staged):
        run.cost += (run.size if not run.is_large else 0) + EACH * count
        if run.columns:
            run.cost += run.varying + VALUE * count * len(run.columns)


def cost_of(run: Run) -> int:
    """Octets of memory, about: a run of empty bodies is not free."""
    if run.cost < 0:
        _weigh(run)
    return run.cost


def cost_of_all(runs: Iterable[Run]) -> int:
    return sum([run.cost if run.cost >= 0 else cost_of(run) for run in runs])


def share_of(run: Run) -> int:
    """Octets that each message of a run takes beside its body: all of them together keep the headers once."""
    if not run.share:
        _weigh(run)
    return run.share


def taken_by(run: Run, size: int, count: int) -> int:
    """Octets that so many messages of a run take, whose bodies have `size`: of bodies and headers which are in memory, and what is kept for
    each."""
    return (run.share or share_of(run)) * count + (0 if run.is_large else size)


class Segment:
    """Messages first .. stop-1 (offsets) of a run that were delivered, failed and came back together, if ever."""

    __slots__ = (
        "_size",
        "_values",
        "deliveries",
        "failures",
        "first",
        "home",
        "is_suspect",
        "run",
        "stop",
        "turn",
    )

    def __init__(
        self,
        run: Run,
        first: int,
        stop: int,
        deliveries: int = 0,
        failures: int = 0,
        *,
        is_suspect: bool = False,
    ) -> None:
        self.run = run
        self.first = first
        self.stop = stop
        self.deliveries = deliveries  # MESSAGE frames written for each of them before this one
        self.failures = failures  # of those, how many count towards max-delivery-attempts
        self.is_suspect = is_suspect  # may have been delivered before, which `deliveries` does not say
        self.turn = 0  # its place in what its consumer was given
        self.home: Any = None  # the backlog where it waits
        self._size = self._values = -1  # not looked at yet

    def __len__(self) -> int:
        return self.stop - self.first

    @property
    def is_redelivered(self) -> bool:
        return self.deliveries > 0 or self.is_suspect

    @property
    def size(self) -> int:
        """Body bytes. Added up once; what is cut off is taken off."""
        if self._size < 0:
            run, count = self.run, self.stop - self.first
            start = self.first - run.first
            self._size = (
                run.size if count == len(run.bodies) else sum(map(len, run.bodies[start : start + count]))
            )
        return self._size

    @property
    def octets(self) -> int:
        """Octets that its messages take (taken_by)."""
        return taken_by(self.run, self.size, self.stop - self.first)

    @property
    def cost(self) -> int:
        """How many octets of memory the segment takes, about."""
        if self.stop - self.first == len(self.run.bodies):
            return cost_of(self.run)
        run, count = self.run, self.stop - self.first
        values = self.values + VALUE * count * len(run.columns) if run.columns else 0
        return (
            (self.size if not run.is_large else 0)
            + EACH * count
            + _shared(run.shape, _room_of(run.shape))
            + values
        )

    @property
    def values(self) -> int:
        """Octets of the values of holes. Added up once, as the size is."""
        if self._values < 0:
            first, stop = self.first - self.run.first, self.stop - self.run.first
            self._values = sum([sum(map(len, column[first:stop])) for column in self.run.columns])
        return self._values

    def part(self, first: int, stop: int) -> Segment:
        part = Segment(self.run, first, stop, self.deliveries, self.failures, is_suspect=self.is_suspect)
        part.turn = self.turn
        return part

    def without(self, offset: int) -> list[Segment]:
        """What is left on both sides of one message."""
        return [
            self.part(first, stop)
            for first, stop in ((self.first, offset), (offset + 1, self.stop))
            if first < stop
        ]

    def cut(self, stop: int) -> Segment:
        """Takes first .. stop-1 off the front and returns it."""
        front = self.part(self.first, stop)
        self.first = stop
        self._share_size(front)
        return front

    def cut_back(self, first: int) -> Segment:
        """Takes all from `first` on off the back and returns it."""
        back = self.part(first, self.stop)
        self.stop = first
        self._share_size(back)
        return back

    def _share_size(self, part: Segment) -> None:
        """What was cut off has its part of the size, if that is known. The shorter one's is added up: whoever cuts a segment to pieces, in
        any order, pays for n log n messages and not for the rest of them each time."""
        whole, values = self._size, self._values
        if whole < 0 and values < 0:
            return
        rest, shorter = (self, part) if len(part) <= len(self) else (part, self)
        self._size = self._values = -1
        rest.weigh(
            whole - shorter.size if whole >= 0 else -1,
            values - shorter.values if values >= 0 else -1,
        )

    def weigh(self, size: int, values: int) -> None:
        """The size, and the octets of the values of holes, are known and not to be added up; -1: they are not."""
        self._size, self._values = size, values

    def come_back(self, deliveries: int, failures: int) -> None:
        """So many deliveries more, of which so many count as failed."""
        self.deliveries += deliveries
        self.failures += failures
        self.is_suspect = True

    def suspect(self) -> None:
        """The messages may have been delivered before: they go out as redelivered."""
        self.is_suspect = True

    def become(self, run: Run) -> None:
        """The segment is of another run from now on, which has the same offsets."""
        self.run = run
        self._values = -1

    def fitting(self, room: int) -> int:
        """How many messages may go before `room` body bytes are used up; the last one may go beyond."""
        if self.size <= room:
            return self.stop - self.first
        bodies, start = self.run.bodies, self.first - self.run.first
        at, portion = start, 64
        while True:  # no more bodies are looked at than go, by and large
            sums = list(accumulate(map(len, bodies[at : at + portion])))
            if sums[-1] >= room:
                return at - start + bisect_left(sums, room) + 1
            room -= sums[-1]
            at += portion
            portion *= 4

    def __repr__(self) -> str:
        return f"<Segment {self.first}..{self.stop} deliveries={self.deliveries} failures={self.failures}>"


def _place(firsts: list[int], new: list[int]) -> None:
    """Puts offsets into a sorted list, each once. Only what they lie between is moved, which is little where they come in order; and what
    is in two stretches that are sorted is sorted fast."""
    if new:
        low, high = bisect_left(firsts, min(new)), bisect_right(firsts, max(new))
        between = firsts[low:high]
        between += sorted({first for first in new if not _has(firsts, first)})
        between.sort()
        firsts[low:high] = between


def _has(known: list[int], first: int) -> bool:
    """Whether it is in a sorted list."""
    at = bisect_left(known, first)
    return at < len(known) and known[at] == first


NEAR: Final = 4096  # offsets that are moved for one that lies below them: a microsecond
LATE: Final = 512  # offsets that stand apart at the most
FEW: Final = 8  # offsets that are looked at for each one that goes: so one in six is gone at the most, and nobody does much at once
SHORT: Final = 2 * sweeping.LEAST  # so many are looked at together, whenever LEAST of them are gone
_NONE: Final[
    list[int]
] = []  # where none do, which is nearly everywhere: one list for all, to which nothing is added


class _Offsets:
    """Where segments begin, in order; some of them are gone. What is lower than others that are there, as all is that is delivered again,
    stands apart until it is much where it would move very many that are above it."""

    __slots__ = ("_firsts", "_late", "_swept")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # sorted
        self._late = _NONE  # sorted
        self._swept = 0  # index up to which what is gone was dropped last

    def _note(self, first: int) -> None:
        """Has an offset that is not above all others."""
        firsts = self._firsts
        at = bisect_left(firsts, first)
        if firsts[at] == first or _has(self._late, first):
            return
        if len(firsts) - at <= NEAR:
            firsts.insert(at, first)
            return
        if not self._late:
            self._late = [first]
            return
        insort(self._late, first)
        if len(self._late) >= LATE:
            self._join()

    def _join(self) -> None:
        """Nothing stands apart any more."""
        _place(self._firsts, self._late)
        self._late = _NONE

    def _sweep(self, there: dict[int, T]) -> None:
        """Something is gone. Drops what is gone of the next FEW, when that is much, round and round: who takes out what lies in order is
        soon far from what went first."""
        firsts = self._firsts
        known = len(firsts) + len(self._late)
        if not sweeping.is_due(known - len(there), known):
            return
        at = self._swept
        if at >= len(firsts):
            at, self._late = 0, [first for first in self._late if first in there] or _NONE
        stop = at + FEW
        if known <= SHORT:
            at, stop = 0, known
        kept = [first for first in firsts[at:stop] if first in there]
        firsts[at:stop] = kept
        self._swept = at + len(kept)

    def _last(self, offset: int, there: dict[int, T]) -> Iterator[T]:
        """What begins there, or last before it. What is stepped over is gone, and is not stepped over again."""
        for firsts in (self._firsts, self._late):
            at = stop = bisect_right(firsts, offset)
            while at and firsts[at - 1] not in there:
                at -= 1
            del firsts[at:stop]
            if at:
                yield there[firsts[at - 1]]

    def _lowest(self, there: Container[int]) -> int | None:
        """The lowest of these that is there. Those before it are gone, and are not stepped over again."""
        found: int | None = None
        for firsts in (self._firsts, self._late):
            at = next((at for at, first in enumerate(firsts) if first in there), len(firsts))
            del firsts[:at]
            if firsts and (found is None or firsts[0] < found):
                found = firsts[0]
        return found


class Spans(_Offsets):
    """Which offsets a ledger has, by the segments that it has them in: who asks for another is told at the cost of a search."""

    __slots__ = ("_stops",)

    def __init__(self) -> None:
        super().__init__()
        self._stops: dict[int, int] = {}  # by first offset

    def add(self, first: int, stop: int) -> None:
        is_new = first not in self._stops
        self._stops[first] = stop
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)
        elif is_new:
            self._note(first)

    def add_all(self, segments: list[Segment]) -> None:
        """Very many at once: what they lie between is moved once."""
        self._stops.update([(segment.first, segment.stop) for segment in segments])
        self._join()
        _place(self._firsts, [segment.first for segment in segments])

    def remove(self, first: int) -> None:
        """Takes out the whole segment that begins at `first`."""
        self._stops.pop(first, None)
        self._sweep(self._stops)

    def __contains__(self, offset: int) -> bool:
        return any(offset < stop for stop in self._last(offset, self._stops))

    def oldest(self) -> int | None:
        """The lowest offset that it has."""
        return self._lowest(self._stops)

    def __len__(self) -> int:
        """How many segments there are."""
        return len(self._stops)


NO_MORE: Final = -1
EVERY: Final = 1 << 62  # however many there are


class Held(_Offsets):
    """Segments by offset, for acknowledgements in any order, each at the cost of a search at most."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        super().__init__()
        self._segments: dict[int, Segment] = {}  # by first offset

    def add(self, segment: Segment) -> None:
        first, firsts = segment.first, self._firsts
        self._segments[first] = segment
        if not firsts or first > firsts[-1]:
            firsts.append(first)
        else:
            self._note(first)

    def add_all(self, segments: list[Segment]) -> None:
        """Very many at once: what they lie between is moved once."""
        self._segments.update([(segment.first, segment) for segment in segments])
        self._join()
        _place(self._firsts, [segment.first for segment in segments])

    def may_have(self, offset: int) -> bool:
        """Whether it is worth to look for it: the ends alone are looked at, since hundreds of subscriptions to one queue may be asked."""
        if offset in self._segments or self._late:
            return True
        firsts = self._firsts
        if not firsts or offset < firsts[0]:
            return False
        last = self._segments.get(firsts[-1])
        return last is None or offset < last.stop

    def take(self, first: int, stop: int, most: int = EVERY) -> tuple[list[Segment], int]:
        """Removes and returns first .. stop-1 as far as it is held, in `most` segments at the most, and the offset where that ends."""
        taken: list[Segment] = []
        while first < stop and len(taken) < most:
            segment = self._segments.get(first) or self._around(first)
            if segment is None:
                break
            part = self._remove(segment, first, min(stop, segment.stop))
            taken.append(part)
            first = part.stop
        return taken, first

    def _around(self, offset: int) -> Segment | None:
        """The segment that holds the offset, not as its first."""
        return next(
            (segment for segment in self._last(offset, self._segments) if offset < segment.stop), None
        )

    def _remove(self, segment: Segment, first: int, stop: int) -> Segment:
        if first > segment.first:
            segment = segment.cut_back(first)
        else:
            del self._segments[first]
        if stop < segment.stop:
            front = segment.cut(stop)
            self.add(segment)
            segment = front
        self._sweep(self._segments)
        return segment

    def segments(self) -> list[Segment]:
        """All segments by offset; they stay."""
        return [self._segments[first] for first in sorted(self._segments)]

    def oldest(self) -> int | None:
        """The lowest offset that is held."""
        return self._lowest(self._segments)

    def behind(self, offset: int, most: int) -> tuple[list[Segment], int]:
        """Looks at the next `most` segments that begin behind an offset: those that are not gone, and where the last one began; NO_MORE."""
        self._join()
        at = bisect_right(self._firsts, offset)
        firsts = self._firsts[at : at + most]
        found = [self._segments[first] for first in firsts if first in self._segments]
        return found, firsts[-1] if at + most < len(self._firsts) else NO_MORE

    def take_lowest(self, most: int) -> list[Segment]:
        """Takes out the segments with the lowest offsets, of `most` that there are or were; none is left when it is empty."""
        self._join()
        firsts = self._firsts[:most]
        del self._firsts[:most]
        return [self._segments.pop(first) for first in firsts if first in self._segments]

    def clear(self) -> list[Segment]:
        """Takes out all segments, and returns them by offset."""
        found = self.segments()
        self._segments, self._firsts, self._late = {}, [], _NONE
        return found

    def __len__(self) -> int:
        """How many segments there are."""
        return len(self._segments)


def values_of(run: Run, name: str, first: int, stop: int) -> Sequence[bytes]:
    """The header's values in messages first .. stop-1; empty where there is none."""
    holes = run.shape.holes
    if name in holes:
        return run.columns[holes.index(name)][first - run.first : stop - run.first]
    return [run.shape.headers.get(name, "").encode()] * (stop - first)


LONGEST: Final = 64  # octets of a value that are remembered as they are; a longer one by its digest
_DIGEST: Final = b"\0blake2b:"  # no header has a NUL


def key_of(value: bytes) -> bytes:
    """What is remembered of the value of a header: its digest, where it is long."""
    if len(value) <= LONGEST:
        return value
    return _DIGEST + blake2b(value, digest_size=24).hexdigest().encode()
