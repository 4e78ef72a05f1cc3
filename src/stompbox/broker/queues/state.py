"""What a queue is, whose it is, and what others may ask of it.

Here is what consumers, the log and the engine have to know of a queue. Who takes what waits in it is in sharing.py, what of it the log
alone has in logged.py, and what messages go through, as they come and as consumers answer, in queue.py. No other file assigns its
attributes.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import TYPE_CHECKING

from stompbox.broker.kinds import BY_OFFSET, PLAIN, READS_THE_LOG, Kind, is_for
from stompbox.broker.logs.cursor import Cursor
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.consumer import Binding
from stompbox.broker.queues.roundrobin import RoundRobin

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbox.broker.queues.contracts import Address, Engine, Taking
    from stompbox.broker.queues.memory import Tally
    from stompbox.broker.queues.room import Room
    from stompbox.config.settings import AddressSettings
    from stompbox.message import Run
    from stompbox.selectors import Selector


class QueueState(metaclass=ABCMeta):
    """What a queue is, without its backlog and without the handing out of messages."""

    __slots__ = (
        "_no_local", "address", "bindings", "candidates", "cursor", "delivering", "doubted_below",
        "engine", "first_use", "has_tiers", "is_auto", "is_halfway", "is_open", "is_paused", "is_simple", "is_watched",
        "joined", "kind", "lookers", "maker", "moved", "name", "out", "owner", "readers", "ready", "redrive", "room", "rules",
        "selector", "settled", "settled_told", "takers", "tally", "turn", "used", "uses",
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
        self.selector = selector
        self._no_local = 0
        # Consumers, in the order of their turns. A list that would have the same members as another one is the other one
        self.bindings: RoundRobin[Binding] = RoundRobin()  # all
        self.candidates = (
            self.bindings
        )  # but those whose credit is known to be used up; a single one always stays
        self.takers = (
            self.bindings
        )  # that get messages now: all, the exclusive one, or none while it is paused
        self.ready = self.bindings  # those of the takers that are candidates, too
        self.readers: dict[QueueState, None] | None = None  # browsers that get copies of what arrives
        self.tally: Tally | None = None  # what it has not consumed, where that is limited (limits.py)
        self.delivering = 0  # messages that consumers have and have not acknowledged
        self.out = 0  # octets of them, but for what transactions have acknowledged
        self.settled = 0  # messages that it is done with, since it was made
        self.settled_told = 0  # what the store was told of that (catalogue.py)
        # who looks at what consumers have, and is told of each segment that one of them has no more
        self.lookers: tuple[Callable[[Binding, Segment], None], ...] = ()
        self.room: Room | None = None  # from when on its consumers had too much that they did not acknowledge
        self.doubted_below = 0  # messages with lower offsets may have been delivered before a crash
        # stopped while somebody still had credit, so that other queues get their turn
        self.is_halfway = False
        self.turn = (
            0  # whose turn it was last, by index, among consumers whose selectors take the same messages
        )
        self.rules = PLAIN
        self.is_paused = False  # by an operator: nothing goes out
        self.is_open = True  # consumers-before-dispatch: enough have come
        self.has_tiers = False  # consumers differ in priority
        self.is_simple = True  # the order of arrival decides everything (`sorted_out`)
        # the durable subscription that it belongs to; of a named reader, whose it is (readers.py)
        self.owner = owner
        self.maker: str | None = None  # the user for whom it counts (makers.py)
        self.is_auto = is_auto  # a frame made it: it goes when nobody needs it (lifetimes.py)
        self.used = engine.now  # when it had something to hand out, or somebody to hand it to
        self.uses = 0  # consumers that it has had
        self.joined = 0  # its number among all queues that its address has had, from 1 on
        self.is_watched = False  # for slow consumers
        self.redrive: Taking | None = None  # takes its messages back to where they came from
        # when a reader group's position last went on, ms since the epoch; 0: not since the start
        self.moved = 0
        self.first_use = 0  # what `uses` was when the first of the consumers came that are there now

    # What messages go through (queue.py)

    @abstractmethod
    def offer(self, run: Run, first: int, stop: int) -> None:
        """Takes messages that were routed here just now."""

    @abstractmethod
    def expect(self, run: Run, first: int, stop: int) -> None:
        """Takes messages that are announced: their bodies come later."""

    @abstractmethod
    def drop_expired(self) -> None:
        """Drops what of the backlog has expired."""

    @abstractmethod
    def wake(self) -> None:
        """Queues the messages whose time has come."""

    @abstractmethod
    def dispatch(self) -> None:
        """Hands out what it can: until nothing is left or nobody has credit."""

    @abstractmethod
    def feed(self, binding: Binding) -> None:
        """Hands out to one consumer, which has credit again."""

    @abstractmethod
    def acknowledge(self, segment: Segment) -> None:
        """Counts off messages that were handed out, and are done with."""

    @abstractmethod
    def acknowledge_all(self, segments: list[Segment]) -> int:
        """Counts off many at once; how many messages."""

    @abstractmethod
    def unacknowledge(self, segment: Segment) -> None:
        """Counts messages as out again whose acknowledgement is undone."""

    @abstractmethod
    def take_back(self, segment: Segment) -> None:
        """Takes back messages that were handed out and are not done with: they wait where they did before."""

    @abstractmethod
    def die(self, segment: Segment, reason: str) -> None:
        """Makes dead letters of messages that were handed out."""

    @abstractmethod
    def set_aside(self, segment: Segment, delay: int) -> None:
        """Puts messages aside that were handed out, until so many ms are over."""

    @abstractmethod
    def unbind(self, binding: Binding) -> None:
        """Lets a consumer of the queue go."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many messages the backlog has."""

    @abstractmethod
    def consumers_changed(self) -> None:
        """Who gets messages now is to be found anew."""

    @abstractmethod
    def sorted_out(self) -> None:
        """Finds out anew whether the order of arrival decides everything (`is_simple`): what could speak against it has come or gone."""

    # What it is

    @property
    def id(self) -> int:
        return self.cursor.id

    @property
    def is_durable(self) -> bool:
        return self.cursor.unsaved is not None

    @property
    def settings(self) -> AddressSettings:
        """The settings by which the queue lives."""
        return self.address.settings_of(self.name) if self.kind is Kind.ANYCAST else self.address.settings

    @property
    def reads_the_log(self) -> bool:
        """Whether the queue takes nothing from anybody: what expires or fails in its hands is passed over, and stays in the log."""
        return self.kind in READS_THE_LOG

    @property
    def log_end(self) -> int:
        """Up to where it may read the log."""
        address = self.address
        if self.kind in BY_OFFSET:
            return address.log.shown_to(self.id)  # fanout.py
        return (
            address.log.next
            if address.fanout is None or self.id not in address.topics
            else address.fanout.end_for(self)
        )

    @property
    def no_local(self) -> int:
        """The session whose messages it does not want; 0: none."""
        return self._no_local

    def leave_out(self, session: int) -> None:
        """Keeps messages of this session from the queue; 0: of none."""
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
        """Whether the queue takes no more consumers."""
        return 0 <= self.rules.max_consumers <= self.consumer_count

    def wants(self, run: Run) -> bool:
        """Whether messages of this routing are for it at all."""
        return is_for(self.kind, run.routing, self.cursor.number)

    # Whose it is

    def enter(self, number: int, *, is_paused: bool) -> None:
        """The queue is its address's queue of this number, and is paused where the address is."""
        self.joined = self.joined or number
        self.is_paused = self.is_paused or is_paused

    def rename(self, name: str) -> None:
        self.name = name

    def belong_to(self, owner: str) -> None:
        """To this durable subscription, or user of a named reader."""
        self.owner = owner

    def stay(self, *, is_auto: bool) -> None:
        """Says whether the queue goes when nobody needs it."""
        self.is_auto = is_auto

    @property
    def client(self) -> object:
        """On whose behalf its messages are looked at and handed out: the connection that consumes them first, else the user who made
        it."""
        return self.bindings[0].consumer.session if self.bindings else self.maker

    def count_for(self, user: str | None) -> None:
        """The queue counts for this user (makers.py), or for nobody."""
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

    def begin_room(self, room: Room) -> None:
        """Its consumers have too much that they did not acknowledge."""
        self.room = room

    def show_out(self, looker: Callable[[Binding, Segment], None]) -> None:
        """Tells it from now on what consumers have no more."""
        self.lookers = (*self.lookers, looker)

    def hide_out(self, looker: Callable[[Binding, Segment], None]) -> None:
        self.lookers = tuple([other for other in self.lookers if other != looker])

    def doubt(self, below: int) -> None:
        """Messages below this offset may have been delivered before a crash; the others were not."""
        self.doubted_below = below

    def recall_settled(self, count: int) -> None:
        """So many messages it was done with before a restart."""
        self.settled = self.settled_told = count

    def told_settled(self) -> None:
        """The store is told how many messages it is done with."""
        self.settled_told = self.settled

    def unsettle(self, count: int) -> None:
        """Takes back that it was done with so many messages."""
        self.settled -= count

    def put(self, position: int) -> None:
        """A reader group is elsewhere from now on, perhaps further back."""
        self.cursor.put(position)
        self.moved = self.engine.now

    def come_back(self, selector: Selector | None) -> None:
        """A named reader is there again, and reads on from its position."""
        self.selector = selector

    # What arrives

    def show(self, run: Run, first: int, stop: int) -> None:
        """Gives browsers copies of messages that have come."""
        for reader in tuple(self.readers or ()):
            reader.offer(run, first, stop)

    def announce(self, run: Run, first: int, stop: int) -> None:
        """Scheduled messages that the log alone has: readers wait for them themselves. This queue may have no room when they are due."""
        for reader in tuple(self.readers or ()):
            reader.expect(run, first, stop)

    def tell_counts(self, segment: Segment) -> bool:
        """How often these messages were delivered goes into the next commit. False: nothing of them is to be stored."""
        if not self.is_durable or not self.engine.is_durable or self.address.is_volatile(segment.run):
            return False
        self.engine.commits.tell_delivered(
            self, (segment.first, segment.stop, segment.deliveries, segment.failures)
        )
        return True
