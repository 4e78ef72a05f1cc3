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
    Moved,
    Moving,
    Opened,
    Refused,
    Retained,
    Sent,
    Shown,
    Started,
    Stood,
    Traits,
    Waiting,
)
from tests.crash.fates import SLACK, Fates
from tests.crash.features import DEAD, EXPIRED, NEWS, PRICED, RING, STREAM

S = 1_000_000_000
MIXED, GROUPS, LAST, RINGS, ALONE, DROP, FAIL, KEPT = [
    f"/queue/all.{name}" for name in ["mixed", "groups", "last", "ring", "alone", "drop", "fail", "kept"]
]
WATCHED = ("anna.news", "carl.news", "nora.stream")
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
    number: int,
    destination: str = MIXED,
    traits: Traits | None = None,
    *,
    at: int = 10,
    confirmed: int = 11,
    link: str = P1,
) -> list[Event]:
    name = f"p.{number}"
    one: list[Event] = [Sent(link, name, destination, "", True, at * S, traits or Traits())]
    return [*one, Confirmed(confirmed * S, link, name)] if confirmed else one


def transaction(*sends: tuple[int, str], confirmed: int = 0, traits: Traits | None = None) -> list[Event]:
    events: list[Event] = [
        Sent(P1, f"p.{number}", destination, "t", True, 10 * S, traits or Traits())
        for number, destination in sends
    ]
    events.append(Ended(P1, "t", commits=True))
    return [*events, Confirmed(confirmed * S, P1, "t")] if confirmed else events


def got(
    number: int, source: str = "all.mixed", link: str = V1, *, at: int = 20, again: bool = False, id: str = ""
) -> list[Event]:
    return [Got(at * S, link, source, f"p.{number}", again, id)]


def done(
    number: int, source: str = "all.mixed", link: str = V1, *, at: int = 0, good: bool = True
) -> list[Event]:
    answer: list[Event] = [Answered(link, source, [f"p.{number}"], "", good)]
    return [*answer, Acknowledged(at * S, link, source, [f"p.{number}"])] if at else answer


def used(number: int, source: str = "all.mixed", link: str = V1, *, at: int = 20) -> list[Event]:
    return [*got(number, source, link, at=at), *done(number, source, link, at=at + 1)]


def all_of(number: int, *sources: str) -> list[Event]:
    return [event for source in sources for event in used(number, source)]


def dead(number: int, reason: str, link: str = V1, *, at: int = 30) -> list[Event]:
    source = f"{DEAD}|all.mixed"
    answered = Answered(link, source, [f"p.{number}"])
    return [Got(at * S, link, source, f"p.{number}", False, "", reason), answered]


def failed(number: int, link: str, *, at: int, final: bool = False, again: bool = False) -> list[Event]:
    return [
        *got(number, link=link, at=at, again=again),
        Answered(link, "all.mixed", [f"p.{number}"], "", False, True, final),
    ]


def answered(number: int, owner: str = V1, *, at: int = 20) -> list[Event]:
    """One that came to the owner of a temporary queue."""
    return got(number, f"temporary:{owner}", owner, at=at)


def shown(
    *numbers: int, asked: int = 30, source: str = "all.kept", start: int = 0, offsets: tuple[int, ...] = ()
) -> list[Event]:
    return [Shown(asked * S, V1, source, [f"p.{number}" for number in numbers], start, list(offsets))]


def on_log(*numbers: int) -> list[Told]:
    """Sent to the topic, and all but read again."""
    everywhere: list[list[Event]] = [
        event for number in numbers for event in (sent(number, NEWS), all_of(number, *WATCHED))
    ]
    return [*everywhere, *[got(number, STREAM, LAST1, at=101) for number in numbers]]


def move(position: int, *, confirmed: int = 21) -> list[Event]:
    return [Moving(V1, "g", position), *([Moved(confirmed * S, V1, "g", position)] if confirmed else [])]


def problems(*told: Told) -> list[str]:
    audit = Fates()
    audit.add([*OPEN, *[each for event in told for each in (event if isinstance(event, list) else [event])]])
    return audit.problems()


X, Y, Z = Traits("x"), Traits("y"), Traits("z")
GROUP, KEY = Traits(group="g"), Traits(key="k")
LATE, BRIEF = Traits(due=30 * S, delay=20_000), Traits(expires=30 * S)
AGAIN = Traits(again=True)

ROOM = [Started(0, [], False)]
FULL = [Started(0, ["all.drop", "all.fail"], False)]
TEMPORARY = f"temporary:{V1}"

