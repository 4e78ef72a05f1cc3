"""A subscription as the engine sees it: its credit, and what it was sent and has not acknowledged.

Sending is bounded for every consumer. With acknowledgements the window counts body bytes (or messages) that are not yet
acknowledged; an auto consumer has one, too: what its socket has not yet taken. A message counts as acknowledged there when
the operating system has it (`Engine.flushed`), so one that never left the process is not lost with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from enum import Enum
from heapq import merge
from itertools import count, islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stompbox.broker.logs.cursor import FAR
from stompbox.broker.logs.segments import EVERY, Held, Segment, Spans, taken_by
from stompbox.broker.queues.memory import Allowance
from stompbox.broker.queues.roundrobin import RoundRobin, rank_of
from stompbox.message import Run, room_of
from stompbox.selectors import Selector

if TYPE_CHECKING:
    from stompbox.broker.queues.contracts import Engine
    from stompbox.broker.queues.state import QueueState

T = TypeVar("T")

MOST_OUT: Final = 64 << 20  # body bytes that a subscription without a window may have unacknowledged
_NONE: Final = Spans()  # of those who need none
_NOTHING: Final = Held()  # the same
COST: Final = 3 << 10  # octets of memory that a subscription takes beside its texts, at a guess
WATCHED: Final = 1 << 10  # that one wildcard of it takes, which waits for what it covers
WORD: Final = 64  # and each word of that
# octets of bodies and headers on their way to the socket of an auto subscription
AUTO_WINDOW: Final = 2 << 20


class AckMode(Enum):
    """The three values of the header `ack` (STOMP 1.2, SUBSCRIBE ack Header)."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"


# read from the module: of an enum's class each look at a member takes longer
_AUTO: Final = AckMode.AUTO
_CLIENT: Final = AckMode.CLIENT
_INDIVIDUAL: Final = AckMode.INDIVIDUAL


class Output:
    """A part of a run for one subscription, to be encoded and written."""

    __slots__ = ("binding", "deliveries", "failures", "first", "is_redelivered", "run", "stop", "turn")

    def __init__(self, binding: Binding, segment: Segment) -> None:
        self.binding = binding
        self.turn = segment.turn
        self.run: Run = (run := segment.run)
        self.first = segment.first
        self.stop = segment.stop
        self.deliveries = segment.deliveries
        self.failures = segment.failures
        self.is_redelivered = segment.deliveries > 0 or segment.is_suspect or run.shape.is_suspect


class Binding:
    """One consumer on one queue, the queue's `number`th. `head` belongs to the server: how MESSAGE frames begin for it.

    `rank` orders the queue's consumers: those of a higher priority come first, and of one priority those that came earlier. One that
    had no credit when it was its turn is `missing` in those lists of takers until it is fed."""

    __slots__ = (
        "_head",
        "consumer",
        "done",
        "held",
        "missing",
        "out",
        "queue",
        "rank",
        "seen",
        "unacked",
    )

    def __init__(self, consumer: Consumer, queue: QueueState, number: int) -> None:
        self.consumer = consumer
        self.queue = queue
        self.rank = rank_of(number, consumer.priority)
        self.missing: list[RoundRobin[Binding]] | None = None
        self.held = Held() if consumer.ack is _INDIVIDUAL else _NOTHING
        # offsets in the ledger, which nobody looks through for others
        self.unacked = Spans() if consumer.ack is _CLIENT else _NONE
        self.out = 0  # messages that it has and did not acknowledge
        self.done = 0  # messages that were acknowledged
        self.seen = -1  # of those, when it was last looked at (depth.py)
        self._head: Any = None

    @property
    def head(self) -> Any:
        """Made with the first message: most of a wildcard subscription's queues never have one."""
        if self._head is None:
            self._head = self.consumer.head_of(self.queue)
        return self._head

    def taken(self) -> list[Segment]:
        """What the consumer has of the queue and has not acknowledged."""
        return [segment for of, segment in self.consumer.ledger if of is self] + self.held.segments()

    @property
    def oldest(self) -> int | None:
        """The lowest offset of what the consumer has of the queue."""
        ack = self.consumer.ack
        if ack is _INDIVIDUAL:
            return self.held.oldest()
        if ack is _CLIENT:
            return self.unacked.oldest()
        return min([segment.first for segment in self.taken()], default=None)

    @property
    def last_turn(self) -> int:
        """What the consumer gets from now on has a higher one."""
        return self.consumer.last_turn

    def leave_out(self, takers: RoundRobin[Binding] | None = None) -> None:
        """Leaves a consumer out whose turn it is and that has no credit: among these takers nobody asks it again before it is fed."""
        self.consumer.starved[self.queue] = None
        if takers is not None:
            takers.discard(self)
            if takers.is_lasting:
                self.missing = self.missing or []
                self.missing.append(takers)

    def starve(self) -> None:
        """Notes that the consumer has no credit for what waits here: the queue feeds it when it has."""
        self.consumer.starved[self.queue] = None

    def readmit(self) -> None:
        """The consumer is fed: it is asked again."""
        missing, self.missing = self.missing or (), None
        for takers in missing:
            takers.add(self)

    def miss_none_of(self, gone: set[int]) -> None:
        """Some lists of takers that it may be missing in are gone, by their `id`."""
        if self.missing:
            self.missing = [takers for takers in self.missing if id(takers) not in gone]

    def look(self) -> int:
        """How many messages were acknowledged since it was looked at last; -1: it is the first time."""
        before, self.seen = self.seen, self.done
        return self.done - before if before >= 0 else -1

    def __repr__(self) -> str:
        return f"<Binding {self.consumer.name} on {self.queue.name}>"


