"""Tests lie where one looks for them: `tests/store/test_wal.py` is about `src/stompbox/store/wal.py`, and what is not so is in the table of
CONTRIBUTING.md, which this file reads: sources that another file tests, and tests of no single source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, TESTS = ROOT / "src" / "stompbox", ROOT / "tests"
ROOMS = (
    "admin",
    "broker",
    "broker/logs",
    "broker/queues",
    "broker/addresses",
    "broker/subscriptions",
    "cli",
    "client",
    "commitlog",
    "config",
    "conversion",
    "pipelines",
    "selectors",
    "selectors/xpath",
    "server",
    "server/addressing",
    "server/requests",
    "server/frames",
    "server/session",
    "server/transport",
    "server/cluster",
    "server/fronts",
    "spark",
    "stomp",
    "store",
)


@dataclass(frozen=True, slots=True)
class Row:
    """What the table says of a room. `elsewhere`: source -> the test file, from tests/ on; `beside`: tests of no single source."""

    elsewhere: dict[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()


def rows(text: str) -> dict[str, Row]:
    """The table's lines: | `room` | names: `test`; names: `test` | `test`, `test` |"""
    found = {}
    for room, elsewhere, beside in re.findall(r"^\| `([a-z/]+)` \|(.*)\|(.*)\|$", text, re.M):
        named = {
            name: _file(room, test)
            for names, test in re.findall(r"([\w, ]+): `([\w/.]+)`", elsewhere)
            for name in re.findall(r"\w+", names)
        }
        found[room] = Row(named, tuple(re.findall(r"`(\w+)`", beside)))
    return found


def _file(room: str, test: str) -> str:
    return test if "/" in test else f"{room}/{test}.py"


TABLE = rows((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def names(folder: Path, pattern: str) -> list[str]:
    return sorted(path.stem.removeprefix("test_") for path in folder.glob(pattern) if path.stem != "__init__")


def faults(sources: list[str], tests: list[str], row: Row) -> list[str]:
    """What has no place, and what the table says that is not so. `test_codec_limits` is a test of `codec` as well."""
    mirrored = {
        test: next((name for name in sources if test == name or test.startswith(f"{name}_")), None)
        for test in tests
    }
    found = [
        f"{name} has neither a test of its name nor a line"
        for name in sources
        if name not in {*mirrored.values(), *row.elsewhere}
    ]
    found += [
        f"test_{test} has neither a source of its name nor a line"
        for test in tests
        if mirrored[test] is None and f"test_{test}" not in row.beside
    ]
    found += [
        f"{name} is in the table and no source without a test"
        for name in row.elsewhere
        if name not in sources or name in tests
    ]
    found += [
        f"{test} is in the table and no test without a source"
        for test in row.beside
        if mirrored.get(test.removeprefix("test_"), "") is not None
    ]
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_tests_mirror_the_sources(room: str) -> None:
    row = TABLE.get(room, Row())
    assert faults(names(PACKAGE / room, "*.py"), names(TESTS / room, "test_*.py"), row) == []
    assert [file for file in row.elsewhere.values() if not (TESTS / file).is_file()] == []


def test_the_table_is_of_these_rooms_alone() -> None:
    assert TABLE
    assert set(TABLE) <= set(ROOMS)


@pytest.mark.parametrize(
    ("sources", "tests", "row", "expected"),
    [
        (["a"], ["a", "a_limits"], Row(), 0),
        (["a"], [], Row(), 1),
        (["a"], [], Row({"a": "x/test_b.py"}), 0),
        (["a"], ["a", "b"], Row(), 1),
        (["a"], ["a", "b"], Row(beside=("test_b",)), 0),
        (["a"], ["a"], Row({"a": "x/test_b.py"}), 1),
        (["a"], ["a"], Row(beside=("test_a",)), 1),
        (["a"], ["a"], Row({"gone": "x/test_b.py"}, ("test_gone",)), 2),
    ],
)
def test_what_does_not_mirror_is_named(sources: list[str], tests: list[str], row: Row, expected: int) -> None:
    assert len(faults(sources, tests, row)) == expected
