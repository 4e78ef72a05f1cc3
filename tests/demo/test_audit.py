"""The audit finds what is missing, double, changed or in the wrong place, and names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from demo.audit import checks, late_facts
from tests.demo.records import record

Damage = Callable[[dict[str, Any]], None]


def report_row(found: dict[str, Any], report: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for name, row in found["report"]["rows"] if name == report)
    return row


def bad(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(check.subject, check.claim) for check in checks(found) if not check.is_good]


def test_all_counts_of_a_good_record_are_right() -> None:
    assert bad(record()) == []
    assert {check.subject for check in checks(record())} == {
        "Published",
        "Stored",
        "Archived",
        "Delivered",
        "Durable",
        "Late",
        "Report",
    }


@pytest.mark.parametrize(
    ("damage", "subject", "words"),
    [
        (lambda found: found["published"].update(confirmed=99), "Published", "receipt"),
        (lambda found: found["described"]["flights.UA"].update(next=39), "Stored", "as it describes them"),
        (
            lambda found: found["described"]["flights.UA"].update(first=1),
            "Stored",
            "as many as their carrier",
        ),
        (lambda found: report_row(found, "stored").update(checksum=1), "Stored", "checksum"),
        (lambda found: report_row(found, "archived").update(rows=61), "Archived", "rows in the table"),
        (
            lambda found: report_row(found, "archived").update(distinct=59),
            "Archived",
            "distinct (address, offset)",
        ),
        (lambda found: report_row(found, "archived").update(highest=60), "Archived", "no gap"),
        (lambda found: report_row(found, "archived").update(checksum=1), "Archived", "checksum"),
        (lambda found: found["board"].update(count=101), "Delivered", "wildcard subscriber got"),
        (lambda found: found["board"].update(duplicates=1), "Delivered", "twice"),
        (lambda found: found["board"].update(out_of_order=1), "Delivered", "out of order"),
        (lambda found: found["board"].update(checksum=1), "Delivered", "checksum"),
        (lambda found: found["control_room"]["visits"][1].update(count=74), "Durable", "two visits"),
        (lambda found: found["control_room"]["visits"][1].update(lowest=24), "Durable", "wrong visit"),
        (lambda found: found["control_room"]["visits"][0].update(checksum=1), "Durable", "checksum"),
        (lambda found: found["late"].update(handled=4), "Late", "a worker saw to"),
        (lambda found: found["late"].update(strangers=1), "Late", "not more than an hour late"),
        (lambda found: found["late"].update(unmarked=1), "Late", "without being marked"),
        (lambda found: found["described"]["late"].update(next=6), "Late", "left in /queue/late"),
        (lambda found: found["report"]["rows"].pop(0), "Report", "read from /queue/report"),
        (lambda found: found["report"].update(is_more=True), "Report", "after the last"),
    ],
)
def test_damage_is_found_and_named(damage: Damage, subject: str, words: str) -> None:
    found = record()
    damage(found)
    assert any(where == subject and words in claim for where, claim in bad(found)), bad(found)


def test_late_flights_are_counted_from_the_books() -> None:
    books = {"worker-1": ["1", "2", "3"], "worker-2": ["3 again", "4 again", "5"]}
    found = late_facts([1, 2, 3, 4, 5], books)
    assert found == {"expected": 5, "handled": 5, "strangers": 0, "twice": 1, "unmarked": 0, "again": 2}


def test_a_flight_seen_to_twice_must_have_been_marked() -> None:
    assert late_facts([1], {"worker-1": ["1"], "worker-2": ["1"]})["unmarked"] == 1


def test_flights_that_nobody_or_the_wrong_one_got_are_counted() -> None:
    found = late_facts([1, 2], {"worker-1": ["1", "9"]})
    assert (found["handled"], found["strangers"]) == (1, 1)