Sent = tuple[Binding, Segment]
_SEGMENT: Final = itemgetter(1)
_ORDER: Final[Callable[[Segment], tuple[int, int]]] = attrgetter("turn", "first")


def order(sent: Sent) -> tuple[int, int]:
    """Sorts what a subscription was sent by when it was."""
    return _ORDER(sent[1])


def in_order(sent: Sequence[Sent]) -> list[Sent]:
    """The messages in the order in which they were delivered, for very many at once: no function is called for each."""
    return [one for _, _, one in sorted(zip(map(_ORDER, map(_SEGMENT, sent)), count(), sent, strict=False))]


def taken_off(items: list[T], most: int) -> Iterator[list[T]]:
    """What there is, in parts. Each is let go when the next one is asked for: a hundred thousand messages at once take 30 ms to go."""
    items.reverse()
    while items:
        part = items[: -most - 1 : -1]
        del items[-most:]
        yield part


def ordering(sent: list[Sent], most: int) -> Generator[None, None, list[Sent]]:
    """Orders messages as `in_order` does, in steps. What several ACKs have taken is mostly in order already, in a few stretches."""
    stretches: list[list[Sent]] = []
    for at in range(0, len(sent), most):
        part = sorted(sent[at : at + most], key=order)
        if stretches and order(stretches[-1][-1]) < order(part[0]):
            stretches[-1] += part
        else:
            stretches.append(part)
        yield
    if len(stretches) == 1:
        return stretches[0]
    merged, found = merge(*stretches, key=order), list[Sent]()
    while part := list(islice(merged, most)):
        found += part
        yield
    return found


