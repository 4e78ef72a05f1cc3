"""The audit: what was published, stored, archived and delivered, side by side. Pure functions of what the actors reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.worker import AGAIN

Record = dict[str, Any]
"""Everything that is known at the end of the demo, as JSON has it (play.py fills it, results.json keeps it)."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the audit."""

    subject: str
    claim: str
    expected: int
    found: int
    note: str = ""

    @property
    def is_good(self) -> bool:
        return self.expected == self.found


def checks(record: Record) -> list[Check]:
    total = record["published"]["count"]
    return [
        Check(
            "Published",
            "flights confirmed to the publisher, each by a receipt",
            record["flights"],
            record["published"]["confirmed"],
        ),
        *_stored(record, total),
        *_archived(record, total),
        *_board(record, total),
        *_control_room(record, total),
        *_late(record),
        Check(
            "Report",
            "result rows sent by Spark and read from /queue/report",
            record["report"]["sent"],
            len(record["report"]["rows"]),
        ),
        Check("Report", "messages there after the last of them", 0, int(record["report"]["is_more"])),
    ]


def _stored(record: Record, total: int) -> list[Check]:
    described = {
        name: log["next"] - log["first"]
        for name, log in record["described"].items()
        if name.startswith("flights.")
    }
    again = rows_of(record, "stored")
    note = f"{len(described)} addresses"
    return [
        Check(
            "Stored",
            "messages in the broker's logs, as it describes them",
            total,
            sum(described.values()),
            note,
        ),
        Check(
            "Stored",
            "addresses that hold as many as their carrier has flights",
            *_per_carrier(record, described),
        ),
        Check(
            "Stored",
            "checksum of all bodies, read again from the logs",
            record["published"]["checksum"],
            _sum(again, "checksum"),
        ),
    ]


def _per_carrier(record: Record, described: Mapping[str, int]) -> tuple[int, int]:
    expected = record["published"]["by_carrier"]
    return len(expected), sum(
        described.get(f"flights.{carrier}") == count for carrier, count in expected.items()
    )


def _archived(record: Record, total: int) -> list[Check]:
    rows = rows_of(record, "archived")
    whole = [row for row in rows if row["lowest"] == 0 and row["highest"] == row["rows"] - 1]
    return [
        Check("Archived", "rows in the table", total, _sum(rows, "rows")),
        Check("Archived", "distinct (address, offset) pairs among them", total, _sum(rows, "distinct")),
        Check(
            "Archived",
            "addresses whose offsets begin at 0 and have no gap",
            len(record["published"]["by_carrier"]),
            len(whole),
        ),
        Check(
            "Archived",
            "checksum of all bodies in the table",
            record["published"]["checksum"],
            _sum(rows, "checksum"),
        ),
    ]


def _board(record: Record, total: int) -> list[Check]:
    board = record["board"]
    return [
        Check("Delivered", "flights that the wildcard subscriber got", total, board["count"]),
        Check("Delivered", "of them twice", 0, board["duplicates"]),
        Check("Delivered", "of them out of order within their carrier", 0, board["out_of_order"]),
        Check(
            "Delivered",
            "checksum of all bodies that it got",
            record["published"]["checksum"],
            board["checksum"],
        ),
    ]


def _control_room(record: Record, total: int) -> list[Check]:
    visits = record["control_room"]["visits"]
    note = f"{record['control_room']['missed']:,} while it was away"
    return [
        Check(
            "Durable",
            "flights that the control room got in its two visits",
            total,
            _sum(visits, "count"),
            note,
        ),
        Check(
            "Durable",
            "of them twice, or in the wrong visit",
            0,
            _sum(visits, "duplicates") + _overlap(visits),
        ),
        Check(
            "Durable",
            "checksum of all bodies that it got",
            record["published"]["checksum"],
            _sum(visits, "checksum"),
        ),
    ]


def _overlap(visits: Sequence[Mapping[str, int]]) -> int:
    """How far the second visit reaches into the first: numbers are the order of departure."""
    return max(0, visits[0]["highest"] + 1 - visits[1]["lowest"])


def _late(record: Record) -> list[Check]:
    late = record["late"]
    log = record["described"]["late"]
    note = f"{late['twice']} twice, {late['again']} came again after the kill"
    return [
        Check(
            "Late",
            "flights more than an hour late that a worker saw to",
            late["expected"],
            late["handled"],
            note,
        ),
        Check("Late", "seen to although they left not more than an hour late", 0, late["strangers"]),
        Check("Late", "seen to twice without being marked as redelivered", 0, late["unmarked"]),
        Check("Late", "messages left in /queue/late", 0, log["next"] - log["first"]),
    ]


def rows_of(record: Record, report: str) -> list[dict[str, Any]]:
    """The rows of one report, as they came from /queue/report."""
    return [row for name, row in record["report"]["rows"] if name == report]


def _sum(rows: Iterable[Mapping[str, Any]], key: str) -> int:
    return sum(int(row[key]) for row in rows)


def late_facts(numbers: Iterable[int], books: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """What the workers' books say of the late flights. Each line: the flight's number, then a mark if it came again."""
    expected = set(numbers)
    lines = [line.split() for book in books.values() for line in book]
    times = Counter(int(words[0]) for words in lines)
    firsts = Counter(int(words[0]) for words in lines if AGAIN not in words)
    return {
        "expected": len(expected),
        "handled": len(expected & times.keys()),
        "strangers": len(times.keys() - expected),
        "twice": sum(count > 1 for count in times.values()),
        "unmarked": sum(count > 1 for count in firsts.values()),
        "again": sum(AGAIN in words for words in lines),
    }
