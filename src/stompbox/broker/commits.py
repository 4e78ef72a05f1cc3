"""What the next commit must say: gathered as things change, taken whole, put back when the disk refuses.

Decides what goes into a commit and when it counts as stored. When a commit is taken is the server's business.

A unit of work is what its sender is told about as one: messages with a receipt, a transaction. It is stored with one commit, or taken
back. When the disk refuses a commit, its units of work get an ERROR and are undone, as far as that can be:

| of a unit of work                          | becomes                                                                 |
|--------------------------------------------|-------------------------------------------------------------------------|
| messages that wait in queues               | are gone, from every queue and subscription of the address              |
| messages that a consumer has               | stay with it; when they come back they are dropped, not delivered again |
| acknowledgements in a transaction          | as after ABORT                                                          |
| NACKs in a transaction                     | stand: the delivery has failed, whatever became of the rest             |
| what a ring or a last value has dropped    | waits again, unless something newer has its place                       |
| what finds duplicates, retained messages … | as before                                                               |

What nobody waits for an answer to (SEND and ACK without receipt, dead letters, the catalogue) goes in again with the next
commit, and so do those of addresses whose `disk-full-policy` is BLOCK: their senders just wait longer. So does one of which
somebody else has sent a duplicate meanwhile: that one's RECEIPT will say that it is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

from stompbox.broker.addresses import contracts, fanout, lifetimes
from stompbox.broker.addresses.contracts import address_of
from stompbox.broker.addresses.unitofwork import Restore, UnitOfWork
from stompbox.broker.logs.log import UNUSED
from stompbox.broker.logs.segments import EVERY
from stompbox.broker.queues import paging
from stompbox.broker.queues.consumer import taken_off
from stompbox.broker.work import MESSAGE
from stompbox.ranges import Ranges
from stompbox.store.base import Commit, Delivered

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Duplicates
    from stompbox.broker.logs.bodies import Bodies
    from stompbox.broker.logs.log import Log
    from stompbox.broker.queues.consumer import Consumer, Sent
    from stompbox.broker.queues.queue import Queue
    from stompbox.message import Run


# messages of a large unit that are let go in one step; addresses and queues that are gathered in one
PART: Final = 500
# addresses and queues with news, beyond which they are gathered in steps before the commit is taken: three milliseconds of one step
MANY: Final = 500
RANGES: Final = 1000  # that were acknowledged, beyond which the same is done: two milliseconds
GOING: Final = 5 * MESSAGE  # steps (work.py) that it takes to let a queue go
PASSES: Final = 8  # as often at most: others may have as much news again meanwhile

T = TypeVar("T")


class Engine(contracts.Engine, Protocol):
    """What commits ask of the engine above them."""

    @property
    def bodies(self) -> Bodies: ...
    @property
    def trouble(self) -> object | None: ...

    def unhold(self, consumer: Consumer, sent: list[Sent]) -> None: ...
    def count_entry(self) -> None: ...


class Commits:
    """Gathers what the next commit says, and the units of work that it has. `dirty`: addresses whose logs have news; `acked`: queues whose
    cursors have."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.dirty: dict[Address, None] = {}
        self.acked: dict[Queue, None] = {}
        self.news: dict[Duplicates, None] = {}  # what finds duplicates and has something to be stored
        # of messages that were, and are not acknowledged (queue.py)
        self.delivered: dict[Queue, list[Delivered]] = {}
        self.changes = 0  # of the catalogue, and of which logs and cursors there are: counts up
        self.unit: UnitOfWork | None = None  # that is being done
        self.units: list[UnitOfWork] = []  # that the next commit has
        self.is_held = False  # by a unit that is half done
        self.may_hold = True  # a commit was taken since the last such
        self.is_awaited = False  # the next one is waited for
        self._next = Commit()
        self._taken: Commit | None = None  # that the disk works on
        self._gathered: dict[
            Address, int
        ] = {}  # whose logs are in the next commit already: their next offsets then
        self._told: dict[Duplicates, None] = {}  # and whose values are
        self._is_firm = False  # something in it must outlive a loss of power
        # of the commit that the disk works on: whose logs are in it, and their next offsets then
        self._addresses: dict[Address, int] = {}
        self._caches: dict[Duplicates, None] = {}  # whose values are in it
        self._units: list[UnitOfWork] = []  # and what of it somebody waits for
        # the unit that was ended last, where it needs the disk; until the next commit
        self.last: UnitOfWork | None = None
        self._is_whole = True  # nothing was lost on its way into a commit

    def __bool__(self) -> bool:
        return (
            bool(self.dirty or self.acked or self.delivered or self.news or self._next)
            or self.engine.bodies.is_dirty
        )

    def begin(self) -> UnitOfWork:
        """What is published until `end` belongs together: its sender will be told of it as one."""
        self.unit = UnitOfWork()
        return self.unit

    def end(self, *, is_stored: bool) -> None:
        """Ends the unit of work that is being done. `is_stored`: some of it needs the disk."""
        unit, self.unit, self.last = self.unit, None, None
        if unit is not None and is_stored:
            unit.finish()
            self.units.append(unit)
            self.last = unit
        elif unit is not None:
            unit.settle()

    def refusable(self) -> list[UnitOfWork]:
        """The units of work that are not stored yet, and may never be."""
        return [unit for unit in (*self._units, *self.units) if unit.is_refusable]

    def restore_if_refused(self, restore: Restore) -> None:
        """What is to be done when the disk refuses the unit of work that is being done; nothing where there is none."""
        if self.unit is not None:
            self.unit.consequences.restore.append(restore)

    def restore_if_any_refused(self, restore: Restore) -> None:
        """Has `restore` done when the disk refuses one of the units of work that are not stored yet."""
        for unit in self.refusable():
            unit.consequences.restore.append(restore)

    def hold(self) -> None:
        """A unit is done in steps: no commit is taken before all of it is there."""
        self.is_held = True
        self.may_hold = False

    def may_be_held(self) -> bool:
        """Whether a unit may be done in steps now. Where the disk has nothing to do, not before a commit has been taken since the last one;
        that commit is wanted. While the disk works on one no other can be taken anyway."""
        is_free = self._taken is None and not self.may_hold
        is_due = is_free and not self.is_held and bool(self) and self.engine.trouble is None
        self.is_awaited |= is_due
        return not (self.is_held or is_due)

    def want(self) -> None:
        """Notes that somebody waits for the next commit."""
        self.is_awaited = True

    def let_go(self) -> None:
        self.is_held = False

    def resume(self, unit: UnitOfWork) -> None:
        """What is published until `end` or `suspend` belongs to this one, too."""
        self.unit = unit

    def suspend(self) -> None:
        """Interrupts a unit of work that is done in steps, so that others have their turn."""
        self.unit = None

    def tell_delivered(self, queue: Queue, told: Delivered) -> None:
        """The next commit says how often these messages were delivered; at once with those next to them that were as often."""
        known = self.delivered.setdefault(queue, [])
        if known and known[-1][2:] == told[2:]:
            first, stop, deliveries, failures = known[-1]
            if told[0] == stop or told[1] == first:
                known[-1] = (min(first, told[0]), max(stop, told[1]), deliveries, failures)
                return
        known.append(told)

    def put(self, kind: str, key: str, value: object | None) -> None:
        """Writes an entry of the catalogue; None deletes it."""
        self.changes += 1
        self.engine.count_entry()
        self._next.entries[kind, key] = (
            None if value is None else json.dumps(value, separators=(",", ":")).encode()
        )

    def owe(self, commit: Commit) -> None:
        """Takes over entries that could not be stored yet."""
        self._next.entries.update(commit.entries)

    def add_log(self, log: Log) -> None:
        if not log.is_known:
            self._next.logs[log.id] = log.name
            self.put(*log.entry, log.incarnations.wire())
            log.enter()
            if log.first:  # it was there before (lifetimes.py): where its offsets go on is told with it
                self.put("ended", log.name, None)
                self.dirty[self.engine.logs[log.id]] = None

    def add_cursor(self, queue: Queue) -> None:
        self.add_log(queue.address.log)
        self._next.cursors[queue.id] = (queue.address.log.id, queue.cursor.position)
        self.dirty[address_of(queue)] = None  # offsets below its position must not be given out again

    def put_cursor(self, queue: Queue) -> None:
        """Puts a cursor that is elsewhere now into the next commit; what it had acknowledged counts no more."""
        self.acked.pop(queue, None)
        self._next.acknowledged.pop(queue.id, None)
        self.add_cursor(queue)

    def drop_cursor(self, queue: Queue) -> None:
        self.acked.pop(queue, None)
        self.delivered.pop(queue, None)
        if queue.is_durable:
            self._next.cursors.pop(queue.id, None)
            self._next.acknowledged.pop(queue.id, None)
            self._next.delivered.pop(queue.id, None)
            self._next.dropped_cursors.append(queue.id)
            self.dirty[address_of(queue)] = None

    def drop_log(self, address: Address) -> None:
        log = address.log
        self.dirty.pop(address, None)
        log.leave()
        if address.duplicates is not None:
            address.duplicates.forget()
        if log.is_known:
            self.put("address", str(log.id), None)
            self.put("retained", str(log.id), None)
            self.put(UNUSED, str(log.id), None)
            self.put(*log.entry, None)
            for gone in (self._next.runs, self._next.next_offsets, self._next.trims):
                gone.pop(log.id, None)
            if self._next.logs.pop(log.id, None) is None:
                self._next.dropped_logs.append(log.id)

    def take(self) -> Commit:
        """Takes all that changed since the last commit. Answer with `landed` or `failed` before taking the next.

        After an exception here there is no next one: what it would confirm was in this one.
        """
        if not self._is_whole:
            raise RuntimeError("no commit is taken: part of an earlier one is lost")
        self._is_whole = False
        self.may_hold, self.is_awaited = True, False
        commit = self._taken = self._gather()
        self._is_whole = True
        return commit

    @property
    def entries(self) -> int:
        """How many entries of the catalogue the next commit has so far."""
        return len(self._next.entries)

    def is_unsaved(self, kind: str, key: str) -> bool:
        """An entry of the catalogue was changed, and that is not known to be on disk."""
        taken = self._taken
        return (kind, key) in self._next.entries or (taken is not None and (kind, key) in taken.entries)

    @property
    def is_large(self) -> bool:
        """Whether the next commit has more to say than is gathered in one go."""
        if len(self.dirty) + len(self.acked) + len(self.delivered) + len(self.news) > MANY:
            return True
        return sum([len(queue.cursor.unsaved or ()) for queue in self.acked]) > RANGES

    def preparing(self) -> Iterator[None]:
        """Gathers most of the next commit ahead, in steps, while the disk has none. What changes after it was gathered is gathered once
        more, so the commit says what is so when it is taken, and nothing of it is older than the rest."""
        for _ in range(PASSES):
            yield from self._prepare_once()
            if not self.is_large:
                return

    def _prepare_once(self) -> Iterator[None]:
        self._leave()
        yield
        for queues in _parts(list(self.acked)):
            for queue in queues:
                if queue in self.acked:
                    self.dirty[address_of(queue)] = None
            yield
        for caches in _parts(list(self.news)):
            for cache in caches:
                self._tell(cache)
            yield
        for addresses in _parts(list(self.dirty)):
            for address in addresses:
                if address in self.dirty:
                    del self.dirty[address]
                    self._give(self._next, address)
            yield
        said = 0
        for queue in list(self.acked):
            # where the log has news again the cursor waits for them
            while queue in self.acked and queue.address not in cast("dict[Any, None]", self.dirty):
                said += max(1, self._acknowledge(self._next, queue, PART))
                if not queue.cursor.unsaved:
                    del self.acked[queue]
                if said >= PART:
                    said = 0
                    yield
        if said:
            yield
        for queues in _parts(list(self.delivered)):
            for queue in queues:
                self._count(self._next, queue, self.delivered.pop(queue, []))
            yield

    def _leave(self) -> None:
        """The last message of a queue may have gone without a consumer."""
        left = [queue for queue in self.acked if not queue.bindings]
        if left:
            self.engine.later.take(("left", id(left)), _leaving(self.engine, left))

    def _tell(self, cache: Duplicates) -> None:
        if self.news.pop(cache, self) is None:
            cache.tell()
            self._told[cache] = None

    def _give(self, commit: Commit, address: Address) -> None:
        log = address.log
        log.give(commit, self.engine.now, is_again=address in self._gathered)
        self._gathered[address] = log.next
        if not self._is_firm:
            self._is_firm = any(not run.is_loose for run in commit.runs.get(log.id, ()))

    def _acknowledge(self, commit: Commit, queue: Queue, most: int = EVERY) -> int:
        """Has the commit say what was acknowledged of a queue, or `most` ranges of it; how many were looked at."""
        log, cursor = queue.address.log, queue.cursor
        known = len(cursor.unsaved or ())
        ranges = cursor.news(log.stored, most)
        if ranges:
            commit.acknowledged.setdefault(queue.id, []).extend(ranges)
            self._is_firm = self._is_firm or any(first < log.firm for first, _ in ranges)
        return known - len(cursor.unsaved or ())

    def _count(self, commit: Commit, queue: Queue, told: list[Delivered]) -> None:
        if told:
            commit.delivered.setdefault(queue.id, []).extend(told)

    def _gather(self) -> Commit:
        if self.acked:
            self._leave()
        for cache in list(self.news):
            self._tell(cache)
        commit, self._next = self._next, Commit()
        self.engine.bodies.give(commit)
        acked, self.acked = self.acked, {}
        dirty: dict[Any, None] = self.dirty
        for queue in acked:
            dirty[queue.address] = None
        for queue, told in self.delivered.items():
            self._count(commit, queue, told)
        dirty, self.dirty, self.delivered = self.dirty, {}, {}
        for address in dirty:
            self._give(commit, address)
        for queue in acked:
            self._acknowledge(commit, queue)
        commit.is_loose = not self._is_firm and is_loose(commit)
        self._is_firm = False
        self._addresses, self._gathered = self._gathered, {}
        self._caches, self._told = self._caches | self._told, {}
        self._units, self.units, self.last = self.units, [], None
        return commit

    def landed(self) -> None:
        """The commit that was taken last is durable."""
        for land, news in self._to_land():
            land(news)
        self._forget_taken()

    @property
    def is_landing_long(self) -> bool:
        """Whether the commit that the disk works on is one that takes long to land."""
        return len(self._addresses) + len(self._caches) + len(self._units) > MANY

    def landing(self) -> Iterator[None]:
        """As `landed` does, in steps. No commit may be taken before all are done; nothing is left to do for `landed` then."""
        for land, news in self._to_land():
            for part in _parts(list(news)):
                land(part)
                yield
        self._forget_taken()

    def _to_land(self) -> tuple[tuple[Callable[[Collection[Any]], None], Collection[Any]], ...]:
        """What has news of the commit that was taken, in the order in which it is told: nobody is shown what its sender may lose yet."""
        self._is_whole, self._taken = False, None
        self.engine.bodies.landed()
        return (
            (self._land_offsets, self._addresses),
            (_land_caches, self._caches),
            (self._settle, self._units),
            (self._show, self._addresses),
        )

    def _land_offsets(self, addresses: Iterable[Address]) -> None:
        for address in addresses:
            address.log.landed(self._addresses[address])

    def _settle(self, units: Iterable[UnitOfWork]) -> None:
        for unit in units:
            unit.settle()
            if unit.is_large:
                self.engine.later.take(unit, _letting_go(self.engine, unit))

    def _show(self, addresses: Iterable[Address]) -> None:
        for address in addresses:
            if self.engine.logs.get(address.log.id) is address:
                if address.streams:
                    fanout.show(address)
                if address.log.retention is not None:
                    self._let_go(address)

    def _forget_taken(self) -> None:
        self._addresses, self._caches, self._units = {}, {}, []
        self._is_whole = True

    def _let_go(self, address: Address) -> None:
        """What came may be more than is to be kept; and all of it may be gone."""
        log = address.log
        if log.trimmed < log.kept_from(self.engine.now) and log.trimmed < log.stored:
            self.dirty[address] = None
        elif log.first < log.next <= log.oldest:
            lifetimes.address_left(self.engine, address)

    def failed(self, commit: Commit) -> None:
        """The commit that was taken last is not in the store: what was refused is undone, the rest goes in with the next one."""
        self._is_whole, self._taken = False, None
        newer, self._next = self._next, commit
        self.engine.bodies.failed(commit)
        commit.logs.update(newer.logs)
        commit.cursors.update(newer.cursors)
        commit.entries.update(newer.entries)
        commit.dropped_cursors.extend(newer.dropped_cursors)
        commit.dropped_logs.extend(newer.dropped_logs)
        for queue_id in newer.dropped_cursors:
            commit.delivered.pop(queue_id, None)
        for queue_id, ranges in commit.acknowledged.items():
            queue = self.engine.queues.get(queue_id)
            if queue is not None and queue_id not in newer.cursors:  # else it was put elsewhere meanwhile
                queue.cursor.not_saved(ranges)
                self.acked[queue] = None
        for told in (commit.acknowledged, commit.runs, commit.next_offsets, commit.trims):
            told.clear()
        for address in self._addresses:
            if self.engine.logs.get(address.log.id) is address:  # else it was dropped meanwhile
                address.log.failed()
                self.dirty[address] = None
        refused = [unit for unit in self._units if unit.is_refusable and not unit.is_shared]
        self.units[:0] = [unit for unit in self._units if unit.is_shared or not unit.is_refusable]
        self._addresses, self._units = {}, []
        withdraw(self.engine, refused)
        self._is_whole = True

    def __repr__(self) -> str:
        return f"<Commits addresses={len(self.dirty)} cursors={len(self.acked)} {'more' if self._next else 'nothing more'}>"


