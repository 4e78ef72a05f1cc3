"""Browsers: copies of what a queue holds, for somebody who takes nothing from it.

A browser is a queue of its own that is filled with what the other one holds: what waits, and what is being delivered. What is
in the log alone it reads there by itself, leaving out what was acknowledged meanwhile. It ends with a message `browser:end`
(ActiveMQ Classic, Apollo), or goes on with what arrives (Apollo, browser-end:false). The consumers of a non-destructive queue
(Artemis) are browsers that go on.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from stompbox.broker.kinds import Kind
from stompbox.broker.logs.cursor import Cursor
from stompbox.broker.logs.segments import NO_MORE, Segment
from stompbox.broker.queues import arrivals, dispatch, paging
from stompbox.broker.queues.consumer import AckMode, order
from stompbox.broker.queues.matching import is_answered, wanted
from stompbox.broker.queues.queue import Queue
from stompbox.broker.work import MESSAGE
from stompbox.message import Run, Shape
from stompbox.ranges import Ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompbox.broker.queues.backlog import Backlog, Left
    from stompbox.broker.queues.consumer import Binding, Consumer
    from stompbox.broker.queues.contracts import Engine
    from stompbox.selectors import Selector

END: Final = "browser"  # header of the last MESSAGE
NO_END: Final = -1
STEP: Final = 32  # runs of one step
SENT: Final = 256  # of what a consumer was sent
_FIRST: Final = itemgetter(0)

RunPart = tuple[int, int, Run]
"""first .. stop-1 of a run."""


class Browser(Queue):
    """What one consumer has still to see of another queue. `end`: the offset where the log ended when it began; NO_END: it goes on."""

    __slots__ = ("destination", "end", "found", "shown")

    def __init__(self, engine: Engine, shown: Queue, consumer: Consumer, cursor: Cursor, *, end: int) -> None:
        super().__init__(
            engine,
            shown.address,
            consumer.queue_name,
            kind=Kind.BROWSER,
            cursor=cursor,
            selector=consumer.selector,
        )
        self.shown = shown
        self.end = end
        # scheduled messages that it has, or found in the log itself: the queue may come to them again
        self.found = Ranges()
        self.destination = consumer.destination or shown.name

    def offer(self, run: Run, first: int, stop: int) -> None:
        if _is_scheduled(run):
            self._show_woken(run, first, stop)
            return
        if self.paged_from >= 0:
            self.engine.log_run(self.address, run)  # the queue itself may not need it there
            return
        if not self._is_answered(run, first, stop):  # asked again when it is read there
            self.page(run, first)
            self.engine.dispatch_later(self)
            return
        segment = Segment(run, first, stop)
        for part in _seen(self.selector, self, segment):
            if not self.count and self.takers and not self.share(part, self.takers):
                continue
            if not paging.fits(self, self.size, part):
                self.page(run, part.first)
                return
            self.backlog.push(part)

    def _is_answered(self, run: Run, first: int, stop: int) -> bool:
        """Whether its selector tells at once what of it is shown; else this turn's work is used up."""
        return self.selector is None or is_answered(
            self.selector, run, first, stop, self.address, queue=self.id
        )

    @property
    def sifting(self) -> tuple[Selector | None, ...]:
        return self.shown.selector, self.selector

    def expect(self, run: Run, first: int, stop: int) -> None:
        """Behind `paged_from` it finds them when it reads the log to there."""
        for low, high in list(
            self.found.gaps(first, stop if self.paged_from < 0 else min(stop, self.paged_from))
        ):
            self.found.add(low, high)
            for part in _seen(self.selector, self, Segment(run, low, high)):
                arrivals.wait_for(self, part, arrivals.due_of(run), is_new=True)

    def _show_woken(self, run: Run, first: int, stop: int) -> None:
        """Shows messages whose time has come meanwhile, once: here, or when the log is read to there."""
        for low, high in list(
            self.found.gaps(first, stop if self.paged_from < 0 else min(stop, self.paged_from))
        ):
            self.found.add(low, high)
            for part in _seen(self.selector, self, Segment(run, low, high)):
                self.backlog.push(part)
        self.dispatch()

    def _take_in(self, run: Run, first: int, stop: int) -> None:
        shown = self.shown
        if paging.is_gone(shown, run, first):
            return
        for low, high in (
            list(shown.cursor.ahead.gaps(max(first, shown.cursor.position), stop))
            if shown.is_durable
            else [(first, stop)]
        ):
            if shown.wants(run) and low < high:
                for part in _seen(shown.selector, self, Segment(run, low, high)):
                    for seen in _seen(self.selector, self, part):
                        self._add(seen)

    def _add(self, segment: Segment) -> None:
        due = arrivals.due_of(segment.run)
        is_early = due > self.engine.now
        is_over = 0 < segment.run.shape.expires <= self.engine.now
        is_in_log = segment.first >= self.paged_from >= 0
        if _is_scheduled(segment.run) and (is_in_log or not is_early):
            self.found.add(segment.first, segment.stop)
            if is_early and self.end == NO_END:
                arrivals.wait_for(self, segment, due, is_new=False)
        if not is_early and not is_over:
            self.backlog.common.insert(segment)

    def _loaded_to(self, stop: int) -> None:
        if self.end == NO_END or stop < self.end:
            super()._loaded_to(stop)
            return
        self.paged_from = NO_END
        self._paged_on()
        self.finish()

    def finish(self) -> None:
        """Nothing more is to come: the message that says so."""
        shape = Shape({"destination": self.destination, END: "end"}, persistent=False, priority=0)
        last = Run(shape, [b""], first=self.end, arrived=self.engine.now)
        self.backlog.push(Segment(last, last.first, last.stop))


