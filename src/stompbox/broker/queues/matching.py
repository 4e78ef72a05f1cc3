"""Which messages of a run a selector takes, and what asking has cost.

A selector may ask for facts of a message beyond its headers (selectors/facts.py names them). A shape is asked once where it decides, and
each question counts as work of the turn (work.py). What is not asked it would be too much for one turn, `wanted_within` says: who asks
puts those off who can wait (address.py).

A `Plan` says which topic subscriptions take the messages of a shape, where that depends on the values of each message's headers.
A plan is made in portions: what comes until it is whole is put off.
Selectors that hold a header to be equal to a text (`k = 'v'`, alone or with AND) are found by that text, those that compare it with
numbers (`k < 7`, `k BETWEEN 1 AND 5`) by the number that it is: of thousands of subscribers that each wait for values of their own
only those are asked who may get the message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.questions import LIGHT, OPEN, Key
from stompbox.broker.undelivered import TOO_EXPENSIVE, Fate
from stompbox.config.spaces import local
from stompbox.message import Run, Shape
from stompbox.numerals import digits
from stompbox.ranges import add_range
from stompbox.selectors import Budget, Selector
from stompbox.selectors.intervals import Interval, Intervals
from stompbox.selectors.values import number_of_text, value_of

if TYPE_CHECKING:
    from stompbox.broker.queues.contracts import Address
    from stompbox.broker.queues.queue import Queue
    from stompbox.broker.queues.state import QueueState
    from stompbox.config.settings import AddressSettings

Range = tuple[int, int]

LONG: Final = 1_000  # steps, up to which a question is asked in one go
# of a message whose sender has not sent it yet
_NOT_KNOWN_AHEAD: Final = frozenset(("timestamp", "message_id", "durable"))
_ASKED, _TAKEN, _TOO_EXPENSIVE = 1, 2, 4  # of what was asked ahead, about one message


def wanted(
    selector: Selector, run: Run, first: int, stop: int, address: Address, *, queue: int = 0
) -> list[Range]:
    """What of first .. stop-1 the selector takes, as `wanted_within`, whatever it costs."""
    ranges = wanted_within(selector, run, first, stop, address, queue=queue, limit=None)
    assert ranges is not None
    return ranges


def wanted_within(
    selector: Selector,
    run: Run,
    first: int,
    stop: int,
    address: Address,
    *,
    queue: int = 0,
    limit: int | None,
) -> list[Range] | None:
    """The ranges within first .. stop-1 of a run that a selector takes; asked once per shape where the shape decides. `queue` is the id
    of the queue in which they are, or would be: the ids of messages begin with it. 0: none, and the messages have no ids (diverts).
    None: the turn's work went beyond `limit` before all were asked about; beyond its portion, where one question may take most of it."""
    shape = run.shape
    if limit is not None and selector.is_costly:
        limit = min(limit, address.engine.work.portion)
    if not is_of_shape(selector, shape):
        return one_by_one(selector, run, first, stop, address, queue=queue, limit=limit)
    verdict = OfShape(run, first, address).verdict(selector, limit=limit)
    return None if verdict is None else [(first, stop)] if verdict else []


class OfShape:
    """What selectors say of all messages of a shape at an address: each is asked once, about the message of a run at `first`."""

    __slots__ = ("_address", "_first", "_is_durable", "_known", "_run", "_verdicts")

    def __init__(self, run: Run, first: int, address: Address) -> None:
        self._run = run
        self._first = first
        self._address = address
        self._verdicts = address.engine.verdicts
        self._is_durable = not address.is_volatile(run)
        self._known: Facts | None = None  # once one is asked

    def verdict(
        self, selector: Selector, *, limit: int | None, asker: QueueState | None = None
    ) -> bool | None:
        """Whether a selector takes all messages of the shape, or none; None: that takes more than the portion of this turn, where that is
        to count (`one_by_one`)."""
        log = self._address.log.id if "address" in selector.facts else 0
        key = (selector.number, self._run.shape.number, log, self._is_durable)
        verdict = self._verdicts.of(key)
        if verdict is None:
            verdict = self._asked(selector, limit, asker)
            if verdict is not None:
                self._verdicts.note(key, verdict)
        return verdict

    def _asked(self, selector: Selector, limit: int | None, asker: QueueState | None) -> bool | None:
        run, first, address = self._run, self._first, self._address
        known = self._known
        if known is None:
            known = self._known = facts_of_shape(run.shape, address.name, is_durable=self._is_durable)
        if limit is None or not selector.is_costly or not is_long(selector, run, first, first + 1):
            return asked(address, selector, run.shape.headers, known)
        message = run.shape.headers, known, None
        return _asked_in_portions(
            address, selector, message, _key(selector, run, first, None, 0), run, asker=asker
        )

    def __repr__(self) -> str:
        return f"<OfShape {self._run!r} at {self._address.name}>"


