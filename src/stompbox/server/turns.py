"""The turn of the loop has a budget: what one client causes beyond it waits for the next turn, behind the other connections.

| work                                                          | one step                    | waits as                     |
|---------------------------------------------------------------|-----------------------------|------------------------------|
| what strangers say first (reading.py)                         | a connection                | the others                   |
| frames of one read (reading.py)                                | an event: a frame, or a run | the rest of the read         |
| COMMIT, ABORT, UNSUBSCRIBE and what else is long of itself    | some of its messages        | the rest of the frame        |
| what TLS has of a read (transport/tlstransport.py)            | STEP octets, or RECORDS     | not read, in a Line          |
| frames of WebSocket (transport/websocket.py)                  | TURN of them                | not read, in a Line          |
| what the link of a front, or of a node, has brought (fronts/records.py) | SOME records, for PART | not read, until the next turn |
| clients of a front that are not read, or do not read (fronts/relay.py) | SOME of them        | the others                   |
| clients of a front that are read again (fronts/relay.py)      | AGAIN of them               | the others                   |
| what is said to a client whose frames are logged (outgoing.py) | SHOWN octets               | the rest of it               |
| a SEND to very many subscriptions (broker/addresses/fanout.py)          | some of them                | the rest of the frame        |
| a SEND to many destinations (frames/sending.py)               | what they are; some of them | the rest of the frame        |
| SUBSCRIBE to a wildcard                                       | some of what it covers      | the rest of the frame        |
| a reload (reloading.py)                                       | a connection, an address    | the others                   |
| a SUBSCRIBE with a long selector                              | its texts, its tree, its code | the rest of the frame      |
| connections that are lost                                     | a connection                | all of them, as one          |
| connections whose front is gone (fronts/remote.py)            | a connection                | the others                   |
| connections of a broker that stops (stopping.py)              | SOME of them                | the others                   |
| sockets whose peers have ended                                | FEW of them                 | all of them, beside the queue |
| sockets that are accepted (transport/tcp.py)                  | FEW of them, uvloop's one   | in the system's backlog      |
| sockets that are read (sockets.py)                            | a read                      | in the system                |
| a connection that ends (connection.py)                        | some of what it had         | the rest of it               |
| messages to be encoded and written (delivering.py)            | some subscriptions, or OCTETS | the others                 |
| large bodies, and long answers, to be written (outgoing.py)   | a piece, or a PORTION       | the others                   |
| a commit with news of very many addresses, before and after it | some of them               | the rest of it               |
| RECEIPTs that a commit has let out (releasing.py)             | a portion of a connection's | the others                   |
| requests, lists and metrics, which are coroutines (in_turns)  | an item                     | `give_way`                   |
| what a request was made into (requests/jsontext.py)           | BATCH items go              | the others                   |

A turn is what the loop does from one look at the sockets to the next, and there is one budget for all of it, whoever's it is:

1. What was read is obeyed. A read that is small is obeyed at once, as far as a whole turn goes, until all that was read has taken LATE;
   from there on one event of each is, a frame or a run, and the rest waits, until none of them does any more: to put off who says a frame
   would cost as much as to obey it. Another read has what is left of this turn, and waits where nothing is left, or somebody waits
   already; a stranger's small one waits where nothing is left.
2. What came of that goes out, before anything else: so a client that does little never waits for one that does much.
3. What waits goes on, as long as there is time, and one step of it at the least, in this turn or where what was read has taken it in
   the next: what goes out first, with half of what is left, since those who were promised something do not wait behind those who ask for
   more; then modest reads, those of no more than MODEST octets: with half of LATE at the least the fresh ones, which have waited from
   their first frame on, and with half of what is left now those that have begun; then what else clients ask for, and what goes on in
   portions in the engine (broker/work.py). Of these two the one that came second comes first in the next turn, and second it comes only
   where time is left. Each has a queue, in which users come one after the other, and the connections of each (round robin), so that who
   has a thousand of them has no more turns than who has one; and who is served has a share of the turn; a fresh read has an equal part,
   one frame at the least, and has begun then. Whose last read was not obeyed in one go is among those that have begun from the first.

Why modest reads go before: where the loop is late a client that says little has said more in one read, and would wait behind hundreds who
say much until each of them has had a share, which makes its next read larger. Why fresh ones do: who says a frame does not wait for
hundreds who say forty at a time. A frame that takes long makes its read one of the others, however small it is.

What makes more for the disk than that is through with stands beside all queues until a commit has landed (pressure.py).

The clock is looked at after a step, never within a run: a step is what cannot be cut any further. Who makes steps keeps them short.
"""

from __future__ import annotations

import asyncio
from abc import ABCMeta, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from stompbox.broker.work import AGAIN
from stompbox.server.sockets import Sockets

