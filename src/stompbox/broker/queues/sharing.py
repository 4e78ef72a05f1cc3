"""What waits in a queue, and which of its consumers take it: all of them, one that is exclusive, those whose selector takes a lane.

What a queue has in memory, the backlog and what waits there for a time, is made when something comes into it: a wildcard subscription has
a queue per address that it covers, and most of them are empty, so they cost the queue alone. None of it knows the queue but by its number:
so a queue that is gone leaves memory at once, with all that waited, and not when the collector comes. In which order things are handed
out is in dispatch.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from stompbox.broker.kinds import Kind
from stompbox.broker.logs.cursor import Cursor
from stompbox.broker.queues.consumer import Binding, forget_missing, has_tiers, with_credit
from stompbox.broker.queues.delayed import Waits
from stompbox.broker.queues.expiry import Expiring
from stompbox.broker.queues.lanes import LANES, Key, Lane, Lanes, takes
from stompbox.broker.queues.places import EMPTY
from stompbox.broker.queues.roundrobin import RANK, RoundRobin
from stompbox.broker.queues.state import QueueState
from stompbox.broker.work import ASKED, LOOK, Work

if TYPE_CHECKING:
    from stompbox.broker.logs.segments import Segment
    from stompbox.broker.queues.contracts import Address, Engine
    from stompbox.broker.queues.groups import Groups
    from stompbox.selectors import Selector


class Alike:
    """Consumers of a queue that have the same selector, or none: all of them, and those whose credit is not known to be used up.
    `searched`: up to where the log was looked through for what is for them, which is the same for all (paging.py)."""

    __slots__ = ("all", "awake", "searched", "selector")

    def __init__(self, selector: Selector | None, bindings: Sequence[Binding] = ()) -> None:
        self.selector = selector
        self.all: RoundRobin[Binding] = RoundRobin(bindings)
        self.awake: RoundRobin[Binding] = RoundRobin(bindings).lasting()
        self.searched = 0

    def add(self, binding: Binding) -> None:
        self.all.add(binding)
        self.awake.add(binding)

    def discard(self, binding: Binding) -> None:
        self.all.discard(binding)
        self.awake.discard(binding)

    def search_from(self, offset: int) -> None:
        """The search of the log goes on there."""
        self.searched = offset

    def is_starving(self, work: Work) -> bool:
        """Whether all of them are known to have no credit. Who has none is left out until he is fed; of very many who were not asked yet,
        some are."""
        awake = self.awake
        for _ in range(ASKED):
            if not awake:
                return True
            if awake[-1].consumer.has_credit:
                return False
            work.spend(LOOK)
            awake[-1].leave_out(awake)
        return False


class SharedQueue(QueueState):
    """A queue, what of it waits in memory, and those who take it. Who only looks asks for `count`, `size` and `has_waits`: asking for
    `backlog` and `waits` makes them."""

    __slots__ = ("_backlog", "_by_selector", "_expiring", "_waits", "exclusive", "groups", "lane_takers")

    def __init__(
        self, engine: Engine, address: Address, name: str, *, kind: Kind, cursor: Cursor, selector: Selector | None = None,
        owner: str = "", is_auto: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            engine, address, name, kind=kind, cursor=cursor, selector=selector, owner=owner, is_auto=is_auto
        )
        self._backlog: Lanes | None = None
        self._expiring: Expiring | None = None
        self._waits: Waits | None = None
        # its consumers by their selectors, once one had a selector
        self._by_selector: dict[Selector | None, Alike] | None = None
        self.exclusive: RoundRobin[Binding] | None = None  # the exclusive ones of its consumers
        self.groups: Groups | None = None  # once there was a message of a group
        self.lane_takers: dict[Lane, RoundRobin[Binding]] | None = (
            None  # those who take the messages of each lane
        )

    @abstractmethod
    def give_lane(self, lane: Lane, segment: Segment, takers: RoundRobin[Binding]) -> bool:
        """Gives the segment to those who take the lane's messages; True when all of it went."""

    @abstractmethod
    def share(self, segment: Segment, takers: RoundRobin[Binding]) -> bool:
        """Gives the segment to consumers with credit, in shares; True when something is left of it."""

    @property
    def backlog(self) -> Lanes:
        found = self._backlog
        if found is None:
            is_ranked = self.kind not in (Kind.STREAM, Kind.READER)
            found = self._backlog = Lanes(
                self.address, self.expiring, queue=self.cursor.id, is_ranked=is_ranked
            )
        return found

    @property
    def expiring(self) -> Expiring:
        """What of the backlog will expire, and when."""
        if self._expiring is None:
            self._expiring = Expiring(self.engine.timers, partial(_drop_expired, self.engine, self.id))
        return self._expiring

    @property
    def waits(self) -> Waits:
        """The messages that wait for their time."""
        if self._waits is None:
            self._waits = Waits(self.engine.timers, partial(_wake, self.engine, self.id), self.address.memory)
        return self._waits

    @property
    def count(self) -> int:
        """How many messages the backlog has."""
        return self._backlog.count if self._backlog is not None else 0

    @property
    def size(self) -> int:
        """How many octets of memory the backlog takes, about; with its lanes, where they take much."""
        backlog = self._backlog
        return backlog.size + max(0, backlog.places.size - EMPTY) if backlog is not None else 0

    def end_places(self) -> None:
        """The queue is gone: its lanes count for nobody."""
        if self._backlog is not None:
            self._backlog.places.end()

    @property
    def has_waits(self) -> bool:
        return self._waits is not None and self._waits.count > 0

    def let_go(self) -> tuple[Lanes | None, Waits | None]:
        """Gives up the backlog and what waits for its time: nobody has them from now on."""
        found = self._backlog, self._waits
        self._backlog = self._waits = None
        return found

    # Consumers

    def begin_groups(self, groups: Groups) -> None:
        """The first message of a group has come."""
        self.groups = groups
        self.consumers_changed()

    def pause(self) -> None:
        """Hands out nothing until `resume`; what consumers have they keep."""
        self.is_paused = True
        self.consumers_changed()

    def resume(self) -> None:
        """Hands out messages again; a queue that nobody needs by now goes with the next commit."""
        self.is_paused = False
        self.consumers_changed()
        self.dispatch()
        if self.is_durable and not self.bindings:
            self.engine.note(self)

    def open(self) -> None:
        """Begins to hand out: so many consumers have come as `consumers-before-dispatch` asks for, or `delay-before-dispatch` is over."""
        self.is_open = True
        self.consumers_changed()

    def show_to(self, reader: QueueState) -> None:
        """Has a browser get copies of what arrives from now on."""
        self.readers = self.readers or {}
        self.readers[reader] = None
        self.consumers_changed()

    def hide_from(self, reader: QueueState) -> None:
        if self.readers is not None:
            self.readers.pop(reader, None)
        self.consumers_changed()

    def _join(self, binding: Binding) -> None:
        """Takes up a consumer that has come."""
        self.bindings.add(binding)
        if binding.consumer.is_exclusive:
            self.exclusive = self.exclusive or RoundRobin()
            self.exclusive.add(binding)
        if self.candidates is not self.bindings:
            self.candidates.add(binding)
        elif len(self.bindings) > 1:
            self.candidates = RoundRobin(self.bindings).lasting(self.bindings.turn)
        self._sort_in(binding)
        for takers in self._lists_with(binding):
            takers.add(binding)
        if self.is_shared and binding.consumer.selector is not None:
            self.backlog.add(binding.consumer.selector)

    def _leave(self, binding: Binding) -> None:
        """Leaves out a consumer that has gone."""
        self.bindings.discard(binding)
        if binding.consumer.is_exclusive and self.exclusive is not None:
            self.exclusive.discard(binding)
        if self.candidates is not self.bindings:
            self.candidates.discard(binding)
        if self._by_selector is not None:
            alike = self._by_selector[binding.consumer.selector]
            alike.discard(binding)
            if not alike.all:
                del self._by_selector[binding.consumer.selector]
        for takers in self._lists_with(binding):
            takers.discard(binding)
        if self.is_shared and binding.consumer.selector is not None:
            self.backlog.discard(binding.consumer.selector)

    def _sort_in(self, binding: Binding) -> None:
        """Puts a consumer that has come beside those with its selector."""
        selector = binding.consumer.selector
        if self._by_selector is None:
            if selector is None:
                return
            self._by_selector = {}
            if len(self.bindings) > 1:  # nobody had a selector
                others = [other for other in self.bindings if other is not binding]
                self._by_selector[None] = Alike(None, others)
        alike = self._by_selector.get(selector)
        if alike is None:
            alike = self._by_selector[selector] = Alike(selector)
        alike.add(binding)

    def _all_takers_of(self, lane: Lane) -> RoundRobin[Binding]:
        """Whoever takes the lane's messages, without a look at who does not."""
        by_selector, work = self._by_selector, self.engine.work
        if by_selector is None or not self.is_shared or isinstance(lane, Binding):
            work.spend(len(self.bindings) // 4)
            return takers_of(lane, self.bindings, is_shared=self.is_shared)
        found: list[Binding] = []
        for selector in (None, *lane):
            if (alike := by_selector.get(selector)) is not None:
                found += alike.all
        work.spend(LOOK * len(lane) + len(found) // 4)
        return RoundRobin(sorted(found, key=RANK))

    def _lists_with(self, binding: Binding) -> list[RoundRobin[Binding]]:
        """Chooses the lists in `lane_takers` that a consumer belongs to."""
        by_lane, is_shared = self.lane_takers or {}, self.is_shared
        return [takers for lane, takers in by_lane.items() if not is_shared or takes(binding, lane)]

    def _chosen(self) -> RoundRobin[Binding]:
        """The consumers that get messages now; where that is all of them, their own list."""
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

    def takers_of(self, lane: Lane) -> RoundRobin[Binding]:
        """The consumers that take the lane's messages and whose credit is not known to be used up; others are fed when they have some."""
        if self.takers is not self.bindings:  # one or none
            return takers_of(lane, with_credit(self.takers), is_shared=self.is_shared)
        if self.lane_takers is None:
            self.lane_takers = {}
        found = self.lane_takers.get(lane)
        if found is None:
            if isinstance(lane, Binding):
                return with_credit([lane])  # it goes with its consumer
            if len(self.lane_takers) >= LANES:
                forget_missing(self.bindings, self.lane_takers.values())
                self.lane_takers = {}
            found = self.lane_takers[lane] = self._all_takers_of(lane).lasting()
        return found

    def is_starving(self, key: Key) -> bool:
        """Whether all who find lanes by a key are known to have no credit: they are fed when they have some. Who has none is left out until
        then, so that nobody is asked twice; of very many who were not asked yet, some are."""
        if isinstance(key, frozenset) or self.takers is not self.bindings or self._by_selector is None:
            return False
        if isinstance(key, Binding):
            return not with_credit([key])
        alike, work = self._by_selector.get(key), self.engine.work
        if alike is None or (alike.awake and work.is_over):
            return False
        return alike.is_starving(work)

    @property
    def alikes(self) -> list[Alike]:
        """The consumers that get messages now, those of each selector together."""
        if self._by_selector is None:
            self._by_selector = {None: Alike(None, self.bindings)}
        if self.takers is self.bindings:
            return list(self._by_selector.values())
        return [self._by_selector[binding.consumer.selector] for binding in self.takers]  # one or none

    def search_anew(self) -> None:
        """The log is looked through from its beginning again, for all of its consumers."""
        for alike in (self._by_selector or {}).values():
            alike.search_from(0)

    def go_on_later(self) -> None:
        self.is_halfway = True
        self.engine.dispatch_later(self)


def takers_of(lane: Lane, bindings: Sequence[Binding], *, is_shared: bool) -> RoundRobin[Binding]:
    """The consumers that may have the messages of a lane. Where a queue is not shared its consumer's selector has been asked before."""
    return RoundRobin([binding for binding in bindings if not is_shared or takes(binding, lane)])


def _drop_expired(engine: Engine, queue: int) -> None:
    found = engine.queues.get(queue)
    if found is not None:
        found.drop_expired()


def _wake(engine: Engine, queue: int) -> None:
    found = engine.queues.get(queue)
    if found is not None:
        found.wake()
