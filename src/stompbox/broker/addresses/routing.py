"""Which queues of an address a message goes to, and which parts of a run.

Of several anycast queues one gets each message, in turn. Of subscriptions each selector is asked once, however many have it, and once per
shape where the shape decides (`Plan`). What would be too much for one turn is asked later: until then the queues leave the run in the log.
So it is while a plan is made: each run of its shape goes on with it.

Of messages for one of very many queues (message.py, FOR_ONE) no other queue takes any for its own, before a restart or after it. But a
queue that nobody reads would hold them in the log, and all that comes behind; so each queue is told to pass them over (`Passing`), of all
that came since the last round together. A round walks through the queues once, however many messages came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.course import NOWHERE, Path
from stompbox.broker.queues import matching, paging
from stompbox.broker.queues.matching import (
    OfShape,
    Plan,
    Range,
    asked,
    missing,
    wanted,
    wanted_within,
)
from stompbox.broker.queues.queue import Queue
from stompbox.broker.work import MESSAGE
from stompbox.config.spaces import space_of
from stompbox.message import ANYCAST, FOR_ONE, MULTICAST, Run, Shape
from stompbox.ranges import Ranges, add_range, swept
from stompbox.selectors import Selector

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Engine
    from stompbox.broker.kinds import Rules

Targets = list[tuple[Queue, list[Range]]]
Groups = list[tuple[list[Queue], list[Range] | None]]
"""Subscriptions that take the same of a run; None: their selectors are to be asked later. Nobody changes the lists."""


def targets(address: Address, run: Run) -> Targets:
    """The queues that take the run (its offsets are given), and which ranges of offsets; readers of the log get it from there."""
    if run.queue:
        return exactly(address, run)
    targets, groups = split(address, run)
    return targets + flat(address, groups, run) if groups else targets


def split(address: Address, run: Run) -> tuple[Targets, Groups]:
    """The queues of a run, and beside them its subscriptions in groups that take the same messages of it."""
    limit = address.engine.work.done + address.engine.work.most
    targets = (
        _of_anycast(address, run, [(run.first, run.stop)])
        if run.routing & ANYCAST and address.anycast
        else []
    )
    return targets, _of_topics(address, run, limit) if run.routing & MULTICAST and address.topics else []


def flat(address: Address, groups: Groups, run: Run) -> Targets:
    """Queue by queue, without those that do not want what this sender has sent."""
    found: Targets = []
    is_left_out = run.sender in address.no_locals
    for queues, ranges in groups:
        if ranges is None:
            found += _later(address, queues, run)
        elif is_left_out:
            found += [(queue, ranges) for queue in queues if queue.no_local != run.sender]
        else:
            found += [(queue, ranges) for queue in queues]
    return found


def of_reader(address: Address, queue: Queue, run: Run, part: Range, limit: int) -> list[Range]:
    """What a reader of the log is to be shown of a part of a run; nothing, where its selector is to be asked later."""
    first, stop = part
    if queue.selector is None:
        return [(first, stop)]
    ranges = wanted_within(queue.selector, run, first, stop, address, queue=queue.id, limit=limit)
    if ranges is None:
        if queue.admission is None and queue.paged_from < 0:  # it has been shown what is before
            queue.leave_in_log(first)
        found = next((ranges for _, ranges in _later(address, (queue,), run)), [])
        return [(max(low, first), min(high, stop)) for low, high in found if low < stop and high > first]
    return ranges


def _later(address: Address, queues: Iterable[Queue], run: Run) -> Targets:
    """Their selectors are asked in turns of their own: until then the queues leave the run in the log."""
    found: Targets = []
    for queue in queues:
        if queue.no_local and queue.no_local == run.sender:
            continue
        if paging.put_off(queue, run):
            found.append((queue, [(run.first, run.stop)]))
        elif queue.selector is not None and (
            ranges := wanted(queue.selector, run, run.first, run.stop, address, queue=queue.id)
        ):
            found.append((queue, ranges))
    return found


def exactly(address: Address, run: Run) -> Targets:
    """The queue that the run names, if the address has it."""
    whole = [(run.first, run.stop)]
    kind, queues = (ANYCAST, address.anycast) if run.routing & ANYCAST else (MULTICAST, address.named)
    queue = queues.get(run.queue)
    if queue is None:
        return []
    run.routing = kind | queue.cursor.number << FOR_ONE
    return [(queue, whole)]


def others(address: Address, run: Run) -> Iterator[Queue]:
    """Queues that would take a run if it did not name another."""
    for queue in (address.anycast if run.routing & ANYCAST else address.topics).values():
        if queue.name != run.queue:
            yield queue


class Untaken:
    """Which messages of a run nobody has taken so far; by which `path` it has come."""

    __slots__ = ("_is_taken", "_run", "path")

    def __init__(self, run: Run, path: Path = NOWHERE) -> None:
        self.path = path
        self._run = run
        self._is_taken = bytearray(len(run.bodies))

    def take(self, ranges: Iterable[Range]) -> None:
        for first, stop in ranges:
            low, high = first - self._run.first, stop - self._run.first
            self._is_taken[low:high] = b"\1" * (high - low)

    @property
    def ranges(self) -> list[Range]:
        found: list[Range] = []
        at = self._is_taken.find(0)
        while at >= 0:
            end = self._is_taken.find(1, at)
            end = end if end >= 0 else len(self._is_taken)
            found.append((self._run.first + at, self._run.first + end))
            at = self._is_taken.find(0, end)
        return found

    def __repr__(self) -> str:
        return f"<Untaken {self.ranges} of {self._run!r}>"


def untaken(run: Run, targets: Targets, path: Path) -> Untaken:
    """Which messages of a run, which has come by this path, are for none of these."""
    found = Untaken(run, path)
    for _, ranges in targets:
        found.take(ranges)
    return found


def set_aside(address: Address, run: Run, targets: Targets) -> None:
    """What a queue does not get although its selector and routing would take it, it must not find in the log later."""
    if run.routing >> FOR_ONE and len(address.anycast if run.routing & ANYCAST else address.topics) > FEW:
        (address.passing or address.pass_by(Passing(address))).note(run)
    elif run.queue:
        for queue in others(address, run):
            queue.skip(run.first, run.stop)
    elif (len(address.anycast) > 1 or address.has_disabled) and run.routing & ANYCAST:
        taken = {queue.id: ranges for queue, ranges in targets}
        for queue in address.anycast.values():
            for first, stop in missing(taken.get(queue.id, []), run.first, run.stop):
                queue.skip(first, stop)
    if run.routing & MULTICAST and run.sender in address.no_locals:
        for queue in address.no_locals[run.sender]:
            if queue.cursor.unsaved is not None or queue.paged_from >= 0:
                queue.skip(run.first, run.stop)


def asks_of_bodies(address: Address) -> bool:
    """Whether what is sent there is asked about by selectors that look into it, before anybody gets it: those of diverts, of what they send
    on to, and filters of anycast queues. What they cost cannot be put off, so that messages had better come one by one."""
    return next(_looking(address), None) is not None


NUMBERED: Final = 250  # messages of one step whose numbers are looked for, and remembered: half a millisecond
ADMITTED: Final = 50  # messages that one last-value queue admits in one step: the same
# and messages for which one ring makes room: each may push out one that stands alone; the same of those that topic subscriptions choose
ROLLED: Final = 4 * ADMITTED
# of those that one queue or divert chooses by its filter, and sends on each by itself where it takes every other one
CHOSEN: Final = ADMITTED
TRANSFORMED: Final = ADMITTED // 2  # of those that one divert changes
ALL: Final = 1 << 62


def portion_of(shape: Shape) -> int:
    """Messages of one run that may go in one step, wherever they are sent: of what repeats each makes a schedule (repeating.py), and each
    number is looked for (duplicates.py)."""
    special = shape.special
    if special is None:
        return ALL
    return 1 if special.repeats else NUMBERED if special.is_numbered else ALL


def at_once(address: Address, shape: Shape) -> int:
    """Messages of one run that may go to an address in one step: one where bodies are looked into, and a portion where last-value queues
    ask for the key of each and take out what it replaces, rings make room, diverts change each, or somebody may want every other one."""
    if asks_of_bodies(address):
        return 1
    reached = _reached(address)
    cost = sum([_cost_of_admitting(known) + _cost_of_choosing(known, shape) for known in reached])
    if len(reached) > 1 or address.diverts:
        cost += _cost_of_diverting(reached, shape)
    return min(portion_of(shape), max(1, ROLLED // cost) if cost else ALL)


def sent_on_at_once(address: Address, shape: Shape) -> int:
    """As `at_once`, for what the broker itself sends on to an address: all of it goes where only one plain queue is there."""
    return ALL if address.only is not None and address.only.is_simple else at_once(address, shape)


def in_parts(run: Run, most: int) -> Iterator[Run]:
    """Its messages, so many at a time."""
    if len(run) <= most:
        yield run
        return
    for at in range(0, len(run), most):
        yield run.part(at, min(at + most, len(run)))


def asking_ahead(address: Address, run: Run) -> Iterator[None]:
    """Asks these about what is to be sent there, in steps, before anything of it is."""
    for known, selector in list(_looking(address)):
        yield from matching.asking_ahead(selector, run, known)


def _looking(address: Address) -> Iterator[tuple[Address, Selector]]:
    """Finds such selectors, with the addresses at which they are asked."""
    for known in _reached(address):
        for queue in islice(known.anycast.values(), FEW):
            if queue.selector is not None and queue.selector.is_costly:
                yield known, queue.selector
        for divert in known.diverts:
            if divert.selector is not None and divert.selector.is_costly:
                yield known, divert.selector


def _reached(address: Address) -> list[Address]:
    """The address, and those to which diverts send on from there, and what nobody takes."""
    if not address.diverts and not address.settings.send_to_dla_on_no_route:
        return [address]
    seen, found = {address}, [address]
    for known in found:
        names = [divert.forwarding_address for divert in known.diverts]
        dead = known.settings.dead_letter_address
        if dead and known.settings.send_to_dla_on_no_route:
            names.append(space_of(known.name) + dead)
        for name in names:
            further = known.engine.addresses.get(name)
            if further is not None and further not in seen:
                seen.add(further)
                found.append(further)
    return found


def _cost_of_admitting(address: Address) -> int:
    """What it takes to have a message admitted by its rings and last-value queues, as far as anybody looks: one for a ring."""
    found = len(address.topics) * _cost_by(address.rules)
    for queue in islice(address.anycast.values(), FEW):
        found += _cost_by(queue.rules)
    return found


def _cost_of_choosing(address: Address, shape: Shape) -> int:
    """What it takes to have each message asked about by its queues: one for its subscriptions, however many there are (fanout.py)."""
    chosen = [
        queue
        for queue in islice(address.anycast.values(), FEW)
        if queue.selector is not None and not matching.is_of_shape(queue.selector, shape)
    ]
    return len(chosen) * (ROLLED // CHOSEN) + (address.steps > 0)


def _cost_of_diverting(addresses: Iterable[Address], shape: Shape) -> int:
    """What it takes to send each message by itself along all diverts of these, where one of them changes each, or may want every other
    one."""
    diverts = [divert for known in addresses for divert in known.diverts]
    changing = [divert for divert in diverts if divert.transform is not None]
    selectors = [divert.selector for divert in diverts if divert.selector is not None]
    asking = [selector for selector in selectors if not matching.is_of_shape(selector, shape)]
    if not changing and not asking:
        return 0
    return len(changing) * (ROLLED // TRANSFORMED) + len(diverts) * (ROLLED // CHOSEN)


def _cost_by(rules: Rules) -> int:
    return (ROLLED // ADMITTED if rules.last_value_key else 0) + (rules.ring_size >= 0)


def _of_anycast(address: Address, run: Run, whole: list[Range]) -> Targets:
    """Routes to one of an address's queues, which get the messages in turn among those whose filter takes it (Artemis, anycast)."""
    if len(address.anycast) > FEW and len(run.bodies) == 1:
        return _of_very_many(address, run, whole)
    taken = {
        queue: whole
        if queue.selector is None
        else wanted(queue.selector, run, run.first, run.stop, address, queue=queue.id)
        for queue in address.anycast.values()
        if queue.rules.is_enabled
    }
    if len(taken) == 1:
        return [(queue, ranges) for queue, ranges in taken.items() if ranges]
    found: dict[Queue, list[Range]] = {}
    for first, stop, takers in swept(run.first, run.stop, taken):
        queues = [queue for queue in address.anycast.values() if queue in takers]
        for low, high in _shares(first, stop, len(queues)):
            found.setdefault(queues[address.next_turn() % len(queues)], []).append((low, high))
    return list(found.items())


