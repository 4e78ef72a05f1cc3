from __future__ import annotations

import pytest

from stompbox.errors import SelectorError
from stompbox.selectors.limits import SelectorLimits
from stompbox.selectors.nodes import (
    Between,
    Binary,
    BodyTest,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Unary,
    in_order_of_evaluation,
)
from stompbox.selectors.parser import parse
from stompbox.selectors.steps import result
from stompbox.selectors.tokens import tokenize


def tree(text: str, limits: SelectorLimits = SelectorLimits()) -> Node:  # noqa: B008 - a frozen value
    return parse(tokenize(text, conversion=True, limits=limits)[1], limits)


def shape(node: Node) -> str:
    """The tree with every pair of parentheses written out."""
    if isinstance(node, Literal):
        return repr(node.value)
    if isinstance(node, Identifier):
        return node.name
    if isinstance(node, Unary):
        return f"({node.operator} {shape(node.operand)})"
    if isinstance(node, Binary):
        return f"({shape(node.left)} {node.operator} {shape(node.right)})"
    if isinstance(node, Between):
        return f"({shape(node.operand)} {'NOT ' * node.negated}BETWEEN {shape(node.low)} {shape(node.high)})"
    if isinstance(node, IsNull):
        return f"({shape(node.operand)} IS {'NOT ' * node.negated}NULL)"
    if isinstance(node, Like):
        return f"({shape(node.operand)} {'NOT ' * node.negated}LIKE {node.pattern} {node.escape})"
    if isinstance(node, In):
        return f"({shape(node.operand)} {'NOT ' * node.negated}IN {sorted(node.values)})"
    assert isinstance(node, BodyTest)
    return "XPATH" if node.xpath else "XQUERY"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a OR b AND c", "(a OR (b AND c))"),
        ("a AND b OR c AND d", "((a AND b) OR (c AND d))"),
        ("a OR b OR c", "((a OR b) OR c)"),
        ("(a OR b) AND c", "((a OR b) AND c)"),
        ("NOT a = b", "(NOT (a = b))"),
        ("NOT a AND b", "((NOT a) AND b)"),
        ("a AND NOT b = c OR d", "((a AND (NOT (b = c))) OR d)"),
        ("NOT NOT a", "(NOT (NOT a))"),
        ("NOT a IS NULL", "(NOT (a IS NULL))"),
        ("NOT a BETWEEN 1 AND 2 AND b", "((NOT (a BETWEEN 1 2)) AND b)"),
        ("NOT a IN ('x')", "(NOT (a IN ['x']))"),
        ("a = b > c", "(a = (b > c))"),
        ("a = b = c", "((a = b) = c)"),
        ("a = b IS NULL", "((a = b) IS NULL)"),
        ("a > b IS NULL", "((a > b) IS NULL)"),
        ("a + b IS NOT NULL", "((a + b) IS NOT NULL)"),
        ("a = b + c * d", "(a = (b + (c * d)))"),
        ("a - b - c > 0", "(((a - b) - c) > 0)"),
        ("a / b * c % d > 0", "((((a / b) * c) % d) > 0)"),
        ("-a + b > 0", "(((- a) + b) > 0)"),
        ("-a * -b > + c", "(((- a) * (- b)) > (+ c))"),
        ("- -5 = +5", "(5 = 5)"),
        ("-(5) = -5.5", "(-5 = -5.5)"),
        ("-9223372036854775808 < 9223372036854775807", "(-9223372036854775808 < 9223372036854775807)"),
        ("a BETWEEN 1 + 2 AND 3 * 4 AND b", "((a BETWEEN (1 + 2) (3 * 4)) AND b)"),
        ("a BETWEEN b AND c OR d BETWEEN e AND f AND g", "((a BETWEEN b c) OR ((d BETWEEN e f) AND g))"),
        ("a NOT BETWEEN 1 AND 2", "(a NOT BETWEEN 1 2)"),
        ("a BETWEEN (b) AND (c - 1)", "(a BETWEEN b (c - 1))"),
        ("a = b BETWEEN 1 AND 2", "(a = (b BETWEEN 1 2))"),
        ("a LIKE 'x' AND b NOT LIKE 'y' ESCAPE '!'", "((a LIKE x None) AND (b NOT LIKE y !))"),
        ("a + b LIKE 'x'", "((a + b) LIKE x None)"),
        ("a NOT IN ('y', 'x', 'x') OR (b) IN ('z')", "((a NOT IN ['x', 'y']) OR (b IN ['z']))"),
        ("NOT XPATH '//a' OR XQUERY '//b'", "((NOT XPATH) OR XQUERY)"),
        ("a is not null and NULL or true", "(((a IS NOT NULL) AND None) OR True)"),
        ("(((a)))", "a"),
        ("(a = b) = TRUE", "((a = b) = True)"),
        ("1 = 'a'", "(1 = 'a')"),
        ("NULL IS NULL", "(None IS NULL)"),
    ],
)
def test_precedence(text: str, expected: str) -> None:
    assert shape(tree(text)) == expected


