"""What is generated, against an evaluator so plain that it can be checked by eye."""

from __future__ import annotations

import gc
import itertools
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompbox.selectors import Value, compile_selector
from tests.server.world import uncollected

Truth = bool | None

# Three-valued logic: the whole tables (JMS 1.1, 3.8.1.2).

TRUTHS: dict[str, Truth] = {
    "TRUE": True,
    "FALSE": False,
    "NULL": None,
    "(yes = 1)": True,
    "(no = 1)": False,
    "(missing = 1)": None,
}
HEADERS: dict[str, Value] = {"yes": "1", "no": "0"}


def both(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def negation(value: Truth) -> Truth:
    return None if value is None else not value


def either(left: Truth, right: Truth) -> Truth:
    return negation(both(negation(left), negation(right)))


def answers(text: str, headers: dict[str, Value] = HEADERS) -> Truth:
    """The three-valued answer, from the outside: TRUE matches, FALSE matches negated, UNKNOWN neither."""
    if compile_selector(text).matches(headers, {}):
        return True
    return False if compile_selector(f"NOT ({text})").matches(headers, {}) else None


@pytest.mark.parametrize(("left", "right"), list(itertools.product(TRUTHS, TRUTHS)))
def test_and_or(left: str, right: str) -> None:
    assert answers(f"{left} AND {right}") is both(TRUTHS[left], TRUTHS[right])
    assert answers(f"{left} OR {right}") is either(TRUTHS[left], TRUTHS[right])


@pytest.mark.parametrize("operand", list(TRUTHS))
def test_not(operand: str) -> None:
    assert answers(f"NOT {operand}") is negation(TRUTHS[operand])
    assert answers(f"NOT NOT {operand}") is TRUTHS[operand]


@pytest.mark.parametrize(
    "text",
    [
        "missing = 1",
        "missing <> 'a'",
        "missing = other",
        "missing <> yes",
        "yes <> missing",
        "missing > 1",
        "missing BETWEEN 1 AND 2",
        "missing NOT BETWEEN 1 AND 2",
        "yes BETWEEN missing AND 5",
        "missing LIKE '%'",
        "missing NOT LIKE '%'",
        "missing IN ('a')",
        "missing NOT IN ('a')",
        "missing + 1 = 1",
        "missing",
        "-missing = 1",
        "1 / 0 = 1",
        "(missing = 1) = TRUE",
    ],
)
def test_a_missing_header_makes_it_unknown(text: str) -> None:
    assert answers(text) is None


def test_between_is_false_as_soon_as_one_bound_says_so() -> None:
    assert answers("yes BETWEEN 2 AND missing") is False
    assert answers("yes BETWEEN missing AND 0") is False
    assert answers("yes NOT BETWEEN 2 AND missing") is True


def test_is_null_is_never_unknown() -> None:
    assert answers("missing IS NULL") is True
    assert answers("missing IS NOT NULL") is False
    assert answers("missing + 1 IS NULL") is True
    assert answers("(missing = 1) IS NULL") is True
    assert answers("1 / 0 IS NULL") is True


def test_the_right_side_is_left_alone_when_the_left_side_decides() -> None:
    asked: list[str] = []

    class Asked(dict[str, Value]):
        def get(self, name: str, default: Value = None) -> Value:  # type: ignore[override]
            asked.append(name)
            return super().get(name, default)

    headers = Asked(yes="1", no="0")
    assert not compile_selector("no = 1 AND yes = 1").matches(headers, {})
    assert compile_selector("yes = 1 OR no = 1").matches(headers, {})
    assert asked == ["no", "yes"]


# Random selectors against a reference.

NAMES = ["a", "b", "c", "d"]
VALUES: list[Value] = [None, "", "x", "xy", "21", "2.5", "-3", "true", "false", 3, 2.5, True, False]
NUMBERS: list[int | float] = [0, 1, 3, 21, 2.5, 0.5]
TEXTS = ["x", "xy", "21", "3", "true", "", "it's"]
PATTERNS = ["%", "x%", "_", "%1", "x_", "__%", ""]
LOOSE, MIDDLE, TIGHT = 0, 1, 2


class Tree:
    """A random selector: its text in full parentheses or in as few as the grammar needs, and its value by the rules."""

    def __init__(self, operator: str, *operands: object, binding: int = 9) -> None:
        self.operator, self.operands, self.binding = operator, operands, binding

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        parts = [self._part(operand, at) for at, operand in enumerate(self.operands)]
        return self.operator.format(*parts)

    def _part(self, operand: object, at: int) -> str:
        if not isinstance(operand, Tree):
            return str(operand)
        # Operators of one precedence go from left to right, so the right side needs parentheses where the left one does not.
        return (
            operand.text()
            if operand.binding > self.binding or (operand.binding == self.binding and at == 0)
            else f"({operand.text()})"
        )


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


names = st.sampled_from(NAMES).map(lambda name: Tree("{0}", name))
numbers = st.sampled_from(NUMBERS).map(lambda number: Tree("{0}", number))
amounts = st.recursive(
    names | numbers,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-"), inner).map(
            lambda t: Tree("{0} " + t[1] + " {1}", t[0], t[2], binding=5)
        ),
        st.tuples(inner, st.sampled_from("*/%"), inner).map(
            lambda t: Tree("{0} " + t[1] + " {1}", t[0], t[2], binding=6)
        ),
        inner.map(lambda t: Tree("- {0}", t, binding=7)),
    ),
    max_leaves=4,
)
simple = st.one_of(
    names,
    st.sampled_from(["TRUE", "false", "Null"]).map(Tree),
    st.tuples(amounts, st.sampled_from(["=", "<>"]), amounts).map(
        lambda t: Tree("{0} " + t[1] + " {1}", t[0], t[2], binding=3)
    ),
    st.tuples(amounts, st.sampled_from(["<", "<=", ">", ">="]), amounts).map(
        lambda t: Tree("{0} " + t[1] + " {1}", t[0], t[2], binding=4)
    ),
    st.tuples(
        names, st.sampled_from(["=", "<>"]), st.sampled_from([*map(quoted, TEXTS), "TRUE", "FALSE"])
    ).map(lambda t: Tree("{0} " + t[1] + " {1}", t[0], t[2], binding=3)),
    st.tuples(amounts, st.sampled_from(["", "NOT "]), amounts, amounts).map(
        lambda t: Tree("{0} " + t[1] + "BETWEEN {1} AND {2}", t[0], t[2], t[3], binding=4)
    ),
    st.tuples(names, st.sampled_from(["", "NOT "]), st.sampled_from(PATTERNS)).map(
        lambda t: Tree("{0} " + t[1] + "LIKE {1}", t[0], quoted(t[2]), binding=4)
    ),
    st.tuples(
        names, st.sampled_from(["", "NOT "]), st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3)
    ).map(lambda t: Tree("{0} " + t[1] + "IN ({1})", t[0], ", ".join(map(quoted, t[2])), binding=4)),
    st.tuples(amounts, st.sampled_from(["", "NOT "])).map(
        lambda t: Tree("{0} IS " + t[1] + "NULL", t[0], binding=3)
    ),
)
conditions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda t: Tree("{0} AND {1}", *t, binding=1)),
        st.tuples(inner, inner).map(lambda t: Tree("{0} OR {1}", *t, binding=0)),
        inner.map(lambda t: Tree("NOT {0}", t, binding=2)),
    ),
    max_leaves=6,
)