def browse(engine: Engine, shown: Queue, consumer: Consumer, *, goes_on: bool, first: int = 0) -> Browser:
    """Binds the consumer to a browser of the queue, from offset `first` on."""
    consumer.allowance.require_bindings(consumer)
    next = shown.address.log.next
    # from here on the log has it
    left = max(shown.paged_from, first, shown.cursor.position) if shown.paged_from >= 0 else next
    if shown.is_durable and shown.later is not None:  # what is due and waits for room there
        due = shown.later.first_due(engine.now)
        left = left if due is None else max(first, min(left, due))
    browser = Browser(engine, shown, consumer, engine.volatile_cursor(left), end=NO_END if goes_on else next)
    engine.add_queue(browser)
    if left < next:
        browser.leave_in_log(left)
    if goes_on and not engine.is_view:
        shown.show_to(browser)
        consumer.on_close.append(lambda: shown.hide_from(browser))
    browser.bind(consumer)
    dispatch.withhold(engine, [browser])
    engine.later.take((browse, browser), _filling(browser, Held(shown), first, left), by=consumer.session)
    return browser


def browse_on(engine: Engine, shown: Queue, consumer: Consumer, before: Browser) -> Browser:
    """A browser of the queue in another engine, of a view, that finds in the log what `before` has not read there. Binds nobody."""
    goes_on = before.end == NO_END
    left = before.paged_from if before.is_paged else before.address.log.next
    browser = Browser(engine, shown, consumer, engine.volatile_cursor(left), end=before.end)
    for first, stop in before.found:
        browser.found.add(first, stop)
    engine.add_queue(browser)
    if before.is_paged or (goes_on and left < shown.address.log.next):
        browser.leave_in_log(left)
    return browser


def _part_of(segment: Segment) -> RunPart:
    return segment.first, segment.stop, segment.run


class Out:
    """What consumers have of a queue and have not acknowledged. As it is when this is made, and looked at in steps: what one of them has no
    more meanwhile tells what it was. `end` it."""

    __slots__ = ("_gone", "_queue", "_seen", "_turns")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        # nothing is copied: what a consumer got later has a higher turn, and what goes is noted
        self._turns = {binding: binding.last_turn for binding in queue.bindings if binding.out}
        self._gone: list[RunPart] = []  # what they had then, and have no more
        self._seen = Ranges()  # what was told
        if self._turns:
            queue.show_out(self._goes)

    def _goes(self, binding: Binding, segment: Segment) -> None:
        if segment.turn <= self._turns.get(binding, -1):
            self._gone.append(_part_of(segment))

    def parts(self) -> Iterator[list[RunPart]]:
        """Some in each step, by offset; the steps are in no order, and none has what another one has."""
        for binding, turn in list(self._turns.items()):
            is_sorted = binding.consumer.ack is AckMode.INDIVIDUAL
            for segments in _by_offset(binding) if is_sorted else _as_sent(binding):
                yield self._untold([_part_of(segment) for segment in segments if segment.turn <= turn])
        while self._gone:
            gone, self._gone = self._gone[:STEP], self._gone[STEP:]
            yield self._untold(gone)

    def _untold(self, parts: list[RunPart]) -> list[RunPart]:
        found: list[RunPart] = []
        for first, stop, run in sorted(parts, key=_FIRST):
            for low, high in list(self._seen.gaps(first, stop)):
                self._seen.add(low, high)
                found.append((low, high, run))
        return found

    def end(self) -> None:
        """Nothing more is looked at."""
        self._queue.hide_out(self._goes)
        self._turns, self._gone = {}, []

    def __repr__(self) -> str:
        return f"<Out of {len(self._turns)} consumers>"