def _of_very_many(address: Address, run: Run, whole: list[Range]) -> Targets:
    """The one queue of many that gets a single message, found without a look at all of them."""
    in_turn = address.in_turn()
    for _ in range(len(in_turn)):
        queue = in_turn[address.next_turn() % len(in_turn)]
        if queue.selector is None or wanted(
            queue.selector, run, run.first, run.stop, address, queue=queue.id
        ):
            run.routing |= queue.cursor.number << FOR_ONE
            return [(queue, whole)]
    return []


def singly(address: Address, run: Run) -> list[Run]:
    """A run message by message, where each goes to another of very many anycast queues; else the run."""
    if len(address.anycast) <= FEW or not run.routing & ANYCAST or run.queue or len(run.bodies) == 1:
        return [run]
    return [run.part(at, at + 1) for at in range(len(run.bodies))]


def _of_topics(address: Address, run: Run, limit: int) -> Groups:
    plan = run.shape.plans.get(address)
    if plan is None or plan.version is not address.version or plan.settings is not address.settings:
        plan = run.shape.plans[address] = Plan(address.version, address.settings)
        plan.begin(address.by_selector)
        address.keep(plan)
        if address.steps > address.engine.work.most:  # a shape that comes no more is not worth the work
            address.engine.plans.add(plan)
            return _put_off(address, run)
    if not plan.is_whole and not _is_made(address, plan, run, limit):
        return _put_off(address, run)
    if (
        plan.steps * len(run.bodies) > address.engine.work.most
        and plan.steps_of(run) > address.engine.work.most
    ):
        return _put_off(address, run)
    found: Groups = [(plan.always, [(run.first, run.stop)])] if plan.always else []
    if plan.by_value or plan.by_message:
        by_ranges: dict[tuple[Range, ...] | None, list[Queue]] = {}
        taken = _by_values(address, plan, run, limit) if plan.by_value else {}
        for selector in plan.by_message:
            if "message_id" in selector.facts:  # each subscription sees another one
                _by_id(address, selector, run, limit, by_ranges)
            elif address.engine.work.is_over and selector.is_costly:
                taken[selector] = None
            else:
                taken[selector] = wanted_within(selector, run, run.first, run.stop, address, limit=limit)
        for selector, ranges in taken.items():
            if ranges is None or ranges:
                by_ranges.setdefault(None if ranges is None else tuple(ranges), []).extend(
                    address.by_selector[selector]
                )
        found += [(queues, None if ranges is None else list(ranges)) for ranges, queues in by_ranges.items()]
    return found


