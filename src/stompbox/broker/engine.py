"""The engine: addresses, queues, consumers, transactions, and what the next commit must say. No I/O, no clock.

State changes at once, in memory. What is to be done outside is left here for the server to take:

    touched    consumers whose outbox has something to encode and write
    loads      parts of logs that a paged queue wants read (answer with `loaded`)
    slow       consumers that take less than the settings want
    commit     `take_commit` gives all that changed since the last one; `committed` or `commit_failed` answers it
`now` (ms since the epoch) is set by the server before each call that may need it; `next_deadline` says when `tick` is wanted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stompbox.broker import transactions
from stompbox.broker.addresses import (
    diverts,
    duplicates,
    fanout,
    lifetimes,
    limits,
    redelivery,
    retained,
    routing,
)
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.course import Course
from stompbox.broker.addresses.makers import Maker
from stompbox.broker.addresses.notifications import Notifications
from stompbox.broker.addresses.plans import Plans
from stompbox.broker.addresses.redelivery import FAILED, Outcome, Refusal
from stompbox.broker.addresses.repeating import Schedules
from stompbox.broker.addresses.routing import FEW, Groups, Targets
from stompbox.broker.addresses.unitofwork import is_failing
from stompbox.broker.catalogue import Catalogue
from stompbox.broker.commits import Trouble
from stompbox.broker.logs.bodies import Bodies
from stompbox.broker.logs.cursor import FAR
from stompbox.broker.logs.segments import Segment, cost_of
from stompbox.broker.queues import expiry, reclaim
from stompbox.broker.queues.consumer import Binding, Consumer, Sent
from stompbox.broker.queues.contracts import Load, Verdicts
from stompbox.broker.queues.memory import Memory, Remembered, Unacknowledged
from stompbox.broker.queues.questions import Questions
from stompbox.broker.queues.queue import Queue
from stompbox.broker.queues.state import QueueState
from stompbox.broker.timers import Alarm, Timers
from stompbox.broker.transactions import Transaction
from stompbox.broker.undelivered import Fate, Undelivered
from stompbox.broker.work import Turns, Work
from stompbox.config.matching import DOTS, Wildcards
from stompbox.config.settings import AddressSettingsTable
from stompbox.errors import Refused
from stompbox.incarnations import NewId
from stompbox.message import ANYCAST, Run
from stompbox.recent import Recent
from stompbox.store.base import Commit

if TYPE_CHECKING:
    from stompbox.broker.addresses.limits import AddressLimits
    from stompbox.broker.queues.contracts import Slow

COUNTED: Final = 2_000  # runs that are to be stored, which are counted in less than half a millisecond
# segments that are acknowledged in one go, beyond which those of a queue are counted off at once
TOGETHER: Final = 4
VERDICTS: Final = 16_384  # of some 200 octets each
PAGE_SIZE: Final = 32 << 20  # octets of one queue in memory before the rest stays in the log


def always() -> bool:
    """Where nobody has to be let in between."""
    return True


class Engine(Catalogue):
    """`is_durable` False: nothing needs to reach a disk (--memory). The catalogue is told `epoch` and `new_id`."""

    def __init__(
        self, settings: AddressSettingsTable, *, wildcards: Wildcards = DOTS, epoch: int = 1, is_durable: bool = True,
        page_size: int = PAGE_SIZE, new_id: NewId | None = None,
    ) -> None:  # fmt: skip
        super().__init__(settings, wildcards, epoch=epoch, new_id=new_id)
        self.is_durable = is_durable
        self.is_view = False  # it shows what another broker has stored
        self.page_size = page_size
        self.now = 0
        self.unsaved = 0  # octets of memory on their way to the store, about
        self.unsaved_runs = 0  # and runs of messages, and entries of the catalogue
        self._taken = 0, 0  # that were so when the last commit was taken
        self.logged = 0  # of these, since the start
        # what happened to messages, for the metrics
        self.counters: defaultdict[str, int] = defaultdict(int)
        # what the log is to say of messages that were dropped, or are dead letters
        self.undelivered = Undelivered()
        self.remembered = Remembered()
        self.touched: list[Consumer] = []
        self.loads: list[Load] = []
        # subscriptions/durables.py: DurableSubscriptions by identity
        self.durables: dict[tuple[str, str], Any] = {}
        self.work = Work()  # what this turn has cost so far
        self.later = Turns(self.work)  # what stopped half-way
        self.questions = Questions(self.work)
        self.verdicts: Verdicts = Recent(VERDICTS)  # what selectors said
        self.plans = Plans()
        self.returning: Counter[QueueState] = (
            Counter()
        )  # those to which many messages come back (redelivery.py)
        self.course = Course(self.undelivered)  # of what the configuration sends on just now
        self.timers = Timers()
        self.relief = Alarm(self.timers, partial(reclaim.relieve, self))
        self.bodies = Bodies(epoch)
        self.schedules = Schedules(self)
        self.slow: list[Slow] = []  # consumers that are too slow
        self.unacknowledged = Unacknowledged()  # what consumers have
        self.memory: Memory = Memory(unacknowledged=self.unacknowledged)  # what waits in queues
        # is full now, or not any more after so many were dropped
        self.full: list[tuple[AddressLimits, bool, int]] = []
        self.trouble: Trouble | None = None  # nothing can be stored now
        self.counts_first: bool = False  # what was handed out counts as delivered before it leaves
        # 0 to 1, as random.random has it: what spreads redeliveries
        self.chance: Callable[[], float] = lambda: 0.5
        self.ids: duplicates.Ids = duplicates.Ids()
        self.retained, self.notifications = retained.Retained(), Notifications(self)
        self.persists_ids = True  # what is remembered to find duplicates outlives a restart

    def succeed(self, before: Engine) -> None:
        """Takes the place of another engine, as a view of a later state: what consumers have of that one counts here, too, and what is on
        its way out goes. It must be new."""
        self.is_view = True
        self.work.time_by(before.work.clock)
        self.now, self._next_volatile = before.now, before._next_volatile
        self.unacknowledged = before.unacknowledged
        self.memory = Memory(unacknowledged=self.unacknowledged)
        self.counters, self.bodies, self.touched = before.counters, before.bodies, before.touched

    # Sending

    def publish(self, address: Address, run: Run, *, is_answered: bool = False) -> bool:
        """What a client sends: routes a run by its `routing`, but for duplicates. True when its receipt must wait for the next commit.
        Raises before anything is changed. `is_answered`: the sender waits for a receipt of this run alone."""
        if self.trouble is not None:
            self.require_disk(address, run)
        if run.shape.special is not None:
            self.schedules.require([(address, run)])
        if not is_answered or (
            address.only is not None
            and address.limits is None
            and run.shape.special is None
            and address.is_volatile(run)
        ):  # nothing of it can be refused later: it needs no unit of work
            return self._publish(address, run)
        self.commits.begin()
        is_stored = False
        try:
            is_stored = self._publish(address, run)
        finally:
            self.commits.end(is_stored=is_stored)
        return is_stored

    def publish_all(self, sends: Iterable[tuple[Address, Run]], *, is_answered: bool) -> bool:
        """Several at once, of which the sender is told as one. What can be refused must have been looked at (`prepare`)."""
        self.commits.begin()
        is_stored = False
        try:
            for address, run in sends:
                is_stored |= self._publish(address, run)
        finally:
            self.commits.end(is_stored=is_stored and is_answered)
        return is_stored

    def require_disk(self, address: Address, run: Run) -> None:
        """Raises Refused for what could not be stored now, unless its sender is to wait (disk-full-policy)."""
        if self.trouble is None or not self.is_durable or not is_failing(address):
            return
        if not address.is_volatile(run) and address.stores(run) and not all(duplicates.stored(address, run)):
            raise Refused(self.trouble.code, self.trouble.text)

    def publish_prepared(self, address: Address, run: Run) -> bool:
        """Publishes as `publish` does what is part of something larger: it is not refused any more, whatever has come about since
        `prepare`."""
        return self._publish(address, run)

    def _publish(self, address: Address, run: Run) -> bool:
        special = run.shape.special
        if (
            special is not None
            and special.is_numbered
            and (known := duplicates.duplicates_of(address)) is not None
        ):
            return duplicates.publish(self, address, run, known)
        if address.limits is not None:
            kept = address.limits.kept(run)
            return kept is not None and self.route(address, kept)
        if special is None and address.only is not None:
            return self.append(address, run)  # `route` would find nothing to do
        return self.route(address, run)

    def route(self, address: Address, run: Run) -> bool:
        """Gives a run to its address without a look at duplicates."""
        if run.shape.special is not None and run.shape.special.repeats:
            return self.schedules.add(address, run)
        if run.routing & ANYCAST and not address.anycast and not run.queue:
            self.anycast_queue(address)
        if address.diverts:
            return diverts.publish(self, address, run)
        return self.append(address, run)

    def prepare(self, sends: Iterable[tuple[Address, Run]], maker: Maker | None = None) -> None:
        """Makes the queues that several sends need. Raises for what may not be made; the sends themselves will not then."""
        transactions.prepare(self, list(sends), maker)

    def append(self, address: Address, run: Run) -> bool:
        """Into the log, and on to the queues."""
        if address.unjoined is not None:
            lifetimes.join_all(address)
        if len(address.anycast) > FEW and len(singly := routing.singly(address, run)) > 1:
            return bool(sum([self.append(address, one) for one in singly]))
        log = address.log
        if self.commits.unit is not None:
            self.commits.unit.sends.append((address, run))
        run.first = log.next
        run.arrived = self.now
        if address.is_timed or run.shape.special is not None:
            run.shape = expiry.with_expiry(run.shape, address.settings_for(run), self.now)
        log.next = stop = run.first + len(run.bodies)
        self.counters["received"] += stop - run.first
        only = address.only
        if only is not None and run.routing == ANYCAST and not run.queue:
            # what most messages meet: one queue, nothing else
            is_durable = self.is_durable and not address.is_volatile(run)
            if is_durable or only.paged_from >= 0:
                self.log_run(address, run, is_loose=not is_durable)
            only.offer(run, run.first, stop)
            return is_durable
        is_crowded = (
            address.fanout is not None
            or len(address.topics) > fanout.MANY
            or address.steps > self.work.most
            or address.settings.send_to_dla_on_no_route
            or (address.steps > 0 and len(run.bodies) > 1)
        )
        targets, groups = fanout.audience(address, run) if is_crowded else (routing.targets(address, run), [])
        if not (targets or groups or address.streams or address.is_read or log.is_kept):
            self.counters["unrouted"] += stop - run.first
            if address.settings.send_to_dla_on_no_route:
                return redelivery.unrouted(self, address, run, [(run.first, stop)])
        is_stored = self._store_if_needed(address, run, targets, groups)
        if address.settings.send_to_dla_on_no_route and not (
            address.streams or address.is_read or log.is_kept
        ):
            is_stored |= fanout.leave_untaken(address, run, targets, groups)
        elif groups:
            fanout.put_off(address, run, groups)
        if address.limits is not None:
            limits.came(run, targets)
        routing.set_aside(address, run, targets)
        for queue, ranges in targets:
            for first, end in ranges:
                queue.offer(run, first, end)
        if run.shape.retain:
            is_stored |= retained.note(self, address, run)
        return is_stored

    def _store_if_needed(self, address: Address, run: Run, targets: Targets, groups: Groups) -> bool:
        """Puts the run into the log when somebody needs it there; True when it must be durable."""
        is_volatile = address.is_volatile(run)
        is_wanted = address.log.is_kept or address.is_read
        if not is_wanted and not is_volatile and self.is_durable:
            is_wanted = any(queue.cursor.unsaved is not None for queue, _ in targets) or fanout.has_durable(
                address, run, groups
            )
        if is_wanted or address.streams or any(queue.paged_from >= 0 for queue, _ in targets):
            self.log_run(address, run, is_loose=not is_wanted)
        if address.streams:
            address.await_commit()
        return is_wanted and not is_volatile and self.is_durable

    def log_run(self, address: Address, run: Run, *, is_loose: bool = False) -> None:
        """Puts a run into the log of its address. `is_loose`: what is not in the log yet goes there for want of memory alone."""
        if address.log.add(run):
            run.is_loose = is_loose
            self.unsaved += cost_of(run)
            self.unsaved_runs += 1
            self.logged += 1
            self.commits.dirty[address] = None

    def count_entry(self) -> None:
        """An entry of the catalogue is to be stored: it takes as long as a run of messages."""
        self.unsaved_runs += 1
        self.logged += 1

    def forward(self, name: str, run: Run, routing: int = 0) -> bool:
        """Messages that the configuration sends to an address: by `routing`, or the kinds that it has, or its settings when it is new."""
        return diverts.forward(self, name, run, routing)

    # Consumers

    def touch(self, consumer: Consumer) -> None:
        if not consumer.is_touched:
            consumer.is_touched = True
            self.touched.append(consumer)

    def flushed(self, consumer: Consumer) -> None:
        """The operating system has all that this auto consumer was sent: it is acknowledged (STOMP 1.2, ack:auto)."""
        self.acknowledge(consumer, consumer.take_flushed())

    def acknowledge(self, consumer: Consumer, sent: list[Sent]) -> None:
        """A consumer is done with messages that `Consumer.take` gave."""
        done = 0
        if len(sent) > TOGETHER:
            done = self._acknowledge_all(sent)
        else:
            for binding, segment in sent:
                binding.queue.acknowledge(segment)
                binding.done += (count := segment.stop - segment.first)
                done += count
        if done:
            self.counters["acknowledged"] += done
        if consumer.starved:
            self.feed(consumer)
        self.feed_denied()

    def _acknowledge_all(self, sent: list[Sent]) -> int:
        """Counts off many messages, those of each queue at once; how many."""
        of_each: dict[Binding, list[Segment]] = {}
        for binding, segment in sent:
            of_each.setdefault(binding, []).append(segment)
        done = 0
        for binding, segments in of_each.items():
            binding.done += (count := binding.queue.acknowledge_all(segments))
            done += count
        return done

    def refuse(self, consumer: Consumer, sent: list[Sent], refusal: Refusal = FAILED) -> None:
        """NACK: failed deliveries, or dead letters at once."""
        for _ in self.refusing(consumer, sent, refusal):
            pass

    def refusing(self, consumer: Consumer, sent: list[Sent], refusal: Refusal) -> Iterator[None]:
        """Refuses messages as `refuse` does, in steps."""
        yield from redelivery.giving_back(self, sent, refusal.outcome, FAR, refusal.delay)
        if consumer.starved:
            self.feed(consumer)
        self.feed_denied()

    def withdraw(self, consumer: Consumer, binding: Binding, offset: int) -> None:
        """A message that could not be written for its consumer: a failed delivery."""
        self.refuse(consumer, consumer.withdraw(binding, offset))

    def take_written(self, consumer: Consumer) -> list[Sent]:
        """Takes from a consumer all that has left for it and is not acknowledged; what has not left goes back."""
        written = consumer.written
        consumer.outbox.clear()
        sent = consumer.take_all()
        redelivery.give_back(self, [one for one in sent if one[1].turn > written], Outcome.RETURNED, written)
        return [one for one in sent if one[1].turn <= written]

    def take_back(self, consumer: Consumer) -> None:
        """What a consumer has and did not acknowledge goes back, and it stays."""
        redelivery.give_back(self, self.take_written(consumer), Outcome.RETURNED, FAR)
        self.feed(consumer)

    def feed(self, consumer: Consumer) -> None:
        consumer.feed()

    def feed_denied(self) -> None:
        """Feeds those who would have got more and may have it now, as far as a portion goes, the rest later. What has used one up already
        may call this often: then all of it comes later."""
        if self.unacknowledged.denied and (self.work.is_over or self.unacknowledged.feed(self.work)):
            self.later.add(self.unacknowledged, self.feed_denied)

    def close_consumer(self, consumer: Consumer, *, is_failure: bool) -> None:
        """Ends a subscription at once (transactions.py). `is_failure`: its connection was lost."""
        for _ in transactions.closing(self, consumer, is_failure=is_failure):
            pass

    # Transactions

    def commit(self, transaction: Transaction, *, is_answered: bool = False) -> bool:
        """Does all that the transaction holds, at once and in one commit. True when its receipt must wait for that commit. When it raises
        it was aborted."""
        return transactions.commit(self, transaction, is_answered=is_answered)

    def abort(self, transaction: Transaction, *, is_failure: bool = False) -> None:
        """What it had acknowledged is unacknowledged again (and back in its queue when the subscription is gone). `is_failure`: its
        connection was lost; the subscriptions are to be closed afterwards."""
        for _ in transactions.aborting(self, transaction, is_failure=is_failure):
            pass

    def unhold(self, consumer: Consumer, sent: list[Sent]) -> None:
        """Gives a consumer messages back that a transaction had acknowledged, and which it does not any more."""
        for _ in transactions.unholding(self, consumer, sent):
            pass

    # What goes wrong with messages

    def expire(self, queue: Queue, segment: Segment) -> None:
        if not queue.reads_the_log:
            self.counters["expired"] += len(segment)
            redelivery.expired(self, queue, segment)
        queue.finish_with(segment)

    def expired_at_once(self, queue: Queue, segment: Segment) -> int:
        """How many of these messages may expire in one step."""
        return redelivery.expired_at_once(queue, segment)

    def dead_at_once(self, queue: Queue, segment: Segment) -> int:
        """How many of these messages may become dead letters in one step."""
        return redelivery.dead_at_once(queue, segment)

    def dead_letter(self, queue: Queue, segment: Segment, reason: str) -> None:
        self.counters["dead"] += len(segment)
        if queue.reads_the_log:
            self.undelivered.note(queue.name, reason, Fate.PASSED_OVER, len(segment))
        else:
            redelivery.dead(self, queue, segment, reason)
        queue.finish_with(segment)

    def is_spent(self, queue: Queue, segment: Segment) -> bool:
        """Messages that were found in the log had all their attempts before a restart."""
        return redelivery.is_spent(queue, segment)

    # Time

    def next_deadline(self) -> int | None:
        """When `tick` has something to do, ms since the epoch."""
        return self.timers.next_deadline()

    def tick(self, now: int, goes_on: Callable[[], bool] = always) -> None:
        """Does what is due, one at least, as long as `goes_on` says so; the rest is due still."""
        self.now = now
        for action in self.timers.due(now):
            action()
            if not goes_on():
                break

    def dispatch_later(self, queue: Queue) -> None:
        self.later.add(queue, queue.dispatch, by=queue.client)

    def dispatch_rest(self, goes_on: Callable[[], bool] = always) -> bool:
        """Goes on with what stopped half-way, a portion of work each, so that others get their turn: one at least, and as long as
        `goes_on` says so. False when there were none."""
        return self.later.run(goes_on)

    # Paging

    def loaded(self, load: Load, runs: list[Run], stop: int) -> None:
        """What was read for a Load; complete up to `stop`. It has a portion of its own: nobody's turn is going on."""
        if load.queue.id not in self.queues:
            return
        self.bodies.adopt(runs)
        for run in runs:
            run.is_logged = True
        self.work.begin()
        load.then(load.queue, runs, load.start, stop)

    # Commits

    def note(self, queue: Queue) -> None:
        """The queue's cursor has news for the next commit."""
        self.commits.acked[queue] = None

    @property
    def is_dirty(self) -> bool:
        return bool(self.commits)

    def take_commit(self) -> Commit:
        """The commit with all that changed since the last one. Answer with `committed` or `commit_failed` before taking the next."""
        self._taken = self.unsaved, self.unsaved_runs
        return self.commits.take()

    def committed(self) -> None:
        """The commit that was taken last is durable."""
        self.commits.landed()
        if self.commits.is_large or self._has_many_pending:  # too many to be counted in one go
            octets, runs = self._taken
            self.unsaved, self.unsaved_runs = max(0, self.unsaved - octets), max(0, self.unsaved_runs - runs)
        else:
            self._count_unsaved()

    @property
    def _has_many_pending(self) -> bool:
        return sum([len(address.log.pending) for address in self.commits.dirty]) > COUNTED

    def _count_unsaved(self) -> None:
        costs = [cost_of(run) for address in self.commits.dirty for run in address.log.pending]
        self.unsaved = sum(costs) + self.bodies.all_unsaved
        self.unsaved_runs = len(costs) + self.commits.entries

    def commit_failed(self, commit: Commit) -> None:
        """The commit that was taken last is not in the store: what was refused is undone, the rest goes in with the next one."""
        self.commits.failed(commit)
        self._count_unsaved()

    def __repr__(self) -> str:
        return f"<Engine addresses={len(self.addresses)} queues={len(self.queues)} dirty={self.is_dirty}>"