if TYPE_CHECKING:
    from stompbox.broker.engine import Engine
    from stompbox.broker.work import Disk
    from stompbox.config import Configuration

FOREVER: Final = float("inf")
SMALL: Final = 1024  # octets of a read that is obeyed whatever is left of the turn
MODEST: Final = 16 << 10  # octets of a read that goes before larger ones
# of `max-turn-time`: the step in which this is over is taken to its end, and takes as long again
PLANNED: Final = 0.5
SHARES: Final = 4  # of one turn: so many have some of it, at least
LATE: Final = 0.002  # seconds in which small reads are obeyed at once: those of fifty clients
PART: Final = 0.001  # seconds that a Line has in one turn
OUTWARD, FRESH, BEGUN, INWARD = range(4)  # what waits, in the order in which it is served
FEW: Final = 8  # sockets that are closed, or accepted, in one turn: the loop takes about 30 us for each, in its next one

T = TypeVar("T")
Work = Callable[[float], bool]
"""Takes steps until the clock shows the time, one of them at least. True when there is more to do."""


class Outgoing(Protocol):
    """What goes out of the engine (delivering.py)."""

    def put_off(self) -> None: ...


class Served(Protocol):
    """The broker, as what has turns."""

    engine: Engine
    pressure: Disk
    deliveries: Outgoing
    loop: asyncio.AbstractEventLoop
    has_failed: bool

    def flush(self, *, is_turn_over: bool = False) -> None: ...
    def flush_soon(self) -> None: ...


class _InTurns(metaclass=ABCMeta):
    """Work that waits for a later turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_planned = False

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._begin)

    @abstractmethod
    def _begin(self) -> None:
        """The turn that was planned."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} waiting={len(self._waiting)}>"


class Few(_InTurns):
    """FEW of one kind of work in a turn: the loop itself has something to do for each afterwards, which no clock shows here."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._left = FEW  # of this turn

    def few(self, work: Callable[[], None]) -> None:
        """Does it now, or in a turn in which it is one of few."""
        if self._left and not self._waiting:
            self._left -= 1
            work()
        else:
            self._waiting.append(work)
        self._plan()

    def _begin(self) -> None:
        self._is_planned, self._left = False, FEW
        while self._left and self._waiting:
            self._left -= 1
            self._waiting.popleft()()
        if self._left < FEW:
            self._plan()


class Line(_InTurns):
    """Transports that have read something, and make more of it than they hand on: TLS, WebSocket. They wait in line where those of one turn
    have taken LATE, and have PART of each turn then."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = perf_counter) -> None:
        super().__init__(loop)
        self._clock = clock
        self._latest = FOREVER  # of this turn

    @property
    def is_late(self) -> bool:
        """Who comes now has to wait: others do already, or LATE has passed since it was asked first in this turn."""
        now = self._clock()
        if self._latest == FOREVER:
            self._latest = now + LATE
            self._plan()
        return bool(self._waiting) or now > self._latest

    def wait(self, work: Callable[[], None]) -> None:
        """Does it in a later turn. Who is not done then waits once more."""
        self._waiting.append(work)
        self._plan()

    def _begin(self) -> None:
        self._is_planned, self._latest = False, FOREVER
        until = self._clock() + PART
        while self._waiting:
            self._waiting.popleft()()
            if self._clock() > until:
                break
        if self._waiting:
            self._plan()


class InLine:
    """What waits for one kind of turn. Those whose it is have one after the other, however much of it is theirs; what one has is done in
    the order in which it came."""

    __slots__ = ("_count", "users")

    def __init__(self) -> None:
        # what waits, by whose it is, who comes next the first; empty where nothing does, which each turn asks
        self.users: OrderedDict[object, deque[Work]] = OrderedDict()
        self._count = 0

    def append(self, work: Work, by: object) -> None:
        own = self.users.get(by)
        if own is None:
            self.users[by] = deque((work,))
        else:
            own.append(work)
        self._count += 1

    def take(self) -> tuple[Work, object]:
        """What comes next, and whose it is, who comes again behind the others. There must be something."""
        by, own = self.users.popitem(last=False)
        work = own.popleft()
        if own:
            self.users[by] = own
        self._count -= 1
        return work, by

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<InLine {self._count} of {len(self.users)}>"