def _by_id(
    address: Address,
    selector: Selector,
    run: Run,
    limit: int,
    found: dict[tuple[Range, ...] | None, list[Queue]],
) -> None:
    """Adds the queues of topic subscriptions whose messages' ids, among others, the selector looks at."""
    queues = list(address.by_selector[selector])
    for at, queue in enumerate(queues):
        if queue.no_local and queue.no_local == run.sender:
            continue
        ranges = wanted_within(selector, run, run.first, run.stop, address, queue=queue.id, limit=limit)
        if ranges is None:
            found.setdefault(None, []).extend(queues[at:])
            return
        if ranges:
            found.setdefault(tuple(ranges), []).append(queue)


def _put_off(address: Address, run: Run) -> Groups:
    """Asking all selectors about the run is too much for one turn: their queues leave it in the log, and ask each in its own turn."""
    plain = list(address.by_selector.get(None, ()))
    found: Groups = [(plain, [(run.first, run.stop)])] if plain else []
    return [
        *found,
        (
            [
                queue
                for selector, queues in address.by_selector.items()
                if selector is not None
                for queue in queues
            ],
            None,
        ),
    ]


ADDED: Final = 30  # steps that it takes to add a selector to a plan
PLACED: Final = 10  # and to look at one that compares with numbers, where it is placed among others


