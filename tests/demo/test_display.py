"""What is printed while the demo runs."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from demo.display import STEPS, Display, board, remark_of


def shown(*, is_terminal: bool) -> tuple[Display, StringIO]:
    file = StringIO()
    return Display(Console(file=file, force_terminal=is_terminal, width=120, color_system=None)), file


@pytest.mark.parametrize(
    ("delay", "remark"),
    [
        ("", "CANCELLED"),
        ("-4", "ON TIME"),
        ("15", "ON TIME"),
        ("16", "DELAYED 0:16"),
        ("61", "DELAYED 1:01"),
        ("1301", "DELAYED 21:41"),
    ],
)
def test_a_board_says_what_became_of_a_flight(delay: str, remark: str) -> None:
    assert remark_of(delay)[0] == remark


def test_the_newest_flight_is_on_top() -> None:
    console = Console(file=StringIO(), width=120, record=True)
    console.print(
        board(
            [
                ["2013-01-01", "0517", "UA", "1545", "EWR", "IAH", "2"],
                ["2013-01-01", "0533", "AA", "1", "LGA", "MIA", ""],
            ]
        )
    )
    lines = console.export_text().splitlines()
    assert [line.split()[1] for line in lines if "2013-" in line] == ["05:33", "05:17"]


def test_without_a_terminal_only_lines_are_printed() -> None:
    display, file = shown(is_terminal=False)
    with display:
        display.step(1, 2)
        display.bar("published", "published", 10)
        display.move("published", 10)
        display.done("ready")
    assert [line.strip() for line in file.getvalue().splitlines()] == [
        f"1  {STEPS[1]}",
        f"2  {STEPS[2]}",
        "0.0 s  ✓ ready",
    ]


def test_on_a_terminal_bars_move_below_the_lines() -> None:
    display, file = shown(is_terminal=True)
    with display:
        display.bar("published", "published to somewhere", 10)
        display.move("published", 10)
        display.note("published", "paused")
        display.departures([["2013-01-01", "0517", "UA", "1545", "EWR", "IAH", "2"]])
        display.event("something happened")
    text = file.getvalue()
    assert all(
        words in text
        for words in (
            "published to somewhere",
            "10/10",
            "paused",
            "DEPARTURES",
            "UA 1545",
            "something happened",
        )
    )


def test_moving_a_bar_that_is_not_there_does_nothing() -> None:
    display, file = shown(is_terminal=False)
    display.move("nobody", 3)
    display.note("nobody", "x")
    assert file.getvalue() == ""