class OfLoop:
    """What the sockets of one loop share."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = perf_counter,
        go_out: Callable[[], None] = lambda: None,
    ) -> None:
        self.few = Few(loop).few
        self.line = Line(loop, clock)
        self.sockets = Sockets(loop, clock, go_out)


class Turns(OfLoop):
    """The turns of one broker's loop. `clock` in seconds; it must go on within one turn, which the loop's own time does not."""

    def __init__(
        self, broker: Served, configuration: Configuration, clock: Callable[[], float] = perf_counter
    ) -> None:
        super().__init__(broker.loop, clock, broker.flush)
        self.broker = broker
        self.clock = clock
        self.obey(configuration)
        self._outward = InLine()
        self._fresh = InLine()
        self._begun = InLine()
        self._inward = InLine()
        self._queues = (self._outward, self._fresh, self._begun, self._inward)
        # what makes more for the disk than that is through with: where it waits then, and whose it is
        self._held_up: deque[tuple[InLine, Work, object]] = deque()
        self._of_commits: set[Work] = set()  # what the disk waits for itself
        self._due: deque[Callable[[], None]] = deque()  # what was put off because a turn was over
        self._is_begun = False
        self._is_ending = False  # `serve` goes on, which ends it
        self._is_engine_first = False
        self._has_waited = False  # what waits, for a turn in which there was no time for it
        self.is_crowded = False  # of a small read as well an event is obeyed, and the rest waits
        self._latest = FOREVER  # when those of this turn have had it for long enough
        self._until = 0.0  # when the turn is over
        self._lent = 0.0  # of it, to coroutines that go on behind it
        self.served = 0  # turns in which there was something to do

    def obey(self, configuration: Configuration) -> None:
        """`max-turn-time` and `max-turn-frames` are these from now on."""
        self.budget = PLANNED * configuration.max_turn_time / 1000
        self.frames = configuration.max_turn_frames
        self.share = self.budget / SHARES

    def allowance(self) -> float:
        """The time (clock) until which something that begins now may go on: to the end of the turn, and for a share of one at least."""
        now = self.clock()
        if not self._is_begun:
            self._begin(now)
        return max(self._until, now + self.share)

    def whole(self) -> float:
        """The time (clock) until which something small that begins now may go on: as long as a turn, whatever is left of this one."""
        now = self.clock()
        if self._latest == FOREVER:
            self._latest = now + LATE
        elif now > self._latest:
            self.is_crowded = True
        return now + self.budget

    def _begin(self, now: float) -> None:
        """A turn goes from here up to the end of `serve`. The loop's own time says nothing of that: with uvloop it stands still until
        somebody starts a timer."""
        self._is_begun, self._until = True, now + self.budget
        if not self._is_ending:
            self.broker.flush_soon()

    @property
    def is_over(self) -> bool:
        """Nothing is left of the turn's budget. Who has a share all the same does not ask."""
        now = self.clock()
        if not self._is_begun:
            self._begin(now)
        return now > self._until

    @property
    def is_full(self) -> bool:
        """Who asks for much has to wait: others do already, or nothing is left of the turn."""
        return (
            bool(self._inward or self._begun or self._fresh or self.broker.engine.later.waiting)
            or self.is_over
        )

    def goes_on(self) -> Callable[[], bool]:
        """Says, as often as it is asked, whether what begins now may go on."""
        until, clock = self.allowance(), self.clock
        return lambda: clock() < until

    def later(self, work: Work, rank: int = INWARD, *, by: object = None) -> None:
        """Goes on with it in the next turn, and in each after it, until nothing is left. `rank`: OUTWARD to INWARD. `by`: whose it is, and
        shares the turns with all that is so; None: nobody else's."""
        self._queues[rank].append(work, work if by is None else by)
        self.broker.flush_soon()

    def in_time(self, work: Callable[[], None]) -> None:
        """Does it now, where the turn is not over; else later. All that is done so has one turn, however much it is."""
        if not (self._due or self.is_over):
            work()
            return
        self._due.append(work)
        if len(self._due) == 1:
            self.later(self._catch_up)

    def _catch_up(self, until: float) -> bool:
        while self._due:
            self._due[0]()
            self._due.popleft()
            if self.clock() > until:
                break
        return bool(self._due)

    def run(
        self, steps: Iterator[None], then: Callable[[], None] | None = None, *, is_commit: bool = False
    ) -> None:
        """Takes steps now, as far as there is time, and the others later; `then`, if there is any, when all are done. `is_commit`: the disk
        has nothing before they are, so nothing holds them up that it has to do."""
        work = partial(self._step, steps, then)
        if work(self.allowance()):
            if is_commit:
                self._of_commits.add(work)
            self.later(work)

    def _step(self, steps: Iterator[None], then: Callable[[], None] | None, until: float) -> bool:
        for _ in steps:
            if self.clock() > until:
                return True
        if then is not None:
            then()
        return False

    async def taken(self, steps: Generator[None, None, T], require: Callable[[], None] | None = None) -> T:
        """What steps come to, for a coroutine: it waits for its turn whenever there is no more time. `require` raises, behind that, where
        nobody wants it any more."""
        until = self.allowance()
        while True:
            try:
                next(steps)
            except StopIteration as done:
                made: T = done.value
                return made
            if self.clock() > until:
                until = await self.give_way()
                if require is not None:
                    require()

    async def give_way(self) -> float:
        """For a coroutine that has done much: it goes on when it is its turn, up to the time that this returns."""
        waiter: asyncio.Future[None] = self.broker.loop.create_future()
        self.resolve_later(waiter)
        await waiter
        return self.clock() + self.share

    def resolve_later(self, waiter: asyncio.Future[None], error: Exception | None = None) -> None:
        """Lets a coroutine go on when it is its turn."""
        self.later(partial(self._resolve, waiter, error))

    def _resolve(self, waiter: asyncio.Future[None], error: Exception | None, _: float) -> bool:
        if not waiter.done():
            self._lent += self.share
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        return False

    def go_on(self) -> bool:
        """The disk has done what it was given: AGAIN of those that were held up for having made more have a turn. True when others are
        still."""
        for _ in range(min(AGAIN, len(self._held_up))):
            queue, work, by = self._held_up.popleft()
            queue.append(work, by)
            self.broker.flush_soon()
        return bool(self._held_up)

    def finish(self) -> None:
        """The broker stops: all that was begun is done, however long it takes."""
        while self.waiting:
            while self.go_on():
                pass
            for queue in self._queues:
                self._go_through(queue, queue, FOREVER, self.share)
            self.broker.flush()

    def serve(self) -> None:
        """The sockets were read: what came of it goes out, what waits goes on, and the turn ends."""
        self._is_ending = True
        self.served += 1
        if self._held_up and not self.broker.pressure.is_behind:
            self.go_on()
        fresh, begun = self._fresh.users, self._begun.users
        if fresh or begun or self._inward.users or self._outward.users or self.broker.engine.later.waiting:
            self.broker.flush()
            self._serve()
        self.broker.flush(is_turn_over=True)
        self._is_begun = self._is_ending = False
        self._latest = FOREVER
        self.is_crowded = self.is_crowded and bool(self._fresh or self._begun)

    def _serve(self) -> None:
        broker, now = self.broker, self.clock()
        if broker.has_failed:
            return
        if not self._is_begun:
            self._begin(now)
        self._lent = 0.0
        self._has_waited = not self._has_waited and now > self._until
        if self._has_waited and not self._fresh:  # what was read has taken the turn
            broker.flush_soon()
            return
        self._go_through(self._outward, self._outward, max(now, (now + self._until) / 2), self.share)
        if self._fresh:
            until = max(self._until, self.clock() + LATE / 2)
            self._go_through(self._fresh, self._begun, until, 0.0)
        if self._begun:
            now = self.clock()
            self._go_through(self._begun, self._begun, max(now, (now + self._until) / 2), self.share)
        if self._inward and broker.engine.later.waiting:
            self._share_with_engine()
        elif self._inward:
            self._go_on_inward(self._until)
        elif broker.engine.later.waiting:
            self._go_on_in_engine(self._until)
        if self._outward.users or self._fresh.users or self._begun.users or self._inward.users:
            broker.flush_soon()

    def _share_with_engine(self) -> None:
        half = (self.clock() + self._until) / 2
        self._is_engine_first = not self._is_engine_first
        first, second = (
            (self._go_on_in_engine, self._go_on_inward)
            if self._is_engine_first
            else (self._go_on_inward, self._go_on_in_engine)
        )
        first(half)
        if self.clock() + self._lent < self._until:
            second(self._until)

    def _go_on_inward(self, until: float) -> None:
        self._go_through(self._inward, self._inward, until, self.share)

    def _go_on_in_engine(self, until: float) -> None:
        engine = self.broker.engine

        def goes_on() -> bool:
            return self.clock() + self._lent < until

        while engine.dispatch_rest(goes_on) and goes_on():
            pass
        self.broker.deliveries.put_off()

    def _go_through(self, waiting: InLine, rest: InLine, until: float, least: float) -> None:
        """As many turns as there are pieces of work, as long as there is time; in equal parts of `least` seconds or more, also of who comes
        last. What is not done then waits in `rest`, or for the disk."""
        disk = self.broker.pressure
        for left in range(len(waiting), 0, -1):
            now = self.clock() + self._lent
            work, by = waiting.take()
            made = disk.made
            if not work(now + max(least, (until - now) / left)):
                self._of_commits.discard(work)
            elif work not in self._of_commits and disk.holds_up(made):
                self._held_up.append((rest, work, by))
            else:
                rest.append(work, by)
            if self.clock() + self._lent >= until:
                return

    @property
    def waiting(self) -> int:
        """Pieces of work that wait for their turn."""
        return sum([len(queue) for queue in self._queues]) + len(self._held_up)

    def __repr__(self) -> str:
        return f"<Turns waiting={self.waiting} budget={self.budget * 1000:g} ms>"
