"""What one session keeps in memory by its subscriptions: messages that it was handed and has not acknowledged, and what it asked for.

A window bounds one subscription; a client may have a thousand. So those of a session have a bound together (`most`), and all sessions
have one (`Unacknowledged.most`). Beyond them a subscription that has something gets no more, and its messages stay in their queues; one
that has nothing gets one message at a time, so that nobody waits for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from stompbox.broker.segments import EACH, cost_of

if TYPE_CHECKING:
    from stompbox.broker.consumer import Consumer
    from stompbox.broker.segments import Segment
    from stompbox.message import Run

NO_LIMIT: Final = 1 << 62
LOOKED: Final = 16
SHARE: Final = 64 << 10  # octets that a session may have in any case, however much the others have


class Unacknowledged:
    """Octets of memory that delivered messages take, of all sessions. A run counts once, however many have some of it."""

    __slots__ = ("denied", "most", "size")

    def __init__(self) -> None:
        self.size = 0
        self.most = NO_LIMIT
        self.denied: OrderedDict[Consumer, None] = OrderedDict()  # who would have got more

    def feed(self) -> None:
        """Those of them get more who may have it now; LOOKED that may not are looked at, and come again behind the others."""
        misses = 0
        while self.denied and misses < LOOKED:
            consumer, _ = self.denied.popitem(last=False)
            if consumer.is_closed:
                continue
            if consumer.has_credit:  # else it is among them again
                consumer.feed()
            else:
                misses += 1

    def take(self, run: Run, count: int) -> None:
        if not run.takers:
            self.size += cost_of(run)
        run.takers += count

    def give_back(self, run: Run, count: int) -> None:
        run.takers -= count
        if not run.takers:
            self.size -= cost_of(run)

    def __repr__(self) -> str:
        return f"<Unacknowledged {self.size} octets>"


class Allowance:
    """Of one session. `size`: octets of messages that are not acknowledged; `subscribed`: of its subscriptions themselves."""

    __slots__ = ("most", "size", "subscribed", "whole")

    def __init__(self, whole: Unacknowledged | None = None, most: int = NO_LIMIT) -> None:
        self.whole = whole if whole is not None else Unacknowledged()
        self.most = most
        self.size = 0
        self.subscribed = 0

    def take(self, run: Run, size: int, count: int) -> None:
        """Messages of a run, `size` octets of bodies, are handed out."""
        self.size += EACH * count if run.is_large else size + EACH * count
        self.whole.take(run, count)

    def give_back(self, run: Run, size: int, count: int) -> None:
        self.size -= EACH * count if run.is_large else size + EACH * count
        self.whole.give_back(run, count)

    @property
    def has_room(self) -> bool:
        return self.size < self.most and (self.whole.size < self.whole.most or self.size < SHARE)

    def fitting(self, segment: Segment) -> int:
        """How many of its messages may go, one at the least."""
        room, count = self.most - self.size, segment.stop - segment.first
        return count if segment.run.is_large or segment.size <= room else max(1, segment.fitting(room))

    def __repr__(self) -> str:
        return f"<Allowance unacknowledged={self.size} of {self.most} subscribed={self.subscribed}>"
