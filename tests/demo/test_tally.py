"""A tally sees what is missing, double and out of order."""

from __future__ import annotations

from zlib import crc32

from demo.tally import Tally


def test_flights_are_counted_by_number_and_carrier() -> None:
    tally = Tally(4)
    for number, carrier in enumerate(("AA", "UA", "AA")):
        tally.add(carrier, number, b"x%d" % number)
    checksum = sum(crc32(body) for body in (b"x0", b"x1", b"x2"))
    assert tally.facts() == {
        "count": 3,
        "duplicates": 0,
        "out_of_order": 0,
        "checksum": checksum,
        "by_carrier": {"AA": 2, "UA": 1},
    }


def test_a_second_time_is_a_duplicate() -> None:
    tally = Tally(2)
    tally.add("AA", 1, b"")
    tally.add("AA", 1, b"")
    assert (tally.count, tally.duplicates, tally.out_of_order) == (2, 1, 0)


def test_order_counts_within_a_carrier_only() -> None:
    tally = Tally(3)
    for carrier, number in (("AA", 2), ("UA", 0), ("AA", 1)):
        tally.add(carrier, number, b"")
    assert tally.out_of_order == 1
