"""Selectors on rows: the same messages that a subscriber would get."""

from __future__ import annotations

import pytest

from stompbox.errors import SelectorError
from stompbox.message import Run, Shape
from stompbox.spark.columns import batch_of, joined, rows_of
from stompbox.spark.offsets import OffsetRange
from stompbox.spark.selection import selection_of
from stompbox.store.chunks import encode

RUNS = [
    Run(
        Shape({"destination": "/topic/a", "carrier": "UA"}, holes=("delay",)),
        [b"0", b"1", b"22"],
        ([b"5", b"70", b"200"],),
        first=0,
        arrived=1000,
    ),
    Run(Shape({"destination": "/topic/a", "carrier": "DL"}, priority=7), [b"3", b"4"], first=3, arrived=2000),
    Run(
        Shape({"destination": "/topic/a", "carrier": "AA"}, holes=("delay", "z")),
        [b"5"],
        ([b"61"], [b"q"]),
        first=5,
        arrived=3000,
    ),
]


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("carrier = 'UA'", [0, 1, 2]),
        ("carrier IN ('DL', 'AA')", [3, 4, 5]),
        ("delay > 60", [1, 2, 5]),
        ("delay > 60 OR carrier = 'DL'", [1, 2, 3, 4, 5]),
        ("delay IS NULL", [3, 4]),
        ("z = 'q' AND delay < 100", [5]),
        ("JMSPriority = 7", [3, 4]),
        ("JMSTimestamp >= 2000", [3, 4, 5]),
        ("AMQSize > 1", [2]),
        ("JMSMessageID IS NOT NULL", []),
        ("nothing = 1", []),
    ],
)
def test_what_is_chosen(text: str, offsets: list[int]) -> None:
    runs = joined([encode(RUNS, 0)])
    rows = rows_of(runs, OffsetRange("a", 0, 100), selection_of(text))
    assert batch_of(runs, rows, "a", ("offset",)).column("offset").to_pylist() == offsets


def test_a_wrong_selector_is_refused() -> None:
    with pytest.raises(SelectorError):
        selection_of("carrier = ")