def number(value: Value) -> int | float | None:
    if isinstance(value, str):
        return float(value) if re.fullmatch(r"-?\d+(\.\d+)?", value) else None
    return None if value is None or isinstance(value, bool) else value


def compared(sign: str, left: Value, right: Value) -> Truth:
    if left is None or right is None:
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        truths = [
            {"true": True, "false": False}.get(value) if isinstance(value, str) else value
            for value in (left, right)
        ]
        if not all(isinstance(value, bool) for value in truths):
            return False
        return {"=": truths[0] == truths[1], "<>": truths[0] != truths[1]}.get(sign, False)
    if not (isinstance(left, str) and isinstance(right, str)):
        left, right = number(left), number(right)
        if left is None or right is None:
            return False
    holds = {"=": left == right, "<>": left != right}
    return (
        holds[sign]
        if sign in holds
        else {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]
    )  # type: ignore[operator]


def calculated(sign: str, left: Value, right: Value) -> Value:
    a, b = number(left), number(right)
    if a is None or b is None or (b == 0 and sign in "/%"):
        return None
    return {"+": a + b, "-": a - b, "*": a * b, "/": a / (b or 1), "%": math.fmod(a, b or 1)}[sign]


def value_of(tree: object, headers: dict[str, Value]) -> Value:
    """The rules of docs, one line each, with no eye for speed."""
    if not isinstance(tree, Tree):
        return (
            tree
            if not isinstance(tree, str)
            else tree[1:-1].replace("''", "'")
            if tree.startswith("'")
            else tree == "TRUE"
        )
    words = tree.operator.split()
    if words == ["{0}"]:
        return headers.get(tree.operands[0]) if isinstance(tree.operands[0], str) else tree.operands[0]  # type: ignore[return-value]
    if not tree.operands:
        return {"TRUE": True, "FALSE": False, "NULL": None}[tree.operator.upper()]
    if "AND" in words and "BETWEEN" not in words:
        return both(truth_of(tree.operands[0], headers), truth_of(tree.operands[1], headers))
    if words[0] == "NOT":
        return negation(truth_of(tree.operands[0], headers))
    if words[1:2] == ["OR"]:
        return either(truth_of(tree.operands[0], headers), truth_of(tree.operands[1], headers))
    if words[0] == "-":
        return calculated("-", 0, value_of(tree.operands[0], headers))
    left = value_of(tree.operands[0], headers)
    if words[1] == "IS":
        return (left is None) is not ("NOT" in words)
    if "LIKE" in words or "IN" in words:
        return membership(tree, left, negated="NOT" in words)
    right = value_of(tree.operands[1], headers)
    if words[1] in "+-*/%":
        return calculated(words[1], left, right)
    if "BETWEEN" in words:
        within = both(compared(">=", left, right), compared("<=", left, value_of(tree.operands[2], headers)))
        return negation(within) if "NOT" in words else within
    return compared(words[1], left, right)


