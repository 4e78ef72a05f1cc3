"""The audit of all features finds what it is there to find: each promise broken by hand, and journals in which nothing is wrong."""

from __future__ import annotations

import pytest

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
    Retained,
    Sent,
    Traits,
    Waiting,
)
from tests.crash.fates import SLACK, Fates
from tests.crash.features import DEAD, EXPIRED, NEWS, PRICES, RING, STREAM

S = 1_000_000_000
MIXED, GROUPS, LAST, RINGS, ALONE, DROP, FAIL, KEPT = [
    f"/queue/all.{name}" for name in ["mixed", "groups", "last", "ring", "alone", "drop", "fail", "kept"]
]
WATCHED = ("anna.news", "carl.news")
COPIES, TAKEN, FILTERED = "all.copies", "all.taken", "all.filtered"
# Who sends, and two who receive, each on a connection to the first broker and on one to the second; the third one drains
P1, P2, V1, V2, W1, W2, LAST1 = "1-1", "2-1", "1-2", "2-2", "1-3", "2-3", "3-1"
FIRST, SECOND = (P1, V1, W1), (P2, V2, W2)
OPEN: list[Event] = [
    *[Opened(1 * S, link) for link in FIRST], *[Closed(50 * S, link) for link in FIRST], *[Opened(60 * S, link) for link in SECOND],
    *[Closed(90 * S, link) for link in SECOND], Opened(100 * S, LAST1),
]  # fmt: skip
Told = Event | list[Event]


def sent(
    number: int, destination: str = MIXED, traits: Traits | None = None, *, at: int = 10, confirmed: int = 11, link: str = P1
) -> list[Event]:
    name = f"p.{number}"
    one: list[Event] = [Sent(link, name, destination, "", True, at * S, traits or Traits())]
    return [*one, Confirmed(confirmed * S, link, name)] if confirmed else one


def transaction(*sends: tuple[int, str], confirmed: int = 0, traits: Traits | None = None) -> list[Event]:
    events: list[Event] = [Sent(P1, f"p.{number}", destination, "t", True, 10 * S, traits or Traits()) for number, destination in sends]
    events.append(Ended(P1, "t", commits=True))
    return [*events, Confirmed(confirmed * S, P1, "t")] if confirmed else events


def got(number: int, source: str = "all.mixed", link: str = V1, *, at: int = 20, again: bool = False, id: str = "") -> list[Event]:
    return [Got(at * S, link, source, f"p.{number}", again, id)]


def done(number: int, source: str = "all.mixed", link: str = V1, *, at: int = 0, good: bool = True) -> list[Event]:
    answer: list[Event] = [Answered(link, source, [f"p.{number}"], "", good)]
    return [*answer, Acknowledged(at * S, link, source, [f"p.{number}"])] if at else answer


def used(number: int, source: str = "all.mixed", link: str = V1, *, at: int = 20) -> list[Event]:
    return [*got(number, source, link, at=at), *done(number, source, link, at=at + 1)]


def all_of(number: int, *sources: str) -> list[Event]:
    return [event for source in sources for event in used(number, source)]


def problems(*told: Told) -> list[str]:
    audit = Fates()
    audit.add([*OPEN, *[each for event in told for each in (event if isinstance(event, list) else [event])]])
    return audit.problems()


X, Y, Z = Traits("x"), Traits("y"), Traits("z")
GROUP, KEY = Traits(group="g"), Traits(key="k")
LATE, BRIEF = Traits(due=30 * S), Traits(expires=30 * S)
AGAIN = Traits(again=True)

