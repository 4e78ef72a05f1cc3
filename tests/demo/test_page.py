"""The page is whole, fetches nothing, and shows in red what is wrong."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from demo.audit import checks
from demo.page import page, write_page
from tests.demo.records import record

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VOID = frozenset(("meta", "br"))


class Outline(HTMLParser):
    """Which tags are open, what was closed wrongly, what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.references: list[str] = []
        self.titles: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.titles.append(data)
        self.words.append(data)


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    found.close()
    return found


def test_every_tag_is_closed_and_nothing_is_fetched() -> None:
    text = page(record())
    found = outline(text)
    assert (found.open, found.wrong, found.references) == ([], [], [])
    assert "@import" not in text and "url(" not in text.replace("url(#tip)", "")


def test_the_page_tells_the_whole_story() -> None:
    titles = outline(page(record())).titles
    assert titles == [
        "The way of a flight", "What happened", "A worker dies", "Spark dies", "The control room is away", "The audit",
        "Delays by carrier", "Delays by hour", "Carrier and hour", "Delays by airport", "Rates",
    ]  # fmt: skip


def test_every_count_of_the_audit_stands_there() -> None:
    text = page(record())
    assert text.count('<tr class="good') == len(checks(record()))
    assert text.count('<tr class="bad') == 0
    assert f"{len(checks(record()))} of {len(checks(record()))}" in text


def test_a_wrong_count_is_red_and_takes_the_verdict_away() -> None:
    found = record()
    found["board"]["duplicates"] = 3
    text = page(found)
    assert text.count('<tr class="bad') == 1
    assert 'class="verdict bad"' in text and "exactly once" not in text


def test_what_came_from_outside_is_text() -> None:
    text = page(record())
    assert "American &amp; Sons" in text and "&lt;X&gt;" in text
    assert "<X>" not in text and "American & Sons" not in text


def test_a_cancelled_flight_stands_on_the_board() -> None:
    words = outline(page(record())).words
    assert words.index("CANCELLED") < words.index("DELAYED 1:01")  # it should have left last, so it is on top


@pytest.mark.parametrize("report", ["hour", "carrier_hour", "origin", "carrier"])
def test_a_report_without_rows_does_not_stop_the_page(report: str, tmp_path: Path) -> None:
    found = record()
    found["report"]["rows"] = [row for row in found["report"]["rows"] if row[0] != report]
    write_page(found, tmp_path / "report.html")
    assert outline((tmp_path / "report.html").read_text()).open == []


# cells of tables that one would have to move sideways for; drawings one may
BEYOND = """[...document.querySelectorAll("td, th")].filter(cell => cell.getBoundingClientRect().right > innerWidth)
  .map(cell => cell.textContent)"""


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_the_page_fits_a_phone_and_knows_dark_mode(
    browser: Browser, tmp_path: Path, scheme: str, *, is_dark: bool
) -> None:
    write_page(record(), tmp_path / "report.html")
    shown = browser.new_page(
        viewport={"width": 390, "height": 844}, color_scheme="dark" if is_dark else "light"
    )
    shown.goto((tmp_path / "report.html").as_uri())
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    assert shown.evaluate(BEYOND) == []
    ground = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = shown.evaluate("getComputedStyle(document.body).color")
    assert (sum(channels(ground)) < sum(channels(ink))) == is_dark, scheme
    shown.close()


def channels(colour: str) -> list[int]:
    """The numbers of `rgb(r, g, b)`."""
    return [int(number) for number in colour.removeprefix("rgb(").removesuffix(")").split(",")]
