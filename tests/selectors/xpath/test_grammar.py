from __future__ import annotations

import pytest

from stompbox.selectors.xpath import DEPTH, XPathFault, compile_xpath


@pytest.mark.parametrize(
    ("text", "offset", "found", "expected"),
    [
        ("", 0, "the end", "a path"),
        ("//", 2, "the end", "a path"),
        ("//a[", 4, "the end", "a path"),
        ("//a[1", 5, "the end", "']'"),
        ("(a", 2, "the end", "')'"),
        ("a b", 2, "'b'", "an operator"),
        ("a = ", 4, "the end", "a path"),
        ("$x", 0, "'$'", "no variables"),
        ("foo(1)", 0, "'foo'", "a function of XPath 1.0"),
        ("cuont(a)", 0, "'cuont'", "the nearest is count"),
        ("document('x')", 0, "'document'", "a function"),
        ("matches('a', 'b')", 0, "'matches'", "a function"),
        ("n:a", 0, "'n:a'", "local-name()"),
        ("n:*", 0, "'n:*'", "local-name()"),
        ("namespace::x", 0, "'namespace'", "an axis"),
        ("chld::x", 0, "'chld'", "the nearest is child"),
        ("a/foo()", 2, "'foo'", "a node type"),
        ("node(1)", 5, "'1'", "')'"),
        ("text('x')", 5, "''x''", "')'"),
        ("count()", 0, "'count'", "1 arguments"),
        ("count(a, b)", 0, "'count'", "1 arguments"),
        ("concat('a')", 0, "'concat'", "at least 2"),
        ("substring('a')", 0, "'substring'", "2 to 3"),
        ("last(1)", 0, "'last'", "0 arguments"),
        ("count(1)", 6, "a number", "a node-set"),
        ("sum('a')", 4, "a string", "a node-set"),
        ("1[1]", 0, "a number", "a node-set"),
        ("'a'/b", 0, "a string", "a node-set"),
        ("true()//b", 0, "a boolean", "a node-set"),
        ("a | 1", 0, "no node-set", "'|'"),
        ("if (1) then 2 else 3", 0, "'if'", "a function"),
        ("a and", 5, "the end", "a path"),
        ("@", 1, "the end", "a path"),
        ("a/", 2, "the end", "a path"),
        (".[1]", 1, "'['", "an operator"),  # XPath 1.0, 2.5: an abbreviated step has no predicates
    ],
)
def test_refused(text: str, offset: int, found: str, expected: str) -> None:
    with pytest.raises(XPathFault) as caught:
        compile_xpath(text)
    fault = caught.value
    assert fault.offset == offset, str(fault)
    assert found in fault.found
    assert expected in fault.expected


@pytest.mark.parametrize(
    ("opening", "inner", "closing"), [("(", "1", ")"), ("a[", "1", "]"), ("not(", "1", ")"), ("-(", "1", ")")]
)
def test_depth_is_limited(opening: str, inner: str, closing: str) -> None:
    assert compile_xpath(opening * DEPTH + inner + closing * DEPTH)
    with pytest.raises(XPathFault) as caught:
        compile_xpath(opening * (DEPTH + 1) + inner + closing * (DEPTH + 1))
    assert f"at most {DEPTH}" in caught.value.expected


@pytest.mark.parametrize(
    "text",
    [
        "1" + "+1" * 400,
        "a" + "/a" * 400,
        "a" + "|a" * 400,
        "a" + "[1]" * 300,
        "-" * 900 + "1",
        "1" + " or 1" * 400,
    ],
)
def test_length_is_no_depth(text: str) -> None:
    assert compile_xpath(text).text == text


def test_names_of_operators_are_names_where_an_operand_is_due() -> None:
    for text in ("and", "or or or", "div div mod", "* * *", "@and = mod", "text = text()", "node/comment"):
        assert compile_xpath(text).text == text
