"""What of a queue the log alone has: messages beyond what memory may hold, and scheduled ones whose time is far.

A queue is `paged_from` an offset on: what lies behind that is in the log, and is loaded again in order when there is room (paging.py). Of
scheduled messages memory keeps times and offsets (`later`). What becomes of a message that is not delivered is said to the cursor here.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import islice
from typing import TYPE_CHECKING

from stompbox.broker.kinds import BY_OFFSET, Kind
from stompbox.broker.logs.cursor import FAR, Cursor
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import delayed
from stompbox.broker.queues.delayed import Later
from stompbox.broker.queues.sharing import SharedQueue
from stompbox.ranges import Ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stompbox.broker.logs.cursor import Counts
    from stompbox.broker.queues.admission import Admission
    from stompbox.broker.queues.consumer import Binding
    from stompbox.broker.queues.contracts import Address, Engine
    from stompbox.broker.queues.room import Unread
    from stompbox.message import Run
    from stompbox.selectors import Selector


class LoggedQueue(SharedQueue):
    """A queue, and what of it is in the log and not in memory."""

    __slots__ = (
        "admission", "counts", "is_loading", "later", "paged_from", "suspect_below", "taken_ahead", "unasked", "unread",
        "unsearched",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, address: Address, name: str, *, kind: Kind, cursor: Cursor, selector: Selector | None = None,
        owner: str = "", is_auto: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            engine, address, name, kind=kind, cursor=cursor, selector=selector, owner=owner, is_auto=is_auto
        )
        self.paged_from = -1  # from this offset on the log alone has them; -1: all are in memory
        self.later: Later | None = None  # messages for later that the log alone has (arrivals.py)
        self.admission: Admission | None = None
        self.suspect_below = 0  # stored before a restart
        self.counts: Counts | None = None  # how often those were delivered
        self.taken_ahead = Ranges()  # what consumers took out of the log beyond `paged_from` (paging.py)
        self.unasked = Ranges()  # what came without its selector being asked (address.py)
        self.unread: Unread | None = None  # what was read of the log and is not looked through
        self.unsearched: Unread | None = None  # the same, of a search (paging.py)
        self.is_loading = False

    @abstractmethod
    def share_among(self, segment: Segment, bindings: Sequence[Binding]) -> bool:
        """Shares a segment among consumers that somebody has found."""

    @abstractmethod
    def loaded(self, runs: list[Run], start: int, stop: int) -> None:
        """Runs of the log from `start` on, complete up to `stop`."""

    @property
    def is_paged(self) -> bool:
        return self.paged_from >= 0

    @property
    def moves_by_itself(self) -> bool:
        """A reader of a log that keeps what was consumed holds nothing up: who comes too late goes on with what is there."""
        return self.kind is Kind.STREAM and self.address.log.is_retained

    @property
    def sifting(self) -> tuple[Selector | None, ...]:
        """What is asked of a message that is found in the log, whether the queue has it."""
        return (self.selector,)

    def recall(self, counts: Counts | None) -> None:
        """Takes up what was stored of the queue before a restart, which ended what was not, and may have come while messages were out."""
        self.suspect_below = self.doubted_below = self.address.log.next
        self.counts = counts
        if self.kind in (Kind.GROUP, Kind.READER):
            self.cursor.reach_all()
        elif self.cursor.position < self.address.log.next:
            self.paged_from = self.cursor.position
            self.cursor.reach_all()

    def move_on(self, offset: int) -> None:
        """A reader group has come so far; it never goes back by this."""
        if offset > self.cursor.position:
            self.moved = self.engine.now
            self.finish_stretch(self.cursor.position, min(offset, self.address.log.next))

    def go_away(self) -> None:
        """A named reader has gone: the log has what comes from its position on."""
        self.paged_from = -1
        self.is_loading = False
        self.drop_unread()
        self.cursor.reach_all()

    def sorted_out(self) -> None:
        """Finds out anew whether the order of arrival decides everything: not beside an admission, groups, browsers, priorities of
        consumers, selectors, or messages that are sorted by their own priority."""
        is_special = (
            self.admission is not None or self.groups is not None or bool(self.readers) or self.has_tiers
        )
        backlog = self._backlog
        self.is_simple = not (is_special or (backlog is not None and (backlog.selectors or backlog.unsorted)))

    # What is done with

    def finish_with(self, segment: Segment) -> None:
        """Messages that were this queue's and will not be acknowledged."""
        if self.tally is not None:
            self.tally.gone(segment.size, len(segment), segment.run.shape)
        self.settled += segment.stop - segment.first
        self.skip(segment.first, segment.stop)

    def finish_stretch(self, first: int, stop: int) -> int:
        """As `finish_with`, of messages that are not at hand: those that the log may have there, and that it is not done with. How many."""
        count = self.address.log.count(self.cursor.ahead.gaps(max(first, self.cursor.position), stop))
        self.settled += count
        self.skip(first, stop)
        return count

    def skip(self, first: int, stop: int) -> None:
        """Messages that are not for this queue, which is to be remembered."""
        if self.is_durable:
            if self.cursor.acknowledge(first, stop):
                self.engine.note(self)
        elif self.paged_from >= 0:
            self.cursor.pass_over(first, stop)

    def drop(self, segment: Segment, why: str) -> None:
        """Messages that go undelivered; `why` is what they are counted as."""
        self.engine.counters[why] += len(segment)
        self.finish_with(segment)
        if self.admission is not None:
            self.admission.done(segment)

    def expired(self, segment: Segment) -> None:
        self.engine.expire(self, segment)
        if self.admission is not None:
            self.admission.done(segment)

    # Messages for later

    def fits_later(self, segment: Segment) -> bool:
        """Whether a message for later is kept in memory. Not behind one that is not: it would be at hand when that must be read."""
        if self.later is not None:
            return False
        cost = segment.cost
        return self.waits.size + cost <= min(
            delayed.MOST, self.engine.page_size
        ) and self.address.memory.takes(cost, len(segment))

    def leave_for_later(self, first: int, stop: int, when: int) -> None:
        """A message for later is in the log alone, or will be with the next commit."""
        if self.later is None:
            self.later = Later()
            if not self.is_durable:
                self.address.log.hold(self._mark, Cursor(self.id, first, reach=FAR, is_durable=False))
        elif not self.is_durable:
            self.address.log.cursors[self._mark].back_to(first)
        self.later.add(when, first, stop)
        self.waits.ring_by(when)

    @property
    def _mark(self) -> int:
        """The name of what is for later among the log's cursors, apart from that of what is paged."""
        return -self.id

    def forget_later(self) -> Later | None:
        """Nothing is for later any more; what was."""
        later, self.later = self.later, None
        if later is not None:
            self.address.log.let_go(self._mark)
            self.engine.commits.dirty[self.address] = None
        return later

    @property
    def is_behind(self) -> bool:
        """Whether messages that were to come before one whose time is over may still wait, in memory or in the log alone: readers of a log
        are shown a message when it is stored, which may be long after its time."""
        return self.later is not None or self.has_waits

    @property
    def has_room_for_due(self) -> bool:
        """Whether more of what is due is read from the log now."""
        backlog = self.backlog
        return not backlog.count or (backlog.size < delayed.MOST and not self.address.memory.is_full)

    # What is in the log alone

    def page(self, run: Run, first: int) -> None:
        """From here on the log alone has its messages, those of this run, too."""
        self.engine.log_run(self.address, run, is_loose=True)
        self.leave_in_log(first)

    def leave_in_log(self, first: int) -> None:
        """From this offset on the log alone has its messages."""
        self.paged_from = first
        self.drop_unread()  # the log may get what it did not have when it was read
        if self.is_durable:
            # what the log has before it and behind the queue's last message is not for it, and holds nothing there
            self.cursor.reach_to(first, FAR)
        elif not self.moves_by_itself:
            self.address.log.hold(self.id, Cursor(self.id, first, reach=FAR, is_durable=False))

    def begin_loading(self, start: int) -> Unread | None:
        """The log is read from there on; what was read of it before and is not looked through."""
        self.paged_from = start
        self.is_loading = True
        return self.keep_unread(None)

    def wait_for_log(self, *, is_waiting: bool) -> None:
        """Somebody reads the log for it, or has read it."""
        self.is_loading = is_waiting

    def keep_unread(self, unread: Unread | None) -> Unread | None:
        """What was read and not looked through, which counts as memory that its address takes; what was kept before."""
        before, self.unread = self.unread, unread
        return self._count_kept(before, unread)

    def keep_unsearched(self, unread: Unread | None) -> Unread | None:
        """As `keep_unread`, of a search."""
        before, self.unsearched = self.unsearched, unread
        return self._count_kept(before, unread)

    def _count_kept(self, before: Unread | None, unread: Unread | None) -> Unread | None:
        change = (0 if unread is None else unread.cost) - (0 if before is None else before.cost)
        if change:
            self.address.memory.count_beside(change)
        return before

    def drop_unread(self) -> None:
        """What was read and not looked through is in the log, where it is found again."""
        self.keep_unread(None)
        self.keep_unsearched(None)

    @property
    def has_unread(self) -> bool:
        return self.unread is not None or self.unsearched is not None

    def still_in_log(self, first: int, stop: int) -> list[tuple[int, int]]:
        """What of first .. stop-1 was neither handed out nor acknowledged while it was paged."""
        return list(self._gaps(first, stop))

    def _gaps(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        for low, high in self.cursor.ahead.gaps(max(first, self.cursor.position), stop):
            yield from self.taken_ahead.gaps(low, high)

    def pass_over_log(self, stop: int, most: int) -> bool:
        """What is in the log alone, up to `stop`, is not to be delivered; so many stretches of it at once. True when there is more."""
        if not 0 <= self.paged_from < stop:
            return False
        found = list(islice(self._gaps(self.paged_from, stop), most))
        for low, high in found:
            self.engine.counters["purged"] += self.finish_stretch(low, high)
        is_more = len(found) == most and found[-1][1] < stop
        self._loaded_to(found[-1][1] if is_more else stop)
        return is_more

    def _loaded_to(self, stop: int) -> None:
        is_all = stop >= self.log_end
        self.paged_from = -1 if is_all else stop
        if is_all:
            self.drop_unread()
        self.unasked.remove(0, stop)
        if self.taken_ahead:
            self.taken_ahead.add(stop, self.taken_ahead.take_prefix(stop))
        if not self.is_durable:
            self._pass_over(self.cursor.position, stop)  # what was set aside while it was paged is behind it
        elif is_all and self.kind not in BY_OFFSET:
            self.cursor.reach_all(stop)
        self._paged_on()

    def _paged_on(self) -> None:
        """A part of the paged messages is in memory again."""
        log = self.address.log
        if self.id in log.cursors and not self.is_durable:
            if self.paged_from < 0:
                log.let_go(self.id)
            else:
                log.cursors[self.id].move(self.paged_from)
        self.engine.commits.dirty[self.address] = None

    def _pass_over(self, first: int, stop: int) -> None:
        """The log has nothing there for this queue."""
        if first < stop:
            self.cursor.pass_over(first, stop)

    def is_fresh(self, segment: Segment) -> bool:
        """Nobody has had it yet, as far as memory knows: the log knows as much of it."""
        return not segment.deliveries and (not segment.is_suspect or segment.first < self.doubted_below)
