"""Who gets a message later than it comes: where very many are to get it, or to be told that they do not, and readers of the log by offset.

A message for very many subscriptions of an address goes to some of them at a time, so that others have their turn in between (`Fanout`).
It has its offset, is in the log where anybody needs it there, and is in the next commit as soon as it is sent; who gets it was decided
then, too: by groups, whose queues nobody walks through. What waits (`Waiting`) is that their queues are offered it. Messages of the
address go one after the other, so each queue has them in order, and who subscribes meanwhile gets what is sent later. Who leaves is
left out.

A queue that leaves its messages in the log (paging.py) reads there up to what it has been offered (`Queue.log_end`), so it finds no
message before its turn. A mark among the log's cursors keeps there what waits. The sender takes the steps, as those of a long frame;
nobody depends on that he does.

Readers of a log by offset are shown what a commit has stored, and nothing before (`show`). Who was told an offset comes back with it.
Until a commit has landed a crash would give the offset to another message, and whoever goes on behind it would never see that one. So all
that comes to an address with readers goes into the log, whether it is persistent or not, and from there to each of them: in order, in
turns of the engine's work. Up to where they were shown it is `Log.shown`. Where too much is to be shown they read it in the log, as any
other reader who is behind (paging.py). Queues and plain subscriptions are told no offset to come back with: they wait for nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses import lifetimes, redelivery, routing
from stompbox.broker.addresses.contracts import address_of
from stompbox.broker.logs.cursor import FAR
from stompbox.broker.logs.segments import cost_of
from stompbox.broker.queues import paging
from stompbox.broker.queues.matching import wanted
from stompbox.broker.work import MESSAGE

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.routing import Groups, Targets, Untaken
    from stompbox.broker.queues.matching import Range
    from stompbox.broker.queues.queue import Queue
    from stompbox.message import Run


SHOWN: Final = 256  # readers of a log that are shown a message in one step


def show(address: Address) -> None:
    """A commit has landed: its messages go to the readers of the address."""
    log, engine = address.log, address.engine
    unshown = log.unshown or ()
    if sum(map(cost_of, unshown)) > engine.page_size or any(run.is_staged for run in unshown):
        _leave_in_log(address)
    engine.later.take((show, address), _showing(address))


def _leave_in_log(address: Address) -> None:
    log = address.log
    starts = [
        (queue, max(queue.log_end, queue.cursor.position))
        for queue in address.streams.values()
        if queue.paged_from < 0
    ]
    log.show(log.committed)
    log.skip_unshown()
    for queue, first in starts:
        if first < log.shown:
            queue.leave_in_log(first)
            address.engine.dispatch_later(queue)


def _showing(address: Address) -> Iterator[None]:
    """Shows the runs that are stored to those who read by offset; in each step a run, or the messages of it that go to all at once, or
    some of very many readers."""
    log, engine = address.log, address.engine
    while log.unshown:
        run = log.unshown[0]
        first = max(run.first, log.shown)
        stop = min(run.stop, first + max(1, SHOWN // max(1, len(address.streams))))
        yield from _showing_part(address, run, (log.shown, first, stop))
        if stop == run.stop and log.unshown and log.unshown[0] is run:
            log.unshown.popleft()
        yield
    if engine.logs.get(log.id) is address:
        _end_showing(address)


def _showing_part(address: Address, run: Run, part: tuple[int, int, int]) -> Iterator[None]:
    """Shows messages of a run to all readers, SHOWN in each step; who has come meanwhile, or has read up to there, is the last. It ends
    where all find them in the log after all."""
    log, engine, limit = address.log, address.engine, address.engine.work.done + address.engine.work.most
    ahead, left = log.show_ahead(part[2]), list(address.streams.values())
    while left:
        some, left = left[:SHOWN], left[SHOWN:]
        for queue in some:
            # else it finds it in the log
            if queue.id not in ahead and queue.id in address.streams and queue.paged_from < 0:
                ahead.add(queue.id)
                _show_to(queue, run, part, limit)
        engine.work.spend(MESSAGE * len(some))
        if not left:
            left = [
                queue for queue in address.streams.values() if queue.id not in ahead and queue.paged_from < 0
            ]
        if left:
            yield
            if not log.is_showing(ahead):
                return
            limit = engine.work.done + engine.work.most
    log.show(part[2])


def _show_to(queue: Queue, run: Run, part: tuple[int, int, int], limit: int) -> None:
    """Shows a reader some messages of a run. `part`: up to where all was shown before, and what of the run is shown now."""
    at, low, high = part
    start = max(low, queue.cursor.position)
    ranges = [
        (max(first, start), stop)
        for first, stop in routing.of_reader(address_of(queue), queue, run, (low, high), limit)
        if stop > start
    ]
    for first, stop in ranges:
        _pass_over(queue, at, first)
        at = stop
        queue.offer(run, first, stop)
    _pass_over(queue, at, high)


def _pass_over(queue: Queue, first: int, stop: int) -> None:
    """What the log has there is not for this reader; its stored position knows only what it was told."""
    if queue.is_durable and queue.paged_from < 0:
        queue.cursor.pass_over(first, stop)
        queue.cursor.reach_all()


def _end_showing(address: Address) -> None:
    """Ends the showing when all that is stored was shown; what nobody keeps may go."""
    log, engine = address.log, address.engine
    before = log.show(log.committed)
    for queue in address.streams.values():
        _pass_over(queue, before, log.shown)
    if log.trimmed < log.kept_from(engine.now) and log.trimmed < log.stored:
        engine.commits.dirty[address] = None


# queues that are offered a message, or parts of a run, at once; where there are more, it goes in steps
MANY: Final = 256
AT_ONCE: Final = 64  # queues of one step: some tenths of a millisecond
# times as long as to offer a message to a queue it takes to put off what its selector is asked
LATER: Final = 8
STEP: Final = 64  # queues of one step that may go then
# entries of lists of queues, made for one run alone, beyond which the sender of the next one takes all steps
MOST: Final = 1 << 20


class Waiting:
    """A run, and the queues that are to be offered it. `parts`: what of it each takes, None where its selector is asked in its turn;
    where all take the same, that stands in `same`. `untaken`: what of it nobody has taken, where that goes to the dead letter address.
    `left_out`: queues that do not want what this sender has sent. `had`: those that had their turn. `joined`: the number of the last queue
    that the address had then."""

    __slots__ = ("had", "joined", "left_out", "parts", "queues", "run", "same", "size", "untaken")

    def __init__(
        self,
        run: Run,
        groups: Groups,
        left_out: Iterable[Queue],
        joined: int,
        untaken: Untaken | None = None,
    ) -> None:
        self.run = run
        self.untaken = untaken
        self.left_out = frozenset(left_out)
        self.joined = joined
        self.had: set[Queue] = set()
        self.queues, self.same = groups[0]
        self.parts: list[list[Range] | None] | None = None
        self.size = 1
        if len(groups) > 1:
            self.queues, self.parts = [], []
            for queues, ranges in groups:
                self.queues += queues
                self.parts += [ranges] * len(queues)
            self.size = len(self.queues)

    @property
    def left(self) -> int:
        return len(self.queues) - len(self.had)

    def next(self) -> tuple[Queue, list[Range] | None]:
        """The queue whose turn it is, and the ranges that are for it."""
        at = len(self.had)
        queue = self.queues[at]
        self.had.add(queue)
        return queue, self.same if self.parts is None else self.parts[at]

    def is_before(self, queue: Queue) -> bool:
        """Whether a queue may still have its turn."""
        return queue.joined <= self.joined and queue not in self.had


class Fanout:
    """The runs of one address that wait until all who get them have been offered them."""

    __slots__ = ("_mark", "address", "is_offering", "leaving", "runs", "size")

    def __init__(self, address: Address, first: int) -> None:
        self.address = address
        self.runs: deque[Waiting] = deque()
        self.size = 0  # of all of them
        self.is_offering = False  # some queue is offered something just now
        # their last consumer has gone meanwhile: they may go when they have been offered all
        self.leaving: dict[Queue, None] = {}
        self._mark = address.engine.volatile_cursor(first)
        self._mark.reach_all()
        address.log.hold(self._mark.id, self._mark)
        address.log.offer_below(first)

    @property
    def first(self) -> int:
        """The offset of the first message that waits."""
        return self.runs[0].run.first

    def add(self, waiting: Waiting) -> None:
        self.runs.append(waiting)
        self.size += waiting.size

    def step(self) -> None:
        """Some queues get what waits for them, one at the least, if nobody is at it just now."""
        if self.is_offering or not self.runs:
            return
        waiting = self.runs[0]
        count, work = min(AT_ONCE, waiting.left), self.address.engine.work
        work.spend(MESSAGE * count)
        self.is_offering = True
        try:
            for _ in range(count):
                self._offer(waiting, *waiting.next())
                if work.is_late:  # what a selector cost
                    break
        finally:
            self.is_offering = False
        if not waiting.left:
            if waiting.untaken is not None and not waiting.run.is_withdrawn:
                _send_untaken(self.address, waiting.run, waiting.untaken)
            self.runs.popleft()
            self.size -= waiting.size
            self._move()

    def _move(self) -> None:
        """The log need not keep what all have been offered."""
        address, log = self.address, self.address.log
        if self.runs:
            self._mark.move(self.first)
            log.offer_below(self.first)
        else:
            address.follow(None)
            log.offer_below(FAR)
            log.let_go(self._mark.id)
            if self.leaving:
                address.engine.later.take(self, _leaving(self))
        if log.trimmed < log.stored and address.engine.addresses.get(address.name) is address:
            address.engine.commits.dirty[address] = None

    def _offer(self, waiting: Waiting, queue: Queue, ranges: list[Range] | None) -> None:
        run, engine = waiting.run, self.address.engine
        if queue.id not in engine.queues:
            return
        if queue in waiting.left_out:
            if not queue.is_durable:  # those were told at once, so that a crash does not change it
                queue.skip(run.first, run.stop)
            return
        if run.is_withdrawn:
            for first, stop in ranges or [(run.first, run.stop)]:
                queue.skip(first, stop)
            return
        if ranges is None:
            ranges = _asked(queue, run, must_know=waiting.untaken is not None)
        if waiting.untaken is not None:
            waiting.untaken.take(ranges)
        if queue.paged_from >= 0:
            engine.log_run(self.address, run, is_loose=True)
        engine.work.spend(MESSAGE * (len(ranges) - 1))
        for first, stop in ranges:
            if queue.tally is not None:
                queue.tally.came(run, [(first, stop)])
            queue.offer(run, first, stop)

    def end_for(self, queue: Queue) -> int:
        """Up to where a queue has been offered what the log has for it."""
        return next(
            (waiting.run.first for waiting in self.runs if waiting.is_before(queue)), self.address.log.next
        )

    def __repr__(self) -> str:
        return f"<Fanout of {self.address.name}: {len(self.runs)} runs for {sum(waiting.left for waiting in self.runs)} queues>"


def _asked(queue: Queue, run: Run, *, must_know: bool) -> list[Range]:
    """What a queue gets whose selector is asked in its turn: it leaves the run in the log and asks, unless its rules must know now, or
    those of its address and it does not take long. What is not known now counts as taken."""
    selector, most = queue.selector, queue.engine.work.most
    must_know = (
        must_know and selector is not None and not selector.is_costly and selector.steps * len(run) <= most
    )
    if selector is None or (not must_know and paging.put_off(queue, run)):
        return [(run.first, run.stop)]
    return wanted(selector, run, run.first, run.stop, queue.address, queue=queue.id)


def _must_know(queues: Iterable[Queue]) -> bool:
    """Whether the rules of one of them, as a ring's, do not let it ask its selector later; all together it may take too long to ask now."""
    return any(queue.admission is not None for queue in queues)