def _is_made(address: Address, plan: Plan, run: Run, limit: int) -> bool:
    """Goes on with a plan, and asks selectors about the shape of a run; False: the turn's work went beyond `limit`. The next run of the
    shape comes further."""
    work = address.engine.work
    is_made = _is_filled(address, plan, run, limit)
    if is_made:
        for looked in plan.numbering():
            work.spend(PLACED * looked)
            if work.done > limit:
                is_made = False
                break
    if is_made:
        plan.complete(run.shape)
    address.engine.plans.add(plan)
    return is_made


def _is_filled(address: Address, plan: Plan, run: Run, limit: int) -> bool:
    shape, work = run.shape, address.engine.work
    of_shape = OfShape(run, run.first, address)
    while plan.left:
        if work.done > limit:
            return False
        work.spend(ADDED)
        selector = plan.left[-1]
        if selector is None or matching.is_of_shape(selector, shape):
            taken = selector is None or of_shape.verdict(selector, limit=limit)
            if taken is None:
                return False
            if taken:
                plan.add_always(address.by_selector[selector])
        elif selector.is_per_message or selector.is_costly:
            plan.add_by_message(selector)
        else:
            plan.add_by_value(selector)
        plan.added()
    return True


def _by_values(address: Address, plan: Plan, run: Run, limit: int) -> dict[Selector, list[Range] | None]:
    """Ranges by selector, where the values of holes decide: each combination of values is looked at once. None: the turn's work
    went beyond `limit`, and they are to be asked later."""
    found: dict[Selector, list[Range]] = {}
    work = address.engine.work
    for index, values in enumerate(zip(*[run.columns[at] for at in plan.at], strict=True)):
        takers = plan.known.get(values)
        if work.done > limit:
            return dict.fromkeys(plan.by_value)
        if takers is None:
            takers = _takers(address, plan, run, index, limit)
            if takers is None:
                return dict.fromkeys(plan.by_value)
            address.engine.plans.grow(plan, plan.know(values, takers))
        work.spend(len(takers))
        for selector in takers:
            add_range(found.setdefault(selector, []), run.first + index, run.first + index + 1)
    return {**found}


