"""A message for very many subscriptions of an address goes to some of them at a time, so that others have their turn in between.

It has its offset, is in the log where anybody needs it there, and is in the next commit as soon as it is sent; who gets it was decided
then, too. What waits (`Waiting`) is only that their queues are offered it. Messages of the address go one after the other, so each queue
has them in order, and who subscribes meanwhile gets what is sent later. Who leaves is left out.

Nothing waits for a queue that leaves its messages in the log (paging.py): what does when it begins to, is in the log from then on. A mark
among the log's cursors keeps it there. The sender takes the steps, as those of a long frame; nobody depends on that he does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from stompbox.broker.cursor import FAR
from stompbox.broker.work import MESSAGE

if TYPE_CHECKING:
    from stompbox.broker.address import Address, Targets
    from stompbox.broker.matching import Range
    from stompbox.broker.queue import Queue
    from stompbox.message import Run

MANY: Final = 256  # queues that are offered a message at once; where there are more, it goes in steps
AT_ONCE: Final = 256  # queues of one step: some milliseconds
MOST: Final = 1 << 20  # queues that wait for messages of one address, beyond which the sender of the next one takes all steps


class Waiting:
    """A run, and the queues that are to be offered it, of which `at` have had their turn. `parts`: what of it each takes; None: all
    take all. `passed`: those that had it before their turn."""

    __slots__ = ("_places", "at", "parts", "passed", "queues", "run")

    def __init__(self, run: Run, targets: Targets) -> None:
        whole = [(run.first, run.stop)]
        self.run = run
        self.queues = [queue for queue, _ in targets]
        self.parts = None if all(ranges == whole for _, ranges in targets) else [ranges for _, ranges in targets]
        self.at = 0
        self.passed: set[Queue] = set()
        self._places: dict[Queue, int] | None = None

    def next(self) -> tuple[Queue, list[Range]]:
        """The queue whose turn it is."""
        at = self.at
        self.at += 1
        return self.queues[at], self.part(at)

    def part(self, at: int) -> list[Range]:
        return [(self.run.first, self.run.stop)] if self.parts is None else self.parts[at]

    def take_out(self, queue: Queue) -> list[Range]:
        """What a queue, whose turn has not come, is to be offered; it has no turn then."""
        at = self._place(queue)
        if at < self.at or queue in self.passed:
            return []
        self.passed.add(queue)
        return self.part(at)

    def has_had(self, queue: Queue) -> bool:
        """Whether it had its turn."""
        return 0 <= self._place(queue) < self.at or queue in self.passed

    def _place(self, queue: Queue) -> int:
        """Its index among all; -1: it gets nothing of this."""
        if self._places is None:
            self._places = {known: at for at, known in enumerate(self.queues)}
        return self._places.get(queue, -1)


class Fanout:
    """Of one address, while something waits."""

    __slots__ = ("_current", "_is_left", "_mark", "address", "runs", "size")

    def __init__(self, address: Address, first: int) -> None:
        self.address = address
        self.runs: deque[Waiting] = deque()
        self.size = 0  # queues of all of them
        self._current: Queue | None = None  # that is offered something just now,
        self._is_left = False  # and leaves it in the log
        self._mark = address.engine.volatile_cursor(first)
        self._mark.reach = FAR
        address.log.cursors[self._mark.id] = self._mark

    @property
    def first(self) -> int:
        """The offset of the first message that waits."""
        return self.runs[0].run.first

    @property
    def is_offering(self) -> bool:
        return self._current is not None

    def add(self, run: Run, targets: Targets) -> None:
        for queue, ranges in targets:
            if queue.is_durable:  # its cursor must not pass over what it is to get
                for first, stop in ranges:
                    queue.reach_to(first, stop)
        self.runs.append(Waiting(run, targets))
        self.size += len(targets)

    def step(self) -> None:
        """Some queues get what waits for them, if nobody is at it just now."""
        if self.is_offering or not self.runs:
            return
        waiting = self.runs[0]
        stop = min(waiting.at + AT_ONCE, len(waiting.queues))
        self.address.engine.work.spend(MESSAGE * (stop - waiting.at))
        while waiting.at < stop:
            queue, ranges = waiting.next()
            if queue not in waiting.passed:
                self._turn(queue, waiting.run, ranges)
        if stop == len(waiting.queues):
            self.runs.popleft()
            self.size -= stop
            self._move()

    def _turn(self, queue: Queue, run: Run, ranges: list[Range]) -> None:
        self._current = queue
        try:
            self._offer(queue, run, ranges)
        finally:
            self._current = None
        if self._is_left:
            self._is_left = False
            self.pass_by(queue)

    def _move(self) -> None:
        """The log need not keep what all have been offered."""
        address, log = self.address, self.address.log
        if self.runs:
            self._mark.position = self.first
        else:
            address.fanout = None
            log.cursors.pop(self._mark.id, None)
        if log.trimmed < log.stored and address.engine.addresses.get(address.name) is address:
            address.engine.commits.dirty[address] = None

    def _offer(self, queue: Queue, run: Run, ranges: list[Range]) -> None:
        if queue.id not in self.address.engine.queues:
            return
        for first, stop in ranges:
            if run.is_withdrawn:
                queue.skip(first, stop)
                continue
            if queue.tally is not None:
                queue.tally.came(run, [(first, stop)])
            queue.offer(run, first, stop)

    # Queues that leave messages in the log

    def end_for(self, queue: Queue) -> int:
        """Up to where a queue has been offered what the log has for it."""
        return next((waiting.run.first for waiting in self.runs if not waiting.has_had(queue)), self.address.log.next)

    def left_in_log(self, queue: Queue, first: int) -> int:
        """From where on the log has the messages of a queue that was to have them from `first` on: what waits is there from now on."""
        for waiting in self.runs:
            if not waiting.run.is_logged:
                self.address.engine.log_run(self.address, waiting.run, is_loose=True)
        return min(first, self.end_for(queue))

    def pass_by(self, queue: Queue) -> None:
        """A queue that leaves its messages in the log is offered at once what waits for it: nothing waits for it any more. What is not
        for it, it must not find there."""
        if queue is self._current:
            self._is_left = True
            return
        for waiting in list(self.runs):
            run = waiting.run
            self._offer(queue, run, waiting.take_out(queue))
            if (run.queue and run.queue != queue.name) or (queue.no_local and queue.no_local == run.sender):
                queue.skip(run.first, run.stop)

    def __repr__(self) -> str:
        return f"<Fanout of {self.address.name}: {len(self.runs)} runs for {self.size} queues>"


def put_off(address: Address, run: Run, targets: Targets) -> Targets:
    """What of the targets is to be offered the run at once; the others get it in steps."""
    at_once: Targets = []
    later: Targets = []
    for target in targets:
        may_wait = target[0].id in address.topics and target[0].paged_from < 0
        (later if may_wait else at_once).append(target)
    if later:
        fanout = address.fanout
        if fanout is None:
            fanout = address.fanout = Fanout(address, run.first)
            address.engine.later.add(fanout, lambda: _go_on(address))
        fanout.add(run, later)
        while fanout.size > MOST and not fanout.is_offering:
            fanout.step()
    return at_once


def _go_on(address: Address) -> None:
    """One step, in a turn of its own."""
    fanout = address.fanout
    if fanout is None:
        return
    fanout.step()
    if fanout.runs:
        address.engine.later.add(fanout, lambda: _go_on(address))


def finishing(sends: Iterable[tuple[Address, Run]]) -> Iterator[None]:
    """Steps in which runs, which were sent just now, go to all who get them."""
    for address, run in sends:
        while (fanout := address.fanout) is not None and fanout.first <= run.first:
            fanout.step()
            yield
