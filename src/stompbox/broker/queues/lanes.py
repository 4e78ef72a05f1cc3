"""Backlogs side by side, for a queue whose consumers have selectors: a lane holds what the same selectors take.

Without selectors there is one lane. A message that no selector takes waits in the lane of none, for a consumer without
selector or for one that comes. Beside these, a consumer has a lane of its own when messages wait for it and nobody else (message groups).

When consumers come or go, nothing is moved: the lanes of before become what is `unsorted`, with the selectors that were asked already,
and are sorted into the new lanes portion by portion, the oldest first, each message asking only those selectors that it has not met.
What arrives meanwhile, or when the turn's work is used up, is left to be sorted, too; so everybody gets his messages in order.

Each selector has a number, by when it came to the queue. So one number says which were asked about a message; who comes or goes asks
nothing about the others. The name of a lane may have selectors in it that have left: nobody takes its messages for their sake.

A queue may have a lane for each message: of twenty selectors each takes some of them. So nobody looks through the lanes. Each selector
has an `Order` of the lanes whose messages it takes, and finds in it the next one (order.py). A lane of very many selectors is in the
order of none: there are few of these (places.py), and each stands for itself where the next one is looked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.backlog import Backlog, Left
from stompbox.broker.queues.chosen import NOBODY, Selectors
from stompbox.broker.queues.consumer import Binding
from stompbox.broker.queues.expiry import Expiring
from stompbox.broker.queues.order import Asked, Head, Order, Unsorted, noted
from stompbox.broker.queues.places import EMPTY, SWEPT, Places
from stompbox.broker.work import LOOK, MESSAGE
from stompbox.ranges import add_range, swept
from stompbox.selectors import Selector

if TYPE_CHECKING:
    from stompbox.broker.queues.memory import Memory
    from stompbox.broker.work import Work


class Engine(Protocol):
    """What sorting messages into lanes asks of the engine."""

    @property
    def work(self) -> Work: ...
    @property
    def queues(self) -> Mapping[int, Any]: ...
    @property
    def page_size(self) -> int: ...
    def dispatch_later(self, queue: Any, /) -> None: ...


class Address(Protocol):
    """What sorting asks of the address whose messages wait."""

    @property
    def engine(self) -> Engine: ...
    @property
    def memory(self) -> Memory: ...
    def wanted_of(self, selector: Selector, segment: Segment, queue: int, /) -> list[tuple[int, int]]: ...
    def wanted_by_each(
        self, selectors: Collection[Selector], segment: Segment, queue: int, /
    ) -> dict[Selector, list[tuple[int, int]]]: ...
    def is_answered(self, selector: Selector, segment: Segment, queue: int, /) -> bool: ...
    def is_long(self, selector: Selector, segment: Segment, /) -> bool: ...


Lane = frozenset[Selector] | Binding
Key = Selector | Binding | frozenset[Selector] | None
NONE: Final[frozenset[Selector]] = frozenset()
WIDE: Final = 256  # selectors; a lane of more is not in the order of each: who looks for the first one looks at all such lanes
LANES: Final = 256  # beyond, those that are empty are forgotten: who makes one looks at the next LOOKED
LOOKED: Final = 2
KNOWN: Final = LOOK // 2  # steps that asking a selector takes whose answer is known already
_HEAD: Final = itemgetter(0)


class Lanes:
    """Segments by lane. `common` is the lane of none, and the only one as long as no consumer has a selector or a lane of its own."""

    __slots__ = (
        "_filled", "_not_asked", "_orders", "_others", "_owing", "_own_order",
        "_places", "_size", "_to_look", "_to_sort", "_wide", "address", "by_lane", "by_owner", "common",
        "expiring", "is_ranked", "places", "queue", "selectors", "unsorted",
    )  # fmt: skip

    def __init__(
        self, address: Address, expiring: Expiring | None = None, *, queue: int = 0, is_ranked: bool = True
    ) -> None:
        self.address = address
        self.queue = queue  # its id
        self.expiring = expiring
        self.is_ranked = is_ranked
        self.places = Places(address.memory, address.engine.page_size)
        self.common = self._backlog()
        self.by_lane: dict[frozenset[Selector], Backlog] = {NONE: self.common}
        self._places: deque[frozenset[Selector]] = deque()  # all of them but that one, as they are looked at
        self.by_owner: dict[Binding, Backlog] = {}  # lanes of consumers of their own
        self.selectors = NOBODY  # of the consumers
        self._filled: dict[Binding, None] = {}  # those of them that have got something since `take_filled`
        self.unsorted: dict[Unsorted, Unsorted] = {}
        self._to_sort: Order = Order()
        self._not_asked: Unsorted | None = None  # of `unsorted`, which no selector was asked about
        # of the lanes but the common one, by who takes from them
        self._orders: dict[Selector | None, Order] = {}
        self._wide: dict[frozenset[Selector], None] = {}  # those that have something
        self._own_order: Order = Order()  # of those of consumers of their own
        self._owing: dict[Binding, None] = {}  # those of these consumers for whom something waits there
        self._size = self._others = 0  # of all but the common one
        self._to_look = 0  # lanes that may be empty, where there is no room for others

    def _backlog(self) -> Backlog:
        return Backlog(self.expiring, self.address.memory, is_ranked=self.is_ranked)

    def _backlogs(self) -> list[Backlog]:
        found = [*self.by_lane.values(), *self.by_owner.values()]
        for left in self.unsorted:
            found += left.by_lane.values()
        return found

    @property
    def count(self) -> int:
        return self.common.count + self._others

    @property
    def size(self) -> int:
        """How many octets of memory its messages take, about."""
        return self.common.size + self._size

    def lane(self, lane: Lane) -> Backlog:
        if not isinstance(lane, frozenset):
            own = self.by_owner.get(lane)
            if own is None:
                own = self.by_owner[lane] = self._backlog()
            return own
        found = self.by_lane.get(lane)
        if found is None:
            if len(self.by_lane) >= LANES:
                self._forget_empty()
            found = self.by_lane[lane] = self._backlog()
            self._places.append(lane)
            self.places.take(lane)
        return found

    def _came(self, lane: Lane, backlog: Backlog, segment: Segment) -> None:
        """Counts a segment that is in the lane now: those who take from it find the lane by what it gives next."""
        if backlog is self.common:
            return
        self._size += segment.cost
        self._others += len(segment)
        head = backlog.head
        if not isinstance(lane, frozenset):
            self._own_order.note(lane, head)
            self._owing[lane] = self._filled[lane] = None
            return
        self._orders.setdefault(None, Order()).note(lane, head)
        if len(lane) > WIDE:
            self._wide[lane] = None
            return
        for selector in lane:
            if selector in self.selectors:
                self._orders.setdefault(selector, Order()).note(lane, head)

    def _went(self, backlog: Backlog, segment: Segment) -> None:
        if backlog is not self.common:
            self._size -= segment.cost
            self._others -= len(segment)
            if not backlog.count:
                self._to_look = len(self._places)

    def settle(self) -> None:
        """Lanes that take much and have nothing any more go, bit by bit."""
        if self._others or self.places.size <= EMPTY or len(self.by_lane) == 1:
            return
        del self.by_lane[NONE]
        left = Unsorted(self.by_lane, Order(), past=self._orders.values(), places=self.places.retire())
        self.by_lane, self._places, self._orders, self._wide = {NONE: self.common}, deque(), {}, {}
        self._to_be_sorted(left)

    def _forget_empty(self, most: int = LOOKED) -> None:
        """Each message may be taken by others than the one before, so there could be ever more lanes. The next of them are looked at, round
        and round: there are never more than twice those that have something."""
        for _ in range(min(most, len(self._places))):
            lane = self._places.popleft()
            if self.by_lane[lane].count:
                self._places.append(lane)
                continue
            del self.by_lane[lane]
            self.places.forget(lane)
            self._wide.pop(lane, None)
            for key in (None, *lane) if len(lane) <= WIDE else (None,):
                order = self._orders.get(key)
                if order is not None:
                    order.forget(lane)

    def push(self, segment: Segment) -> None:
        """Puts a segment behind all that wait."""
        if not self.selectors and not self.unsorted:
            self.common.push(segment)
            return
        for lane, part in self.arriving(segment):
            if lane is None:
                self.leave(part)
            else:
                self.push_to(lane, part)

    def push_to(self, lane: Lane, segment: Segment) -> None:
        backlog = self.lane(lane)
        backlog.push(segment)
        self._came(lane, backlog, segment)

    def put_back(self, segment: Segment) -> None:
        """To its original place, before what was not yet delivered."""
        if not self.selectors and not self.unsorted:
            self.common.put_back(segment)
            return
        for lane, part in self.arriving(segment):
            if lane is None:
                self._leave(part, is_back=True)
            else:
                self.put_back_to(lane, part)

    def put_back_to(self, lane: Lane, segment: Segment) -> None:
        backlog = self.lane(lane)
        backlog.put_back(segment)
        self._came(lane, backlog, segment)

    def pop(self, lane: Lane) -> Segment:
        return self._pop(self.by_lane[lane] if isinstance(lane, frozenset) else self.by_owner[lane])

    def _pop(self, backlog: Backlog) -> Segment:
        segment = backlog.pop()
        self._went(backlog, segment)
        return segment

    def unpop(self, lane: Lane, segment: Segment) -> None:
        backlog = self.lane(lane)
        backlog.unpop(segment)
        self._came(lane, backlog, segment)

    def _unpop(self, backlog: Backlog, segment: Segment) -> None:
        """Where nobody takes from it, or it is noted still."""
        backlog.unpop(segment)
        if backlog is not self.common:
            self._size += segment.cost
            self._others += len(segment)

    def pop_oldest(self, most: int) -> Segment:
        """What would go out next, `most` messages at most. There must be something."""
        backlog = self._oldest()
        segment = self._pop(backlog)
        if len(segment) <= most:
            return segment
        front = segment.cut(segment.first + most)
        self._unpop(backlog, segment)
        return front

    def _oldest(self) -> Backlog:
        """The backlog that gives first of all. There must be one."""
        found = [(self.common.head, self.common)] if self.common.count else []
        if (first := self.first(None)) is not None and isinstance(first[1], frozenset):
            found.append((first[0], self.by_lane[first[1]]))
        if (own := self._own_order.first(self.by_owner)) is not None:
            found.append((own[0], self.by_owner[own[1]]))
        if (left := self._to_sort.first(self.unsorted)) is not None:
            found.append((left[0], left[1].by_lane[left[1].first]))
        return min(found, key=_HEAD)[1]

    def remove(self, segment: Segment) -> Segment:
        """Takes out a segment that waits in one of the lanes; what is returned is to be used in its place."""
        home: Backlog | None = segment.home
        assert home is not None
        self._went(home, segment)
        left = home.remove(segment)
        self._to_look = self._to_look if home.count else len(self._places)
        self.settle()
        return left

    def take_filled(self) -> list[Binding]:
        """Consumers whose own lanes have got something since this was asked last."""
        if not self._filled:
            return []
        found = list(self._filled)
        self._filled.clear()
        return found

    def keys(self, only: Binding | None = None) -> list[Key]:
        """By what they find lanes who take from them: those without selector (None), each selector, and consumers with lanes of their own;
        the common lane and each of the WIDE ones have keys of their own. `only`: what one consumer finds them by."""
        shared = [NONE, *self._wide]
        if only is None:
            return [*shared, *self._orders, *self._owing]
        return [*[lane for lane in shared if takes(only, lane)], only.consumer.selector, only]

    def firsts(self, keys: Iterable[Key]) -> list[tuple[Head, Lane, Key]]:
        """What `first` says of each of these. Who finds nothing is not looked at again."""
        found: list[tuple[Head, Lane, Key]] = []
        for key in keys:
            first = self.first(key)
            if first is not None:
                found.append((first[0], first[1], key))
            elif isinstance(key, Binding):
                self._owing.pop(key, None)
            elif isinstance(key, frozenset):
                self._wide.pop(key, None)
            else:
                self._orders.pop(key, None)
        return found

    def first(self, key: Key) -> tuple[Head, Lane] | None:
        """The lane that gives something first to those of a key, with what sorts it into the order in which it goes out."""
        if isinstance(key, frozenset):
            backlog = self.by_lane.get(key)
            return None if backlog is None or not backlog.count else (backlog.head, key)
        if isinstance(key, Binding):
            head = self.by_owner[key].first_head if key in self.by_owner else None
            return None if head is None else (head, key)
        return self._orders[key].first(self.by_lane) if key in self._orders else None

    # Sorting

    def arriving(self, segment: Segment) -> Iterator[tuple[frozenset[Selector] | None, Segment]]:
        """The segment in parts, by offset, each with the selectors that take it; None: they are to be asked later, behind what waits."""
        if self.unsorted or self.selectors.is_heavy:
            yield None, segment
            return
        work = self.address.engine.work
        front = None
        while front is not segment:
            if work.is_over and self.selectors.steps * len(segment) > work.least:
                yield None, segment
                return
            front = self._portion(segment)
            yield from self.parted(front, self.selectors)

    def _portion(self, segment: Segment) -> Segment:
        """As many messages of the segment as there is work left for, one at the least; they are cut off from it."""
        work, steps = self.address.engine.work, self.selectors.steps
        if steps * len(segment) <= work.least:
            return segment
        most = max(1, work.left // steps)
        return segment if len(segment) <= most else segment.cut(segment.first + most)

    def parted(
        self, segment: Segment, selectors: Collection[Selector]
    ) -> Iterator[tuple[frozenset[Selector], Segment]]:
        """The segment in parts, by offset, each with those of the selectors that take it."""
        if not selectors:
            yield NONE, segment
            return
        taken: dict[Selector, list[tuple[int, int]]] = {}
        for some, asked in self.selectors.asked(segment, selectors):
            for selector, ranges in self.address.wanted_by_each(asked, some, self.queue).items():
                for first, stop in ranges:
                    add_range(taken.setdefault(selector, []), first, stop)
        for first, stop, lane in swept(segment.first, segment.stop, taken):
            whole = first == segment.first and stop == segment.stop
            yield lane, segment if whole else segment.part(first, stop)

    def leave(self, segment: Segment) -> None:
        """Behind all that wait, to be sorted later."""
        self._leave(segment, is_back=False)

    def _leave(self, segment: Segment, *, is_back: bool) -> None:
        """Puts it to what no selector was asked about yet: behind that, or to its original place."""
        self._size += segment.cost
        self._others += len(segment)
        left = self._not_asked
        if left is None or NONE not in left.by_lane:
            left = self._not_asked = Unsorted({NONE: self._backlog()}, Order())
        backlog: Backlog = left.by_lane[NONE]
        if is_back:
            backlog.put_back(segment)
        else:
            backlog.push(segment)
        left.note(NONE)
        self._to_be_sorted(left)

    def _to_be_sorted(self, left: Unsorted) -> None:
        """Notes lanes that have got something which is to be sorted."""
        self.unsorted[left] = left
        head = left.first_head
        if head is not None:
            self._to_sort.note(left, head)
        self._later()

    def sort_some(self) -> None:
        """Sorts, the oldest first, as long as this turn's work is not used up, and there is room for lanes."""
        work = self.address.engine.work
        if self.places.is_crowded:
            self._make_room()
        while self.unsorted and not work.is_late:
            work.spend(MESSAGE)
            first = self._to_sort.first(self.unsorted)
            if first is not None and self.places.is_crowded:
                return
            left = next(reversed(self.unsorted)) if first is None else first[1]
            if first is not None:
                self._sort_next(left)
            if not left.give_up() and left in self.unsorted:
                del self.unsorted[left]
                self._to_sort.forget(left)
                if left is self._not_asked:
                    self._not_asked = None

    @property
    def may_sort(self) -> bool:
        """Whether there is something to be sorted, and room for it, or lanes are still to be looked at that may be empty."""
        if not self.unsorted or not self.places.is_crowded:
            return bool(self.unsorted)
        return self._to_look > 0 or self._to_sort.first(self.unsorted) is None

    def _make_room(self) -> None:
        """Looks at some lanes, each of which is looked at again when one has become empty, and lets those go that are."""
        looked = min(SWEPT, self._to_look)
        self._to_look -= looked
        self._forget_empty(looked)
        self.address.engine.work.spend(MESSAGE // 4 * looked)

    def _sort_next(self, left: Unsorted) -> None:
        lane = left.first
        backlog = left.by_lane[lane]
        segment = self._pop(backlog)
        front = self._portion(segment)
        if front is not segment:
            self._unpop(backlog, segment)
        left.took(lane)
        if self.selectors.is_heavy or (self.selectors.is_long and self._is_long(front)):
            self._sort_one(front, left.asked, lane if isinstance(lane, Asked) else Asked(list(lane)))
            return
        known = self._known(lane.takers if isinstance(lane, Asked) else lane)
        for takers, part in self.parted(front, self.selectors.after(left.asked)):
            self._insert(takers | known, part)

    def _known(self, takers: Iterable[Selector]) -> frozenset[Selector]:
        """The lane of those that take it and are still there."""
        return frozenset([selector for selector in takers if selector in self.selectors])

    def _is_long(self, message: Segment) -> bool:
        return any(self.address.is_long(selector, message) for selector in self.selectors)

    def _sort_one(self, message: Segment, number: int, asked: Asked) -> None:
        """Asks as many selectors about one message as there is work left for, those beyond this number, and remembers which. It stays the
        oldest."""
        work, selectors = self.address.engine.work, self.selectors.in_order
        at = bisect_right(self.selectors.numbers, number)
        while at < len(selectors):
            selector = selectors[at]
            if not self.address.is_answered(selector, message, self.queue):
                break
            at += 1
            work.spend(KNOWN)
            if self.address.wanted_of(selector, message, self.queue):
                asked.takers.append(selector)
            if work.is_late:
                break
        if at < len(selectors):
            backlog = self._backlog()
            backlog.push(message)
            by_lane = {asked: backlog}
            last = self.selectors.numbers[at - 1] if at else 0
            self._to_be_sorted(Unsorted(by_lane, noted(by_lane), asked=last))
            self._size += message.cost
            self._others += len(message)
            return
        work.spend(len(asked.takers) // 4)
        self._insert(self._known(asked.takers), message)

    def _insert(self, lane: Lane, segment: Segment) -> None:
        backlog = self.lane(lane)
        backlog.insert(segment)
        self._came(lane, backlog, segment)

    def release_all(self) -> None:
        """Gives up all lanes that consumers have of their own."""
        for lane in list(self.by_owner):
            self.release(lane)

    def release(self, lane: Binding) -> None:
        """A consumer's own lane goes; what waits in it waits for everybody."""
        self._owing.pop(lane, None)
        self._filled.pop(lane, None)
        self._own_order.forget(lane)
        backlog = self.by_owner.pop(lane, None)
        if backlog is not None and backlog.count:
            by_lane = {NONE: backlog}
            self._to_be_sorted(Unsorted(by_lane, noted(by_lane)))

    def add(self, selector: Selector) -> None:
        """A consumer with this selector has come: what waits is to be sorted anew, when it is the first of them."""
        if self.selectors is NOBODY:
            self.selectors = Selectors()
        last = self.selectors.last
        if self.selectors.add(selector, self.address.engine.work):
            self._unsort(last)

    def discard(self, selector: Selector) -> None:
        """A consumer with this selector has gone. What waits stays in its lanes, but when nobody has a selector any more."""
        if self.selectors.discard(selector, self.address.engine.work):
            self._orders.pop(selector, None)
            if not self.selectors:
                self._unsort(self.selectors.last)

    def _unsort(self, last: int) -> None:
        """What waits is to be sorted by the selectors after the one with this number: each lane was, so its messages pay for this."""
        self.release_all()
        if self.common.count or len(self.by_lane) > 1:
            self._size += self.common.size
            self._others += self.common.count
            order = self._orders.pop(None, None) or Order()
            places = self.places.retire()
            left = Unsorted(self.by_lane, order, asked=last, past=self._orders.values(), places=places)
            if self.common.count:
                left.note(NONE)
            self.common = self._backlog()
            self.by_lane, self._places, self._orders, self._wide = {NONE: self.common}, deque(), {}, {}
            self._to_be_sorted(left)
        if self.unsorted:
            self._later()

    def _later(self) -> None:
        """Its queue goes on with it, when it is its turn."""
        engine = self.address.engine
        queue = engine.queues.get(self.queue)
        if queue is not None:
            engine.dispatch_later(queue)

    def segments(self) -> list[Segment]:
        """All segments that wait, in no order; they stay."""
        return [segment for backlog in self._backlogs() for segment in backlog.segments()]

    def standing(self) -> list[Segment]:
        """All segments of each backlog, as `Backlog.standing` has them."""
        found: list[Segment] = []
        for backlog in self._backlogs():
            found += backlog.standing()
        return found

    def watch(self, left: Left) -> list[tuple[Backlog, list[Segment]]]:
        """All segments of each backlog, as `Backlog.watch` has them."""
        return [(backlog, backlog.watch(left)) for backlog in self._backlogs() if backlog.count]

    def since(self, first: int) -> list[Segment]:
        """The segments that lie from `first` on in the log."""
        return [segment for backlog in self._backlogs() if backlog.count for segment in backlog.since(first)]

    def take_below(self, stop: int, most: int) -> list[Segment]:
        """Takes out what lies below `stop` in the log, about `most` segments, in no order; nothing when there is no more."""
        found: list[Segment] = []
        for backlog in self._backlogs():
            if backlog.count and len(found) < most:
                taken = backlog.take_below(stop, most - len(found))
                found += taken
                for segment in taken:
                    self._went(backlog, segment)
        self.settle()
        return found

    def clear(self) -> list[Segment]:
        found = [segment for backlog in self._backlogs() for segment in backlog.clear()]
        self._size = self._others = 0
        self._orders.clear()
        self._wide.clear()
        self.unsorted.clear()
        self._not_asked = None
        return found

    def __repr__(self) -> str:
        return f"<Lanes {len(self.by_lane)} {self.count} messages {self.size} octets>"


def takes(binding: Binding, lane: Lane) -> bool:
    """Whether a consumer of a shared queue may have the messages of a lane."""
    if isinstance(lane, Binding):
        return lane is binding
    return binding.consumer.selector is None or binding.consumer.selector in lane
