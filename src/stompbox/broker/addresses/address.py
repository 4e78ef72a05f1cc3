"""An address: its log, its queues, by which settings they live. Which of them a message goes to is in routing.py."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final
from weakref import ref

from stompbox.broker.addresses import lifetimes
from stompbox.broker.addresses.contracts import Divert, Duplicates, Fanout, Limits, Passing
from stompbox.broker.kinds import TYPES, Arguments, Kind, applied, rules_of
from stompbox.broker.logs.log import Log
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.expiry import is_ruled
from stompbox.broker.queues.matching import (
    Plan,
    Range,
    is_answered,
    is_long,
    one_by_one,
    wanted,
    wanted_by_each,
    wanted_within,
)
from stompbox.broker.queues.memory import Memory
from stompbox.broker.queues.queue import Queue
from stompbox.broker.sparse import NONE, NOTHING, put, without
from stompbox.config.settings import AddressSettings
from stompbox.errors import IllegalFrame
from stompbox.message import ANYCAST, MULTICAST, Run
from stompbox.selectors import Selector

if TYPE_CHECKING:
    from stompbox.broker.addresses.contracts import Engine


FEW_PLANS: Final = 16  # among which those that are gone are not looked for


class Address:
    """A name that messages are sent to: its log, its queues and its settings. `kinds`: the routing that it was made for, ANYCAST, MULTICAST
    or both. `is_auto`: a frame made it. `owner`: engine.create_address."""

    __slots__ = (
        "_disabled", "_in_turn", "_most_plans", "_own", "_plans", "_timed", "anycast", "arguments", "by_selector", "diverts",
        "duplicates", "engine", "fanout", "groups", "is_auto", "is_blocked", "is_paused", "is_timed", "kinds",
        "limits", "log", "maker", "memory", "name", "named", "named_readers", "no_locals", "only", "owner",
        "passing", "retained", "rules", "settings", "steps", "streams", "topics", "turn", "unjoined", "uses", "version",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        name: str,
        log: Log,
        settings: AddressSettings,
        *,
        is_auto: bool = False,
        owner: int = 0,
    ) -> None:
        self.engine: Final = engine
        self.name: Final = name
        self.log: Final = log
        self.settings = settings
        self.memory: Final = Memory(engine.memory)  # what its queues have there
        self.limits: Limits | None = None  # what happens beyond memory, when it is not simply paging
        self.kinds = 0
        self.is_auto = is_auto
        self.owner = owner
        self.maker: str | None = None  # the user for whom it counts (makers.py)
        self.is_blocked = False  # an operator lets nothing in
        self.is_paused = False  # an operator lets nothing out (operations.py)
        self.uses = 0  # queues that it has had
        self.retained: Run | None = None  # what new subscriptions get first (retained.py)
        self.anycast: dict[str, Queue] = NONE  # by name
        self.named: dict[str, Queue] = NONE  # multicast queues that stay, by name
        self.topics: dict[int, Queue] = NONE  # durable and plain subscriptions, by id
        self.streams: dict[int, Queue] = NONE
        self.groups: dict[str, Queue] = NONE
        self.named_readers: dict[str, Queue] = NONE  # named readers of the log, there or not
        self.diverts: tuple[Divert, ...] = ()
        # those who are to join it before anything is published there
        self.unjoined: deque[Callable[[], None]] | None = None
        # topics, so that each selector is asked once
        self.by_selector: dict[Selector | None, dict[Queue, None]] = NONE
        self.steps = 0  # that a message takes at the most of which all these are asked
        self.no_locals: dict[int, dict[Queue, None]] = NONE  # topics that do not want a session's messages
        self.duplicates: Duplicates | None = None
        self.is_timed = is_ruled(settings)  # its settings say when messages expire
        # of queues that a frame has made otherwise (configuration.py), by name
        self.arguments: dict[str, Arguments] = NONE
        self._own: dict[str, AddressSettings] = NONE  # the settings of those
        self._timed: dict[str, None] = NONE  # those of them whose settings say when messages expire
        self.rules = rules_of(settings)  # of all other queues
        self.version = object()  # another one whenever the queues change, and there are plans
        self._plans: list[ref[Plan]] = NOTHING  # those of this version; shapes have them
        self._most_plans = FEW_PLANS
        self.only: Queue | None = None  # the one anycast queue, when there is nothing else to think of
        self.turn = 0
        self.fanout: Fanout | None = None  # while messages wait until all who get them have been offered them
        self.passing: Passing | None = None  # once messages came that are for one of very many queues
        # anycast queues to which messages are routed, once there are very many
        self._in_turn: list[Queue] | None = None
        self._disabled: dict[Queue, None] = NONE  # those to which nothing is routed

    def keep(self, plan: Plan) -> None:
        """Remembers a plan, which is forgotten when the queues change."""
        if len(self._plans) >= self._most_plans:  # shapes come and go
            self._plans = [known for known in self._plans if known() is not None]
            self._most_plans = 2 * len(self._plans) + FEW_PLANS
        if self._plans:
            self._plans.append(ref(plan))
        else:
            self._plans = [ref(plan)]
        self.engine.plans.add(plan)

    def queues(self) -> Iterator[Queue]:
        if self.anycast:  # most addresses have queues of one kind: to begin with each of five empty ones takes longer than the queue
            yield from self.anycast.values()
        if self.topics:
            yield from self.topics.values()
        if self.streams:
            yield from self.streams.values()
        if self.groups:
            yield from self.groups.values()
        if self.named_readers:
            yield from self.named_readers.values()

    def settings_of(self, queue: str) -> AddressSettings:
        """The settings of the anycast queue of this name: the address's, but for what a frame has asked for when it made the queue."""
        return self._own.get(queue, self.settings) if self._own else self.settings

    def settings_for(self, run: Run) -> AddressSettings:
        """The settings by which a run's messages expire: those of the queue that it is for, where it is for one alone."""
        return (
            self.settings_of(run.queue or self.name)
            if self._own and run.routing == ANYCAST
            else self.settings
        )

    def ask(self, queue: str, arguments: Arguments) -> None:
        """A queue is to be so when it is made; without arguments it is as the address's settings say."""
        self.arguments = without(self.arguments, queue)
        self._own = without(self._own, queue)
        self._timed = without(self._timed, queue)
        if arguments:
            self.arguments = put(self.arguments, queue, arguments)
            self._apply(queue)
        self.look_again()

    def _apply(self, queue: str) -> None:
        own = applied(self.settings, self.arguments[queue])
        self._own = put(self._own, queue, own)
        if is_ruled(own):
            self._timed = put(self._timed, queue, None)

    def obey(self, settings: AddressSettings) -> None:
        """The address lives by these settings from now on."""
        self.settings, self.rules = settings, rules_of(settings)
        self._own = self._timed = NONE
        for queue in self.arguments:
            self._apply(queue)
        self.look_again()

    def divert(self, diverts: Iterable[Divert]) -> None:
        """The address's messages go along these diverts from now on."""
        self.diverts = tuple(diverts)
        self.look_again()

    def require(self, kind: int) -> None:
        """Raises where the address has not all of these kinds, and its settings do not let a frame add one."""
        if self.kinds and kind & ~self.kinds and not self.settings.auto_create_addresses:
            text = f"address {self.name!r} is {TYPES[self.kinds]}; its settings do not let a frame make it {TYPES[kind]}"
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
        """Hands out messages of its queues again; an address that nobody needs by now goes."""
        self.is_paused = False
        for queue in list(self.queues()):
            queue.resume()
        lifetimes.address_left(self.engine, self)

    def block(self) -> None:
        """A SEND gets an ERROR; consumers go on. A restart forgets it."""
        self.is_blocked = True

    def unblock(self) -> None:
        """Takes messages again; an address that nobody needs by now goes."""
        self.is_blocked = False
        lifetimes.address_left(self.engine, self)

    def become(self, kinds: int) -> None:
        """The address is of these kinds from now on, whatever it was; nothing is to be stored of that."""
        self.kinds = kinds

    def stay(self) -> None:
        """The address does not go when nobody needs it."""
        self.is_auto = False

    def count_for(self, user: str | None) -> None:
        """The address counts for this user (makers.py), or for nobody."""
        self.maker = user

    def limit(self, limits: Limits | None) -> None:
        """What happens beyond memory, when it is not simply paging."""
        self.limits = limits
        self.look_again()

    def retain(self, run: Run | None) -> None:
        """The run is what new subscriptions get first; None: nothing."""
        self.retained = run

    def remember(self, duplicates: Duplicates) -> Duplicates:
        """What finds duplicates among its messages from now on."""
        self.duplicates = duplicates
        return duplicates

    def follow(self, fanout: Fanout | None) -> None:
        """Messages wait there until all who get them have been offered them; None: none does any more."""
        self.fanout = fanout

    def await_joins(self, joining: Iterable[Callable[[], None]]) -> None:
        """Very many are to join the address, before anything is published there (lifetimes.py)."""
        self.unjoined = self.unjoined or deque()
        self.unjoined.extend(joining)
        self.look_again()

    def all_joined(self) -> None:
        self.unjoined = None
        self.look_again()

    def replay_from(self) -> int:
        """Where a new subscription begins: -1, at the next message, unless the address is retroactive."""
        most = self.settings.retroactive_message_count
        return max(self.log.oldest, self.log.next - most) if most and self.log.oldest < self.log.next else -1

    @property
    def is_in_use(self) -> bool:
        """Whether the address has a queue, or something that it keeps for those who come later."""
        log = self.log
        if (
            self.retained is not None
            or self.duplicates
            or self.unjoined
            or (log.is_kept and log.oldest < log.next)
        ):
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
            self.anycast = put(self.anycast, queue.name, queue)
        elif queue.kind is Kind.STREAM:
            self.add_reader(queue)
        elif queue.kind is Kind.GROUP:
            self.groups = put(self.groups, queue.name, queue)
        elif queue.kind is Kind.READER:
            self._name_reader(queue, queue.name)
        elif queue.kind is not Kind.BROWSER:
            self.topics = put(self.topics, queue.id, queue)
            if queue.kind is Kind.DURABLE:
                self.named = put(self.named, queue.name, queue)
            if queue.selector is not None and queue.selector not in self.by_selector:
                self.steps += queue.selector.steps
            same = put(self.by_selector.get(queue.selector, NONE), queue, None)
            self.by_selector = put(self.by_selector, queue.selector, same)
        if queue.is_durable:
            self.log.hold(queue.id, queue.cursor)
        self.rules_changed(queue)

    def rules_changed(self, queue: Queue) -> None:
        """The rules of one queue have changed: nobody looks at the others, however many there are."""
        if queue.rules.is_enabled or self.anycast.get(queue.name) is not queue:
            self._disabled = without(self._disabled, queue)
        else:
            self._disabled = put(self._disabled, queue, None)
        self._in_turn = None
        self.look_again()

    def look_again(self) -> None:
        """Queues or diverts have changed: is there only one queue that all messages go to?"""
        if self._plans:  # else nobody knows this version
            self.version = object()
            for known in self._plans:  # a shape may be remembered for long, but not who was subscribed once
                if (plan := known()) is not None:
                    self.engine.plans.forget(plan)
            self._plans = NOTHING
        self.is_timed = bool(self._timed) or is_ruled(self.settings)
        self.only = None
        is_watched = self.is_read or self.log.is_kept or self.limits is not None or self.unjoined is not None
        if len(self.anycast) == 1 and not (self.topics or self.streams or self.diverts or is_watched):
            queue = next(iter(self.anycast.values()))
            is_plain = queue.selector is None and queue.is_durable and queue.rules.is_enabled
            self.only = queue if is_plain else None

    def leave_out(self, queue: Queue, before: int, session: int) -> None:
        """The queue does not want messages of this session, but now those of the one before."""
        if before:
            del self.no_locals[before][queue]
            if not self.no_locals[before]:
                self.no_locals = without(self.no_locals, before)
        if session:
            same = put(self.no_locals.get(session, NONE), queue, None)
            self.no_locals = put(self.no_locals, session, same)

    def remove(self, queue: Queue) -> None:
        self.log.let_go(queue.id)
        if queue.kind is Kind.ANYCAST:
            self.anycast = without(self.anycast, queue.name)
            self._disabled = without(self._disabled, queue)
            self._in_turn = None
            if queue.name in self.arguments:
                self.ask(queue.name, {})
        elif queue.kind is Kind.STREAM:
            self.remove_reader(queue)
        elif queue.kind is Kind.GROUP:
            self.groups = without(self.groups, queue.name)
        elif queue.kind is Kind.READER:
            self._forget_reader(queue.name)
            self.remove_reader(queue)
        elif queue.kind is not Kind.BROWSER:
            self.topics = without(self.topics, queue.id)
            if self.named.get(queue.name) is queue:
                self.named = without(self.named, queue.name)
            queue.leave_out(0)
            same = self.by_selector[queue.selector]
            del same[queue]
            if not same:
                self.by_selector = without(self.by_selector, queue.selector)
                self.steps -= queue.selector.steps if queue.selector is not None else 0
        self.look_again()

    def add_reader(self, queue: Queue) -> None:
        """Somebody reads the log by offset from now on."""
        self.streams = put(self.streams, queue.id, queue)
        self.log.begin_showing()
        self.look_again()
        if self in self.engine.commits.dirty:
            self.await_commit()

    def await_commit(self) -> None:
        """Something came to it: a reader that has all the rest waits for the commit that will have it."""
        commits = self.engine.commits
        if not commits.is_awaited and any(queue.paged_from < 0 for queue in self.streams.values()):
            commits.want()

    def next_turn(self) -> int:
        """Whose turn it is among anycast queues: a number that counts up."""
        self.turn += 1
        return self.turn

    def in_turn(self) -> list[Queue]:
        """The anycast queues to which messages are routed."""
        if self._in_turn is None:
            self._in_turn = [queue for queue in self.anycast.values() if queue.rules.is_enabled]
        return self._in_turn

    def pass_by(self, passing: Passing) -> Passing:
        """What came for one of very many queues is noted there from now on."""
        self.passing = passing
        return passing

    @property
    def has_disabled(self) -> bool:
        """Some anycast queue is one to which nothing is routed."""
        return bool(self._disabled)

    def remove_reader(self, queue: Queue) -> None:
        was_read, self.streams = queue.id in self.streams, without(self.streams, queue.id)
        if was_read and not self.streams:
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
        self.named_readers = put(self.named_readers, name, queue)
        self.engine.named_readers.setdefault(name, {})[self] = None

    def _forget_reader(self, name: str) -> None:
        self.named_readers = without(self.named_readers, name)
        there = self.engine.named_readers[name]
        del there[self]
        if not there:
            del self.engine.named_readers[name]

    # What it is asked of a message

    def is_volatile(self, run: Run) -> bool:
        """Whether its messages do not survive a restart in a queue."""
        persistent = run.shape.persistent
        return not (self.settings.default_persistent if persistent is None else persistent)

    def leaves_in_log(self, run: Run) -> bool:
        """Whether multicast messages like these are kept in the log and nobody is to have them in memory: who reads them finds them
        there, once they are stored."""
        log, shape = self.log, run.shape
        if not (log.is_retained or self.is_read) or log.keeps or self.fanout is not None:
            return False
        if self.topics or self.anycast:  # a queue may be behind, and read what is on its way to the disk
            return False
        if (
            self.diverts
            or self.limits is not None
            or self.is_timed
            or shape.special is not None
            or shape.retain
        ):
            return False
        return not self.is_volatile(run)

    def has_unread(self) -> bool:
        """Whether the log lacks messages that were confirmed: those that need no disk are, before it has them."""
        return any(not self.engine.is_durable or self.is_volatile(run) for run in self.log.unstored(0))

    def stores(self, run: Run) -> bool:
        """Whether a message that is not volatile needs the disk here, as far as its routing says."""
        if self.log.is_kept or self.is_read:
            return True
        if run.routing & ANYCAST and (
            not self.anycast or any(queue.is_durable for queue in self.anycast.values())
        ):
            return True
        return bool(run.routing & MULTICAST) and any(queue.is_durable for queue in self.topics.values())

    def wanted_of(self, selector: Selector, segment: Segment, queue: int) -> list[Range]:
        """The ranges of a segment, which waits in the queue of this id, that a consumer's selector takes."""
        if not selector.is_per_message:
            return wanted_within(selector, segment.run, segment.first, segment.stop, self, limit=None) or []
        return (
            one_by_one(selector, segment.run, segment.first, segment.stop, self, segment=segment, queue=queue)
            or []
        )

    def wanted_by_each(
        self, selectors: Collection[Selector], segment: Segment, queue: int
    ) -> dict[Selector, list[Range]]:
        """Answers as `wanted_of` does for each of some selectors."""
        return wanted_by_each(selectors, segment, self, queue=queue)

    def is_answered(self, selector: Selector, segment: Segment, queue: int, *, waits: bool = True) -> bool:
        """Whether that is known, or found out at once: else the turn's work is used up. `waits`: the segment is in the queue, and not in
        the log alone."""
        return is_answered(
            selector,
            segment.run,
            segment.first,
            segment.stop,
            self,
            segment=segment if waits else None,
            queue=queue,
        )

    def is_long(self, selector: Selector, segment: Segment) -> bool:
        """Whether it may take long to ask a selector about one of these messages."""
        return is_long(selector, segment.run, segment.first, segment.stop)

    def verdicts(self, queue: Queue, run: Run, first: int, stop: int) -> Iterator[tuple[int, int, bool]]:
        """The offsets first .. stop-1 in ranges of (first, stop, whether the queue's selector takes them)."""
        ranges = (
            [(first, stop)]
            if queue.selector is None
            else wanted(queue.selector, run, first, stop, self, queue=queue.id)
        )
        for low, high in ranges:
            if first < low:
                yield first, low, False
            yield low, high, True
            first = high
        if first < stop:
            yield first, stop, False

    def __repr__(self) -> str:
        return (
            f"<Address {self.name} next={self.log.next} queues={len(self.anycast)} topics={len(self.topics)}>"
        )