FINE: dict[str, list[Told]] = {
    "consumed": [sent(1), used(1)],
    "diverted": [sent(1, MIXED, X), all_of(1, "all.mixed", COPIES)],
    "diverted alone": [sent(1, ALONE, Z), used(1, TAKEN)],
    "several at once": [sent(1, f"{MIXED},{NEWS}", Y), all_of(1, "all.mixed", *WATCHED, FILTERED), got(1, STREAM, LAST1, at=101)],
    "died": [sent(1), got(1), done(1, good=False), used(1, f"{DEAD}|all.mixed", at=25)],
    "died, which its broker did not live to store": [
        sent(1), got(1), done(1, good=False), got(1, f"{DEAD}|all.mixed", at=25), got(1, link=V2, at=70, again=True), done(1, link=V2),
    ],
    "died twice, for the same reason": [
        sent(1), got(1), done(1, good=False), got(1, f"{DEAD}|all.mixed", at=25), got(1, link=V2, at=70, again=True),
        done(1, link=V2, good=False), got(1, f"{DEAD}|all.mixed", V2, at=75, again=True), done(1, f"{DEAD}|all.mixed", V2),
    ],
    "expired": [sent(1, MIXED, BRIEF), used(1, f"{EXPIRED}|all.mixed", at=40)],
    "came before it expired": [sent(1, MIXED, BRIEF), used(1)],
    "a ring pushed it out": [sent(1, RINGS), *[[*sent(n, RINGS, at=12, confirmed=13), *used(n, "all.ring")] for n in range(2, RING + 2)]],
    "one that came back into a ring, too": [
        sent(1, RINGS),
        got(1, "all.ring"),
        *[[*sent(n, RINGS, at=22, confirmed=23), *used(n, "all.ring", at=24)] for n in range(2, RING + 2)],
    ],
    "replaced": [sent(1, LAST, KEY), sent(2, LAST, KEY, at=12, confirmed=13), used(2, "all.last")],
    "replaced by one that woke later": [
        sent(1, LAST, Traits(key="k", due=15 * S)), sent(2, LAST, KEY, at=12, confirmed=13), used(1, "all.last"),
    ],
    "dropped": [sent(1, DROP)],
    "refused": [sent(1, FAIL, confirmed=0), [Refused(P1, "p.1")]],
    "a scheduled one overtaken": [sent(1, MIXED, LATE), sent(2), used(2), used(1, at=31)],
    "a lower priority overtaken": [sent(1, MIXED, Traits(priority=1)), sent(2), used(2), used(1, at=21)],
    "sent again": [sent(1, MIXED, AGAIN, confirmed=0), sent(1, MIXED, AGAIN, at=61, confirmed=62, link=P2), used(1, link=V2, at=70)],
    "sent again, the first one delivered and gone with its broker": [
        sent(1, MIXED, AGAIN, confirmed=0), got(1), sent(1, MIXED, AGAIN, at=61, confirmed=62, link=P2), used(1, link=V2, at=70),
    ],
    "a group changes hands when its consumer goes": [
        sent(1, GROUPS, GROUP), used(1, "all.groups"), [Closed(25 * S, V1)], sent(2, GROUPS, GROUP, at=12, confirmed=13),
        used(2, "all.groups", W1, at=30),
    ],
    "retained": [sent(1, PRICES), [Retained(12 * S, V1, PRICES, "p.1")]],
    "retained, a newer one not confirmed yet": [sent(1, PRICES), sent(2, PRICES, confirmed=15), [Retained(12 * S, V1, PRICES, "p.2")]],
    "looked at in a queue that keeps": [sent(1, KEPT), got(1, "all.kept", LAST1, at=101)],
    "one of each key waits": [sent(1, LAST, KEY), [Waiting("all.last", ["p.1"])], used(1, "all.last")],
    "not persistent in a transaction": [
        [Sent(P1, "p.1", MIXED, "t", False, 10 * S), Ended(P1, "t", commits=True), Confirmed(11 * S, P1, "t")],
    ],
}  # fmt: skip

