"""The page of a report, from rows alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from stompbox.pipelines.page import MOST_DRAWN, MOST_LISTED, Figures, Totals, page

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def hour(address: str, number: int, messages: int = 10) -> dict[str, Any]:
    sizes = {"size_min": 1, "size_avg": 2.5, "size_p50": 2, "size_p99": 9, "size_max": 10}
    waits = {"wait_p50": 3, "wait_p99": 40, "wait_max": 500}
    place = {"archive": "a", "address": address, "hour": BEGIN + timedelta(hours=number)}
    return {**place, "messages": messages, "bytes": 20 * messages, **sizes, **waits}


def figures_of(hours: list[dict[str, Any]], lags: list[dict[str, Any]], unit: str = "hour") -> Figures:
    """As a report makes them, of few enough rows to draw each."""
    sums = [sum(row[name] for row in hours) for name in ("messages", "bytes")]
    worst = max((row["wait_p99"] for row in hours), default=None)
    waiting = sum(row["waiting"] for row in lags)
    totals = Totals(
        *sums, len({row["address"] for row in hours}), waiting, 0, worst, len(hours), len(lags), 0
    )
    return Figures("lake", totals, hours, hours[:MOST_LISTED], lags, [], unit)


class Balanced(HTMLParser):
    """Whether what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br", "line", "rect", "circle", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag if tag not in ("rect", "circle") else True


def parsed(figures: Figures) -> Balanced:
    found = Balanced()
    found.feed(page(figures))
    assert found.open == []
    return found


def test_drawings_tables_and_sums() -> None:
    rows = [hour(address, number) for address in ("orders", "<b>") for number in range(30)]
    figures = figures_of(
        rows, [{"archive": "a", "address": "orders", "next": 7, "archived": 3, "waiting": 4}]
    )
    found = parsed(figures)
    assert all(
        text in page(figures)
        for text in ("<b>600</b>", "<b>12 k</b>", "<b>2</b>", "<b>4</b>", "<b>0</b>", "<b>40 ms</b>")
    )
    assert (found.tags.count("svg"), found.tags.count("table")) == (4, 2)
    assert "&lt;b&gt;" in page(figures)
    assert "b" not in found.tags[found.tags.index("svg") :], "an address was taken for markup"


def test_many_addresses_share_a_colour_and_long_tables_are_cut() -> None:
    rows = [hour(f"address.{number}", 0, number + 1) for number in range(MOST_LISTED + 5)]
    text = page(figures_of(rows, []))
    assert "others" in text
    assert text.count("<i style") <= 2 * (MOST_DRAWN + 1) + 6
    assert "and 5 more rows" in text


@pytest.mark.parametrize("rows", [[], [hour("a", 0, 0)]])
def test_nothing_to_draw_is_a_page_too(rows: list[dict[str, Any]]) -> None:
    assert parsed(figures_of(rows, [])).tags.count("h1") == 1


def test_days_are_drawn_where_there_are_too_many_hours() -> None:
    text = page(figures_of([hour("orders", 24 * day) for day in range(3)], [], "day"))
    assert "Messages per day" in text and "2026-03-01 00:00 to 2026-03-03 23:59 UTC" in text