def is_long(selector: Selector, run: Run, first: int, stop: int) -> bool:
    """Whether it may take long to ask it about one of these messages: it looks into the body, or for a pattern in what may be long."""
    if selector.needs_body or not selector.is_costly:
        return selector.needs_body
    low, high = first - run.first, stop - run.first
    varying = sum([max(map(len, column[low:high]), default=0) for column in run.columns])
    return selector.searched * (run.shape.octets + varying) // 64 > LONG


def asked(
    address: Address,
    selector: Selector,
    headers: Mapping[str, str],
    known: Facts,
    body: Callable[[], bytes] | None = None,
) -> bool:
    """Whether a selector takes a message of the address. What it costs is work of this turn; that it was too expensive is told."""
    engine = address.engine
    engine.work.spend(selector.steps)
    if not selector.is_costly:
        return selector.matches(headers, known)
    budget = Budget()
    is_taken = selector.matches(headers, known, body, budget)
    engine.work.spend(budget.spent)
    if budget.is_used_up and not is_taken:
        engine.undelivered.note(address.name, TOO_EXPENSIVE, Fate.NOT_MATCHED, 1)
    return is_taken


def one_by_one(
    selector: Selector,
    run: Run,
    first: int,
    stop: int,
    address: Address,
    *,
    segment: Segment | None = None,
    queue: int = 0,
    limit: int | None = None,
    asker: QueueState | None = None,
) -> list[Range] | None:
    """What of first .. stop-1 the selector takes, asked about each message; `segment`: what has become of them in the queue; `asker`: who
    comes again, and goes on with a question whose answer takes longer than this turn."""
    found: list[Range] = []
    engine = address.engine
    work = engine.work
    shared = facts_of_shape(run.shape, address.name, is_durable=not address.is_volatile(run))
    for offset in range(first, stop):
        if limit is not None and work.done > limit:
            return None
        index = offset - run.first
        headers: Mapping[str, str] = run.headers(index) if run.columns else run.shape.headers
        known = facts_of_message(run, index, shared, segment, queue) if selector.is_per_message else shared
        body = None if run.is_large else partial(run.octets, index)
        if not is_long(selector, run, offset, offset + 1):
            is_taken: bool | None = asked(address, selector, headers, known, body)
        else:
            key = _key(selector, run, offset, segment, queue)
            message = headers, known, body
            if limit is None:
                is_taken = engine.questions.answer(key)
                if is_taken is None and run.asked is not None and segment is None:
                    is_taken = _asked_ahead(address, selector, run, index)
                if is_taken is None:
                    is_taken = asked(address, selector, *message)
            else:
                is_taken = _asked_in_portions(address, selector, message, key, run, asker=asker)
        if is_taken is None:
            return None
        if is_taken:
            add_range(found, offset, offset + 1)
    return found


def wanted_by_each(
    selectors: Collection[Selector], segment: Segment, address: Address, *, queue: int
) -> dict[Selector, list[Range]]:
    """What of a segment, which waits in the queue of this id, each of these selectors takes. Very many may be asked about each message:
    what they look at is found out once for all that cost little."""
    run = segment.run
    cheap = [
        one for one in selectors if not (one.is_costly or one.is_per_message or is_of_shape(one, run.shape))
    ]
    together = dict.fromkeys(cheap if len(cheap) > 1 else ())
    found = {one: [] if one in together else address.wanted_of(one, segment, queue) for one in selectors}
    if not together:
        return found
    shared = facts_of_shape(run.shape, address.name, is_durable=not address.is_volatile(run))
    for offset in range(segment.first, segment.stop):
        headers = run.headers(offset - run.first)
        for selector in together:
            if selector.matches(headers, shared):
                add_range(found[selector], offset, offset + 1)
    address.engine.work.spend(len(segment) * sum([selector.steps for selector in together]))
    return found


