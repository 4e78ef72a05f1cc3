from __future__ import annotations

import pytest

from stompbox.selectors.xpath import TOKENS, XPathFault
from stompbox.selectors.xpath.tokens import tokenize_xpath


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("//a/b[1]", ["//", "a", "/", "b", "[", "1", "]"]),
        ("a-b", ["a-b"]),  # a hyphen belongs to a name
        ("a -b", ["a", "-", "b"]),
        ("child::a", ["child", "::", "a"]),
        ("xml:lang xml:*", ["xml:lang", "xml:*"]),
        ("1.5 .5 5.", ["1.5", ".5", "5."]),
        (".. . 1..", ["..", ".", "1.", "."]),
        ("\"it's\" 'a\"b'", ['"it\'s"', "'a\"b'"]),
        ("a!=b<=c>=d|$e", ["a", "!=", "b", "<=", "c", ">=", "d", "|", "$", "e"]),
        ("größe/имя", ["größe", "/", "имя"]),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert [token.text for token in tokenize_xpath(text)][:-1] == expected


@pytest.mark.parametrize(
    ("text", "offset"), [("a # b", 2), ("'open", 0), ("a:", 1), ("a & b", 2), ("\x01", 0)]
)
def test_refused(text: str, offset: int) -> None:
    with pytest.raises(XPathFault) as caught:
        tokenize_xpath(text)
    assert caught.value.offset == offset


def test_the_number_of_tokens_is_limited() -> None:
    assert len(tokenize_xpath("1+" * (TOKENS // 2))) == TOKENS + 1
    with pytest.raises(XPathFault, match=f"at most {TOKENS} tokens"):
        tokenize_xpath("1+" * (TOKENS // 2) + "1")