CONDITION = "selector-type"
SYNTAX = "selector-syntax"


@pytest.mark.parametrize(
    ("text", "code", "position", "found", "expected"),
    [
        ("a = ", SYNTAX, 5, "the end of the selector", "a header name"),
        ("= 1", SYNTAX, 1, "'='", "a header name"),
        ("a == 1", SYNTAX, 4, "'='", "equality is written ="),
        ("a b", SYNTAX, 3, "'b'", "an operator"),
        ("a XOR b", SYNTAX, 3, "'XOR'", "an operator"),
        ("a 5", SYNTAX, 3, "'5'", "an operator"),
        ("a (b)", "selector-function", 1, "'a'", "functions"),
        ("FIND('^r', color)", "selector-function", 1, "'FIND'", "functions"),
        ("(a = 1", SYNTAX, 7, "the end of the selector", ") for the ( at position 1"),
        ("((a) = 1", SYNTAX, 9, "the end of the selector", ") for the ( at position 1"),
        ("a = 1)", SYNTAX, 6, "')'", "an operator or the end"),
        ("()", SYNTAX, 2, "')'", "a header name"),
        ("a AND", SYNTAX, 6, "the end of the selector", "a header name"),
        ("a AND AND b", SYNTAX, 7, "'AND'", "a header name"),
        ("a IS UNKNOWN", SYNTAX, 6, "'UNKNOWN'", "NULL or NOT NULL"),
        ("a IS NOT TRUE", SYNTAX, 10, "'TRUE'", "NULL"),
        ("a NOT b", SYNTAX, 7, "'b'", "LIKE, IN or BETWEEN"),
        ("a = NOT b", SYNTAX, 5, "'NOT'", "needs parentheses"),
        ("- NOT b = 1", SYNTAX, 3, "'NOT'", "needs parentheses"),
        ("a LIKE 5", SYNTAX, 8, "'5'", "a pattern"),
        ("a LIKE b", SYNTAX, 8, "'b'", "a pattern"),
        ("a LIKE 'x' ESCAPE 'yz'", SYNTAX, 19, "'yz'", "one character"),
        ("a LIKE 'x' ESCAPE ''", SYNTAX, 19, "''", "one character"),
        ("a LIKE 'x' ESCAPE 5", SYNTAX, 19, "'5'", "one character"),
        ("a LIKE 'x!!!' ESCAPE '!'", SYNTAX, 8, "'x!!!'", "last escape"),
        ("a IN ()", SYNTAX, 7, "')'", "a text"),
        ("a IN (1)", SYNTAX, 7, "'1'", "a text"),
        ("a IN 'x'", SYNTAX, 6, "'x'", "("),
        ("a IN ('x'", SYNTAX, 10, "the end of the selector", ", or )"),
        ("a IN ('x' 'y')", SYNTAX, 11, "'y'", ", or )"),
        ("a IN ('x',)", SYNTAX, 11, "')'", "a text"),
        ("'red' IN ('red')", CONDITION, 1, "a text", "a header name on the left of IN"),
        ("a + 1 IN ('red')", CONDITION, 1, "a number", "a header name on the left of IN"),
        ("a BETWEEN 1", SYNTAX, 12, "the end of the selector", "AND for the BETWEEN at position 3"),
        ("a BETWEEN 1 OR 2", SYNTAX, 13, "'OR'", "AND for the BETWEEN"),
        ("a BETWEEN b = c AND d", SYNTAX, 13, "'='", "AND for the BETWEEN"),
        ("(a BETWEEN 1) AND 2", SYNTAX, 13, "')'", "AND for the BETWEEN"),
        ("a BETWEEN 'a' AND 'z'", CONDITION, 11, "a text", "a number or a header name"),
        ("a BETWEEN 1 AND NULL", CONDITION, 17, "NULL", "a number or a header name"),
        ("3", CONDITION, 1, "a number", "a condition"),
        ("3 + 5", CONDITION, 1, "a number", "a condition"),
        ("'red'", CONDITION, 1, "a text", "a condition"),
        ("a = 1 AND 'red'", CONDITION, 11, "a text", "a condition"),
        ("1 OR a", CONDITION, 1, "a number", "a condition"),
        ("NOT (a + 1)", CONDITION, 6, "a number", "a condition"),
        ("a = NULL", CONDITION, 5, "NULL", "IS NULL"),
        ("NULL <> a", CONDITION, 1, "NULL", "IS NULL"),
        ("a < 'red'", CONDITION, 5, "a text", "a number or a header name for <"),
        ("'a' >= b", CONDITION, 1, "a text", "a number or a header name for >="),
        ("a > TRUE", CONDITION, 5, "a condition", "a number or a header name"),
        ("a > b > c", CONDITION, 1, "a condition", "a number or a header name"),
        ("TRUE = 1", CONDITION, 8, "a number", "a condition"),
        ("1 <> FALSE", CONDITION, 6, "a condition", "a number"),
        ("(a = b) = 3", CONDITION, 11, "a number", "a condition"),
        ("TRUE + 1 = 2", CONDITION, 1, "a condition", "a number or a header name"),
        ("-(a = b) = 1", CONDITION, 3, "a condition", "a number or a header name"),
        ("9223372036854775808 > 1", "selector-number", 1, "'9223372036854775808'", "64 bits"),
        ("a = -9223372036854775809", "selector-number", 6, "'9223372036854775809'", "64 bits"),
        ("a - 9223372036854775808 > 1", "selector-number", 5, "'9223372036854775808'", "64 bits"),
        ("0xFFFFFFFFFFFFFFFF > 1", "selector-number", 1, "'0xFFFFFFFFFFFFFFFF'", "64 bits"),
        ("XPATH //a", SYNTAX, 7, "'/'", "single quotes"),
        ("XPATH '//a['", "selector-xpath", 12, "the end of the expression", "XPath"),
        ("XPATH '''a'' = foo()'", "selector-xpath", 16, "'foo'", "a function of XPath 1.0"),
    ],
)
def test_refused(text: str, code: str, position: int, found: str, expected: str) -> None:
    with pytest.raises(SelectorError) as caught:
        tree(text)
    error = caught.value
    assert (error.code, error.position) == (code, position), error.message
    says_found, says_expected = error.message.split(", expected ", 1)
    assert found in says_found
    assert expected in says_expected


