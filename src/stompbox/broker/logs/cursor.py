"""A cursor: how far one reader of a log has come."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from stompbox.broker.logs.segments import EVERY, Segment
from stompbox.message import VOLATILE
from stompbox.ranges import Ranges, united
from stompbox.store.base import Delivered

FAR: Final = 1 << 62  # beyond any offset


class Cursor:
    """A position, below which all is acknowledged, and what was acknowledged ahead of it.

    `unsaved` collects what the next commit has to say about it; None for a cursor that lives in memory only.
    `reach`: what the log has from there on was never this reader's, so that it need not be told of each message that passes it
    by; FAR while the reader still has to look at the log itself.
    """

    __slots__ = ("ahead", "began", "id", "position", "reach", "saved", "unsaved")

    def __init__(
        self,
        id: int,
        position: int,
        ahead: Ranges | None = None,
        *,
        is_durable: bool,
        reach: int = -1,
        began: int = -1,
    ) -> None:
        self.id = id
        self.began = (
            position if began < 0 else began
        )  # where it was made: nothing before that was ever its reader's
        self.position = position
        self.ahead = ahead if ahead is not None else Ranges()
        self.reach = reach if reach >= 0 else position
        self.saved = position  # what the store was told
        self.unsaved: list[tuple[int, int]] | None = [] if is_durable else None

    @property
    def number(self) -> int:
        """As the routing of a run names it that is for its queue alone (message.py, FOR_ONE); 0: it is too large for that."""
        if self.unsaved is None:
            return VOLATILE | self.id % VOLATILE
        return self.id if self.id < VOLATILE else 0

    @property
    def behind(self) -> int:
        """How many offsets it is done with, from 0 on: its position, and what was acknowledged ahead of it."""
        return self.position + self.ahead.total

    def acknowledge(self, first: int, stop: int) -> bool:
        """Marks first .. stop-1, which may be nothing. True when this is the first news for the next commit."""
        if first >= stop:
            return False
        self.pass_over(first, stop)
        unsaved = self.unsaved
        if unsaved is None:
            return False
        if not unsaved:
            unsaved.append((first, stop))
            return True
        if unsaved[-1][1] == first:
            unsaved[-1] = (unsaved[-1][0], stop)
        elif unsaved[-1][0] == stop:
            unsaved[-1] = (first, unsaved[-1][1])
        else:
            unsaved.append((first, stop))
        return False

    def acknowledge_all(self, starts: list[int], stops: list[int]) -> bool:
        """Marks each starts[n] .. stops[n]-1 as `acknowledge` does, all at once."""
        starts, stops = united(starts, stops)
        self.ahead.add_all(starts, stops)
        self.position = self.ahead.take_prefix(self.position)
        if self.unsaved is None or not starts:
            return False
        is_first = not self.unsaved
        self.unsaved += zip(starts, stops, strict=True)
        return is_first

    def revoke(self, first: int, stop: int) -> None:
        """first .. stop-1 is not acknowledged after all; no commit that the store has said that it is. What is unsaved stays as it is, for
        there may be very much of it: `news` tells what of it is acknowledged then."""
        if first < self.position:
            self.ahead.add(min(stop, self.position), self.position)
            self.position = first
            self.saved = min(self.saved, first)
        self.ahead.remove(first, stop)

    def put(self, position: int) -> None:
        """Elsewhere, also back; the next commit has to say so."""
        self.position = self.saved = position
        self.ahead, self.reach = Ranges(), FAR
        if self.unsaved:
            self.unsaved = []

    def reach_to(self, first: int, stop: int) -> None:
        """Messages of this reader have come; what the log got before them was not for it."""
        reach = self.reach
        if first > reach:
            self.pass_over(reach, first)
        if stop > reach:
            self.reach = stop

    def reach_all(self, stop: int = FAR) -> None:
        """The reader looks at the log itself up to there."""
        self.reach = stop

    def move(self, position: int) -> None:
        """A mark, which holds the log back for a reader, lies here from now on."""
        self.position = position

    def back_to(self, position: int) -> None:
        """A mark lies here, if it is not further back."""
        self.position = min(self.position, position)

    def pass_over(self, first: int, stop: int) -> None:
        """Marks what is not for this reader, and would be found not to be after a restart: no commit needs to say so."""
        if first >= stop:
            return
        if first <= self.position:
            self.position = max(self.position, stop)
            if self.ahead.starts:
                self.position = self.ahead.take_prefix(self.position)
        else:
            self.ahead.add(first, stop)

    def settle(self, next: int) -> int:
        """The position, in a log that goes to `next`: who has answered all that it was given needs nothing of the rest."""
        if self.reach <= self.position < next:
            self.position = self.ahead.take_prefix(next)
            self.reach = self.position
        return self.position

    def news(self, stored: int, most: int = EVERY) -> list[tuple[int, int]]:
        """What the next commit has to say of `most` ranges that were acknowledged since the last one, which are saved then; `stored` is the
        offset after the last message that the store has.

        Acknowledgements of what was never stored need no saving, but lie between others: what is said covers them, so that the
        stored cursor has no more gaps than this one.
        """
        unsaved = self.unsaved or []
        told = unsaved[:most]
        del unsaved[:most]
        found: dict[tuple[int, int], None] = {}
        if self.saved < min(self.position, stored):
            found[self.saved, self.position] = None
            self.saved = self.position
        starts, stops = self.ahead.starts, self.ahead.stops
        if len(told) > 1 and (end := max([stop for _, stop in told])) <= stored:
            low, high = bisect_right(stops, min(told)[0]), bisect_left(starts, end)
            if high - low <= 2 * len(told):  # most of what is acknowledged there
                return [*found, *zip(starts[low:high], stops[low:high], strict=True)]
        for first, stop in told:
            if first < stored and stop > self.position:
                at = bisect_right(stops, max(first, self.position))
                while at < len(starts) and starts[at] < stop:  # one, but where some of it was revoked
                    found[starts[at], stops[at]] = None
                    at += 1
        return list(found)

    def not_saved(self, ranges: list[tuple[int, int]]) -> None:
        """The commit that was told these is not in the store."""
        if self.unsaved is not None:
            self.unsaved[:0] = ranges
            self.saved = min([self.saved, *[first for first, _ in ranges]])

    def __repr__(self) -> str:
        return f"<Cursor {self.id} at {self.position} ahead={len(self.ahead)}>"


class Counts:
    """How often messages of one queue were delivered, as it was found when the broker started."""

    def __init__(self, told: list[Delivered]) -> None:
        self._told = told
        self._starts = [start for start, *_ in told]

    def parted(self, segment: Segment) -> Iterator[Segment]:
        """The segment in parts with one history each."""
        told = self._told
        for at in range(max(0, bisect_right(self._starts, segment.first) - 1), len(told)):
            start, stop, deliveries, failures = told[at]
            if start >= segment.stop:
                break
            if stop <= segment.first:
                continue
            if start > segment.first:
                yield segment.cut(start)
            part = segment.cut(stop) if stop < segment.stop else segment
            part.come_back(deliveries - part.deliveries, failures - part.failures)
            yield part
            if part is segment:
                return
        yield segment

    def __repr__(self) -> str:
        return f"<Counts {len(self._told)}>"