def _letting_go(engine: Engine, unit: UnitOfWork) -> Iterator[None]:
    """What a large unit held goes in parts: nobody takes it back any more."""
    for _ in taken_off(unit.sends, PART):
        engine.work.spend(PART)
        yield
    yield from letting_acked_go(engine, unit.acked)


def letting_acked_go(engine: Engine, acked: list[tuple[Consumer, list[Sent]]]) -> Iterator[None]:
    """What was acknowledged goes in parts. The list is empty then."""
    for part in taken_off(acked, PART):
        for _, sent in part:
            if len(sent) > PART:
                for _ in taken_off(sent, PART):
                    engine.work.spend(PART)
                    yield
        engine.work.spend(PART)
        yield


def _leaving(engine: Engine, queues: list[Queue]) -> Iterator[None]:
    """Lets queues go where nobody needs them, one in each step."""
    for queue in queues:
        lifetimes.queue_left(engine, queue)
        engine.work.spend(GOING)
        yield


def _land_caches(caches: Collection[Duplicates]) -> None:
    for cache in caches:
        cache.landed()


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), PART):
        yield items[at : at + PART]


def is_loose(commit: Commit) -> bool:
    """Whether nothing in it need outlive a loss of power, if its runs and what queues have acknowledged need not: messages that are in the
    log for want of memory, acknowledgements of such, what goes, and pieces of bodies whose message is not there yet (it will be in a
    commit after them)."""
    catalogue = (
        commit.logs or commit.cursors or commit.dropped_cursors or commit.entries or commit.dropped_logs
    )
    return not (catalogue or commit.next_offsets or commit.delivered)