@pytest.mark.parametrize(
    ("opening", "inner", "closing", "too_far"),
    [
        ("(", "a = 1", ")", 101),
        ("NOT ", "a = 1", "", 401),
        ("- ", "a = 1", "", 201),
        ("NOT (", "a = 1", ")", 251),
        ("-(", "a", ")", 101),
    ],
)
def test_depth_is_limited_at_the_position_that_goes_too_far(
    opening: str, inner: str, closing: str, too_far: int
) -> None:
    nested = 100 // sum(opening.count(word) for word in ("(", "NOT", "-"))
    rest = " = 1" if inner == "a" else ""
    assert tree(opening * nested + inner + closing * nested + rest)
    with pytest.raises(SelectorError) as caught:
        tree(opening * (nested + 1) + inner + closing * (nested + 1) + rest)
    assert (caught.value.code, caught.value.position) == ("selector-limit", too_far)
    assert "at most 100 nested" in caught.value.message


def test_depth_is_exact() -> None:
    limits = SelectorLimits(depth=2)
    assert tree("((a))", limits)
    assert tree("NOT NOT a AND NOT (b) AND -c > -d", limits)  # side by side, not nested
    with pytest.raises(SelectorError) as caught:
        tree("a AND ((NOT b))", limits)
    assert caught.value.position == 9


def test_long_chains_are_no_nesting() -> None:
    nodes = result(in_order_of_evaluation(tree("a" + " IS NULL" * 2000)))
    assert len(nodes) == 2001


def test_operands_come_before_what_uses_them() -> None:
    assert [shape(node) for node in result(in_order_of_evaluation(tree("a + b = c")))] == [
        "a",
        "b",
        "(a + b)",
        "c",
        "((a + b) = c)",
    ]