BROKEN: dict[str, tuple[str, list[Told]]] = {
    "confirmed and gone": ("lost", [sent(1)]),
    "confirmed with a delay and gone": ("lost", [sent(1, MIXED, LATE)]),
    "a large ring pushes nothing out": ("lost hole", [sent(1, RINGS), sent(2, RINGS, at=12, confirmed=13), used(2, "all.ring")]),
    "replaced by nobody": ("lost hole", [sent(1, LAST, KEY), sent(2, LAST, Traits(key="other"), at=12, confirmed=13), used(2, "all.last")]),
    "replaced by an older one": ("lost", [sent(1, LAST, KEY), sent(2, LAST, KEY, at=12, confirmed=13), used(1, "all.last")]),
    "expired into nothing": ("lost", [sent(1, MIXED, BRIEF)]),
    "refused at last and in no dead letter queue": ("lost", [sent(1), got(1), done(1, good=False)]),
    "delivered from where messages are dropped, and gone": ("lost", [sent(1, DROP), got(1, "all.drop")]),
    "gone out of a queue that keeps": ("lost", [sent(1, KEPT)]),
    "gone out of the log": ("lost", [sent(1, NEWS), all_of(1, *WATCHED)]),
    "acknowledged with a receipt and back": ("returned", [sent(1), used(1), got(1, link=V2, at=70, again=True), done(1, link=V2)]),
    "acknowledged with a receipt and a dead letter": (
        "returned", [sent(1), used(1), used(1, f"{DEAD}|all.mixed", V2, at=70)],
    ),
    "a dead letter, acknowledged, and back where it died": (
        "returned", [sent(1), used(1, f"{DEAD}|all.mixed"), got(1, link=V2, at=70, again=True), done(1, link=V2)],
    ),
    "a dead letter, taken and gone": ("lost", [sent(1), got(1), done(1, good=False), got(1, f"{DEAD}|all.mixed", at=25)]),
    "back where it died, taken and gone": (
        "lost", [sent(1), got(1), done(1, good=False), got(1, f"{DEAD}|all.mixed", at=25), got(1, link=V2, at=70, again=True)],
    ),
    "a dead letter without the mark": (
        "unmarked",
        [sent(1), got(1), done(1, good=False), got(1, f"{DEAD}|all.mixed", at=25), got(1, link=V2, at=70, again=True),
         done(1, link=V2, good=False), got(1, f"{DEAD}|all.mixed", V2, at=75), done(1, f"{DEAD}|all.mixed", V2)],
    ),
    "half a transaction": ("half", [transaction((1, MIXED), (2, GROUPS)), used(1, link=V2, at=70)]),
    "half a confirmed transaction": ("lost", [transaction((1, MIXED), (2, GROUPS), confirmed=12), used(1)]),
    "half a divert": ("half", [sent(1, MIXED, X, confirmed=0), used(1, link=V2, at=70)]),
    "half of several destinations": ("half", [sent(1, f"{MIXED},{GROUPS}", confirmed=0), used(1, link=V2, at=70)]),
    "refused and there": ("void", [sent(1, FAIL, confirmed=0), [Refused(P1, "p.1")], used(1, "all.fail")]),
    "an earlier one is missing": ("hole", [sent(1, confirmed=0), sent(2), used(2)]),
    "order of one producer": ("disorder", [sent(1), sent(2), used(2), used(1, at=22)]),
    "order of one priority": (
        "disorder", [sent(1, MIXED, Traits(priority=7)), sent(2, MIXED, Traits(priority=7)), used(2), used(1, at=22)],
    ),
    "order of the log": (
        "disorder",
        [sent(1, NEWS, Traits(priority=1)), sent(2, NEWS), all_of(1, *WATCHED), all_of(2, *WATCHED), got(2, STREAM, LAST1, at=101),
         got(1, STREAM, LAST1, at=102)],
    ),
    "to two at once": ("twice", [sent(1), got(1), got(1, link=W1, at=25, again=True), done(1, link=W1)]),
    "without the mark": ("unmarked", [sent(1), got(1), got(1, link=V2, at=70), done(1, link=V2)]),
    "before its time": ("early", [sent(1, MIXED, LATE), used(1, at=20)]),
    "expired before its time": ("early", [sent(1, MIXED, BRIEF), used(1, f"{EXPIRED}|all.mixed", at=20)]),
    "delivered after it expired": ("expired", [sent(1, MIXED, Traits(expires=60 * S - 2 * SLACK)), used(1, link=V2, at=70)]),
    "there twice, one id": (
        "doubled unmarked",
        [sent(1, MIXED, AGAIN), got(1, id="1-7"), done(1), [Closed(25 * S, V1)], got(1, link=W1, at=30, id="1-9"), done(1, link=W1)],
    ),
    "a group with two consumers": (
        "split",
        [sent(1, GROUPS, GROUP), used(1, "all.groups"), sent(2, GROUPS, GROUP, at=12, confirmed=13), used(2, "all.groups", W1, at=30)],
    ),
    "an exclusive queue with two consumers": (
        "split", [sent(1, ALONE), used(1, "all.alone"), sent(2, ALONE, at=12, confirmed=13), used(2, "all.alone", W1, at=30)],
    ),
    "too many in a ring": (
        "overfull",
        [*[[*sent(n, RINGS), *used(n, "all.ring")] for n in range(RING + 1)], [Waiting("all.ring", [f"p.{n}" for n in range(RING + 1)])]],
    ),
    "two of one key": (
        "replaced",
        [sent(1, LAST, KEY), sent(2, LAST, KEY), all_of(1, "all.last"), all_of(2, "all.last"), [Waiting("all.last", ["p.1", "p.2"])]],
    ),
    "an old retained one": ("stale", [sent(1, PRICES), sent(2, PRICES), [Retained(12 * S, V1, PRICES, "p.1")]]),
    "a body that is not what was sent": ("invented", [[Got(20 * S, V1, "all.mixed", "broken-p.1.0", False)]]),
    "not persistent, after a restart": (
        "resurrected", [[Sent(P1, "p.1", MIXED, "t", False, 10 * S), Ended(P1, "t", commits=True)], used(1, link=V2, at=70)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    assert problems(*FINE[name]) == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str) -> None:
    code, told = BROKEN[name]
    found = problems(*told)
    assert {problem.partition(":")[0] for problem in found} == set(code.split()), found