def _leaving(fanout: Fanout) -> Iterator[None]:
    """Queues that had waited for this, in steps."""
    for number, queue in enumerate(fanout.leaving, 1):
        lifetimes.queue_left(fanout.address.engine, queue)
        if number % STEP == 0:
            yield


def audience(address: Address, run: Run) -> tuple[Targets, Groups]:
    """Who gets a run at an address with very many subscriptions, or those that choose: the queues that are offered it at once, and those
    to be offered it in steps."""
    if not run.queue:
        targets, groups = routing.split(address, run)
        sizes = [len(queues) * (LATER if ranges is None else len(ranges)) for queues, ranges in groups]
        are_few = address.fanout is None and sum(sizes) <= MANY
        is_strict = address.settings.send_to_dla_on_no_route
        if are_few and not any(
            ranges is None and (is_strict or _must_know(queues)) for queues, ranges in groups
        ):
            return targets + routing.flat(address, groups, run), []
        return targets, groups
    exact = routing.exactly(address, run)
    is_behind = address.fanout is not None and exact and exact[0][0].id in address.topics
    return ([], [([queue], ranges) for queue, ranges in exact]) if is_behind else (exact, [])


def has_durable(address: Address, run: Run, groups: Groups) -> bool:
    """Whether one of these needs the run on the disk."""
    if not groups or not address.named:
        return False
    sender = run.sender or -1
    return any(
        queue.cursor.unsaved is not None and queue.no_local != sender
        for queues, _ in groups
        for queue in queues
    )


