"""An address: its log, its queues, and which of them a message goes to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from stompbox.broker.addresses import fanout
from stompbox.broker.addresses.configuration import Arguments, applied
from stompbox.broker.addresses.destinations import KINDS
from stompbox.broker.addresses.fanout import FEW, Passing
from stompbox.broker.kinds import Kind, rules_of
from stompbox.broker.logs.log import Log
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import matching, paging
from stompbox.broker.queues.expiry import is_ruled
from stompbox.broker.queues.lanes import swept
from stompbox.broker.queues.matching import (
    VERDICTS,
    Plan,
    Range,
    add_offset,
    asked,
    one_by_one,
    wanted,
    wanted_within,
)
from stompbox.broker.queues.memory import Memory
from stompbox.broker.queues.queue import Queue
from stompbox.config.settings import AddressSettings
from stompbox.errors import IllegalFrame
from stompbox.message import ANYCAST, FOR_ONE, MULTICAST, Run
from stompbox.selectors import Selector

if TYPE_CHECKING:
    from stompbox.broker.addresses.contracts import Engine
    from stompbox.broker.addresses.diverts import Divert
    from stompbox.broker.addresses.duplicates import Duplicates
    from stompbox.broker.addresses.fanout import Fanout
    from stompbox.broker.addresses.limits import AddressLimits


Targets = list[tuple[Queue, list[Range]]]
Groups = list[tuple[list[Queue], list[Range] | None]]
"""Subscriptions that take the same of a run; None: their selectors are to be asked later. Nobody changes the lists."""


class Address:
    """`kinds`: the routing that it was made for, ANYCAST, MULTICAST or both. `is_auto`: a frame made it. `owner`: engine.create_address."""

    def __init__(self, engine: Engine, name: str, log: Log, settings: AddressSettings, *, is_auto: bool = False, owner: int = 0) -> None:
        self.engine: Final = engine
        self.name: Final = name
        self.log: Final = log
        self.settings = settings
        self.memory: Final = Memory(engine.memory)  # what its queues have there
        self.limits: AddressLimits | None = None  # what happens beyond memory, when it is not simply paging
        self.kinds = 0
        self.is_auto = is_auto
        self.owner = owner
        self.maker: str | None = None  # the user for whom it counts (makers.py)
        self.is_blocked = False  # an operator lets nothing in
        self.is_paused = False  # an operator lets nothing out (operations.py)
        self.uses = 0  # queues that it has had
        self.retained: Run | None = None  # what new subscriptions get first (retained.py)
        self.anycast: dict[str, Queue] = {}  # by name
        self.named: dict[str, Queue] = {}  # multicast queues that stay, by name
        self.topics: dict[int, Queue] = {}  # durable and plain subscriptions, by id
        self.streams: dict[int, Queue] = {}
        self.groups: dict[str, Queue] = {}
        self.named_readers: dict[str, Queue] = {}  # named readers of the log, there or not
        self.diverts: list[Divert] = []
        self.by_selector: dict[Selector | None, dict[Queue, None]] = {}  # topics, so that each selector is asked once
        self.steps = 0  # that a message takes at the most of which all these are asked
        self.no_locals: dict[int, dict[Queue, None]] = {}  # topics that do not want a session's messages
        self.duplicates: Duplicates | None = None
        self.is_timed = is_ruled(settings)  # its settings say when messages expire
        self.arguments: dict[str, Arguments] = {}  # of queues that a frame has made otherwise (configuration.py), by name
        self._own: dict[str, AddressSettings] = {}  # the settings of those
        self._timed: set[str] = set()  # those of them whose settings say when messages expire
        self.rules = rules_of(settings)  # of all other queues
        self.version = object()  # another one whenever the queues change
        self.plans: WeakSet[Plan] = WeakSet()  # those of this version; shapes have them
        self.only: Queue | None = None  # the one anycast queue, when there is nothing else to think of
        self.turn = 0
        self.fanout: Fanout | None = None  # while messages wait until all who get them have been offered them
        self.passing: Passing | None = None  # once messages came that are for one of very many queues
        self._in_turn: list[Queue] | None = None  # anycast queues to which messages are routed, once there are very many
        self._disabled: set[Queue] = set()  # those to which nothing is routed

    def queues(self) -> Iterator[Queue]:
        yield from self.anycast.values()
        yield from self.topics.values()
        yield from self.streams.values()
        yield from self.groups.values()
        yield from self.named_readers.values()

    def settings_of(self, queue: str) -> AddressSettings:
        """The settings of the anycast queue of this name: the address's, but for what a frame has asked for when it made the queue."""
        return self._own.get(queue, self.settings) if self._own else self.settings

    def settings_for(self, run: Run) -> AddressSettings:
        """Those by which messages for its queues expire: of the queue that they are for, where it is one alone."""
        return self.settings_of(run.queue or self.name) if self._own and run.routing == ANYCAST else self.settings

    def ask(self, queue: str, arguments: Arguments) -> None:
        """A queue is to be so when it is made; without arguments it is as the address's settings say."""
        self.arguments.pop(queue, None)
        self._own.pop(queue, None)
        self._timed.discard(queue)
        if arguments:
            self.arguments[queue] = arguments
            self._apply(queue)
        self.look_again()

    def _apply(self, queue: str) -> None:
        own = self._own[queue] = applied(self.settings, self.arguments[queue])
        if is_ruled(own):
            self._timed.add(queue)

    def obey(self, settings: AddressSettings) -> None:
        """From now on these are its settings."""
        self.settings, self.rules = settings, rules_of(settings)
        self._own.clear()
        self._timed.clear()
        for queue in self.arguments:
            self._apply(queue)
        self.look_again()

    def divert(self, diverts: list[Divert]) -> None:
        """From now on its messages go along these."""
        self.diverts = diverts
        self.look_again()

    def require(self, kind: int) -> None:
        """Raises where the address has not all of these kinds, and its settings do not let a frame add one."""
        if self.kinds and kind & ~self.kinds and not self.settings.auto_create_addresses:
            text = f"address {self.name!r} is {KINDS[self.kinds]}; its settings do not let a frame make it {KINDS[kind]}"
            raise IllegalFrame("kind-not-allowed", text)

    def add_kind(self, kind: int) -> None:
        if kind & ~self.kinds:
            self.kinds |= kind
            self.engine.note_address(self)

    def pause(self) -> None:
        """An operator lets nothing go out of its queues, nor of those that are made later; what is sent is kept."""
        self.is_paused = True
        for queue in list(self.queues()):
            queue.pause()

    def resume(self) -> None:
        self.is_paused = False
        for queue in list(self.queues()):
            queue.resume()

    def block(self) -> None:
        """A SEND gets an ERROR; consumers go on. A restart forgets it."""
        self.is_blocked = True

    def unblock(self) -> None:
        self.is_blocked = False

    def become(self, kinds: int) -> None:
        """It is of these kinds, whatever it was; nothing is to be stored of that."""
        self.kinds = kinds

    def stay(self) -> None:
        """It does not go when nobody needs it."""
        self.is_auto = False

    def count_for(self, user: str | None) -> None:
        """For whom it counts (makers.py)."""
        self.maker = user

    def limit(self, limits: AddressLimits | None) -> None:
        """What happens beyond memory, when it is not simply paging."""
        self.limits = limits
        self.look_again()

    def retain(self, run: Run | None) -> None:
        """What new subscriptions get first."""
        self.retained = run

    def remember(self, duplicates: Duplicates) -> Duplicates:
        """What finds duplicates among its messages from now on."""
        self.duplicates = duplicates
        return duplicates

    def follow(self, fanout: Fanout | None) -> None:
        """Messages wait there until all who get them have been offered them; None: none does any more."""
        self.fanout = fanout

    def replay_from(self) -> int:
        """Where a new subscription begins: -1, at the next message, unless the address is retroactive."""
        most = self.settings.retroactive_message_count
        return max(self.log.oldest, self.log.next - most) if most and self.log.oldest < self.log.next else -1

    @property
    def is_in_use(self) -> bool:
        """It has a queue, or something that it keeps for those who come later."""
        log = self.log
        if self.retained is not None or self.duplicates or (log.is_kept and log.oldest < log.next):
            return True
        return bool(self.anycast or self.topics or self.streams or self.is_read)

    @property
    def is_read(self) -> bool:
        """Somebody reads the log who may be away: it keeps everything for them."""
        return bool(self.groups or self.named_readers)

    def add(self, queue: Queue) -> None:
        self.uses += 1
        queue.enter(self.uses, is_paused=self.is_paused)
        if queue.kind is Kind.ANYCAST:
            self.add_kind(ANYCAST)
            self.anycast[queue.name] = queue
        elif queue.kind is Kind.STREAM:
            self.add_reader(queue)
        elif queue.kind is Kind.GROUP:
            self.groups[queue.name] = queue
        elif queue.kind is Kind.READER:
            self._name_reader(queue, queue.name)
        elif queue.kind is not Kind.BROWSER:
            self.topics[queue.id] = queue
            if queue.kind is Kind.DURABLE:
                self.named[queue.name] = queue
            if queue.selector is not None and queue.selector not in self.by_selector:
                self.steps += queue.selector.steps
            self.by_selector.setdefault(queue.selector, {})[queue] = None
        if queue.is_durable:
            self.log.cursors[queue.id] = queue.cursor
        self.rules_changed(queue)

    def rules_changed(self, queue: Queue) -> None:
        """Those of one queue: nobody looks at the others, however many there are."""
        if queue.rules.is_enabled or self.anycast.get(queue.name) is not queue:
            self._disabled.discard(queue)
        else:
            self._disabled.add(queue)
        self._in_turn = None
        self.look_again()

    def look_again(self) -> None:
        """Queues or diverts have changed: is there only one queue that all messages go to?"""
        self.version = object()
        for plan in self.plans:  # a shape may be remembered for long, but not who was subscribed once
            plan.forget()
        self.plans.clear()
        self.is_timed = bool(self._timed) or is_ruled(self.settings)
        self.only = None
        is_watched = self.is_read or self.log.is_kept or self.limits is not None
        if len(self.anycast) == 1 and not (self.topics or self.streams or self.diverts or is_watched):
            queue = next(iter(self.anycast.values()))
            is_plain = queue.selector is None and queue.is_durable and queue.rules.is_enabled
            self.only = queue if is_plain else None

    def leave_out(self, queue: Queue, before: int, session: int) -> None:
        """The queue does not want messages of this session, but now those of the one before."""
        if before:
            del self.no_locals[before][queue]
            if not self.no_locals[before]:
                del self.no_locals[before]
        if session:
            self.no_locals.setdefault(session, {})[queue] = None

    def remove(self, queue: Queue) -> None:
        self.log.cursors.pop(queue.id, None)
        if queue.kind is Kind.ANYCAST:
            del self.anycast[queue.name]
            self._disabled.discard(queue)
            self._in_turn = None
            if queue.name in self.arguments:
                self.ask(queue.name, {})
        elif queue.kind is Kind.STREAM:
            self.remove_reader(queue)
        elif queue.kind is Kind.GROUP:
            del self.groups[queue.name]
        elif queue.kind is Kind.READER:
            self._forget_reader(queue.name)
            self.remove_reader(queue)
        elif queue.kind is not Kind.BROWSER:
            del self.topics[queue.id]
            if self.named.get(queue.name) is queue:
                del self.named[queue.name]
            queue.leave_out(0)
            same = self.by_selector[queue.selector]
            del same[queue]
            if not same:
                del self.by_selector[queue.selector]
                self.steps -= queue.selector.steps if queue.selector is not None else 0
        self.look_again()

    def add_reader(self, queue: Queue) -> None:
        """Somebody reads the log by offset from now on."""
        self.streams[queue.id] = queue
        self.log.begin_showing()
        self.look_again()
        if self in self.engine.commits.dirty:
            fanout.await_commit(self)

    def remove_reader(self, queue: Queue) -> None:
        if self.streams.pop(queue.id, None) is not None and not self.streams:
            self.log.end_showing()
            if self.log.trimmed < self.log.stored:  # what was kept to be shown may go
                self.engine.commits.dirty[self] = None
        self.look_again()

    def take_reader(self, queue: Queue, name: str, owner: str) -> None:
        """A named reader gets the name and the owner that it should have."""
        if (queue.name, queue.owner) != (name, owner):
            self._forget_reader(queue.name)
            queue.belong_to(owner)
            self._name_reader(queue, name)
            self.engine.note_queue(queue)

    def _name_reader(self, queue: Queue, name: str) -> None:
        queue.rename(name)
        self.named_readers[name] = queue
        self.engine.named_readers.setdefault(name, {})[self] = None

    def _forget_reader(self, name: str) -> None:
        del self.named_readers[name]
        there = self.engine.named_readers[name]
        del there[self]
        if not there:
            del self.engine.named_readers[name]

    # Routing

    def is_volatile(self, run: Run) -> bool:
        """Whether its messages do not survive a restart in a queue."""
        persistent = run.shape.persistent
        return not (self.settings.default_persistent if persistent is None else persistent)

    def has_unread(self) -> bool:
        """Whether the log lacks messages that were confirmed: those that need no disk are, before it has them."""
        return any(not self.engine.is_durable or self.is_volatile(run) for run in self.log.unstored(0))

    def stores(self, run: Run) -> bool:
        """Whether a message that is not volatile needs the disk here, as far as its routing says."""
        if self.log.is_kept or self.is_read:
            return True
        if run.routing & ANYCAST and (not self.anycast or any(queue.is_durable for queue in self.anycast.values())):
            return True
        return bool(run.routing & MULTICAST) and any(queue.is_durable for queue in self.topics.values())

    def targets(self, run: Run) -> Targets:
        """The queues that take the run (its offsets are given), and which ranges of offsets; readers of the log get it from there."""
        if run.queue:
            return self.exactly(run)
        targets, groups = self.split(run)
        return targets + self.flat(groups, run) if groups else targets

    def split(self, run: Run) -> tuple[Targets, Groups]:
        """The same: anycast queues, and subscriptions in groups that take the same of it."""
        limit = self.engine.work.done + self.engine.work.most
        targets = self._of_anycast(run, [(run.first, run.stop)]) if run.routing & ANYCAST and self.anycast else []
        return targets, self._of_topics(run, limit) if run.routing & MULTICAST and self.topics else []

    def flat(self, groups: Groups, run: Run) -> Targets:
        """Queue by queue, without those that do not want what this sender has sent."""
        found: Targets = []
        is_left_out = run.sender in self.no_locals
        for queues, ranges in groups:
            if ranges is None:
                found += self._later(queues, run)
            elif is_left_out:
                found += [(queue, ranges) for queue in queues if queue.no_local != run.sender]
            else:
                found += [(queue, ranges) for queue in queues]
        return found

    def of_reader(self, queue: Queue, run: Run, limit: int) -> list[Range]:
        """What a reader of the log is to be shown of a run; nothing, where its selector is to be asked later."""
        if queue.selector is None:
            return [(run.first, run.stop)]
        ranges = wanted_within(queue.selector, run, run.first, run.stop, self, queue=queue.id, limit=limit)
        if ranges is None:
            return next((ranges for _, ranges in self._later((queue,), run)), [])
        return ranges

    def _later(self, queues: Iterable[Queue], run: Run) -> Targets:
        """Their selectors are asked in turns of their own: until then the queues leave the run in the log."""
        found: Targets = []
        for queue in queues:
            if queue.no_local and queue.no_local == run.sender:
                continue
            if paging.put_off(queue, run):
                found.append((queue, [(run.first, run.stop)]))
            elif queue.selector is not None and (ranges := wanted(queue.selector, run, run.first, run.stop, self, queue=queue.id)):
                found.append((queue, ranges))
        return found

    def exactly(self, run: Run) -> Targets:
        """The same for a run that names its queue."""
        whole = [(run.first, run.stop)]
        kind, queues = (ANYCAST, self.anycast) if run.routing & ANYCAST else (MULTICAST, self.named)
        queue = queues.get(run.queue)
        if queue is None:
            return []
        run.routing = kind | queue.cursor.number << FOR_ONE
        return [(queue, whole)]

    def others(self, run: Run) -> Iterator[Queue]:
        """Queues that would take a run if it did not name another."""
        for queue in (self.anycast if run.routing & ANYCAST else self.topics).values():
            if queue.name != run.queue:
                yield queue

    def set_aside(self, run: Run, targets: Targets) -> None:
        """What a queue does not get although its selector and routing would take it, it must not find in the log later."""
        if run.routing >> FOR_ONE and len(self.anycast if run.routing & ANYCAST else self.topics) > FEW:
            self.passing = self.passing or Passing(self)
            self.passing.note(run)
        elif run.queue:
            for queue in self.others(run):
                queue.skip(run.first, run.stop)
        elif (len(self.anycast) > 1 or self._disabled) and run.routing & ANYCAST:
            taken = {queue.id: ranges for queue, ranges in targets}
            for queue in self.anycast.values():
                for first, stop in missing(taken.get(queue.id, []), run.first, run.stop):
                    queue.skip(first, stop)
        if run.routing & MULTICAST and run.sender in self.no_locals:
            for queue in self.no_locals[run.sender]:
                if queue.cursor.unsaved is not None or queue.paged_from >= 0:
                    queue.skip(run.first, run.stop)

    def _of_anycast(self, run: Run, whole: list[Range]) -> Targets:
        """Of several queues of an address one gets each message, in turn among those whose filter takes it (Artemis, anycast)."""
        if len(self.anycast) > FEW and len(run.bodies) == 1:
            return self._of_very_many(run, whole)
        taken = {
            queue: whole if queue.selector is None else wanted(queue.selector, run, run.first, run.stop, self, queue=queue.id)
            for queue in self.anycast.values()
            if queue.rules.is_enabled
        }
        if len(taken) == 1:
            return [(queue, ranges) for queue, ranges in taken.items() if ranges]
        found: dict[Queue, list[Range]] = {}
        for first, stop, takers in swept(run.first, run.stop, taken):
            queues = [queue for queue in self.anycast.values() if queue in takers]
            for low, high in _shares(first, stop, len(queues)):
                self.turn += 1
                found.setdefault(queues[self.turn % len(queues)], []).append((low, high))
        return list(found.items())

    def _of_very_many(self, run: Run, whole: list[Range]) -> Targets:
        """The same of one message, without a look at all queues."""
        in_turn = self._in_turn
        if in_turn is None:
            in_turn = self._in_turn = [queue for queue in self.anycast.values() if queue.rules.is_enabled]
        for _ in range(len(in_turn)):
            self.turn += 1
            queue = in_turn[self.turn % len(in_turn)]
            if queue.selector is None or wanted(queue.selector, run, run.first, run.stop, self, queue=queue.id):
                run.routing |= queue.cursor.number << FOR_ONE
                return [(queue, whole)]
        return []

    def singly(self, run: Run) -> list[Run]:
        """A run message by message, where each goes to another of very many anycast queues; else the run."""
        if len(self.anycast) <= FEW or not run.routing & ANYCAST or run.queue or len(run.bodies) == 1:
            return [run]
        return [run.part(at, at + 1) for at in range(len(run.bodies))]

    def _of_topics(self, run: Run, limit: int) -> Groups:
        plan = run.shape.verdicts.get(self)
        if plan is None or plan.version is not self.version or plan.settings is not self.settings:
            if self.steps > self.engine.work.most and self._steps_of_plan(run) > self.engine.work.most:
                return self._put_off(run)
            plan = self._plan(run, limit)
            if plan is None:
                return self._put_off(run)
        if plan.steps * len(run.bodies) > self.engine.work.most and plan.steps_of(run) > self.engine.work.most:
            return self._put_off(run)
        found: Groups = [(plan.always, [(run.first, run.stop)])] if plan.always else []
        if plan.by_value or plan.by_message:
            by_ranges: dict[tuple[Range, ...] | None, list[Queue]] = {}
            taken = self._by_values(plan, run, limit) if plan.by_value else {}
            for selector in plan.by_message:
                if "message_id" in selector.facts:  # each subscription sees another one
                    self._by_id(selector, run, limit, by_ranges)
                else:
                    taken[selector] = wanted_within(selector, run, run.first, run.stop, self, limit=limit)
            for selector, ranges in taken.items():
                if ranges is None or ranges:
                    by_ranges.setdefault(None if ranges is None else tuple(ranges), []).extend(self.by_selector[selector])
            found += [(queues, None if ranges is None else list(ranges)) for ranges, queues in by_ranges.items()]
        return found

    def _by_id(self, selector: Selector, run: Run, limit: int, found: dict[tuple[Range, ...] | None, list[Queue]]) -> None:
        """Adds the queues of topic subscriptions whose messages' ids, among others, the selector looks at."""
        queues = list(self.by_selector[selector])
        for at, queue in enumerate(queues):
            if queue.no_local and queue.no_local == run.sender:
                continue
            ranges = wanted_within(selector, run, run.first, run.stop, self, queue=queue.id, limit=limit)
            if ranges is None:
                found.setdefault(None, []).extend(queues[at:])
                return
            if ranges:
                found.setdefault(tuple(ranges), []).append(queue)

    def _put_off(self, run: Run) -> Groups:
        """Asking all selectors about the run is too much for one turn: their queues leave it in the log, and ask each in its own turn."""
        plain = list(self.by_selector.get(None, ()))
        found: Groups = [(plain, [(run.first, run.stop)])] if plain else []
        return [*found, ([queue for selector, queues in self.by_selector.items() if selector is not None for queue in queues], None)]

    def _steps_of_plan(self, run: Run) -> int:
        """That it takes to ask those whose verdict the run's shape decides."""
        shape = run.shape
        return sum([selector.steps for selector in self.by_selector if selector is not None and matching.is_of_shape(selector, shape)])

    def _plan(self, run: Run, limit: int) -> Plan | None:
        """None: the turn's work went beyond `limit`. What has been asked is remembered, so the next run of the shape comes further."""
        shape = run.shape
        plan = Plan(self.version, self.settings)
        for selector, queues in self.by_selector.items():
            if selector is None or matching.is_of_shape(selector, shape):
                if self.engine.work.done > limit:
                    return None
                if selector is None or wanted(selector, run, run.first, run.stop, self):
                    plan.always.extend(queues)
            elif selector.is_per_message:
                plan.by_message.append(selector)
            else:
                plan.add_by_value(selector)
        plan.complete(shape)
        shape.verdicts[self] = plan
        self.plans.add(plan)
        return plan

    def _by_values(self, plan: Plan, run: Run, limit: int) -> dict[Selector, list[Range] | None]:
        """Ranges by selector, where the values of holes decide: each combination of values is looked at once. None: the turn's work
        went beyond `limit`, and they are to be asked later."""
        found: dict[Selector, list[Range]] = {}
        work = self.engine.work
        for index, values in enumerate(zip(*[run.columns[at] for at in plan.at], strict=True)):
            takers = plan.known.get(values)
            if takers is None:
                if work.done > limit:
                    return dict.fromkeys(plan.by_value)
                takers = self._takers(plan, run, index)
                if len(plan.known) >= VERDICTS:
                    plan.known.clear()
                plan.known[values] = takers
            for selector in takers:
                add_offset(found.setdefault(selector, []), run.first + index)
        return {**found}

    def _takers(self, plan: Plan, run: Run, index: int) -> tuple[Selector, ...]:
        headers = run.headers(index)
        known = matching.facts_of_shape(run.shape, self.name, is_durable=not self.is_volatile(run))
        return plan.takers(headers, known, partial(asked, self))

    def wanted_of(self, selector: Selector, segment: Segment, queue: int) -> list[Range]:
        """The ranges of a segment, which waits in the queue of this id, that a consumer's selector takes."""
        if not selector.is_per_message:
            return wanted_within(selector, segment.run, segment.first, segment.stop, self, limit=None) or []
        return one_by_one(selector, segment.run, segment.first, segment.stop, self, segment=segment, queue=queue) or []

    def verdicts(self, queue: Queue, run: Run, first: int, stop: int) -> Iterator[tuple[int, int, bool]]:
        """first .. stop-1 in ranges that the queue's selector takes or leaves."""
        ranges = [(first, stop)] if queue.selector is None else wanted(queue.selector, run, first, stop, self, queue=queue.id)
        for low, high in ranges:
            if first < low:
                yield first, low, False
            yield low, high, True
            first = high
        if first < stop:
            yield first, stop, False

    def __repr__(self) -> str:
        return f"<Address {self.name} next={self.log.next} queues={len(self.anycast)} topics={len(self.topics)}>"


def _shares(first: int, stop: int, count: int) -> Iterator[Range]:
    """first .. stop-1 in `count` parts that differ by one at most, none of them empty."""
    for left in range(count, 0, -1):
        if first < stop:
            high = first - (first - stop) // left
            yield first, high
            first = high


def missing(ranges: list[Range], first: int, stop: int) -> Iterator[Range]:
    """What of first .. stop-1 is in none of the ranges, which are in order."""
    for low, high in ranges:
        if first < low:
            yield first, low
        first = high
    if first < stop:
        yield first, stop
