"""Backlogs side by side, for a queue whose consumers have selectors: a lane holds what the same selectors take.

Without selectors there is one lane. A message that no selector takes waits in the lane of none, for a consumer without
selector or for one that comes. Beside these, a consumer has a lane of its own when messages wait for it and nobody else (message groups).

When consumers come or go, nothing is moved: the lanes of before become what is `unsorted`, with the selectors that were asked already,
and are sorted into the new lanes portion by portion, the oldest first, each message asking only those selectors that it has not met.
What arrives meanwhile, or when the turn's work is used up, is left to be sorted, too; so everybody gets his messages in order.

Each selector has a number, by when it came to the queue. So one number says which were asked about a message; who comes or goes asks
nothing about the others. The name of a lane may have selectors in it that have left: nobody takes its messages for their sake.

A queue may have a lane for each message: of twenty selectors each takes some of them. So nobody looks through the lanes. Each selector
has an `Order` of the lanes whose messages it takes, and finds in it the next one; a lane is noted when it gets something to give before
what it had, and that it has given it is found out when it comes to the front.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.backlog import Backlog, Left
from stompbox.broker.queues.consumer import Binding
from stompbox.broker.queues.expiry import Expiring
from stompbox.broker.queues.roundrobin import RoundRobin
from stompbox.broker.work import MESSAGE
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
    def dispatch_later(self, queue: Any, /) -> None: ...


class Address(Protocol):
    """What sorting asks of the address whose messages wait."""

    @property
    def engine(self) -> Engine: ...
    @property
    def memory(self) -> Memory: ...
    def wanted_of(self, selector: Selector, segment: Segment, queue: int, /) -> list[tuple[int, int]]: ...
    def is_answered(self, selector: Selector, segment: Segment, queue: int, /) -> bool: ...
    def is_long(self, selector: Selector, segment: Segment, /) -> bool: ...


Head = tuple[int, int]


class Order:
    """The lanes of a queue, ordered by the message that each gives next."""

    __slots__ = ("_heads", "_heap", "_turn")

    def __init__(self) -> None:
        self._heads: dict[Lane, Head] = {}  # what was noted of each
        self._heap: list[tuple[Head, int, Lane]] = []
        self._turn = 0

    def note(self, lane: Lane, head: Head) -> None:
        """Notes the message that a lane gives next."""
        known = self._heads.get(lane)
        if known is None or head < known:
            self._heads[lane] = head
            self._turn += 1
            heappush(self._heap, (head, self._turn, lane))

    def first(self, by_lane: Mapping[Lane, Backlog]) -> tuple[Head, Lane] | None:
        """The lane that gives first, and what sorts that; None where all are empty."""
        heap, heads = self._heap, self._heads
        while heap:
            head, turn, lane = heap[0]
            if heads.get(lane) != head:  # noted anew since
                heappop(heap)
                continue
            backlog = by_lane.get(lane)
            if backlog is None or not backlog.count:
                heappop(heap)
                del heads[lane]
                continue
            now = backlog.head
            if now == head:
                return head, lane
            heads[lane] = now
            heapreplace(heap, (now, turn, lane))
        return None

    def keep(self, by_lane: Mapping[Lane, Backlog]) -> None:
        """The other lanes are not there any more."""
        self._heads = {lane: head for lane, head in self._heads.items() if lane in by_lane}
        self._heap = [(head, turn, lane) for head, turn, lane in self._heap if self._heads.get(lane) == head]
        heapify(self._heap)

    def __repr__(self) -> str:
        return f"<Order of {len(self._heads)} lanes>"


Lane = frozenset[Selector] | Binding
Key = Selector | Binding | frozenset[Selector] | None
NONE: Final[frozenset[Selector]] = frozenset()
LANES: Final = 256  # beyond, those that are empty are forgotten now and then

T = TypeVar("T")


def swept(
    first: int, stop: int, taken: Mapping[T, Iterable[tuple[int, int]]]
) -> Iterator[tuple[int, int, frozenset[T]]]:
    """first .. stop-1 in parts, each with all whose ranges cover it; the ranges of each are apart from each other."""
    edges: dict[int, list[T]] = {}  # by offset: who begins there, or ends
    for taker, ranges in taken.items():
        for pair in ranges:
            for edge in pair:
                edges.setdefault(edge, []).append(taker)
    takers = frozenset(edges.pop(first, ()))
    edges.pop(stop, None)
    for edge in sorted(edges):
        yield first, edge, takers
        takers = takers.symmetric_difference(edges[edge])
        first = edge
    yield first, stop, takers


class Unsorted:
    """Messages that are to be sorted: the selectors up to the number `asked` were asked before, and those of `takers` took all of them."""

    __slots__ = ("asked", "backlog", "takers")

    def __init__(self, backlog: Backlog, asked: int = 0, takers: frozenset[Selector] = NONE) -> None:
        self.backlog = backlog
        self.asked = asked
        self.takers = takers


class Lanes:
    """Segments by lane. `common` is the lane of none, and the only one as long as no consumer has a selector or a lane of its own."""

    __slots__ = (
        "_filled", "_in_order", "_last", "_looking", "_most_lanes", "_numbers", "_orders", "_others", "_owned", "_searching", "_size",
        "_steps", "_uses", "address", "by_lane", "common", "expiring", "is_heavy", "is_ranked", "queue", "selectors", "steps", "unsorted",
    )  # fmt: skip

    def __init__(
        self, address: Address, expiring: Expiring | None = None, *, queue: int = 0, is_ranked: bool = True
    ) -> None:
        self.address = address
        self.queue = queue  # its id
        self.expiring = expiring
        self.is_ranked = is_ranked
        self.common = self._backlog()
        self.by_lane: dict[Lane, Backlog] = {NONE: self.common}
        self.selectors: dict[Selector, int] = {}  # of the consumers, each with its number
        self._uses: dict[Selector, int] = {}  # by how many consumers
        self._in_order: list[Selector] = []  # by number
        self._numbers: list[int] = []
        self._last = 0  # number that was given
        self._steps = 0  # that they take, XPATH and LIKE apart
        self._looking = 0  # of them that look into bodies
        self._searching = 0  # and of those that may take long
        self._owned: set[Lane] = set()  # lanes of consumers of their own
        self._filled: dict[Binding, None] = {}  # those of them that have got something since `take_filled`
        self.unsorted: list[Unsorted] = []
        self._orders: dict[Key, Order] = {}  # of the lanes but the common one, by who takes from them
        self._size = self._others = 0  # of all but the common one
        self.steps = 0  # that a message takes at the most which all selectors are asked about
        # that is too much for one turn: each message is asked about in several, behind what others do
        self.is_heavy = False
        self._most_lanes = LANES

    def _backlog(self) -> Backlog:
        return Backlog(self.expiring, self.address.memory, is_ranked=self.is_ranked)

    def _backlogs(self) -> list[Backlog]:
        return [*self.by_lane.values(), *[left.backlog for left in self.unsorted]]

    @property
    def count(self) -> int:
        return self.common.count + self._others

    @property
    def size(self) -> int:
        """How many octets of memory the backlog takes, about."""
        return self.common.size + self._size

    def lane(self, lane: Lane) -> Backlog:
        found = self.by_lane.get(lane)
        if found is None:
            if len(self.by_lane) >= self._most_lanes:
                self._forget_empty()
            found = self.by_lane[lane] = self._backlog()
            if not isinstance(lane, frozenset):
                self._owned.add(lane)
        return found

    def _came(self, lane: Lane, backlog: Backlog, segment: Segment) -> None:
        """Counts a segment that is in the lane now: those who take from it find the lane by what it gives next."""
        if backlog is self.common:
            return
        self._size += segment.cost
        self._others += len(segment)
        head = backlog.head
        if not isinstance(lane, frozenset):
            self._orders.setdefault(lane, Order()).note(lane, head)
            self._filled[lane] = None
            return
        self._orders.setdefault(None, Order()).note(lane, head)
        for selector in lane:
            if selector in self.selectors:
                self._orders.setdefault(selector, Order()).note(lane, head)

    def _went(self, backlog: Backlog, segment: Segment) -> None:
        if backlog is not self.common:
            self._size -= segment.cost
            self._others -= len(segment)

    def _forget_empty(self) -> None:
        """Each message may be taken by others than the one before, so there could be ever more lanes."""
        self.by_lane = {
            lane: backlog for lane, backlog in self.by_lane.items() if backlog.count or backlog is self.common
        }
        self._owned &= self.by_lane.keys()
        for order in self._orders.values():
            order.keep(self.by_lane)
        self._most_lanes = LANES + 2 * len(self.by_lane)

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
                self._size += part.cost
                self._others += len(part)
                self._left().put_back(part)
            else:
                self.put_back_to(lane, part)

    def put_back_to(self, lane: Lane, segment: Segment) -> None:
        backlog = self.lane(lane)
        backlog.put_back(segment)
        self._came(lane, backlog, segment)

    def pop(self, lane: Lane) -> Segment:
        return self._pop(self.by_lane[lane])

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
        backlog = min([waiting for waiting in self._backlogs() if waiting.count], key=_head)
        segment = self._pop(backlog)
        if len(segment) <= most:
            return segment
        front = segment.cut(segment.first + most)
        self._unpop(backlog, segment)
        return front

    def remove(self, segment: Segment) -> Segment:
        """Takes out a segment that waits in one of the lanes; what is returned is to be used in its place."""
        home: Backlog | None = segment.home
        assert home is not None
        self._went(home, segment)
        return home.remove(segment)

    def take_filled(self) -> list[Binding]:
        """Consumers whose own lanes have got something since this was asked last."""
        if not self._filled:
            return []
        found = list(self._filled)
        self._filled.clear()
        return found

    def firsts(self) -> list[tuple[Head, Lane, Key]]:
        """What `first` says of each who takes from lanes: those without selector (None), each selector, and consumers with lanes of their
        own; the common lane has a key of its own. Who finds nothing is not looked at again."""
        found: list[tuple[Head, Lane, Key]] = [(self.common.head, NONE, NONE)] if self.common.count else []
        empty: list[Key] = []
        for key, order in self._orders.items():
            first = order.first(self.by_lane)
            if first is None:
                empty.append(key)
            else:
                found.append((first[0], first[1], key))
        for key in empty:
            del self._orders[key]
        return found

    def first(self, key: Key) -> tuple[Head, Lane] | None:
        """The lane that gives something first to those of a key, with what sorts it into the order in which it goes out."""
        if key == NONE:
            return (self.common.head, NONE) if self.common.count else None
        return self._orders[key].first(self.by_lane) if key in self._orders else None

    # Sorting

    def arriving(self, segment: Segment) -> Iterator[tuple[frozenset[Selector] | None, Segment]]:
        """The segment in parts, by offset, each with the selectors that take it; None: they are to be asked later, behind what waits."""
        if self.unsorted or self.is_heavy:
            yield None, segment
            return
        work = self.address.engine.work
        front = None
        while front is not segment:
            if work.is_over and self.steps * len(segment) > work.least:
                yield None, segment
                return
            front = self._portion(segment)
            yield from self.parted(front, self.selectors)

    def _portion(self, segment: Segment) -> Segment:
        """As many messages of the segment as there is work left for, one at the least; they are cut off from it."""
        work = self.address.engine.work
        if self.steps * len(segment) <= work.least:
            return segment
        most = max(1, work.left // self.steps)
        return segment if len(segment) <= most else segment.cut(segment.first + most)

    def parted(
        self, segment: Segment, selectors: Collection[Selector]
    ) -> Iterator[tuple[frozenset[Selector], Segment]]:
        """The segment in parts, by offset, each with those of the selectors that take it."""
        if not selectors:
            yield NONE, segment
            return
        taken = {selector: self.address.wanted_of(selector, segment, self.queue) for selector in selectors}
        for first, stop, lane in swept(segment.first, segment.stop, taken):
            whole = first == segment.first and stop == segment.stop
            yield lane, segment if whole else segment.part(first, stop)

    def leave(self, segment: Segment) -> None:
        """Behind all that wait, to be sorted later."""
        self._size += segment.cost
        self._others += len(segment)
        self._left().push(segment)

    def _left(self) -> Backlog:
        """The backlog for messages that no selector was asked about yet."""
        if not self.unsorted or self.unsorted[-1].asked:
            self.unsorted.append(Unsorted(self._backlog()))
        self._later()
        return self.unsorted[-1].backlog

    def sort_some(self) -> None:
        """Sorts, the oldest first, as long as this turn's work is not used up."""
        work = self.address.engine.work
        while not work.is_late:
            self.unsorted = [left for left in self.unsorted if left.backlog.count]
            if not self.unsorted:
                return
            work.spend(MESSAGE + len(self.unsorted))
            self._sort_next(min(self.unsorted, key=_head_of))

    def _sort_next(self, left: Unsorted) -> None:
        segment = self._pop(left.backlog)
        front = self._portion(segment)
        if front is not segment:
            self._unpop(left.backlog, segment)
        if self.is_heavy or (self._searching and self._is_long(front)):
            self._sort_one(front, left)
            return
        known = self._known(left)
        for lane, part in self.parted(front, self._in_order[bisect_right(self._numbers, left.asked) :]):
            self._insert(lane | known, part)

    def _is_long(self, message: Segment) -> bool:
        return any(self.address.is_long(selector, message) for selector in self._in_order)

    def _sort_one(self, message: Segment, left: Unsorted) -> None:
        """Asks as many selectors about one message as there is work left for, and remembers which. It stays the oldest."""
        work = self.address.engine.work
        at = bisect_right(self._numbers, left.asked)
        takers: list[Selector] = []
        while at < len(self._in_order):
            selector = self._in_order[at]
            if not self.address.is_answered(selector, message, self.queue):
                break
            at += 1
            if self.address.wanted_of(selector, message, self.queue):
                takers.append(selector)
            if work.is_late:
                break
        known = self._known(left).union(takers)
        work.spend(len(known) // 4)
        if at < len(self._in_order):
            rest = Unsorted(self._backlog(), self._numbers[at - 1] if at else 0, known)
            rest.backlog.push(message)
            self.unsorted.insert(0, rest)
            self._size += message.cost
            self._others += len(message)
            return
        self._insert(known, message)

    def _insert(self, lane: Lane, segment: Segment) -> None:
        backlog = self.lane(lane)
        backlog.insert(segment)
        self._came(lane, backlog, segment)

    def _known(self, left: Unsorted) -> frozenset[Selector]:
        """The selectors of consumers that are known to take what is to be sorted."""
        return left.takers.intersection(self.selectors) if left.takers else NONE

    def release_all(self) -> None:
        """Gives up all lanes that consumers have of their own."""
        for lane in list(self._owned):
            self.release(lane)

    def release(self, lane: Lane) -> None:
        """A consumer's own lane goes; what waits in it waits for everybody."""
        self._owned.discard(lane)
        if not isinstance(lane, frozenset):
            self._orders.pop(lane, None)
            self._filled.pop(lane, None)
        backlog = self.by_lane.pop(lane, None)
        if backlog is not None and backlog.count:
            self.unsorted.append(Unsorted(backlog))
            self._later()

    def add(self, selector: Selector) -> None:
        """A consumer with this selector has come: what waits is to be sorted anew, when it is the first of them."""
        uses = self._uses[selector] = self._uses.get(selector, 0) + 1
        if uses > 1:
            return
        self._unsort()
        self._last += 1
        self.selectors[selector] = self._last
        self._in_order.append(selector)
        self._numbers.append(self._last)
        self._count(selector, 1)

    def discard(self, selector: Selector) -> None:
        """A consumer with this selector has gone. What waits stays in its lanes, but when nobody has a selector any more."""
        self._uses[selector] -= 1
        if self._uses[selector]:
            return
        del self._uses[selector]
        self._orders.pop(selector, None)
        at = bisect_left(self._numbers, self.selectors.pop(selector))
        del self._numbers[at], self._in_order[at]
        self._count(selector, -1)
        if not self.selectors:
            self._unsort()

    def _count(self, selector: Selector, uses: int) -> None:
        work = self.address.engine.work
        self.steps += uses * selector.most_steps
        self._looking += uses * selector.needs_body
        self._searching += uses * selector.is_costly
        self._steps += uses * selector.steps
        self.is_heavy = self.steps > 2 * work.most or self._steps > work.heavy or self._looking > 0

    def _unsort(self) -> None:
        """What waits is to be sorted: each lane was, so its messages pay for this."""
        self._size += self.common.size
        self._others += self.common.count
        for lane, backlog in self.by_lane.items():
            if backlog.count:
                self.unsorted.append(
                    Unsorted(backlog, self._last, lane) if isinstance(lane, frozenset) else Unsorted(backlog)
                )
        if self.common.count or len(self.by_lane) > 1:
            self.common = self._backlog()
            self.by_lane = {NONE: self.common}
            self._owned.clear()
            self._filled.clear()
            self._orders.clear()
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
        return found

    def clear(self) -> list[Segment]:
        found = [segment for backlog in self._backlogs() for segment in backlog.clear()]
        self._size = self._others = 0
        self._orders.clear()
        self.unsorted = []
        return found

    def __repr__(self) -> str:
        return f"<Lanes {len(self.by_lane)} {self.count} messages {self.size} octets>"


def _head(backlog: Backlog) -> tuple[int, int]:
    return backlog.head


def _head_of(left: Unsorted) -> tuple[int, int]:
    return left.backlog.head


def takers_of(lane: Lane, bindings: Sequence[Binding], *, is_shared: bool) -> RoundRobin[Binding]:
    """The consumers that may have the messages of a lane. Where a queue is not shared its consumer's selector has been asked before."""
    return RoundRobin([binding for binding in bindings if not is_shared or takes(binding, lane)])


def takes(binding: Binding, lane: Lane) -> bool:
    """Whether a consumer of a shared queue may have the messages of a lane."""
    if isinstance(lane, Binding):
        return lane is binding
    return binding.consumer.selector is None or binding.consumer.selector in lane
