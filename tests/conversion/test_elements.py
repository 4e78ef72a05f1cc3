"""XML is read with its lines, and what could do harm is refused."""

from __future__ import annotations

import pytest

from stompbox.conversion import elements
from stompbox.conversion.elements import DEEPEST, MOST_BYTES, read
from stompbox.errors import ConfigError


def test_elements_know_their_lines() -> None:
    root = read(b"<a x='1' xmlns:n='u' n:y='2'>\n  <n:b>\n text </n:b><!-- c --><c/></a>", "f")
    assert (root.tag, root.attributes, root.line) == ("a", {"x": "1"}, 1)
    assert [(child.tag, child.line, child.text) for child in root.children] == [
        ("b", 2, "text"),
        ("c", 3, ""),
    ]
    assert [found.text for found in root.below("b")] == ["text"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "^f:1: not XML: no element found"),
        (b"<a>\n<b></a>", "^f:2: not XML: mismatched tag"),
        (b"<a>&nbsp;</a>", "^f:1: not XML: undefined entity"),
        (b'<!DOCTYPE a [\n<!ENTITY b "c">]><a>&b;</a>', "^f:1: it has a DOCTYPE"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "^f:1: it has a DOCTYPE"),
        (b'<?xml version="1.0" encoding="nonesuch"?><a/>', "^f:1: not XML: "),
        (b"\n".join([b"<a>"] * (DEEPEST + 1)), f"^f:{DEEPEST + 1}: elements deeper than {DEEPEST}"),
        (b" " * (MOST_BYTES + 1), "^f: has 16777217 bytes, more than 16777216"),
    ],
    ids=range(8),
)
def test_what_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(text, "f")


def test_so_many_elements_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "MOST_ELEMENTS", 3)
    assert read(b"<a><b/><b/></a>", "f")
    with pytest.raises(ConfigError, match=r"^f:2: more than 3 elements"):
        read(b"<a><b/><b/>\n<b/></a>", "f")
