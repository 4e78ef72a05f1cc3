"""Messages that leave a queue: dead letters back to where they came from (`Redrive`), to another address, by an operator (`Move`),
or nowhere (`Discard`). `Copy` sends them elsewhere, and they stay. Chosen ones alone go where it is said which (`among`).

A dead letter comes to the queue that could not deliver it, as a new message there. What the broker added to it is taken off again. A
message that does not say where it came from stays, and so does one that came from where whoever redrives may not send (`may_send`, by the
address's name), or from an address that takes nothing now: it is blocked, or full and does not page. What is in the log alone is loaded
portion by portion, and each turn takes some, so the whole may take many turns; what arrives meanwhile is not touched. What stays waits in
memory until the end. When it takes a quarter of `global-max-size`, this is the end: the rest is not looked at (`too-much-stays`).
What goes leaves the queue and comes to the other one with the same commit, so that a crash half-way loses nothing and doubles nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses import limits, redelivery, routing
from stompbox.broker.addresses.routing import ALL
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import dispatch, paging
from stompbox.broker.queues.consumer import taken_off
from stompbox.broker.queues.depth import depth_of
from stompbox.broker.queues.paging import is_doubtful
from stompbox.broker.work import COPY, MESSAGE
from stompbox.config.spaces import MARK, is_inside, space_of
from stompbox.errors import TooManyMade
from stompbox.message import ANYCAST, MULTICAST, ORIGINAL_ADDRESS, ORIGINAL_ID, ORIGINAL_QUEUE, Run

if TYPE_CHECKING:
    from stompbox.broker.addresses.contracts import Engine
    from stompbox.broker.addresses.makers import Maker
    from stompbox.broker.queues.queue import Queue
    from stompbox.ranges import Ranges

PORTION: Final = 1000  # messages at a time
QUARTER: Final = 4  # of all memory: so much may have to stay, and is kept until all is done
TOO_MUCH: Final = "too-much-stays"  # of those that were not looked at
TOO_MANY: Final = "too-many-addresses"  # of those that came from an address that the user may not make again
# parts of them, each sent by itself, that go in one step: less than a millisecond. Fewer, where each takes longer
STEP: Final = 16


class Redrive:
    """One queue gives back `most` messages, -1 all. `count` have gone; `is_done`, and `on_done` is called then. `among`: only the
    messages with these offsets. `maker`: the user for whom the addresses count that are made again. `stayed`: those that had to
    stay, by the code of what a SEND would have been refused for."""

    def __init__(
        self,
        engine: Engine,
        queue: Queue,
        *,
        most: int = -1,
        on_done: Callable[[int], None] | None = None,
        may_send: Callable[[str], bool] = lambda _: True,
        among: Ranges | None = None,
        maker: Maker | None = None,
    ) -> None:
        self.engine = engine
        self.maker = maker
        self.may_send = may_send
        self.stayed = Counter[str]()
        self.queue = queue
        self.most = most
        self.on_done = on_done
        self.among = among
        end = queue.address.log.next
        self.stop = end if among is None else min(end, max([stop for _, stop in among], default=0))
        self.count = 0
        self.is_done = False
        self._aside: list[Segment] = []
        self._size = 0  # octets of memory of those
        queue.begin_redrive(self)
        self.go_on()

    def go_on(self) -> None:
        """Something was loaded, or the work begins: its next steps are taken."""
        self.engine.later.take(self, self._steps())

    def _steps(self) -> Iterator[None]:
        backlog = self.queue.backlog
        taken = 0
        while not self.is_done and backlog.count and self._left and not self._is_too_much:
            for part, weight in self._weighed(backlog.pop_oldest(min(self._left, PORTION))):
                sent = self._send_back(part) if self._is_wanted(part) else 0
                if sent < len(part):
                    self._set_aside(part.part(part.first + sent, part.stop))
                self.engine.work.spend(COPY)
                taken += weight
                if taken >= STEP:
                    taken = 0
                    yield
                if self.is_done:  # the queue is gone, and with it what was taken out of it just now
                    return
        if self.is_done:
            return
        if self._left and 0 <= self.queue.paged_from < self.stop and not self._is_too_much:
            paging.load(self.engine, self.queue)
        else:
            yield from self._end()

    def _weighed(self, segment: Segment) -> Iterator[tuple[Segment, int]]:
        """The parts of a segment that are sent each by itself, none of them more than may go at once to where it goes; and for how many
        parts of a step each counts. Who takes one sends it before the next is asked for."""
        for part in _parts(segment, self.among):
            most = self._at_once(part)
            if most is None and len(part) > 1:  # the first one makes the address
                yield part.cut(part.first + 1), STEP
                most = self._at_once(part)
            most = most or ALL
            while len(part) > most:
                yield part.cut(part.first + most), STEP
            yield part, max(1, STEP * len(part) // most)

    def _at_once(self, part: Segment) -> int | None:
        """None, where the address is not there."""
        name = self._target(part)
        if not name:
            return ALL
        address = self.engine.addresses.get(name)
        return None if address is None else routing.sent_on_at_once(address, part.run.shape)

    def _target(self, segment: Segment) -> str:
        """The name of the address to which it goes; empty where it goes nowhere."""
        came = segment.run.headers(segment.first - segment.run.first).get(ORIGINAL_ADDRESS, MARK)
        return "" if is_inside(came) else space_of(self.queue.address.name) + came

    def _set_aside(self, part: Segment) -> None:
        """Keeps what has to stay until all is done. It takes memory of its address as long."""
        self._aside.append(part)
        self._size += part.cost
        self.queue.address.memory.hold(part.run)

    @property
    def _is_too_much(self) -> bool:
        """What stays takes a QUARTER of all memory: the rest is not looked at."""
        return self._size > self.engine.memory.most // QUARTER

    def _is_wanted(self, part: Segment) -> bool:
        if part.first >= self.stop or self.is_done:
            return False
        return self.among is None or part.first in self.among

    @property
    def _left(self) -> int:
        return PORTION if self.most < 0 else self.most - self.count

    def _send_back(self, segment: Segment) -> int:
        """How many of them went, from the first on."""
        name = self._target(segment)
        if not name:  # it does not say
            return 0
        if not self.may_send(name):
            self.stayed["not-permitted"] += len(segment)
            return 0
        fitting = self._fitting(name, segment)
        if fitting is not None:
            self._route(fitting)
            self._gone(fitting, "redriven")
        return 0 if fitting is None else len(fitting)

    def _fitting(self, name: str, segment: Segment) -> Segment | None:
        """What the address takes of them, as it would of a sender."""
        address = self.engine.addresses.get(name)
        if address is None:
            try:
                self.engine.makers.require(self.maker, addresses=1)
            except TooManyMade:
                self.stayed[TOO_MANY] += len(segment)
                return None
            address = self.engine.create_address(name, is_auto=True, maker=self.maker)
        count, code = limits.taken(address, segment)
        if count < len(segment):
            self.stayed[code] += len(segment) - count
        return segment.part(segment.first, segment.first + count) if count else None

    def _gone(self, segment: Segment, reason: str) -> None:
        self.queue.drop(segment, reason)
        self.count += len(segment)

    def _route(self, segment: Segment) -> None:
        engine, run = self.engine, segment.run
        low, high = segment.first - run.first, segment.stop - run.first
        came = run.headers(low)
        copy = _without_what_was_added(run, low, high)
        if paging.is_doubtful(self.queue, segment):
            copy.shape = copy.shape.marked()
        space = space_of(self.queue.address.name)
        name = space + came[ORIGINAL_ADDRESS]
        address = engine.addresses[name]
        own = space + came.get(ORIGINAL_QUEUE, "")
        if own in address.anycast or own in address.named:
            copy.queue, copy.routing = own, ANYCAST if own in address.anycast else MULTICAST
            engine.route(address, copy)
        else:
            engine.forward(name, copy)

    def _end(self) -> Iterator[None]:
        """What has stayed goes back, some in each step, before anything of the queue is handed out."""
        engine, queue = self.engine, self.queue
        if self._is_too_much:
            self.stayed[TOO_MUCH] += depth_of(queue).ready
        dispatch.withhold(engine, [queue])
        for parts in taken_off(self._aside, STEP):
            for part in parts:
                queue.address.memory.release(part.run)
                queue.backlog.put_back(part)
            engine.work.spend(MESSAGE * len(parts))
            yield
        dispatch.release(engine, [queue])
        if not self.is_done:  # else the queue is gone
            queue.begin_redrive(None)
            queue.dispatch()
            self.give_up()

    def give_up(self) -> None:
        """Nothing more goes: it is done, or the queue is gone, and with it what was set aside."""
        self.is_done = True
        for part in self._aside:
            self.queue.address.memory.release(part.run)
        self._aside.clear()
        if self.on_done is not None:
            self.on_done(self.count)

    def __repr__(self) -> str:
        return f"<Redrive of {self.queue.name} {self.count} {'done' if self.is_done else 'under way'}>"


def _parts(segment: Segment, among: Ranges | None) -> list[Segment]:
    """The parts of a segment that are sent each by itself: those that came from one place, and of which all are chosen, or none."""
    if among is None:
        return _alike(segment)
    edges = [edge for part in among.within(segment.first, segment.stop) for edge in part]
    cuts = sorted({segment.first, *edges, segment.stop})
    return [part for low, high in pairwise(cuts) for part in _alike(segment.part(low, high))]


def _alike(segment: Segment) -> list[Segment]:
    """Its messages that came from one place; each by itself where their headers do not say it for all."""
    if redelivery.ADDED.isdisjoint(set(segment.run.shape.holes) - {ORIGINAL_ID}):
        return [segment]
    return [segment.part(offset, offset + 1) for offset in range(segment.first, segment.stop)]


def _without_what_was_added(run: Run, low: int, high: int) -> Run:
    shape = run.shape
    kept = [
        (name, column[low:high])
        for name, column in zip(shape.holes, run.columns, strict=True)
        if name not in redelivery.ADDED
    ]
    headers = {name: value for name, value in shape.headers.items() if name not in redelivery.ADDED}
    changed = shape.with_headers(headers, holes=tuple([name for name, _ in kept]), expires=0)
    return Run(changed, run.bodies[low:high], tuple([column for _, column in kept]), sender=run.sender)


class Move(Redrive):
    """Moves the messages of a queue to another address. `to`: the address. The messages keep their headers, and are new ones there."""

    def __init__(
        self,
        engine: Engine,
        queue: Queue,
        to: str,
        *,
        most: int = -1,
        on_done: Callable[[int], None] | None = None,
    ) -> None:
        self.to = to
        super().__init__(engine, queue, most=most, on_done=on_done)

    def _target(self, segment: Segment) -> str:
        return self.to

    def _send_back(self, segment: Segment) -> int:
        fitting = self._forwarded(segment)
        if fitting is None:
            return 0
        self._gone(fitting, "moved")
        return len(fitting)

    def _forwarded(self, segment: Segment) -> Segment | None:
        """What the other address has taken of them."""
        fitting = self._fitting(self.to, segment)
        if fitting is None:
            return None
        run = fitting.run
        low, high = fitting.first - run.first, fitting.stop - run.first
        shape = run.shape.marked() if is_doubtful(self.queue, fitting) else run.shape
        copy = Run(
            shape,
            run.bodies[low:high],
            tuple([column[low:high] for column in run.columns]),
            sender=run.sender,
        )
        self.engine.forward(self.to, copy)
        return fitting


class Copy(Move):
    """Sends copies of the messages of a queue to another address. They stay where they are, and wait in memory until it is done."""

    def _send_back(self, segment: Segment) -> int:
        fitting = self._forwarded(segment)
        self.count += 0 if fitting is None else len(fitting)
        return 0


class Discard(Redrive):
    """Drops messages of a queue for good."""

    def _target(self, segment: Segment) -> str:
        return ""

    def _send_back(self, segment: Segment) -> int:
        self._gone(segment, "purged")
        return len(segment)