FINE: dict[str, list[Told]] = {
    "dropped where it may have been full": [FULL, sent(1, DROP)],
    "refused where it may have been full": [FULL, sent(1, FAIL, confirmed=0), [Refused(P1, "p.1")]],
    "scheduled, the earlier one to wait longer": [
        sent(1, MIXED, Traits(due=40 * S, delay=30_000)), sent(2, MIXED, LATE), used(2, at=31), used(1, at=41),
    ],
    "died of two refusals": [
        sent(1), failed(1, V1, at=20), failed(1, W1, at=21, again=True), dead(1, "max-delivery-attempts"),
    ],
    "died of a refusal and a lost connection": [
        sent(1), failed(1, V1, at=20), got(1, link=W1, at=21, again=True), [Closed(22 * S, W1, True, ["all.mixed"])],
        dead(1, "max-delivery-attempts"),
    ],
    "died of a refusal and a connection that had been lost just before it was sent": [
        sent(1), failed(1, V1, at=20), [Closed(10 * S - SLACK // 2, W1, True, ["all.mixed"])], dead(1, "max-delivery-attempts"),
    ],
    "died of brokers that count first": [
        [Started(0, [], True), Started(55 * S, [], True)], sent(1), dead(1, "max-delivery-attempts", V2, at=70),
    ],
    "refused for good": [sent(1), failed(1, V1, at=20, final=True), dead(1, "rejected")],
    "answers to a temporary queue": [sent(1, TEMPORARY), answered(1)],
    "answers whose owner went first": [sent(1, TEMPORARY, confirmed=0)],
    "answers whose broker went first": [sent(1, "temporary:3-1", at=101, confirmed=102)],
    "a batch, told again to the next broker": [
        transaction((1, MIXED), (2, MIXED)), [Sent(P2, "p.1", MIXED, "t", True, 65 * S), Sent(P2, "p.2", MIXED, "t", True, 65 * S)],
        [Confirmed(66 * S, P2, "t")], used(1, link=V2, at=70), used(2, link=V2, at=71),
    ],
    "shown to everybody": [sent(1, KEPT), sent(2, KEPT), shown(1, 2), shown(1, 2, asked=31), got(1, "all.kept"), got(2, "all.kept")],
    "sent after a reader asked": [sent(1, KEPT), sent(2, KEPT, at=40, confirmed=41), shown(1), got(1, "all.kept"), got(2, "all.kept")],
    "read again": [*on_log(1, 2), shown(1, 2, source=STREAM, offsets=(4, 5)), shown(2, source=STREAM, start=5, offsets=(5,))],
    "a group goes on": [move(3), move(7, confirmed=0), [Stood(22 * S, V1, "g", 3), Stood(65 * S, V2, "g", 7)]],
    "a group that was never moved": [[Stood(22 * S, V1, "g", 0)]],
    "consumed": [sent(1), used(1)],
    "sent on a connection that was given up, and heard behind the next one": [
        sent(1, confirmed=0, link=W1), [Closed(12 * S, W1)], sent(2, at=13, confirmed=14), used(2, at=20), used(1, at=21),
    ],
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
    "retained": [sent(1, PRICED[0]), [Retained(12 * S, V1, PRICED[0], "p.1")]],
    "retained, a newer one not confirmed yet": [
        sent(1, PRICED[0]), sent(2, PRICED[0], confirmed=15), [Retained(12 * S, V1, PRICED[0], "p.2")],
    ],
    "looked at in a queue that keeps": [sent(1, KEPT), got(1, "all.kept", LAST1, at=101)],
    "one of each key waits": [sent(1, LAST, KEY), [Waiting("all.last", ["p.1"])], used(1, "all.last")],
    "not persistent in a transaction": [
        [Sent(P1, "p.1", MIXED, "t", False, 10 * S), Ended(P1, "t", commits=True), Confirmed(11 * S, P1, "t")],
    ],
}  # fmt: skip

BROKEN: dict[str, tuple[str, list[Told]]] = {
    "dropped where there was room": ("lost", [ROOM, sent(1, DROP)]),
    "refused where there was room": ("unfounded", [ROOM, sent(1, FAIL, confirmed=0), [Refused(P1, "p.1")]]),
    "scheduled, in the wrong order": ("disorder", [sent(1, MIXED, LATE), sent(2, MIXED, LATE), used(2, at=31), used(1, at=32)]),
    "behind one that had to wait": ("disorder", [sent(1), sent(2, MIXED, LATE), used(2, at=31), used(1, at=32)]),
    "died of one refusal": ("unexplained", [sent(1), failed(1, V1, at=20), dead(1, "max-delivery-attempts")]),
    "died of a refusal, and a connection that was lost long before it was sent": (
        "unexplained",
        [sent(1), failed(1, V1, at=20), [Closed(10 * S - 2 * SLACK, W1, True, ["all.mixed"])], dead(1, "max-delivery-attempts")],
    ),
    "died although the lost connection had an older one": (
        "unexplained",
        [sent(1), sent(2), got(1, at=19), got(2, at=20), [Closed(22 * S, V1, True, ["all.mixed"])], got(1, link=W1, at=23, again=True),
         done(1, link=W1), failed(2, W1, at=24, again=True), dead(2, "max-delivery-attempts", W1)],
    ),
    "died as if refused for good": ("unexplained", [sent(1), failed(1, V1, at=20), dead(1, "rejected")]),
    "delivered after all attempts": (
        "overtried",
        [sent(1), failed(1, V1, at=20), failed(1, W1, at=21, again=True), got(1, at=22, again=True), done(1)],
    ),
    "an answer that never came": ("lost", [sent(1, TEMPORARY)]),
    "an answer that came to somebody else": ("stolen", [sent(1, TEMPORARY), got(1, TEMPORARY, W1)]),
    "half of the answers": ("lost", [transaction((1, TEMPORARY), (2, TEMPORARY), confirmed=15), answered(1)]),
    "a batch that is lost": ("lost", [transaction((1, MIXED), (2, GROUPS), confirmed=15), used(1)]),
    "a batch published twice": (
        "doubled twice",
        [transaction((1, MIXED), confirmed=15), [Sent(P1, "p.1", MIXED, "t", True, 16 * S)], got(1, id="1-1"),
         got(1, link=W1, at=21, id="1-2"), done(1, link=W1)],
    ),
    "what lost in a batch": ("void", [[Sent(P1, "p.1", MIXED, "lost", True, 10 * S), Ended(P1, "lost", False)], used(1)]),
    "not shown": ("unshown", [sent(1, KEPT), sent(2, KEPT), shown(1), got(1, "all.kept"), got(2, "all.kept")]),
    "shown twice": ("repeated disorder", [sent(1, KEPT), shown(1, 1), got(1, "all.kept")]),
    "shown in the wrong order": ("disorder", [sent(1, KEPT), sent(2, KEPT), shown(2, 1), got(1, "all.kept"), got(2, "all.kept")]),
    "left out of a log": (
        "unshown",
        [*on_log(1, 2, 3), shown(1, 2, 3, source=STREAM, offsets=(4, 5, 6)), shown(1, 3, source=STREAM, offsets=(4, 6))],
    ),
    "at another offset": ("moved", [*on_log(1), shown(1, source=STREAM, offsets=(4,)), shown(1, source=STREAM, offsets=(5,))]),
    "two at one offset": ("moved unshown", [*on_log(1, 2), shown(1, source=STREAM, offsets=(4,)), shown(2, source=STREAM, offsets=(4,))]),
    "another in the place of one that was not stored": ("moved", [
        sent(1, NEWS, confirmed=0), shown(1, source=STREAM, offsets=(4,)),
        *[sent(2, NEWS, at=61, confirmed=62, link=P2), *[used(2, source, V2, at=70) for source in WATCHED], got(2, STREAM, LAST1, at=101)],
        [Shown(80 * S, V2, STREAM, ["p.2"], 0, [4])],
    ]),
    "before the offset that was asked for": ("moved", [*on_log(1), shown(1, source=STREAM, start=5, offsets=(4,))]),
    "a group behind": ("behind", [move(3), move(7), [Stood(65 * S, V2, "g", 3)]]),
    "a group ahead": ("ahead", [move(3), [Stood(65 * S, V2, "g", 4)]]),
    "an old retained one of another topic": (
        "stale",
        [sent(1, PRICED[1]), sent(2, ",".join(PRICED)), sent(3, PRICED[0]), [Retained(12 * S, V1, PRICED[1], "p.1")]],
    ),
    "what a named reader was never given": ("lost", [sent(1, NEWS), all_of(1, *WATCHED[:2]), got(1, STREAM, LAST1, at=101)]),
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
    "an old retained one": ("stale", [sent(1, PRICED[0]), sent(2, PRICED[0]), [Retained(12 * S, V1, PRICED[0], "p.1")]]),
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