def asking_ahead(selector: Selector, run: Run, address: Address) -> Iterator[None]:
    """Asks a selector about each message of a run that is to be sent to the address, in steps, as far as the answer is known before it is;
    `wanted` has it then."""
    from stompbox.selectors.question import Question  # loaded with the first XPATH

    if is_of_shape(selector, run.shape) or not _NOT_KNOWN_AHEAD.isdisjoint(selector.facts):
        return
    flags, portion, questions = bytearray(len(run)), address.engine.work.asked, address.engine.questions
    shared = facts_of_shape(run.shape, address.name, is_durable=False)
    for index in range(len(run)):
        if not is_long(selector, run, run.first + index, run.first + index + 1):
            continue
        known = facts_of_message(run, index, shared) if selector.is_per_message else shared
        headers: Mapping[str, str] = run.headers(index) if run.columns else run.shape.headers
        body = None if run.is_large else partial(run.octets, index)
        question = Question(partial(selector.matches, headers, known, body))
        with questions.ahead() as place:
            while not place.may_ask:
                yield
            while (is_taken := question.go_on(portion)) is None:
                yield
        flags[index] = _ASKED | _TAKEN * is_taken | _TOO_EXPENSIVE * question.budget.is_used_up
        yield
    run.note_asked((selector.number, address.name), flags)


def _asked_ahead(address: Address, selector: Selector, run: Run, index: int) -> bool | None:
    flags = None if run.asked is None else run.asked.get((selector.number, address.name))
    found = 0 if flags is None else flags[index]
    if not found:
        return None
    is_taken = bool(found & _TAKEN)
    if found & _TOO_EXPENSIVE and not is_taken:
        address.engine.undelivered.note(address.name, TOO_EXPENSIVE, Fate.NOT_MATCHED, 1)
    return is_taken


def is_answered(
    selector: Selector,
    run: Run,
    first: int,
    stop: int,
    address: Address,
    *,
    segment: Segment | None = None,
    queue: int = 0,
) -> bool:
    """Whether `wanted` tells at once what a selector takes of first .. stop-1. What it has to look into the bodies for, or into long
    headers, is asked as far as the portion of the turn goes; when that is not all, the turn's work is used up, and who asks comes again."""
    if not is_long(selector, run, first, stop):
        return True
    engine = address.engine
    asker, limit = engine.queues.get(queue), engine.work.portion
    if is_of_shape(selector, run.shape):
        return OfShape(run, first, address).verdict(selector, limit=limit, asker=asker) is not None
    found = one_by_one(
        selector, run, first, stop, address, segment=segment, queue=queue, limit=limit, asker=asker
    )
    return found is not None


def asking(selector: Selector, run: Run, offset: int, address: Address) -> Callable[[Budget], bool]:
    """What a selector is asked about one message of the address, given the budget; who asks it has work and turns of their own."""
    index = offset - run.first
    shared = facts_of_shape(run.shape, address.name, is_durable=not address.is_volatile(run))
    known = facts_of_message(run, index, shared) if selector.is_per_message else shared
    headers: Mapping[str, str] = run.headers(index) if run.columns else run.shape.headers
    return partial(selector.matches, headers, known, None if run.is_large else partial(run.octets, index))


def _key(selector: Selector, run: Run, offset: int, segment: Segment | None, queue: int) -> Key:
    """What an answer depends on."""
    own = queue if "message_id" in selector.facts else 0
    if segment is None:
        return selector.number, id(run), offset, own, 0, False
    return selector.number, id(run), offset, own, segment.deliveries, segment.is_redelivered


def _asked_in_portions(
    address: Address,
    selector: Selector,
    message: tuple[Mapping[str, str], Facts, Callable[[], bytes] | None],
    key: Key,
    run: Run,
    *,
    asker: QueueState | None,
) -> bool | None:
    """As `asked`; None: it takes more than the portion of this turn. The `asker` comes again."""
    engine = address.engine
    known = engine.questions.answer(key)
    if known is not None:
        return known
    engine.work.spend(selector.steps)
    ask = partial(selector.matches, *message)
    if asker is None:
        found = engine.questions.try_once(key, run, ask)
    else:
        most = OPEN if selector.needs_body else LIGHT
        found = engine.questions.go_on(
            key, run, ask, now=engine.now, client=asker.client, queue=asker.id, most=most
        )
    if found is None:
        return None
    is_taken, budget = found
    if budget.is_used_up and not is_taken:
        engine.undelivered.note(address.name, TOO_EXPENSIVE, Fate.NOT_MATCHED, 1)
    return is_taken


Facts = dict[str, str | int | float | bool | None]
LONGEST: Final = 18  # digits of a timestamp; what is longer is none