class Trouble(NamedTuple):
    """Why nothing can be stored now: the code and text of the ERROR."""

    code: str
    text: str


def withdraw(engine: Engine, units: list[UnitOfWork]) -> None:
    """Undoes units of work that the disk has refused, the latest first."""
    addresses: dict[Address, list[Run]] = {}
    for unit in reversed(units):
        unit.refuse()
        for address, run in unit.sends:
            run.is_withdrawn = True
            engine.counters["not-stored"] += len(run)
            addresses.setdefault(address, []).append(run)
        for undo in reversed(unit.also.undo if unit.also is not None else ()):
            undo()
    also = [unit.also for unit in reversed(units) if unit.also is not None]
    for address, copy, original in [copied for one in also for copied in one.copies]:
        if original.is_withdrawn:
            copy.is_withdrawn = True
            addresses.setdefault(address, []).append(copy)
    for address, runs in addresses.items():
        address.log.forget_withdrawn()
        for queue in list(address.queues()):
            paging.drop_withdrawn(queue, runs)
    withdrawn = {
        address: Ranges(sorted([(run.first, run.stop) for run in runs]))
        for address, runs in addresses.items()
    }
    for restore in [restore for one in also for restore in reversed(one.restore)]:
        restore(withdrawn)
    for unit in units:
        _unacknowledge(engine, unit)


def _unacknowledge(engine: Engine, unit: UnitOfWork) -> None:
    held: dict[Consumer, list[Sent]] = {}
    for consumer, sent in unit.acked:
        there = [(binding, segment) for binding, segment in sent if binding.queue.id in engine.queues]
        for binding, segment in there:
            binding.queue.unacknowledge(segment)
        held.setdefault(consumer, []).extend(there)
    for consumer, sent in held.items():
        engine.unhold(consumer, sent)