def _takers(address: Address, plan: Plan, run: Run, index: int, limit: int) -> tuple[Selector, ...] | None:
    """Asks those that may take one message; None: the turn's work went beyond `limit`. The next message with these values goes on."""
    headers, work = run.headers(index), address.engine.work
    candidates = plan.candidates(headers)
    known = matching.facts_of_shape(run.shape, address.name, is_durable=not address.is_volatile(run))
    values = tuple([run.columns[at][index] for at in plan.at])
    at, takers = plan.begun.pop(values, (0, []))
    while at < len(candidates):
        if work.done > limit:
            plan.break_off(values, at, takers)
            return None
        if asked(address, candidates[at], headers, known):
            takers.append(candidates[at])
        at += 1
    return tuple(takers)


def _shares(first: int, stop: int, count: int) -> Iterator[Range]:
    """first .. stop-1 in `count` parts that differ by one at most, none of them empty."""
    for left in range(count, 0, -1):
        if first < stop:
            high = first - (first - stop) // left
            yield first, high
            first = high


FEW: Final = 64  # queues that are told at once of each message that is not for them


TOLD: Final = 64  # queues of one step


class Passing:
    """What came to one address for one queue each since the last round began, and the others are to be told of."""

    __slots__ = ("_address", "_all", "_own")

    def __init__(self, address: Address) -> None:
        self._address = address
        self._clear()

    def _clear(self) -> None:
        self._all: dict[bool, Ranges] = {}  # by whether it is for an anycast queue
        self._own: dict[int, Ranges] = {}  # what is for each queue, by its number

    def note(self, run: Run) -> None:
        """Notes a run that is for one queue alone."""
        self._all.setdefault(bool(run.routing & ANYCAST), Ranges()).add(run.first, run.stop)
        self._own.setdefault(run.routing >> FOR_ONE, Ranges()).add(run.first, run.stop)
        self._address.engine.later.add(self, self._begin)

    def _begin(self) -> None:
        self._address.engine.later.take(self, self._rounds())

    def _rounds(self) -> Iterator[None]:
        address = self._address
        while self._all:
            every, own = self._all, self._own
            self._clear()
            for is_anycast, ranges in every.items():
                queues = address.anycast if is_anycast else address.topics
                for number, queue in enumerate(list(queues.values()), 1):
                    if queue.id in address.engine.queues:
                        _pass_over_all(queue, ranges, own.get(queue.cursor.number))
                    if number % TOLD == 0:
                        address.engine.work.spend(MESSAGE * TOLD)
                        yield

    def __repr__(self) -> str:
        return f"<Passing of {self._address.name}: {sum(map(len, self._all.values()))} ranges>"


def _pass_over_all(queue: Queue, ranges: Iterable[tuple[int, int]], own: Ranges | None) -> None:
    for first, stop in ranges:
        for low, high in own.gaps(first, stop) if own is not None else ((first, stop),):
            queue.skip(low, high)


def look_through_logs(engine: Engine) -> None:
    """After a start: queues that were not told of everything before it read what the log has, so that they hold nothing for others."""
    for address in engine.addresses.values():
        if len(address.anycast) > FEW or len(address.topics) > FEW:
            key = (look_through_logs, address)
            engine.later.add(key, partial(_look_through, engine, key, address))


def _look_through(engine: Engine, key: object, address: Address) -> None:
    engine.later.take(key, _looking_through(address))


def _looking_through(address: Address) -> Iterator[None]:
    for number, queue in enumerate([*address.anycast.values(), *address.topics.values()], 1):
        if queue.paged_from >= 0 and queue.id in address.engine.queues:
            paging.load(address.engine, queue)
        if number % TOLD == 0:
            address.engine.work.spend(MESSAGE * TOLD)
            yield