def _by_offset(binding: Binding) -> Iterator[list[Segment]]:
    """What a consumer has that acknowledges each message by itself, some in each step."""
    at = NO_MORE
    while True:
        found, at = binding.held.behind(at, STEP)
        yield found
        if at == NO_MORE:
            return


def _as_sent(binding: Binding) -> Iterator[list[Segment]]:
    """What one has that acknowledges all up to a message, among what it has of other queues."""
    last = -1, -1
    while sent := binding.consumer.sent_behind(last, SENT):
        last = order(sent[-1])
        yield [segment for of, segment in sent if of is binding]


class Held:
    """What a queue has in memory: what waits for consumers, and what they have and have not acknowledged. As it is when this is made, and
    looked at in steps: what goes from the backlog meanwhile tells what it was. `end` it."""

    __slots__ = ("_left", "_out", "_waiting")

    def __init__(self, queue: Queue) -> None:
        self._left: Left = {}
        self._waiting = queue.backlog.watch(self._left)
        self._out = Out(queue)

    def parts(self) -> Iterator[list[RunPart]]:
        """Some in each step, by offset; what the steps have may overlap."""
        yield from self._out.parts()
        for backlog, segments in self._waiting:
            for at in range(0, len(segments), STEP):
                found = [self._part(backlog, segment) for segment in segments[at : at + STEP]]
                yield sorted([part for part in found if part is not None], key=_FIRST)

    def _part(self, backlog: Backlog, segment: Segment) -> RunPart | None:
        """As it was at the beginning; None where it was emptied before."""
        left = self._left.pop(id(segment), None)
        if left is None and segment.home is backlog:
            return segment.first, segment.stop, segment.run
        return left

    def end(self) -> None:
        """Gives up the snapshot: the browser shows no more of it."""
        for backlog, _ in self._waiting:
            backlog.unwatch(self._left)
        self._out.end()
        self._waiting = []

    def __repr__(self) -> str:
        return f"<Held {self._out!r} waiting={sum([len(found) for _, found in self._waiting])}>"


def _filling(browser: Browser, held: Held, since: int, left: int) -> Iterator[None]:
    """What the queue had in memory when the browser began, in steps; what comes meanwhile waits behind it."""
    engine = browser.engine
    for parts in held.parts():
        for first, stop, run in parts:
            start = max(first, since)
            if (
                start < stop and stop > left
            ):  # a consumer has it out of the log, where it is not to be found once more
                browser.taken_ahead.add(max(start, left), stop)
            for low, high in paging.portions(browser, run, start, stop):
                while browser.id in engine.queues and not browser._is_answered(run, low, high):
                    yield
                if browser.id not in engine.queues:
                    break
                for part in _seen(browser.selector, browser, Segment(run, low, high)):
                    browser._add(part)
                if engine.work.is_late:
                    yield
            if browser.id not in engine.queues:
                break
        engine.work.spend(MESSAGE * len(parts))
        yield
        if browser.id not in engine.queues:
            break
    held.end()
    dispatch.release(engine, [browser])
    if browser.id in engine.queues:
        if browser.end != NO_END and browser.paged_from < 0:
            browser.finish()
        browser.dispatch()


def _seen(selector: Selector | None, browser: Queue, segment: Segment) -> list[Segment]:
    if selector is None:
        return [segment]
    ranges = wanted(selector, segment.run, segment.first, segment.stop, browser.address, queue=browser.id)
    return [Segment(segment.run, low, high) for low, high in ranges]


def _is_scheduled(run: Run) -> bool:
    return arrivals.due_of(run) > run.arrived