class Consumer:
    """One subscription's flow: what it may have, and what it did not acknowledge. `window`: body bytes (-1: MOST_OUT), `prefetch`: messages
    (-1: no limit); 0 one at a time. A message takes one byte of a window at least. `is_either`: delivery goes on while one of the two has
    room (Apollo's credit), otherwise while both have.

    `priority`: on an anycast queue those of a higher one come first, as long as they have credit; `is_exclusive`: it gets all.
    `owner` is the server's connection; `head_of` gives it the opening of MESSAGE frames for a queue (Binding.head).
    """

    def __init__(
        self,
        name: str,
        ack: AckMode,
        *,
        session: int,
        destination: str = "",
        selector: Selector | None = None,
        window: int = -1,
        prefetch: int = -1,
        is_either: bool = False,
        priority: int = 0,
        is_exclusive: bool = False,
        owner: Any = None,
        allowance: Allowance | None = None,
        head_of: Callable[[QueueState], Any] = lambda _: None,
    ) -> None:
        self.name = name
        self.queue_name = f"{session}.{name}"  # of the queues that are its own
        self.ack = ack
        self.session = session
        self.destination = destination
        self.selector = selector  # on an anycast queue: which of its messages it takes
        self.owner = owner
        self.allowance = allowance if allowance is not None else Allowance()
        # the name stands in that of its queues and in the heads of its messages, too
        texts = 3 * room_of(name) + room_of(destination)
        self.cost = COST + texts + (selector.size if selector is not None else 0)
        self.allowance.subscribe(self.cost)
        self.head_of = head_of
        self.window = AUTO_WINDOW if ack is _AUTO else window if window >= 0 else MOST_OUT
        self.prefetch = -1 if ack is _AUTO else prefetch
        self.is_either = is_either
        self.priority = priority
        self.is_exclusive = is_exclusive
        self.is_browser = False  # it sees copies
        self.bindings: dict[int, Binding] = {}  # by queue
        self.ledger: deque[Sent] = deque()  # auto and client: what was sent, in order
        self.outbox: list[Output] = []
        self.bytes_out = 0
        self.messages_out = 0
        self.starved: dict[QueueState, None] = {}  # queues that had something and no credit for it
        self.is_touched = False
        self.is_started = True  # False: nothing goes out yet, the RECEIPT of its SUBSCRIBE comes first
        self.is_ending = False
        self.is_closed = False
        self.is_watching = False
        self.on_close: list[Callable[[], None]] = []
        self._turn = 0

    def watch(self, pattern: str, words: int) -> None:
        """The consumer gets more queues when addresses come that this wildcard covers, which has so many words."""
        self.is_watching = True
        cost = WATCHED + WORD * words + room_of(pattern)
        self.cost += cost
        self.allowance.subscribe(cost)

    @property
    def has_credit(self) -> bool:
        out = self.messages_out
        if not out or not self.is_started:
            return self.is_started  # one message always flows
        if not self.allowance.has_room:
            self.allowance.whole.denied[self] = None
            return False
        if self.is_either:
            return out < self.prefetch or self.bytes_out < self.window
        if self.window >= 0 and (self.bytes_out >= self.window or out >= self.window):
            return False
        return self.prefetch < 0 or out < self.prefetch

    def fitting(self, segment: Segment) -> int:
        """How many of the segment's messages may go now, when there is credit."""
        count = self.allowance.fitting(segment)
        by_size = self._fitting_by_size(segment) if self.window >= 0 else count
        if self.prefetch < 0:
            return min(count, by_size)
        by_count = min(count, max(1, self.prefetch) - self.messages_out)
        return min(count, max(by_size, by_count)) if self.is_either else min(by_size, by_count)

    def _fitting_by_size(self, segment: Segment) -> int:
        room = self.window - self.bytes_out
        if room <= 0:
            return 1
        count = segment.fitting(room)
        if not self.is_either:
            count = min(count, self.window - self.messages_out)
        return min(count, 1 + room // (1 + segment.run.shape.octets)) if self.ack is _AUTO else count

    @property
    def last_turn(self) -> int:
        """The turn of what it was given last."""
        return self._turn

    def sent_behind(self, last: tuple[int, int], most: int) -> list[Sent]:
        """What was sent next behind that (`order`), where it is kept in order."""
        at = bisect_right(self.ledger, last, key=order)
        return list(islice(self.ledger, at, at + most))

    def start(self) -> None:
        """The consumer gets messages from now on, unless it is about to end."""
        self.is_started = not self.is_ending

    def stop(self) -> None:
        """The consumer gets nothing more, although it has not ended yet."""
        self.is_ending, self.is_started = True, False

    def close(self) -> None:
        """The consumer gets nothing more, and counts for nobody."""
        self.is_closed, self.is_started = True, False
        self.allowance.subscribe(-self.cost)

    def take_outbox(self) -> list[Output]:
        """Takes out what has not left, which does not leave any more."""
        outbox, self.outbox = self.outbox, []
        return outbox

    def feed(self) -> None:
        """Lets the queues feed a consumer that has credit again, in turn, as long as it has: one at the least, a portion's worth now."""
        starved = self.starved
        for _ in range(len(starved)):
            if not starved or not self.has_credit:
                return
            queue = next(iter(starved))
            del starved[queue]
            queue.feed(self.bindings[queue.id])
            if starved and queue.engine.work.is_late:
                self.feed_later(queue.engine)
                return

    def feed_later(self, engine: Engine) -> None:
        """Has it fed when it is its session's turn."""
        engine.later.add((Consumer.feed, self), self.feed, by=self.session)

    def give(self, binding: Binding, segment: Segment) -> None:
        self._turn = segment.turn = self._turn + 1
        self.outbox.append(Output(binding, segment))
        self._count(binding, segment)
        if self.ack is _INDIVIDUAL:
            binding.held.add(segment)
        else:
            self.ledger.append((binding, segment))
            if self.ack is _CLIENT:
                binding.unacked.add(segment.first, segment.stop)

    def _count(self, binding: Binding, segment: Segment) -> None:
        size, count, run = segment.size, segment.stop - segment.first, segment.run
        binding.out += count
        binding.queue.out += size
        self.messages_out += count
        self.allowance.take(run, taken_by(run, size, count), count)
        self.bytes_out += size + count * run.shape.octets if self.ack is _AUTO else size

    def release(self, binding: Binding, segment: Segment) -> None:
        size, count, run = segment.size, segment.stop - segment.first, segment.run
        queue = binding.queue
        binding.out -= count
        queue.out -= size
        if queue.room is not None:
            queue.room.grow(queue, binding)
        for looker in queue.lookers:
            looker(binding, segment)
        self.messages_out -= count
        self.allowance.give_back(run, taken_by(run, size, count), count)
        self.bytes_out -= size + count * run.shape.octets if self.ack is _AUTO else size

    def hold_again(self, sent: list[Sent]) -> None:
        """What aborted ACKs had taken is unacknowledged again, in the order in which it was sent."""
        for _ in self.holding_again(sent, len(sent)):
            pass

    def holding_again(self, sent: list[Sent], most: int) -> Generator[None, None, list[Sent]]:
        """Holds messages again as `hold_again` does, in steps, and returns what a consumer that was closed meanwhile does not get."""
        is_ordered = self.ack is not _INDIVIDUAL
        sent = (yield from ordering(sent, max(1, most))) if is_ordered else sent
        counted: list[Sent] = []
        bindings: set[Binding] = set()
        for at in range(0, len(sent), max(1, most)):
            if self.is_closed:
                self._released(counted)
                return sent if is_ordered else sent[at:]
            part = self._counted(sent[at : at + most])
            counted += part
            bindings.update([binding for binding, _ in part])
            yield
        if is_ordered and self.is_closed:
            self._released(counted)
            return sent
        gone = {binding for binding in bindings if self.bindings.get(binding.queue.id) is not binding}
        if gone:  # their queues went meanwhile
            self._released([one for one in counted if one[0] in gone])
            counted = [one for one in counted if one[0] not in gone]
        self._put_back(counted)
        return []

    def _counted(self, sent: list[Sent]) -> list[Sent]:
        """Counts those of the messages again that the consumer may still have; what stands in the ledger is to be put there."""
        counted = [one for one in sent if self.bindings.get(one[0].queue.id) is one[0]]
        again: dict[Binding, list[Segment]] = {}
        for binding, segment in counted:
            self._count(binding, segment)
            again.setdefault(binding, []).append(segment)
        for binding, segments in again.items():
            if self.ack is _INDIVIDUAL:
                binding.held.add_all(segments)
            elif self.ack is _CLIENT:
                binding.unacked.add_all(segments)
        return counted if self.ack is not _INDIVIDUAL else []

    def _put_back(self, sent: list[Sent]) -> None:
        """In one go, so that the ledger is in order whoever looks at it, and without a look at each."""
        if not sent:
            return
        ledger = self.ledger
        at = bisect_left(ledger, order(sent[0]), key=order)
        if at == len(ledger) or order(sent[-1]) < order(ledger[at]):
            # what a cumulative one has taken belongs together
            ledger.rotate(-at)
            ledger.extendleft(reversed(sent))
            ledger.rotate(at)
        else:
            self.ledger = deque(in_order([*sent, *ledger]))

    def take_flushed(self) -> list[Sent]:
        """auto: what was taken from the outbox, which the operating system has by now."""
        ledger, waiting = self.ledger, len(self.outbox)
        left = [ledger.pop() for _ in range(waiting)] if waiting else None
        sent = list(ledger)
        ledger.clear()
        if left is not None:
            ledger.extendleft(left)
        for binding, segment in sent:
            self.release(binding, segment)
        return sent

    @property
    def written(self) -> int:
        """Segments up to this turn have left the outbox."""
        return self.outbox[0].turn - 1 if self.outbox else self._turn

    def forget(self, binding: Binding) -> None:
        """The queue is gone, and with it what was sent from it."""
        if not binding.out:
            return
        gone = [segment for known, segment in self.ledger if known is binding] + binding.held.clear()
        for segment in gone:
            self.release(binding, segment)
        if gone:
            self.ledger = deque([sent for sent in self.ledger if sent[0] is not binding])
            self.outbox = [output for output in self.outbox if output.binding is not binding]

    def may_have(self, queue: int, offset: int) -> bool:
        """Whether it is worth asking for a message, which it has not acknowledged."""
        binding = self.bindings.get(queue)
        if binding is None or not binding.out:
            return False
        return self.ack is not _INDIVIDUAL or binding.held.may_have(offset)

    def take(self, queue: int, first: int, stop: int, most: int = EVERY) -> tuple[list[Sent], int]:
        """Removes first .. stop-1 of a queue's messages from what is unacknowledged, as far as they are, in `most` segments at the most;
        and where that ends.

        `client`: cumulative, all that this subscription was sent before them goes with them (STOMP 1.2, SUBSCRIBE ack Header).
        """
        binding = self.bindings.get(queue)
        if binding is None or self.ack is _AUTO:
            return [], first
        if self.ack is _CLIENT:
            return self._take_through(queue, stop - 1, first)
        segments, reached = binding.held.take(first, stop, most)
        for segment in segments:
            self.release(binding, segment)
        return [(binding, segment) for segment in segments], reached

    def _take_through(self, queue: int, offset: int, missing: int) -> tuple[list[Sent], int]:
        if offset not in self.bindings[queue].unacked:
            return [], missing
        for at, (binding, segment) in enumerate(self.ledger):
            if binding.queue.id == queue and segment.first <= offset < segment.stop:
                taken = [self.ledger.popleft() for _ in range(at)]
                if offset + 1 == segment.stop:
                    taken.append(self.ledger.popleft())
                else:
                    taken.append((binding, segment.cut(offset + 1)))
                    binding.unacked.add(segment.first, segment.stop)
                for of, gone in taken:
                    self.release(of, gone)
                    of.unacked.remove(gone.first)
                return taken, offset + 1
        return [], missing

    def take_before(self, queue: int, offset: int, most: int) -> list[Sent]:
        """Removes what the consumer was sent before this message from what is unacknowledged, the oldest first (`client`); nothing where
        the message has been acknowledged."""
        last = self.bindings.get(queue)
        taken: list[Sent] = []
        if last is None or offset not in last.unacked:
            return taken
        while len(taken) < most and self.ledger:
            binding, segment = self.ledger[0]
            if binding is last and segment.first <= offset < segment.stop:
                break
            taken.append(self.ledger.popleft())
            self.release(binding, segment)
            binding.unacked.remove(segment.first)
        return taken

    def withdraw(self, binding: Binding, offset: int) -> list[Sent]:
        """Removes one message from what it was sent, and no other, whatever its ack mode."""
        if self.ack is _INDIVIDUAL:
            taken = binding.held.take(offset, offset + 1)[0]
        else:
            taken = []
            kept: deque[Sent] = deque()
            for known, segment in self.ledger:
                if known is not binding or not segment.first <= offset < segment.stop:
                    kept.append((known, segment))
                    continue
                taken.append(segment.part(offset, offset + 1))
                left = segment.without(offset)
                kept += [(known, part) for part in left]
                if self.ack is _CLIENT:
                    binding.unacked.remove(segment.first)
                    for part in left:
                        binding.unacked.add(part.first, part.stop)
            self.ledger = kept
        for segment in taken:
            self.release(binding, segment)
        return [(binding, segment) for segment in taken]

    def take_all(self) -> list[Sent]:
        """Takes from the consumer everything that it did not acknowledge."""
        return [sent for part in self.taking_all(FAR) for sent in part]

    def taking_all(self, most: int) -> Iterator[list[Sent]]:
        """Takes from the consumer everything that it did not acknowledge, so many messages at a time."""
        while self.ledger:
            found = [self.ledger.popleft() for _ in range(min(most, len(self.ledger)))]
            if self.ack is _CLIENT:
                for binding, segment in found:
                    binding.unacked.remove(segment.first)
            yield self._released(found)
        looked, found = 0, []
        for binding in list(self.bindings.values()):
            looked += 1
            while binding.held:
                part = binding.held.take_lowest(most)
                looked += max(1, len(part))
                found += [(binding, segment) for segment in part]
                if looked >= most:
                    yield self._released(found)
                    looked, found = 0, []
            if looked >= most:
                yield self._released(found)
                looked, found = 0, []
        yield self._released(found)

    def _released(self, sent: list[Sent]) -> list[Sent]:
        for binding, segment in sent:
            self.release(binding, segment)
        return sent

    def __repr__(self) -> str:
        return f"<Consumer {self.name} ack={self.ack.value} out={self.messages_out}/{self.bytes_out}B queues={len(self.bindings)}>"


def with_credit(bindings: Sequence[Binding]) -> RoundRobin[Binding]:
    """The consumers of a few that have credit; the others will be fed when they have."""
    found = RoundRobin([binding for binding in bindings if binding.consumer.has_credit])
    if len(found) < len(bindings):
        for binding in bindings:
            if binding not in found:
                binding.starve()
    return found


def has_tiers(bindings: Sequence[Binding]) -> bool:
    """Whether some of these, which are in the order of their ranks, come before others."""
    return len(bindings) > 1 and bindings[0].consumer.priority != bindings[-1].consumer.priority


def forget_missing(bindings: Sequence[Binding], gone: Iterable[RoundRobin[Binding]]) -> None:
    """The lanes' lists of takers go; who is missing there is not missing in those that are made anew."""
    ids = set(map(id, gone))
    for binding in bindings:
        binding.miss_none_of(ids)