def is_of_shape(selector: Selector, shape: Shape) -> bool:
    """Whether all messages of the shape get the same verdict."""
    return not selector.is_per_message and (not shape.holes or selector.headers.isdisjoint(shape.holes))


def facts_of_shape(shape: Shape, address: str, *, is_durable: bool) -> Facts:
    """Facts that every message of the shape shares. Texts that stand in a header are read there."""
    return {
        "priority": shape.priority,
        "expiration": shape.expires,
        "durable": is_durable,
        "address": local(address),
    }


def facts_of_message(
    run: Run, index: int, shared: Facts, segment: Segment | None = None, queue: int = 0
) -> Facts:
    """What is known of one message; `shared` is what its shape says, `segment` what has become of it in the queue of this id."""
    known = shared.copy()
    known["size"] = len(run.bodies[index]) + run.shape.octets
    known["timestamp"] = _timestamp(run, index)
    known["redelivered"] = run.shape.is_suspect or (segment is not None and segment.is_redelivered)
    known["delivery_count"] = 1 if segment is None else segment.deliveries + 1
    known["message_id"] = f"{queue}-{run.first + index}" if queue else None  # as its MESSAGE will say
    return known


def _timestamp(run: Run, index: int) -> int:
    """A sender's timestamp is kept, otherwise it is the arrival time."""
    shape = run.shape
    given = shape.headers.get("timestamp", "")
    if "timestamp" in shape.holes:
        given = run.columns[shape.holes.index("timestamp")][index].decode("ascii")
    found = digits(given, LONGEST)
    return run.arrived if found is None else found


def selector_entry(selector: Selector | None) -> dict[str, object]:
    """A selector as an entry of the catalogue."""
    return (
        {"selector": None}
        if selector is None
        else {"selector": selector.text, "conversion": selector.conversion}
    )


COMBINATIONS: Final = 4096  # of values, of which a plan remembers who takes them
TAKERS: Final = 400  # octets for one of them, beside QUEUE for each that takes it
KNOWN: Final = (
    COMBINATIONS * TAKERS
)  # octets of what a plan knows of combinations, beyond which it begins anew
BEGUN: Final = 16  # combinations about which a plan is half asked
PLAN: Final = 800  # octets of a plan that knows nothing
QUEUE: Final = 8  # and for each queue that it names
SELECTOR: Final = 150  # and for each selector, by which it is found
FEW: Final = 8  # selectors that compare one header with numbers; so few are asked sooner than found


