"""Looks through the journals of a drill with all features: what became of each message, and whether that was legal.

What the plain audit demands of a copy (audit.py) is demanded here of each copy that must be there. One that was never seen may be gone
because it expired into nothing, a ring pushed it out, a newer one took its place, or its address drops; one that died or expired
must stand in the queue for that, with its origin: the source is then `all.dead|<origin>`.

| code         | what was broken, beside those of the plain audit                                              |
|--------------|-----------------------------------------------------------------------------------------------|
| early        | delivered before its time, or an expired one before it expired                                 |
| expired      | delivered to somebody who came after it expired                                                |
| doubled      | one broker had it twice in one source                                                          |
| split        | to somebody while somebody else had its group, or the whole exclusive queue                    |
| overfull     | more waits in a ring than it has places                                                        |
| replaced     | two of one key wait in a last-value queue                                                      |
| stale        | a new subscription got an older retained message than the last that was confirmed              |
| unfounded    | refused although its address had room for everything; one that was dropped so is lost          |
| unexplained  | died without the attempts, or the refusal, that the dead letter says it had                     |
| overtried    | came again after all the attempts that it may have                                             |
| stolen       | of a temporary queue, to somebody else than its owner                                          |

What readers that take nothing are shown is in readings.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import inf

from tests.crash.audit import LEARNS, Audit, Copy, Unit, epoch, when
from tests.crash.events import (
    Answered,
    Closed,
    Confirmed,
    Event,
    Got,
    Refused,
    Retained,
    Sent,
    Started,
    Waiting,
)
from tests.crash.features import (
    ATTEMPTS,
    BY_NAME,
    DEAD,
    DURABLE,
    EXPIRED,
    LOG,
    NAMED,
    PRICED,
    RING,
    TEMPORARY,
    Source,
    rules_of,
    sources_of,
)
from tests.crash.readings import Readings

SLACK = 1_000_000_000  # ns by which a broker's clock may be late: one that is asked for ms, and may be busy
FINE = 20_000_000  # ns that rounding to ms takes


def place_of(source: str) -> tuple[str, str]:
    """(queue, origin): of a dead or expired message where it died, else nothing."""
    queue, _, origin = source.partition("|")
    return queue, origin


class Fates(Audit):
    def __init__(self) -> None:
        super().__init__({})
        self.repeated: set[str] = set()  # messages that were sent again
        self.retained: list[Retained] = []
        self.waiting: list[Waiting] = []
        self.brokers: list[Started] = []
        self.refused: list[Refused] = []
        self.ends: list[Closed] = []  # without a word
        self.sent_on: dict[str, list[str]] = defaultdict(list)  # by message: each link on which it was sent
        self.readings = Readings(self)
        self.confirmed_at: dict[str, int] = {}
        self._reads: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)  # by link and source
        self._leavings: list[int] = []  # when somebody left or let go
        # by source, or source and key: when each message may have arrived at the latest
        self._latest: dict[str, list[float]] = {}

    def add(self, journal: Iterable[Event]) -> None:
        events = list(journal)
        super().add(events)
        for event in events:
            if isinstance(event, Retained):
                self.retained.append(event)
            elif isinstance(event, Waiting):
                self.waiting.append(event)
            elif isinstance(event, Started):
                self.brokers.append(event)
            elif isinstance(event, Refused):
                self.refused.append(event)
            elif isinstance(event, Closed) and event.is_abrupt:
                self.ends.append(event)
            elif isinstance(event, Sent):
                self.sent_on[event.message].append(event.link)
            else:
                self.readings.add(event)

    def _sent(self, event: Sent) -> None:
        if event.transaction and not event.persistent:
            self.volatile[event.message] = event  # or that of the latest connection
        before = self.sent.get(event.message)
        if before is None:
            super()._sent(event)
            return
        # Once more, with its id: the sends that nobody answered count as one, that of the latest connection
        self.repeated.add(event.message)
        if not event.persistent:
            self.volatile[event.message] = event
        unit = self.units.get(event.transaction or event.message)
        if unit is not None and not unit.confirmed and unit.link != event.link:
            if unit in self.effects[unit.link]:
                self.effects[unit.link].remove(unit)
                self.effects[event.link].append(unit)
            unit.link = event.link

    def _confirmed(self, event: Confirmed) -> None:
        self.confirmed_at.setdefault(event.unit, event.time)
        super()._confirmed(event)

    def _refused(self, event: Refused) -> None:
        """One that was sent before may have been delivered by a broker that did not live to store it, and is not there any more."""
        if event.unit not in self.repeated:
            self.confirmed_at[event.unit] = -1
            super()._refused(event)

    def _is_implied(self, unit: Unit) -> bool:
        """By messages that can only be gone because they were acknowledged."""
        inputs = [
            (answer, message)
            for answer, message in unit.inputs
            if not self._may_be_over(answer.source, message)
        ]
        return super()._is_implied(Unit(unit.name, unit.link, unit.sends, inputs, unit.ends, unit.confirmed))

    def _may_be_over(self, source: str, message: str) -> bool:
        return message in self.repeated or message not in self.sent or self.may_leave(source, message)

    def _may_be_refused(self, sent: Sent) -> bool:
        return any(rules_of(source).may_refuse for source in sources_of(sent))

    # What must be there

    def copies(self, unit: Unit) -> list[Copy]:
        """Those that are there or must be."""
        return [copy for sent in unit.sends for copy in self._copies_of(sent)]

    def _copies_of(self, sent: Sent) -> Iterator[Copy]:
        for source in sources_of(sent):
            found = self._where(source, sent.message)
            if found or (sent.persistent and not self.may_be_gone(source, sent)):
                yield (found[0], sent.message) if found else (source, sent.message)

    def _where(self, source: str, message: str) -> list[str]:
        """Where it was seen: at the source itself, or where it was sent when it died or expired."""
        return [
            place
            for place in (source, f"{DEAD}|{source}", f"{EXPIRED}|{source}")
            if (place, message) in self.got
        ]

    def may_be_gone(self, source: str, sent: Sent) -> bool:
        """Before anybody got it."""
        rules = rules_of(source)
        if rules is TEMPORARY:
            return (
                not 0
                < self.confirmed_at.get(sent.transaction or sent.message, 0)
                < self.closed.get(source.partition(":")[2], 0)
            )
        is_passed_over = rules in (LOG, NAMED) and bool(sent.traits.expires)
        return self.may_be_dropped(rules, sent.message) or is_passed_over or self.may_go(rules, sent)

    def may_be_dropped(self, rules: Source, message: str) -> bool:
        """Whether its address may have been full when it came."""
        return rules.may_drop and any(self._is_limited(rules, link) for link in self.sent_on[message])

    def _is_limited(self, rules: Source, link: str) -> bool:
        broker = self.broker_of(link)
        return broker is None or rules.name in broker.limited

    def broker_of(self, link: str) -> Started | None:
        """The one that the connection was to: the last that was started before."""
        at = bisect_right(self.brokers, self.opened[link], key=_time)
        return self.brokers[at - 1] if at else None

    def may_go(self, rules: Source, sent: Sent) -> bool:
        """At any time."""
        if rules.is_last_value and sent.traits.key:
            return self._successors(rules.name, sent, sent.traits.key) > 0
        return rules.is_ring and self._successors(rules.name, sent) >= RING

    def _successors(self, source: str, sent: Sent, key: str = "") -> int:
        """How many others may have come to the source after it."""
        latest = self._latest.get(f"{source} {key}", [])
        mine = self._at_the_latest(sent)
        return len(latest) - bisect_right(latest, sent.time) - (mine > sent.time)

    def _at_the_latest(self, sent: Sent) -> float:
        """When it may have come to its queue: one that was scheduled whenever it woke, one without an answer at any time."""
        found = self.confirmed_at.get(sent.transaction or sent.message, 0)
        return inf if not found or sent.traits.due else found

    def _note_arrivals(self) -> None:
        arrivals: dict[str, list[float]] = defaultdict(list)
        for sent in self.sent.values():
            unit, at = self.unit_of.get(sent.message), self._at_the_latest(sent)
            if unit is not None and not unit.ends:
                continue
            for source in sources_of(sent):
                if rules_of(source).is_ring:
                    arrivals[f"{source} "].append(at)
                elif rules_of(source).is_last_value:
                    arrivals[f"{source} {sent.traits.key}"].append(at)
        self._latest = {name: sorted(found) for name, found in arrivals.items()}

    # The checks

    def _deliveries(self) -> Iterator[str]:
        """What was sent again may be another message than the one that was delivered first, if nobody confirmed that. The log has what is
        not persistent for as long as it has it."""
        for problem in super()._deliveries():
            code, _, rest = problem.partition(": ")
            message, source = rest.split(" ", 3)[::2]
            if code == "unmarked" and message in self.repeated:
                continue
            if code != "resurrected" or source not in (LOG.name, NAMED.name):
                yield problem

    def problems(self) -> list[str]:
        self.unit_of = {sent.message: unit for unit in self.units.values() for sent in unit.sends}
        self._note_arrivals()
        self._leavings = sorted(self.closed.values())
        for link, units in self.effects.items():  # whoever was not answered may have been refused
            self.effects[link] = [
                unit for unit in units if unit.confirmed or not any(map(self._may_be_refused, unit.sends))
            ]
        found = super().problems()
        checks = (self._times, self._doubles, self._splits, self._waits, self._stale)
        more = (self._refusals, self._deaths, self._tries, self._owned, self.readings.problems)
        return [*found, *[problem for check in (*checks, *more) for problem in check()]]

    def lane(self, got: Got) -> tuple[str, ...] | None:
        """Those of one priority and group; the dead come when they come, and so does what was dropped first and taken when it was sent
        again. The log is in order as a whole."""
        sent = self.sent.get(got.message)
        producer = got.message.rpartition(".")[0]
        if sent is None or "|" in got.source:
            return None
        if self.may_be_late(sent):
            return None
        if got.source in (LOG.name, NAMED.name):
            return got.link, got.source, producer
        traits = sent.traits
        if (
            len(self.sent_on[got.message]) > 1 and self.may_be_dropped(rules_of(got.source), got.message)
        ) or self._came_back(sent, got):
            return None
        return got.link, got.source, producer, str(traits.priority), traits.group

    def may_be_late(self, sent: Sent) -> bool:
        """Who goes without an answer has sent all the same; a busy broker may hear it behind what he says on his next connection."""
        return sent.link in self.closed and not self.confirmed_at.get(sent.transaction or sent.message)

    def _order(self) -> Iterator[str]:
        for received in self.received:
            yield from self.order_of((got, self.lane(got)) for got in received if not got.redelivered)

    def order_of(self, received: Iterable[tuple[Got, tuple[str, ...] | None]]) -> Iterator[str]:
        """What was sent later and has to wait as long, or longer, comes later."""
        # (number, delay), each number with the longest
        latest: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
        for got, lane in received:
            if lane is None:
                continue
            number, delay = int(got.message.rpartition(".")[2]), self._delay_in(got)
            before = [late for late, other in latest[lane] if late >= number and other >= delay]
            if before:
                yield f"disorder: {got.message} of {got.source} to {got.link} behind number {before[0]}"
            else:
                latest[lane] = [
                    (late, other) for late, other in latest[lane] if late > number or other > delay
                ]
                latest[lane].append((number, delay))

    def _delay_in(self, got: Got) -> int:
        sent = self.sent.get(got.message)
        return 0 if sent is None else sent.traits.delay

    def _came_back(self, sent: Sent, got: Got) -> bool:
        """Whether it may have been meant for another consumer of the queue first, who left before it was written to him."""
        return rules_of(got.source) not in DURABLE and bisect_right(self._leavings, got.time) > bisect_right(
            self._leavings, sent.time - LEARNS
        )

    def _returned(self) -> Iterator[str]:
        yield from super()._returned()
        for event in self.acknowledged:
            queue, origin = place_of(event.source)
            for message in event.messages:
                others = [origin] if origin else [f"{DEAD}|{queue}", f"{EXPIRED}|{queue}"]
                for other in others:
                    yield from self._later(other, message, event.link, event.time)

    def may_leave(self, source: str, message: str) -> bool:
        """Although nobody acknowledged it there."""
        queue, origin = place_of(source)
        rules, sent = rules_of(origin or queue), self.sent[message]
        if not sent.persistent or (message in self.repeated and self.may_be_dropped(rules, message)):
            return True
        if rules in (LOG, TEMPORARY) or (rules is NAMED and sent.traits.expires):
            return True
        if rules.is_kept or self._went_on(origin or queue, source, message):
            return True
        is_uncertain = not origin or epoch(self.got[source, message][-1].link) < self.latest
        return is_uncertain and self.may_go(rules, sent)

    def _went_on(self, origin: str, source: str, message: str) -> bool:
        """It was seen elsewhere later: among the dead, or back where it died, by a broker that did not live to store its death."""
        last = when(self.got[source, message][-1])
        return any(when(self.got[place, message][-1]) > last for place in self._where(origin, message))

    def _times(self) -> Iterator[str]:
        for (source, message), deliveries in self.got.items():
            sent = self.sent.get(message)
            if sent is None or source in (LOG.name, NAMED.name):
                continue
            traits, queue = sent.traits, place_of(source)[0]
            for got in deliveries:
                if traits.due and queue not in (DEAD, EXPIRED) and got.time < traits.due - FINE:
                    yield f"early: {message} of {source} to {got.link}, {(traits.due - got.time) / 1e6:.0f} ms before its time"
                if queue == EXPIRED and got.time < traits.expires - FINE:
                    yield f"early: {message} of {source} expired {(traits.expires - got.time) / 1e6:.0f} ms before its time"
                if (
                    queue not in (DEAD, EXPIRED)
                    and traits.expires
                    and self.opened[got.link] > traits.expires + SLACK
                ):
                    yield f"expired: {message} of {source} to {got.link}, {(got.time - traits.expires) / 1e6:.0f} ms after its time"

    def _doubles(self) -> Iterator[str]:
        for (source, message), deliveries in self.got.items():
            ids: dict[int, str] = {}
            for got in deliveries:
                if got.id and ids.setdefault(epoch(got.link), got.id) != got.id:
                    yield f"doubled: {message} of {source} is there as {ids[epoch(got.link)]} and {got.id}"

    def _splits(self) -> Iterator[str]:
        by_group: dict[tuple[str, str, int], list[Got]] = defaultdict(list)
        for (source, message), deliveries in self.got.items():
            rules = BY_NAME.get(source)
            if (
                rules is None
                or message not in self.sent
                or rules.moves_groups
                or not (rules.is_grouped or rules.is_exclusive)
            ):
                continue
            group = self.sent[message].traits.group
            if rules.is_exclusive or group:
                for got in deliveries:
                    by_group[source, "" if rules.is_exclusive else group, epoch(got.link)].append(got)
        for (source, group, _), deliveries in by_group.items():
            deliveries.sort(key=lambda got: got.time)
            for before, got in pairwise(deliveries):
                if before.link != got.link and self.closed.get(before.link, inf) > got.time:
                    yield f"split: {got.message} of {source} {group} to {got.link}, while {before.link} has it"

    def _waits(self) -> Iterator[str]:
        for event in self.waiting:
            rules = BY_NAME[event.source]
            if rules.is_ring and len(event.messages) > RING:
                yield f"overfull: {len(event.messages)} wait in {event.source}"
            keys: dict[str, str] = {}
            for message in event.messages if rules.is_last_value else ():
                key = self.sent[message].traits.key if message in self.sent else ""
                if key and keys.setdefault(key, message) != message:
                    yield f"replaced: {keys[key]} and {message} of {event.source} have the key {key}"

    def _stale(self) -> Iterator[str]:
        """Of topics with one sender, so its numbers say which is newer."""
        done: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for name, sent in self.sent.items():
            for destination in sent.destination.split(","):
                if destination in PRICED:
                    done[destination].append((self._at_the_latest(sent), int(name.rpartition(".")[2])))
        for event in self.retained:
            least = max([number for at, number in done[event.destination] if 0 < at < event.asked], default=0)
            if event.message not in self.sent:
                yield f"invented: {event.message} retained"
            elif int(event.message.rpartition(".")[2]) < least:
                yield f"stale: {event.message} retained for {event.link}, number {least} was confirmed before"

    def _refusals(self) -> Iterator[str]:
        for event in self.refused:
            unit = self.units.get(event.unit)
            sources = (
                [rules_of(source) for sent in unit.sends for source in sources_of(sent)]
                if unit is not None
                else []
            )
            if any(rules.may_refuse for rules in sources) and not any(
                self._is_limited(r, event.link) for r in sources if r.may_refuse
            ):
                yield f"unfounded: {event.unit} on {event.link} was refused by an address that takes everything"

    def _deaths(self) -> Iterator[str]:
        """Each dead letter has the attempts behind it that it says. As often as a lost connection may have had it first, it may have."""
        for (source, message), deliveries in self.got.items():
            queue, origin = place_of(source)
            if queue != DEAD or not origin or message not in self.sent:
                continue
            first = deliveries[0]
            answers = [
                answer for answer in self.answers[origin, message] if epoch(answer.link) <= epoch(first.link)
            ]
            if first.reason == "rejected" and not any(answer.is_final for answer in answers):
                yield f"unexplained: {message} of {origin} died as one that nobody refused for good"
            if (
                first.reason == "max-delivery-attempts"
                and self._attempts(origin, message, answers, first) < ATTEMPTS
            ):
                yield f"unexplained: {message} of {origin} died after {self._attempts(origin, message, answers, first)} attempts"

    def _attempts(self, origin: str, message: str, answers: list[Answered], died: Got) -> int:
        """At the most: refusals, connections that were lost, and brokers that count before they deliver."""
        nacks = sum(answer.is_failure for answer in answers)
        lost = sum(self._may_have_failed(end, origin, message) for end in self.ends if end.time < died.time)
        sent = self.sent[message].time
        killed = [broker for broker in self.brokers if broker.counts_first and broker.time < died.time]
        return nacks + lost + sum(self._until(broker) > sent for broker in killed)

    def _until(self, broker: Started) -> float:
        at = bisect_right(self.brokers, broker.time, key=_time)
        return self.brokers[at].time if at < len(self.brokers) else inf

    def _may_have_failed(self, end: Closed, origin: str, message: str) -> bool:
        """Whether a connection that was lost had the message as its oldest: it read it and nothing older is unanswered, or it did not
        read all that was on its way. The broker may be late to notice it, and hand out what came meanwhile."""
        sent = self.sent[message]
        is_over = end.time + SLACK < sent.time or epoch(end.link) < epoch(sent.link)
        if is_over or (end.sources and origin not in end.sources):
            return False
        mine = [got.time for got in self.got.get((origin, message), ()) if got.link == end.link]
        return not mine or not any(
            at < mine[-1] and not self._is_answered(origin, other, end.link)
            for other, at in self._read_by(end.link, origin)
        )

    def _read_by(self, link: str, source: str) -> list[tuple[str, int]]:
        if not self._reads:
            for (queue, message), deliveries in self.got.items():
                for got in deliveries:
                    self._reads[got.link, queue].append((message, got.time))
        return self._reads.get((link, source), [])

    def _is_answered(self, source: str, message: str, link: str) -> bool:
        return any(answer.link == link for answer in self.answers[source, message])

    def _tries(self) -> Iterator[str]:
        """Refusals of which the broker knows: their connection went on, or said goodbye."""
        lost = {end.link for end in self.ends}
        for (source, message), deliveries in self.got.items():
            if "|" in source or rules_of(source).is_final or rules_of(source) in (LOG, NAMED, TEMPORARY):
                continue
            # deliveries that were refused, by broker and link
            failed: dict[tuple[int, str], int] = defaultdict(int)
            refusals: dict[str, int] = defaultdict(int)
            for answer in self.answers[source, message]:
                refusals[answer.link] += answer.is_failure and not answer.transaction
            for got in deliveries:
                known = sum(
                    min(count, refusals[link])
                    for (born, link), count in failed.items()
                    if born == epoch(got.link)
                )
                if known >= ATTEMPTS:
                    yield f"overtried: {message} of {source} to {got.link}, after {known} attempts"
                if got.link not in lost:
                    failed[epoch(got.link), got.link] += 1

    def _owned(self) -> Iterator[str]:
        for (source, message), deliveries in self.got.items():
            owner = source.partition(":")[2]
            if rules_of(source.partition("|")[0]) is TEMPORARY:
                yield from (
                    f"stolen: {message} of {source} to {got.link}" for got in deliveries if got.link != owner
                )


def _time(broker: Started) -> int:
    return broker.time
