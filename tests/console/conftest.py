"""The system's Chromium, driven by playwright, and pages that must have nothing to complain about.

Where Chromium or playwright is missing these tests are skipped with what to install; with CONSOLE_TESTS=required they fail instead, as
.ci/run wants it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.admin.conftest import served, start

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ("served", "start")  # the brokers are those of the tests of the interface

WITHIN = 20_000  # ms until the page shows what it should
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

Open = Callable[..., "Page"]


def missing(what: str) -> None:
    text = f"{what}; the tests of the console need it"
    if os.environ.get("CONSOLE_TESTS") == "required":
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with its module: its loop would be in the way of tests that run one of their own."""
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        missing("playwright is not installed: pip install -e '.[dev]'")
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        missing("Chromium is not installed: apt-get install chromium, or the like of another system")
    expect.set_options(timeout=WITHIN)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        yield chromium
        chromium.close()


class Complaints:
    """What a page must not do: write errors to the browser's log, raise, ask other hosts."""

    def __init__(self, page: Page, admin: str) -> None:
        self.found: list[str] = []
        self.requests: list[str] = []
        self.place = urlsplit(admin).netloc
        page.on(
            "console",
            lambda message: self.found.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: self.found.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    @property
    def strangers(self) -> list[str]:
        return [url for url in self.requests if urlsplit(url).netloc != self.place]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """visit(admin, section) -> the console's page; at the end nothing was complained about but what starts with a text of `may_say`."""
    visited: list[tuple[Page, Complaints, tuple[str, ...]]] = []

    def begin(admin: str, section: str = "", *, may_say: tuple[str, ...] = (), **context: object) -> Page:
        page = browser.new_context(**context).new_page()  # type: ignore[arg-type]
        page.set_default_timeout(WITHIN)
        visited.append((page, Complaints(page, admin), may_say))
        page.goto(f"{admin}/#{section}")
        return page

    yield begin
    for page, complaints, may_say in visited:
        page.context.close()
        assert [text for text in complaints.found if not text.startswith(may_say or ("\0",))] == []
        assert complaints.strangers == []
        assert complaints.requests
