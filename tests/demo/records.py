"""A record of a demo in which every count is right, small enough to be read."""

from __future__ import annotations

from typing import Any

CARRIERS = {"AA": 60, "UA": 40}
TOTAL = sum(CARRIERS.values())
CHECKSUM = 4_711
BOARD = [
    ["2013-12-31", "2358", "UA", "7", "JFK", "<X>", "61"],
    ["2013-12-31", "2359", "AA", "9", "EWR", "BOS", ""],
]


def _delays(
    carrier: str | None = None, origin: str | None = None, hour: int | None = None, *, flights: int = TOTAL
) -> dict[str, Any]:
    figures = {
        "flights": flights,
        "cancelled": 2,
        "late": 5,
        "punctual": 30,
        "mean_delay": 12.5,
        "ninth_decile": 44,
    }
    return {"carrier": carrier, "origin": origin, "hour": hour, **figures}


def _log(address: str, rows: int, checksum: int) -> dict[str, Any]:
    return {
        "address": address,
        "rows": rows,
        "distinct": rows,
        "lowest": 0,
        "highest": rows - 1,
        "checksum": checksum,
    }


def rows() -> list[tuple[str, dict[str, Any]]]:
    found = [("all", _delays())]
    found += [("carrier", _delays(carrier, flights=count)) for carrier, count in CARRIERS.items()]
    found += [("origin", _delays(origin=origin)) for origin in ("EWR", "JFK")]
    found += [("hour", _delays(hour=hour)) for hour in (6, 17)]
    found += [("carrier_hour", _delays(carrier, hour=hour)) for carrier in CARRIERS for hour in (6, 17)]
    for report in ("archived", "stored"):
        found += [(report, _log("flights.AA", 60, 4_000)), (report, _log("flights.UA", 40, 711))]
    return found


def record() -> dict[str, Any]:
    tally = {"count": TOTAL, "duplicates": 0, "out_of_order": 0, "checksum": CHECKSUM, "by_carrier": CARRIERS}
    first = {**tally, "count": 25, "checksum": 1_000, "lowest": 0, "highest": 24}
    second = {**tally, "count": 75, "checksum": 3_711, "lowest": 25, "highest": 99}
    return {
        "flights": TOTAL,
        "published": {
            **tally,
            "confirmed": TOTAL,
            "late": 5,
            "cancelled": 2,
            "octets": 20_000,
            "seconds": 2.0,
        },
        "described": {
            "flights.AA": {"first": 0, "next": 60},
            "flights.UA": {"first": 0, "next": 40},
            "late": {"first": 5, "next": 5},
        },
        "report": {"sent": len(rows()), "rows": [list(row) for row in rows()], "is_more": False},
        "board": {**tally, "last": BOARD},
        "control_room": {
            "visits": [first, second],
            "missed": 50,
            "left_at": 25,
            "back_at": 75,
            "seconds": 0.5,
        },
        "late": {"expected": 5, "handled": 5, "strangers": 0, "twice": 1, "unmarked": 0, "again": 3},
        "worker_kill": {"pid": 4_242, "handled": 1, "survivor": "worker-2"},
        "archive_kill": {"processes": 9, "archived": 30, "batch": 3, "seconds": 8.5, "files": 4},
        "batches": [{"job": "archive-1", "batch": 0, "rows": 30, "seconds": 0.5, "archived": 30}],
        "events": [
            {"kind": "goes", "text": "control room leaves", "at": 1.0},
            {"kind": "killed", "text": "Spark killed", "at": 1.1},
        ],
        "timeline": [[0.0, 0, 0, 0, 0, 0], [5.0, TOTAL, TOTAL, TOTAL, 5, TOTAL]],
        "airlines": {"AA": "American & Sons", "UA": "United"},
        "seconds": 5.0,
        "played": 60.0,
        "versions": {"stompbox": "0.1.0"},
        "machine": "Python 3.11.7, Linux x86_64",
        "processors": 2,
    }