class Plan:
    """A plan is made once for a shape at an address, and holds until subscriptions change."""

    __slots__ = (
        "__weakref__", "_bounded", "_by_number", "_by_text", "_known_size", "_numbering", "_others", "_read", "always", "at", "begun",
        "by_message", "by_value", "by_value_steps", "is_whole", "known", "left", "settings", "size", "steps", "version",
    )  # fmt: skip

    def __init__(self, version: object, settings: AddressSettings) -> None:
        self.version: object | None = version
        self.settings = settings
        self.steps = 0  # that a message takes of which all are asked that cannot be found by its values
        self.by_value_steps = 0  # those of by_value among them
        self.size = PLAN  # octets, about, without what is known
        self.is_whole = False
        self.left: list[Selector | None] = []  # those that are to be added, the next one last
        self.always: list[Queue] = []
        self.by_value: list[Selector] = []  # those that look at holes
        self.at: list[int] = []  # at which of them
        # values of these holes -> those of by_value that take them
        self.known: dict[tuple[bytes, ...], tuple[Selector, ...]] = {}
        self.by_message: list[Selector] = []  # those that look at each message
        # of by_value, by the headers and the text they must have
        self._by_text: dict[tuple[str, ...], dict[str, list[Selector]]] = {}
        self._bounded: dict[tuple[str, ...], list[tuple[Interval, Selector]]] = {}  # the same by the numbers
        # made of _bounded in the end
        self._by_number: list[tuple[tuple[str, ...], Intervals[Selector]]] = []
        self._numbering: Iterator[int] | None = None
        self._others: list[Selector] = []
        self._read: set[str] = set()  # headers that those of by_value look at
        self._known_size = 0
        # by values, how many that may take them were asked before the work of a turn was used up, and which of these do
        self.begun: dict[tuple[bytes, ...], tuple[int, list[Selector]]] = {}

    def forget(self) -> None:
        """Forgets all that is known, and is out of date."""
        self.version = None
        self.always, self.by_value, self.by_message, self._others = [], [], [], []
        self.known, self._by_text, self._bounded, self._by_number = {}, {}, {}, []
        self.left, self._numbering, self._known_size, self.begun = [], None, 0, {}

    def begin(self, selectors: Iterable[Selector | None]) -> None:
        """Notes those that are to be added, one after the other."""
        self.left = list(selectors)
        self.left.reverse()
        self.size += QUEUE * len(self.left)

    def added(self) -> None:
        """The next one has been added."""
        self.left.pop()

    def add_always(self, queues: Collection[Queue]) -> None:
        """Adds queues that get all messages of the shape."""
        self.always.extend(queues)
        self.size += QUEUE * len(queues)

    def add_by_message(self, selector: Selector) -> None:
        self.by_message.append(selector)
        self.steps += selector.steps
        self.size += SELECTOR

    def add_by_value(self, selector: Selector) -> None:
        self.by_value.append(selector)
        self._read |= selector.headers
        self.size += SELECTOR
        if selector.key is not None:
            names, text = selector.key
            self._by_text.setdefault(names, {}).setdefault(text, []).append(selector)
        elif selector.bounds is not None:
            names, interval = selector.bounds
            self._bounded.setdefault(names, []).append((interval, selector))
        else:
            self._others.append(selector)
            self.by_value_steps += selector.steps

    def complete(self, shape: Shape) -> None:
        """The plan has all selectors now, and finds them."""
        self.is_whole = True
        self.steps += self.by_value_steps
        self.at = [at for at, name in enumerate(shape.holes) if name in self._read]

    def steps_of(self, run: Run) -> int:
        """The steps that a run takes at the least: those for each message, and for the first combination of values that is not known
        yet. Of the others as many are asked about as there is work left for, so that each run makes more of them known."""
        fresh = set(zip(*[run.columns[at] for at in self.at], strict=True)) - self.known.keys()
        return (self.steps - self.by_value_steps) * len(run.bodies) + (self.by_value_steps if fresh else 0)

    def candidates(self, headers: Mapping[str, str]) -> list[Selector]:
        """The selectors of `by_value` that may take a message. Nothing is left of `numbering`."""
        candidates = self._others
        for names, by_text in self._by_text.items():
            text = value_of(headers, names)
            if text in by_text:
                candidates = candidates + by_text[text]
        for names, intervals in self._by_number:
            text = value_of(headers, names)
            number = None if text is None else number_of_text(text)
            if number is not None:
                candidates = candidates + intervals.around(number)
        return candidates

    def numbering(self) -> Iterator[int]:
        """What is left to be done until those that compare with numbers are found by them, in steps: each is how many it has looked at."""
        if self._numbering is None:
            self._numbering = _numbering(self._bounded, self._by_number, self._others)
        return self._numbering

    def break_off(self, values: tuple[bytes, ...], count: int, takers: list[Selector]) -> None:
        """Remembers how far asking about these values has come; of BEGUN the one that was broken off first is forgotten."""
        if len(self.begun) >= BEGUN:
            del self.begun[next(iter(self.begun))]
        self.begun[values] = count, takers

    def know(self, values: tuple[bytes, ...], takers: tuple[Selector, ...]) -> int:
        """Remembers who takes these values, and returns how many octets more that is, or less: beyond KNOWN it remembers them alone."""
        octets, gone = TAKERS + QUEUE * len(takers), 0
        if self._known_size + octets > KNOWN:
            gone, self._known_size, self.known = self._known_size, 0, {}
        self.known[values] = takers
        self._known_size += octets
        return octets - gone

    def __repr__(self) -> str:
        return f"<Plan always={len(self.always)} by_value={len(self.by_value)} by_message={len(self.by_message)}>"


def _numbering(
    bounded: Mapping[tuple[str, ...], list[tuple[Interval, Selector]]],
    found: list[tuple[tuple[str, ...], Intervals[Selector]]],
    others: list[Selector],
) -> Iterator[int]:
    for names, items in bounded.items():
        if len(items) < FEW:
            others += [selector for _, selector in items]
        else:
            intervals = Intervals(items)
            found.append((names, intervals))
            yield from intervals.building()


def missing(ranges: list[Range], first: int, stop: int) -> Iterator[Range]:
    """The offsets of first .. stop-1 that are in none of the ranges, which are in order."""
    for low, high in ranges:
        if first < low:
            yield first, low
        first = high
    if first < stop:
        yield first, stop
