"""A queue: one cursor on an address's log, a backlog, and the consumers that compete for it.

Anycast queues, durable subscriptions, plain topic subscriptions and stream readers are all queues; they differ in what their
cursor is (stored or in memory) and in who is routed to them (address.py).

What a queue has in memory is bounded: beyond, messages stay in the log alone (`paged_from`) and are loaded again in order when
there is room. Whatever a queue wants of others it asks of its engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stompbox.broker.kinds import READS_THE_LOG, Kind, Rules, rules_of
from stompbox.broker.logs.cursor import Cursor
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import arrivals, depth, dispatch, paging, reclaim
from stompbox.broker.queues.admission import Admission
from stompbox.broker.queues.consumer import Binding, Consumer
from stompbox.broker.queues.lanes import Lane
from stompbox.broker.queues.logged import LoggedQueue
from stompbox.broker.queues.room import Unread
from stompbox.broker.queues.roundrobin import RANK, RoundRobin
from stompbox.broker.work import ASKED, HANDED, MESSAGE
from stompbox.message import Run
from stompbox.selectors import Selector

if TYPE_CHECKING:
    from stompbox.broker.queues.contracts import Address, Engine


class Queue(LoggedQueue):
    """`page_size` of the engine: octets in memory before the rest stays in the log.

    A queue `is_simple` when nothing but the order of arrival decides what goes where: then a run is handed out at once.
    """

    __slots__ = ()

    def __init__(
        self, engine: Engine, address: Address, name: str, *, kind: Kind, cursor: Cursor, selector: Selector | None = None,
        owner: str = "", is_auto: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            engine, address, name, kind=kind, cursor=cursor, selector=selector, owner=owner, is_auto=is_auto
        )
        if kind not in READS_THE_LOG:
            self.obey(rules_of(address.settings_of(name)) if kind is Kind.ANYCAST else address.rules)

    def obey(self, rules: Rules) -> None:
        """The queue lives by these rules from now on."""
        if rules != self.rules:
            self.rules = rules
            self.admission = Admission(rules, self) if rules.has_admission else None
            self.is_open = rules.consumers_before_dispatch == 0
            self.consumers_changed()
            self.address.rules_changed(self)

    # What arrives

    def expect(self, run: Run, first: int, stop: int) -> None:
        """Does nothing: only a browser is told of scheduled messages that its queue has in the log alone (browsing.py)."""

    def offer(self, run: Run, first: int, stop: int) -> None:
        """Takes messages that were routed here just now; they go straight to consumers that have credit, and else wait."""
        if not self.is_simple or run.shape.special is not None:
            arrivals.arrive(self, run, first, stop)
            return
        if self.paged_from >= 0:
            return
        if self.cursor.unsaved is not None:
            self.cursor.reach_to(first, stop)
        segment = Segment(run, first, stop)
        backlog = self._backlog
        if (
            (backlog is None or not backlog.common.count)
            and self.ready
            and not self.share(segment, self.ready)
        ):
            return
        common = self.backlog.common
        if not paging.fits(self, common.size, segment):
            self.page(run, segment.first)
        else:
            common.push(segment)

    def give_lane(self, lane: Lane, segment: Segment, takers: RoundRobin[Binding]) -> bool:
        """Gives the segment to those who take the lane's messages; True when all of it went. Each lane takes turns of its own, so that
        lanes that alternate do not favour anybody."""
        if not takers:
            return False
        if self.groups is not None and not isinstance(lane, Binding):
            special = segment.run.shape.special
            if special is not None and special.is_grouped:
                return dispatch.hand_out_groups(self, self.groups, segment, lane, takers)
        return not self.share(segment, takers)

    # Time

    def drop_expired(self) -> None:
        arrivals.expire(self)

    def wake(self) -> None:
        arrivals.wake(self)

    # What goes out

    def dispatch(self) -> None:
        """Hands out what it can: until nothing is left or nobody has credit."""
        self._hand_out(None)

    def feed(self, binding: Binding) -> None:
        """Hands out to one consumer, which has credit again. Where something waits the others have none."""
        self._hand_out(binding)

    def _hand_out(self, only: Binding | None) -> None:
        was_halfway, self.is_halfway = self.is_halfway, False
        if only is not None:
            if only.missing:
                only.readmit()
            if self.room is not None:
                self.room.readmit(only)
        if self.takers:
            self.used = self.engine.now
        if self.is_simple:
            if self.takers:
                is_one = only is not None and len(self.ready) > 1
                self._dispatch_common(RoundRobin([only]) if is_one and only is not None else self.ready)
        else:
            dispatch.dispatch(self, None if was_halfway else only)
            if self.backlog.unsorted and self.backlog.places.is_crowded:
                reclaim.give_back_unsorted(self)
        if self.later is not None:
            arrivals.read_due(self, self.later)
        if self.admission is not None:
            self.admission.look(self)
        is_learning = self.admission is not None and self.admission.is_learning
        if self.paged_from >= 0 and not is_learning and (self.takers or paging.reads_for_itself(self)):
            if paging.wants_more(self):
                paging.load(self.engine, self)
            else:
                paging.forgo(self)
                if not self.is_simple:
                    paging.look_ahead(self.engine, self)

    def _dispatch_common(self, bindings: RoundRobin[Binding]) -> None:
        if self._backlog is None or not bindings:
            return
        backlog, work = self._backlog.common, self.engine.work
        before, handed, most = work.done, 0, work.rounds * HANDED
        # what it costs to give one segment to very many is of the portion; how long it takes to note who has it, no count says
        while backlog.count and handed + work.done - before < most and not (handed and work.is_late):
            handed += HANDED
            segment = backlog.pop()
            if self.share(segment, bindings):
                backlog.unpop(segment)
                break
        else:
            if backlog.count:
                self.go_on_later()
        work.spend(handed)

    def share(self, segment: Segment, takers: RoundRobin[Binding]) -> bool:
        """Gives the segment to consumers with credit, in shares; True when something is left of it."""
        if 0 < segment.run.shape.expires <= self.engine.now:
            self.expired(segment)
            return False
        return (
            self._share_by_priority(segment, takers)
            if self.has_tiers
            else self._share_evenly(segment, takers)
        )

    def _share_evenly(self, segment: Segment, takers: RoundRobin[Binding]) -> bool:
        count = left = len(takers)
        if count == 1:
            only = takers[0]
            is_left = self.give(only, segment, segment.stop - segment.first)
            if is_left:
                only.consumer.starved[self] = None
                if takers.is_lasting and takers is not self.ready and not only.consumer.has_credit:
                    only.leave_out(takers)
            return is_left
        for asked in range(ASKED):
            if not count:
                return True
            at = takers.turn = (takers.turn + 1) % count
            if not self.give(takers[at], segment, -(-len(segment) // left), takers):
                if asked:
                    self.engine.work.spend(MESSAGE * asked)
                return False
            count = count if takers.turn == at else len(takers)
            left = left - 1 or count  # shares differ by one at most, when all have credit
        return self._ask_others_later(takers)

    def give(
        self, binding: Binding, segment: Segment, most: int, takers: RoundRobin[Binding] | None = None
    ) -> bool:
        """Gives up to `most` messages to one consumer; True when something is left. Without credit it leaves the `takers`."""
        consumer = binding.consumer
        if not consumer.has_credit:
            binding.leave_out(takers)
            return True
        count = 1 if most == 1 else min(most, consumer.fitting(segment))  # who has credit may have one
        is_left = count < segment.stop - segment.first
        self.delivering += count
        consumer.give(binding, segment.cut(segment.first + count) if is_left else segment)
        self.engine.touch(consumer)
        return is_left

    def _share_by_priority(self, segment: Segment, takers: RoundRobin[Binding]) -> bool:
        """Shares a segment out by priority: a lower one gets what those before have no credit for. True when something is left."""
        left = 0
        for asked in range(ASKED):
            if not takers:
                return True
            count = takers.equals
            left = min(left, count) or count
            at = takers.turn = takers.turn + 1 if takers.turn + 1 < count else 0
            if not self.give(takers[at], segment, -(-len(segment) // left), takers):
                if asked:
                    self.engine.work.spend(MESSAGE * asked)
                return False
            left -= 1
        return self._ask_others_later(takers)

    def _ask_others_later(self, takers: RoundRobin[Binding]) -> bool:
        """ASKED consumers had their turn, and something is left; where there are more they have theirs when the queue goes on."""
        self.engine.work.spend(MESSAGE * ASKED)
        if takers:
            self.go_on_later()
        return True

    def share_among(self, segment: Segment, bindings: Sequence[Binding]) -> bool:
        """Shares a segment among consumers that somebody has found."""
        among = RoundRobin(sorted(bindings, key=RANK)).going_on(self.turn)
        is_left = self.share(segment, among)
        self.turn = among.turn
        return is_left

    # What consumers answer

    def acknowledge(self, segment: Segment) -> None:
        count = segment.stop - segment.first
        self.delivering -= count
        self.settled += count
        if self.cursor.unsaved is not None and self.cursor.acknowledge(segment.first, segment.stop):
            self.engine.note(self)
        if self.tally is not None:
            self.tally.gone(segment.size, len(segment), segment.run.shape)
        if not self.is_simple:
            self._answered(segment)

    def acknowledge_all(self, segments: list[Segment]) -> int:
        """Counts off many that were handed out, as `acknowledge` does each of them; how many messages."""
        starts, stops = [segment.first for segment in segments], [segment.stop for segment in segments]
        count = sum(stops) - sum(starts)
        self.delivering -= count
        self.settled += count
        if self.is_durable and self.cursor.acknowledge_all(starts, stops):
            self.engine.note(self)
        if self.tally is not None:
            for segment in segments:
                self.tally.gone(segment.size, len(segment), segment.run.shape)
        if not self.is_simple:
            for segment in segments:
                self._answered(segment)
        return count

    def _answered(self, segment: Segment) -> None:
        if self.admission is not None:
            self.admission.done(segment)
        if self.groups is not None and self.groups.is_pausing and not self.delivering:
            self.groups.resume()
            self.consumers_changed()
            self.engine.dispatch_later(self)

    def unacknowledge(self, segment: Segment) -> None:
        """Counts messages as out again: the transaction that had acknowledged them could not be stored."""
        self.delivering += len(segment)
        self.settled -= len(segment)
        if self.tally is not None:
            self.tally.came(segment.run, [(segment.first, segment.stop)])
        if self.is_durable:
            self.cursor.revoke(segment.first, segment.stop)

    def die(self, segment: Segment, reason: str) -> None:
        """Makes dead letters of messages that were handed out."""
        self.delivering -= len(segment)
        self.engine.dead_letter(self, segment, reason)
        self._answered(segment)

    def set_aside(self, segment: Segment, delay: int) -> None:
        """Puts messages aside that were handed out, until so many ms are over. What is behind it goes out meanwhile."""
        self.delivering -= len(segment)
        self.waits.add(segment, self.engine.now + delay)

    def take_back(self, segment: Segment) -> None:
        """Puts messages that were handed out and are not done with back where they were."""
        self.delivering -= len(segment)
        if self.kind is Kind.READER and not self.bindings:
            return  # the log has it, from its position on
        if segment.run.is_withdrawn:
            self.drop(segment, "withdrawn")
        elif self.admission is not None and self.admission.is_replaced(segment):
            self.admission.drop_late(self, segment)
        elif self.rules.is_purged and not self.bindings:
            self.drop(segment, "purged")
        else:
            self.backlog.put_back(segment)
            if self.admission is not None:
                self.admission.settle(self)

    # Consumers

    def bind(self, consumer: Consumer) -> Binding:
        consumer.allowance.require_bindings(consumer)  # who makes a queue for it asks before
        consumer.allowance.bind(1)
        self.uses += 1
        binding = consumer.bindings[self.id] = Binding(consumer, self, self.uses)
        self._join(binding)
        if self.room is not None:
            self.room.readmit(binding)
        if len(self.bindings) == 1:
            self.first_use = self.uses
        depth.watch(self.engine, self)
        if not self.is_open:
            dispatch.open_when_due(self)
        if self.groups is not None and self.rules.group_rebalance:
            self.backlog.release_all()
            self.groups.begin_anew(is_pausing=self.rules.group_pause and self.delivering > 0)
        self.consumers_changed()
        return binding

    def unbind(self, binding: Binding) -> None:
        """Lets a consumer go. What it still has of this queue must have been taken from it, or the queue goes."""
        self._leave(binding)
        binding.consumer.forget(binding)
        if self.room is not None:
            self.room.leave(binding)
        binding.consumer.starved.pop(self, None)
        if binding.consumer.starved and not binding.consumer.is_closed:
            # what it had of this queue may be credit for another
            binding.consumer.feed_later(self.engine)
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

    def part_with(self, binding: Binding) -> None:
        """The consumer goes on at another queue. What it has of this one it keeps, and is done with here."""
        self._leave(binding)
        binding.consumer.starved.pop(self, None)
        del binding.consumer.bindings[self.id]
        binding.consumer.allowance.bind(-1)

    # What comes from the log

    def loaded(self, runs: list[Run], start: int, stop: int) -> None:
        """Runs of the log from `start` on, complete up to `stop`: what of them is still to be delivered goes to the backlog, as much as
        there is room and work left for."""
        self.is_loading = is_cut = False
        if self.paged_from == start:
            taken = self._take_some(runs, start, stop)
            is_cut = taken < stop
            self._loaded_to(taken)
            if self.admission is not None:
                self.admission.settle(self)
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
                work.spend(MESSAGE * (end - first) if self.rules.last_value_key else MESSAGE)
                if not paging.is_sifted_at_once(self, run, first, end):
                    self.keep_unread(Unread(runs[number:], at, stop))
                    return at
                self._pass_over(at, first)
                for low, high in self.still_in_log(first, end):
                    self._take_in(run, low, high)
                at = end
                if at < stop and work.is_late:
                    self.keep_unread(Unread(runs[number:], at, stop))
                    return at
                if at < stop and paging.is_enough(self):
                    return at
        self._pass_over(at, stop)
        return stop

    def _take_in(self, run: Run, first: int, stop: int) -> None:
        for segment, is_wanted in paging.sifted(self, run, first, stop):
            if not is_wanted:
                self._pass_over(segment.first, segment.stop)
                if self.unasked:
                    paging.count_out(self, segment)
            elif segment.failures and self.engine.is_spent(self, segment):
                arrivals.bury(self, segment)
            else:
                arrivals.take(self, segment)

    def __repr__(self) -> str:
        paged = f" paged from {self.paged_from}" if self.paged_from >= 0 else ""
        state = f"at {self.cursor.position} waiting={self.count} consumers={len(self.bindings)}{paged}"
        return f"<Queue {self.id} {self.kind.value} {self.name} {state}>"
