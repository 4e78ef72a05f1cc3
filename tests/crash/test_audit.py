"""The audit finds what it is there to find: each promise broken by hand, and journals in which nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.audit import LEARNS, Audit
from tests.crash.events import (
    Acknowledged,
    Answered,
    Closed,
    Confirmed,
    Ended,
    Event,
    Got,
    Journal,
    Opened,
    Sent,
    Subscribed,
    read,
)

Q, R, T, A, B = "/queue/q", "/queue/r", "/topic/t", "a/news", "b/news"
SOURCES = {Q: (Q,), R: (R,), T: (A, B)}
# Who sends, and two who receive, each on a connection to the first broker and on one to the second
P1, P2, V1, V2, W1, W2 = "1-1", "2-1", "1-2", "2-2", "1-3", "2-3"
FIRST, SECOND = (P1, V1, W1), (P2, V2, W2)
OPEN = [
    *[Opened(0, link) for link in FIRST],
    *[Closed(50, link) for link in FIRST],
    *[Opened(60, link) for link in SECOND],
]


def sent(number: int, destination: str = Q, *, confirmed: int = 10, link: str = P1) -> list[Event]:
    unit: list[Event] = [Sent(link, f"p.{number}", destination)]
    return [*unit, Confirmed(confirmed, link, f"p.{number}")] if confirmed else unit


def got(number: int, source: str = Q, link: str = V1, *, time: int = 20, again: bool = False) -> Got:
    return Got(time, link, source, f"p.{number}", again)


def done(
    number: int, source: str = Q, link: str = V1, *, time: int = 0, transaction: str = "", good: bool = True
) -> list[Event]:
    answer: list[Event] = [Answered(link, source, [f"p.{number}"], transaction, good)]
    return [*answer, Acknowledged(time, link, source, [f"p.{number}"])] if time else answer


def transaction(
    *sends: tuple[int, str], ends: bool | None = True, confirmed: int = 0, link: str = P1
) -> list[Event]:
    events: list[Event] = [Sent(link, f"p.{number}", destination, "t") for number, destination in sends]
    if ends is not None:
        events.append(Ended(link, "t", ends))
    return [*events, Confirmed(confirmed, link, "t")] if confirmed else events


def problems(*events: Event | list[Event], exclusive: tuple[str, ...] = ()) -> list[str]:
    audit = Audit(SOURCES, exclusive)
    audit.add(
        [*OPEN, *[each for event in events for each in (event if isinstance(event, list) else [event])]]
    )
    return audit.problems()


FINE = {
    "consumed": [sent(1), got(1), done(1, time=30)],
    "nothing said": [sent(1, confirmed=0)],
    "not acknowledged in time": [sent(1), got(1), got(1, link=V2, time=70, again=True), done(1, link=V2)],
    "acknowledged without a receipt": [sent(1), got(1), done(1), got(1, link=V2, time=70, again=True), done(1, link=V2)],
    "delivered, gone with its broker": [sent(1, confirmed=0), got(1)],
    "half of a transaction delivered, gone": [transaction((1, Q), (2, R)), got(1)],
    "a transaction": [transaction((1, Q), (2, T), confirmed=15), got(1), done(1), got(2, A), done(2, A), got(2, B), done(2, B)],
    "an aborted transaction": [transaction((1, Q), (2, T), ends=False)],
    "refused": [sent(1), got(1), done(1, good=False), got(1, link=W1, time=25, again=True), done(1, link=W1)],
    "its reader left": [sent(1), got(1, link=W1, time=55, again=True), got(1), done(1, link=W1)],
    "read late from a dead broker": [sent(1), got(1, link=V2, time=70, again=True), got(1, link=W1, time=90), done(1, link=V2)],
    "a transaction did not happen": [
        sent(1), got(1), done(1, transaction="t"), transaction((2, R)), got(1, link=V2, time=70, again=True), done(1, link=V2),
    ],
    "redeliveries behind": [sent(1), sent(2), got(2), done(2), got(1, time=21, again=True), done(1)],
    "not persistent": [[Sent(P1, "p.1", Q, persistent=False), Confirmed(9, P1, "p.1")], got(1)],
}  # fmt: skip

BROKEN = {
    "never came": ("lost", [sent(1)]),
    "came to one of two": ("lost", [sent(1, T), got(1, A), done(1, A)]),
    "not in a transaction that was confirmed": ("lost", [transaction((1, Q), (2, R), confirmed=15), got(1), done(1)]),
    "delivered, not acknowledged, gone": ("lost", [sent(1), got(1)]),
    "refused and gone": ("lost", [sent(1), got(1), done(1, good=False)]),
    "acknowledged in a transaction that was aborted": (
        "lost", [sent(1), got(1), done(1, transaction="t"), transaction((2, R), ends=False)],
    ),
    "half of a transaction after a restart": ("half", [transaction((1, Q), (2, R)), got(1, link=V2, time=70), done(1, link=V2)]),
    "half of a topic's subscriptions": ("half", [sent(1, T, confirmed=0), got(1, A, V2, time=70), done(1, A, V2)]),
    "acknowledgements of a transaction without its sends": (
        "half", [sent(1), got(1), done(1, transaction="t"), transaction((2, R), link=V1)],
    ),
    "out of an aborted transaction": ("void", [transaction((1, Q), ends=False), got(1), done(1)]),
    "out of a transaction that never ended": ("void", [transaction((1, Q), ends=None), got(1), done(1)]),
    "an earlier one is missing": ("hole", [sent(1, confirmed=0), sent(2), got(2), done(2)]),
    "after its receipt": ("returned", [sent(1), got(1), done(1, time=30), got(1, link=V2, time=70, again=True), done(1, link=V2)]),
    "to the same one": ("returned twice", [sent(1), got(1), done(1, time=30), got(1, time=31, again=True), done(1)]),
    "after a confirmed transaction": (
        "returned",
        [sent(1), got(1), done(1, transaction="t"), transaction((2, R), confirmed=30, link=V1), got(2, R, V2, time=70), done(2, R, V2),
         got(1, link=V2, time=71, again=True), done(1, link=V2)],
    ),
    "after a transaction that is there": (
        "returned",
        [sent(1), got(1), done(1, transaction="t"), transaction((2, R), link=V1), got(2, R, V2, time=70), done(2, R, V2),
         got(1, link=V2, time=71, again=True), done(1, link=V2)],
    ),
    "to two at once": ("twice", [sent(1), got(1), got(1, link=W1, time=25, again=True), done(1, link=W1)]),
    "without the mark, after a restart": ("unmarked", [sent(1), got(1), got(1, link=V2, time=70), done(1, link=V2)]),
    "without the mark, after a NACK": ("unmarked", [sent(1), got(1), done(1, good=False), got(1, link=W1, time=25), done(1, link=W1)]),
    "a later one first": ("disorder", [sent(1), sent(2), got(2), done(2), got(1, time=21), done(1)]),
    "not persistent": ("resurrected", [[Sent(P1, "p.1", Q, persistent=False)], got(1, link=V2, time=70), done(1, link=V2)]),
    "nobody sent it": ("invented", [got(1), done(1)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    assert problems(*FINE[name]) == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str) -> None:
    code, events = BROKEN[name]
    found = problems(*events)
    assert {problem.partition(":")[0] for problem in found} == set(code.split()), found


def test_redeliveries_of_an_exclusive_source_are_in_order_too() -> None:
    events = [
        sent(1),
        sent(2),
        got(2, link=V2, again=True),
        done(2, link=V2),
        got(1, link=V2, time=21, again=True),
        done(1, link=V2),
    ]
    assert problems(*events) == []
    assert [problem.partition(":")[0] for problem in problems(*events, exclusive=(Q,))] == ["disorder"]


def test_what_somebody_who_left_was_never_told_may_come_behind_later_ones() -> None:
    got_by_others = [got(2, link=W1), got(1, link=W1, time=21), *done(1, link=W1), *done(2, link=W1)]
    both, by_leaver = [sent(1), sent(2), sent(3)], [got(3), *done(3)]
    left = Closed(15, V1)
    assert problems(*both, *by_leaver, left, *got_by_others) == []
    assert problems(*both[:2], Subscribed(V1, Q), left, *got_by_others) == [], (
        "also one who got nothing at all"
    )
    before_it_was_read = [Sent(P1, "p.1", Q, time=16), sent(2), sent(3)]
    assert problems(*before_it_was_read, *by_leaver, left, *got_by_others) == []
    after = [Sent(P1, "p.1", Q, time=16 + LEARNS), sent(2), sent(3)]
    for events in (
        [*both, *by_leaver, *got_by_others],  # nobody left,
        [*both, left, *got_by_others, got(3, link=W1, time=22), *done(3, link=W1)],  # nobody who took part,
        [*after, *by_leaver, left, *got_by_others],  # before it was sent,
        [*both, *by_leaver, Closed(30, V1), *got_by_others],  # or after it came
    ):
        assert [problem.partition(":")[0] for problem in problems(*events)] == ["disorder"]
    told = problems(*both, *by_leaver, left, *got_by_others, exclusive=(Q,))
    assert [problem.partition(":")[0] for problem in told] == ["disorder"]


def test_journals_come_back_as_they_were_written(tmp_path: Path) -> None:
    events = [*OPEN, *transaction((1, Q), confirmed=3), got(1, again=True), *done(1, time=4)]
    with Journal(tmp_path / "a.journal") as journal:
        for event in events:
            journal.note(event)
    assert list(read(tmp_path / "a.journal")) == events
