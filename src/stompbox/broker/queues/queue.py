"""A queue: one cursor on an address's log, a backlog, and the consumers that compete for it.

Anycast queues, durable subscriptions, plain topic subscriptions and stream readers are all queues; they differ in what their
cursor is (stored or in memory) and in who is routed to them (address.py).

The backlog is a window: when it is full, messages stay in the log alone (`paged_from`) and are loaded again in order when
there is room. Whatever a queue wants of others it asks of its engine.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from stompbox.broker.kinds import BY_OFFSET, PLAIN, READS_THE_LOG, Kind, Rules, is_for, rules_of
from stompbox.broker.logs.cursor import Cursor
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import arrivals, depth, dispatch, paging, reclaim
from stompbox.broker.queues.arrivals import offer
from stompbox.broker.queues.consumer import Binding, Consumer, RoundRobin, has_tiers, leave_out, readmit, takers_of, with_credit
from stompbox.broker.queues.dispatch import Groups
from stompbox.broker.queues.intake import Intake
from stompbox.broker.queues.lanes import LANES, Lane
from stompbox.broker.queues.waiting import Waiting
from stompbox.broker.undelivered import TOO_OFTEN
from stompbox.broker.work import MESSAGE
from stompbox.message import Run
from stompbox.ranges import Ranges
from stompbox.selectors import Selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.limits import Tally
    from stompbox.broker.addresses.redrive import Redrive
    from stompbox.broker.engine import Engine
    from stompbox.broker.logs.cursor import Counts
    from stompbox.broker.queues.delayed import Later


class Queue(Waiting):
    """`page_size` of the engine: octets in memory before the rest stays in the log.

    A queue `is_simple` when nothing but the order of arrival decides what goes where: then a run is handed out at once.
    """

    __slots__ = (
        "__weakref__", "_no_local", "bindings", "candidates", "counts", "delivering", "doubted_below", "exclusive", "first_use", "groups",
        "has_tiers", "intake", "is_auto", "is_halfway", "is_loading", "is_open", "is_paused", "is_simple", "is_watched", "joined",
        "lane_takers", "later", "maker", "moved", "out", "owner", "paged_from", "readers", "ready", "redrive", "room", "rules",
        "selector", "sought", "suspect_below", "takers", "tally", "turn", "unasked", "unread", "unsearched", "used", "uses",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, address: Address, name: str, *, kind: Kind, cursor: Cursor, selector: Selector | None = None
    ) -> None:
        super().__init__(engine, address, name, kind, cursor)
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
        self.room: paging.Room | None = None  # once there was none, as its consumers had too much
        self.paged_from = -1  # from this offset on the log alone has them; -1: all are in memory
        self.suspect_below = 0  # stored before a restart
        self.doubted_below = 0  # may have been delivered before a crash
        self.counts: Counts | None = None  # how often those were delivered
        self.sought = Ranges()  # what consumers took out of the log beyond `paged_from` (paging.py)
        self.unasked = Ranges()  # what came without its selector being asked (address.py)
        self.unread: paging.Unread | None = None  # what was read of the log and is not looked through
        self.unsearched: paging.Unread | None = None  # the same, of a search (paging.py)
        self.is_loading = False
        self.is_halfway = False  # stopped while somebody still had credit, so that other queues get their turn
        self.turn = 0
        self.rules = PLAIN
        self.intake: Intake | None = None
        self.groups: Groups | None = None  # once there was a message of a group
        self.is_paused = False  # by an operator: nothing goes out
        self.is_open = True  # consumers-before-dispatch: enough have come
        self.has_tiers = False  # consumers differ in priority
        self.is_simple = True
        self.owner = ""  # the durable subscription that it belongs to; of a named reader, whose it is (readers.py)
        self.maker: str | None = None  # the user for whom it counts (makers.py)
        self.is_auto = False  # a frame made it: it goes when nobody needs it (lifetimes.py)
        self.used = engine.now  # when it had something to hand out, or somebody to hand it to
        self.uses = 0  # consumers that it has had
        self.joined = 0  # it was the address's so-manieth queue
        self.is_watched = False  # for slow consumers
        self.redrive: Redrive | None = None  # takes its messages back to where they came from
        self.moved = 0  # when a reader group's position last went on, ms since the epoch; 0: not since the start
        self.first_use = 0  # and had when the first of those that are there came
        self.lane_takers: dict[Lane, RoundRobin] | None = None  # those who take the messages of each lane
        if kind not in READS_THE_LOG:
            self.obey(rules_of(address.settings_of(name)) if kind is Kind.ANYCAST else address.rules)

    def obey(self, rules: Rules) -> None:
        """From now on these are its rules."""
        if rules != self.rules:
            self.rules = rules
            self.intake = Intake(rules, self) if rules.has_intake else None
            self.is_open = rules.consumers_before_dispatch == 0
            self.consumers_changed()
            self.address.rules_changed(self)

    @property
    def id(self) -> int:
        return self.cursor.id

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
        return address.log.next if address.fanout is None or self.id not in address.topics else address.fanout.end_for(self)

    @property
    def is_paged(self) -> bool:
        return self.paged_from >= 0

    @property
    def no_local(self) -> int:
        """The session whose messages it does not want; 0: none."""
        return self._no_local

    @no_local.setter
    def no_local(self, session: int) -> None:
        self.address.leave_out(self, self._no_local, session)
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

    # What arrives

    def offer(self, run: Run, first: int, stop: int) -> None:
        """Messages that were routed here just now. Goes straight to a consumer that has credit."""
        if not self.is_simple or run.shape.special is not None:
            arrivals.arrive(self, run, first, stop)
            return
        if self.paged_from >= 0:
            return
        if self.cursor.unsaved is not None:
            self.reach_to(first, stop)
        segment = Segment(run, first, stop)
        backlog = self._backlog
        if (backlog is None or not backlog.common.count) and self.ready and not self.share(segment, self.ready):
            return
        common = self.backlog.common
        if not paging.fits(self, common.size, segment):
            paging.page(self.engine, self, run, segment.first)
        else:
            common.push(segment)

    def reach_to(self, first: int, stop: int) -> None:
        cursor = self.cursor
        if first > cursor.reach:
            cursor.pass_over(cursor.reach, first)
        cursor.reach = max(cursor.reach, stop)

    def show(self, run: Run, first: int, stop: int) -> None:
        for reader in tuple(self.readers or ()):
            reader.offer(run, first, stop)

    def announce(self, run: Run, first: int, stop: int) -> None:
        """Scheduled messages that the log alone has: readers wait for them themselves. This queue may have no room when they are due."""
        for reader in tuple(self.readers or ()):
            reader.expect(run, first, stop)

    def expect(self, run: Run, first: int, stop: int) -> None:
        pass

    def offer_lanes(self, segment: Segment) -> None:
        offer(self, segment)

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
        if self.intake is not None:
            self.intake.done(segment)

    # Time

    def _expire(self) -> None:
        arrivals.expire(self)

    def _wake(self) -> None:
        arrivals.wake(self)

    def expired(self, segment: Segment) -> None:
        self.engine.expire(self, segment)
        if self.intake is not None:
            self.intake.done(segment)

    # What goes out

    def dispatch(self) -> None:
        """Hands out what it can: until nothing is left or nobody has credit."""
        self._hand_out(None)

    def feed(self, binding: Binding) -> None:
        """The same for one consumer, which has credit again. Where something waits the others have none."""
        self._hand_out(binding)

    def _hand_out(self, only: Binding | None) -> None:
        self.is_halfway = False
        if only is not None:
            if only.missing:
                readmit(only)
            if self.room is not None:
                self.room.readmit(only)
        if self.takers:
            self.used = self.engine.now
        if self.is_simple:
            if self.takers:
                is_one = only is not None and len(self.ready) > 1
                self._dispatch_common(RoundRobin([only]) if is_one and only is not None else self.ready)
        else:
            dispatch.dispatch(self)
        if self.later is not None:
            arrivals.read_due(self, self.later)
        if self.intake is not None:
            self.intake.look(self)
        if self.paged_from >= 0 and (self.takers or paging.reads_for_itself(self)):
            if paging.wants_more(self):
                paging.load(self.engine, self)
            elif not self.is_simple:
                paging.look_ahead(self.engine, self)

    def _dispatch_common(self, bindings: RoundRobin) -> None:
        if self._backlog is None or not bindings:
            return
        backlog, work = self._backlog.common, self.engine.work
        left = work.rounds
        while backlog.count and left:
            left -= 1
            segment = backlog.pop()
            if self.share(segment, bindings):
                backlog.unpop(segment)
                break
        else:
            if not left:
                self.go_on_later()
        work.spend(MESSAGE * (work.rounds - left))

    def go_on_later(self) -> None:
        self.is_halfway = True
        self.engine.dispatch_later(self)

    def takers_of(self, lane: Lane) -> RoundRobin:
        """Those who take the lane's messages and are not known to be without credit; the others will be fed when they have."""
        if self.takers is not self.bindings:  # one or none
            return takers_of(lane, with_credit(self, self.takers), is_shared=self.is_shared)
        if self.lane_takers is None:
            self.lane_takers = {}
        found = self.lane_takers.get(lane)
        if found is None:
            if isinstance(lane, Binding):
                return with_credit(self, [lane])  # it goes with its consumer
            if len(self.lane_takers) >= LANES:
                dispatch.forget_lanes(self)
                self.lane_takers = {}
            found = self.lane_takers[lane] = takers_of(lane, self.bindings, is_shared=self.is_shared)
            found.is_lasting = True
            self.engine.work.spend(len(self.bindings) // 4)
        return found

    def give_lane(self, lane: Lane, segment: Segment, takers: RoundRobin) -> bool:
        """True when all of it went. Each lane takes turns of its own, so that lanes that alternate do not favour anybody."""
        if not takers:
            return False
        if self.groups is not None and not isinstance(lane, Binding):
            special = segment.run.shape.special
            if special is not None and special.is_grouped:
                return dispatch.hand_out_groups(self, self.groups, segment, lane, takers)
        return not self.share(segment, takers)

    def share(self, segment: Segment, takers: RoundRobin) -> bool:
        """Gives the segment to consumers with credit, in shares; True when something is left of it."""
        if 0 < segment.run.shape.expires <= self.engine.now:
            self.expired(segment)
            return False
        return dispatch.share_by_priority(self, segment, takers) if self.has_tiers else self._share_evenly(segment, takers)

    def _share_evenly(self, segment: Segment, takers: RoundRobin) -> bool:
        count = left = len(takers)
        if count == 1:
            only = takers[0]
            is_left = self.give(only, segment, segment.stop - segment.first)
            if is_left:
                only.consumer.starved[self] = None
                if takers.is_lasting and takers is not self.ready and not only.consumer.has_credit:
                    leave_out(self, only, takers)
            return is_left
        while count:
            at = takers.turn = (takers.turn + 1) % count
            if not self.give(takers[at], segment, -(-len(segment) // left), takers):
                return False
            count = count if takers.turn == at else len(takers)
            left = left - 1 or count  # shares differ by one at most, when all have credit
        return True

    def give(self, binding: Binding, segment: Segment, most: int, takers: RoundRobin | None = None) -> bool:
        """Up to `most` messages to one consumer; True when something is left. Without credit it is not among the `takers` any more."""
        consumer = binding.consumer
        if not consumer.has_credit:
            leave_out(self, binding, takers)
            return True
        count = 1 if most == 1 else min(most, consumer.fitting(segment))  # who has credit may have one
        is_left = count < segment.stop - segment.first
        self.delivering += count
        consumer.give(binding, segment.cut(segment.first + count) if is_left else segment)
        self.engine.touch(consumer)
        return is_left

    # What consumers answer

    def acknowledge(self, segment: Segment) -> None:
        self.delivering -= segment.stop - segment.first
        if self.cursor.unsaved is not None and self.cursor.acknowledge(segment.first, segment.stop):
            self.engine.note(self)
        if self.tally is not None:
            self.tally.gone(segment.size, len(segment), segment.run.shape)
        if not self.is_simple:
            self._answered(segment)

    def _answered(self, segment: Segment) -> None:
        if self.intake is not None:
            self.intake.done(segment)
        if self.groups is not None and self.groups.is_pausing and not self.delivering:
            self.groups.is_pausing = False
            self.consumers_changed()
            self.engine.dispatch_later(self)

    def unacknowledge(self, segment: Segment) -> None:
        """A transaction that could not be stored had acknowledged it."""
        self.delivering += len(segment)
        if self.tally is not None:
            self.tally.came(segment.run, [(segment.first, segment.stop)])
        if self.is_durable:
            self.cursor.revoke(segment.first, segment.stop)

    def tell_counts(self, segment: Segment) -> bool:
        """How often these messages were delivered goes into the next commit. False: nothing of them is to be stored."""
        if not self.is_durable or not self.engine.is_durable or self.address.is_volatile(segment.run):
            return False
        self.engine.commits.tell_delivered(self, (segment.first, segment.stop, segment.deliveries, segment.failures))
        return True

    def die(self, segment: Segment, reason: str) -> None:
        """Handed out, and not to be again: dead letters."""
        self.delivering -= len(segment)
        self.engine.dead_letter(self, segment, reason)
        self._answered(segment)

    def set_aside(self, segment: Segment, delay: int) -> None:
        """It was handed out, and is not again before so many ms are over. What is behind it goes out meanwhile."""
        self.delivering -= len(segment)
        self.waits.add(segment, self.engine.now + delay)

    def take_back(self, segment: Segment) -> None:
        """To its place: it was handed out and is not done with."""
        self.delivering -= len(segment)
        if self.kind is Kind.READER and not self.bindings:
            return  # the log has it, from its position on
        if segment.run.is_withdrawn:
            self.drop(segment, "withdrawn")
        elif self.intake is not None and self.intake.is_replaced(segment):
            self.intake.drop_late(self, segment)
        elif self.rules.is_purged and not self.bindings:
            self.drop(segment, "purged")
        else:
            self.backlog.put_back(segment)
            if self.intake is not None:
                self.intake.settle(self)

    # Consumers

    def bind(self, consumer: Consumer) -> Binding:
        consumer.allowance.require_bindings(consumer)  # who makes a queue for it asks before
        consumer.allowance.bind(1)
        self.uses += 1
        binding = consumer.bindings[self.id] = Binding(consumer, self, self.uses)
        dispatch.join(self, binding)
        if self.room is not None:
            self.room.readmit(binding)
        if len(self.bindings) == 1:
            self.first_use = self.uses
        depth.watch(self.engine, self)
        if not self.is_open:
            dispatch.open_when_due(self)
        if self.groups is not None and self.rules.group_rebalance:
            self.groups.clear()
            self.backlog.release_all()
            self.groups.is_pausing = self.rules.group_pause and self.delivering > 0
        self.consumers_changed()
        return binding

    def unbind(self, binding: Binding) -> None:
        """What the consumer still has of this queue must have been taken from it, or the queue goes."""
        dispatch.leave(self, binding)
        binding.consumer.forget(binding)
        if self.room is not None:
            self.room.leave(binding)
        binding.consumer.starved.pop(self, None)
        if binding.consumer.starved and not binding.consumer.is_closed:  # what it had of this queue may be credit for another
            self.engine.later.add((Consumer.feed, binding.consumer), binding.consumer.feed)
        del binding.consumer.bindings[self.id]
        binding.consumer.allowance.bind(-1)
        if self.groups is not None:  # they are to be given out anew
            self.groups.leave(binding)
            self.backlog.release(binding)
        if not self.bindings:
            self.is_open = self.rules.consumers_before_dispatch == 0
            if self.rules.is_purged:
                reclaim.purge(self)
        if not self.is_simple or self.takers is not self.bindings:
            self.engine.dispatch_later(self)  # others may take over
        self.consumers_changed()

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

    def consumers_changed(self) -> None:
        self.takers = dispatch.chosen(self)
        self.ready = self.candidates if self.takers is self.bindings else self.takers
        self.has_tiers = has_tiers(self.takers)
        self.sorted_out()

    def sorted_out(self) -> None:
        """Nothing is to be sorted any more, or it begins: does the order of arrival decide everything?"""
        is_special = self.intake is not None or self.groups is not None or bool(self.readers) or self.has_tiers
        backlog = self._backlog
        self.is_simple = not (is_special or (backlog is not None and (backlog.selectors or backlog.unsorted)))

    # What comes from the log

    def loaded(self, runs: list[Run], start: int, stop: int) -> None:
        """Runs of the log from `start` on, complete up to `stop`: what of them is still to be delivered goes to the backlog, as much as
        there is room and work left for."""
        self.is_loading = is_cut = False
        if self.paged_from == start:
            taken = self._take_some(runs, start, stop)
            is_cut = taken < stop
            self._loaded_to(taken)
            if self.intake is not None:
                self.intake.settle(self)
        if self.redrive is not None:
            self.redrive.go_on()
        if is_cut:  # what is next may be in memory too: not one within the other
            self.go_on_later()
        else:
            self.dispatch()

    def _take_some(self, runs: list[Run], start: int, stop: int) -> int:
        """Up to where they were looked through; what is left of the runs is kept until the queue goes on."""
        at, work = start, self.engine.work
        for number, run in enumerate(runs):
            for first, end in paging.portions(self, run, at, stop):
                work.spend(MESSAGE)
                self._pass_over(at, first)
                for low, high in self.still_in_log(first, end):
                    self._take_in(run, low, high)
                at = end
                if at < stop and work.is_over:
                    self.unread = paging.Unread(runs[number:], at, stop)
                    return at
                if at < stop and paging.is_enough(self):
                    return at
        self._pass_over(at, stop)
        return stop

    def still_in_log(self, first: int, stop: int) -> list[tuple[int, int]]:
        """What of first .. stop-1 was not handed out or answered while it was paged."""
        return list(self._gaps(first, stop))

    def _gaps(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        for low, high in self.cursor.ahead.gaps(max(first, self.cursor.position), stop):
            yield from self.sought.gaps(low, high)

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
        if self.sought:
            self.sought.add(stop, self.sought.take_prefix(stop))
        if not self.is_durable:
            self._pass_over(self.cursor.position, stop)  # what was set aside while it was paged is behind it
        elif is_all and self.kind not in BY_OFFSET:
            self.cursor.reach = stop
        paging.paged_on(self.engine, self)

    def _pass_over(self, first: int, stop: int) -> None:
        """The log has nothing there for this queue."""
        if first < stop:
            self.cursor.pass_over(first, stop)

    def _take_in(self, run: Run, first: int, stop: int) -> None:
        for segment, is_wanted in paging.sifted(self, run, first, stop):
            if not is_wanted:
                self._pass_over(segment.first, segment.stop)
                if self.unasked:
                    paging.count_out(self, segment)
            elif segment.failures and self.engine.is_spent(self, segment):
                self.engine.dead_letter(self, segment, TOO_OFTEN)
            else:
                arrivals.take(self, segment)

    def is_fresh(self, segment: Segment) -> bool:
        """Nobody has had it yet, as far as memory knows: the log knows as much of it."""
        return not segment.deliveries and (not segment.is_suspect or segment.first < self.doubted_below)

    def __repr__(self) -> str:
        paged = f" paged from {self.paged_from}" if self.paged_from >= 0 else ""
        state = f"at {self.cursor.position} waiting={self.count} consumers={len(self.bindings)}{paged}"
        return f"<Queue {self.id} {self.kind.value} {self.name} {state}>"
