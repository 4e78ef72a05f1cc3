"""The papers: every link leads somewhere, and every page can be reached from the index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """(file, anchor) of each link inside the repository; code blocks aside."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield ((page.parent / path).resolve() if path else page), anchor


def anchors(page: Path) -> set[str]:
    """The names that a reader's browser gives to the headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = [
        f"{path.name}#{anchor}"
        for path, anchor in links(page)
        if not path.exists() or (anchor and anchor not in anchors(path))
    ]
    assert dead == []


def test_every_page_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen and page.suffix == ".md" and page.exists():
            seen.add(page)
            waiting += [path for path, _ in links(page)]
    assert [page.relative_to(ROOT).as_posix() for page in PAGES if page not in seen] == []


CONFORMANCE = ROOT / "docs" / "conformance.md"


def features() -> list[list[str]]:
    """The cells of each row of the tables of conformance.md."""
    rows = [
        line.strip("|").split(" | ")
        for line in CONFORMANCE.read_text().splitlines()
        if re.match(r"\| [OD]?\d+ \|", line)
    ]
    return [[cell.strip() for cell in row] for row in rows]


LISTED = range(1, 301)  # what must be there; more may be


def test_every_feature_has_a_row() -> None:
    numbers = {row[0] for row in features()}
    assert [number for number in LISTED if str(number) not in numbers] == []


def test_each_feature_has_a_row_of_five_cells_once() -> None:
    rows = features()
    assert [row for row in rows if len(row) != 5] == []
    numbers = [row[0] for row in rows]
    assert sorted({number for number in numbers if numbers.count(number) > 1}) == []


def test_each_feature_has_a_verdict_and_what_is_there_has_a_test() -> None:
    odd = [row[0] for row in features() if not re.match(r"\*(yes\*|option\* `|no\*, because )", row[2])]
    assert odd == []
    assert [row[0] for row in features() if not row[2].startswith("*no*") and not proofs(row)] == []


def proofs(row: list[str]) -> list[str]:
    return re.findall(r"`(tests/[^`]+)`", row[-1])


def is_test(name: str, text: str) -> bool:
    return re.search(rf"^def {name}\(|^(\w+, )*{name}\b.* = played\(", text, re.M) is not None


def test_every_test_that_conformance_names_exists() -> None:
    missing = []
    for row in features():
        for named in proofs(row):
            path, _, name = named.partition("::")
            text = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
            is_there = is_test(name, text) if name.startswith("test_") else f'"{name}"' in text
            if not name or not is_there:
                missing.append(f"{row[0]}: {named}")
    assert missing == []
