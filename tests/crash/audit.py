"""Looks through the journals of a drill for broken promises (docs/durability.md). Knows nothing of brokers or sockets.

| code         | what was broken                                                                                       |
|--------------|-------------------------------------------------------------------------------------------------------|
| lost         | confirmed, and it did not reach each source that its destination has; or delivered, never acknowledged, and gone |
| half         | a transaction, or a message to several subscriptions, is there in part                                |
| void         | sent in a transaction that never committed, and it came                                               |
| hole         | something is there that was sent later on the same connection, and this is not                        |
| returned     | acknowledged with a RECEIPT (or in a transaction that took place), and delivered again                |
| twice        | delivered to somebody while somebody else still had it, or again to who has it                        |
| unmarked     | delivered again without redelivered:true                                                              |
| disorder     | behind a later one of the same producer                                                               |
| resurrected  | not persistent, and there after a restart                                                             |
| invented     | never sent                                                                                            |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.crash.events import (
    Acknowledged,
    Answered,
    Closed,
    Confirmed,
    Ended,
    Event,
    Got,
    Opened,
    Refused,
    Sent,
    Subscribed,
)

Copy = tuple[str, str]  # source, message
LEARNS = 1_000_000_000  # ns in which a broker on a busy machine has read that a socket is closed


@dataclass(slots=True)
class Unit:
    name: str
    link: str
    sends: list[Sent] = field(default_factory=list)
    # ACKs in a transaction, with the message
    inputs: list[tuple[Answered, str]] = field(default_factory=list)
    ends: bool | None = None  # True: COMMIT was sent, False: ABORT, None: neither
    confirmed: int = 0  # when; 0: never


def epoch(link: str) -> int:
    return int(link.partition("-")[0])


def when(got: Got) -> tuple[int, int]:
    """Sorts deliveries into the order in which brokers made them: what a dead one sent may be read late."""
    return epoch(got.link), got.time


class Audit:
    """`sources`: by destination, all that must get its messages. `exclusive`: sources with one reader at a time that never refuses."""

    def __init__(self, sources: Mapping[str, Sequence[str]], exclusive: Iterable[str] = ()) -> None:
        self.sources = sources
        self.exclusive = frozenset(exclusive)
        self.opened: dict[str, int] = {}
        self.closed: dict[str, int] = {}
        self.units: dict[str, Unit] = {}
        # by link, in the order in which they take place
        self.effects: dict[str, list[Unit]] = defaultdict(list)
        self.volatile: dict[str, Sent] = {}
        self.sent: dict[str, Sent] = {}
        self.got: dict[Copy, list[Got]] = defaultdict(list)
        self.received: list[list[Got]] = []  # by journal
        self.readers: dict[str, set[str]] = defaultdict(
            set
        )  # by source: the links that subscribed to it, or got something of it
        self.answers: dict[Copy, list[Answered]] = defaultdict(list)
        self.acknowledged: list[Acknowledged] = []
        self.latest = 0  # the last broker's epoch
        self.unit_of: dict[str, Unit] = {}

    def add(self, journal: Iterable[Event]) -> None:
        received: list[Got] = []
        for event in journal:
            match event:
                case Opened():
                    self.opened[event.link] = event.time
                case Subscribed():
                    self.readers[event.source].add(event.link)
                case Closed():
                    self.closed[event.link] = event.time
                case Sent():
                    self._sent(event)
                case Ended():
                    unit = self._transaction(event.transaction, event.link)
                    unit.ends = event.commits
                    if event.commits:
                        self.effects[event.link].append(unit)
                case Confirmed():
                    self._confirmed(event)
                case Refused():
                    self._refused(event)
                case Got():
                    received.append(event)
                    self.got[event.source, event.message].append(event)
                    self.readers[event.source].add(event.link)
                case Answered():
                    self._answered(event)
                case Acknowledged():
                    self.acknowledged.append(event)
        self.received.append(received)

    def _transaction(self, name: str, link: str) -> Unit:
        return self.units.setdefault(name, Unit(name, link))

    def _sent(self, event: Sent) -> None:
        self.sent[event.message] = event
        if event.transaction:
            self._transaction(event.transaction, event.link).sends.append(event)
        elif event.persistent:
            unit = self.units[event.message] = Unit(event.message, event.link, [event], ends=True)
            self.effects[event.link].append(unit)
        else:
            self.volatile[event.message] = event

    def _confirmed(self, event: Confirmed) -> None:
        if event.unit not in self.volatile:  # their receipts promise nothing
            self.units[event.unit].confirmed = event.time

    def _refused(self, event: Refused) -> None:
        """It must not be there, as if it had been aborted."""
        unit = self.units.get(event.unit)
        if unit is not None:
            unit.ends = False
            self.effects[event.link].remove(unit)

    def _answered(self, event: Answered) -> None:
        for message in event.messages:
            self.answers[event.source, message].append(event)
            if event.transaction and event.is_good:
                self._transaction(event.transaction, event.link).inputs.append((event, message))

    # The checks

    def problems(self) -> list[str]:
        for deliveries in self.got.values():
            deliveries.sort(key=when)
        self.latest = max(map(epoch, self.opened), default=0)
        self.unit_of = {sent.message: unit for unit in self.units.values() for sent in unit.sends}
        checks = (self._units, self._holes, self._returned, self._deliveries, self._left, self._order)
        return [problem for check in checks for problem in check()]

    def copies(self, unit: Unit) -> list[Copy]:
        return [(source, sent.message) for sent in unit.sends for source in self.sources[sent.destination]]

    def is_seen(self, unit: Unit) -> bool:
        return any(copy in self.got for copy in self.copies(unit))

    def is_stored(self, unit: Unit) -> bool:
        """Whether it certainly outlived its broker. What is delivered need not be stored yet: without a RECEIPT it may be gone
        with the broker, unless a later one delivers it or nobody killed this one."""
        if not unit.ends or unit.confirmed:
            return bool(unit.ends)
        born = epoch(unit.link)
        seen = [epoch(got.link) for copy in self.copies(unit) for got in self.got.get(copy, ())]
        return any(at > born or at == self.latest for at in seen) or self._is_implied(unit)

    def _is_implied(self, unit: Unit) -> bool:
        """What it acknowledged was stored, and did not come again."""
        if epoch(unit.link) == self.latest:
            return False
        for answer, message in unit.inputs:
            before = self.unit_of.get(message)
            if (
                before is not None
                and before.confirmed
                and self.got[answer.source, message][-1].link == answer.link
            ):
                return True
        return False

    def _units(self) -> Iterator[str]:
        for unit in self.units.values():
            copies = self.copies(unit)
            missing = [copy for copy in copies if copy not in self.got]
            if not unit.ends:
                yield from (f"void: {copy} of {unit.name}" for copy in copies if copy in self.got)
            elif unit.confirmed:
                yield from (f"lost: {copy} of {unit.name} on {unit.link}" for copy in missing)
            elif missing and self.is_stored(unit):
                yield f"half: {unit.name} on {unit.link} lacks {missing}"

    def _holes(self) -> Iterator[str]:
        for units in self.effects.values():
            absent: list[Unit] = []
            for unit in units:
                if self.copies(unit) and not self.is_seen(unit):
                    absent.append(unit)
                elif absent and self.copies(unit) and self.is_stored(unit):
                    yield from (
                        f"hole: {hole.name} on {hole.link} is not there, {unit.name} is" for hole in absent
                    )
                    absent = []

    def _returned(self) -> Iterator[str]:
        """Acknowledged with a RECEIPT, or in a transaction that took place: for good, or as far as its own broker knew."""
        for event in self.acknowledged:
            for message in event.messages:
                yield from self._later(event.source, message, event.link, event.time)
        for unit in self.units.values():
            until = (
                self.latest
                if self.is_stored(unit)
                else epoch(unit.link)
                if unit.ends and self.is_seen(unit)
                else -1
            )
            for answer, message in unit.inputs:
                deliveries = self.got[answer.source, message]
                mine = max(at for at, got in enumerate(deliveries) if got.link == answer.link)
                for later in deliveries[mine + 1 :]:
                    if epoch(later.link) <= until:
                        yield f"returned: {message} of {answer.source} to {later.link}; {unit.name} on {unit.link} had acknowledged it"

    def _later(self, source: str, message: str, link: str, done: int) -> Iterator[str]:
        for got in self.got.get((source, message), ()):
            if self.opened[got.link] > done or (got.link == link and got.time > done):
                yield f"returned: {message} of {source} to {got.link}, acknowledged with a RECEIPT on {link}"

    def _deliveries(self) -> Iterator[str]:
        for (source, message), deliveries in self.got.items():
            if message not in self.sent:
                yield f"invented: {message} from {source}"
                continue
            if message in self.volatile:
                born = epoch(self.volatile[message].link)
                yield from (
                    f"resurrected: {message} from {source} to {got.link}"
                    for got in deliveries
                    if epoch(got.link) > born
                )
            for before, got in pairwise(deliveries):
                if not got.redelivered:
                    yield f"unmarked: {message} of {source} to {got.link}, after {before.link}"
                if epoch(before.link) == epoch(got.link) and self._is_held(source, message, before, got):
                    yield f"twice: {message} of {source} to {got.link}, while {before.link} had it"

    def _is_held(self, source: str, message: str, before: Got, got: Got) -> bool:
        """Whether the earlier reader still had it: its link was open, and it had not refused it."""
        refused = any(
            not answer.is_good and answer.link == before.link for answer in self.answers[source, message]
        )
        return not refused and self.closed.get(before.link, got.time) >= got.time

    def _left(self) -> Iterator[str]:
        """Whoever had it last must have acknowledged it, or it would have come again."""
        for (source, message), deliveries in self.got.items():
            last = deliveries[-1].link
            unit = self.unit_of.get(message)
            if (
                unit is None
                or self.may_leave(source, message)
                or not (self.is_stored(unit) or epoch(last) == self.latest)
            ):
                continue
            answers = [
                answer for answer in self.answers[source, message] if answer.link == last and answer.is_good
            ]
            if not any(not answer.transaction or self.units[answer.transaction].ends for answer in answers):
                yield f"lost: {message} of {source} was delivered to {last}, not acknowledged, and did not come again"

    def may_leave(self, source: str, message: str) -> bool:
        """Whether a message that was delivered may go although nobody acknowledged it."""
        return False

    def _order(self) -> Iterator[str]:
        """Per connection, source and producer: in order, redeliveries aside, and those too where nobody refuses or competes."""
        for received in self.received:
            latest: dict[tuple[str, ...], int] = {}
            for got in received:
                number = got.message.rpartition(".")[2]
                key = self.lane(got)
                if key is None or (got.redelivered and got.source not in self.exclusive):
                    continue
                if int(number) <= latest.get(key, -1):
                    if self._was_handed_back(got):
                        continue
                    yield f"disorder: {got.message} of {got.source} to {got.link} behind number {latest[key]}"
                latest[key] = int(number)

    def _was_handed_back(self, got: Got) -> bool:
        """Whether somebody who competed for it has left before: what was handed to them and never written comes back without a mark, and
        others may have later ones by then. Until the broker has read that they left, they are handed what is sent after it, too."""
        sent = self.sent.get(got.message)
        return got.source not in self.exclusive and any(
            epoch(link) == epoch(got.link)
            and (sent.time if sent else 0) - LEARNS < self.closed[link] < got.time
            for link in self.readers[got.source] & self.closed.keys()
        )

    def lane(self, got: Got) -> tuple[str, ...] | None:
        """What is in order among itself; None for a message that may come at any time."""
        return got.link, got.source, got.message.rpartition(".")[0]

    def __repr__(self) -> str:
        confirmed = sum(unit.confirmed > 0 for unit in self.units.values())
        deliveries = sum(map(len, self.got.values()))
        again = sum(len(found) - 1 for found in self.got.values())
        return (
            f"<Audit units={len(self.units)} confirmed={confirmed} volatile={len(self.volatile)} deliveries={deliveries} "
            f"redeliveries={again} acknowledged={sum(len(event.messages) for event in self.acknowledged)} links={len(self.opened)}>"
        )
