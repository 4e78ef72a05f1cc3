"""The four types of XPath 1.0 and the conversions between them (3.3 to 3.5, 4.2 to 4.4).

Decides: string values, number texts, and how two values compare. Comparisons of node-sets are linear in their sizes.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from stompbox.selectors.budget import Budget
from stompbox.selectors.xpath.document import NodeKind, XmlNode

NodeSet = list[XmlNode]
"""In document order, each node once."""

XValue = NodeSet | str | float | bool


class XType(Enum):
    NODES = "a node-set"
    TEXT = "a string"
    NUMBER = "a number"
    BOOLEAN = "a boolean"


class Exhausted(Exception):
    """The evaluation took more steps than it may."""


@dataclass(slots=True)
class Focus:
    """Where an expression is evaluated (XPath 1.0, 1): node, position, size; the document's nodes; the steps left, shared by all foci."""

    node: XmlNode
    position: int
    size: int
    nodes: list[XmlNode]
    budget: Budget

    def at(self, node: XmlNode, position: int, size: int) -> Focus:
        return Focus(node, position, size, self.nodes, self.budget)

    def spend(self, steps: int) -> None:
        if not self.budget.spend(steps):
            raise Exhausted

    def ancestors(self, node: XmlNode) -> NodeSet:
        """The ancestors of a node, from the nearest to the root."""
        found: NodeSet = []
        above = node.parent
        while above >= 0:
            found.append(self.nodes[above])
            above = found[-1].parent
        self.spend(len(found))
        return found


PART = 512  # nodes that are looked at in one go: a twentieth of a millisecond
_CHARACTERS_PER_STEP = 64
_NUMBER = re.compile(r"[ \t\n\r]*+(-?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++))[ \t\n\r]*+")


def spend_text(text: str, focus: Focus) -> str:
    focus.spend(1 + len(text) // _CHARACTERS_PER_STEP)
    return text


def string_value(node: XmlNode, focus: Focus) -> str:
    """XPath 1.0, 5: of a root or an element all the text below it."""
    if node.kind not in (NodeKind.ROOT, NodeKind.ELEMENT):
        return spend_text(node.text, focus)
    first, stop = node.order, node.last + 1
    if stop - first <= PART:
        focus.spend(1 + stop - first)
        return spend_text(_text_of(focus.nodes[first:stop]), focus)
    focus.spend(1)
    texts = []
    for at in range(first, stop, PART):
        part = focus.nodes[at : min(at + PART, stop)]
        focus.spend(len(part))
        texts.append(_text_of(part))
    return spend_text("".join(texts), focus)


def _text_of(nodes: NodeSet) -> str:
    return "".join([node.text for node in nodes if node.kind is NodeKind.TEXT])


def to_text(value: XValue, focus: Focus) -> str:
    if isinstance(value, list):
        return string_value(value[0], focus) if value else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return number_text(value) if isinstance(value, float) else value


def number_text(number: float) -> str:
    """XPath 1.0, 4.2: decimal, never with an exponent."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return (
        str(int(number))
        if number == int(number) and abs(number) < 1e15
        else format(Decimal(repr(number)), "f").removesuffix(".0")
    )


def text_number(text: str) -> float:
    match = _NUMBER.fullmatch(text)
    return float(match[1]) if match else math.nan


def to_number(value: XValue, focus: Focus) -> float:
    return float(value) if isinstance(value, (bool, float)) else text_number(to_text(value, focus))


def to_boolean(value: XValue, focus: Focus) -> bool:
    """XPath 1.0, 4.3: NaN, zero, the empty string and the empty node-set are false."""
    return bool(value) and value == value  # noqa: PLR0124


def compare_equal(left: XValue, right: XValue, focus: Focus, *, same: bool) -> bool:
    """`=` and `!=` (XPath 1.0, 3.4): with a node-set, whether any of its nodes makes it true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return (to_boolean(left, focus) == to_boolean(right, focus)) is same
    if isinstance(left, list) and isinstance(right, list):
        return _any_pair_equal(
            {string_value(node, focus) for node in left},
            {string_value(node, focus) for node in right},
            same=same,
        )
    if isinstance(left, list) or isinstance(right, list):
        nodes, other = (left, right) if isinstance(left, list) else (right, left)
        assert isinstance(nodes, list)
        convert: Callable[[str], XValue] = text_number if isinstance(other, float) else str
        return any((convert(string_value(node, focus)) == other) is same for node in nodes)
    if isinstance(left, float) or isinstance(right, float):
        return (to_number(left, focus) == to_number(right, focus)) is same
    return (left == right) is same


def _any_pair_equal(left: set[str], right: set[str], *, same: bool) -> bool:
    if same:
        return not left.isdisjoint(right)
    return bool(left and right) and len(left | right) > 1


_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare_order(left: XValue, right: XValue, focus: Focus, sign: str) -> bool:
    """`<`, `<=`, `>`, `>=`: always numbers; with node-sets, whether any pair makes it true, so the outermost values decide."""
    lefts, rights = _numbers(left, right, focus), _numbers(right, left, focus)
    if not lefts or not rights:
        return False
    rising = sign[0] == "<"
    return _ORDERS[sign](min(lefts) if rising else max(lefts), max(rights) if rising else min(rights))


def _numbers(value: XValue, other: XValue, focus: Focus) -> list[float]:
    if isinstance(value, list) and not isinstance(other, bool):
        numbers = [text_number(string_value(node, focus)) for node in value]
    else:
        numbers = [float(to_boolean(value, focus)) if isinstance(value, list) else to_number(value, focus)]
    return [number for number in numbers if not math.isnan(number)]
