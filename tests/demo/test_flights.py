"""The data as messages: order, headers, bodies, and what is not known."""

from __future__ import annotations

import json
from math import nan
from typing import Any

import pandas as pd
import pytest

from demo.flights import LATE, Row, Timetable, airlines, load, message, rows_of

NOON = 1_357_059_600  # 2013-01-01 12:00 in New York


def flight(**given: Any) -> Row:
    known = {"carrier": "UA", "flight": 1, "tailnum": "N1", "origin": "JFK", "dest": "BOS", "dep_delay": 0}
    known |= {"arr_delay": 0, "air_time": 40, "distance": 187, "hour": 12, "scheduled": NOON}
    return Row(**{**known, **given})  # type: ignore[arg-type]


def test_flights_come_in_the_order_in_which_they_left() -> None:
    rows = [
        flight(flight=1, scheduled=NOON, dep_delay=30),
        flight(flight=2, scheduled=NOON + 600, dep_delay=-15),
        flight(flight=3, scheduled=NOON, dep_delay=None),  # cancelled: when it should have left
        flight(flight=4, scheduled=NOON + 1800, dep_delay=0),
    ]
    assert [found.headers["flight"] for found in Timetable(rows)] == [2, 3, 1, 4]
    assert [found.number for found in Timetable(rows)] == [0, 1, 2, 3]


def test_a_limit_takes_flights_from_the_whole_year() -> None:
    rows = [flight(flight=number, scheduled=NOON + number) for number in range(10)]
    assert [found.headers["flight"] for found in Timetable(rows, limit=5)] == [0, 2, 4, 6, 8]
    assert len(Timetable(rows, limit=11)) == 10


def test_a_message_has_what_a_selector_asks_for_and_its_body_everything() -> None:
    found = message(7, flight(carrier="B6", dep_delay=LATE + 1))
    assert found.destination == "/topic/flights.B6"
    expected = {
        "number": 7,
        "carrier": "B6",
        "origin": "JFK",
        "dest": "BOS",
        "date": "2013-01-01",
        "time": "1301",
        "dep_delay": 61,
    }
    assert expected.items() <= found.headers.items()
    body = json.loads(found.body)
    assert (body["scheduled"], body["departure"]) == (
        "2013-01-01T12:00:00-05:00",
        "2013-01-01T13:01:00-05:00",
    )
    assert found.is_late and not message(8, flight(dep_delay=LATE)).is_late


def test_what_is_not_known_is_null_and_no_header() -> None:
    found = message(0, flight(dep_delay=None, arr_delay=None, tailnum=None))
    assert "dep_delay" not in found.headers
    assert found.headers["status"] == "cancelled"
    body = json.loads(found.body)
    assert [body[name] for name in ("dep_delay", "arr_delay", "tailnum", "departure")] == [None] * 4
    assert found.is_cancelled and not found.is_late


def test_time_is_new_yorks_in_winter_and_summer() -> None:
    summer = NOON + 182 * 86_400
    assert json.loads(message(0, flight(scheduled=summer)).body)["scheduled"] == "2013-07-02T13:00:00-04:00"


def test_the_table_s_floats_and_gaps_become_numbers_and_none() -> None:
    table = pd.DataFrame(
        {
            "time_hour": ["2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"],
            "minute": [15, 0],
            "carrier": ["UA", "AA"],
            "flight": [1545, 1],
            "tailnum": ["N14228", nan],
            "origin": ["EWR", "JFK"],
            "dest": ["IAH", "LAX"],
            "dep_delay": [2.0, nan],
            "arr_delay": [11.0, nan],
            "air_time": [227.0, nan],
            "distance": [1400, 2475],
            "hour": [5, 6],
        }
    )
    first, second = rows_of(table)
    assert first == Row(1_357_035_300, "UA", 1545, "N14228", "EWR", "IAH", 2, 11, 227, 1400, 5)
    assert second[3:] == (None, "JFK", "LAX", None, None, None, 2475, 6)
    assert type(first.dep_delay) is int


@pytest.fixture(scope="module")
def year() -> Timetable:
    return load()


def test_the_year_is_all_there(year: Timetable) -> None:
    count = late = cancelled = 0
    carriers = set()
    last = ""
    for found in year:
        count += 1
        late += found.is_late
        cancelled += found.is_cancelled
        carriers.add(found.carrier)
        last = f"{found.headers['date']} {found.headers['time']}"
    assert (count, late, cancelled) == (336_776, 26_581, 8_255)
    assert carriers == airlines().keys()
    assert last == "2014-01-01 0026"
