"""Rates between two samples, the order of rows, and numbers that fit their columns."""

from __future__ import annotations

from typing import Any

import pytest

from stompbox.cli.sampling import Sample, address_rows, attempt, chosen, connection_rows, octets, rates, short
from stompbox.errors import ConnectionLost


def address(name: str, **more: Any) -> dict[str, Any]:
    """An address as the API has it."""
    plain = {"ready": 0, "delivering": 0, "consumers": 0, "next": 0, "settled": 0}
    marks = {"is_paused": False, "is_blocked": False, "is_full": False}
    return {"name": name, **plain, **marks, **more}


def taken(now: int, received: int, *addresses: dict[str, Any], started: int = 1, **more: Any) -> Sample:
    """A sample of a broker that has received so many messages."""
    status = {
        "version": "1", "uptime": 5000, "is_ready": True, "reasons": [], "started": started, "connections": 2, "resident_bytes": 1 << 20,
        "messages": {"received": received, "delivered": 2 * received, "acknowledged": 0},
    }  # fmt: skip
    found: dict[str, Any] = {"history": {"received": [-1, 3]}, "total": len(addresses), "connections": []}
    return Sample(now=now, status=status, addresses=list(addresses), **{**found, **more})


def test_rates_are_differences_by_the_clock_of_the_broker() -> None:
    found = rates(
        taken(1000, 10, address("a", next=5, settled=1)),
        taken(3000, 30, address("a", next=9, settled=2), address("b", next=7)),
    )
    assert found.broker == {"received": 10.0, "delivered": 20.0, "acknowledged": 0.0}
    assert found.addresses == {"a": (2.0, 0.5)}


@pytest.mark.parametrize(
    "before",
    [None, taken(1000, 10, started=7), taken(3000, 10)],
    ids=["the first", "another life", "no time between"],
)
def test_no_rates(before: Sample | None) -> None:
    found = rates(before, taken(3000, 30))
    assert set(found.broker.values()) == {None} and found.addresses == {}


def test_an_address_that_was_made_anew_has_no_rate_below_zero() -> None:
    found = rates(taken(0, 0, address("a", next=9)), taken(1000, 0, address("a", next=1)))
    assert found.addresses == {"a": (0.0, 0.0)}


def test_counters_by_which_nothing_was_counted_yet() -> None:
    before, after = taken(0, 0), taken(1000, 5)
    for one in (before, after):
        del one.status["messages"]["acknowledged"]
    assert rates(before, after).broker["acknowledged"] == 0


def test_rows_in_order() -> None:
    sample = taken(1, 0, address("b", ready=2), address("c", ready=2), address("a", ready=1))
    rows = address_rows(sample, rates(None, sample))

    def order(key: str, match: str = "", *, is_falling: bool = False) -> str:
        found = chosen(rows, match, key, is_falling=is_falling, columns=("name",))
        return "".join([one["name"] for one in found])

    assert order("ready", is_falling=True) == "bca"
    assert order("ready") == "abc"
    assert order("name", is_falling=True) == "cba"
    assert order("name", "c") == "c"


def test_connections_have_their_deliveries_added_up() -> None:
    subscriptions = [{"delivering": 2}, {"delivering": 3}]
    one = {"peer": "::1", "port": 0, "user": "eve", "subscriptions": subscriptions}
    (row,) = connection_rows(taken(1, 0, connections=[one]))
    assert (row["client"], row["reads"], row["delivering"]) == ("::1", 2, 5)
    (row,) = connection_rows(taken(1, 0, connections=[one | {"port": 7}]))
    assert row["client"] == "::1:7"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"), (0, "0"), (3, "3"), (3.0, "3.0"), (0.5, "0.5"), (9.96, "10"), (999, "999"), (999.6, "1.0k"),
        (12_345, "12.3k"), (99_960, "100k"),
        (999_600, "1.0M"), (4_500_000, "4.5M"), (7e9, "7.0G"), (5e12, "5.0T"),
    ],
)  # fmt: skip
def test_short_numbers(number: float | None, text: str) -> None:
    assert short(number) == text and len(text) <= 5


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "-"), (0, "0B"), (999, "999B"), (1000, "1.0K"), (12_595, "12.3K"), (1 << 20, "1.0M"), (200 << 30, "200G")],
)  # fmt: skip
def test_octets(size: int | None, text: str) -> None:
    assert octets(size) == text and len(text) <= 5


def test_what_goes_wrong_is_a_text() -> None:
    def lost() -> Sample:
        raise ConnectionLost("connect-failed", "nobody answers")

    def strange() -> Sample:
        raise KeyError("now")

    assert attempt(lost) == "nobody answers"
    assert attempt(strange) == "what answers is not the admin interface of this version (KeyError('now'))"