def membership(tree: Tree, left: Value, *, negated: bool) -> Truth:
    if not isinstance(left, str):
        return None
    right = str(tree.operands[1])
    if "LIKE" in tree.operator:
        found = bool(re.fullmatch(right[1:-1].replace("%", ".*").replace("_", "."), left, re.DOTALL))
    else:
        found = left in [text[1:-1].replace("''", "'") for text in right.split(", ")]
    return found is not negated


def truth_of(tree: object, headers: dict[str, Value]) -> Truth:
    value = value_of(tree, headers)
    if value is None or isinstance(value, bool):
        return value
    return value == "true"


@settings(max_examples=1500, derandomize=True, deadline=None)
@given(conditions, st.lists(st.sampled_from(VALUES), min_size=4, max_size=4))
def test_agrees_with_the_reference(tree: Tree, values: list[Value]) -> None:
    headers = {name: value for name, value in zip(NAMES, values, strict=True) if value is not None}
    assert answers(tree.text(), headers) is truth_of(tree, headers), tree.text()


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND b LIKE '%x_' OR c IN ('d', 'e')",
        "a BETWEEN 1 AND 2 AND NOT b IS NULL",
        "XPATH '//a[. = 1]'",
        "a = 1 AND (" * 60 + "b = 2" + ")" * 60,
        " OR ".join([f"a = {number}" for number in range(400)]),
    ],
    ids=["headers", "ranges", "XPATH", "nested", "long"],
)
def test_a_selector_that_nobody_needs_any_more_is_gone_at_once(text: str) -> None:
    """And not when the collector comes: what it keeps of memory is not counted any more."""
    with uncollected():
        before = len(gc.get_objects())
        for _ in range(20):
            compile_selector(text)
        assert len(gc.get_objects()) < before + 20
