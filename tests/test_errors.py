"""The error tree, and docs/errors.md against the source: every code is documented, with whose fault it is and what closes."""

from __future__ import annotations

import errno
import pickle
import re
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from stompbox.errors import (
    BrokerFault,
    ConfigError,
    ConnectionLost,
    FrameError,
    IllegalFrame,
    LocalError,
    PeerError,
    Refused,
    SelectorError,
    StompboxError,
    StoreError,
    UsageError,
    reason_of,
)
from tests.error_codes import Codes, Use

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"
FAULTS = {
    "PeerError": "peer",
    "Refused": "refused",
    "LocalError": "local",
    "ConnectionLost": "network",
    "BrokerFault": "broker",
}
CONNECTIONS = {"closes", "1.2", "open", "-"}


@cache
def codes() -> Codes:
    """All sources are read for it, and only once one of these tests is run."""
    return Codes()


def uses() -> list[Use]:
    return [use for use in codes().uses if use.code is not None and "*" not in use.code]


@dataclass(frozen=True, slots=True)
class Row:
    code: str
    faults: frozenset[str]
    connection: str
    meaning: str


def read_page() -> list[Row]:
    rows = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if found := re.fullmatch(r"`([a-z0-9-]+)`", cells[0]):
            assert len(cells) == 4, f"not four cells: {line}"
            rows.append(Row(found[1], frozenset(cells[1].split(", ")), cells[2], cells[3]))
    return rows


ROWS = {row.code: row for row in read_page()}


def fault_of(error: str) -> str:
    while error not in FAULTS:
        error = codes().bases[error]
    return FAULTS[error]


def connection_of(use: Use) -> str | None:
    """What the class alone decides; None: the row may say."""
    if use.error in ("FrameError", "BrokerFault", "StoreError") or use.closes:
        return "closes"
    return "-" if fault_of(use.error) in ("local", "network") else None


def test_code_is_documented() -> None:
    assert {use.code for use in uses()}, "the sources have no codes"
    found = [f"{use.code}, in {use.where}" for use in uses() if use.code not in ROWS]
    assert found == [], "docs/errors.md does not explain them"


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_what_is_documented_of_a_code_is_so(row: Row) -> None:
    found = [use for use in uses() if use.code == row.code]
    assert {fault_of(use.error) for use in found} <= row.faults, f"whose fault is it? {found}"
    decided = {connection_of(use) for use in found}
    assert len(decided) > 1 or decided <= {row.connection, None}, f"what closes? {found}"


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_row_is_whole_and_its_code_in_use(row: Row) -> None:
    assert row.faults <= set(FAULTS.values())
    assert row.connection in CONNECTIONS
    assert len(row.meaning) > 15
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row.code)
    patterns = [
        use.code.replace("*", "[a-z-]+") for use in codes().uses if use.code is not None and "*" in use.code
    ]
    assert any(use.code == row.code for use in uses()) or any(
        re.fullmatch(pattern, row.code) for pattern in patterns
    ), "no error has it"


def test_each_code_has_one_row() -> None:
    assert len(read_page()) == len(ROWS)


def test_every_code_can_be_followed_to_where_it_is_written() -> None:
    assert [f"{use.where}: {use.error}" for use in codes().uses if use.code is None] == []


def test_tree_says_whose_fault_it_is() -> None:
    for error, base in {
        FrameError: PeerError,
        IllegalFrame: PeerError,
        SelectorError: PeerError,
        ConfigError: LocalError,
        UsageError: LocalError,
        StoreError: BrokerFault,
    }.items():
        assert error.__mro__[1] is base
    for error in (PeerError, Refused, LocalError, ConnectionLost, BrokerFault):
        assert error.__mro__[1] is StompboxError


@pytest.mark.parametrize("error", [FrameError, Refused, ConfigError, UsageError, ConnectionLost, StoreError])
def test_error_has_a_code_and_a_text_and_survives_another_process(error: type[StompboxError]) -> None:
    found = pickle.loads(pickle.dumps(error("some-code", "what was wrong")))
    assert type(found) is error
    assert (found.code, found.message, str(found)) == ("some-code", "what was wrong", "what was wrong")


def test_selector_error_keeps_its_position() -> None:
    assert pickle.loads(pickle.dumps(SelectorError("some-code", "text", 7))).position == 7


# --- the reading of the source finds what it looks for --------------------------------------------------------------------


def codes_of(folder: Path, text: str) -> set[tuple[str | None, bool]]:
    """(code, closes) of each use in a source that has this text."""
    (folder / "errors.py").write_text(
        "class StompboxError(Exception): ...\nclass Fault(StompboxError): ...\nTEXT = 'from-text'\n"
    )
    (folder / "user.py").write_text(text)
    return {(use.code, use.closes) for use in Codes(folder).uses}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("raise Fault('a-b', 'text')", {"a-b"}),
        ("raise errors.Fault('a-b', 'text')", {"a-b"}),
        ("raise Fault(code='a-b', message='text')", {"a-b"}),
        ("raise Fault('a' if x else 'b', 'text')", {"a", "b"}),
        ("raise Fault(found.get('code', 'a'), 'text')", {"a"}),
        ("raise Fault(found.get('code') or 'a', 'text')", {"a"}),
        ("raise Fault(TEXT, 'text')", {"from-text"}),
        ("raise Fault(f'no-{x}', 'text')", {"no-*"}),
        ("raise Fault(error.code, 'text')", set()),
        ("raise Fault(anything(), 'text')", {None}),
        ("class Own(Fault): ...\nraise Own('a-b', 'text')", {"a-b"}),
        ("def fail(code):\n    raise Fault(code, 'text')\nfail('a')\nx.fail(code='b')", {"a", "b"}),
        ("def fail(text, code='a'):\n    raise Fault(code, text)\nfail('t')", {"a"}),
        ("class C:\n    def fail(self, code):\n        raise Fault(code, 'text')\nc.fail('a')", {"a"}),
        ("def fail(x):\n    code = 'a' if x else 'b'\n    raise Fault(code, 'text')", {"a", "b"}),
        (
            "A = {1: ('a', 't'), 2: ('b', 't')}\ndef f(x):\n    code, t = A.get(x, ('c', 't'))\n    raise Fault(code, t)",
            {"a", "b", "c"},
        ),
    ],
)
def test_codes_are_found(tmp_path: Path, text: str, codes: set[str | None]) -> None:
    assert {code for code, _ in codes_of(tmp_path, text)} == codes


def test_closes_is_found(tmp_path: Path) -> None:
    assert codes_of(tmp_path, "raise Fault('a', 't', closes=True)\nraise Fault('b', 't', closes=False)") == {
        ("a", True),
        ("b", False),
    }


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"),
            "Connection refused",
        ),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect call failed"
            ),
            "Connection refused",
        ),
        (OSError("[Errno 111] x, [Errno 113] y"), "Connection refused, No route to host"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), "No such file or directory"),
        (ValueError("port is odd"), "port is odd"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_a_reason_is_in_words(error: Exception, words: str) -> None:
    assert reason_of(error) == words
