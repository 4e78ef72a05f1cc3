"""What a queue knows, and what it does to that by itself: no other file assigns its attributes.

What it has in memory, the backlog and what waits there for a time, is made when something comes into it: a wildcard subscription has a
queue per address that it covers, and most of them are empty, so they cost the queue alone. What messages go through, as they come and as
consumers answer, is in queue.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice
from typing import TYPE_CHECKING, Any

from stompbox.broker.kinds import BY_OFFSET, PLAIN, READS_THE_LOG, Kind, is_for
from stompbox.broker.logs.cursor import FAR, Cursor
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import delayed
from stompbox.broker.queues.consumer import (
    Binding,
    RoundRobin,
    forget_missing,
    has_tiers,
    takers_of,
    takes,
    with_credit,
)
from stompbox.broker.queues.delayed import Later, Waits
from stompbox.broker.queues.expiry import Expiring
from stompbox.broker.queues.lanes import LANES, Lane, Lanes
from stompbox.ranges import Ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompbox.broker.logs.cursor import Counts
    from stompbox.broker.queues.admission import Admission
    from stompbox.broker.queues.contracts import Address, Engine, Taking
    from stompbox.broker.queues.dispatch import Groups
    from stompbox.broker.queues.memory import Tally
    from stompbox.broker.queues.paging import Room, Unread
    from stompbox.broker.queues.queue import Queue
    from stompbox.config.settings import AddressSettings
    from stompbox.message import Run
    from stompbox.selectors import Selector


class QueueState(ABC):
    """The part of a queue that needs nothing of those who hand out. Who only looks asks for `count`, `size` and `has_waits`: asking for
    `backlog` and `waits` makes them."""

    __slots__ = (
        "__weakref__", "_backlog", "_expiring", "_no_local", "_waits", "address", "admission", "bindings", "candidates", "counts",
        "cursor", "delivering", "doubted_below", "engine", "exclusive", "first_use", "groups", "has_tiers", "is_auto", "is_halfway",
        "is_loading", "is_open", "is_paused", "is_simple", "is_watched", "joined", "kind", "lane_takers", "later", "maker", "moved",
        "name", "out", "owner", "paged_from", "readers", "ready", "redrive", "room", "rules", "selector", "suspect_below",
        "taken_ahead", "takers", "tally", "turn", "unasked", "unread", "unsearched", "used", "uses",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, address: Address, name: str, *, kind: Kind, cursor: Cursor, selector: Selector | None = None,
        owner: str = "", is_auto: bool = False,
    ) -> None:  # fmt: skip
        self.engine = engine
        self.address = address
        self.name = name
        self.kind = kind
        self.cursor = cursor
        self._backlog: Lanes | None = None
        self._expiring: Expiring | None = None
        self._waits: Waits | None = None
        self.selector = selector
        self._no_local = 0
        self.bindings = RoundRobin()
        self.exclusive: RoundRobin | None = None  # the exclusive ones of them
        self.candidates = self.bindings  # those of them that are not known to be without credit; of a single one nobody remembers
        self.takers = self.bindings  # those that get messages now
        self.ready = self.bindings  # and are not known to be without credit
        self.readers: dict[Queue, None] | None = None  # browsers that get copies of what arrives
        self.tally: Tally | None = None  # what it has not consumed, where that is limited (limits.py)
        self.later: Later | None = None  # messages for later that the log alone has (arrivals.py)
        self.delivering = 0  # messages that consumers have and have not acknowledged
        self.out = 0  # octets of them, but for what transactions have acknowledged
        self.room: Room | None = None  # once there was none, as its consumers had too much
        self.paged_from = -1  # from this offset on the log alone has them; -1: all are in memory
        self.suspect_below = 0  # stored before a restart
        self.doubted_below = 0  # may have been delivered before a crash
        self.counts: Counts | None = None  # how often those were delivered
        self.taken_ahead = Ranges()  # what consumers took out of the log beyond `paged_from` (paging.py)
        self.unasked = Ranges()  # what came without its selector being asked (address.py)
        self.unread: Unread | None = None  # what was read of the log and is not looked through
        self.unsearched: Unread | None = None  # the same, of a search (paging.py)
        self.is_loading = False
        self.is_halfway = False  # stopped while somebody still had credit, so that other queues get their turn
        self.turn = 0
        self.rules = PLAIN
        self.admission: Admission | None = None
        self.groups: Groups | None = None  # once there was a message of a group
        self.is_paused = False  # by an operator: nothing goes out
        self.is_open = True  # consumers-before-dispatch: enough have come
        self.has_tiers = False  # consumers differ in priority
        self.is_simple = True
        self.owner = owner  # the durable subscription that it belongs to; of a named reader, whose it is (readers.py)
        self.maker: str | None = None  # the user for whom it counts (makers.py)
        self.is_auto = is_auto  # a frame made it: it goes when nobody needs it (lifetimes.py)
        self.used = engine.now  # when it had something to hand out, or somebody to hand it to
        self.uses = 0  # consumers that it has had
        self.joined = 0  # it was the address's so-manieth queue
        self.is_watched = False  # for slow consumers
        self.redrive: Taking | None = None  # takes its messages back to where they came from
        self.moved = 0  # when a reader group's position last went on, ms since the epoch; 0: not since the start
        self.first_use = 0  # and had when the first of those that are there came
        self.lane_takers: dict[Lane, RoundRobin] | None = None  # those who take the messages of each lane

    @abstractmethod
    def _expire(self) -> None:
        """Some of the backlog has expired."""

    @abstractmethod
    def _wake(self) -> None:
        """What has waited is due."""

    @abstractmethod
    def dispatch(self) -> None:
        """Hands out what it can: until nothing is left or nobody has credit."""

    @property
    def _queue(self) -> Any:
        """This, for those who want a Queue, which it is."""
        return self

    @property
    def id(self) -> int:
        return self.cursor.id

    @property
    def is_durable(self) -> bool:
        return self.cursor.unsaved is not None

    @property
    def settings(self) -> AddressSettings:
        """By which it lives."""
        return self.address.settings_of(self.name) if self.kind is Kind.ANYCAST else self.address.settings

    @property
    def backlog(self) -> Lanes:
        found = self._backlog
        if found is None:
            is_ranked = self.kind not in (Kind.STREAM, Kind.READER)
            found = self._backlog = Lanes(self.address, self.expiring, queue=self.cursor.id, is_ranked=is_ranked)
        return found

    @property
    def expiring(self) -> Expiring:
        """What of the backlog will expire."""
        if self._expiring is None:
            self._expiring = Expiring(self.engine.timers, self._expire)
        return self._expiring

    @property
    def waits(self) -> Waits:
        """Messages for later."""
        if self._waits is None:
            self._waits = Waits(self.engine.timers, self._wake, self.address.memory)
        return self._waits

    @property
    def count(self) -> int:
        """Messages of the backlog."""
        return self._backlog.count if self._backlog is not None else 0

    @property
    def size(self) -> int:
        """Octets of memory that they take, about."""
        return self._backlog.size if self._backlog is not None else 0

    @property
    def has_waits(self) -> bool:
        return self._waits is not None and self._waits.count > 0

    def let_go(self) -> tuple[Lanes | None, Waits | None]:
        """All of it is nobody's from now on."""
        found = self._backlog, self._waits
        self._backlog = self._waits = None
        return found

    @property
    def moves_by_itself(self) -> bool:
        """A reader of a log that keeps what was consumed holds nothing up: who comes too late goes on with what is there."""
        return self.kind is Kind.STREAM and self.address.log.is_retained

    @property
    def reads_the_log(self) -> bool:
        """It takes nothing from anybody: what expires or fails in its hands is passed over, and stays in the log."""
        return self.kind in READS_THE_LOG

    @property
    def log_end(self) -> int:
        """Up to where it may read the log."""
        address = self.address
        if self.kind in BY_OFFSET:
            return address.log.shown  # fanout.py
        return address.log.next if address.fanout is None or self.id not in address.topics else address.fanout.end_for(self._queue)

    @property
    def is_paged(self) -> bool:
        return self.paged_from >= 0

    @property
    def no_local(self) -> int:
        """The session whose messages it does not want; 0: none."""
        return self._no_local

    def leave_out(self, session: int) -> None:
        """From now on it does not want messages of this session; 0: of none."""
        self.address.leave_out(self._queue, self._no_local, session)
        self._no_local = session

    @property
    def is_shared(self) -> bool:
        """Consumers compete for it, each with a selector of its own."""
        return self.kind is Kind.ANYCAST or (self.kind is Kind.DURABLE and not self.owner)

    @property
    def consumer_count(self) -> int:
        return len(self.bindings) + (len(self.readers or ()) if self.rules.is_non_destructive else 0)

    @property
    def is_full(self) -> bool:
        """It takes no more consumers."""
        return 0 <= self.rules.max_consumers <= self.consumer_count

    def wants(self, run: Run) -> bool:
        """Whether messages of this routing are for it at all."""
        return is_for(self.kind, run.routing, self.cursor.number)

    # Whose it is

    def enter(self, number: int, *, is_paused: bool) -> None:
        """It is its address's queue of this number, and is paused where the address is."""
        self.joined = self.joined or number
        self.is_paused = self.is_paused or is_paused

    def rename(self, name: str) -> None:
        self.name = name

    def belong_to(self, owner: str) -> None:
        """To this durable subscription, or user of a named reader."""
        self.owner = owner

    def stay(self, *, is_auto: bool) -> None:
        """Whether it goes when nobody needs it."""
        self.is_auto = is_auto

    def count_for(self, user: str | None) -> None:
        """For whom it counts (makers.py)."""
        self.maker = user

    def measure(self, tally: Tally | None) -> None:
        """What it has not consumed is counted there, where that is limited (limits.py)."""
        self.tally = tally

    def watch(self, *, is_watched: bool) -> None:
        """Whether somebody looks at it for slow consumers."""
        self.is_watched = is_watched

    def begin_redrive(self, redrive: Taking | None) -> None:
        """Its messages are taken elsewhere; None: not any more."""
        self.redrive = redrive

    def begin_groups(self, groups: Groups) -> None:
        """The first message of a group has come."""
        self.groups = groups
        self.consumers_changed()

    def begin_room(self, room: Room) -> None:
        """Its consumers have too much that they did not acknowledge."""
        self.room = room

    def recall(self, counts: Counts | None) -> None:
        """It was stored before a restart, which ended what was not, and may have come while messages were out."""
        self.suspect_below = self.doubted_below = self.address.log.next
        self.counts = counts
        if self.kind in (Kind.GROUP, Kind.READER):
            self.cursor.reach_all()
        elif self.cursor.position < self.address.log.next:
            self.paged_from = self.cursor.position
            self.cursor.reach_all()

    def doubt(self, below: int) -> None:
        """Messages below this offset may have been delivered before a crash; the others were not."""
        self.doubted_below = below

    def move_on(self, offset: int) -> None:
        """A reader group has come so far; it never goes back by this."""
        if offset > self.cursor.position:
            self.moved = self.engine.now
            self.skip(self.cursor.position, min(offset, self.address.log.next))

    def put(self, position: int) -> None:
        """A reader group is elsewhere from now on, perhaps further back."""
        self.cursor.put(position)
        self.moved = self.engine.now

    def come_back(self, selector: Selector | None) -> None:
        """A named reader is there again, and reads on from its position."""
        self.selector = selector

    def go_away(self) -> None:
        """A named reader has gone: the log has what comes from its position on."""
        self.paged_from = -1
        self.is_loading = False
        self.cursor.reach_all()

    # What arrives

    def show(self, run: Run, first: int, stop: int) -> None:
        for reader in tuple(self.readers or ()):
            reader.offer(run, first, stop)

    def announce(self, run: Run, first: int, stop: int) -> None:
        """Scheduled messages that the log alone has: readers wait for them themselves. This queue may have no room when they are due."""
        for reader in tuple(self.readers or ()):
            reader.expect(run, first, stop)

    @abstractmethod
    def expect(self, run: Run, first: int, stop: int) -> None:
        """Messages that are announced."""

    def finish_with(self, segment: Segment) -> None:
        """Messages that were this queue's and will not be acknowledged."""
        if self.tally is not None:
            self.tally.gone(segment.size, len(segment), segment.run.shape)
        self.skip(segment.first, segment.stop)

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

    def tell_counts(self, segment: Segment) -> bool:
        """How often these messages were delivered goes into the next commit. False: nothing of them is to be stored."""
        if not self.is_durable or not self.engine.is_durable or self.address.is_volatile(segment.run):
            return False
        self.engine.commits.tell_delivered(self, (segment.first, segment.stop, segment.deliveries, segment.failures))
        return True

    # Messages for later

    def fits_later(self, segment: Segment) -> bool:
        """Whether a message for later is kept in memory. Not behind one that is not: it would be at hand when that must be read."""
        if self.later is not None:
            return False
        cost = segment.cost
        return self.waits.size + cost <= min(delayed.MOST, self.engine.page_size) and self.address.memory.takes(cost, len(segment))

    def leave_for_later(self, first: int, stop: int, when: int) -> None:
        """A message for later is in the log alone, or will be with the next commit."""
        if self.later is None:
            self.later = Later()
            if not self.is_durable:
                self.address.log.cursors[self._mark] = Cursor(self.id, first, reach=FAR, is_durable=False)
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
            self.address.log.cursors.pop(self._mark, None)
            self.engine.commits.dirty[self.address] = None
        return later

    @property
    def has_room_for_due(self) -> bool:
        """Whether more of what is due is read from the log now."""
        backlog = self.backlog
        return not backlog.count or (backlog.size < delayed.MOST and not self.address.memory.is_full)

    # Consumers

    def pause(self) -> None:
        """Nothing goes out until `resume`; what is out stays out."""
        self.is_paused = True
        self.consumers_changed()

    def resume(self) -> None:
        self.is_paused = False
        self.consumers_changed()
        self.dispatch()

    def open(self) -> None:
        """consumers-before-dispatch: enough have come, or it has taken long enough."""
        self.is_open = True
        self.consumers_changed()

    def show_to(self, reader: Queue) -> None:
        """A browser that gets what arrives from now on."""
        self.readers = self.readers or {}
        self.readers[reader] = None
        self.consumers_changed()

    def hide_from(self, reader: Queue) -> None:
        if self.readers is not None:
            self.readers.pop(reader, None)
        self.consumers_changed()

    def _join(self, binding: Binding) -> None:
        """A consumer has come."""
        self.bindings.add(binding)
        if binding.consumer.is_exclusive:
            self.exclusive = self.exclusive or RoundRobin()
            self.exclusive.add(binding)
        if self.candidates is not self.bindings:
            self.candidates.add(binding)
        elif len(self.bindings) > 1:
            self.candidates = RoundRobin(self.bindings).lasting(self.bindings.turn)
        for takers in self._lists_with(binding):
            takers.add(binding)
        if self.is_shared and binding.consumer.selector is not None:
            self.backlog.add(binding.consumer.selector)

    def _leave(self, binding: Binding) -> None:
        """A consumer has gone."""
        self.bindings.discard(binding)
        if binding.consumer.is_exclusive and self.exclusive is not None:
            self.exclusive.discard(binding)
        if self.candidates is not self.bindings:
            self.candidates.discard(binding)
        for takers in self._lists_with(binding):
            takers.discard(binding)
        if self.is_shared and binding.consumer.selector is not None:
            self.backlog.discard(binding.consumer.selector)

    def _lists_with(self, binding: Binding) -> list[RoundRobin]:
        """Those of the lanes' lists of takers in which a consumer belongs."""
        by_lane, is_shared = self.lane_takers or {}, self.is_shared
        return [takers for lane, takers in by_lane.items() if not is_shared or takes(binding, lane)]

    def _chosen(self) -> RoundRobin:
        """Those of the consumers that get messages now; where that is all of them, its own list."""
        is_pausing = self.groups is not None and self.groups.is_pausing
        if self.is_paused or self in self.engine.returning or not self.is_open or is_pausing:
            return RoundRobin()
        exclusive = self.exclusive or (self.bindings if self.rules.is_exclusive else None)
        return RoundRobin(exclusive[:1]) if exclusive else self.bindings

    def consumers_changed(self) -> None:
        self.takers = self._chosen()
        self.ready = self.candidates if self.takers is self.bindings else self.takers
        self.has_tiers = has_tiers(self.takers)
        self.sorted_out()

    def sorted_out(self) -> None:
        """Nothing is to be sorted any more, or it begins: does the order of arrival decide everything?"""
        is_special = self.admission is not None or self.groups is not None or bool(self.readers) or self.has_tiers
        backlog = self._backlog
        self.is_simple = not (is_special or (backlog is not None and (backlog.selectors or backlog.unsorted)))

    def takers_of(self, lane: Lane) -> RoundRobin:
        """Those who take the lane's messages and are not known to be without credit; the others will be fed when they have."""
        if self.takers is not self.bindings:  # one or none
            return takers_of(lane, with_credit(self.takers), is_shared=self.is_shared)
        if self.lane_takers is None:
            self.lane_takers = {}
        found = self.lane_takers.get(lane)
        if found is None:
            if isinstance(lane, Binding):
                return with_credit([lane])  # it goes with its consumer
            if len(self.lane_takers) >= LANES:
                forget_missing(self.bindings, self.candidates)
                self.lane_takers = {}
            found = takers_of(lane, self.bindings, is_shared=self.is_shared).lasting()
            self.lane_takers[lane] = found
            self.engine.work.spend(len(self.bindings) // 4)
        return found

    # What is in the log alone

    def page(self, run: Run, first: int) -> None:
        """From here on the log alone has its messages, those of this run, too."""
        if not run.is_logged:
            self.engine.log_run(self.address, run, is_loose=True)
        self.leave_in_log(first)

    def leave_in_log(self, first: int) -> None:
        """From this offset on the log alone has its messages."""
        self.paged_from = first
        self.unread = self.unsearched = None  # the log may get what it did not have when it was read
        if self.is_durable:  # what the log has before it and behind the queue's last message is not for it, and holds nothing there
            self.cursor.reach_to(first, FAR)
        elif not self.moves_by_itself:
            self.address.log.cursors[self.id] = Cursor(self.id, first, reach=FAR, is_durable=False)

    def begin_loading(self, start: int) -> Unread | None:
        """The log is read from there on; what was read of it before and is not looked through."""
        self.paged_from = start
        self.is_loading = True
        unread, self.unread = self.unread, None
        return unread

    def wait_for_log(self, *, is_waiting: bool) -> None:
        """Somebody reads the log for it, or has read it."""
        self.is_loading = is_waiting

    def keep_unsearched(self, unread: Unread | None) -> Unread | None:
        """What a search has read and not looked through; what was kept before."""
        before, self.unsearched = self.unsearched, unread
        return before

    def still_in_log(self, first: int, stop: int) -> list[tuple[int, int]]:
        """What of first .. stop-1 was not handed out or answered while it was paged."""
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
            self.skip(low, high)
        is_more = len(found) == most and found[-1][1] < stop
        self._loaded_to(found[-1][1] if is_more else stop)
        return is_more

    def _loaded_to(self, stop: int) -> None:
        is_all = stop >= self.log_end
        self.paged_from = -1 if is_all else stop
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
        cursors = self.address.log.cursors
        if self.id in cursors and not self.is_durable:
            if self.paged_from < 0:
                del cursors[self.id]
            else:
                cursors[self.id].move(self.paged_from)
        self.engine.commits.dirty[self.address] = None

    def _pass_over(self, first: int, stop: int) -> None:
        """The log has nothing there for this queue."""
        if first < stop:
            self.cursor.pass_over(first, stop)

    def is_fresh(self, segment: Segment) -> bool:
        """Nobody has had it yet, as far as memory knows: the log knows as much of it."""
        return not segment.deliveries and (not segment.is_suspect or segment.first < self.doubted_below)

    def go_on_later(self) -> None:
        self.is_halfway = True
        self.engine.dispatch_later(self)