def leave_untaken(address: Address, run: Run, targets: Targets, groups: Groups) -> bool:
    """Sends what none of these takes to the dead letter address, at once, or when all groups have been offered the run. True when the
    run's receipt must wait for the next commit."""
    untaken = routing.untaken(run, targets, address.engine.course.path)
    if not groups:
        return _send_untaken(address, run, untaken)
    put_off(address, run, groups, untaken)
    return False


def _send_untaken(address: Address, run: Run, untaken: Untaken) -> bool:
    ranges = untaken.ranges
    if not ranges:
        return False
    engine, course = address.engine, address.engine.course
    engine.counters["unrouted"] += sum([stop - first for first, stop in ranges])
    before = course.path
    course.go_on(untaken.path)
    try:
        return redelivery.unrouted(engine, address, run, ranges)
    finally:
        course.go_back(before)


def put_off(address: Address, run: Run, groups: Groups, untaken: Untaken | None = None) -> None:
    """Has the queues of these groups offered the run in steps."""
    fanout = address.fanout
    if fanout is None:
        fanout = Fanout(address, run.first)
        address.follow(fanout)
        address.engine.later.add(fanout, lambda: _go_on(address), by=run.sender)
    fanout.add(Waiting(run, groups, address.no_locals.get(run.sender, ()), address.uses, untaken))
    while fanout.size > MOST and not fanout.is_offering:
        fanout.step()


def _go_on(address: Address) -> None:
    """One step, in a turn of its own."""
    fanout = address.fanout
    if fanout is None:
        return
    fanout.step()
    if fanout.runs:
        address.engine.later.add(fanout, lambda: _go_on(address), by=next(iter(fanout.runs)).run.sender)


def finishing(sends: Iterable[tuple[Address, Run]]) -> Iterator[None]:
    """Steps in which runs, which were sent just now, go to all who get them."""
    for address, run in sends:
        while (fanout := address.fanout) is not None and fanout.first <= run.first:
            fanout.step()
            yield
